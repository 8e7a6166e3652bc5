//! How many calls a cluster gets at a time.
//!
//! The limit follows what the API server says: each refusal for load (429) halves it, each good answer
//! raises it a little, until it is back at the configured most. A refusal that names a time
//! (`Retry-After`) also closes the door until then.
//!
//! Vital calls (a leader's hold, leases of nodes) pass by: they are few, and a queue of pods must not
//! make a node look dead.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A server that asks us to wait longer than this is not obeyed: it is about to restart, and the
/// backoff of the key that was refused is the better judge.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How often those who wait look whether the door was opened early.
const LOOK_AT_THE_DOOR: Duration = Duration::from_secs(1);

/// Shared by all calls to one cluster.
#[derive(Clone)]
pub(crate) struct Limiter {
    state: Arc<Mutex<State>>,
}

struct State {
    most: f64,
    limit: f64,
    in_flight: usize,
    closed_until: Option<Instant>,
    /// How often it was halved. What was sent before the last time says nothing about the new limit.
    halvings: u64,
    /// How many servers there were. What the last one says about its load is not about this one's.
    servers: u64,
    /// Time between two calls, where they are rationed.
    spacing: Option<Duration>,
    /// When the next call would be due if all of them kept their distance; `None`: there was none yet.
    due: Option<Instant>,
    waiting: VecDeque<oneshot::Sender<Permit>>,
}

/// The right to one call; given back when dropped.
pub(crate) struct Permit {
    limiter: Option<Limiter>,
    halvings: u64,
    servers: u64,
}

impl Limiter {
    pub(crate) fn new(most: usize, per_second: Option<f32>) -> Self {
        // Slower than one in a quarter of an hour is a mistake, and not a rate.
        let spacing = per_second.and_then(|rate| Duration::try_from_secs_f32(1.0 / rate.max(0.001)).ok());
        let most = f64::from(u32::try_from(most.max(1)).unwrap_or(u32::MAX));
        let state = State {
            most,
            limit: most,
            in_flight: 0,
            closed_until: None,
            halvings: 0,
            servers: 0,
            spacing,
            due: None,
            waiting: VecDeque::new(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Waits for its turn, in the order of asking, and while the door is closed.
    pub(crate) async fn acquire(&self) -> Permit {
        let permit = self.turn().await;
        let ration = self.state.lock().ration(Instant::now());
        if let Some(at) = ration {
            tokio::time::sleep_until(at).await;
        }
        loop {
            let closed_until = self.state.lock().closed_until;
            match closed_until {
                // The door may be opened early: another server is behind it.
                Some(until) if until > Instant::now() => {
                    tokio::time::sleep_until(until.min(Instant::now() + LOOK_AT_THE_DOOR)).await;
                }
                _ => return permit,
            }
        }
    }

    async fn turn(&self) -> Permit {
        let turn = {
            let mut state = self.state.lock();
            if state.waiting.is_empty() && state.has_room() {
                state.in_flight += 1;
                return state.permit(self);
            }
            let (sender, turn) = oneshot::channel();
            state.waiting.push_back(sender);
            turn
        };
        // The sender lives in the state that `self` keeps alive; it is only dropped by sending.
        turn.await.unwrap_or(Permit { limiter: None, halvings: 0, servers: 0 })
    }

    /// The server answered without complaint: one more per round of calls.
    pub(crate) fn answered(&self) {
        let freed = {
            let mut state = self.state.lock();
            state.limit = (state.limit + 1.0 / state.limit).min(state.most);
            state.admit(self)
        };
        hand_over(freed);
    }

    /// The server refused for load. Of many calls that are refused together only the first one counts.
    pub(crate) fn throttled(&self, permit: Option<&Permit>, retry_after: Option<Duration>) {
        let mut state = self.state.lock();
        if permit.is_some_and(|permit| permit.servers != state.servers) {
            return;
        }
        if permit.is_none_or(|permit| permit.halvings == state.halvings) {
            state.limit = (state.limit / 2.0).max(1.0);
            state.halvings += 1;
        }
        if let Some(pause) = retry_after {
            let until = Instant::now() + pause.min(LONGEST_PAUSE);
            state.closed_until = Some(state.closed_until.map_or(until, |known| known.max(until)));
        }
    }

    /// Another server is behind it now.
    pub(crate) fn start_anew(&self) {
        let freed = {
            let mut state = self.state.lock();
            state.servers += 1;
            // Whoever still waits for the last one takes nobody's place at this one.
            state.in_flight = 0;
            state.limit = state.most;
            state.closed_until = None;
            state.admit(self)
        };
        hand_over(freed);
    }

    /// The limit now, and how many calls are under way.
    pub(crate) fn load(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.whole_limit(), state.in_flight)
    }
}

impl State {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and u32::MAX")]
    fn whole_limit(&self) -> usize {
        self.limit as usize
    }

    /// When a call may go, if not at once. Who was silent has saved up as much as goes at a time.
    fn ration(&mut self, now: Instant) -> Option<Instant> {
        let spacing = self.spacing?;
        let saved = spacing.mul_f64(self.most);
        let earliest = now.checked_sub(saved).unwrap_or(now);
        let due = self.due.map_or(earliest, |due| due.max(earliest)) + spacing;
        self.due = Some(due);
        (due > now).then_some(due)
    }

    fn permit(&self, limiter: &Limiter) -> Permit {
        Permit { limiter: Some(limiter.clone()), halvings: self.halvings, servers: self.servers }
    }

    fn has_room(&self) -> bool {
        self.in_flight < self.whole_limit()
    }

    /// Takes those off the queue whose turn it is. They are told outside of the lock.
    fn admit(&mut self, limiter: &Limiter) -> Vec<(oneshot::Sender<Permit>, Permit)> {
        let mut admitted = Vec::new();
        while self.has_room() {
            match self.waiting.pop_front() {
                Some(sender) if sender.is_closed() => {}
                Some(sender) => {
                    self.in_flight += 1;
                    admitted.push((sender, self.permit(limiter)));
                }
                None => break,
            }
        }
        admitted
    }
}

/// Whoever stopped waiting in the meantime gives its permit back by dropping it.
fn hand_over(admitted: Vec<(oneshot::Sender<Permit>, Permit)>) {
    for (sender, permit) in admitted {
        drop(sender.send(permit));
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(limiter) = self.limiter.take() {
            let freed = {
                let mut state = limiter.state.lock();
                if self.servers == state.servers {
                    state.in_flight -= 1;
                }
                state.admit(&limiter)
            };
            hand_over(freed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_halves_the_limit_and_good_answers_bring_it_back() {
        let limiter = Limiter::new(8, None);
        limiter.throttled(None, None);
        assert_eq!(limiter.load().0, 4);
        for _ in 0..10 {
            limiter.throttled(None, None);
        }
        assert_eq!(limiter.load().0, 1, "never below one: someone has to find out that it is over");
        for _ in 0..200 {
            limiter.answered();
        }
        assert_eq!(limiter.load().0, 8, "never above what was configured");
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_of_refusals_halves_once() {
        let limiter = Limiter::new(32, None);
        let mut permits = Vec::new();
        for _ in 0..32 {
            permits.push(limiter.acquire().await);
        }
        for permit in &permits {
            limiter.throttled(Some(permit), None);
        }
        assert_eq!(limiter.load().0, 16);
        limiter.start_anew();
        assert_eq!(limiter.load().0, 32);
        limiter.throttled(Some(&permits[0]), Some(Duration::from_secs(9)));
        assert_eq!(limiter.load().0, 32, "that was the server before");
        let asked = Instant::now();
        let fresh = limiter.acquire().await;
        assert_eq!(asked.elapsed().as_secs(), 0, "who hangs at the server before is not in the way");
        drop(permits);
        assert_eq!(limiter.load(), (32, 1), "nor does it give back what it does not have");
        drop(fresh);
        assert_eq!(limiter.load(), (32, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_rationed_where_someone_says_so() {
        let limiter = Limiter::new(5, Some(10.0));
        tokio::time::advance(Duration::from_secs(60)).await;
        let started = Instant::now();
        for _ in 0..25 {
            drop(limiter.acquire().await);
        }
        assert_eq!(started.elapsed().as_millis() / 100, 20, "five at once, then ten a second");
    }

    #[tokio::test(start_paused = true)]
    async fn callers_wait_for_their_turn_in_order() {
        let limiter = Limiter::new(1, None);
        let first = limiter.acquire().await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiting: Vec<_> = (0..3)
            .map(|n| {
                let (limiter, order) = (limiter.clone(), Arc::clone(&order));
                tokio::spawn(async move {
                    let _permit = limiter.acquire().await;
                    order.lock().push(n);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        waiting[1].abort();
        tokio::task::yield_now().await;
        drop(first);
        for task in waiting {
            drop(task.await);
        }
        assert_eq!(*order.lock(), [0, 2], "the one that gave up keeps nobody waiting");
        assert_eq!(limiter.load(), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_closes_the_door_until_then() {
        let limiter = Limiter::new(4, None);
        limiter.throttled(None, Some(Duration::from_secs(7)));
        let asked = Instant::now();
        drop(limiter.acquire().await);
        assert_eq!(asked.elapsed().as_secs(), 7);
        limiter.throttled(None, Some(Duration::from_secs(86_400)));
        let asked = Instant::now();
        drop(limiter.acquire().await);
        assert!(asked.elapsed() <= LONGEST_PAUSE + Duration::from_millis(1));
    }
}

//! The loop that every component is made of: key, plan, writes, fence.
//!
//! A planner looks at its stores and says what should be written for one key. Each write is done in order;
//! the first that fails ends the round, and its outcome says when to come back. A key is not planned again
//! before the stores have seen what was written for it.
//!
//! Deliberately absent: events. Planners get a key, and look.

use std::time::Duration;

use jiff::Timestamp;
use kubeocean_model::action::{Action, Kind};
use kubeocean_model::key::OnSide;
use tokio_util::sync::CancellationToken;

use crate::apply::{Applier, Outcome};
use crate::clock::Clock;
use crate::fence::Fences;
use crate::queue::{Queue, QueueKey, Verdict};
use crate::store::{Shape, Store};

/// Timers go by the monotonic clock, plans by the wall. When the one is set, or the machine sleeps, the two part; a
/// look at least this often brings them together, and costs a plan, which is microseconds.
const LOOK_AT_THE_CLOCK: Duration = Duration::from_secs(30);

/// What should happen for one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// To be written, in this order.
    pub actions: Vec<Action>,
    /// When to look again even if nothing happens.
    pub again_at: Option<Timestamp>,
}

impl Plan {
    /// Nothing is to be done.
    pub fn rest() -> Self {
        Self::default()
    }

    /// These writes, and no timer.
    pub fn of(actions: Vec<Action>) -> Self {
        Self { actions, again_at: None }
    }
}

/// What a queue should do about a key that is to be looked at then, if at all.
pub fn look_again(at: Option<Timestamp>, now: Timestamp) -> Verdict {
    match at {
        Some(at) => {
            let wait = Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
            Verdict::Again(wait.min(LOOK_AT_THE_CLOCK))
        }
        None => Verdict::Done,
    }
}

/// Plans and writes for the keys of one queue. Clones are the same.
pub struct Reconciler<K> {
    /// The keys. Informers add to it.
    pub queue: Queue<K>,
    /// Who writes.
    pub applier: Applier,
    /// What keys wait for.
    pub fences: Fences<K>,
    /// What time it is.
    pub clock: Clock,
}

impl<K: QueueKey> Reconciler<K> {
    /// Plans for the keys of `queue`, on no store yet.
    pub fn new(queue: Queue<K>, applier: Applier, clock: &Clock) -> Self {
        Self { queue, applier, fences: Fences::new(), clock: clock.clone() }
    }

    /// Plans are made on this store: keys wait until it has seen what was written for them.
    #[must_use]
    pub fn following<S: OnSide, T: Shape>(mut self, kind: Kind, store: &Store<S, T>) -> Self {
        self.applier = self.applier.following(kind, store);
        self.fences.open_into(&self.queue, store.progress());
        self
    }

    /// Runs until the queue is closed. `at_a_time` keys are worked on together.
    pub async fn run(&self, at_a_time: usize, plan: impl Fn(&K, Timestamp) -> Plan) {
        self.run_until(CancellationToken::new(), at_a_time, plan).await;
    }

    /// One round for one key.
    pub async fn look_at(&self, key: &K, plan: &impl Fn(&K, Timestamp) -> Plan) -> Verdict {
        if !self.fences.is_open(key) {
            return Verdict::Blocked;
        }
        let now = self.clock.now();
        let Plan { actions, again_at } = plan(key, now);
        for action in &actions {
            let outcome = self.write(key, action).await;
            if !outcome.fulfils(action) {
                return outcome.verdict();
            }
        }
        look_again(again_at, now)
    }

    /// One write for a key, which closes its fence. For loops that need the outcome, or the answer, of one write for
    /// the next; they ask [`Fences::is_open`] first.
    pub async fn write(&self, key: &K, action: &Action) -> Outcome {
        let before = self.applier.before(action);
        let outcome = self.applier.apply(action).await;
        let awaited = before.into_iter().filter_map(|before| before.wait_for(action, &outcome)).collect();
        self.fences.close(key, awaited);
        outcome
    }

    /// As [`Reconciler::run`], until told to stop; what was begun is finished.
    pub async fn run_until(
        &self,
        stop: CancellationToken,
        at_a_time: usize,
        plan: impl Fn(&K, Timestamp) -> Plan,
    ) {
        self.queue
            .run_until(stop, at_a_time, |key| {
                let plan = &plan;
                async move { self.look_at(&key, plan).await }
            })
            .await;
    }
}

impl<K> Clone for Reconciler<K> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            applier: self.applier.clone(),
            fences: self.fences.clone(),
            clock: self.clock.clone(),
        }
    }
}

impl<K: QueueKey> std::fmt::Debug for Reconciler<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reconciler").field("queue", &self.queue).finish_non_exhaustive()
    }
}

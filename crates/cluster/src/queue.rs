//! Keys that someone has to look at.
//!
//! - A key that waits is there once, however often it is added.
//! - A key that is being worked on is not given out again; if it is added meanwhile, it comes back after.
//! - Kinds of keys take turns, so that ten thousand pods do not keep one node waiting.
//! - A key that fails waits longer each time, on its own clock: it delays nobody else.
//! - News about a key ([`Queue::add`]) come at once, whatever it is waiting for. Only where a key failed
//!   several times in a row they come after a second: what is news may be the echo of the attempt.
//!
//! Deliberately absent: what is to be done with a key, and why it was added.

mod state;

use std::fmt::Debug;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use futures::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::backoff::process_seed;
use crate::metrics::{Metrics, Observation, QueueClass, QueueLabels, QueueOutcome};
use state::State;

/// A key that failed this often in a row is suspected to make its own news: it writes, and then fails.
const SUSPECT: u32 = 3;

/// How fast a suspect may go round. Real news wait no longer than this either.
const SUSPECTS_WAIT: Duration = Duration::from_secs(1);

/// What a queue is made of.
pub trait QueueKey: Ord + Clone + Debug + Send + Sync + 'static {
    /// The kind that it takes turns with others for; one of few words.
    fn class(&self) -> &'static str {
        "keys"
    }
}

impl QueueKey for String {}

impl<S: 'static> QueueKey for kubeocean_model::key::Key<S> {}

/// What came of a look at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is left to do. The next failure is the first one.
    Done,
    /// As [`Verdict::Done`]; look again after this time.
    Again(Duration),
    /// It failed, in one word. Look again after a delay that grows.
    Failed(&'static str),
    /// It failed, and the server said how long to stay away at least.
    NotBefore(&'static str, Duration),
    /// It cannot be looked at now, and will be added by someone when it can.
    Blocked,
}

impl Verdict {
    /// To be looked at again after this time, or sooner.
    #[must_use]
    pub fn at_most(self, longest: Duration) -> Self {
        match self {
            Self::Again(wait) => Self::Again(wait.min(longest)),
            _ => Self::Again(longest),
        }
    }
}

/// How long keys wait that fail.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// After the first failure.
    pub first: Duration,
    /// At most.
    pub most: Duration,
    /// What delays are jittered by: another number in every process, a fixed one in simulations.
    pub seed: u64,
}

impl Default for Retry {
    /// Most first failures are conflicts, and over in milliseconds. After five minutes it is for a human to
    /// act, and their action adds the key.
    fn default() -> Self {
        Self { first: Duration::from_millis(50), most: Duration::from_secs(300), seed: process_seed() }
    }
}

/// A queue. Clones are the same queue.
pub struct Queue<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    name: Arc<str>,
    state: Mutex<State<K>>,
    news: Notify,
    /// A key that is being worked on was added again.
    overtaken: Notify,
    retry: Retry,
    metrics: Metrics,
    _oldest: Observation,
}

/// Sizes of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Sizes {
    /// Ready to be looked at.
    pub ready: usize,
    /// Waiting for their time.
    pub delayed: usize,
    /// Being worked on.
    pub active: usize,
    /// Failed the last time.
    pub failing: usize,
}

impl<K: QueueKey> Queue<K> {
    /// An empty queue. Its name is for metrics.
    pub fn new(name: impl Into<Arc<str>>, retry: Retry, metrics: &Metrics) -> Self {
        let name = name.into();
        let labels = QueueLabels { queue: Arc::clone(&name) };
        let inner = Arc::new_cyclic(|inner: &Weak<Inner<K>>| {
            let inner = Weak::clone(inner);
            let oldest = metrics.cluster().queue_oldest.observe(labels, move || {
                let inner = inner.upgrade()?;
                let oldest = inner.state.lock().oldest();
                Some(oldest.as_secs_f64())
            });
            Inner {
                name,
                state: Mutex::new(State::default()),
                news: Notify::new(),
                overtaken: Notify::new(),
                retry,
                metrics: metrics.clone(),
                _oldest: oldest,
            }
        });
        Self { inner }
    }

    /// A handle that does not keep it alive.
    pub(crate) fn downgrade(&self) -> WeakQueue<K> {
        WeakQueue(Arc::downgrade(&self.inner))
    }

    /// There is news about a key: it is looked at as soon as it is its turn.
    pub fn add(&self, key: K) {
        let mut state = self.inner.state.lock();
        if let Some(not_before) = state.not_before.get(&key).copied().filter(|at| *at > Instant::now()) {
            state.add_at(key, not_before);
        } else if state.failures.get(&key).is_some_and(|failures| *failures >= SUSPECT) {
            state.add_at(key, Instant::now() + SUSPECTS_WAIT);
        } else {
            state.forget_delay(&key);
            if state.add(key) {
                self.inner.overtaken.notify_waiters();
            }
        }
        self.show_depth(&state);
        drop(state);
        self.inner.news.notify_one();
    }

    /// Waits until a key that is being worked on was added again: what is being found out about it is old news already. Work
    /// that takes long, such as waiting for a server, can be given up then; the key is looked at again at once.
    pub async fn overtaken(&self, key: &K) {
        loop {
            let mut told = std::pin::pin!(self.inner.overtaken.notified());
            // From here on nothing is missed.
            told.as_mut().enable();
            if self.inner.state.lock().active.get(key) == Some(&true) {
                return;
            }
            told.await;
        }
    }

    /// A key is to be looked at after a time, or sooner.
    pub fn add_after(&self, key: K, delay: Duration) {
        let mut state = self.inner.state.lock();
        state.add_at(key, after(delay));
        self.show_depth(&state);
        drop(state);
        self.inner.news.notify_one();
    }

    /// What made a key fail is known to be mended: its next failure is the first one, and it is looked at now.
    pub fn reset(&self, key: K) {
        let mut state = self.inner.state.lock();
        state.failures.remove(&key);
        state.not_before.remove(&key);
        drop(state);
        self.add(key);
    }

    /// As [`Queue::reset`] for all keys that fail: the cluster they failed at is back.
    pub fn reset_all(&self) {
        let mut state = self.inner.state.lock();
        state.not_before.clear();
        let failing: Vec<K> = std::mem::take(&mut state.failures).into_keys().collect();
        drop(state);
        for key in failing {
            self.add(key);
        }
    }

    /// Forgets what waits, and takes nothing in, until [`Queue::attend`]: for a standby, which looks at everything anyway when its time
    /// comes. Keys of all that ever came and went would fill its memory.
    pub fn rest(&self) {
        let mut state = self.inner.state.lock();
        state.rests = true;
        state.forget_waiting();
        self.show_depth(&state);
    }

    /// Takes keys in again.
    pub fn attend(&self) {
        self.inner.state.lock().rests = false;
    }

    /// Lets [`Queue::run`] end when what it is working on is done.
    pub fn close(&self) {
        self.inner.state.lock().closing = true;
        self.inner.news.notify_one();
    }

    /// How long the key has been waiting that waits longest of those that are ready; none does where nobody works on it.
    pub fn oldest(&self) -> Duration {
        self.inner.state.lock().oldest()
    }

    /// How full it is.
    pub fn sizes(&self) -> Sizes {
        let state = self.inner.state.lock();
        Sizes {
            ready: state.waiting.len(),
            delayed: state.delayed.len(),
            active: state.active.len(),
            failing: state.failures.len(),
        }
    }

    /// Gives out keys, at most so many at a time, until the queue is closed. One runner per queue.
    ///
    /// If this future is dropped, what it was working on is ready again for the next run.
    pub async fn run<W, F>(&self, at_a_time: usize, work: W)
    where
        W: Fn(K) -> F,
        F: Future<Output = Verdict>,
    {
        // The next run is another one, also if this one is cut short while it closes.
        let _reopen = Reopen(self);
        self.inner.state.lock().run_since = Some(Instant::now());
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < at_a_time.max(1)
                && let Some(held) = self.take()
            {
                running.push(self.look_at(held, &work));
            }
            let (closing, wake) = {
                let state = self.inner.state.lock();
                (state.closing, state.delayed.keys().next().map(|(at, _)| *at))
            };
            if closing && running.is_empty() {
                return;
            }
            // With no room for another key, only an end of one is of interest.
            let full = running.len() >= at_a_time.max(1);
            tokio::select! {
                biased;
                Some(()) = running.next() => {}
                () = self.inner.news.notified() => {}
                () = sleep_until(wake), if !full && !closing => {}
            }
        }
    }

    /// As [`Queue::run`], until told to stop; what was begun is finished.
    pub async fn run_until<W, F>(&self, stop: CancellationToken, at_a_time: usize, work: W)
    where
        W: Fn(K) -> F,
        F: Future<Output = Verdict>,
    {
        let mut run = std::pin::pin!(self.run(at_a_time, work));
        tokio::select! {
            biased;
            () = stop.cancelled() => self.close(),
            () = &mut run => return,
        }
        run.await;
    }

    async fn look_at<W, F>(&self, mut held: Held<K>, work: &W)
    where
        W: Fn(K) -> F,
        F: Future<Output = Verdict>,
    {
        let started = Instant::now();
        let key = held.key.clone();
        let span = tracing::info_span!("look", queue = %self.inner.name, key = ?key);
        let looking = async { work(key).await }.instrument(span);
        let verdict = AssertUnwindSafe(looking).catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(queue = %self.inner.name, key = ?held.key, "looking at this key panicked; it is tried again");
            Verdict::Failed("panic")
        });
        held.verdict = Some(verdict);
        let labels = QueueLabels { queue: Arc::clone(&self.inner.name) };
        let metrics = self.inner.metrics.cluster();
        metrics.sync_duration.of(&labels).observe(started.elapsed().as_secs_f64());
        if let Verdict::Failed(outcome) | Verdict::NotBefore(outcome, _) = verdict {
            metrics.sync_errors.of(&QueueOutcome { queue: Arc::clone(&self.inner.name), outcome }).inc();
            metrics.queue_retries.of(&labels).inc();
        }
    }

    /// The next key in turn, unless the queue is closing.
    fn take(&self) -> Option<Held<K>> {
        let mut state = self.inner.state.lock();
        if state.closing {
            return None;
        }
        state.wake_due(Instant::now());
        let turns = state.lines.len();
        for _ in 0..turns {
            let (class, mut line) = state.lines.pop_front()?;
            let next = line.pop_front();
            state.lines.push_back((class, line));
            if let Some((key, _)) = next {
                state.waiting.remove(&key);
                state.active.insert(key.clone(), false);
                self.show_depth(&state);
                return Some(Held { queue: self.clone(), key, verdict: None });
            }
        }
        None
    }

    fn put_back(&self, key: &K, verdict: Option<Verdict>) {
        let mut state = self.inner.state.lock();
        let added_meanwhile = state.active.remove(key).unwrap_or(false);
        state.not_before.remove(key);
        let delay = match verdict {
            // Dropped in the middle of its work.
            None => Some(Duration::ZERO),
            Some(Verdict::Done) => {
                state.failures.remove(key);
                None
            }
            Some(Verdict::Again(delay)) => {
                state.failures.remove(key);
                Some(delay)
            }
            Some(Verdict::Failed(_)) => Some(state.next_retry(key, self.inner.retry)),
            Some(Verdict::NotBefore(_, least)) => {
                state.not_before.insert(key.clone(), after(least));
                Some(state.next_retry(key, self.inner.retry).max(least))
            }
            Some(Verdict::Blocked) => None,
        };
        if let Some(delay) = delay {
            state.add_at(key.clone(), after(delay));
        }
        if added_meanwhile {
            match verdict {
                Some(Verdict::Failed(_)) => state.add_at(key.clone(), Instant::now() + SUSPECTS_WAIT),
                Some(Verdict::NotBefore(..)) => {}
                _ => {
                    state.add(key.clone());
                }
            }
        }
        self.show_depth(&state);
        drop(state);
        self.inner.news.notify_one();
    }

    fn show_depth(&self, state: &State<K>) {
        for (class, line) in &state.lines {
            let labels = QueueClass { queue: Arc::clone(&self.inner.name), class };
            let depth = i64::try_from(line.len()).unwrap_or(i64::MAX);
            self.inner.metrics.cluster().queue_depth.of(&labels).set(depth);
        }
    }
}

/// Opens a queue again when its run is over.
struct Reopen<'a, K>(&'a Queue<K>);

impl<K> Drop for Reopen<'_, K> {
    fn drop(&mut self) {
        let mut state = self.0.inner.state.lock();
        state.closing = false;
        state.run_since = None;
    }
}

/// A queue that may be gone.
pub(crate) struct WeakQueue<K>(Weak<Inner<K>>);

impl<K> WeakQueue<K> {
    pub(crate) fn upgrade(&self) -> Option<Queue<K>> {
        Some(Queue { inner: self.0.upgrade()? })
    }
}

/// A key that is being worked on; given back when dropped, with its verdict or without.
struct Held<K: QueueKey> {
    queue: Queue<K>,
    key: K,
    verdict: Option<Verdict>,
}

impl<K: QueueKey> Drop for Held<K> {
    fn drop(&mut self) {
        self.queue.put_back(&self.key, self.verdict);
    }
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<K: QueueKey> Debug for Queue<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("name", &self.inner.name).field("sizes", &self.sizes()).finish()
    }
}

/// A time that far from now; a year stands for all that is longer.
fn after(delay: Duration) -> Instant {
    Instant::now() + delay.min(Duration::from_secs(365 * 86_400))
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;

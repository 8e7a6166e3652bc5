//! What a server said that does not go with what a store shows.
//!
//! A write that is answered with "there is no such object", or "it has another version", is mostly one that
//! came a moment before the event. But an etcd that was restored and has caught up with our versions looks just like
//! one that was not: no watch will ever say that an object is gone. So a contradiction is remembered for a while, and if
//! the store still shows the same then, it is wrong.

use std::collections::VecDeque;
use std::time::Duration;

use kubeocean_model::key::Key;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// An event that comes at all comes within a second or two, also from a server under load.
const LONG_ENOUGH: Duration = Duration::from_secs(10);

/// One that proves right is enough to list everything anew.
const MOST: usize = 16;

/// Contradictions that are not old enough to count, oldest first.
pub(crate) struct Doubts<S> {
    waiting: Mutex<VecDeque<Doubt<S>>>,
    news: Notify,
}

struct Doubt<S> {
    key: Key<S>,
    version: Box<str>,
    due: Instant,
}

impl<S> Doubts<S> {
    pub(crate) fn add(&self, key: &Key<S>, version: &str) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < MOST && !waiting.iter().any(|doubt| doubt.key == *key) {
            let due = Instant::now() + LONG_ENOUGH;
            waiting.push_back(Doubt { key: key.clone(), version: version.into(), due });
            self.news.notify_one();
        }
    }

    /// Begins to wait anew for all of them.
    pub(crate) fn postpone(&self) {
        let due = Instant::now() + LONG_ENOUGH;
        self.waiting.lock().iter_mut().for_each(|doubt| doubt.due = due);
    }

    /// The next that is old enough. Dropped while it waits, nothing is lost.
    pub(crate) async fn next(&self) -> (Key<S>, Box<str>) {
        loop {
            let due = self.waiting.lock().front().map(|doubt| doubt.due);
            match due {
                None => self.news.notified().await,
                Some(due) if due > Instant::now() => tokio::time::sleep_until(due).await,
                Some(_) => {
                    if let Some(doubt) = self.waiting.lock().pop_front() {
                        return (doubt.key, doubt.version);
                    }
                }
            }
        }
    }
}

impl<S> Default for Doubts<S> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), news: Notify::new() }
    }
}

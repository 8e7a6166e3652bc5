//! A value that others wait on, who hear of a change in the order in which they began to wait.
//!
//! `tokio::sync::watch` wakes in random order, and a world would not be the same twice.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

struct Shared<T> {
    /// The value, and how often it was set.
    latest: Mutex<(T, u64)>,
    told: Notify,
}

/// Where it is set.
pub(crate) struct Sender<T>(Arc<Shared<T>>);

/// Where it is waited for.
pub(crate) struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

impl<T: Copy> Sender<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Shared { latest: Mutex::new((value, 0)), told: Notify::new() }))
    }

    /// Sets it; gives what it was.
    pub(crate) fn send(&self, value: T) -> T {
        let before = {
            let mut latest = self.0.latest.lock();
            latest.1 += 1;
            std::mem::replace(&mut latest.0, value)
        };
        self.0.told.notify_waiters();
        before
    }

    /// One who has seen all that was set so far.
    pub(crate) fn subscribe(&self) -> Receiver<T> {
        let seen = self.0.latest.lock().1;
        Receiver { shared: Arc::clone(&self.0), seen }
    }
}

impl<T: Copy> Receiver<T> {
    /// The value, which counts as seen.
    pub(crate) fn look(&mut self) -> T {
        let (value, count) = *self.shared.latest.lock();
        self.seen = count;
        value
    }

    /// Waits until it was set since the last look.
    pub(crate) async fn changed(&self) {
        loop {
            let mut told = std::pin::pin!(self.shared.told.notified());
            // From here on nothing is missed.
            told.as_mut().enable();
            if self.shared.latest.lock().1 != self.seen {
                return;
            }
            told.await;
        }
    }
}

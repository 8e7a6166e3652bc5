//! The simulation's time: where it starts, plus what tokio's clock says has passed, plus jumps.
//!
//! Under paused time this is fully determined by the test. Outside a runtime time stands still.
//!
//! Deliberately absent: the wall clock.

use jiff::{SignedDuration, Timestamp};
use tokio::runtime::Handle;
use tokio::time::Instant;

/// See the module.
pub(crate) struct Clock {
    start: Timestamp,
    origin: Option<Instant>,
    last: SignedDuration,
    jumped: SignedDuration,
}

impl Clock {
    pub(crate) fn new(start: Timestamp) -> Self {
        Self { start, origin: None, last: SignedDuration::ZERO, jumped: SignedDuration::ZERO }
    }

    pub(crate) fn now(&mut self) -> Timestamp {
        // tokio's clock is the wall clock outside a runtime, and a wall clock repeats nothing.
        if Handle::try_current().is_ok() {
            let now = Instant::now();
            let origin = *self.origin.get_or_insert(now);
            self.last = SignedDuration::try_from(now.duration_since(origin)).unwrap_or(self.last);
        }
        self.start.saturating_add(self.last.saturating_add(self.jumped)).unwrap_or(self.start)
    }

    pub(crate) fn jump(&mut self, by: SignedDuration) {
        self.jumped = self.jumped.saturating_add(by);
    }
}

/// As `metav1.Time` writes it.
pub(crate) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

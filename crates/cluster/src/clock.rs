//! What time it is on the wall, as a value that is passed in.
//!
//! Wall time is for what people and other machines read: windows, conditions, timestamps in objects. How
//! long something took, and when to try again, is measured by [`tokio::time::Instant`] everywhere, which
//! never jumps and which tests can pause. A simulated clock follows that same time, so that a test that
//! advances it moves both, and can be thrown off by [`Clock::jump`] as a bad NTP server would.
//!
//! Deliberately absent: timers and time zones.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

/// A source of wall time. Clones tell the same time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Simulated { start: Timestamp, since: Instant, offset: Arc<Mutex<SignedDuration>> },
}

impl Clock {
    /// The clock of this machine.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that shows `start` now, and goes as fast as tokio's time.
    pub fn simulated(start: Timestamp) -> Self {
        Self(Source::Simulated {
            start,
            since: Instant::now(),
            offset: Arc::new(Mutex::new(SignedDuration::ZERO)),
        })
    }

    /// The wall time.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => Timestamp::now(),
            Source::Simulated { start, since, offset } => {
                let elapsed = SignedDuration::try_from(since.elapsed()).unwrap_or(SignedDuration::MAX);
                let moved = elapsed.saturating_add(*offset.lock());
                start.checked_add(moved).unwrap_or(if moved.is_negative() {
                    Timestamp::MIN
                } else {
                    Timestamp::MAX
                })
            }
        }
    }

    /// Moves a simulated clock and all its clones, forwards or backwards, at once. Monotonic time goes on
    /// as before. The machine's clock is not ours to move: there this does nothing.
    pub fn jump(&self, by: SignedDuration) {
        if let Source::Simulated { offset, .. } = &self.0 {
            let mut offset = offset.lock();
            *offset = offset.saturating_add(by);
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn eight() -> Timestamp {
        "2026-03-01T08:00:00Z".parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_follows_paused_time() {
        let clock = Clock::simulated(eight());
        assert_eq!(clock.now(), eight());

        tokio::time::advance(Duration::from_secs(90)).await;

        assert_eq!(clock.now().to_string(), "2026-03-01T08:01:30Z");
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_moves_every_clone_and_no_timer() {
        let clock = Clock::simulated(eight());
        let clone = clock.clone();
        let before = Instant::now();

        clock.jump(SignedDuration::from_hours(-2));

        assert_eq!(clone.now().to_string(), "2026-03-01T06:00:00Z");
        assert_eq!(before.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_beyond_the_calendar_stops_at_its_edge() {
        let clock = Clock::simulated(eight());
        clock.jump(SignedDuration::MAX);
        assert_eq!(clock.now(), Timestamp::MAX);
        clock.jump(SignedDuration::MIN);
        clock.jump(SignedDuration::MIN);
        assert_eq!(clock.now(), Timestamp::MIN);
    }

    #[test]
    fn the_system_clock_cannot_be_moved() {
        let clock = Clock::system();
        clock.jump(SignedDuration::from_hours(24 * 365));
        assert!(clock.now().duration_since(Timestamp::now()).abs() < SignedDuration::from_mins(1));
    }
}

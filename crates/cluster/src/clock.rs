//! What time it is on the wall, as a value that is passed in.
//!
//! Wall time is for what people and other machines read: windows, conditions, timestamps in objects. How
//! long something took, and when to try again, is measured by [`tokio::time::Instant`] everywhere, which
//! never jumps and which tests can pause. A simulated clock follows that same time, so that a test that
//! advances it moves both, and can be thrown off by [`Clock::jump`] as a bad NTP server would.
//!
//! Deliberately absent: timers and time zones.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How often [`Clock::jumped`] holds the clocks against each other, and from when on they disagree: what is less is the two
/// readings not being one.
const COMPARED_EVERY: Duration = Duration::from_secs(1);
const JUMP: SignedDuration = SignedDuration::from_millis(250);

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

    /// Waits until wall time has jumped against monotonic time, and says how far: someone set the clock, or the machine slept, in which
    /// monotonic time stands still. Timers that were set by the wall are wrong from then on.
    pub async fn jumped(&self) -> SignedDuration {
        loop {
            let (wall, steady) = (self.now(), Instant::now());
            tokio::time::sleep(COMPARED_EVERY).await;
            let passed = SignedDuration::try_from(steady.elapsed()).unwrap_or(SignedDuration::MAX);
            let jump = self.now().duration_since(wall).saturating_sub(passed);
            if jump.abs() >= JUMP {
                return jump;
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
    async fn a_jump_is_noticed_within_a_second_and_time_that_passes_is_none() {
        for by in [SignedDuration::from_hours(9), SignedDuration::from_secs(-1)] {
            let clock = Clock::simulated(eight());
            let noticed = clock.jumped();
            tokio::pin!(noticed);
            let passes = tokio::time::timeout(Duration::from_secs(3600), &mut noticed).await;
            assert!(passes.is_err());
            clock.jump(by);
            let found = tokio::time::timeout(Duration::from_secs(2), noticed).await.unwrap();
            assert_eq!(found, by);
        }
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

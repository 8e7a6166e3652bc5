//! How likely each fault is.

use std::time::Duration;

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

/// How likely each fault is, from 0 (never) to 1 (each time).
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// A refusal instead of an answer: 409, 410, 422, 429, 500, 503 or 504, as the request may get them.
    /// Half of the writes that get a 500 or 504 were done all the same.
    pub refused: f64,
    /// The connection breaks before the server hears the request.
    pub reset: f64,
    /// The connection breaks after the server did what was asked.
    pub answer_lost: f64,
    /// The request or its answer is late, so that others overtake it. A write that is late is done even if
    /// nobody waits for it any more.
    pub late: f64,
    /// How late at most.
    pub latest: Duration,
    /// What every request takes at least.
    pub slow: Duration,
    /// A list or a get that allows it is answered as it was some time ago.
    pub stale: f64,
    /// A watch is refused with 410 by an HTTP status.
    pub watch_expired: f64,
    /// A watch loses its events for a while, and then says that it expired.
    pub watch_gap: f64,
    /// A watch ends early: as if in order, by a reset, or in the middle of a line.
    pub watch_cut: f64,
    /// A watch falls silent and never ends.
    pub watch_silent: f64,
    /// An event of a watch comes twice.
    pub event_twice: f64,
    /// An event of a watch is late, and all that follow with it.
    pub event_late: f64,
    /// The server streams no lists.
    pub no_streaming: bool,
}

impl Profile {
    /// No faults.
    pub const fn calm() -> Self {
        Self {
            refused: 0.0,
            reset: 0.0,
            answer_lost: 0.0,
            late: 0.0,
            latest: Duration::ZERO,
            slow: Duration::ZERO,
            stale: 0.0,
            watch_expired: 0.0,
            watch_gap: 0.0,
            watch_cut: 0.0,
            watch_silent: 0.0,
            event_twice: 0.0,
            event_late: 0.0,
            no_streaming: false,
        }
    }

    /// Every fault, each often enough to meet the others.
    pub const fn rough() -> Self {
        Self {
            refused: 0.1,
            reset: 0.05,
            answer_lost: 0.1,
            late: 0.3,
            latest: Duration::from_secs(5),
            slow: Duration::from_millis(2),
            stale: 0.3,
            watch_expired: 0.1,
            watch_gap: 0.2,
            watch_cut: 0.2,
            watch_silent: 0.1,
            event_twice: 0.1,
            event_late: 0.2,
            no_streaming: false,
        }
    }

    /// Some faults of [`Profile::rough`] and not the others, more or less often: what hides behind one
    /// fault shows where that one is missing.
    pub fn drawn(rng: &mut ChaCha8Rng) -> Self {
        let rough = Self::rough();
        let mut some = |most: f64| if rng.random_bool(0.3) { 0.0 } else { most * rng.random_range(0.2..2.0) };
        let mut profile = Self {
            refused: some(rough.refused),
            reset: some(rough.reset),
            answer_lost: some(rough.answer_lost),
            late: some(rough.late),
            stale: some(rough.stale),
            watch_expired: some(rough.watch_expired),
            watch_gap: some(rough.watch_gap),
            watch_cut: some(rough.watch_cut),
            watch_silent: some(rough.watch_silent),
            event_twice: some(rough.event_twice),
            event_late: some(rough.event_late),
            ..rough
        };
        // Reordering needs milliseconds, giving up needs more than a deadline.
        profile.latest = Duration::from_millis(match rng.random_range(0..4) {
            0 => 20,
            1 => 500,
            2 => 5_000,
            _ => 45_000,
        });
        profile.slow =
            Duration::from_millis(if rng.random_bool(0.1) { 2_000 } else { rng.random_range(0..5) });
        profile.no_streaming = rng.random_bool(0.2);
        profile
    }
}

//! How much happens in one seed: some of what can be done, rarely or often, for a short time or a long one.
//!
//! What hides behind one deed shows where that one is missing, and what needs many deeds shows in long stories. A seed costs about a
//! millisecond of a core for each deed, so a thousand short stories are tried in the time of four hundred long ones, each in another
//! world with other faults.

use std::time::Duration;

use rand::RngExt as _;

use super::World;

/// Every so many seeds one is as long as it may be.
const LONG_ONES: f64 = 1.0 / 8.0;

/// How often something happens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// On average once in so much time.
    pub every: Duration,
    /// For so long.
    pub time: Duration,
}

impl World {
    /// Something happens every half a second to twenty seconds. One story of eight takes any time of those allowed; the others take what
    /// four to forty-eight deeds need. With one to fifteen minutes allowed these are 28 deeds on average, and 36 with the long ones, of
    /// which the longest have 1,800.
    pub fn extent(&self, least: Duration, most: Duration) -> Extent {
        let mut random = self.random("how much happens");
        let every = Duration::from_millis(random.random_range(500..20_000));
        let time = if random.random_bool(LONG_ONES) {
            Duration::from_secs(random.random_range(least.as_secs()..most.as_secs()))
        } else {
            every * random.random_range(4..48)
        };
        Extent { every, time: time.clamp(least, most) }
    }

    /// Which of so many things are done: all of them in half of the seeds, any half of them in the others.
    pub fn repertoire(&self, things: u64) -> Vec<u64> {
        let mut random = self.random("what is done");
        let all = random.random_bool(0.5);
        let mut some: Vec<u64> = (0..things).filter(|_| random.random_bool(0.5) || all).collect();
        if some.is_empty() {
            some.extend(0..things);
        }
        some
    }
}

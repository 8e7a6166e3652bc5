//! How long to wait before trying again.

use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

/// Doubling delays between two bounds, each shortened by up to half so that many who failed together do
/// not come back together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) most: Duration,
}

impl Backoff {
    /// The delay after the `failures`-th failure in a row (from 1). `salt` tells waiters apart.
    pub(crate) fn delay(self, failures: u32, salt: u64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let whole = self.first.saturating_mul(1 << doublings).min(self.most);
        whole.mul_f64(1.0 - fraction(salt ^ u64::from(failures)) / 2.0)
    }
}

/// A number from 0 to 1 that looks random and depends on nothing but `seed`.
#[expect(clippy::cast_precision_loss, reason = "53 bits of it are kept, on purpose")]
pub(crate) fn fraction(seed: u64) -> f64 {
    // The finaliser of splitmix64: every bit of the seed moves every bit of the answer.
    let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^= mixed >> 31;
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}

/// Another number in every process.
pub(crate) fn process_seed() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_their_bound_and_differ_between_waiters() {
        let backoff = Backoff { first: Duration::from_millis(100), most: Duration::from_secs(10) };
        for failures in 1..80 {
            let whole = backoff.first.saturating_mul(1 << (failures - 1).min(31)).min(backoff.most);
            let delay = backoff.delay(failures, 7);
            assert!(delay <= whole && delay >= whole / 2, "{failures}: {delay:?}");
        }
        assert_ne!(backoff.delay(3, 1), backoff.delay(3, 2));
        assert_eq!(backoff.delay(3, 1), backoff.delay(3, 1));
    }
}

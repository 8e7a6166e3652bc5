//! Objects that someone else changes as often as they are mended.
//!
//! What is mended is counted, and nothing else: that a wish changes, or that a write meets a newer version, is no fight.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Who changes an object that we have mended so often does not do so by accident.
pub(crate) const MENDS: u32 = 5;

/// For so long it is then left alone: whoever fights over an object may win, but not a hundred times a second.
pub(crate) const CONTEST: Duration = Duration::from_secs(60);

/// Which objects are fought over. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Contests {
    mended: Arc<Mutex<BTreeMap<String, Contest>>>,
}

#[derive(Clone, Copy, Debug)]
struct Contest {
    since: Instant,
    mends: u32,
    told: bool,
}

/// Whether an object should be mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Nobody fights over it.
    Mend,
    /// It is to be left alone for a while, and people are to hear of that.
    TellAndLeave,
    /// It is to be left alone for a while.
    Leave,
}

impl Contests {
    /// Whether an object should be mended once more.
    pub(crate) fn advice(&self, place: &str) -> Advice {
        let mut mended = self.mended.lock();
        mended.retain(|_, contest| contest.since.elapsed() < CONTEST);
        match mended.get_mut(place) {
            Some(contest) if contest.mends >= MENDS => {
                if std::mem::replace(&mut contest.told, true) {
                    Advice::Leave
                } else {
                    Advice::TellAndLeave
                }
            }
            _ => Advice::Mend,
        }
    }

    /// An object has been mended.
    pub(crate) fn mended(&self, place: &str) {
        let fresh = || Contest { since: Instant::now(), mends: 0, told: false };
        self.mended.lock().entry(place.to_owned()).or_insert_with(fresh).mends += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_mended_again_and_again_is_left_alone_for_a_while() {
        let contests = Contests::default();
        for _ in 0..MENDS {
            assert_eq!(contests.advice("Deployment a/b"), Advice::Mend);
            contests.mended("Deployment a/b");
        }
        assert_eq!(contests.advice("Deployment a/b"), Advice::TellAndLeave);
        assert_eq!(contests.advice("Deployment a/b"), Advice::Leave, "once is enough");
        assert_eq!(contests.advice("Deployment a/c"), Advice::Mend, "that is another one");
        tokio::time::advance(CONTEST).await;
        assert_eq!(contests.advice("Deployment a/b"), Advice::Mend);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_only_tried_is_no_fight() {
        let contests = Contests::default();
        for _ in 0..100 {
            assert_eq!(contests.advice("Deployment a/b"), Advice::Mend);
        }
    }
}

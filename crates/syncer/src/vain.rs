//! What is made in vain: others take it away as soon as it is there.
//!
//! The garbage collector does so with what belongs to a node that is gone, of which we may not have heard yet; any controller may do so
//! that disagrees with us. A few times it is made again at once, as it is when someone deletes it by mistake; then once in a while.
//!
//! Deliberately absent: refusals. Those are tried again less and less often by the queue.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kubeocean_model::action::Action;
use parking_lot::Mutex;
use tokio::time::Instant;

/// So often in [`A_WHILE`] the same thing is made at once.
const AT_ONCE: usize = 5;

/// Five writes a minute of one object, and five of whoever removes it, are nothing to a server; without a limit they were fifty a second.
const A_WHILE: Duration = Duration::from_secs(60);

/// When what was made lately. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Makings(Arc<Mutex<HashMap<String, VecDeque<Instant>>>>);

impl Makings {
    /// How long to wait before this is made; `None`: not at all.
    pub(crate) fn wait_for(&self, action: &Action) -> Option<Duration> {
        let all = self.0.lock();
        let times = all.get(&key(action)).filter(|times| times.len() >= AT_ONCE)?;
        let wait = A_WHILE.saturating_sub(times[times.len() - AT_ONCE].elapsed());
        (!wait.is_zero()).then_some(wait)
    }

    /// It was made now.
    pub(crate) fn made(&self, action: &Action) {
        let mut all = self.0.lock();
        let is_recent = |at: &Instant| at.elapsed() < A_WHILE;
        all.retain(|_, times| times.back().is_some_and(is_recent));
        let times = all.entry(key(action)).or_default();
        times.retain(is_recent);
        times.push_back(Instant::now());
    }
}

fn key(action: &Action) -> String {
    format!("{} {}/{}", action.resource(), action.namespace, action.name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kubeocean_model::action::{Action, Dependents, Verb, kinds};
    use kubeocean_model::key::{Key, Virtual};

    use super::Makings;

    #[tokio::test(start_paused = true)]
    async fn what_others_remove_is_made_five_times_a_minute_and_no_other_waits_for_it() {
        let verb = || Verb::Delete { grace: None, dependents: Dependents::Background };
        let action =
            |name: &str| Action::new(kinds::POD, &Key::<Virtual>::new("kubeocean-fake", name), verb(), "");
        let makings = Makings::default();
        for _ in 0..5 {
            assert_eq!(makings.wait_for(&action("a")), None);
            makings.made(&action("a"));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(makings.wait_for(&action("a")), Some(Duration::from_secs(55)));
        assert_eq!(makings.wait_for(&action("b")), None);
        tokio::time::advance(Duration::from_secs(55)).await;
        assert_eq!(makings.wait_for(&action("a")), None);
    }
}

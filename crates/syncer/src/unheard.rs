//! Pods and claims that nobody has looked at since this process leads: what they use is not known yet, and what only they use must not be
//! taken for what nobody uses. It would be removed, and made again a moment later.
//!
//! Deliberately absent: who uses what. That is for [`crate::references`].

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::world::Duty;

/// Whom to hear, and who waits for that.
#[derive(Default)]
pub(crate) struct Unheard(Mutex<Known>);

#[derive(Default)]
struct Known {
    pods: BTreeSet<Duty>,
    claims: BTreeSet<Duty>,
    waiting: BTreeSet<Duty>,
}

impl Unheard {
    /// Everything begins anew: these pods are to be heard.
    pub(crate) fn begin(&self, pods: impl Iterator<Item = Duty>) {
        let mut known = self.0.lock();
        *known = Known { pods: pods.collect(), ..Known::default() };
    }

    /// A pod has said that it uses a claim: then that is to be heard too, unless all have been.
    pub(crate) fn names(&self, claim: Duty) {
        let mut known = self.0.lock();
        if !known.pods.is_empty() {
            known.claims.insert(claim);
        }
    }

    /// Whether nobody knows yet which claims are used: then this one waits.
    pub(crate) fn holds_claim(&self, claim: &Duty) -> bool {
        let mut known = self.0.lock();
        let holds = !known.pods.is_empty();
        if holds {
            known.waiting.insert(claim.clone());
        }
        holds
    }

    /// Whether nobody knows yet which copies are used: then this one waits.
    pub(crate) fn holds_copy(&self, copy: &Duty) -> bool {
        let mut known = self.0.lock();
        let holds = !(known.pods.is_empty() && known.claims.is_empty());
        if holds {
            known.waiting.insert(copy.clone());
        }
        holds
    }

    /// Whether this one is waited for.
    pub(crate) fn awaits(&self, duty: &Duty) -> bool {
        let known = self.0.lock();
        known.pods.contains(duty) || known.claims.contains(duty)
    }

    /// All who are waited for.
    pub(crate) fn all(&self) -> Vec<Duty> {
        let known = self.0.lock();
        known.pods.iter().chain(&known.claims).cloned().collect()
    }

    /// Someone was looked at. Gives those who need not wait any longer, perhaps.
    pub(crate) fn heard(&self, duty: &Duty) -> BTreeSet<Duty> {
        let mut known = self.0.lock();
        let was_last_pod = known.pods.remove(duty) && known.pods.is_empty();
        let was_last_claim = known.claims.remove(duty) && known.claims.is_empty();
        if was_last_pod || (was_last_claim && known.pods.is_empty()) {
            std::mem::take(&mut known.waiting)
        } else {
            BTreeSet::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use kubeocean_model::copy::Copied;
    use kubeocean_model::key::Key;

    use super::*;

    #[test]
    fn a_claim_waits_for_all_pods_and_a_copy_for_all_claims_of_theirs() {
        let pod = |name: &str| Duty::Pod(Key::new("web", name));
        let claim = |name: &str| Duty::Claim(Key::new("web", name));
        let copy = Duty::Copy(Copied::Secret, Key::new("web", "s"));
        let unheard = Unheard::default();
        assert!(!unheard.holds_copy(&copy), "nobody is waited for");
        unheard.begin([pod("a"), pod("b")].into_iter());
        unheard.names(claim("of-a"));
        assert_eq!(unheard.heard(&pod("a")), BTreeSet::new());
        assert!(unheard.holds_claim(&claim("of-nobody")) && unheard.holds_copy(&copy));
        assert_eq!(unheard.heard(&pod("b")), [claim("of-nobody"), copy.clone()].into());
        assert!(!unheard.holds_claim(&claim("of-nobody")));
        assert!(unheard.holds_copy(&copy), "a claim may use it");
        assert!(unheard.awaits(&claim("of-a")) && !unheard.awaits(&pod("a")));
        assert_eq!(unheard.heard(&claim("of-a")), [copy.clone()].into());
        assert!(!unheard.holds_copy(&copy));
        unheard.names(claim("late"));
        assert!(!unheard.awaits(&claim("late")), "what comes later is known when it comes");
    }
}

//! What came of the last look at each node: for the counts and words that people read.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubeocean_model::key::Side;
use kubeocean_model::lease::{Choice, Explanation, NoLease, Outcome};
use kubeocean_model::policies::Use;
use parking_lot::Mutex;

/// What came of one look.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Standing {
    /// Whether it is leased.
    pub(crate) is_leased: bool,
    /// Whether its windows are closed.
    pub(crate) is_closed: bool,
    /// Why it is not leased.
    pub(crate) refusal: Option<NoLease>,
    /// The policies that count.
    winners: Vec<(Side, String)>,
    /// Those for which an older one counts.
    shadowed: Vec<(Side, String, String)>,
    /// What those that count limit, and the node does not have.
    lacking: Vec<(Side, String, String)>,
    /// Whether their windows never meet.
    never_opens: bool,
}

impl Standing {
    pub(crate) fn of(explanation: &Explanation) -> Self {
        let mut standing = Self::default();
        match &explanation.outcome {
            Outcome::Leased(lease) => {
                standing.is_leased = true;
                standing.is_closed = !lease.active;
                let winners = lease.winners.iter().map(|(side, policy)| (side, policy.name.clone()));
                standing.winners = winners.collect();
                let limits = lease.winners.iter().flat_map(|(side, policy)| {
                    policy.limits.iter().map(move |limit| (side, policy.name.clone(), limit.resource.clone()))
                });
                let lacking = limits.filter(|(_, _, resource)| !lease.offers.contains_key(resource));
                standing.lacking = lacking.collect();
                standing.never_opens = lease.never_opens();
            }
            Outcome::NotLeased(why) => standing.refusal = Some(why.clone()),
        }
        let mut shadows = |side, choice: &Choice| {
            let shadowed = choice.shadowed().map(|(policy, by)| (side, policy.to_owned(), by.to_owned()));
            standing.shadowed.extend(shadowed);
        };
        if let Some(worker) = &explanation.worker {
            shadows(Side::Physical, worker);
        }
        shadows(Side::Virtual, &explanation.computing);
        standing
    }

    /// The policies that it says something about.
    pub(crate) fn policies(&self) -> impl Iterator<Item = (Side, &str)> {
        let winners = self.winners.iter().map(|(side, policy)| (*side, policy.as_str()));
        winners.chain(self.shadowed.iter().map(|(side, policy, _)| (*side, policy.as_str())))
    }
}

/// What came of the last look at each node. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Standings(Arc<Mutex<BTreeMap<Arc<str>, Standing>>>);

impl Standings {
    /// The nodes of which something is noted.
    pub(crate) fn nodes(&self) -> Vec<Arc<str>> {
        self.0.lock().keys().cloned().collect()
    }

    /// Notes what came of a look. If it is news, gives what was so before and is so now.
    pub(crate) fn note(&self, node: &Arc<str>, standing: Option<Standing>) -> Option<[Standing; 2]> {
        let mut all = self.0.lock();
        let before = match standing.clone() {
            Some(standing) => all.insert(Arc::clone(node), standing),
            None => all.remove(node),
        };
        (before != standing).then(|| [before.unwrap_or_default(), standing.unwrap_or_default()])
    }

    /// What is made of a policy.
    pub(crate) fn use_of(&self, side: Side, policy: &str) -> Use {
        let mut used = Use::default();
        let mut lacking: BTreeMap<String, usize> = BTreeMap::new();
        for standing in self.0.lock().values() {
            if standing.winners.iter().any(|(of, winner)| *of == side && winner == policy) {
                used.nodes += 1;
            }
            for (_, _, resource) in
                standing.lacking.iter().filter(|(of, winner, _)| *of == side && winner == policy)
            {
                *lacking.entry(resource.clone()).or_default() += 1;
            }
            let shadow = standing.shadowed.iter().find(|(of, shadowed, _)| *of == side && shadowed == policy);
            if let Some((_, _, by)) = shadow {
                let (count, _) = used.shadowed.get_or_insert_with(|| (0, by.clone()));
                *count += 1;
            }
        }
        // Some nodes have what others lack. What none has is a mistake.
        used.lacking =
            lacking.into_iter().filter(|(_, nodes)| *nodes == used.nodes).map(|(one, _)| one).collect();
        used
    }

    /// How many nodes were looked at, and how many of them policies allow to be leased.
    pub(crate) fn count(&self) -> (usize, usize) {
        let all = self.0.lock();
        (all.len(), all.values().filter(|standing| standing.is_leased).count())
    }

    /// How many nodes are closed for ever, and the policies of one of them.
    pub(crate) fn never_open(&self) -> Option<(usize, Vec<String>)> {
        let all = self.0.lock();
        let mut never = all.values().filter(|standing| standing.never_opens);
        let policies = never.next()?.winners.iter().map(|(_, policy)| policy.clone()).collect();
        Some((1 + never.count(), policies))
    }

    /// Why nothing is leased, if a policy is the reason; and whether all that is leased is closed.
    pub(crate) fn summary(&self) -> (Option<NoLease>, bool) {
        let all = self.0.lock();
        let refusals = || all.values().filter_map(|standing| standing.refusal.as_ref());
        let denied = refusals().find(|why| matches!(why, NoLease::PermissionDenied { .. }));
        let refusal = denied.or_else(|| refusals().find(|why| why.reason().is_some()));
        let mut leased = all.values().filter(|standing| standing.is_leased).peekable();
        let closed = leased.peek().is_some() && leased.all(|standing| standing.is_closed);
        (refusal.cloned(), closed)
    }
}

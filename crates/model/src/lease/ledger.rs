//! Who uses how much of one node. Kept pod by pod, so that a change of one pod costs one pod.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use kubeocean_api::keys::labels;

use crate::binding::Binding;
use crate::quantity::Quantity;
use crate::resources::{Resources, countable};
use crate::selector::Labels;

/// On whose behalf a pod runs in the worker cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum User {
    /// This binding: what it uses is not taken from its own offer.
    Ours,
    /// Another binding, by its uid.
    Binding(String),
    /// The lender, in this namespace.
    Namespace(String),
}

impl User {
    /// Whose pod it is. Ours carry our stamp *and* live where we put them: a label alone is quickly written.
    pub fn of(namespace: &str, labels: &Labels, binding: &Binding) -> Self {
        let stamp = labels.get(labels::BINDING_UID).map(String::as_str);
        Self::stamped(namespace, stamp, &binding.uid, &binding.mount_namespace)
    }

    /// The same, for who has kept no more of a pod than its stamp. `uid` and `mount_namespace` are the binding's.
    pub fn stamped(namespace: &str, stamp: Option<&str>, uid: &str, mount_namespace: &str) -> Self {
        match stamp {
            Some(stamp) if stamp == uid && namespace == mount_namespace => Self::Ours,
            Some(stamp) if stamp != uid => Self::Binding(stamp.to_owned()),
            _ => Self::Namespace(namespace.to_owned()),
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours => f.write_str("this binding"),
            Self::Binding(uid) => write!(f, "binding {uid}"),
            Self::Namespace(namespace) => write!(f, "namespace {namespace}"),
        }
    }
}

/// What one user has of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// In how many pods.
    pub pods: usize,
    /// What they ask for together.
    pub requests: Resources,
}

/// More of anything than a node can have.
fn is_absurd(requests: &Resources) -> bool {
    requests.iter().any(|(_, quantity)| quantity > Quantity::whole(i64::MAX))
}

/// The pods of one node and what they ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// By uid.
    pods: HashMap<String, (User, Resources)>,
    shares: BTreeMap<User, Share>,
}

impl Ledger {
    /// Enters a pod, in place of what was known of it. Says whether that changes anything. A pod that asks for
    /// nothing, since it has ended, is not kept.
    pub fn put(&mut self, uid: &str, user: User, requests: Resources) -> bool {
        if requests.is_empty() {
            return self.remove(uid);
        }
        let entry = (user, requests);
        if self.pods.get(uid) == Some(&entry) {
            return false;
        }
        self.remove(uid);
        let share = self.shares.entry(entry.0.clone()).or_default();
        share.pods += 1;
        share.requests.add(&entry.1);
        self.pods.insert(uid.to_owned(), entry);
        true
    }

    /// Strikes a pod out. Says whether it was there.
    pub fn remove(&mut self, uid: &str) -> bool {
        let Some((user, requests)) = self.pods.remove(uid) else { return false };
        if let Some(share) = self.shares.get_mut(&user) {
            share.pods -= 1;
            if is_absurd(&share.requests) {
                // Sums beyond what can be counted stop at the end of the scale: nothing can be taken off them.
                let left = self.pods.values().filter(|(owner, _)| *owner == user);
                share.requests = Resources::default();
                left.for_each(|(_, requests)| share.requests.add(requests));
            } else {
                share.requests.take(&requests);
            }
            if share.pods == 0 {
                self.shares.remove(&user);
            }
        }
        true
    }

    /// What others use of the node.
    pub fn used(&self) -> Resources {
        self.sum(|user| *user != User::Ours)
    }

    /// What others leave of a node that has so much.
    pub fn remaining_of(&self, base: &Resources) -> Resources {
        let used = self.used();
        let left = |resource: &str, amount: Quantity| {
            countable(resource, (amount - used.get(resource)).at_least_zero())
        };
        base.iter().map(|(resource, amount)| (resource, left(resource, amount))).collect()
    }

    /// What we use of it.
    pub fn ours(&self) -> Resources {
        self.sum(|user| *user == User::Ours)
    }

    /// Who uses it, and how much.
    pub fn shares(&self) -> impl Iterator<Item = (&User, &Share)> {
        self.shares.iter()
    }

    /// How many pods are known.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Whether no pod is known.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    fn sum(&self, counts: impl Fn(&User) -> bool) -> Resources {
        let mut sum = Resources::default();
        for (_, share) in self.shares.iter().filter(|(user, _)| counts(user)) {
            sum.add(&share.requests);
        }
        sum
    }
}

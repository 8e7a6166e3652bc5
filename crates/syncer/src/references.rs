//! Who uses what of V: pods use `ConfigMaps`, Secrets and claims, and the drivers of volumes use Secrets.
//!
//! Only of pods that were let in: until then nothing of theirs leaves V.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kubeocean_model::copy::Copied;
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::project::Referent;
use parking_lot::Mutex;

use crate::world::Duty;

/// Something of V that is used.
pub(crate) type Original = (Referent, Key<Virtual>);

/// What is copied of something that pods refer to; claims are made, not copied.
pub(crate) fn copied(referent: Referent) -> Option<Copied> {
    match referent {
        Referent::ConfigMap => Some(Copied::ConfigMap),
        Referent::Secret => Some(Copied::Secret),
        Referent::Claim => None,
    }
}

/// What there is to look at when its use has changed.
pub(crate) fn duty_of((referent, key): Original) -> Duty {
    match copied(referent) {
        Some(what) => Duty::Copy(what, key),
        None => Duty::Claim(key),
    }
}

/// Who uses something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum User {
    /// A pod.
    Pod(Key<Virtual>),
    /// The driver of a claim's volume.
    Claim(Key<Virtual>),
}

impl User {
    /// What there is to look at when what it uses has come.
    pub(crate) fn duty(self) -> Duty {
        match self {
            Self::Pod(key) => Duty::Pod(key),
            Self::Claim(key) => Duty::Claim(key),
        }
    }
}

/// Which users use which originals. Clones are the same.
#[derive(Clone, Default)]
pub struct References(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    users: BTreeMap<Original, BTreeSet<User>>,
    uses: BTreeMap<User, BTreeSet<Original>>,
}

impl Known {
    fn drop_user(&mut self, original: &Original, user: &User) {
        if let Some(users) = self.users.get_mut(original) {
            users.remove(user);
            if users.is_empty() {
                self.users.remove(original);
            }
        }
    }
}

impl References {
    /// What someone uses now, and nothing else. Gives the originals whose use has changed with that.
    pub(crate) fn put(&self, user: &User, now: BTreeSet<Original>) -> Vec<Original> {
        let mut known = self.0.lock();
        let before = known.uses.remove(user).unwrap_or_default();
        for original in before.difference(&now) {
            known.drop_user(original, user);
        }
        for original in now.difference(&before) {
            known.users.entry(original.clone()).or_default().insert(user.clone());
        }
        let changed = before.symmetric_difference(&now).cloned().collect();
        if !now.is_empty() {
            known.uses.insert(user.clone(), now);
        }
        changed
    }

    /// Someone is no more. Gives the originals that it used.
    pub(crate) fn remove(&self, user: &User) -> Vec<Original> {
        self.put(user, BTreeSet::new())
    }

    /// Who uses an original.
    pub(crate) fn users(&self, original: &Original) -> Vec<User> {
        self.0.lock().users.get(original).into_iter().flatten().cloned().collect()
    }

    /// Whether anyone does.
    pub(crate) fn is_used(&self, original: &Original) -> bool {
        self.0.lock().users.contains_key(original)
    }

    /// All that is used, and all who use it: what there is to look at when nobody knows what was missed.
    pub(crate) fn duties(&self) -> Vec<Duty> {
        let known = self.0.lock();
        let originals = known.users.keys().cloned().map(duty_of);
        originals.chain(known.uses.keys().cloned().map(User::duty)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pod_of_the_same_name_does_not_use_any_more_is_let_go() {
        let references = References::default();
        let original = |name: &str| (Referent::ConfigMap, Key::new("web", name));
        let (pod, driver) = (User::Pod(Key::new("web", "a")), User::Claim(Key::new("web", "a")));
        assert_eq!(references.put(&pod, [original("x"), original("y")].into()).len(), 2);
        assert_eq!(references.put(&driver, [original("y")].into()), [original("y")]);
        assert_eq!(
            references.put(&pod, [original("y"), original("z")].into()),
            [original("x"), original("z")]
        );
        assert!(!references.is_used(&original("x")));
        assert_eq!(references.remove(&pod), [original("y"), original("z")]);
        assert_eq!(references.users(&original("y")), [driver]);
        assert_eq!(references.duties(), [duty_of(original("y")), Duty::Claim(Key::new("web", "a"))]);
    }
}

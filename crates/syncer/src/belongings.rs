//! What pods of ours need in the worker cluster, and have there: copies of `ConfigMaps` and Secrets, and Secrets with tokens.
//!
//! Only metadata is kept. Content is read when something has changed, and forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kubeocean_api::keys::{annotations, labels};
use kubeocean_cluster::progress::Progress;
use kubeocean_cluster::store::{Entry, Index, Shape, Store};
use kubeocean_model::copy::Copied;
use kubeocean_model::key::{Key, Physical, Virtual};
use kubeocean_model::object::{Meta, Object};
use parking_lot::Mutex;

use crate::world::{Duty, Subject};

/// An original or a copy, without its content.
#[derive(Debug)]
pub struct SeenMeta(pub Meta);

impl Shape for SeenMeta {
    fn of(object: Object) -> Self {
        Self(object.meta)
    }
}

pub(crate) static OF_ORIGINAL: Index<SeenMeta> =
    Index::new("original", |seen| original_of(&seen.0).iter().map(ToString::to_string).collect());
pub(crate) static OF_POD: Index<SeenMeta> =
    Index::new("pod", |seen| pod_of(&seen.0).iter().map(ToString::to_string).collect());

/// Of which V object something in P says to be the copy.
fn original_of(meta: &Meta) -> Option<Key<Virtual>> {
    let (namespace, name) = (
        meta.annotations.get(annotations::VIRTUAL_NAMESPACE),
        meta.annotations.get(annotations::VIRTUAL_NAME),
    );
    namespace.zip(name).map(|(namespace, name)| Key::new(namespace, name))
}

/// Whose tokens a Secret in P says to hold.
fn pod_of(meta: &Meta) -> Option<Key<Virtual>> {
    let annotation = |key: &str| meta.annotations.get(key);
    let key = annotation(annotations::VIRTUAL_POD_NAMESPACE).zip(annotation(annotations::VIRTUAL_POD_NAME));
    let key = key.filter(|_| meta.labels.get(labels::SERVICE_ACCOUNT_TOKEN).is_some());
    key.map(|(namespace, name)| Key::new(namespace, name))
}

/// What to look at when something that we made in P has changed there.
pub(crate) fn concerned(what: Copied, meta: &Meta) -> Option<Duty> {
    match pod_of(meta) {
        Some(pod) => Some(Duty::Pod(pod)),
        None => original_of(meta).map(|original| Duty::Copy(what, original)),
    }
}

/// The stores of what we made for pods in P. Clones are the same.
#[derive(Clone)]
pub struct Belongings {
    /// `ConfigMaps`.
    pub config_maps: Store<Physical, SeenMeta>,
    /// Secrets.
    pub secrets: Store<Physical, SeenMeta>,
}

impl Belongings {
    pub(crate) fn store(&self, what: Copied) -> &Store<Physical, SeenMeta> {
        match what {
            Copied::ConfigMap => &self.config_maps,
            Copied::Secret => &self.secrets,
        }
    }

    /// How far the stores have come.
    pub(crate) fn progress(&self) -> [&Progress; 2] {
        [self.config_maps.progress(), self.secrets.progress()]
    }

    /// The copy of an original, if this binding has one.
    pub(crate) fn copy_of(
        &self,
        what: Copied,
        original: &Key<Virtual>,
        subject: &Subject,
    ) -> Option<Arc<Entry<SeenMeta>>> {
        let copies = self.store(what).by(&OF_ORIGINAL, &original.to_string());
        copies.into_iter().find(|copy| is_ours(&copy.0, subject))
    }

    /// The Secrets with tokens of a pod of that name, of whatever uid.
    pub(crate) fn tokens_of(&self, pod: &Key<Virtual>, subject: &Subject) -> Vec<Arc<Entry<SeenMeta>>> {
        let all = self.secrets.by(&OF_POD, &pod.to_string());
        all.into_iter().filter(|secret| is_ours(&secret.0, subject)).collect()
    }

    /// Whether this binding has anything there.
    pub(crate) fn any_of(&self, subject: &Subject) -> bool {
        let any =
            |store: &Store<Physical, SeenMeta>| store.all().iter().any(|(_, one)| is_ours(&one.0, subject));
        any(&self.config_maps) || any(&self.secrets)
    }
}

/// Whether this binding made it.
pub(crate) fn is_ours(meta: &Meta, subject: &Subject) -> bool {
    meta.labels.get(labels::BINDING_UID) == Some(&subject.uid) && *meta.namespace == *subject.mount_namespace
}

/// One `ConfigMap` or Secret of V.
pub(crate) type Original = (Copied, Key<Virtual>);

/// Which pods use which originals. Only of pods that were let in: until then nothing of theirs leaves V. Clones are the same.
#[derive(Clone, Default)]
pub struct References(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    users: BTreeMap<Original, BTreeSet<Key<Virtual>>>,
    uses: BTreeMap<Key<Virtual>, BTreeSet<Original>>,
}

impl References {
    /// What a pod uses now. Gives the originals that it did not use before.
    pub(crate) fn put(&self, pod: &Key<Virtual>, uses: BTreeSet<Original>) -> Vec<Original> {
        let mut known = self.0.lock();
        let before = known.uses.get(pod).cloned().unwrap_or_default();
        let new: Vec<Original> = uses.difference(&before).cloned().collect();
        for original in &new {
            known.users.entry(original.clone()).or_default().insert(pod.clone());
        }
        if !uses.is_empty() {
            known.uses.insert(pod.clone(), uses);
        }
        new
    }

    /// A pod is no more. Gives the originals that it used.
    pub(crate) fn remove(&self, pod: &Key<Virtual>) -> BTreeSet<Original> {
        let mut known = self.0.lock();
        let uses = known.uses.remove(pod).unwrap_or_default();
        for original in &uses {
            if let Some(users) = known.users.get_mut(original) {
                users.remove(pod);
                if users.is_empty() {
                    known.users.remove(original);
                }
            }
        }
        uses
    }

    /// Who uses an original.
    pub(crate) fn users(&self, original: &Original) -> Vec<Key<Virtual>> {
        self.0.lock().users.get(original).into_iter().flatten().cloned().collect()
    }

    /// Whether anyone does.
    pub(crate) fn is_used(&self, original: &Original) -> bool {
        self.0.lock().users.contains_key(original)
    }
}

//! What pods of ours have in the worker cluster: copies of `ConfigMaps` and Secrets, Secrets with tokens, claims and volumes, Services and endpoints.
//!
//! Of `ConfigMaps` and Secrets only metadata is kept. Content is read when something has changed, and forgotten.

use std::sync::Arc;

use kubeocean_api::keys::{annotations, labels};
use kubeocean_cluster::error::CallError;
use kubeocean_cluster::progress::Progress;
use kubeocean_cluster::store::{Entry, Index, Shape, Store};
use kubeocean_model::action::{Kind, kinds};
use kubeocean_model::copy::Copied;
use kubeocean_model::key::{Key, Physical, Virtual};
use kubeocean_model::object::{Meta, Object};

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

/// The same for what is kept whole.
pub(crate) static COPY_OF: Index<Object> =
    Index::new("original", |object| original_of(&object.meta).iter().map(ToString::to_string).collect());
/// Volumes, by the V volume that they are.
pub(crate) static VOLUME_OF: Index<Object> = Index::new("volume", |volume| {
    volume.meta.annotations.get(annotations::VIRTUAL_NAME).into_iter().map(str::to_owned).collect()
});
/// Volumes, by the claim that they are for.
pub(crate) static FOR_CLAIM: Index<Object> =
    Index::new("claim", |volume| volume.text("spec", &["claimRef", "name"]).into_iter().collect());

/// An object, of one that is kept whole.
pub(crate) fn whole(seen: Option<&Arc<Entry<Object>>>) -> Option<&Object> {
    seen.map(|entry| &***entry)
}

/// Of which V object something in P says to be the copy.
pub(crate) fn original_of(meta: &Meta) -> Option<Key<Virtual>> {
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
    /// Claims.
    pub claims: Store<Physical, Object>,
    /// Volumes, where the lender lets us have any.
    pub volumes: Store<Physical, Object>,
    /// Services.
    pub services: Store<Physical, Object>,
    /// Their endpoints.
    pub slices: Store<Physical, Object>,
}

impl Belongings {
    pub(crate) fn store(&self, what: Copied) -> &Store<Physical, SeenMeta> {
        match what {
            Copied::ConfigMap => &self.config_maps,
            Copied::Secret => &self.secrets,
        }
    }

    /// How far the stores have come without which nothing is known.
    pub(crate) fn progress(&self) -> [&Progress; 5] {
        [
            self.config_maps.progress(),
            self.secrets.progress(),
            self.claims.progress(),
            self.services.progress(),
            self.slices.progress(),
        ]
    }

    /// Those that may not be read: all of the mount namespace is needed.
    pub(crate) fn kinds(&self) -> [(Kind, &Progress); 5] {
        let kinds = [kinds::CONFIG_MAP, kinds::SECRET, kinds::CLAIM, kinds::SERVICE, kinds::ENDPOINT_SLICE];
        let mut progress = self.progress().into_iter();
        kinds.map(|kind| (kind, progress.next().unwrap_or(self.config_maps.progress())))
    }

    /// Whether the lender lets us have no volumes.
    pub(crate) fn may_not_have_volumes(&self) -> bool {
        let trouble = self.volumes.progress().trouble();
        trouble.as_ref().and_then(CallError::status).is_some_and(|status| status.code == 403)
    }

    /// The claim of a V claim, if this binding has one.
    pub(crate) fn claim_of(&self, original: &Key<Virtual>, subject: &Subject) -> Option<Arc<Entry<Object>>> {
        Self::ours(&self.claims, original, subject)
    }

    /// The Service of a V Service, if this binding has one.
    pub(crate) fn service_of(
        &self,
        original: &Key<Virtual>,
        subject: &Subject,
    ) -> Option<Arc<Entry<Object>>> {
        Self::ours(&self.services, original, subject)
    }

    /// The slice of a V slice, if this binding has one.
    pub(crate) fn slice_of(&self, original: &Key<Virtual>, subject: &Subject) -> Option<Arc<Entry<Object>>> {
        Self::ours(&self.slices, original, subject)
    }

    fn ours(
        store: &Store<Physical, Object>,
        original: &Key<Virtual>,
        subject: &Subject,
    ) -> Option<Arc<Entry<Object>>> {
        let copies = store.by(&COPY_OF, &original.to_string());
        copies.into_iter().find(|copy| is_ours(&copy.meta, subject))
    }

    /// The volume that a claim of these names has, or will have; else the one that a V volume is.
    pub(crate) fn volume_for(
        &self,
        claims: &[&str],
        original: Option<&str>,
        subject: &Subject,
    ) -> Option<Arc<Entry<Object>>> {
        let bound = claims.iter().flat_map(|claim| self.volumes.by(&FOR_CLAIM, claim));
        let copied = original.map(|original| self.volumes.by(&VOLUME_OF, original)).unwrap_or_default();
        bound.chain(copied).find(|volume| is_stamped(&volume.meta, subject))
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
        let any_whole = |store: &Store<Physical, Object>| {
            store.all().iter().any(|(_, one)| is_stamped(&one.meta, subject))
        };
        let whole = [&self.claims, &self.volumes, &self.services, &self.slices];
        any(&self.config_maps) || any(&self.secrets) || whole.into_iter().any(any_whole)
    }
}

/// Whether this binding made it, where it makes things.
pub(crate) fn is_ours(meta: &Meta, subject: &Subject) -> bool {
    meta.labels.get(labels::BINDING_UID) == Some(&subject.uid) && *meta.namespace == *subject.mount_namespace
}

/// Whether this binding made it, wherever that is: volumes have no namespace.
pub(crate) fn is_stamped(meta: &Meta, subject: &Subject) -> bool {
    meta.labels.get(labels::BINDING_UID) == Some(&subject.uid)
        && meta.labels.get(labels::VIRTUAL_CLUSTER_UID) == Some(&subject.virtual_cluster)
        && (meta.namespace.is_empty() || *meta.namespace == *subject.mount_namespace)
}

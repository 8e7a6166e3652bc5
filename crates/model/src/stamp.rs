//! By what we know our own in a worker cluster.
//!
//! Everything that we make there carries the uids of the binding and of the computing cluster that it was made for. Both have to be ours before
//! anything is changed or removed: a name proves nothing, and a mount namespace may be shared.
//!
//! What we write on an object is what we take care of. Labels and annotations of others stay as they are.
//!
//! Deliberately absent: what the objects are for, and names that are taken. Whoever makes one hears from its [`Mark`] whether it is foreign.

use kubeocean_api::keys::{annotations, labels};
use serde_json::{Map, Value, json};

use crate::action::{Action, Dependents, Kind, Mark, PatchForm, Verb};
use crate::binding::Binding;
use crate::key::{Key, Physical};
use crate::naming::PhysicalName;
use crate::object::{Meta, Pairs};

/// A copy that is there already is ours if it was made for the same binding and the same V object. Not by the uid of that: one that was
/// made anew has the same copy.
pub(crate) const OF_THE_SAME: Mark = Mark {
    labels: &[labels::BINDING_UID, labels::VIRTUAL_CLUSTER_UID],
    annotations: &[annotations::VIRTUAL_NAMESPACE, annotations::VIRTUAL_NAME],
};

/// For whom we write into a worker cluster.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    /// The binding.
    pub binding: &'a Binding,
    /// Uid of the computing cluster: of its namespace `kube-system`.
    pub virtual_cluster: &'a str,
}

impl<'a> Stamp<'a> {
    /// The labels of everything that we make in the worker cluster.
    pub fn labels(&self) -> [(&'static str, &'a str); 3] {
        [
            (labels::MANAGED_BY, labels::MANAGED_BY_VALUE),
            (labels::BINDING_UID, &self.binding.uid),
            (labels::VIRTUAL_CLUSTER_UID, self.virtual_cluster),
        ]
    }

    /// Whether an object of the worker cluster was made for this binding. Two empty uids are not the same.
    pub fn is_ours(&self, meta: &Meta) -> bool {
        let is = |key: &str, uid: &str| !uid.is_empty() && meta.labels.get(key) == Some(uid);
        is(labels::BINDING_UID, &self.binding.uid) && is(labels::VIRTUAL_CLUSTER_UID, self.virtual_cluster)
    }

    /// Makes an object: in the mount namespace, if its kind lives in namespaces.
    pub(crate) fn create(
        &self,
        kind: Kind,
        name: &PhysicalName,
        body: Value,
        mark: Mark,
        why: &'static str,
    ) -> Action {
        let namespace = if kind.namespaced { self.binding.mount_namespace.as_str() } else { "" };
        let key = Key::<Physical>::new(namespace, name.as_str());
        Action::new(kind, &key, Verb::Create { body, mark }, why)
    }
}

/// The annotations of what serves a V object: which one. A volume has no namespace.
pub fn of_original(original: &Meta) -> Vec<(&'static str, &str)> {
    let all = [
        (annotations::VIRTUAL_NAME, &*original.name),
        (annotations::VIRTUAL_NAMESPACE, &*original.namespace),
        (annotations::VIRTUAL_UID, &*original.uid),
    ];
    all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// What we write of an object's labels and annotations; `None` takes back what we wrote before.
#[derive(Default)]
pub(crate) struct Marks<'a> {
    pub(crate) labels: Vec<(&'a str, Option<&'a str>)>,
    pub(crate) annotations: Vec<(&'a str, Option<&'a str>)>,
}

impl<'a> Marks<'a> {
    /// The stamp, and the name of a V object.
    pub(crate) fn of(stamp: &Stamp<'a>, original: &'a Meta) -> Self {
        let some = |(key, value)| (key, Some(value));
        Self {
            labels: stamp.labels().map(some).to_vec(),
            annotations: of_original(original).into_iter().map(some).collect(),
        }
    }

    /// For a new object.
    pub(crate) fn written(&self) -> Value {
        let map = |pairs: &[(&str, Option<&str>)]| -> Map<String, Value> {
            let there = pairs.iter().filter_map(|(key, value)| Some(((*key).to_owned(), (*value)?.into())));
            there.collect()
        };
        json!({"labels": map(&self.labels), "annotations": map(&self.annotations)})
    }

    /// What has to change on an object that is there. Empty: nothing.
    pub(crate) fn missing_on(&self, meta: &Meta) -> Map<String, Value> {
        let mut missing = Map::new();
        for (field, wanted, existing) in
            [("labels", &self.labels, &meta.labels), ("annotations", &self.annotations, &meta.annotations)]
        {
            let differing = differing(wanted, existing);
            if !differing.is_empty() {
                missing.insert(field.to_owned(), differing.into());
            }
        }
        missing
    }
}

fn differing(wanted: &[(&str, Option<&str>)], existing: &Pairs) -> Map<String, Value> {
    let differ = wanted.iter().filter(|(key, value)| existing.get(key) != *value);
    differ.map(|(key, value)| ((*key).to_owned(), value.map_or(Value::Null, Value::from))).collect()
}

/// Changes what differs, of the object that was looked at; nothing if nothing does.
pub(crate) fn patch(
    kind: Kind,
    existing: &Meta,
    body: Map<String, Value>,
    why: &'static str,
) -> Option<Action> {
    if body.is_empty() {
        return None;
    }
    let verb = Verb::Patch { form: PatchForm::Merge, subresource: None, body: body.into() };
    Some(Action::new(kind, &key(existing), verb, why).if_uid(&*existing.uid))
}

/// Removes the object that was looked at, and no other of its name.
pub(crate) fn delete(kind: Kind, existing: &Meta, why: &'static str) -> Action {
    let verb = Verb::Delete { grace: None, dependents: Dependents::Background };
    Action::new(kind, &key(existing), verb, why).if_uid(&*existing.uid)
}

fn key(meta: &Meta) -> Key<Physical> {
    Key::new(&*meta.namespace, &*meta.name)
}

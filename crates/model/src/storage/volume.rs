//! A volume of V, as the worker cluster should have it.
//!
//! Its spec is one field that says where the storage is, and a few that every volume has. Those that we know are taken over or set; a field that
//! we do not know is taken for a source, so that it is let in only if the lender lists it.

use kubeocean_api::keys::labels::HOSTNAME;
use serde_json::{Map, Value, json};

use super::{NodeNames, RETAIN, Refusal, Situation};
use crate::action::{Action, Mark, kinds};
use crate::key::{Key, Virtual};
use crate::naming::PhysicalName;
use crate::object::Object;
use crate::quantity::Quantity;
use crate::stamp::{Marks, Stamp, patch};

/// Taken over as they are, and mended.
const KEPT: &[&str] = &["capacity", "accessModes", "mountOptions"];

/// Everything in a volume's spec that is not its source.
const COMMON: &[&str] = &[
    "capacity",
    "accessModes",
    "mountOptions",
    "claimRef",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// What P should have.
pub(super) struct Wanted<'a> {
    /// The V volume.
    pub(super) original: &'a Object,
    /// V Secrets that its driver needs.
    pub(super) needs: Vec<Key<Virtual>>,
    spec: Map<String, Value>,
}

impl<'a> Wanted<'a> {
    pub(super) fn read(
        situation: &Situation<'_>,
        claim: &Object,
        original: &'a Object,
    ) -> Result<Self, Refusal> {
        let name = || original.meta.name.to_string();
        let unreadable = |fault| Refusal::Unreadable { volume: name(), fault };
        let Ok(Some(mut given)) = original.field::<Map<String, Value>>("spec") else {
            return Err(unreadable("it has no spec"));
        };
        let sources: Vec<String> = given
            .iter()
            .filter(|(key, value)| !COMMON.contains(&key.as_str()) && !value.is_null())
            .map(|(key, _)| key.clone())
            .collect();
        if let Some(refused) = sources.iter().find(|source| !situation.allowed.has(source)) {
            return Err(Refusal::Source {
                volume: name(),
                source_field: refused.clone(),
                allowed: situation.allowed.to_string(),
                namespace: situation.stamp.binding.mount_namespace.clone(),
            });
        }
        let [source] = sources.as_slice() else {
            return Err(unreadable("it does not say where its storage is, or says it twice"));
        };
        let mut spec = Map::new();
        for field in KEPT.iter().chain(&["volumeMode"]) {
            if let Some(value) = given.remove(*field).filter(|value| !value.is_null()) {
                spec.insert((*field).to_owned(), value);
            }
        }
        if let Some(mut affinity) = given.remove("nodeAffinity").filter(Value::is_object) {
            rename_nodes(&mut affinity, situation.node);
            spec.insert("nodeAffinity".to_owned(), affinity);
        }
        spec.insert("persistentVolumeReclaimPolicy".to_owned(), RETAIN.into());
        spec.insert("storageClassName".to_owned(), "".into());
        let Some(Value::Object(mut storage)) = given.remove(source) else {
            return Err(unreadable("where its storage is makes no sense"));
        };
        let needs = rename_secrets(&mut storage, situation, &claim.meta.namespace);
        spec.insert(source.clone(), storage.into());
        Ok(Self { original, needs, spec })
    }

    pub(super) fn capacity(&self) -> Option<Quantity> {
        storage_of(self.spec.get("capacity"))
    }

    pub(super) fn create(
        &self,
        stamp: &Stamp<'_>,
        name: &PhysicalName,
        claim: &PhysicalName,
        mark: Mark,
    ) -> Action {
        let mut spec = self.spec.clone();
        spec.insert(
            "claimRef".to_owned(),
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": stamp.binding.mount_namespace, "name": claim.as_str(),
            }),
        );
        let body = json!({"metadata": Marks::of(stamp, &self.original.meta).written(), "spec": spec});
        stamp.create(kinds::VOLUME, name, body, mark, "a pod here uses it")
    }

    /// What has to change on the volume that is there. Its source and its nodes cannot.
    pub(super) fn mend(
        &self,
        stamp: &Stamp<'_>,
        existing: &Object,
        claim: &PhysicalName,
        copied_claim: Option<&Object>,
    ) -> Option<Action> {
        let is = existing.field::<Map<String, Value>>("spec").ok().flatten().unwrap_or_default();
        let mut spec = Map::new();
        if storage_of(is.get("capacity")) != self.capacity() {
            spec.extend(self.spec.get("capacity").map(|capacity| ("capacity".to_owned(), capacity.clone())));
        }
        for field in ["accessModes", "mountOptions"] {
            let (wanted, is) = (list(self.spec.get(field)), list(is.get(field)));
            if wanted != is {
                spec.insert(field.to_owned(), wanted.into());
            }
        }
        for (field, wanted) in [("persistentVolumeReclaimPolicy", RETAIN), ("storageClassName", "")] {
            if is.get(field).and_then(Value::as_str).unwrap_or_default() != wanted {
                spec.insert(field.to_owned(), wanted.into());
            }
        }
        if let Some(reference) = claim_reference(stamp, is.get("claimRef"), claim, copied_claim) {
            spec.insert("claimRef".to_owned(), reference);
        }
        let metadata = Marks::of(stamp, &self.original.meta).missing_on(&existing.meta);
        let mut body = Map::new();
        for (field, value) in [("metadata", metadata), ("spec", spec)] {
            if !value.is_empty() {
                body.insert(field.to_owned(), value.into());
            }
        }
        patch(kinds::VOLUME, &existing.meta, body, "its original differs")
    }
}

/// A volume that was bound remembers the uid of its claim. If that claim was made anew, it has to forget it, or they never find together.
fn claim_reference(
    stamp: &Stamp<'_>,
    is: Option<&Value>,
    claim: &PhysicalName,
    copied_claim: Option<&Object>,
) -> Option<Value> {
    let said = |field: &str| is.and_then(|is| is.get(field)).and_then(Value::as_str).unwrap_or_default();
    let namespace = stamp.binding.mount_namespace.as_str();
    let is_named = said("namespace") == namespace && said("name") == claim.as_str();
    let uid = said("uid");
    let is_another = !uid.is_empty() && copied_claim.is_some_and(|claim| *claim.meta.uid != *uid);
    if is_named && !is_another {
        return None;
    }
    let mut reference = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim.as_str(),
    });
    for field in ["uid", "resourceVersion"] {
        if !said(field).is_empty() {
            reference[field] = Value::Null;
        }
    }
    Some(reference)
}

/// A list; nothing is an empty one.
fn list(value: Option<&Value>) -> Vec<Value> {
    value.and_then(Value::as_array).cloned().unwrap_or_default()
}

fn storage_of(capacity: Option<&Value>) -> Option<Quantity> {
    capacity?.get("storage")?.as_str()?.parse().ok()
}

/// Values that name a virtual node name the node behind it.
fn rename_nodes(affinity: &mut Value, node: &dyn Fn(&str) -> Option<NodeNames>) {
    let terms = affinity.pointer_mut("/required/nodeSelectorTerms").and_then(Value::as_array_mut);
    for term in terms.into_iter().flatten() {
        for field in ["matchExpressions", "matchFields"] {
            let requirements = term.get_mut(field).and_then(Value::as_array_mut);
            for requirement in requirements.into_iter().flatten() {
                let by_hostname = requirement.get("key").and_then(Value::as_str) == Some(HOSTNAME);
                let values = requirement.get_mut("values").and_then(Value::as_array_mut);
                for value in values.into_iter().flatten() {
                    let Some(names) = value.as_str().and_then(node) else { continue };
                    *value = if by_hostname { names.hostname } else { names.name }.into();
                }
            }
        }
    }
}

/// References to Secrets, whatever they are called, name the copies in the mount namespace. One without a namespace means the claim's.
fn rename_secrets(
    source: &mut Map<String, Value>,
    situation: &Situation<'_>,
    claim_namespace: &str,
) -> Vec<Key<Virtual>> {
    let mount = &situation.stamp.binding.mount_namespace;
    let mut needs: Vec<Key<Virtual>> = Vec::new();
    let mut rename = |holder: &mut Map<String, Value>, name: &str, namespace: &str| {
        let said = |field: &str| holder.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let Some(given) = said(name) else { return };
        let key = Key::new(said(namespace).unwrap_or(claim_namespace), given);
        let copy = (situation.secret)(&key);
        holder.insert(name.to_owned(), copy.as_str().into());
        holder.insert(namespace.to_owned(), mount.as_str().into());
        needs.push(key);
    };
    for (field, value) in source.iter_mut() {
        let is_reference = field == "secretRef" || field.ends_with("SecretRef");
        if let Some(reference) = value.as_object_mut().filter(|_| is_reference) {
            rename(reference, "name", "namespace");
        }
    }
    // Azure files spell it in two fields of their own.
    rename(source, "secretName", "secretNamespace");
    needs.sort();
    needs.dedup();
    needs
}

//! The objects that run a binding's syncer and proxier in V.
//!
//! They are applied server-side: what the template says is ours, what others added is left. An object is as wished when
//! it carries the hash of the wish and every field of it.

use kubeocean_api::keys::annotations::TEMPLATE_HASH;
use kubeocean_api::keys::labels;
use serde_json::Value;

use super::MANAGER;
use super::state::Role;
use crate::action::{Action, Dependents, Kind, PatchForm, Verb, kinds};
use crate::key::{Key, Virtual};
use crate::object::{Meta, Object};

/// An object that should be there.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// Whom it serves.
    pub role: Role,
    /// Its kind.
    pub kind: Kind,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The whole of it, with our labels, its hash and its owner.
    pub body: Value,
}

/// An object that is there, and carries the binding's uid.
#[derive(Clone, Debug)]
pub struct Existing {
    /// Its kind.
    pub kind: Kind,
    /// The object.
    pub object: Object,
}

/// An object that an API server does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Whom it would serve.
    pub role: Role,
    /// Which object, and the server's words.
    pub message: String,
}

/// The kinds that templates may make: those that the manager watches and has rights for.
pub const KINDS: [Kind; 8] = [
    kinds::SERVICE_ACCOUNT,
    kinds::ROLE,
    kinds::ROLE_BINDING,
    kinds::CLUSTER_ROLE_BINDING,
    kinds::SERVICE,
    kinds::DEPLOYMENT,
    kinds::AUTOSCALER,
    kinds::DISRUPTION_BUDGET,
];

impl Child {
    fn is(&self, existing: &Existing) -> bool {
        let Meta { namespace, name, .. } = &existing.object.meta;
        self.kind == existing.kind && *self.namespace == **namespace && *self.name == **name
    }

    fn apply(&self, existing: Option<&Existing>) -> Action {
        // What is not there may be someone else's, whom we do not see: then fields are not taken from them.
        let form = PatchForm::Apply { manager: MANAGER.into(), force: existing.is_some() };
        let verb = Verb::Patch { form, subresource: None, body: self.body.clone() };
        let key = Key::<Virtual>::new(self.namespace.as_str(), self.name.as_str());
        match existing {
            None => Action::new(self.kind.clone(), &key, verb, format!("the {} needs it", self.role)),
            Some(existing) => {
                let why = if hash_of(&self.body) == existing.object.meta.annotations.get(TEMPLATE_HASH) {
                    "someone changed it"
                } else {
                    "the wish has changed"
                };
                let Meta { uid, resource_version, .. } = &existing.object.meta;
                Action::new(self.kind.clone(), &key, verb, why).if_uid(&**uid).if_version(&**resource_version)
            }
        }
    }
}

fn hash_of(body: &Value) -> Option<&str> {
    body["metadata"]["annotations"][TEMPLATE_HASH].as_str()
}

/// Makes what is missing, mends what was changed, removes what is no longer wanted.
pub(super) fn heal(wanted: &[Child], existing: &[Existing]) -> Vec<Action> {
    let mut actions = Vec::new();
    for child in wanted {
        match existing.iter().find(|one| child.is(one)) {
            None => actions.push(child.apply(None)),
            // It is made anew when it is gone.
            Some(one) if one.object.meta.is_deleting() => {}
            Some(one) if is_as_wished(&child.body, &one.object) => {}
            Some(one) if !can_become(&child.body, &one.object) => {
                actions.extend(delete(one, "it cannot be changed into what is wanted, and is made anew"));
            }
            Some(one) => actions.push(child.apply(Some(one))),
        }
    }
    let unwanted = existing.iter().filter(|one| !wanted.iter().any(|child| child.is(one)));
    actions.extend(unwanted.filter_map(|one| delete(one, "the template no longer has it")));
    actions
}

/// Removes everything, what runs first.
pub(super) fn remove(existing: &[Existing]) -> Vec<Action> {
    let (running, resting): (Vec<_>, Vec<_>) =
        existing.iter().partition(|one| matches!(&*one.kind.kind, "Deployment" | "HorizontalPodAutoscaler"));
    // Its rights are taken from a syncer when it has ended, not while it still writes.
    let next = if running.is_empty() { resting } else { running };
    next.into_iter().filter_map(|one| delete(one, "the binding goes")).collect()
}

fn delete(existing: &Existing, why: &'static str) -> Option<Action> {
    let meta = &existing.object.meta;
    if meta.is_deleting() {
        return None;
    }
    // A Deployment that is gone has no pod left that would write.
    let dependents =
        if existing.kind == kinds::DEPLOYMENT { Dependents::Foreground } else { Dependents::Background };
    let key = Key::<Virtual>::new(&*meta.namespace, &*meta.name);
    let action = Action::new(existing.kind.clone(), &key, Verb::Delete { grace: None, dependents }, why);
    Some(action.if_uid(&*meta.uid).if_version(&*meta.resource_version))
}

/// What an API server never lets change: whom a Deployment selects, and what a binding of a role refers to. Older
/// installations had others.
fn can_become(wish: &Value, object: &Object) -> bool {
    let Ok(content) = object.content() else { return true };
    let content = Value::Object(content);
    let same = |pointer: &str| match (wish.pointer(pointer), content.pointer(pointer)) {
        (Some(wish), Some(have)) => wish == have,
        _ => true,
    };
    ["/spec/selector/matchLabels", "/spec/clusterIP", "/roleRef"].iter().all(|pointer| same(pointer))
}

/// Whether every field of the wish is in the object.
fn is_as_wished(wish: &Value, object: &Object) -> bool {
    let Ok(content) = object.content() else { return false };
    let Meta { labels: have_labels, annotations: have_annotations, owner_references: owners, .. } =
        &object.meta;
    let all = |map: &Value, get: &dyn Fn(&str) -> Option<String>| {
        map.as_object().into_iter().flatten().all(|(key, value)| get(key).as_deref() == value.as_str())
    };
    let metadata = &wish["metadata"];
    let wanted_owners: Vec<&str> = metadata["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|owner| owner["uid"].as_str())
        .collect();
    let ours = have_labels.get(labels::BINDING_UID);
    let have_owners: Vec<&str> =
        owners.iter().map(|owner| &*owner.uid).filter(|uid| Some(*uid) == ours).collect();
    all(&metadata["labels"], &|key| have_labels.get(key).map(str::to_owned))
        && all(&metadata["annotations"], &|key| have_annotations.get(key).map(str::to_owned))
        && wanted_owners == have_owners
        && wish.as_object().into_iter().flatten().all(|(field, value)| match field.as_str() {
            "metadata" | "apiVersion" | "kind" | "status" => true,
            field => content.get(field).is_some_and(|have| contains(have, value)),
        })
}

/// Whether a value has everything that another one says. Lists whose entries have a key are compared by it.
fn contains(have: &Value, wish: &Value) -> bool {
    match (have, wish) {
        (Value::Object(have), Value::Object(wish)) => {
            wish.iter().all(|(field, wish)| match have.get(field) {
                Some(have) if WHOLE.contains(&field.as_str()) => {
                    contains(have, wish) && length(have) == length(wish)
                }
                Some(have) => contains(have, wish),
                // Servers leave out what is empty.
                None => is_empty(wish),
            })
        }
        (Value::Array(have), Value::Array(wish)) => {
            let keyed = wish.iter().all(|entry| key_of(entry).is_some());
            if keyed {
                wish.iter()
                    .all(|wish| have.iter().any(|have| key_of(have) == key_of(wish) && contains(have, wish)))
            } else {
                have.len() == wish.len() && have.iter().zip(wish).all(|(have, wish)| contains(have, wish))
            }
        }
        (have, wish) => have == wish || same_quantity(have, wish),
    }
}

/// Lists in which nobody else's entries have a place: who may, and where a pod may go.
const WHOLE: [&str; 4] = ["subjects", "rules", "tolerations", "matchExpressions"];

fn length(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(yes) => !yes,
        Value::Number(number) => number.as_f64() == Some(0.0),
    }
}

fn key_of(entry: &Value) -> Option<&Value> {
    ["name", "containerPort", "port", "mountPath", "topologyKey", "key"].iter().find_map(|key| entry.get(key))
}

/// `1000m` is stored as `1`.
fn same_quantity(have: &Value, wish: &Value) -> bool {
    let read = |value: &Value| serde_json::from_value::<crate::quantity::Quantity>(value.clone()).ok();
    (have.is_string() || wish.is_string()) && read(have).is_some_and(|have| Some(have) == read(wish))
}

//! The objects that run a binding's syncer and proxier in V.
//!
//! They are applied server-side: what the template says is ours, what others added is left. An object is as wished when
//! it carries the hash of the wish and every field of it.

use kubeocean_api::keys::annotations::TEMPLATE_HASH;
use kubeocean_api::keys::labels;
use serde_json::{Value, json};

use super::MANAGER;
use super::state::Role;
use crate::action::{Action, Dependents, Kind, PatchForm, Verb, kinds};
use crate::key::{Key, Virtual};
use crate::object::{Meta, Object, Owner};

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

/// An object that is there, and serves the binding.
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

/// The binding that an object serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served<'a> {
    /// The one with this uid.
    Uid(&'a str),
    /// The one of this name.
    Name(&'a str),
}

/// Why an object is written that was as wished before.
pub const MENDED: &str = "someone changed it";

/// Why an object is removed that should be there, as something else.
pub const REMADE: &str = "it cannot be changed into what is wanted, and is made anew";

/// What keeps an object until its dependents are gone.
pub(super) const FOREGROUND: &str = "foregroundDeletion";

/// Names of older installations began so. Service accounts and roles, which all bindings shared, were called otherwise.
const OLDER_NAMES: [&str; 2] = ["kubeocean-syncer-", "kubeocean-proxier-"];

/// Older installations said so who made an object.
const OLDER_MAKER: (&str, &str) = ("app.kubernetes.io/managed-by", "kubeocean-manager");

/// Which binding an object of V serves: by its stamp; or, as older installations made it, by what it says of itself, or by its
/// name together with its owner. Who merely names a binding as an owner is somebody else's.
pub fn served(meta: &Meta) -> Option<Served<'_>> {
    let by_name = meta.labels.get(labels::CLUSTER_BINDING).map(Served::Name);
    if meta.labels.get(labels::MANAGED_BY) == Some(labels::MANAGED_BY_VALUE) {
        return meta.labels.get(labels::BINDING_UID).map(Served::Uid).or(by_name);
    }
    if !OLDER_NAMES.iter().any(|start| meta.name.starts_with(start)) {
        return None;
    }
    if let Some(owner) = meta.owner_references.iter().find(|owner| *owner.kind == *kinds::BINDING.kind) {
        return Some(Served::Uid(&owner.uid));
    }
    let (key, maker) = OLDER_MAKER;
    by_name.filter(|_| meta.labels.get(key) == Some(maker))
}

impl Child {
    fn is(&self, existing: &Existing) -> bool {
        let Meta { namespace, name, .. } = &existing.object.meta;
        self.kind == existing.kind && *self.namespace == **namespace && *self.name == **name
    }

    fn apply(&self, existing: Option<&Existing>) -> Action {
        let body = self.body_beside(existing);
        // What is not there may be someone else's, whom we do not see: then fields are not taken from them.
        let form = PatchForm::Apply { manager: MANAGER.into(), force: existing.is_some() };
        let verb = Verb::Patch { form, subresource: None, body };
        let key = Key::<Virtual>::new(self.namespace.as_str(), self.name.as_str());
        match existing {
            None => Action::new(self.kind.clone(), &key, verb, format!("the {} needs it", self.role)),
            Some(existing) => {
                let why = if hash_of(&self.body) == existing.object.meta.annotations.get(TEMPLATE_HASH) {
                    MENDED
                } else {
                    "the wish has changed"
                };
                let Meta { uid, resource_version, .. } = &existing.object.meta;
                Action::new(self.kind.clone(), &key, verb, why).if_uid(&**uid).if_version(&**resource_version)
            }
        }
    }

    /// What is to be applied. Who leaves the number of replicas to an autoscaler says the one that there is: a field that is
    /// no longer applied would fall back to its default, and take the others down until the autoscaler looks again.
    fn body_beside(&self, existing: Option<&Existing>) -> Value {
        let mut body = self.body.clone();
        let replicas = existing.filter(|_| self.kind == kinds::DEPLOYMENT).and_then(|existing| {
            let spec: Value = existing.object.field("spec").ok().flatten()?;
            spec.get("replicas").cloned()
        });
        if let (Some(replicas), Some(spec)) = (replicas, body.get_mut("spec").and_then(Value::as_object_mut))
        {
            spec.entry("replicas").or_insert(replicas);
        }
        body
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
                actions.extend(delete(one, Haste::Orderly, REMADE));
            }
            Some(one) => actions.push(child.apply(Some(one))),
        }
    }
    let unwanted = existing.iter().filter(|one| !wanted.iter().any(|child| child.is(one)));
    actions.extend(unwanted.filter_map(|one| delete(one, Haste::Orderly, "the template no longer has it")));
    actions
}

/// Takes the binding away from among the owners of what there is, as it is: a foreground deletion of the binding would take the objects
/// with it, and a template or a binding that is not in order cannot make them again.
pub(super) fn disown(existing: &[Existing]) -> Vec<Action> {
    let mut actions = Vec::new();
    for one in existing {
        let meta = &one.object.meta;
        // Those of an older installation have no such label.
        let uid = meta.labels.get(labels::BINDING_UID);
        let is_binding = |owner: &Owner| match uid {
            Some(uid) => *owner.uid == *uid,
            None => *owner.kind == *kinds::BINDING.kind,
        };
        let rest: Vec<Value> = meta
            .owner_references
            .iter()
            .filter(|owner| !is_binding(owner))
            .map(|owner| {
                json!({
                    "apiVersion": &*owner.api_version, "kind": &*owner.kind, "name": &*owner.name, "uid": &*owner.uid,
                    "controller": owner.controller,
                })
            })
            .collect();
        if rest.len() == meta.owner_references.len() || meta.is_deleting() {
            continue;
        }
        let body = json!({"metadata": {"ownerReferences": rest}});
        let verb = Verb::Patch { form: PatchForm::Merge, subresource: None, body };
        let key = Key::<Virtual>::new(&*meta.namespace, &*meta.name);
        let why = "the syncer is needed until it has given the worker cluster back";
        let action = Action::new(one.kind.clone(), &key, verb, why).if_uid(&*meta.uid);
        actions.push(action.if_version(&*meta.resource_version));
    }
    actions
}

/// Removes everything, what runs first.
pub(super) fn remove(existing: &[Existing], haste: Haste) -> Vec<Action> {
    let (running, resting): (Vec<_>, Vec<_>) =
        existing.iter().partition(|one| matches!(&*one.kind.kind, "Deployment" | "HorizontalPodAutoscaler"));
    // Its rights are taken from a syncer when it has ended, not while it still writes.
    let next = if running.is_empty() { resting } else { running };
    next.into_iter().filter_map(|one| delete(one, haste, "the binding goes")).collect()
}

/// Whether a Deployment goes before its pods or after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Haste {
    /// After them: one that is gone has no pod left that would write.
    Orderly,
    /// Before them: a pod on a node that burnt never ends.
    Forced,
}

fn delete(existing: &Existing, haste: Haste, why: &'static str) -> Option<Action> {
    let meta = &existing.object.meta;
    let waits = meta.finalizers.iter().any(|one| **one == *FOREGROUND);
    if meta.is_deleting() && !(waits && haste == Haste::Forced) {
        return None;
    }
    let orderly = existing.kind == kinds::DEPLOYMENT && haste == Haste::Orderly;
    let dependents = if orderly { Dependents::Foreground } else { Dependents::Background };
    let key = Key::<Virtual>::new(&*meta.namespace, &*meta.name);
    let action = Action::new(existing.kind.clone(), &key, Verb::Delete { grace: None, dependents }, why);
    Some(action.if_uid(&*meta.uid).if_version(&*meta.resource_version))
}

/// What an API server never lets change: whom a Deployment selects, and what a binding of a role refers to. Older
/// installations had others. What a wish leaves to the server is as the server chose it.
fn can_become(wish: &Value, object: &Object) -> bool {
    let Ok(content) = object.content() else { return true };
    let content = Value::Object(content);
    let suits = |pointer: &str, suits: &dyn Fn(&Value, &Value) -> bool| match (
        content.pointer(pointer),
        wish.pointer(pointer),
    ) {
        (Some(have), Some(wish)) => is_empty(wish) || suits(have, wish),
        _ => true,
    };
    suits("/spec/selector/matchLabels", &|have, wish| have == wish)
        && suits("/spec/clusterIP", &|have, wish| have == wish)
        && suits("/roleRef", &contains)
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
            field => has_field(content.get(field), field, value),
        })
}

/// Whether a value has everything that another one says. Lists whose entries have a key are compared by it.
fn contains(have: &Value, wish: &Value) -> bool {
    match (have, wish) {
        (Value::Object(have), Value::Object(wish)) => {
            wish.iter().all(|(field, wish)| has_field(have.get(field), field, wish))
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

/// Lists and maps in which nobody else's entries have a place: who may, where a pod may go, and whom a Service means.
const WHOLE: [&str; 5] = ["subjects", "rules", "tolerations", "matchExpressions", "selector"];

/// What servers fill in where a template says that it does not mind.
const CHOSEN: [&str; 2] = ["apiGroup", "clusterIP"];

fn has_field(have: Option<&Value>, field: &str, wish: &Value) -> bool {
    match have {
        Some(_) if CHOSEN.contains(&field) && is_empty(wish) => true,
        Some(have) => contains(have, wish) && (!WHOLE.contains(&field) || length(have) == length(wish)),
        // Servers leave out what is empty.
        None => is_empty(wish),
    }
}

fn length(value: &Value) -> usize {
    match value {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn whose(name: &str, metadata: &Value) -> String {
        let mut metadata = metadata.clone();
        metadata["name"] = name.into();
        let object = Object::from_value(json!({"metadata": metadata})).unwrap();
        match served(&object.meta) {
            Some(Served::Uid(uid)) => format!("uid {uid}"),
            Some(Served::Name(name)) => format!("name {name}"),
            None => "nobody's".to_owned(),
        }
    }

    #[test]
    fn an_object_serves_a_binding_by_its_stamp_or_as_older_installations_made_it() {
        let stamp =
            json!({"labels": {labels::MANAGED_BY: labels::MANAGED_BY_VALUE, labels::BINDING_UID: "b-1"}});
        assert_eq!(whose("anything", &stamp), "uid b-1");
        let owned = json!({"ownerReferences": [{"kind": "ClusterBinding", "name": "w1", "uid": "b-1"}]});
        assert_eq!(whose("kubeocean-syncer-c1", &owned), "uid b-1");
        assert_eq!(
            whose("dashboard", &owned),
            "nobody's",
            "someone had their own object go with the binding"
        );
        let (key, maker) = OLDER_MAKER;
        let labelled = json!({"labels": {key: maker, labels::CLUSTER_BINDING: "w1"}});
        assert_eq!(
            whose("kubeocean-proxier-c1-svc", &labelled),
            "name w1",
            "its owner got lost in a restore"
        );
        assert_eq!(whose("kubeocean-syncer", &labelled), "nobody's", "all bindings shared it");
        let chart = json!({"labels": {key: "Helm", labels::CLUSTER_BINDING: "w1"}});
        assert_eq!(whose("kubeocean-syncer-c1", &chart), "nobody's");
    }

    #[test]
    fn what_a_template_leaves_to_the_server_is_no_reason_to_make_an_object_anew() {
        let can = |body: Value, have: Value| {
            let mut object = have;
            object["metadata"] = json!({"name": "a"});
            can_become(&body, &Object::from_value(object).unwrap())
        };
        let role = |more: Value| {
            let mut role = json!({"kind": "ClusterRole", "name": "kubeocean-syncer"});
            role.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"roleRef": role})
        };
        let stored = || role(json!({"apiGroup": "rbac.authorization.k8s.io"}));
        assert!(can(role(json!({})), stored()), "the server knows the group");
        assert!(can(role(json!({"apiGroup": ""})), stored()));
        assert!(!can(role(json!({"name": "another"})), stored()));
        let address = |ip: &str| json!({"spec": {"clusterIP": ip}});
        assert!(can(address(""), address("10.0.0.7")));
        assert!(!can(address("None"), address("10.0.0.7")));
        let selects = |labels: Value| json!({"spec": {"selector": {"matchLabels": labels}}});
        assert!(!can(selects(json!({"a": "b"})), selects(json!({"a": "b", "c": "d"}))));

        let service =
            Object::from_value(json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "10.0.0.7"}}))
                .unwrap();
        assert!(is_as_wished(&json!({"metadata": {}, "spec": {"clusterIP": ""}}), &service));
        assert!(!is_as_wished(&json!({"metadata": {}, "spec": {"clusterIP": "10.0.0.8"}}), &service));
    }

    #[test]
    fn who_adds_himself_to_those_who_may_is_taken_out() {
        let whole = |field: &str, wish: Value, have: Value| {
            let object = Object::from_value(json!({"metadata": {"name": "a"}, field: have})).unwrap();
            is_as_wished(&json!({"metadata": {}, field: wish}), &object)
        };
        let ours =
            json!({"kind": "ServiceAccount", "name": "kubeocean-syncer-c1", "namespace": "kubeocean-system"});
        let eve = json!({"kind": "User", "name": "eve"});
        assert!(whole("subjects", json!([ours]), json!([ours])));
        assert!(!whole("subjects", json!([ours]), json!([ours, eve])));
        assert!(!whole("rules", json!([{"verbs": ["get"]}]), json!([{"verbs": ["get"]}, {"verbs": ["*"]}])));
        let selector = |more: Value| json!({"selector": more});
        assert!(!whole("spec", selector(json!({"a": "b"})), selector(json!({"a": "b", "nope": "nope"}))));
    }

    #[test]
    fn who_leaves_the_replicas_to_an_autoscaler_takes_none_away() {
        let deployment = |spec: Value| Child {
            role: Role::Proxier,
            kind: kinds::DEPLOYMENT,
            namespace: "kubeocean-system".to_owned(),
            name: "kubeocean-proxier-c1".to_owned(),
            body: json!({"metadata": {}, "spec": spec}),
        };
        let object = json!({"metadata": {"name": "kubeocean-proxier-c1"}, "spec": {"replicas": 7}});
        let there = Existing { kind: kinds::DEPLOYMENT, object: Object::from_value(object).unwrap() };
        let applied = |spec, existing| deployment(spec).body_beside(existing)["spec"]["replicas"].clone();
        assert_eq!(applied(json!({}), Some(&there)), 7);
        assert_eq!(applied(json!({}), None), Value::Null, "the autoscaler chooses");
        assert_eq!(applied(json!({"replicas": 2}), Some(&there)), 2);
        assert!(
            is_as_wished(&json!({"metadata": {}, "spec": {}}), &there.object),
            "whatever the autoscaler does"
        );
    }
}

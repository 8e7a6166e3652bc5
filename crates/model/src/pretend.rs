//! For tests: a worker cluster that does as it is told, and fails the test where a write is unfenced.

use std::collections::BTreeMap;

use kubeocean_api::ClusterBinding;
use serde_json::{Map, Value, json};

use crate::action::{Action, Kind, PatchForm, Verb};
use crate::binding::Binding;
use crate::key::Side;
use crate::object::Object;

/// A binding like any other, with this uid.
pub(crate) fn binding(uid: &str) -> Binding {
    let object: ClusterBinding = serde_json::from_value(json!({
        "apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding",
        "metadata": {"name": "w1", "uid": uid},
        "spec": {"clusterID": "w1", "mountNamespace": "mount", "secretRef": {"name": "s", "namespace": "n"}},
    }))
    .unwrap();
    Binding::parse(&object).unwrap()
}

pub(crate) fn object(value: &Value) -> Object {
    Object::from_value(value.clone()).unwrap()
}

/// Objects by plural, namespace and name.
#[derive(Default)]
pub(crate) struct Pretend {
    pub(crate) objects: BTreeMap<(String, String, String), Value>,
    made: u32,
}

impl Pretend {
    pub(crate) fn get(&self, kind: &Kind, name: &str) -> Option<Object> {
        self.value(kind, name).map(object)
    }

    pub(crate) fn value(&self, kind: &Kind, name: &str) -> Option<&Value> {
        self.objects.get(&place(kind, name))
    }

    pub(crate) fn value_mut(&mut self, kind: &Kind, name: &str) -> &mut Value {
        self.objects.get_mut(&place(kind, name)).unwrap()
    }

    /// Writes everything, and says what was written.
    pub(crate) fn apply(&mut self, actions: &[Action]) -> Vec<String> {
        actions.iter().map(|action| self.write(action)).collect()
    }

    fn write(&mut self, action: &Action) -> String {
        assert_eq!(action.side, Side::Physical, "{action}: nothing is written in V");
        let place = (action.kind.plural.to_string(), action.namespace.clone(), action.name.clone());
        match &action.verb {
            Verb::Create { body, .. } => {
                self.made += 1;
                let mut body = body.clone();
                body["metadata"]["namespace"] = action.namespace.as_str().into();
                body["metadata"]["name"] = action.name.as_str().into();
                body["metadata"]["uid"] = format!("made-{}", self.made).into();
                assert!(self.objects.insert(place, body).is_none(), "{action}: it is there");
            }
            Verb::Patch { form: PatchForm::Merge, subresource: None, body } => {
                let existing = self.objects.get_mut(&place).unwrap_or_else(|| panic!("{action}: of nothing"));
                assert_eq!(existing["metadata"]["uid"].as_str(), action.precondition.uid.as_deref());
                let before = existing.clone();
                merge(existing, body);
                assert_ne!(*existing, before, "{action}: it changes nothing");
            }
            Verb::Delete { .. } => {
                let existing = self.objects.remove(&place).unwrap_or_else(|| panic!("{action}: of nothing"));
                assert_eq!(existing["metadata"]["uid"].as_str(), action.precondition.uid.as_deref());
            }
            _ => panic!("{action}: nobody asked for that"),
        }
        action.to_string()
    }
}

fn place(kind: &Kind, name: &str) -> (String, String, String) {
    let namespace = if kind.namespaced { "mount" } else { "" };
    (kind.plural.to_string(), namespace.to_owned(), name.to_owned())
}

/// A merge patch, as the RFC has it.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Map::new().into();
    }
    let target = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Shapes that no server gives, and that must not make anybody fall over.
pub(crate) fn nasty() -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(""),
        json!("\u{0}ü🦀"),
        json!([]),
        json!([null, 1, {"a": [[]]}]),
        json!({}),
        json!({"": null, "a": {"b": {"c": []}}}),
        json!({"secretRef": 3, "driver": [], "nodePublishSecretRef": {"name": 1}}),
    ]
}

//! A worker cluster's node, as far as its virtual node is made of it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::lease::Node;
use crate::object::{Object, Pairs};
use crate::resources::Resources;

/// A P node, read once.
#[derive(Clone, Debug, PartialEq)]
pub struct PhysicalNode {
    /// What counts for its lease: name, labels, what it has.
    pub node: Node,
    /// Its uid.
    pub uid: String,
    /// Its annotations; few of them are anyone's business in V.
    pub annotations: Pairs,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Its conditions, as they came.
    pub conditions: Vec<Value>,
    /// `status.nodeInfo`.
    pub info: Value,
    /// `status.declaredFeatures`.
    pub features: Vec<String>,
    /// Its internal address.
    pub address: Option<String>,
}

/// A taint, without the time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; empty where it has none.
    #[serde(default)]
    pub value: String,
    /// What it does.
    pub effect: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    unschedulable: bool,
    taints: Vec<Taint>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    allocatable: BTreeMap<String, Value>,
    capacity: BTreeMap<String, Value>,
    conditions: Vec<Value>,
    addresses: Vec<Map<String, Value>>,
    node_info: Value,
    declared_features: Vec<String>,
}

impl PhysicalNode {
    /// Reads an object; what cannot be read is said.
    pub fn read(object: &Object) -> Result<Self, String> {
        let spec =
            object.field::<Spec>("spec").map_err(|error| format!("spec: {error}"))?.unwrap_or_default();
        let status =
            object.field::<Status>("status").map_err(|error| format!("status: {error}"))?.unwrap_or_default();
        let internal = |address: &Map<String, Value>| {
            let is_internal = address.get("type").is_some_and(|kind| kind == "InternalIP");
            address.get("address").filter(|_| is_internal).and_then(Value::as_str).map(str::to_owned)
        };
        Ok(Self {
            node: Node {
                name: object.meta.name.to_string(),
                labels: object.meta.labels.iter().map(|(key, value)| (key.into(), value.into())).collect(),
                allocatable: resources("allocatable", &status.allocatable)?,
                capacity: resources("capacity", &status.capacity)?,
            },
            uid: object.meta.uid.to_string(),
            annotations: object.meta.annotations.clone(),
            unschedulable: spec.unschedulable,
            taints: spec.taints,
            address: status.addresses.iter().find_map(internal),
            conditions: status.conditions,
            info: status.node_info,
            features: status.declared_features,
        })
    }
}

fn resources(field: &str, written: &BTreeMap<String, Value>) -> Result<Resources, String> {
    let read = |(resource, quantity): (&String, &Value)| {
        let parsed = serde_json::from_value(quantity.clone());
        parsed
            .map(|quantity| (resource.clone(), quantity))
            .map_err(|error| format!("status.{field}.{resource}: {error}"))
    };
    written.iter().map(read).collect()
}

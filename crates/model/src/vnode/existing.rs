//! A virtual node, as it is.

use std::collections::{BTreeMap, BTreeSet};

use kubeocean_api::keys::names::PROVIDER_ID_PREFIX;
use kubeocean_api::keys::{annotations, labels};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Tenure;
use crate::binding::Binding;
use crate::naming::Port;
use crate::object::{Meta, Object};

/// A virtual node of V, read once. What cannot be read counts as absent, and is written anew.
#[derive(Clone, Debug)]
pub struct VirtualNode {
    /// Its metadata.
    pub meta: Meta,
    /// Of which P node it is.
    pub physical_name: String,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Its taints, whoever put them there, with their times.
    pub taints: Vec<Value>,
    /// What it says that it has.
    pub allocatable: BTreeMap<String, String>,
    /// The same, as long as nobody edits one of them.
    pub capacity: BTreeMap<String, String>,
    /// Its conditions, as they came.
    pub conditions: Vec<Value>,
    /// `status.addresses`.
    pub addresses: Value,
    /// `status.daemonEndpoints`.
    pub endpoints: Value,
    /// `status.nodeInfo`.
    pub info: Value,
    /// `status.declaredFeatures`.
    pub features: Vec<String>,
    /// What it remembers of its lease.
    pub tenure: Tenure,
    /// What of it is ours.
    pub(super) expected: Option<Expected>,
}

/// What we put on a node, by key: so that we take back our own, and leave what others put there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Expected {
    pub(super) labels: BTreeSet<String>,
    pub(super) annotations: BTreeSet<String>,
    /// `key:effect`.
    pub(super) taints: BTreeSet<String>,
    pub(super) conditions: BTreeSet<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    unschedulable: bool,
    taints: Vec<Value>,
    #[serde(rename = "providerID")]
    provider_id: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    allocatable: BTreeMap<String, String>,
    capacity: BTreeMap<String, String>,
    conditions: Vec<Value>,
    addresses: Value,
    daemon_endpoints: Value,
    node_info: Value,
    declared_features: Vec<String>,
}

impl VirtualNode {
    /// Reads an object.
    pub fn read(object: &Object) -> Self {
        let meta = object.meta.clone();
        let annotation = |key: &str| meta.annotations.get(key);
        let spec = object.field::<Spec>("spec").ok().flatten().unwrap_or_default();
        let status = object.field::<Status>("status").ok().flatten().unwrap_or_default();
        // Who edits annotations and labels cannot edit this.
        let provided =
            spec.provider_id.strip_prefix(PROVIDER_ID_PREFIX).and_then(|rest| rest.split_once('/'));
        let named = provided.map(|(_, node)| node).or_else(|| annotation(annotations::PHYSICAL_NODE_NAME));
        let physical_name = named.or_else(|| meta.labels.get(labels::PHYSICAL_NODE_NAME)).unwrap_or_default();
        let read = |key: &str| annotation(key).map(serde_json::from_str).and_then(Result::ok);
        Self {
            physical_name: physical_name.to_owned(),
            unschedulable: spec.unschedulable,
            taints: spec.taints,
            allocatable: status.allocatable,
            capacity: status.capacity,
            conditions: status.conditions,
            addresses: status.addresses,
            endpoints: status.daemon_endpoints,
            info: status.node_info,
            features: status.declared_features,
            tenure: annotation(annotations::POLICY_DETAILS)
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or_default(),
            expected: read(annotations::EXPECTED_METADATA),
            meta,
        }
    }

    /// Whether this binding made it for that node.
    pub fn is_of(&self, binding: &Binding, physical_name: &str) -> bool {
        self.meta.labels.get(labels::BINDING_UID) == Some(binding.uid.as_str())
            && self.physical_name == physical_name
    }

    /// The port that the proxier serves it on, if it has one. Who takes the label away does not take the port.
    pub fn port(&self) -> Option<Port> {
        let labelled = self.meta.labels.get(labels::PROXIER_PORT).and_then(Port::from_label);
        let served = || u16::try_from(self.endpoints["kubeletEndpoint"]["Port"].as_u64()?).ok();
        labelled.or_else(|| served().and_then(Port::new))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.meta.name
    }
}

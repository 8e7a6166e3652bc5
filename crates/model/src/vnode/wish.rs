//! What a virtual node should look like.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubeocean_api::keys::taints::{self, Mark, NODE_CONTROLLER_KEYS};
use kubeocean_api::keys::{PREFIX, annotations, conditions, labels, reasons};
use serde_json::{Map, Value, json};

use super::{PhysicalNode, Situation, Taint, Tenure, Unkept, VirtualNode};
use crate::condition::whole_seconds;
use crate::lease::{Lease, Policy};
use crate::naming::{Port, label_value};
use crate::quantity::Quantity;
use crate::resources::Resources;

/// What of a virtual node is ours to say.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wish {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) taints: Vec<Taint>,
    pub(super) conditions: Vec<Value>,
    /// `None`: as it is.
    pub(super) resources: Option<Resources>,
    pub(super) address: Option<String>,
    pub(super) port: Option<Port>,
    pub(super) info: Value,
    pub(super) features: Vec<String>,
    /// What was left out, and what to do about it.
    pub(super) omitted: Option<String>,
    /// Whether this tells all that is ours. Not so where the P node is gone, and someone took away what was remembered of it.
    pub(super) is_whole: bool,
}

/// Annotations of an object may have 256 KiB together, and the keys of labels that we put are remembered in one.
const MOST_LABEL_BYTES: usize = 128 * 1024;

/// The feature by which an API server speaks `WebSockets` to a kubelet; ours pass through P's API server, which has to
/// understand them.
const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";
const WEBSOCKETS_SINCE_MINOR: u32 = 36;

impl Wish {
    /// From a P node. Without a lease, what is said of it stays.
    pub(super) fn of(
        situation: &Situation<'_>,
        node: &PhysicalNode,
        lease: Option<&Lease>,
        tenure: &Tenure,
    ) -> Self {
        let (labels, omitted) = labels_of(situation, node);
        // Nobody knows yet what version answers there: what was promised by who knew it is not taken back for that.
        let was_promised = || {
            situation.existing.is_some_and(|existing| existing.features.iter().any(|one| one == WEBSOCKETS))
        };
        let Settings { physical_minor: physical, unkept, .. } = situation.settings;
        let speaks = physical.map_or_else(was_promised, |minor| minor >= WEBSOCKETS_SINCE_MINOR);
        let features = node.features.iter().filter(|feature| *feature != WEBSOCKETS || speaks);
        Self {
            labels,
            annotations: annotations_of(situation, node, lease, tenure),
            taints: taints_of(situation, node, lease, tenure),
            conditions: node.conditions.clone(),
            resources: lease.map(|lease| offered(lease, situation)),
            address: situation.address.map(str::to_owned),
            port: Some(situation.port),
            info: unkept.info(&node.info),
            features: unkept.features(features.cloned().collect()),
            omitted,
            is_whole: true,
        }
    }

    /// The condition of a node whose worker cluster does not answer.
    pub(super) fn lost(since: Timestamp) -> Value {
        json!({
            "type": conditions::Node::Ready.as_str(), "status": "Unknown",
            "reason": reasons::Node::WorkerUnreachable.as_str(),
            "lastTransitionTime": whole_seconds(since),
            "message": format!("the worker cluster has not answered since {}", whole_seconds(since)),
        })
    }
}

/// What a lease offers; not more than before, as long as nobody knows who uses what.
fn offered(lease: &Lease, situation: &Situation<'_>) -> Resources {
    let offered = lease.offered();
    match situation.existing.filter(|_| situation.is_behind) {
        Some(existing) => bounded(&offered, existing),
        None => offered,
    }
}

/// What a node offers of which nobody can read the policies: as before, and never more than others leave.
pub(super) fn no_more_than_remains(situation: &Situation<'_>, existing: &VirtualNode) -> Option<Resources> {
    situation.remaining.map(|remaining| bounded(remaining, existing))
}

/// Not more than was offered before.
fn bounded(amounts: &Resources, existing: &VirtualNode) -> Resources {
    let before = |resource: &str| existing.allocatable.get(resource).and_then(|amount| amount.parse().ok());
    let bounded = amounts.iter().filter_map(|(resource, amount)| {
        let before: Quantity = before(resource)?;
        Some((resource, amount.min(before)))
    });
    bounded.collect()
}

/// Ours, and those of the P node that mean something elsewhere.
fn labels_of(situation: &Situation<'_>, node: &PhysicalNode) -> (BTreeMap<String, String>, Option<String>) {
    let binding = situation.binding;
    let mut labels = BTreeMap::new();
    let mut bytes = 0;
    let mut omitted = 0;
    for (key, value) in node.node.labels.iter().filter(|(key, _)| is_copied(key)) {
        bytes += key.len();
        if bytes > MOST_LABEL_BYTES {
            omitted += 1;
        } else {
            labels.insert(key.clone(), value.clone());
        }
    }
    let name = &node.node.name;
    let mut put = |key: &str, value: &str| {
        if label_value(value).is_some() {
            labels.insert(key.to_owned(), value.to_owned());
        }
    };
    put(labels::MANAGED_BY, labels::MANAGED_BY_VALUE);
    put(labels::BINDING_UID, &binding.uid);
    put(labels::VIRTUAL_CLUSTER_UID, situation.virtual_cluster);
    put(labels::CLUSTER_BINDING, &binding.name);
    for key in [labels::PHYSICAL_CLUSTER_ID, labels::CLUSTER_ID] {
        put(key, binding.cluster_id.as_str());
    }
    for key in [labels::PHYSICAL_NODE_NAME, labels::PHYSICAL_NODE] {
        put(key, name);
    }
    put(labels::PHYSICAL_NODE_UID, &node.uid);
    if let Some(address) = &node.address {
        put(labels::PHYSICAL_NODE_INNER_IP, address);
    }
    put(labels::PROXIER_PORT, &situation.port.to_string());
    put(labels::NODE_TYPE, labels::NODE_TYPE_VIRTUAL);
    put(labels::TYPE, labels::TYPE_VIRTUAL_KUBELET);
    put(labels::INSTANCE_TYPE, labels::INSTANCE_TYPE_VNODE);
    put(labels::HOSTNAME, situation.name);
    put(labels::EXCLUDE_FROM_LOAD_BALANCERS, "");
    put(labels::EXCLUDE_DISRUPTION, "");
    let omitted = (omitted > 0).then(|| {
        format!(
            "{omitted} labels of node {name} are left out: their keys are longer than {MOST_LABEL_BYTES} bytes together; \
             remove some in the worker cluster"
        )
    });
    (labels, omitted)
}

fn is_copied(key: &str) -> bool {
    let refused = [labels::NODE_ROLE_PREFIX, labels::NODE_RESTRICTION_PREFIX, PREFIX];
    !refused.iter().any(|prefix| key.starts_with(prefix))
        && ![labels::HOSTNAME, labels::INSTANCE_TYPE, labels::TYPE].contains(&key)
}

fn annotations_of(
    situation: &Situation<'_>,
    node: &PhysicalNode,
    lease: Option<&Lease>,
    tenure: &Tenure,
) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut put = |key: &str, value: String| all.insert(key.to_owned(), value);
    for key in situation.settings.node_annotations.iter().filter(|key| !key.starts_with(PREFIX)) {
        if let Some(value) = node.annotations.get(key) {
            put(key, value.to_owned());
        }
    }
    put(annotations::CLUSTER_BINDING, situation.binding.name.clone());
    put(annotations::PHYSICAL_NODE_NAME, node.node.name.clone());
    put(annotations::PHYSICAL_NODE_UID, node.uid.clone());
    put(annotations::POLICY_DETAILS, json!(tenure).to_string());
    if let Some(closes_at) = tenure.closes_at() {
        put(annotations::LEASE_CLOSES_AT, closes_at.to_string());
    }
    match (lease, situation.existing) {
        (Some(lease), _) => {
            let names: Vec<&str> = lease.winners.iter().map(|(_, policy)| policy.name.as_str()).collect();
            put(annotations::POLICIES_APPLIED, names.join(","));
            put(annotations::RESOURCE_POLICY, caps(lease).to_string());
        }
        (None, Some(existing)) => {
            for key in [annotations::POLICIES_APPLIED, annotations::RESOURCE_POLICY] {
                if let Some(value) = existing.meta.annotations.get(key) {
                    put(key, value.to_owned());
                }
            }
        }
        (None, None) => {}
    }
    all
}

/// The caps that apply, by resource, the lender's first.
fn caps(lease: &Lease) -> Value {
    let mut all: Map<String, Value> = Map::new();
    for (_, policy) in lease.winners.iter() {
        for limit in &policy.limits {
            let known = all.entry(limit.resource.clone()).or_insert_with(|| json!([]));
            if let Value::Array(caps) = known {
                caps.push(limit.cap.in_short().into());
            }
        }
    }
    all.into()
}

fn taints_of(
    situation: &Situation<'_>,
    node: &PhysicalNode,
    lease: Option<&Lease>,
    tenure: &Tenure,
) -> Vec<Taint> {
    let now = situation.now;
    let mut all: Vec<Taint> = Vec::new();
    let mut mark = |mark: Mark| all.push(taint(mark));
    if situation.binding.has_default_taint {
        mark(taints::VNODE);
    }
    if node.unschedulable {
        mark(taints::PHYSICAL_NODE_UNSCHEDULABLE);
    }
    if tenure.is_closed() {
        mark(taints::OUT_OF_TIME_WINDOWS);
        if tenure.demands().any(|demand| !demand.clears_the_node && demand.deadline <= now) {
            mark(taints::RECLAIMED);
        }
    } else if lease.is_some_and(|lease| closing_from(lease, situation).is_some_and(|from| from <= now)) {
        mark(taints::CLOSING);
    }
    if tenure.leaving.is_some() {
        mark(taints::VNODE_DELETING);
    }
    let copied = node.taints.iter().filter(|taint| {
        !NODE_CONTROLLER_KEYS.contains(&taint.key.as_str()) && !taint.key.starts_with(PREFIX)
    });
    all.extend(copied.cloned());
    all
}

/// From when on nothing new should land on a node whose pods will be removed: ten minutes before, or half of the window.
pub(super) fn closing_from(lease: &Lease, situation: &Situation<'_>) -> Option<Timestamp> {
    let now = situation.now;
    let from = |policy: &Policy| {
        let (opened_at, closes_at) = policy.schedule.open_span(now)?;
        let half = closes_at.duration_since(opened_at) / 2;
        let notice = SignedDuration::try_from(situation.settings.closing_notice).unwrap_or(half);
        closes_at.checked_sub(notice.min(half)).ok()
    };
    let forced = lease.winners.iter().filter(|(_, policy)| policy.force_reclaim);
    forced.filter_map(|(_, policy)| from(policy)).min()
}

/// A mark as a taint.
pub(super) fn taint(mark: Mark) -> Taint {
    Taint {
        key: mark.key.to_owned(),
        value: mark.value.unwrap_or_default().to_owned(),
        effect: mark.effect.as_str().to_owned(),
    }
}

/// What a syncer was told about virtual nodes in general.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long before a forced end of a window nothing new is let in; never more than half of the window.
    pub closing_notice: Duration,
    /// Annotations of P nodes that are copied.
    pub node_annotations: Vec<String>,
    /// P's API server is 1.this.
    pub physical_minor: Option<u32>,
    /// What V's API server does not keep.
    pub unkept: Unkept,
}

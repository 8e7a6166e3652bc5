//! What becomes of a pod on a virtual node that is taken back, or of a pod that nobody else would finish.
//!
//! ```text
//!   notice at once ──▶ with a disruption budget: evicted as it allows ──▶ at the deadline: removed, whatever it tolerates
//!        ▲                without one: untouched                                        │
//!        └── the window opens again: taken back                          no twin left: finished
//! ```
//!
//! The demand comes from the node's [`Tenure`], where it was written before anyone acted on it. The lender's word is final: only
//! the borrower's own policy spares pods that tolerate a closed window, and nobody has more than thirty seconds to end after the
//! deadline.

use std::ops::Deref;

use jiff::{SignedDuration, Timestamp};
use kubeocean_api::keys::conditions::Pod as ConditionType;
use kubeocean_api::keys::names::{FAKE_NAMESPACE, SYSTEM_NAMESPACES};
use kubeocean_api::keys::reasons::{Disruption, Event as EventReason, Pod as Reason};
use kubeocean_api::keys::taints::{Effect, OUT_OF_TIME_WINDOWS_KEY};
use kubeocean_api::keys::{TRUE, annotations, labels};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::action::{Action, Dependents, PatchForm, Verb, kinds};
use crate::bind::Telling;
use crate::binding::Binding;
use crate::condition;
use crate::hostports::{self, HostPort};
use crate::key::{Key, Virtual};
use crate::object::Object;
use crate::quantity::Quantity;
use crate::requests;
use crate::resources::{PODS, Resources};
use crate::vnode::{Demand, Tenure};

/// What a pod may take to end after the deadline, however long it would like to.
const LONGEST_END: u32 = 30;

/// A V pod on a virtual node, read once. It is the object that it was read from, too.
#[derive(Clone, Debug)]
pub struct VirtualPod {
    object: Object,
    /// What it asks of its node; nothing once it has ended.
    pub requests: Resources,
    /// The ports of its node that it asks for.
    pub ports: Box<[HostPort]>,
    pub(crate) tolerations: Box<[Toleration]>,
    /// The node that it is bound to.
    pub node: String,
    /// Whether it has ended for good.
    pub is_terminal: bool,
    /// Seconds that it would like to have to end.
    grace: u32,
    /// Whether it was told that it has to go.
    is_told: bool,
    /// When it was bound to its node, to the second.
    bound_at: Option<Timestamp>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
    termination_grace_period_seconds: Option<i64>,
    tolerations: Vec<Toleration>,
}

/// What a pod bears of its node.
#[derive(Clone, Debug, Deserialize, Default)]
#[serde(default)]
pub(crate) struct Toleration {
    key: String,
    operator: String,
    value: String,
    effect: String,
}

impl Toleration {
    /// Whether it means a taint that drives pods away.
    pub(crate) fn bears(&self, key: &str, value: &str) -> bool {
        let by_key = self.key.is_empty() && self.operator == "Exists" || self.key == key;
        let by_value = self.operator == "Exists" || self.value == value;
        let by_effect = self.effect.is_empty() || self.effect == Effect::NoExecute.as_str();
        by_key && by_value && by_effect
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    phase: String,
    conditions: Vec<Value>,
}

impl VirtualPod {
    /// Reads an object.
    pub fn read(object: Object) -> Self {
        let raw = |field| object.raw(field).map(RawValue::get);
        // A pod that cannot be read is a pod all the same.
        let one_pod = || [(PODS, Quantity::whole(1))].into_iter().collect();
        let requests =
            requests::of_pod(raw("spec").unwrap_or("{}"), raw("status")).unwrap_or_else(|_| one_pod());
        let ports = raw("spec").map(hostports::of_pod).unwrap_or_default();
        let spec = object.field::<Spec>("spec").ok().flatten().unwrap_or_default();
        let status = object.field::<Status>("status").ok().flatten().unwrap_or_default();
        let told = |one: &Value| {
            one["type"] == ConditionType::DisruptionTarget.as_str()
                && one["reason"] == Disruption::LeaseEnds.as_str()
        };
        let since = |one: &Value| one["lastTransitionTime"].as_str()?.parse().ok();
        let grace = spec.termination_grace_period_seconds.unwrap_or(i64::from(LONGEST_END)).max(0);
        Self {
            node: spec.node_name,
            is_terminal: matches!(status.phase.as_str(), "Succeeded" | "Failed"),
            tolerations: spec.tolerations.into_boxed_slice(),
            requests,
            ports: ports.into_boxed_slice(),
            grace: u32::try_from(grace).unwrap_or(u32::MAX),
            is_told: status.conditions.iter().any(told),
            bound_at: status.conditions.iter().find(|one| one["type"] == "PodScheduled").and_then(since),
            object,
        }
    }

    /// When it was bound to its node, as far as its conditions say: whoever sets `spec.nodeName` by hand says nothing.
    pub fn bound_at(&self) -> Option<Timestamp> {
        self.bound_at
    }

    /// Whether it may stay when the borrower's own window closes.
    fn tolerates_closed_windows(&self) -> bool {
        self.tolerations.iter().any(|one| one.bears(OUT_OF_TIME_WINDOWS_KEY, TRUE))
    }

    /// Whether it only holds host ports.
    pub fn is_placeholder(&self) -> bool {
        *self.meta.namespace == *FAKE_NAMESPACE
            && self.meta.labels.get(labels::HOSTPORT_FAKE_POD) == Some(TRUE)
    }

    fn is_of_a_daemon_set(&self) -> bool {
        self.meta.controller().is_some_and(|owner| &*owner.kind == "DaemonSet")
    }

    /// Whether it runs in the worker cluster, if it runs. `install_namespace` is where we live ourselves.
    pub fn is_mapped(&self, binding: &Binding, install_namespace: &str) -> bool {
        let namespace = &*self.meta.namespace;
        let asks = self.meta.annotations.get(annotations::RUNNING_DAEMONSET) == Some(TRUE);
        !SYSTEM_NAMESPACES.contains(&namespace)
            && namespace != install_namespace
            && (!self.is_of_a_daemon_set() || binding.maps_daemon_sets || asks)
    }

    /// Why it does not run in the worker cluster, for people; of one that is not mapped.
    pub fn why_unmapped(&self, binding: &Binding, install_namespace: &str) -> String {
        let namespace = &*self.meta.namespace;
        if SYSTEM_NAMESPACES.contains(&namespace) || namespace == install_namespace {
            return format!("pods of namespace {namespace} do not run on virtual nodes: keep it off them");
        }
        format!(
            "pods of DaemonSets do not run on virtual nodes unless they ask for it: annotate its template with {}=true, or set \
             runningDaemonsetByDefault on ClusterBinding {}",
            annotations::RUNNING_DAEMONSET,
            binding.name
        )
    }

    /// Whether a node cannot go before it. Who is on every node, and runs on none of ours, can.
    pub fn holds_its_node(&self, is_mapped: bool) -> bool {
        is_mapped || !self.is_of_a_daemon_set()
    }

    /// Its namespace and name.
    pub fn key(&self) -> Key<Virtual> {
        self.object.key()
    }
}

impl Deref for VirtualPod {
    type Target = Object;

    fn deref(&self) -> &Object {
        &self.object
    }
}

/// Whether a pod runs in the worker cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twin {
    /// It does not, nor will it.
    None,
    /// It does, or is ending there.
    Lives,
    /// Nobody can say now.
    NotKnown,
}

/// Everything about one pod.
pub struct Situation<'a> {
    /// The pod.
    pub pod: &'a VirtualPod,
    /// What its node remembers; `None`: its node is not there.
    pub tenure: Option<&'a Tenure>,
    /// Whether it runs in the worker cluster, if it runs.
    pub is_mapped: bool,
    /// Whether a disruption budget means it.
    pub has_budget: bool,
    /// Whether it does.
    pub twin: Twin,
    /// What time it is.
    pub now: Timestamp,
}

/// What should happen to one pod.
#[derive(Debug, Default)]
pub struct Decision {
    /// To be written, in this order.
    pub actions: Vec<Action>,
    /// When to look again.
    pub again_at: Option<Timestamp>,
    /// What people should hear of, about the pod.
    pub event: Option<Telling>,
}

/// Plans for one pod.
pub fn plan(situation: &Situation<'_>) -> Decision {
    let Situation { pod, tenure, twin, now, .. } = situation;
    let is_lost = tenure.is_some_and(Tenure::is_lost);
    if pod.meta.is_deleting() && (*twin == Twin::None || is_lost) {
        return Decision { actions: finish(pod, is_lost), ..Decision::default() };
    }
    if pod.is_placeholder() {
        return Decision::default();
    }
    let Some(demand) = demand(situation) else {
        return if pod.is_told && !pod.meta.is_deleting() { take_back(pod) } else { Decision::default() };
    };
    if is_lost {
        // There is no machine that could end it.
        let mut actions = fail(pod, true);
        actions.push(delete(pod, 0, "its node is gone"));
        return Decision { actions, ..Decision::default() };
    }
    let mut decision = Decision { again_at: Some(demand.deadline), ..Decision::default() };
    // What ends already, or never ran, need not hear of it.
    let concerns = situation.is_mapped && !pod.meta.is_deleting() && !pod.is_terminal;
    let deadline = demand.deadline.to_string();
    let is_told = pod.is_told && pod.meta.annotations.get(annotations::RECLAIM_AT) == Some(&deadline);
    if concerns && !is_told {
        decision.actions.push(tell(pod, demand, *now));
        let message = format!("its node is taken back: it is removed at {}", demand.deadline);
        decision.event = Some(Telling::event(true, EventReason::Reclaiming, message));
    }
    if *now >= demand.deadline {
        decision.again_at = None;
        decision.actions.extend(remove(pod, *now));
    } else if situation.has_budget && concerns {
        let verb = Verb::Evict { grace: None };
        let why = "its node is taken back, and its disruption budget may allow it";
        decision.actions.push(Action::new(kinds::POD, &pod.key(), verb, why).if_uid(&*pod.meta.uid));
    }
    decision
}

/// The first demand that concerns this pod.
fn demand(situation: &Situation<'_>) -> Option<Demand> {
    let pod = situation.pod;
    let concerns = |demand: &Demand| {
        let spared = demand.spares_the_tolerant && pod.tolerates_closed_windows();
        let by_clearing = demand.clears_the_node && pod.holds_its_node(situation.is_mapped);
        by_clearing || (situation.is_mapped && !spared && !demand.clears_the_node && !pod.is_terminal)
    };
    situation.tenure?.demands().filter(concerns).min_by_key(|demand| demand.deadline)
}

/// Says on the pod that it has to go, and when. One write: a status write takes annotations, too.
fn tell(pod: &VirtualPod, demand: Demand, now: Timestamp) -> Action {
    let condition = json!({
        "type": ConditionType::DisruptionTarget.as_str(), "status": "True",
        "reason": Disruption::LeaseEnds.as_str(),
        "message": format!("its node is taken back at {}", demand.deadline),
        "lastTransitionTime": condition::whole_seconds(now),
    });
    let body = json!({
        "metadata": {"annotations": {annotations::RECLAIM_AT: demand.deadline.to_string()}},
        "status": {"conditions": [condition]},
    });
    status(pod, PatchForm::Strategic, body, "its node is taken back")
}

fn take_back(pod: &VirtualPod) -> Decision {
    let body = json!({
        "metadata": {"annotations": {annotations::RECLAIM_AT: null}},
        "status": {"conditions": [{"type": ConditionType::DisruptionTarget.as_str(), "$patch": "delete"}]},
    });
    let action = status(pod, PatchForm::Strategic, body, "its node stays");
    let event = Telling::event(
        false,
        EventReason::ReclaimCancelled,
        "its node stays, and so does the pod".to_owned(),
    );
    Decision { actions: vec![action], event: Some(event), ..Decision::default() }
}

/// Removes it in time, also if it is ending at its leisure. An API server lets go at once of what asks for no time at all, before its twin has
/// ended: one second holds it until that is so.
fn remove(pod: &VirtualPod, now: Timestamp) -> Option<Action> {
    let least = pod.grace.clamp(1, LONGEST_END);
    let ends_at = now.checked_add(SignedDuration::from_secs(i64::from(least))).unwrap_or(now);
    let ends_in_time = pod.meta.deletion_timestamp.is_some_and(|at| at <= ends_at);
    (!ends_in_time).then(|| delete(pod, least, "its node is taken back, and the time is up"))
}

/// Ends what no kubelet ends: it is terminal before it goes, since Jobs count what ended.
fn finish(pod: &VirtualPod, is_lost: bool) -> Vec<Action> {
    // One that waits for nobody, and is there all the same, came back with a restored etcd.
    if pod.meta.deletion_grace_period_seconds == Some(0) && !pod.meta.finalizers.is_empty() {
        return Vec::new();
    }
    let mut actions = if pod.is_placeholder() { Vec::new() } else { fail(pod, is_lost) };
    actions.push(delete(pod, 0, "it is to go, and runs nowhere"));
    actions
}

/// Makes it terminal, unless it is.
fn fail(pod: &VirtualPod, is_lost: bool) -> Vec<Action> {
    if pod.is_terminal {
        return Vec::new();
    }
    let (reason, message) = if is_lost {
        (Some(Reason::PhysicalPodLost.as_str()), "the node that it ran on is gone")
    } else {
        (None, "it was deleted, and does not run")
    };
    let mut body = json!({"status": {"phase": "Failed", "message": message}});
    if let Some(reason) = reason {
        body["status"]["reason"] = reason.into();
    }
    vec![status(pod, PatchForm::Strategic, body, "it does not run any more")]
}

fn status(pod: &VirtualPod, form: PatchForm, body: Value, why: &'static str) -> Action {
    let verb = Verb::Patch { form, subresource: Some("status"), body };
    // With the version: one whose answer was lost would be written twice.
    let action = Action::new(kinds::POD, &pod.key(), verb, why).if_uid(&*pod.meta.uid);
    action.if_version(&*pod.meta.resource_version)
}

fn delete(pod: &VirtualPod, grace: u32, why: &'static str) -> Action {
    let verb = Verb::Delete { grace: Some(grace), dependents: Dependents::Background };
    Action::new(kinds::POD, &pod.key(), verb, why).if_uid(&*pod.meta.uid)
}

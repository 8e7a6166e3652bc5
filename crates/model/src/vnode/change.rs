//! From what a virtual node is to what it should be, in as few writes as there can be.
//!
//! Others write virtual nodes, too: V's node controller puts taints and conditions, people put labels, taints and cordons. What
//! we put is remembered by key; what others put under other keys is left alone.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kubeocean_api::keys::{annotations, finalizers, is_ours, labels, taints::MARKS};
use serde_json::{Map, Value, json};

use super::existing::Expected;
use super::wish::Wish;
use super::{Situation, Taint, VirtualNode};
use crate::action::{Action, Mark, PatchForm, Verb, kinds};
use crate::binding::Binding;
use crate::condition::whole_seconds;
use crate::key::{Key, Virtual};
use crate::object::{Meta, Pairs};
use crate::quantity::Quantity;
use crate::resources::Resources;

/// By what we know a virtual node as the one that we would have made.
const STAMP: Mark = Mark { labels: &[labels::BINDING_UID], annotations: &[annotations::PHYSICAL_NODE_NAME] };

/// An offer that rises can wait: nothing is wrong with a node that says less than it has. Pods of others that come and go
/// would otherwise be two writes each; once in ten seconds, a thousand nodes that all change all the time are a hundred a second.
const RISES_EVERY: SignedDuration = SignedDuration::from_secs(10);

/// A rise of less than one per cent of each resource places no pod that could not be placed before, or nearly so.
const SMALL_RISES_EVERY: SignedDuration = SignedDuration::from_secs(60);

/// What is to be written, and when to look again if something can wait.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) actions: Vec<Action>,
    pub(super) later: Option<Timestamp>,
    /// Whether labels come or go.
    pub(super) moves_labels: bool,
}

/// Makes a node, in one write: an API server keeps the status that comes with it.
pub(super) fn create(situation: &Situation<'_>, wish: &Wish) -> Action {
    let expected = expected(wish, None);
    let mut annotations = wish.annotations.clone();
    annotations.insert(annotations::EXPECTED_METADATA.to_owned(), json!(expected).to_string());
    annotations.insert(annotations::LAST_SYNC_TIME.to_owned(), whole_seconds(situation.now));
    let offer = wish.resources.clone().unwrap_or_default();
    let body = json!({
        "metadata": {
            "labels": wish.labels, "annotations": annotations, "finalizers": [finalizers::VNODE],
        },
        "spec": {
            "providerID": situation.binding.cluster_id.provider_id(situation.physical_name),
            "taints": wish.taints.iter().map(written).collect::<Vec<_>>(),
        },
        "status": {
            "capacity": offer, "allocatable": offer, "conditions": wish.conditions, "nodeInfo": wish.info,
            "addresses": addresses(wish), "daemonEndpoints": endpoints(wish), "declaredFeatures": wish.features,
        },
    });
    let key = Key::<Virtual>::cluster_scoped(situation.name);
    Action::new(kinds::NODE, &key, Verb::Create { body, mark: STAMP }, "its node is leased")
}

/// Changes a node.
pub(super) fn update(existing: &VirtualNode, wish: &Wish, cordon: Option<bool>, now: Timestamp) -> Change {
    let mut change = Change::default();
    // First what keeps pods away; it needs the version that is known, and a second write after it needs none.
    if let Some(action) = spec(existing, wish, cordon) {
        change.actions.push(action);
    }
    let mut metadata = Map::new();
    let known = existing.expected.as_ref();
    let ours = expected(wish, Some(existing));
    let mut wanted = wish.annotations.clone();
    // Who does not know what is his says nothing about it: the rest would be someone else's for ever.
    if wish.is_whole {
        wanted.insert(annotations::EXPECTED_METADATA.to_owned(), json!(ours).to_string());
    }
    put(
        &mut metadata,
        "labels",
        pairs(&existing.meta.labels, &wish.labels, known.map(|known| &known.labels)),
    );
    change.moves_labels = !metadata.is_empty();
    let said = known.map(|known| &known.annotations);
    put(&mut metadata, "annotations", pairs(&existing.meta.annotations, &wanted, said));
    let mut status = Map::new();
    put(&mut status, "conditions", conditions(existing, wish));
    if existing.info != wish.info && !wish.info.is_null() {
        status.insert("nodeInfo".to_owned(), wish.info.clone());
    }
    if existing.features != wish.features {
        status.insert("declaredFeatures".to_owned(), json!(wish.features));
    }
    // Where nobody answers for it now, the last one who did stays: he may be back.
    if wish.address.is_some() && existing.addresses != addresses(wish) {
        status.insert("addresses".to_owned(), addresses(wish));
    }
    if wish.port.is_some() && existing.endpoints != endpoints(wish) {
        status.insert("daemonEndpoints".to_owned(), endpoints(wish));
    }
    let mut offer = Map::new();
    let mut rank = Rank::None;
    if let Some(resources) = &wish.resources {
        for (field, known) in [("capacity", &existing.capacity), ("allocatable", &existing.allocatable)] {
            rank = rank.max(Rank::of(known, resources));
            put(&mut offer, field, amounts(known, resources));
        }
    }
    // A time that is still to come was written by a clock that has been set back since.
    let last = last_written(existing).filter(|at| *at <= now);
    let since = last.map_or(SignedDuration::MAX, |at| now.duration_since(at));
    let due = match rank {
        Rank::Small => since >= SMALL_RISES_EVERY,
        Rank::Rise => since >= RISES_EVERY,
        Rank::None | Rank::Urgent => true,
    };
    if due || !metadata.is_empty() || !status.is_empty() {
        status.append(&mut offer);
    } else {
        let wait = if rank == Rank::Small { SMALL_RISES_EVERY } else { RISES_EVERY };
        change.later = last.and_then(|at| at.checked_add(wait).ok());
    }
    if metadata.is_empty() && status.is_empty() {
        return change;
    }
    let noted = metadata.entry("annotations").or_insert_with(|| json!({}));
    if let Value::Object(noted) = noted {
        noted.insert(annotations::LAST_SYNC_TIME.to_owned(), whole_seconds(now).into());
    }
    let mut body = json!({"metadata": metadata});
    if !status.is_empty() {
        body["status"] = status.into();
    }
    let verb = Verb::Patch { form: PatchForm::Strategic, subresource: Some("status"), body };
    let action = on(existing, verb, "what is true of its node has changed");
    // Alone it needs the version as well: one whose answer was lost would be written twice.
    let alone = change.actions.is_empty();
    change.actions.push(if alone { action.if_version(&*existing.meta.resource_version) } else { action });
    change
}

/// Says of a node that nobody knows how it is.
pub(super) fn lose(existing: &VirtualNode, ready: &Value) -> Vec<Action> {
    let mut actions = Vec::new();
    let mark = super::wish::taint(kubeocean_api::keys::taints::WORKER_UNREACHABLE);
    if !existing.taints.iter().any(|taint| is_same(taint, &mark)) {
        let mut taints = existing.taints.clone();
        taints.push(written(&mark));
        let body = json!({"spec": {"taints": taints}});
        let verb = Verb::Patch { form: PatchForm::Merge, subresource: None, body };
        let why = "its worker cluster does not answer";
        actions.push(on(existing, verb, why).if_version(&*existing.meta.resource_version));
    }
    let known = condition(&existing.conditions, ready["type"].as_str().unwrap_or_default());
    // V's node controller says Unknown as well, for its own reason, and should not be argued with.
    if known.is_none_or(|known| known["status"] != ready["status"]) {
        let body = json!({"status": {"conditions": [ready]}});
        let verb = Verb::Patch { form: PatchForm::Strategic, subresource: Some("status"), body };
        let action = on(existing, verb, "its worker cluster does not answer");
        let alone = actions.is_empty();
        actions.push(if alone { action.if_version(&*existing.meta.resource_version) } else { action });
    }
    actions
}

/// Whether a virtual node of ours lacks the label by which it is found.
pub fn is_hidden(meta: &Meta, binding: &Binding) -> bool {
    meta.labels.get(labels::CLUSTER_BINDING) != Some(binding.name.as_str())
}

/// Puts the label back by which it is found; all else is mended when it is seen.
pub fn show(meta: &Meta, binding: &Binding) -> Action {
    let body = json!({"metadata": {"labels": {labels::CLUSTER_BINDING: binding.name}}});
    let verb = Verb::Patch { form: PatchForm::Merge, subresource: None, body };
    let key = Key::<Virtual>::cluster_scoped(&*meta.name);
    Action::new(kinds::NODE, &key, verb, "someone took away the label by which it is found")
        .if_uid(&*meta.uid)
        .if_version(&*meta.resource_version)
}

fn on(existing: &VirtualNode, verb: Verb, why: &'static str) -> Action {
    Action::new(kinds::NODE, &Key::<Virtual>::cluster_scoped(existing.name()), verb, why)
        .if_uid(&*existing.meta.uid)
}

fn put(into: &mut Map<String, Value>, field: &str, changes: impl IntoChanges) {
    if let Some(changes) = changes.into_changes() {
        into.insert(field.to_owned(), changes);
    }
}

trait IntoChanges {
    fn into_changes(self) -> Option<Value>;
}

impl IntoChanges for Map<String, Value> {
    fn into_changes(self) -> Option<Value> {
        (!self.is_empty()).then(|| self.into())
    }
}

impl IntoChanges for Vec<Value> {
    fn into_changes(self) -> Option<Value> {
        (!self.is_empty()).then(|| self.into())
    }
}

/// What is ours when this is written: what we put, but for what someone else had put there before.
fn expected(wish: &Wish, existing: Option<&VirtualNode>) -> Expected {
    let known = existing.and_then(|existing| existing.expected.as_ref());
    let labels = wish.labels.keys().filter(|key| {
        let known = known.map(|known| &known.labels);
        existing.is_none_or(|existing| !is_theirs(key, &existing.meta.labels, known))
    });
    let annotations = wish.annotations.keys().filter(|key| {
        let known = known.map(|known| &known.annotations);
        existing.is_none_or(|existing| !is_theirs(key, &existing.meta.annotations, known))
    });
    let mut annotations: BTreeSet<String> = annotations.cloned().collect();
    annotations.extend([annotations::EXPECTED_METADATA, annotations::LAST_SYNC_TIME].map(str::to_owned));
    // Our own marks are known by their keys. A node may have a key and effect once: whose it is does not depend on the value.
    let own = |taint: &&Taint| {
        let is_it = |one: &Value| one["key"] == *taint.key && one["effect"] == *taint.effect;
        let is_there = existing.is_some_and(|existing| existing.taints.iter().any(is_it));
        !is_ours(&taint.key) && (!is_there || known.is_none_or(|known| known.taints.contains(&word(taint))))
    };
    Expected {
        labels: labels.cloned().collect(),
        annotations,
        taints: wish.taints.iter().filter(own).map(word).collect(),
        conditions: wish
            .conditions
            .iter()
            .filter_map(|one| one["type"].as_str())
            .map(str::to_owned)
            .collect(),
    }
}

/// Whether someone else put this key there. Keys under our own prefix are ours, whoever wrote them.
fn is_theirs(key: &str, existing: &Pairs, known: Option<&BTreeSet<String>>) -> bool {
    !is_ours(key) && existing.get(key).is_some() && known.is_some_and(|known| !known.contains(key))
}

/// The labels or annotations to put and, as null, to take away.
fn pairs(
    existing: &Pairs,
    wanted: &BTreeMap<String, String>,
    known: Option<&BTreeSet<String>>,
) -> Map<String, Value> {
    let mut changes = Map::new();
    for (key, value) in wanted {
        if existing.get(key) != Some(value) && !is_theirs(key, existing, known) {
            changes.insert(key.clone(), value.as_str().into());
        }
    }
    for key in known.into_iter().flatten() {
        let moves_by_itself = key == annotations::LAST_SYNC_TIME;
        if !wanted.contains_key(key) && existing.get(key).is_some() && !moves_by_itself {
            changes.insert(key.clone(), Value::Null);
        }
    }
    changes
}

fn condition<'a>(conditions: &'a [Value], type_: &str) -> Option<&'a Value> {
    conditions.iter().find(|one| one["type"] == type_)
}

/// The conditions that say something else now, and those that nobody says any more. Heartbeats say nothing.
fn conditions(existing: &VirtualNode, wish: &Wish) -> Vec<Value> {
    let says = |one: &Value| {
        ["status", "reason", "message"].map(|field| one[field].as_str().unwrap_or_default().to_owned())
    };
    let mut changes: Vec<Value> = Vec::new();
    for wanted in &wish.conditions {
        let type_ = wanted["type"].as_str().unwrap_or_default();
        if condition(&existing.conditions, type_).map(says) != Some(says(wanted)) {
            changes.push(wanted.clone());
        }
    }
    let known = existing.expected.iter().flat_map(|expected| &expected.conditions);
    for type_ in known.filter(|type_| condition(&wish.conditions, type_).is_none()) {
        if condition(&existing.conditions, type_).is_some() {
            changes.push(json!({"type": type_, "$patch": "delete"}));
        }
    }
    changes
}

/// How much a change of an offer matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Nothing changes.
    None,
    /// All rises, and by little.
    Small,
    /// All rises.
    Rise,
    /// Something falls, comes or goes: pods would be placed wrongly.
    Urgent,
}

impl Rank {
    fn of(existing: &BTreeMap<String, String>, wanted: &Resources) -> Self {
        if existing.keys().any(|resource| !wanted.lists(resource)) {
            return Self::Urgent;
        }
        let rank = |(resource, quantity): (&str, Quantity)| {
            let Some(known) = existing.get(resource).and_then(|known| known.parse::<Quantity>().ok()) else {
                return Self::Urgent;
            };
            if quantity == known {
                Self::None
            } else if quantity < known {
                Self::Urgent
            } else if quantity - known <= quantity.percent(1) {
                Self::Small
            } else {
                Self::Rise
            }
        };
        wanted.iter().map(rank).max().unwrap_or(Self::None)
    }
}

/// The amounts that differ; null takes one away.
fn amounts(existing: &BTreeMap<String, String>, wanted: &Resources) -> Map<String, Value> {
    let mut changes = Map::new();
    for (resource, quantity) in wanted.iter() {
        let known = existing.get(resource).and_then(|known| known.parse::<Quantity>().ok());
        if known != Some(quantity) {
            changes.insert(resource.to_owned(), json!(quantity));
        }
    }
    for resource in existing.keys().filter(|resource| !wanted.lists(resource)) {
        changes.insert(resource.clone(), Value::Null);
    }
    changes
}

/// Taints and the cordon: a list without keys, written whole, and only if nobody else wrote since.
fn spec(existing: &VirtualNode, wish: &Wish, cordon: Option<bool>) -> Option<Action> {
    let known = existing.expected.as_ref();
    let is_mark = |taint: &Value| MARKS.iter().any(|mark| taint["key"] == mark.key);
    let was_ours = |taint: &Value| {
        let word = format!(
            "{}:{}",
            taint["key"].as_str().unwrap_or_default(),
            taint["effect"].as_str().unwrap_or_default()
        );
        is_mark(taint) || known.is_some_and(|known| known.taints.contains(&word))
    };
    let stays = |taint: &&Value| !was_ours(taint) || wish.taints.iter().any(|one| is_same(taint, one));
    let mut taints: Vec<Value> = existing.taints.iter().filter(stays).cloned().collect();
    for wanted in &wish.taints {
        // A node may have a key and effect once: where someone has put it with another value, that counts.
        let is_there = taints.iter().any(|one| one["key"] == *wanted.key && one["effect"] == *wanted.effect);
        if !is_there {
            taints.push(written(wanted));
        }
    }
    let tainted = taints != existing.taints;
    // Who takes it away makes that a node goes under its pods. We do, of one that leaves.
    let leaves = cordon == Some(true) || existing.meta.is_deleting();
    let held = leaves || existing.meta.finalizers.iter().any(|one| **one == *finalizers::VNODE);
    let cordon = cordon.filter(|cordon| *cordon != existing.unschedulable);
    if !tainted && cordon.is_none() && held {
        return None;
    }
    let mut spec = Map::new();
    if tainted {
        spec.insert("taints".to_owned(), taints.into());
    }
    if let Some(cordon) = cordon {
        spec.insert("unschedulable".to_owned(), if cordon { true.into() } else { Value::Null });
    }
    let mut body = json!({"spec": spec});
    if !held {
        let others = existing.meta.finalizers.iter().map(|one| &**one);
        let all: Vec<&str> = others.chain([finalizers::VNODE]).collect();
        body["metadata"] = json!({"finalizers": all});
    }
    let verb = Verb::Patch { form: PatchForm::Merge, subresource: None, body };
    let action = on(existing, verb, "who may run on it has changed");
    Some(action.if_version(&*existing.meta.resource_version))
}

fn is_same(taint: &Value, wanted: &Taint) -> bool {
    taint["key"] == *wanted.key
        && taint["effect"] == *wanted.effect
        && taint["value"].as_str().unwrap_or_default() == wanted.value
}

fn word(taint: &Taint) -> String {
    format!("{}:{}", taint.key, taint.effect)
}

fn written(taint: &Taint) -> Value {
    let mut value = json!({"key": taint.key, "effect": taint.effect});
    if !taint.value.is_empty() {
        value["value"] = taint.value.as_str().into();
    }
    value
}

fn addresses(wish: &Wish) -> Value {
    wish.address.as_ref().map_or(Value::Null, |address| json!([{"type": "InternalIP", "address": address}]))
}

fn endpoints(wish: &Wish) -> Value {
    wish.port.map_or(Value::Null, |port| json!({"kubeletEndpoint": {"Port": port.number()}}))
}

fn last_written(existing: &VirtualNode) -> Option<Timestamp> {
    existing.meta.annotations.get(annotations::LAST_SYNC_TIME)?.parse().ok()
}

//! A pod of V and its twin in P: what comes next.
//!
//! ```text
//!   waits ──▶ started ──▶ kept in step ──▶ ended: rests until someone deletes it
//!     │          │             │ twin gone: lost, for good
//!     └──────────┴─────────────┴──▶ to go: the twin first, then the pod
//! ```
//!
//! A twin is known by its stamp and by the uid of its pod, never by its name. What a store does not show is not proof: who removes
//! something for that reason makes sure first, with a question to the server.
//!
//! Deliberately absent: how a twin is made, and what V is told of it. That is for `project` and `reflect`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubeocean_api::keys::{annotations, labels};

use crate::action::{Action, Dependents, Mark, Verb, kinds};
use crate::key::{Key, Physical};
use crate::object::{Meta, Object};
use crate::reclaim::VirtualPod;

/// P's scheduler has this long to place a twin, counted by who waits: the clocks of two clusters may be hours apart, and a twin must not
/// be given up in the moment of its birth. Nodes that come and go are found again in less.
pub const PLACED_WITHIN: Duration = Duration::from_secs(300);

/// By what we would know a twin that was made before: of this binding, and of this very pod.
pub const TWIN_MARK: Mark =
    Mark { labels: &[labels::BINDING_UID], annotations: &[annotations::VIRTUAL_POD_UID] };

/// Of which V pod an object of P says to be the twin.
pub fn uid_of_pod(meta: &Meta) -> Option<&str> {
    meta.annotations.get(annotations::VIRTUAL_POD_UID)
}

/// What comes next for a pod.
#[derive(Debug)]
pub enum Next<'a> {
    /// Nothing.
    Rest,
    /// These twins are of pods that are no more: the pod of that name is gone, or is another one.
    Remove(Vec<&'a Object>),
    /// It has not run yet.
    Start,
    /// It ran, and its twin is not there.
    DeclareLost,
    /// It is to go, and its twin lives.
    Stop(&'a Object),
    /// It is to go, and runs nowhere.
    Release,
    /// Both are there.
    KeepInStep(&'a Object),
}

/// Says what comes next. `twins` are all that carry our stamp and name this pod's namespace and name.
pub fn next<'a>(pod: Option<&VirtualPod>, twins: &[&'a Object], is_mapped: bool, has_run: bool) -> Next<'a> {
    let Some(pod) = pod else {
        return if twins.is_empty() { Next::Rest } else { Next::Remove(twins.to_vec()) };
    };
    let (own, others): (Vec<_>, Vec<_>) =
        twins.iter().partition(|twin| uid_of_pod(&twin.meta) == Some(&*pod.meta.uid));
    match own.first() {
        // What an earlier pod of that name left has to go before this one may come.
        _ if !others.is_empty() => Next::Remove(others),
        None if pod.meta.is_deleting() => Next::Release,
        None if pod.is_terminal || !is_mapped => Next::Rest,
        None if has_run => Next::DeclareLost,
        None => Next::Start,
        Some(twin) if pod.meta.is_deleting() => Next::Stop(twin),
        Some(twin) => Next::KeepInStep(twin),
    }
}

/// Takes a twin away whose pod is no more. It has the time that it asked for.
pub fn remove(twin: &Object) -> Option<Action> {
    (!twin.meta.is_deleting()).then(|| delete(twin, None, "its pod is no more"))
}

/// Nobody waits for a twin whose pod is no more longer than this beyond the time that it asked for: its machine may be dead, and another
/// pod of that name waits.
pub const LINGERS_AT_MOST: Duration = Duration::from_secs(30);

/// How long a twin that is ending may take by its own word; `None`: it is not ending, or nothing more can be done about it.
pub fn takes_to_end(twin: &Object) -> Option<Duration> {
    let grace = twin.meta.deletion_grace_period_seconds.filter(|grace| *grace > 0)?;
    twin.meta.is_deleting().then(|| Duration::from_secs(u64::try_from(grace).unwrap_or(0)))
}

/// Ends a twin whose pod is no more without its machine.
pub fn force(twin: &Object) -> Action {
    delete(twin, Some(0), "its pod is no more, and its time is long over")
}

/// Passes the end of a pod on to its twin, and how long it may take: also if that was made shorter since.
pub fn stop(pod: &VirtualPod, twin: &Object, now: Timestamp) -> Option<Action> {
    let ends_at = pod.meta.deletion_timestamp?;
    let left = u32::try_from(ends_at.duration_since(now).as_secs().max(0)).unwrap_or(u32::MAX);
    // Nothing but zero is forced, and what is forced is not waited for: only who asked for that gets it.
    let grace = if pod.meta.deletion_grace_period_seconds == Some(0) { 0 } else { left.max(1) };
    let latest = ends_at.checked_add(SignedDuration::from_secs(SLACK)).unwrap_or(ends_at);
    let ends_in_time = twin.meta.deletion_timestamp.is_some_and(|at| at <= latest);
    (!ends_in_time).then(|| delete(twin, Some(grace), "its pod is to go"))
}

/// The clocks of two clusters differ by a little, and the way from one to the other takes a moment.
const SLACK: i64 = 5;

/// Whether P's scheduler has still to find a node for it.
pub fn waits_for_a_node(twin: &Object) -> bool {
    let has_node = twin.text("spec", &["nodeName"]).is_some_and(|node| !node.is_empty());
    !has_node && !twin.meta.is_deleting()
}

/// What P's scheduler says of a twin without a node.
pub fn why_not_placed(twin: &Object) -> String {
    let status = twin.field::<serde_json::Value>("status").ok().flatten().unwrap_or_default();
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let said =
        conditions.iter().find(|one| one["type"] == "PodScheduled").and_then(|one| one["message"].as_str());
    said.unwrap_or("its scheduler said nothing").to_owned()
}

/// Takes a twin away that no node wants; not if it has found one meanwhile.
pub fn give_up(twin: &Object) -> Action {
    delete(twin, Some(0), "no node of the worker cluster wants it").if_version(&*twin.meta.resource_version)
}

fn delete(twin: &Object, grace: Option<u32>, why: &'static str) -> Action {
    let verb = Verb::Delete { grace, dependents: Dependents::Background };
    Action::new(kinds::POD, &twin.key::<Physical>(), verb, why).if_uid(&*twin.meta.uid)
}

/// Makes a twin.
pub fn create(namespace: &str, name: &str, body: serde_json::Value) -> Action {
    let verb = Verb::Create { body, mark: TWIN_MARK };
    Action::new(kinds::POD, &Key::<Physical>::new(namespace, name), verb, "a pod is bound to a virtual node")
}

//! What the syncer says about its binding: whether nodes are leased, and if not, what to do; how many nodes and pods there are. And its
//! finalizer: from before its first write anywhere until nothing of it is left.

use jiff::{SignedDuration, Timestamp};
use kubeocean_api::keys::conditions::Binding as ConditionType;
use kubeocean_api::keys::finalizers::CLUSTER_BINDING_SYNCER;
use kubeocean_api::keys::reasons::{Binding as Reason, Event as EventReason};
use serde_json::{Map, json};

use crate::action::{Action, Kind, PatchForm, Verb, kinds};
use crate::bind::{BindingObject, Telling, set_finalizers};
use crate::condition::{self, Said};
use crate::lease::NoLease;
use crate::rights::{Right, Scope, WorkerWishes, in_worker};

/// The field manager of what a syncer applies.
pub const SYNCER: &str = "kubeocean-syncer";

/// Counts are for people, and cost every reader of the binding: once in ten seconds is often enough.
const COUNTS_EVERY: SignedDuration = SignedDuration::from_secs(10);

/// What there is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Virtual nodes.
    pub nodes: usize,
    /// Those of them that are about to go.
    pub leaving: usize,
    /// Pods that run in the worker cluster.
    pub pods: usize,
    /// Nodes of the worker cluster.
    pub physical: usize,
    /// Those of them that policies allow to be leased: their virtual nodes may still be on their way.
    pub allowed: usize,
    /// Why a node is not leased: the reason that concerns a policy, if there is one.
    pub refusal: Option<NoLease>,
    /// Whether all nodes that are leased are outside of their windows.
    pub closed: bool,
    /// How many are for ever, and the policies of one of them.
    pub never_open: Option<(usize, Vec<String>)>,
}

/// What has to be written about the binding, when to look again, and what people should hear of.
#[derive(Debug, Default)]
pub struct Decision {
    /// To be written.
    pub actions: Vec<Action>,
    /// When to look again.
    pub again_at: Option<Timestamp>,
    /// About the binding.
    pub events: Vec<Telling>,
}

/// Whether the syncer may write anything yet.
pub fn has_begun(object: &BindingObject) -> bool {
    object.has_finalizer(CLUSTER_BINDING_SYNCER)
}

/// Plans for the binding. `tally` is `None` while nobody knows what there is: the worker cluster or one of its nodes was not looked
/// at yet. `left` says whether anything of the binding is left anywhere.
pub fn plan(object: &BindingObject, tally: Option<&Tally>, left: bool, now: Timestamp) -> Decision {
    let mut decision = Decision::default();
    let is_deleting = object.meta.is_deleting();
    if !has_begun(object) {
        // A binding that is on its way out gets none: there is nothing to give back.
        if !is_deleting {
            let finalizers = object.meta.finalizers.iter().map(|one| &**one);
            let with: Vec<&str> = finalizers.chain([CLUSTER_BINDING_SYNCER]).collect();
            decision.actions.push(set_finalizers(object, &with, "before anything is written for it"));
        }
        return decision;
    }
    if is_deleting && !left {
        let finalizers = object.meta.finalizers.iter().map(|one| &**one);
        let without: Vec<&str> = finalizers.filter(|one| *one != CLUSTER_BINDING_SYNCER).collect();
        decision.actions.push(set_finalizers(object, &without, "nothing of it is left"));
        return decision;
    }
    if let Some(tally) = tally {
        say(object, tally, is_deleting, now, &mut decision);
    }
    decision
}

fn say(object: &BindingObject, tally: &Tally, is_deleting: bool, now: Timestamp, decision: &mut Decision) {
    let (holds, reason, message) = words(object, tally, is_deleting);
    let said = Said {
        about: ConditionType::Leasing.as_str(),
        holds: Some(holds),
        reason: reason.as_str(),
        message: &message,
    };
    let known = &object.status.conditions;
    let wanted = said.written(known, object.meta.generation, now);
    let before = condition::find(known, said.about);
    let as_before = before.map(condition::as_written).as_ref() == Some(&wanted);
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let (nodes, pods) = (number(tally.nodes), number(tally.pods));
    let counted = object.status.nodes == Some(nodes) && object.status.pods == Some(pods);
    if as_before && counted {
        return;
    }
    let is_news = before
        .is_none_or(|before| before.status != condition::word(said.holds) || before.reason != said.reason);
    // A time that is still to come was written by a clock that has been set back since.
    let last = object.status.last_sync_time.as_ref().map(|time| time.0).filter(|last| *last <= now);
    let due = last.and_then(|last| last.checked_add(COUNTS_EVERY).ok()).filter(|due| *due > now);
    if let (Some(due), false) = (due, is_news) {
        decision.again_at = Some(due);
        return;
    }
    let mut status = Map::new();
    status.insert("conditions".to_owned(), json!([wanted]));
    status.insert("nodes".to_owned(), nodes.into());
    status.insert("pods".to_owned(), pods.into());
    status.insert("lastSyncTime".to_owned(), condition::whole_seconds(now).into());
    let form = PatchForm::Apply { manager: SYNCER.into(), force: true };
    let verb = Verb::Patch { form, subresource: Some("status"), body: json!({"status": status}) };
    let action = Action::new(kinds::BINDING, &object.key(), verb, "what is leased has changed");
    decision.actions.push(action.if_uid(&*object.meta.uid).if_version(&*object.meta.resource_version));
    if is_news {
        decision.events.push(Telling { warning: !holds && !is_deleting, reason: reason.as_str(), message });
    }
}

fn words(object: &BindingObject, tally: &Tally, is_deleting: bool) -> (bool, Reason, String) {
    let Tally { nodes, physical, allowed, .. } = tally;
    if is_deleting {
        return (
            false,
            Reason::Deleting,
            format!("the worker cluster is given back: {nodes} virtual nodes are left"),
        );
    }
    if object.parsed.is_err() {
        let message = format!(
            "{}; until that is corrected nothing more is leased, and the {nodes} virtual nodes go on as the binding was before",
            object.faults_in_words()
        );
        return (false, Reason::ValidationFailed, message);
    }
    let allowed = *allowed > 0;
    let (reason, message) = match &tally.refusal {
        Some(refusal @ NoLease::PermissionDenied { .. }) => {
            return (false, Reason::PermissionDenied, refusal.to_string());
        }
        _ if allowed => (Reason::Leasing, leased(tally)),
        Some(refusal) => (refusal.reason().unwrap_or(Reason::NoPolicy), refusal.to_string()),
        None if *physical == 0 => (Reason::NoPolicy, "the worker cluster has no node".to_owned()),
        None => {
            let name = &object.meta.name;
            let message = format!(
                "none of the {physical} nodes of the worker cluster is leased: spec.nodeSelector of ClusterBinding `{name}` means none \
                 of them, or no machine is behind them"
            );
            (Reason::NoPolicy, message)
        }
    };
    (allowed, reason, message + &leave(if allowed { tally.leaving } else { *nodes }))
}

/// What is leased, where something may be.
fn leased(tally: &Tally) -> String {
    let Tally { physical, allowed, .. } = tally;
    let there = tally.nodes.saturating_sub(tally.leaving);
    let closed = if tally.closed { ", all of them outside of their windows" } else { "" };
    let coming = match allowed.saturating_sub(there) {
        0 => String::new(),
        1 => "; 1 more is on its way".to_owned(),
        more => format!("; {more} more are on their way"),
    };
    let never = tally.never_open.as_ref().map(|(count, policies)| {
        format!(
            "; {count} of them never open, because the windows of policies `{}` do not meet: change spec.timeWindows of one of them",
            policies.join("` and `")
        )
    });
    format!("{there} of {physical} nodes are leased{closed}{}{coming}", never.unwrap_or_default())
}

fn leave(leaving: usize) -> String {
    match leaving {
        0 => String::new(),
        1 => "; 1 virtual node leaves".to_owned(),
        leaving => format!("; {leaving} virtual nodes leave"),
    }
}

/// That objects of the worker cluster may not be read: what for they are, and what to do about it.
pub fn not_readable(kind: &Kind, binding: &str) -> Telling {
    let group = if kind.group.is_empty() { String::new() } else { format!(".{}", kind.group) };
    let rights = in_worker(&WorkerWishes { policies: true, ..WorkerWishes::default() });
    let is_it = |right: &&Right| right.resource == kind.plural && right.group == kind.group;
    let everywhere = rights.iter().filter(is_it).find(|right| right.scope == Scope::Cluster);
    let right = everywhere.or_else(|| rights.iter().find(is_it));
    let (verbs, why) = right.map_or((String::new(), ""), |right| (right.verbs.join(", "), right.why));
    let message = format!(
        "the worker cluster does not let us read {}{group}, which we need to {why}: its lender should grant {verbs} on them \
         to the identity of ClusterBinding `{binding}`, by `kubeocean worker-manifest | kubectl apply --server-side -f -` \
         with the flags of the first time",
        kind.plural
    );
    Telling::event(true, EventReason::NotReadable, message)
}

#[cfg(test)]
mod tests;

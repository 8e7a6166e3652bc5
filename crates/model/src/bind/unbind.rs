//! Letting a worker cluster go.
//!
//! The syncer goes last of all that works: it alone can clear the worker cluster. While its finalizer is there it is kept
//! alive, without an owner, since a foreground deletion of the binding would take it away. Then its objects go, then what
//! is left in V, then our finalizer.
//!
//! Where the syncer cannot do it, an operator says so ([`FORCE_UNBIND`]), and is told what stays in the worker cluster.

use kubeocean_api::keys::annotations::FORCE_UNBIND;
use kubeocean_api::keys::finalizers::{CLUSTER_BINDING_MANAGER, CLUSTER_BINDING_SYNCER, VNODE};
use kubeocean_api::keys::labels::BINDING_UID;
use kubeocean_api::keys::reasons::{Binding as Reason, Event as EventReason};
use serde_json::json;

use super::children::{FOREGROUND, Haste};
use super::{BindingObject, Decision, Role, Situation, Telling, may_run, set_finalizers, status, telling};
use crate::action::{Action, Dependents, Kind, PatchForm, Verb, kinds};
use crate::key::{Key, Virtual};
use crate::object::Meta;

/// An object of a binding in V that its syncer made.
#[derive(Clone, Debug)]
pub struct Leftover {
    /// Its kind.
    pub kind: Kind,
    /// Its metadata.
    pub meta: Meta,
}

/// What there is of a binding in its worker cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Remains {
    /// Nobody has asked yet.
    #[default]
    NotAsked,
    /// It cannot be asked.
    Unknown(String),
    /// So many of each kind.
    Counted(Vec<(String, usize)>),
}

impl Leftover {
    /// Removes it: first the finalizer that nobody else would take away, then the object.
    pub fn remove(&self, why: &'static str) -> Vec<Action> {
        let Meta { namespace, name, uid, resource_version, finalizers, .. } = &self.meta;
        let key = Key::<Virtual>::new(&**namespace, &**name);
        let mut actions = Vec::new();
        if finalizers.iter().any(|one| **one == *VNODE) {
            let rest: Vec<&str> = finalizers.iter().map(|one| &**one).filter(|one| *one != VNODE).collect();
            let body = json!({"metadata": {"finalizers": rest}});
            let verb = Verb::Patch { form: PatchForm::Merge, subresource: None, body };
            let action = Action::new(self.kind.clone(), &key, verb, why);
            actions.push(action.if_uid(&**uid).if_version(&**resource_version));
        }
        // No kubelet ends a placeholder, also if someone else asked for its end. One that waits for nobody, and is there all the same,
        // came back with a restored etcd.
        let is_over = self.meta.deletion_grace_period_seconds == Some(0) && !finalizers.is_empty();
        let endless = self.kind == kinds::POD && !is_over;
        if !self.meta.is_deleting() || endless {
            let grace = (self.kind == kinds::POD).then_some(0);
            let verb = Verb::Delete { grace, dependents: Dependents::Background };
            actions.push(Action::new(self.kind.clone(), &key, verb, why).if_uid(&**uid));
        }
        actions
    }
}

/// Whether the workers are to go now.
pub(super) fn takes_down(situation: &Situation<'_>) -> bool {
    is_done(situation.object)
}

/// Whether its syncer has given the worker cluster back, or is not waited for.
pub(super) fn is_done(object: &BindingObject) -> bool {
    !object.has_finalizer(CLUSTER_BINDING_SYNCER) || object.forced().is_some()
}

/// What should be written for a binding that is being deleted.
pub(super) fn plan(situation: &Situation<'_>) -> Decision {
    let object = situation.object;
    if !object.has_finalizer(CLUSTER_BINDING_MANAGER) {
        return Decision::default();
    }
    let forced = object.forced();
    if !takes_down(situation) {
        let message = format!(
            "the syncer is giving the worker cluster back{}; if that cluster is gone for good: kubectl annotate \
             clusterbinding {} {FORCE_UNBIND}=REASON",
            hindrance(situation),
            object.meta.name
        );
        let hosting = situation.hosting;
        let actions = if may_run(situation) { hosting.keep_up() } else { hosting.disown() };
        return leaving(situation, actions, &message, true);
    }
    if !situation.hosting.is_gone() {
        let haste = if forced.is_some() { Haste::Forced } else { Haste::Orderly };
        let actions = situation.hosting.take_down(haste);
        let left = named(
            situation.hosting.existing().iter().map(|one| (&one.kind, &one.object.meta)),
            &object.meta.name,
            forced.is_some(),
        );
        let message = format!("the syncer and the proxier are being removed{left}");
        return leaving(situation, actions, &message, false);
    }
    if !situation.leftovers.is_empty() {
        let why = "its binding goes";
        let actions = situation.leftovers.iter().flat_map(|leftover| leftover.remove(why)).collect();
        let left = named(
            situation.leftovers.iter().map(|one| (&one.kind, &one.meta)),
            &object.meta.name,
            forced.is_some(),
        );
        let message = format!("what the syncer made in this cluster is being removed{left}");
        return leaving(situation, actions, &message, false);
    }
    if let Some(hold) = situation.hold {
        return leaving(
            situation,
            vec![remove_hold(hold)],
            "the lead of the syncer is being given up",
            false,
        );
    }
    let (farewell, events) = match forced {
        Some(_) if !object.has_finalizer(CLUSTER_BINDING_SYNCER) => (None, vec![unbound(situation)]),
        Some(reason) => match situation.remains {
            // It comes, or it is said that it cannot. Nobody looks at those that are not in order.
            Remains::NotAsked if object.parsed.is_ok() && situation.rival.is_none() => {
                let message = "the worker cluster is asked once more what is left there";
                return Decision { counts: true, ..leaving(situation, Vec::new(), message, false) };
            }
            remains => (Some(force_unbound(situation, reason, remains)), Vec::new()),
        },
        None => (None, vec![unbound(situation)]),
    };
    let ours =
        |one: &&str| *one == CLUSTER_BINDING_MANAGER || (forced.is_some() && *one == CLUSTER_BINDING_SYNCER);
    let rest: Vec<&str> = object.meta.finalizers.iter().map(|one| &**one).filter(|one| !ours(one)).collect();
    let actions = vec![set_finalizers(object, &rest, "nothing of it is left")];
    Decision { farewell, actions, events, is_last: true, ..Decision::default() }
}

/// What is wrong, as part of a longer message.
fn hindrance(situation: &Situation<'_>) -> String {
    let fault = Role::ALL.iter().find_map(|role| situation.hosting.fault(*role));
    let fault = fault.map(|fault| format!(" (it cannot be made anew: {fault})")).or_else(|| {
        let rival = situation.rival?;
        Some(format!(
            " (it is not made anew while ClusterBinding {rival}, which comes first, has the same clusterID)"
        ))
    });
    let wrong = situation.object.faults_in_words();
    match fault {
        Some(fault) => fault,
        None if wrong.is_empty() => wrong,
        None if situation.object.parsed.is_ok() => format!(" (though the binding is not in order: {wrong})"),
        None => format!(" (and may wait until the binding is in order: {wrong})"),
    }
}

/// Nobody else would: a syncer that ends gives it up, and leaves it there. By then it has no rights to make it anew.
pub(crate) fn remove_hold(hold: &Meta) -> Action {
    let key = Key::<Virtual>::new(&*hold.namespace, &*hold.name);
    let verb = Verb::Delete { grace: None, dependents: Dependents::Background };
    Action::new(kinds::LEASE, &key, verb, "nobody leads any more").if_uid(&*hold.uid)
}

/// Those that do not go by themselves, with whom they wait for and what helps: an object that is being deleted and has
/// finalizers.
fn named<'a>(left: impl Iterator<Item = (&'a Kind, &'a Meta)>, binding: &str, forced: bool) -> String {
    let waits = |(_, meta): &(&Kind, &Meta)| meta.is_deleting() && !meta.finalizers.is_empty();
    let waiting: Vec<(&Kind, &Meta)> = left.filter(waits).take(3).collect();
    if waiting.is_empty() {
        return String::new();
    }
    let is_ours = |one: &str| one == FOREGROUND;
    let words = waiting.iter().map(|(kind, meta)| {
        let whom: Vec<&str> =
            meta.finalizers.iter().map(|one| if is_ours(one) { "its pods to end" } else { &**one }).collect();
        format!("{} {} waits for {}", kind.kind, meta.name, whom.join(", "))
    });
    let words = words.collect::<Vec<_>>().join("; ");
    let mut finalizers = waiting.iter().flat_map(|(_, meta)| &meta.finalizers);
    let foreign = finalizers.clone().any(|one| !is_ours(one));
    let pods = finalizers.any(|one| is_ours(one));
    let mut help = Vec::new();
    if pods && !forced {
        help.push(format!(
            "if those pods never end: kubectl annotate clusterbinding {binding} {FORCE_UNBIND}=REASON"
        ));
    } else if pods {
        help.push("if those pods never end: kubectl delete pod --force".to_owned());
    }
    if foreign {
        help.push(
            "if nobody is left who would take a finalizer away: kubectl edit the object, and remove it"
                .to_owned(),
        );
    }
    format!(": {words} ({})", help.join("; "))
}

/// One step on the way out, with what an API server does not let us do.
fn leaving(situation: &Situation<'_>, actions: Vec<Action>, message: &str, workers_stay: bool) -> Decision {
    let refused = situation.refusal.map(|refusal| format!("{message}, but {}", refusal.message));
    let message = refused.as_deref().unwrap_or(message);
    let (status, mut events) = status::write(situation, &status::leaving(situation, message, workers_stay));
    if let (Some(message), true) = (&refused, status.is_some()) {
        events.retain(|event| event.reason != Reason::Deleting.as_str());
        events.push(telling(true, Reason::Deleting, message.clone()));
    }
    Decision { actions, status, events, ..Decision::default() }
}

fn unbound(situation: &Situation<'_>) -> Telling {
    let message = format!("{} is unbound; nothing of it is left in this cluster", situation.object.meta.name);
    Telling::event(false, EventReason::Unbound, message)
}

fn force_unbound(situation: &Situation<'_>, reason: &str, remains: &Remains) -> Telling {
    let uid = &situation.object.meta.uid;
    let namespace =
        situation.object.parsed.as_ref().map_or("MOUNT_NAMESPACE", |binding| &binding.mount_namespace);
    let what = match remains {
        Remains::NotAsked => "unknown".to_owned(),
        Remains::Unknown(cause) => format!("unknown, since it could not be asked ({cause})"),
        Remains::Counted(counts) => {
            let counts: Vec<String> = counts
                .iter()
                .filter(|(_, count)| *count > 0)
                .map(|(kind, count)| format!("{count} {kind}"))
                .collect();
            if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") }
        }
    };
    // Events are cut at a thousand characters: what nobody else says comes first.
    let message = format!(
        "unbound by force. Left in the worker cluster: {what}; whoever has it finds them with kubectl -n \
         {namespace} get pods,configmaps,secrets,persistentvolumeclaims,services,endpointslices,persistentvolumes -l \
         {BINDING_UID}={uid}. The reason given: {reason}"
    );
    Telling::event(true, EventReason::ForceUnbound, message)
}

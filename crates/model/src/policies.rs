//! What is said about a policy by the syncer of the binding that it names.
//!
//! Several borrowers may read one policy of a worker cluster. Each has an entry of its own. What is said of the policy itself is said by
//! one of them, since they may see it in different ways: other nodes, another zone for windows without one. The others leave its words
//! alone, unless nobody has said anything since the policy or its window changed: whoever should speak may be gone.

use jiff::Timestamp;
use kubeocean_api::keys::conditions::Policy as ConditionType;
use kubeocean_api::keys::reasons::Policy as Reason;
use kubeocean_api::{BindingUse, PolicyPhase, ResourceLeasingPolicy, ResourceLeasingPolicyStatus};
use serde_json::{Map, Value, json};

use crate::action::{Action, PatchForm, Verb, kinds};
use crate::binding::Binding;
use crate::condition::{self, Said};
use crate::key::{Key, OnSide, Side};
use crate::lease::{Candidate, Invalid, Policy, PolicyFault};
use crate::object::{Meta, Object};
use crate::window::Zone;

/// A policy of either side, read once.
#[derive(Clone, Debug)]
pub struct SeenPolicy {
    /// Its metadata.
    pub meta: Meta,
    /// What it says, or what is wrong with that.
    pub candidate: Candidate,
    /// What was last said about it.
    pub status: ResourceLeasingPolicyStatus,
}

impl SeenPolicy {
    /// Reads an object. Windows without a zone are in `zone`.
    pub fn read(object: &Object, zone: &Zone) -> Self {
        let read = || -> Result<ResourceLeasingPolicy, serde_json::Error> {
            let mut value = Value::Object(object.content()?);
            value["metadata"] = json!({
                "name": &*object.meta.name, "uid": &*object.meta.uid,
                "creationTimestamp": object.meta.creation_timestamp.map(|at| at.to_string()),
            });
            // What others said may be of another version, and is no part of what the lender says.
            let status = value.as_object_mut().and_then(|value| value.remove("status"));
            drop(status);
            serde_json::from_value(value)
        };
        let candidate = match read() {
            Ok(policy) => Policy::parse(&policy, zone).map(Into::into).map_err(Into::into),
            Err(error) => Err(Invalid {
                name: object.meta.name.to_string(),
                binding: object.text("spec", &["cluster"]).unwrap_or_default(),
                faults: vec![PolicyFault::Unreadable(error.to_string())],
            }
            .into()),
        };
        Self {
            meta: object.meta.clone(),
            candidate,
            status: object.field("status").ok().flatten().unwrap_or_default(),
        }
    }

    /// The binding that it names.
    pub fn binding(&self) -> &str {
        match &self.candidate {
            Ok(policy) => &policy.binding,
            Err(invalid) => &invalid.binding,
        }
    }
}

/// What a binding makes of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// For how many nodes it counts.
    pub nodes: usize,
    /// For how many another counts instead, and one of those.
    pub shadowed: Option<(usize, String)>,
    /// Resources that it limits and that none of the nodes has for which it counts.
    pub lacking: Vec<String>,
}

/// What has to be written about a policy, and when to look again.
pub fn plan<S: OnSide>(
    seen: &SeenPolicy,
    binding: &Binding,
    used: &Use,
    now: Timestamp,
) -> (Option<Action>, Option<Timestamp>) {
    let key = Key::<S>::cluster_scoped(&*seen.meta.name);
    let before = &seen.status;
    if seen.meta.is_deleting() {
        return (None, None);
    }
    let ours = before.bindings.iter().any(|one| one.binding_uid == binding.uid);
    // Of a policy that names nobody, whoever reads it has to say so; in V that is the manager.
    let names_nobody = seen.binding().is_empty() && S::SIDE == Side::Physical;
    if (seen.binding() != binding.name && !names_nobody) || binding.is_deleting {
        // Nobody else would take our entry away.
        let action =
            ours.then(|| apply(&key, seen, binding, &json!({}), "it is not about this binding any more"));
        return (action, None);
    }
    let Verdict { mut status, active, next } = judge(seen, used, now);
    let mut known = words(before);
    if before.bindings.iter().any(|one| one.binding_uid < binding.uid) && is_current(seen, now) {
        status.clone_from(&known);
    }
    let speaks = status != known;
    let own: Vec<&BindingUse> = before.bindings.iter().filter(|one| one.binding_uid == binding.uid).collect();
    known.insert("bindings".to_owned(), json!(own));
    let nodes = i32::try_from(used.nodes).unwrap_or(i32::MAX);
    let own = BindingUse { binding_uid: binding.uid.clone(), nodes, active };
    status.insert("bindings".to_owned(), json!([own]));
    let action = (known != status).then(|| {
        let at = if speaks { Some(now) } else { before.last_applied_time.as_ref().map(|time| time.0) };
        if let Some(at) = at {
            status.insert("lastAppliedTime".to_owned(), condition::whole_seconds(at).into());
        }
        apply(&key, seen, binding, &status.into(), "what is true of it has changed")
    });
    (action, next)
}

/// What was said of the policy itself, in our form.
fn words(said: &ResourceLeasingPolicyStatus) -> Map<String, Value> {
    let conditions =
        ConditionType::ALL.iter().filter_map(|about| condition::find(&said.conditions, about.as_str()));
    let conditions: Vec<Value> = conditions.map(condition::as_written).collect();
    let next = said.next_transition_time.as_ref();
    let all = [
        ("phase", said.phase.map(|phase| json!(phase))),
        ("observedGeneration", said.observed_generation.map(Value::from)),
        ("activeTimeWindow", said.active_time_window.map(Value::from)),
        ("nextTransitionTime", next.map(|time| condition::whole_seconds(time.0).into())),
        ("conditions", Some(conditions.into())),
    ];
    let all = all.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?)));
    all.filter(|(_, value)| !value.is_null()).collect()
}

/// Whether what was said of a policy was said of this edit of it, and since its window last opened or closed.
fn is_current(seen: &SeenPolicy, now: Timestamp) -> bool {
    let SeenPolicy { meta, candidate, status } = seen;
    let is_of_this_edit = status.phase.is_some() && status.observed_generation == Some(meta.generation);
    let said_at = status.last_applied_time.as_ref().map(|time| time.0);
    let is_of_this_window = said_at.is_some_and(|at| match candidate {
        Ok(policy) => policy.schedule.next_edge(at).is_none_or(|edge| edge.at > now),
        Err(_) => true,
    });
    is_of_this_edit && is_of_this_window
}

struct Verdict {
    /// What is to be said of the policy itself.
    status: Map<String, Value>,
    /// Whether its window is open.
    active: bool,
    next: Option<Timestamp>,
}

fn judge(seen: &SeenPolicy, used: &Use, now: Timestamp) -> Verdict {
    let generation = seen.meta.generation;
    let mut next = None;
    let (phase, active, said): (_, _, Vec<(ConditionType, bool, Reason, String)>) = match &seen.candidate {
        Err(invalid) => {
            let faults: Vec<String> = invalid.faults.iter().map(ToString::to_string).collect();
            let message = "an invalid policy leases nothing".to_owned();
            (
                PolicyPhase::Failed,
                false,
                vec![
                    (ConditionType::Valid, false, Reason::Invalid, faults.join("; ")),
                    (ConditionType::Active, false, Reason::Invalid, message.clone()),
                    (ConditionType::Shadowed, false, Reason::Invalid, message),
                ],
            )
        }
        Ok(policy) => {
            let active = policy.schedule.active(now);
            next = policy.schedule.next_edge(now).map(|edge| edge.at);
            let until = next.map_or("for ever".to_owned(), |at| format!("until {at}"));
            let phase = if active { PolicyPhase::Active } else { PolicyPhase::Inactive };
            let (reason, word) =
                if active { (Reason::WindowOpen, "open") } else { (Reason::WindowClosed, "closed") };
            let shadowed = if let Some((nodes, by)) = &used.shadowed {
                let message = format!(
                    "`{by}` is older, and counts instead for {nodes} of the nodes that this one means"
                );
                (ConditionType::Shadowed, true, Reason::OlderPolicy, message)
            } else {
                (ConditionType::Shadowed, false, Reason::Counts, counts(used))
            };
            (
                phase,
                active,
                vec![
                    (ConditionType::Valid, true, Reason::Accepted, "it can be followed".to_owned()),
                    (ConditionType::Active, active, reason, format!("{word} {until}")),
                    shadowed,
                ],
            )
        }
    };
    let written = said.iter().map(|(about, holds, reason, message)| {
        let said = Said { about: about.as_str(), holds: Some(*holds), reason: reason.as_str(), message };
        said.written(&seen.status.conditions, generation, now)
    });
    let mut status = Map::new();
    status.insert("phase".to_owned(), json!(phase));
    status.insert("observedGeneration".to_owned(), generation.into());
    status.insert("activeTimeWindow".to_owned(), active.into());
    if let Some(next) = next {
        status.insert("nextTransitionTime".to_owned(), condition::whole_seconds(next).into());
    }
    status.insert("conditions".to_owned(), written.collect::<Vec<_>>().into());
    Verdict { status, active, next }
}

/// Mostly a limit on what no node has is a name that is spelled otherwise there.
fn counts(used: &Use) -> String {
    let mut message = format!("it counts for {} nodes", used.nodes);
    if !used.lacking.is_empty() {
        message.push_str("; none of them has ");
        message.push_str(&used.lacking.join(" or "));
        message.push_str(": correct the name in spec.resourceLimits, or remove that limit");
    }
    message
}

fn apply<S: OnSide>(
    key: &Key<S>,
    seen: &SeenPolicy,
    binding: &Binding,
    status: &Value,
    why: &'static str,
) -> Action {
    let manager = format!("kubeocean-syncer-{}", binding.uid);
    let form = PatchForm::Apply { manager: manager.into(), force: true };
    let verb = Verb::Patch { form, subresource: Some("status"), body: json!({"status": status}) };
    let action = Action::new(kinds::POLICY, key, verb, why).if_uid(&*seen.meta.uid);
    action.if_version(&*seen.meta.resource_version)
}

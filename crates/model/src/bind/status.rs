//! What is said about a binding.
//!
//! Conditions tell the truth now. What nobody looked at yet keeps what was said last: a manager that starts says nothing
//! before it knows better.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kubeocean_api::BindingPhase;
use kubeocean_api::keys::conditions::Binding as ConditionType;
use kubeocean_api::keys::reasons::Binding as Reason;
use serde_json::{Map, Value, json};

use super::finding::{Finding, Trouble};
use super::state::{Availability, Role};
use super::{MANAGER, Situation, Telling, telling};
use crate::action::{Action, PatchForm, Verb, kinds};
use crate::binding::Binding;
use crate::condition;

/// What should be said.
#[derive(Debug, PartialEq)]
pub(super) struct Verdict {
    phase: BindingPhase,
    said: Vec<Said>,
    worker_uid: Option<String>,
}

#[derive(Debug, PartialEq)]
struct Said {
    about: ConditionType,
    /// `None`: not known.
    holds: Option<bool>,
    reason: Reason,
    message: String,
}

fn said(
    about: ConditionType,
    holds: impl Into<Option<bool>>,
    reason: Reason,
    message: impl Into<String>,
) -> Said {
    Said { about, holds: holds.into(), reason, message: message.into() }
}

/// The first thing that stands in the way, and whose phase it makes.
struct Obstacle {
    phase: BindingPhase,
    reason: Reason,
    message: String,
}

/// Judges a living binding.
pub(super) fn judge(situation: &Situation<'_>) -> Verdict {
    let Situation { object, rival, finding, .. } = situation;
    let Ok(binding) = &object.parsed else {
        return stopped(situation, Reason::ValidationFailed, &object.faults_in_words());
    };
    if let Some(rival) = rival {
        let message = format!(
            "ClusterBinding {rival} is older and has clusterID {}: delete this one, or choose another clusterID for it",
            binding.cluster_id.as_str()
        );
        return stopped(situation, Reason::DuplicateClusterId, &message);
    }
    let (connected, trouble) = connection(situation, binding);
    let worker_uid = match (finding, &trouble) {
        (Finding::Good(worker), None) => Some(worker.uid.clone()),
        _ => object.bound_to().map(str::to_owned),
    };
    let workers = Role::ALL.map(|role| (role, situation.availability(role)));
    let running = worker_uid.is_some();
    let mut all = vec![connected];
    all.extend(workers.iter().map(|(role, availability)| worker(*role, availability, running)));
    let obstacle = obstacle(situation, trouble.as_ref(), &workers, running);
    let (phase, ready) = if let Some(Obstacle { phase, reason, message }) = obstacle {
        (phase, said(ConditionType::Ready, false, reason, message))
    } else {
        let mut message = "the worker cluster is bound, and its syncer and proxier are available".to_owned();
        if let Some(unknown) = object.unknown_size() {
            message = format!("{message}; {unknown}");
        }
        (BindingPhase::Ready, said(ConditionType::Ready, true, Reason::SyncerReady, message))
    };
    all.insert(0, ready);
    Verdict { phase, said: all, worker_uid }
}

/// What is to be said of the connection to a worker cluster, and what is wrong with it.
fn connection(situation: &Situation<'_>, binding: &Binding) -> (Said, Option<Trouble>) {
    let Situation { object, finding, kept, .. } = situation;
    let trouble = match finding {
        Finding::Good(worker) => object.recognises(&worker.uid).err().map(|swapped| swapped.trouble(binding)),
        finding => finding.trouble(binding),
    };
    let connected = match (finding, &trouble) {
        (_, Some(Trouble { reason, message, .. })) => {
            // Who repairs a kubeconfig wants to know what it costs meanwhile. Where none can be had, or none that may be used, nothing was replaced.
            let unusable = matches!(reason, Reason::ValidationFailed | Reason::WorkerChanged)
                || matches!(finding, Finding::SecretForbidden(_));
            let kept = (*kept || unusable) && object.bound_to().is_some();
            let kept = if kept { "; what runs keeps its last good connection" } else { "" };
            said(ConditionType::Connected, false, *reason, format!("{message}{kept}"))
        }
        (Finding::Good(worker), None) => {
            let message = format!("the worker cluster answers, and {} may do what is needed", worker.user);
            said(ConditionType::Connected, true, Reason::ConnectivityPassed, message)
        }
        (_, None) => as_before(situation, ConditionType::Connected),
    };
    (connected, trouble)
}

fn obstacle(
    situation: &Situation<'_>,
    trouble: Option<&Trouble>,
    workers: &[(Role, Availability)],
    running: bool,
) -> Option<Obstacle> {
    // A worker that is lost for a while is said by Connected, and costs the binding nothing.
    if let Some(Trouble { reason, message, .. }) = trouble.filter(|trouble| !(trouble.transient && running)) {
        return Some(Obstacle { phase: BindingPhase::Failed, reason: *reason, message: message.clone() });
    }
    if *situation.finding == Finding::NotYet && !running {
        let message = "the worker cluster is being looked at".to_owned();
        return Some(Obstacle { phase: BindingPhase::Pending, reason: Reason::Initializing, message });
    }
    for role in Role::ALL {
        if let (Some(fault), true) = (situation.fault(role), running) {
            let reason = worker_reason(role, &Availability::Failing(String::new()));
            return Some(Obstacle { phase: BindingPhase::Failed, reason, message: fault.to_owned() });
        }
    }
    workers.iter().find_map(|(role, availability)| {
        let (phase, message) = match availability {
            Availability::Available => return None,
            Availability::Starting(message) => (BindingPhase::Pending, message.clone()),
            Availability::Failing(message) => (BindingPhase::Failed, message.clone()),
        };
        Some(Obstacle { phase, reason: worker_reason(*role, availability), message })
    })
}

fn worker_reason(role: Role, availability: &Availability) -> Reason {
    match (role, availability) {
        (Role::Syncer, Availability::Available) => Reason::SyncerReady,
        (Role::Syncer, Availability::Starting(_)) => Reason::SyncerCreated,
        (Role::Syncer, Availability::Failing(_)) => Reason::SyncerFailed,
        (Role::Proxier, Availability::Available) => Reason::ProxierReady,
        (Role::Proxier, Availability::Starting(_)) => Reason::ProxierCreated,
        (Role::Proxier, Availability::Failing(_)) => Reason::ProxierFailed,
    }
}

const fn about(role: Role) -> ConditionType {
    match role {
        Role::Syncer => ConditionType::SyncerReady,
        Role::Proxier => ConditionType::ProxierReady,
    }
}

fn worker(role: Role, availability: &Availability, running: bool) -> Said {
    let about = about(role);
    if !running {
        let message = format!("the {role} is set up when the worker cluster is connected");
        return said(about, false, Reason::Initializing, message);
    }
    let message = match availability {
        Availability::Available => format!("the {role} is available"),
        Availability::Starting(message) | Availability::Failing(message) => message.clone(),
    };
    said(about, *availability == Availability::Available, worker_reason(role, availability), message)
}

/// A binding that is not gone on with. Its workers, if it has any, are told as they are.
fn stopped(situation: &Situation<'_>, reason: Reason, message: &str) -> Verdict {
    let running = situation.object.bound_to().is_some();
    let mut all = vec![
        said(ConditionType::Ready, false, reason, message),
        said(ConditionType::Connected, None, Reason::Initializing, "not looked at: see the condition Ready"),
    ];
    for role in Role::ALL {
        all.push(worker(role, &situation.availability(role), running));
    }
    let worker_uid = situation.object.bound_to().map(str::to_owned);
    Verdict { phase: BindingPhase::Failed, said: all, worker_uid }
}

/// A binding on its way out.
pub(super) fn leaving(situation: &Situation<'_>, message: &str, workers_stay: bool) -> Verdict {
    let running = situation.object.bound_to().is_some();
    // Whether it answers decides what people do about one that does not go.
    let connected = match &situation.object.parsed {
        Ok(binding) if situation.rival.is_none() => connection(situation, binding).0,
        _ => as_before(situation, ConditionType::Connected),
    };
    let mut all = vec![said(ConditionType::Ready, false, Reason::Deleting, message), connected];
    for role in Role::ALL {
        all.push(if workers_stay {
            worker(role, &situation.availability(role), running)
        } else {
            said(about(role), false, Reason::Deleting, format!("the {role} is being removed"))
        });
    }
    let worker_uid = situation.object.bound_to().map(str::to_owned);
    Verdict { phase: situation.object.status.phase.unwrap_or_default(), said: all, worker_uid }
}

fn as_before(situation: &Situation<'_>, about: ConditionType) -> Said {
    let known = find(&situation.object.status.conditions, about);
    let reason = |word: &str| Reason::ALL.iter().copied().find(|reason| reason.as_str() == word);
    match known.and_then(|known| Some((known, reason(&known.reason)?))) {
        Some((known, reason)) => {
            let holds = match known.status.as_str() {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            };
            said(about, holds, reason, &known.message)
        }
        None => said(about, None, Reason::Initializing, "not looked at yet"),
    }
}

fn find(conditions: &[Condition], about: ConditionType) -> Option<&Condition> {
    condition::find(conditions, about.as_str())
}

/// The write that says it, if it is not said already; and the Events about what changed.
pub(super) fn write(situation: &Situation<'_>, verdict: &Verdict) -> (Option<Action>, Vec<Telling>) {
    let object = situation.object;
    let generation = object.meta.generation;
    let known = &object.status.conditions;
    let written = |said: &Said| {
        let Said { about, holds, reason, message } = said;
        let said = condition::Said { about: about.as_str(), holds: *holds, reason: reason.as_str(), message };
        said.written(known, generation, situation.now)
    };
    let conditions: Vec<Value> = verdict.said.iter().map(written).collect();
    let mut wanted = Map::new();
    wanted.insert("phase".to_owned(), json!(verdict.phase));
    wanted.insert("observedGeneration".to_owned(), generation.into());
    wanted.insert("conditions".to_owned(), conditions.into());
    if let Some(uid) = &verdict.worker_uid {
        wanted.insert("workerUID".to_owned(), uid.as_str().into());
    }
    if Value::Object(wanted.clone()) == said_before(situation) {
        return (None, Vec::new());
    }
    let form = PatchForm::Apply { manager: MANAGER.into(), force: true };
    let verb = Verb::Patch { form, subresource: Some("status"), body: json!({"status": wanted}) };
    let action = Action::new(kinds::BINDING, &object.key(), verb, "what is true of it has changed");
    // A write whose answer was lost must not be repeated for nothing.
    let action = action.if_uid(&*object.meta.uid).if_version(&*object.meta.resource_version);
    (Some(action), news(known, verdict))
}

/// Our part of the status, as it is.
fn said_before(situation: &Situation<'_>) -> Value {
    let status = &situation.object.status;
    let ours = [
        ConditionType::Ready,
        ConditionType::Connected,
        ConditionType::ProxierReady,
        ConditionType::SyncerReady,
    ];
    let conditions: Vec<Value> =
        ours.iter().filter_map(|about| find(&status.conditions, *about)).map(condition::as_written).collect();
    let mut before = Map::new();
    if let Some(phase) = status.phase {
        before.insert("phase".to_owned(), json!(phase));
    }
    before.insert("observedGeneration".to_owned(), status.observed_generation.unwrap_or_default().into());
    before.insert("conditions".to_owned(), conditions.into());
    if let Some(uid) = situation.object.bound_to() {
        before.insert("workerUID".to_owned(), uid.into());
    }
    before.into()
}

/// What a person should hear of: a condition that has become another, or fails for another reason. What only takes its
/// time is not worth a word each time.
fn news(known: &[Condition], verdict: &Verdict) -> Vec<Telling> {
    let mut news: Vec<Telling> = Vec::new();
    for said in &verdict.said {
        let patient =
            matches!(said.reason, Reason::SyncerCreated | Reason::ProxierCreated | Reason::Deleting);
        let fails = said.holds == Some(false) && !patient;
        let is_known = find(known, said.about).is_some_and(|known| {
            known.status == condition::word(said.holds)
                && known.reason == said.reason.as_str()
                && (!fails || known.message == condition::cut(&said.message))
        });
        let told = news.iter().any(|telling| telling.reason == said.reason.as_str());
        if said.reason != Reason::Initializing && !is_known && !told {
            news.push(telling(fails, said.reason, said.message.clone()));
        }
    }
    news
}

//! What a V pod is told of its twin in the worker cluster.
//!
//! ```text
//!   twin's status ──▶ wish: phase, conditions, containers, addresses ──▶ what V does not know yet ──▶ one patch
//! ```
//!
//! The patch is a strategic merge for `pods/status`: conditions are merged by type, so that those of others survive; lists of
//! containers replace each other; addresses are replaced by a directive. Where each field comes from:
//!
//! | field | from |
//! |---|---|
//! | phase, reason, message, start time, resize, resources, addresses | the twin |
//! | statuses of containers that V's spec names | the twin, but for containers that may not come back |
//! | conditions that kubelets write | the twin; those of the lender's own controllers stay there, they could forge V's gates |
//! | `Ready` | the twin's `ContainersReady` and V's own readiness gates |
//! | `DisruptionTarget` | the twin, unless V has a word of its own |
//! | `kubeocean.io/Mapped` | that the worker refuses the twin is taken back: it is there |
//! | observed generation | the V generation that the running P spec was made from |
//!
//! Never written: `PodScheduled`, `qosClass`, `nominatedNodeName`, everything about resource claims, fields that we do not know.
//!
//! What is worth a write is said in [`difference`]. Mapping annotations and the time ride along, and are never a reason: they are
//! output. A V pod that has ended is left alone for ever.
//!
//! Deliberately absent: whose twin it is, which the caller has found out, and the actions. Callers write with V's version as a
//! precondition, because V's own controllers may have ended the pod meanwhile; and they do not look while the worker is silent,
//! because an old word would contradict V's node controller.

mod addresses;
mod conditions;
mod containers;
mod difference;

use jiff::{SignedDuration, Timestamp};
use kubeocean_api::keys::annotations;
use kubeocean_api::keys::conditions::Pod as ConditionType;
use kubeocean_api::keys::reasons::{Event as EventReason, Pod as Reason};
use serde_json::{Map, Value, json};

use crate::bind::Telling;
use crate::condition;
use crate::object::Object;
use difference::{is_material, is_same, is_void};

/// What an API server takes of annotations, all keys and values together.
const MOST_ANNOTATIONS: usize = 256 * 1024;

/// What V should be told of a twin.
#[derive(Debug, Default)]
pub struct Reflection {
    /// A strategic merge patch for `pods/status`, annotations included. `None`: V knows all of it.
    pub patch: Option<Value>,
    /// What people should hear of, together with the patch.
    pub events: Vec<Telling>,
    /// Whether the V pod has ended for good, once that is written.
    pub is_terminal: bool,
}

/// What V should be told. `observed_generation` is the V generation that the running P spec was projected from.
pub fn reflect(pod: &Object, twin: &Object, observed_generation: Option<i64>, now: Timestamp) -> Reflection {
    let known = Known::read(pod);
    if known.is_terminal() {
        return Reflection { is_terminal: true, ..Reflection::default() };
    }
    let mut said = part(twin, "status");
    let Some(mut phase) = phase(&said) else { return Reflection::default() };
    let is_lost = is_final(phase) && !pod.meta.is_deleting() && was_ended(twin, &said);
    if is_lost {
        phase = "Failed";
        say_lost(&mut said, now);
    }
    let (patch, mut events) = known.told(&said, phase, twin, observed_generation, now);
    if is_lost && patch.is_some() {
        events.push(Telling {
            warning: true,
            reason: Reason::PhysicalPodLost.as_str(),
            message: DELETED_THERE.to_owned(),
        });
    }
    Reflection { patch, events, is_terminal: is_final(phase) }
}

/// Whether a twin ended because someone deleted it. Its containers may have ended well all the same: they do what they are told.
fn was_ended(twin: &Object, said: &Value) -> bool {
    let Some(ends_at) = twin.meta.deletion_timestamp else { return false };
    let grace = SignedDuration::from_secs(twin.meta.deletion_grace_period_seconds.unwrap_or(0));
    let asked_at = ends_at.checked_sub(grace).unwrap_or(ends_at);
    let ended_before = |status: &Value| {
        let at = status["state"]["terminated"]["finishedAt"].as_str();
        // Whole seconds on both sides: who ends in the second in which it is asked to was asked first, most of the time.
        at.and_then(|at| at.parse::<Timestamp>().ok()).is_some_and(|at| at < asked_at)
    };
    // One that fails before the containers start ends the pod.
    let failed_before =
        |status: &Value| status["state"]["terminated"]["exitCode"] != 0 && ended_before(status);
    let of = |field: &str| said[field].as_array().map(Vec::as_slice).unwrap_or_default();
    let containers = of("containerStatuses");
    let all_ended = !containers.is_empty() && containers.iter().all(ended_before);
    let never_started = said["phase"] == "Failed" && of("initContainerStatuses").iter().any(failed_before);
    !all_ended && !never_started
}

const DELETED_THERE: &str = "the pod was deleted in the worker cluster while it was running";

/// The word for a twin that was deleted behind our back. What the worker cluster says about it stays.
fn say_lost(said: &mut Value, now: Timestamp) {
    let (reason, message) = (Reason::PhysicalPodLost.as_str(), DELETED_THERE);
    if said["phase"] != "Failed" || is_void(&said["reason"]) {
        said["reason"] = reason.into();
        said["message"] = message.into();
    }
    said["phase"] = "Failed".into();
    if !said["conditions"].is_array() {
        said["conditions"] = json!([]);
    }
    let target = ConditionType::DisruptionTarget.as_str();
    if let Some(all) = said["conditions"].as_array_mut()
        && !all.iter().any(|one| one["type"] == target && one["status"] == "True")
    {
        all.retain(|one| one["type"] != target);
        all.push(json!({
            "type": target, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": condition::whole_seconds(now),
        }));
    }
}

/// The last word before a V pod goes: all that the twin said last, and a phase that is final. A twin that was not seen to end has
/// failed, since nobody knows better. `None`: the V pod is terminal already.
pub fn last_word(
    pod: &Object,
    twin: Option<&Object>,
    observed_generation: Option<i64>,
    now: Timestamp,
) -> Option<Value> {
    let known = Known::read(pod);
    if known.is_terminal() {
        return None;
    }
    let Some(twin) = twin else {
        return Some(known.ended(None, "the pod was deleted, and does not run", false, now));
    };
    let mut said = part(twin, "status");
    let last = phase(&said).filter(|last| is_final(last));
    if last.is_none() {
        said["phase"] = "Failed".into();
        if is_void(&said["message"]) {
            said["message"] = "the pod was deleted, and was not seen to end".into();
        }
    }
    known.told(&said, last.unwrap_or("Failed"), twin, observed_generation, now).0
}

/// Failed for good, for a reason that is not its containers'. With `disruption`, Jobs hear that it was not the pod's own fault;
/// what the worker cluster said about that before stays.
///
/// For a pod that is not terminal.
pub fn failed(pod: &Object, reason: &str, message: &str, disruption: bool, now: Timestamp) -> Value {
    Known::read(pod).ended(Some(reason), message, disruption, now)
}

/// Whether the V pod has ended for good.
pub fn is_terminal(pod: &Object) -> bool {
    pod.text("status", &["phase"]).is_some_and(|phase| is_final(&phase))
}

/// Whether a V pod has run or may have, by its status alone: nothing else outlives everything that can be lost.
pub fn has_run(pod: &Object) -> bool {
    let status = part(pod, "status");
    let phase = status["phase"].as_str().unwrap_or_default();
    let mapped = conditions::find(&status, ConditionType::Mapped.as_str());
    !matches!(phase, "" | "Pending")
        || containers::any_started(&status)
        || mapped.is_some_and(|mapped| mapped["status"] == "True")
}

/// What is written before the twin of a pod that must not run twice is created. `None`: the pod may, or it is written.
pub fn mapped(pod: &Object, now: Timestamp) -> Option<Value> {
    let status = part(pod, "status");
    let known = conditions::find(&status, ConditionType::Mapped.as_str());
    if may_run_again(&part(pod, "spec")) || known.is_some_and(|known| known["status"] == "True") {
        return None;
    }
    let mut condition = json!({
        "type": ConditionType::Mapped.as_str(), "status": "True", "lastTransitionTime": condition::whole_seconds(now),
    });
    // What was said of a refusal is over.
    for field in
        ["reason", "message"].into_iter().filter(|field| known.is_some_and(|known| !is_void(&known[*field])))
    {
        condition[field] = Value::Null;
    }
    Some(json!({"status": {"conditions": [condition]}}))
}

/// Says that the worker cluster does not let the twin be made, and so that it has not run. `None`: that is said. How much of a quota is
/// used is another number each time, and no news. `is_mapped`: the pod was told that it is, and does not show it yet.
pub fn not_mapped(
    pod: &Object,
    is_mapped: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Option<Value> {
    let message = condition::cut(message);
    if !is_mapped && refusal(pod).is_some_and(|said| without_numbers(&said) == without_numbers(&message)) {
        return None;
    }
    let condition = json!({
        "type": ConditionType::Mapped.as_str(), "status": "False", "reason": reason, "message": message,
        "lastTransitionTime": condition::whole_seconds(now),
    });
    Some(json!({"status": {"conditions": [condition]}}))
}

/// What was said of the worker cluster's last refusal to let the twin be made, if that is what was said last.
pub fn refusal(pod: &Object) -> Option<String> {
    let status = part(pod, "status");
    let said = conditions::find(&status, ConditionType::Mapped.as_str())?;
    (said["status"] == "False").then(|| said["message"].as_str().unwrap_or_default().to_owned())
}

fn without_numbers(text: &str) -> String {
    text.chars().filter(|one| !one.is_ascii_digit()).collect()
}

/// Whether it may be started once more after it has run.
fn may_run_again(spec: &Value) -> bool {
    spec["restartPolicy"].as_str().is_none_or(|policy| policy == "Always")
}

fn is_final(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

/// A phase, if it is one. Without it nobody has spoken yet.
fn phase(status: &Value) -> Option<&'static str> {
    let phases = ["Pending", "Running", "Succeeded", "Failed", "Unknown"];
    phases.into_iter().find(|phase| status["phase"] == *phase)
}

/// A field of an object; nothing where it is not an object itself.
fn part(object: &Object, field: &str) -> Value {
    object.field(field).ok().flatten().filter(Value::is_object).unwrap_or_else(|| json!({}))
}

/// A V pod, as V has it.
struct Known<'a> {
    pod: &'a Object,
    spec: Value,
    status: Value,
}

impl<'a> Known<'a> {
    fn read(pod: &'a Object) -> Self {
        Self { pod, spec: part(pod, "spec"), status: part(pod, "status") }
    }

    fn is_terminal(&self) -> bool {
        self.status["phase"].as_str().is_some_and(is_final)
    }

    /// What is new of what the twin says.
    fn told(
        &self,
        said: &Value,
        phase: &str,
        twin: &Object,
        observed_generation: Option<i64>,
        now: Timestamp,
    ) -> (Option<Value>, Vec<Telling>) {
        let generation = observed_generation.filter(|generation| *generation > 0);
        let mut wish = Map::new();
        wish.insert("phase".to_owned(), phase.into());
        for field in ["reason", "message", "resize"] {
            wish.insert(field.to_owned(), said[field].as_str().into());
        }
        let start = said["startTime"].as_str().filter(|time| time.parse::<Timestamp>().is_ok());
        wish.insert("startTime".to_owned(), start.into());
        for field in ["resources", "allocatedResources"] {
            let amounts = Some(&said[field]).filter(|amounts| amounts.is_object());
            wish.insert(field.to_owned(), amounts.map(difference::clean).into());
        }
        if let Some(generation) = generation {
            wish.insert("observedGeneration".to_owned(), generation.into());
        }
        let dropped = addresses::wish(said, &mut wish);
        containers::wish(&self.spec, &self.status, said, &mut wish);

        let mut changes = Map::new();
        let mut is_worth_it = false;
        for (field, wished) in &wish {
            let known = &self.status[field];
            if !is_same(known, wished) {
                is_worth_it |= is_material(field, known, wished);
                changes.insert(field.clone(), difference::change(field, known, wished));
            }
        }
        let wished = conditions::wish(&self.spec, &self.status, said, phase, now);
        let mut news = conditions::news(&self.status, &wished, said, generation);
        if let Some(change) = conditions::is_there(&self.status, may_run_again(&self.spec), now) {
            news.changes.push(change);
            news.are_material = true;
        }
        is_worth_it |= news.are_material;
        if !is_worth_it {
            return (None, Vec::new());
        }
        if !news.changes.is_empty() {
            changes.insert("conditions".to_owned(), news.changes.into());
        }
        let events = dropped.map(|message| Telling::event(true, EventReason::AddressDropped, message));
        (Some(self.body(changes, Some(twin), now)), events.into_iter().collect())
    }

    /// The end that is not the twin's.
    fn ended(&self, reason: Option<&str>, message: &str, disruption: bool, now: Timestamp) -> Value {
        let mut changes = Map::new();
        changes.insert("phase".to_owned(), "Failed".into());
        changes.insert("message".to_owned(), condition::cut(message).into());
        if reason.is_some() || !is_void(&self.status["reason"]) {
            changes.insert("reason".to_owned(), reason.into());
        }
        let about = disruption.then(|| (reason.unwrap_or_default(), message));
        let conditions = conditions::at_the_end(&self.status, about, now);
        if !conditions.is_empty() {
            changes.insert("conditions".to_owned(), conditions.into());
        }
        self.body(changes, None, now)
    }

    /// The patch, with what rides along.
    fn body(&self, status: Map<String, Value>, twin: Option<&Object>, now: Timestamp) -> Value {
        let mut body = Map::from_iter([("status".to_owned(), status.into())]);
        let known = &self.pod.meta.annotations;
        let mut riders = vec![(annotations::LAST_SYNC_TIME, condition::whole_seconds(now))];
        if let Some(twin) = twin {
            riders.push((annotations::PHYSICAL_POD_NAMESPACE, twin.meta.namespace.to_string()));
            riders.push((annotations::PHYSICAL_POD_NAME, twin.meta.name.to_string()));
            riders.push((annotations::PHYSICAL_POD_UID, twin.meta.uid.to_string()));
        }
        riders.retain(|(key, value)| known.get(key) != Some(value));
        let size: usize = known.iter().map(|(key, value)| key.len() + value.len()).sum();
        let more: usize = riders.iter().map(|(key, value)| key.len() + value.len()).sum();
        // Better no mapping than no status.
        if size + more <= MOST_ANNOTATIONS && !riders.is_empty() {
            let riders: Map<String, Value> =
                riders.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
            body.insert("metadata".to_owned(), json!({"annotations": riders}));
        }
        body.into()
    }
}

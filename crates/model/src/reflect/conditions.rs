//! Conditions: which of the twin's V gets, and whether V's pod is ready.
//!
//! V gets those that kubelets write, by name. Others in the worker are the lender's: one with the name of a gate of V's would
//! make the pod ready. Resizes go away where they went away; kubelets take no other condition back, and neither do we.
//!
//! V's `Ready` is the twin's `ContainersReady` and V's gates, in a kubelet's words. There is one case more: where the worker's
//! node controller has said that a pod on a silent node is not ready, its containers' last word is old, and V follows.

use jiff::Timestamp;
use kubeocean_api::keys::conditions::Pod as Type;
use kubeocean_api::keys::reasons::Readiness;
use serde_json::{Value, json};

use super::difference::{is_material_condition, is_same, is_void};
use super::is_final;
use crate::condition::whole_seconds;

/// Taken over as they are.
const TAKEN_OVER: [Type; 6] = [
    Type::PodReadyToStartContainers,
    Type::Initialized,
    Type::ContainersReady,
    Type::PodResizePending,
    Type::PodResizeInProgress,
    Type::AllContainersRestarting,
];

/// Taken back where the twin has them no more.
const TAKEN_BACK: [Type; 2] = [Type::PodResizePending, Type::PodResizeInProgress];

/// A condition as it should be.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    about: Type,
    status: String,
    reason: String,
    message: String,
    since: Option<Timestamp>,
}

impl Wish {
    fn read(about: Type, one: &Value) -> Self {
        let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
        let since = one["lastTransitionTime"].as_str().and_then(|time| time.parse().ok());
        Self { about, status: text("status"), reason: text("reason"), message: text("message"), since }
    }

    fn find(status: &Value, about: Type) -> Option<Self> {
        find(status, about.as_str()).map(|one| Self::read(about, one))
    }

    /// Of our own making. What was so before is so since then.
    fn new(about: Type, holds: bool, reason: &str, message: String, known: &Value, now: Timestamp) -> Self {
        let status = if holds { "True" } else { "False" }.to_owned();
        let known = Self::find(known, about).filter(|known| known.status == status);
        let since = known.and_then(|known| known.since).unwrap_or(now);
        Self { about, status, reason: reason.to_owned(), message, since: Some(since) }
    }

    fn holds(&self) -> bool {
        self.status == "True"
    }

    fn written(&self, generation: Option<i64>) -> Value {
        let mut written = json!({"type": self.about.as_str(), "status": self.status});
        for (field, text) in [("reason", &self.reason), ("message", &self.message)] {
            if !text.is_empty() {
                written[field] = text.as_str().into();
            }
        }
        if let Some(since) = self.since {
            written["lastTransitionTime"] = whole_seconds(since).into();
        }
        if let Some(generation) = generation {
            written["observedGeneration"] = generation.into();
        }
        written
    }
}

/// The condition of a type in a status.
pub(super) fn find<'a>(status: &'a Value, about: &str) -> Option<&'a Value> {
    status["conditions"].as_array().into_iter().flatten().find(|one| one["type"] == about)
}

/// The conditions that V's pod should have, of those that are ours to write.
pub(super) fn wish(spec: &Value, known: &Value, said: &Value, phase: &str, now: Timestamp) -> Vec<Wish> {
    let mut wished: Vec<Wish> = TAKEN_OVER.into_iter().filter_map(|about| Wish::find(said, about)).collect();
    for one in &mut wished {
        // A time is there in all but the simplest workers.
        let before = Wish::find(known, one.about).filter(|before| before.status == one.status);
        one.since = one.since.or(before.and_then(|before| before.since)).or(Some(now));
    }
    wished.extend(ready(spec, known, said, &wished, now));
    if is_final(phase) {
        for about in [Type::ContainersReady, Type::Ready] {
            let of_twin = wished.iter().position(|one| one.about == about).map(|at| wished.swap_remove(at));
            match of_twin.or_else(|| Wish::find(known, about)) {
                Some(one) if one.holds() => wished.push(no_more(about, phase, known, now)),
                other => wished.extend(other),
            }
        }
    }
    wished.extend(disruption(known, said));
    wished
}

/// Whether V's pod is ready; `None` while the worker has not said anything about it.
fn ready(spec: &Value, known: &Value, said: &Value, wished: &[Wish], now: Timestamp) -> Option<Wish> {
    let of_twin = Wish::find(said, Type::Ready);
    let containers = wished.iter().find(|one| one.about == Type::ContainersReady).cloned();
    let containers = containers.or_else(|| of_twin.clone())?;
    let before = Wish::find(known, Type::Ready);
    let since = |one: &Wish| {
        let same = before.as_ref().filter(|before| before.status == one.status);
        one.since.or(same.and_then(|same| same.since)).or(Some(now))
    };
    if !containers.holds() {
        return Some(Wish { about: Type::Ready, since: since(&containers), ..containers });
    }
    // The lender's own gates do not count.
    let is_gated = |one: &Wish| one.reason == Readiness::ReadinessGatesNotReady.as_str();
    if let Some(of_twin) = &of_twin
        && !of_twin.holds()
        && !is_gated(of_twin)
    {
        return Some(Wish { since: since(of_twin), ..of_twin.clone() });
    }
    let gates: Vec<&str> = spec["readinessGates"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|gate| gate["conditionType"].as_str())
        .collect();
    let unmet = unmet(&gates, known, wished);
    if !unmet.is_empty() {
        let reason = Readiness::ReadinessGatesNotReady.as_str();
        return Some(Wish::new(Type::Ready, false, reason, unmet.join(", "), known, now));
    }
    let mut ready = Wish::new(Type::Ready, true, "", String::new(), known, now);
    let last = of_twin.filter(Wish::holds).unwrap_or(containers).since;
    // Without gates it is ready since the twin is. With them the gate may have been the last, and then V knows.
    ready.since = if gates.is_empty() { last.or(ready.since) } else { ready.since.max(last) };
    Some(ready)
}

/// What is missing, as a kubelet says it.
fn unmet(gates: &[&str], known: &Value, wished: &[Wish]) -> Vec<String> {
    let word = |gate: &&str| {
        let of_twin = wished.iter().find(|one| one.about.as_str() == *gate).map(|one| one.status.as_str());
        let of_v = || find(known, gate).map(|one| one["status"].as_str().unwrap_or_default());
        match of_twin.or_else(of_v) {
            Some("True") => None,
            Some(status) => {
                Some(format!("the status of pod readiness gate {gate:?} is not \"True\", but {status}"))
            }
            None => Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist.")),
        }
    };
    gates.iter().filter_map(word).collect()
}

/// What has ended is not ready, whatever was said last.
fn no_more(about: Type, phase: &str, known: &Value, now: Timestamp) -> Wish {
    let reason = if phase == "Succeeded" { Readiness::PodCompleted } else { Readiness::PodFailed };
    Wish::new(about, false, reason.as_str(), String::new(), known, now)
}

/// The worker's word that it disturbs the pod. V's own word stays, and so does V's later word that nothing came of it.
fn disruption(known: &Value, said: &Value) -> Option<Wish> {
    let of_twin = Wish::find(said, Type::DisruptionTarget).filter(Wish::holds)?;
    let is_news = match Wish::find(known, Type::DisruptionTarget) {
        None => true,
        Some(of_v) => !of_v.holds() && of_v.since < of_twin.since,
    };
    is_news.then_some(of_twin)
}

/// What V does not know yet.
#[derive(Debug)]
pub(super) struct News {
    /// Items of a strategic merge.
    pub(super) changes: Vec<Value>,
    /// Whether any of them is worth a write.
    pub(super) are_material: bool,
}

/// Compares the wish with what V has.
pub(super) fn news(known: &Value, wished: &[Wish], said: &Value, generation: Option<i64>) -> News {
    let mut news = News { changes: Vec::new(), are_material: false };
    for one in wished {
        let mut written = one.written(generation);
        let before = find(known, one.about.as_str()).map(|before| picked(before, generation.is_some()));
        let before = before.unwrap_or_default();
        if is_same(&before, &written) {
            continue;
        }
        news.are_material |= is_material_condition(&before, &written);
        for field in ["reason", "message"] {
            if !is_void(&before[field]) && is_void(&written[field]) {
                written[field] = Value::Null;
            }
        }
        news.changes.push(written);
    }
    for gone in TAKEN_BACK {
        if find(known, gone.as_str()).is_some() && find(said, gone.as_str()).is_none() {
            news.changes.push(json!({"type": gone.as_str(), "$patch": "delete"}));
            news.are_material = true;
        }
    }
    news
}

/// What becomes of the word that the worker refuses the twin, once that is there. `None`: there is no such word.
pub(super) fn is_there(known: &Value, may_run_again: bool, now: Timestamp) -> Option<Value> {
    let about = Type::Mapped.as_str();
    find(known, about).filter(|said| said["status"] == "False")?;
    Some(if may_run_again {
        json!({"type": about, "$patch": "delete"})
    } else {
        let since = whole_seconds(now);
        json!({"type": about, "status": "True", "reason": null, "message": null, "lastTransitionTime": since})
    })
}

/// What of a condition in V is ours to say.
fn picked(one: &Value, with_generation: bool) -> Value {
    let mut fields = vec!["type", "status", "reason", "message", "lastTransitionTime"];
    if with_generation {
        fields.push("observedGeneration");
    }
    fields.into_iter().map(|field| (field.to_owned(), one[field].clone())).collect()
}

/// Conditions of a pod that we end ourselves: it is not ready any more, and perhaps not to blame.
pub(super) fn at_the_end(known: &Value, disruption: Option<(&str, &str)>, now: Timestamp) -> Vec<Value> {
    let ready = [Type::ContainersReady, Type::Ready]
        .into_iter()
        .filter(|about| Wish::find(known, *about).is_some_and(|before| before.holds()));
    let mut wished: Vec<Wish> = ready.map(|about| no_more(about, "Failed", known, now)).collect();
    let has_word = Wish::find(known, Type::DisruptionTarget).is_some_and(|before| before.holds());
    if let Some((reason, message)) = disruption
        && !has_word
    {
        let message = crate::condition::cut(message);
        wished.push(Wish::new(Type::DisruptionTarget, true, reason, message, known, now));
    }
    news(known, &wished, known, None).changes
}

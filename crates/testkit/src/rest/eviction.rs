//! Eviction: a deletion that asks the budgets first.
//!
//! Deliberately absent: counting healthy pods. Whoever has a budget brings its controller.

use serde_json::{Value, json};

use super::delete::{self, Options};
use super::subresource::{created, set_condition};
use super::{Answer, Call, body, write};
use crate::clock;
use crate::kinds::{catalog, metadata};
use crate::selector::Labels;
use crate::server::State;
use crate::status::{Failure, Result};

pub(super) fn create(state: &mut State, call: &Call<'_>) -> Result<Answer> {
    let kind = catalog::EVICTION.clone();
    let sent = Call { request: call.request, kind, place: call.place.clone(), actor: call.actor.clone() };
    let eviction = body::decoded(&sent)?;
    if metadata::text(&eviction, "name") != call.place.name {
        return Err(Failure::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = Options::asked(call.request.query.dry_run());
    options.read(&eviction["deleteOptions"]);
    let pod = state.store.get(&call.key()).cloned().ok_or_else(|| call.not_found())?;
    let phase = pod.value["status"]["phase"].as_str().unwrap_or_default();
    let harmless = matches!(phase, "Succeeded" | "Failed" | "Pending") || metadata::is_deleting(&pod.value);
    if !harmless {
        ask_budgets(state, call, &pod.value, options.is_dry_run())?;
    }
    // The budget is spent by now, and the pod untouched if it is another one.
    delete::check_preconditions(call, &pod.value, &options)?;
    if !options.is_dry_run() {
        let now = clock::seconds(state.now());
        let mut pod = (*pod.value).clone();
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": now,
        });
        if update_condition(&mut pod, condition) {
            state.commit(call.key(), Some(pod), &call.actor);
        }
        options.forget_version();
    }
    delete::delete_with(state, call, options)?;
    Ok(Answer::Value(201, created()))
}

/// Sets a condition; one that was true already keeps its time. Whether anything changed.
fn update_condition(pod: &mut Value, mut condition: Value) -> bool {
    let before = pod["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|one| one["type"] == condition["type"])
        .cloned();
    if let Some(before) = &before
        && before["status"] == condition["status"]
    {
        condition["lastTransitionTime"] = before["lastTransitionTime"].clone();
        if *before == condition {
            return false;
        }
    }
    set_condition(pod, condition);
    true
}

fn ask_budgets(state: &mut State, call: &Call<'_>, pod: &Value, dry_run: bool) -> Result<()> {
    let Some(kind) = state.kinds.get("policy", "poddisruptionbudgets").cloned() else { return Ok(()) };
    let budgets: Vec<_> = state
        .store
        .live(kind.id, Some(&call.place.namespace))
        .filter(|(_, budget)| {
            let selector = &budget.value["spec"]["selector"];
            !selector.is_null() && Labels::of(selector).matches(pod)
        })
        .map(|(key, budget)| (key.clone(), budget.clone()))
        .collect();
    let (key, budget) = match budgets.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        _ => {
            let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Failure::new(500, "", why));
        }
    };
    let ready = pod["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|one| one["type"] == "Ready" && one["status"] == "True");
    let status = &budget.value["status"];
    let count = |key: &str| status[key].as_i64().unwrap_or(0);
    let enough = count("currentHealthy") >= count("desiredHealthy") && count("desiredHealthy") > 0;
    if !ready && (enough || budget.value["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow") {
        return Ok(());
    }
    let refuse = |detail: String| {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let mut failure = Failure::new(429, "TooManyRequests", message);
        failure.detail("causes", json!([{"reason": "DisruptionBudget", "message": detail}]));
        failure
    };
    let name = &key.name;
    if count("observedGeneration") < budget.value["metadata"]["generation"].as_i64().unwrap_or(0) {
        let detail = format!("The disruption budget {name} is still being processed by the server.");
        let mut failure = refuse(detail);
        failure.detail("retryAfterSeconds", 10.into());
        return Err(failure);
    }
    if count("disruptionsAllowed") <= 0 {
        let (wanted, healthy) = (count("desiredHealthy"), count("currentHealthy"));
        return Err(refuse(format!(
            "The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
        )));
    }
    if dry_run {
        return Ok(());
    }
    let now = clock::seconds(state.now());
    let old = budget.value.clone();
    let mut budget = (*old).clone();
    let left = count("disruptionsAllowed") - 1;
    budget["status"]["disruptionsAllowed"] = left.into();
    crate::kinds::defaults::or(&mut budget["status"], "disruptedPods", json!({}));
    budget["status"]["disruptedPods"][&call.place.name] = now.clone().into();
    if left == 0 {
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
            "observedGeneration": budget["metadata"]["generation"], "lastTransitionTime": now,
        });
        set_condition(&mut budget, condition);
    }
    write::note_server(&kind, "status", &old, &mut budget, &now);
    state.commit(key, Some(budget), &call.actor);
    Ok(())
}

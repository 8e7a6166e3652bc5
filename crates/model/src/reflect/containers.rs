//! Statuses of containers: those that V's spec names, as the worker says.
//!
//! Containers that the lender's webhooks added are the lender's business. A container that ended and may not be started again
//! stays ended in V, whatever the worker says now: an API server refuses the whole status otherwise. The rule is its own (1.36).

use serde_json::{Map, Value};

use super::difference::{clean, is_void};

/// A list of statuses, and the list in the spec that names its containers.
const LISTS: [(&str, &str); 3] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
];

/// Puts the statuses into the wish. A list about which the twin says nothing stays as it is: kubelets do not forget containers.
pub(super) fn wish(spec: &Value, known: &Value, said: &Value, wish: &mut Map<String, Value>) {
    for (list, declared) in LISTS {
        let mut statuses: Vec<Value> = Vec::new();
        for status in items(&said[list]) {
            let name = &status["name"];
            let Some(container) = find(&spec[declared], name) else { continue };
            if statuses.iter().any(|one| one["name"] == *name) {
                continue;
            }
            let before = find(&known[list], name);
            let stays = before.filter(|before| {
                ended(before).is_some_and(|code| !may_return(spec, declared, container, code))
                    && ended(status).is_none()
            });
            statuses.push(stays.cloned().unwrap_or_else(|| taken_over(status, declared, container)));
        }
        if !statuses.is_empty() {
            wish.insert(list.to_owned(), statuses.into());
        }
    }
}

/// Whether any container was started, now or before.
pub(super) fn any_started(status: &Value) -> bool {
    let started = |one: &Value| {
        let lives = |state: &str| !one[state]["running"].is_null() || !one[state]["terminated"].is_null();
        lives("state") || lives("lastState") || one["started"] == true || !is_void(&one["restartCount"])
    };
    LISTS.iter().any(|(list, _)| items(&status[*list]).any(started))
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn find<'a>(list: &'a Value, name: &Value) -> Option<&'a Value> {
    items(list).find(|one| name.is_string() && one["name"] == *name)
}

/// The code with which a container ended, if it did.
fn ended(status: &Value) -> Option<i64> {
    let ended = status["state"].get("terminated").filter(|ended| !ended.is_null())?;
    Some(ended["exitCode"].as_i64().unwrap_or(0))
}

/// As the worker says. Health of devices only of those that V's container asks for: V refuses others.
fn taken_over(status: &Value, declared: &str, container: &Value) -> Value {
    let mut status = clean(status);
    let asked = &container["resources"]["requests"];
    if let Some(Value::Array(devices)) = status.get_mut("allocatedResourcesStatus") {
        let is_asked = |device: &Value| device["name"].as_str().is_some_and(|name| asked.get(name).is_some());
        devices.retain(|device| declared != "ephemeralContainers" && is_asked(device));
    }
    status
}

/// Whether a container that ended with a code may be started again.
fn may_return(spec: &Value, declared: &str, container: &Value, code: i64) -> bool {
    if declared == "ephemeralContainers" {
        return false;
    }
    let restarts_all = |rule: &Value| rule["action"] == "RestartAllContainers";
    let lists = [&spec["containers"], &spec["initContainers"]];
    if lists.into_iter().flat_map(items).flat_map(|one| items(&one["restartPolicyRules"])).any(restarts_all) {
        return true;
    }
    let by = |policy: &Value| match policy.as_str() {
        Some("OnFailure") => code != 0,
        Some("Never") => false,
        _ => true,
    };
    let own = &container["restartPolicy"];
    if own.is_null() {
        return by(&spec["restartPolicy"]);
    }
    let applies = |rule: &&Value| {
        let listed = items(&rule["exitCodes"]["values"]).any(|value| value.as_i64() == Some(code));
        match rule["exitCodes"]["operator"].as_str() {
            Some("In") => listed,
            Some("NotIn") => !listed,
            _ => false,
        }
    };
    let rule = items(&container["restartPolicyRules"]).find(applies);
    rule.is_some_and(|rule| rule["action"] == "Restart") || by(own)
}

//! Pods: what their registry does to them, and what an update may change.
//!
//! Deliberately absent: their deletion ([`crate::rest::delete`]) and their defaults.

use serde_json::{Value, json};

use super::metadata;
use crate::status::Cause;

/// A new pod starts without a history.
pub(crate) fn prepare_create(object: &mut Value, now: &str) {
    let class = quality_of_service(&object["spec"]);
    object["status"] = json!({"phase": "Pending", "qosClass": class});
    if object["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        object["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": now,
        }]);
    }
}

/// `BestEffort`, `Burstable` or `Guaranteed`.
fn quality_of_service(spec: &Value) -> &'static str {
    let containers: Vec<&Value> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec[*list].as_array().into_iter().flatten())
        .collect();
    let of = |container: &Value, list: &str, name: &str| {
        container["resources"][list].get(name).cloned().filter(|value| *value != "0")
    };
    let asks = |container: &&&Value| {
        ["requests", "limits"]
            .iter()
            .any(|list| ["cpu", "memory"].iter().any(|name| of(container, list, name).is_some()))
    };
    if !containers.iter().any(|container| asks(&container)) {
        return "BestEffort";
    }
    let guaranteed = containers.iter().all(|container| {
        ["cpu", "memory"].iter().all(|name| {
            let limit = of(container, "limits", name);
            limit.is_some() && limit == of(container, "requests", name)
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

/// Metadata that only the main endpoint writes.
fn restore_metadata(old: &Value, object: &mut Value) {
    for key in ["deletionTimestamp", "labels", "annotations", "finalizers", "ownerReferences"] {
        metadata::set(object, key, old["metadata"].get(key).cloned());
    }
}

/// This endpoint takes ephemeral containers, and nothing else.
pub(crate) fn prepare_ephemeral(old: &Value, object: &mut Value) {
    let containers = object["spec"].get("ephemeralContainers").cloned();
    object["spec"] = old["spec"].clone();
    object["status"] = old["status"].clone();
    if let Some(containers) = containers {
        object["spec"]["ephemeralContainers"] = containers;
    }
    restore_metadata(old, object);
}

/// This endpoint takes the resources of containers, and nothing else.
pub(crate) fn prepare_resize(old: &Value, object: &mut Value) {
    let mut spec = old["spec"].clone();
    for list in ["containers", "initContainers"] {
        let wanted = object["spec"][list].as_array().cloned().unwrap_or_default();
        let names = |list: &Value| {
            list.as_array().into_iter().flatten().map(|one| one["name"].clone()).collect::<Vec<_>>()
        };
        if names(&spec[list]) != names(&object["spec"][list]) {
            // Refused later.
            return;
        }
        for (container, wanted) in super::defaults::each(&mut spec, list).zip(&wanted) {
            for key in ["resources", "resizePolicy"] {
                if let Some(value) = wanted.get(key) {
                    container[key] = value.clone();
                }
            }
        }
    }
    object["spec"] = spec;
    object["status"] = old["status"].clone();
    restore_metadata(old, object);
}

/// What is wrong with a resize.
pub(crate) fn resize_causes(old: &Value, new: &Value) -> Vec<Cause> {
    let class = |pod: &Value| quality_of_service(&pod["spec"]);
    if class(old) == class(new) {
        return Vec::new();
    }
    vec![Cause::invalid(
        "spec",
        &new["status"]["qosClass"],
        "Pod QOS Class may not change as a result of resizing",
    )]
}

const IMMUTABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// What is wrong with a change of a pod's spec.
pub(crate) fn update_causes(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (before, after) = (&old["spec"], &new["spec"]);
    if before == after {
        return causes;
    }
    for list in ["containers", "initContainers"] {
        let count = |spec: &Value| spec[list].as_array().map_or(0, Vec::len);
        if count(before) != count(after) {
            causes.push(Cause::forbidden(
                format!("spec.{list}"),
                "pod updates may not add or remove containers",
            ));
            return causes;
        }
    }
    // With the allowed changes undone, nothing may be left.
    let mut masked = after.clone();
    for list in ["containers", "initContainers"] {
        for (index, container) in super::defaults::each(&mut masked, list).enumerate() {
            container["image"] = before[list][index]["image"].clone();
        }
    }
    let mut restore = |key: &str| match before.get(key) {
        Some(value) => masked[key] = value.clone(),
        None => drop(masked.as_object_mut().and_then(|masked| masked.remove(key))),
    };
    restore("activeDeadlineSeconds");
    let deadline = |spec: &Value| spec["activeDeadlineSeconds"].as_i64();
    match (deadline(before), deadline(after)) {
        (Some(before), Some(after)) if after > before => {
            causes.push(Cause::invalid(
                "spec.activeDeadlineSeconds",
                &after.into(),
                "must be less than or equal to previous value",
            ));
            return causes;
        }
        (Some(_), None) => {
            causes.push(Cause::invalid(
                "spec.activeDeadlineSeconds",
                &Value::Null,
                "must not update from a positive integer to nil value",
            ));
            return causes;
        }
        _ => {}
    }
    if let Some(kept) = only_added(&before["tolerations"], &after["tolerations"]) {
        if kept {
            restore("tolerations");
        } else {
            causes.push(Cause::forbidden(
                "spec.tolerations",
                "existing toleration can not be modified except its tolerationSeconds",
            ));
        }
    }
    let gates = |spec: &Value| spec["schedulingGates"].as_array().cloned().unwrap_or_default();
    if gates(after).iter().all(|gate| gates(before).contains(gate)) {
        restore("schedulingGates");
    } else {
        causes.push(Cause::forbidden(
            "spec.schedulingGates",
            "only deletion is allowed, but found new scheduling gate",
        ));
    }
    if masked != *before {
        causes.push(Cause::forbidden("spec", &format!("{IMMUTABLE}\n")));
    }
    causes
}

/// Whether tolerations were only added; `None` if nothing changed.
fn only_added(before: &Value, after: &Value) -> Option<bool> {
    if before == after {
        return None;
    }
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let bare = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(map) = toleration.as_object_mut() {
            map.remove("tolerationSeconds");
        }
        toleration
    };
    let after: Vec<_> = list(after).iter().map(bare).collect();
    Some(list(before).iter().all(|toleration| after.contains(&bare(toleration))))
}

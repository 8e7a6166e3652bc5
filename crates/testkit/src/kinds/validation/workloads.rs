//! What makes a deployment or one of its relatives invalid, and an autoscaler.

use serde_json::Value;

use super::pod_specs::pod_spec;
use crate::kinds::Kind;
use crate::status::Cause;

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// A kind that keeps pods.
pub(super) fn workload(kind: &Kind, object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    not_negative(spec, "spec", &["replicas", "minReadySeconds", "revisionHistoryLimit"], causes);
    let selector = &spec["selector"];
    let empty = selector.as_object().is_none_or(serde_json::Map::is_empty);
    if selector.is_null() {
        causes.push(Cause::required("spec.selector", ""));
    } else if empty {
        causes.push(Cause::invalid("spec.selector", selector, "empty selector is invalid for deployment"));
    }
    // No selector at all selects nothing, an empty one everything.
    let selected =
        !selector.is_null() && (empty || crate::selector::Labels::of(selector).matches(&spec["template"]));
    if !selected {
        causes.push(Cause::invalid(
            "spec.template.metadata.labels",
            &spec["template"]["metadata"]["labels"],
            "`selector` does not match template `labels`",
        ));
    }
    let template = &spec["template"]["spec"];
    pod_spec(template, None, "spec.template.spec", causes);
    if template["restartPolicy"] != "Always" {
        causes.push(Cause::unsupported(
            "spec.template.spec.restartPolicy",
            &template["restartPolicy"],
            &["Always"],
        ));
    }
    if kind.is("Deployment") {
        strategy(&spec["strategy"], causes);
        let seconds = |key: &str| spec[key].as_i64().unwrap_or(0);
        if seconds("progressDeadlineSeconds") <= seconds("minReadySeconds") {
            causes.push(Cause::invalid(
                "spec.progressDeadlineSeconds",
                &spec["progressDeadlineSeconds"],
                "must be greater than minReadySeconds",
            ));
        }
    }
}

fn strategy(strategy: &Value, causes: &mut Vec<Cause>) {
    let at = "spec.strategy";
    let rolling = &strategy["rollingUpdate"];
    match strategy["type"].as_str().unwrap_or_default() {
        "Recreate" if !rolling.is_null() => causes.push(Cause::forbidden(
            format!("{at}.rollingUpdate"),
            "may not be specified when strategy `type` is 'Recreate'",
        )),
        "Recreate" => {}
        "RollingUpdate" => {
            let none = |value: &Value| *value == 0 || *value == "0%";
            if none(&rolling["maxUnavailable"]) && none(&rolling["maxSurge"]) {
                causes.push(Cause::invalid(
                    format!("{at}.rollingUpdate.maxUnavailable"),
                    &rolling["maxUnavailable"],
                    "may not be 0 when `maxSurge` is 0",
                ));
            }
        }
        _ => causes.push(Cause::unsupported(at, strategy, &["Recreate", "RollingUpdate"])),
    }
}

fn not_negative(object: &Value, at: &str, keys: &[&str], causes: &mut Vec<Cause>) {
    for key in keys {
        if object[*key].as_i64().is_some_and(|value| value < 0) {
            causes.push(Cause::invalid(format!("{at}.{key}"), &object[*key], NOT_NEGATIVE));
        }
    }
}

/// The counters of a deployment.
pub(super) fn deployment_status(status: &Value, causes: &mut Vec<Cause>) {
    let counters = ["updatedReplicas", "readyReplicas", "availableReplicas"];
    not_negative(status, "status", &["observedGeneration", "replicas", "unavailableReplicas"], causes);
    not_negative(status, "status", &counters, causes);
    let count = |key: &str| status[key].as_i64().unwrap_or(0);
    let mut at_most = |key: &str, most: &str, why: &str| {
        if count(key) > count(most) {
            causes.push(Cause::invalid(format!("status.{key}"), &count(key).into(), why));
        }
    };
    for key in counters {
        at_most(key, "replicas", "cannot be greater than status.replicas");
    }
    at_most("availableReplicas", "readyReplicas", "cannot be greater than readyReplicas");
}

/// The counters of an autoscaler.
pub(super) fn autoscaler_status(status: &Value, causes: &mut Vec<Cause>) {
    not_negative(status, "status", &["currentReplicas", "desiredReplicas"], causes);
}

/// An autoscaler; its metrics are taken as they are.
pub(super) fn autoscaler(spec: &Value, causes: &mut Vec<Cause>) {
    let (least, most) = (spec["minReplicas"].as_i64(), spec["maxReplicas"].as_i64().unwrap_or(0));
    if let Some(least) = least.filter(|least| *least < 1) {
        causes.push(Cause::invalid("spec.minReplicas", &least.into(), "must be greater than or equal to 1"));
    }
    match most {
        0 => causes.push(Cause::required("spec.maxReplicas", "must be set and greater than 0")),
        ..0 => {
            causes.push(Cause::invalid(
                "spec.maxReplicas",
                &most.into(),
                "must be greater than or equal to 1",
            ));
        }
        _ => {}
    }
    if least.is_some_and(|least| most < least) {
        causes.push(Cause::invalid(
            "spec.maxReplicas",
            &most.into(),
            "must be greater than or equal to `minReplicas`",
        ));
    }
    let target = &spec["scaleTargetRef"];
    for key in ["kind", "name"] {
        if target[key].as_str().is_none_or(str::is_empty) {
            causes.push(Cause::required(format!("spec.scaleTargetRef.{key}"), ""));
        }
    }
    let version = target["apiVersion"].as_str().unwrap_or_default();
    if !version.contains('/') {
        let at = "spec.scaleTargetRef.apiVersion";
        causes.push(Cause::invalid(at, &version.into(), "apiVersion must specify API group"));
    }
    let metrics = spec["metrics"].as_array().map_or(&[][..], Vec::as_slice);
    if least == Some(0) && !metrics.iter().any(|one| one["type"] == "Object" || one["type"] == "External") {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        causes.push(Cause::forbidden("spec.metrics", why));
    }
}

//! The defaults that a version of the API fills in when it reads an object.
//!
//! Deliberately absent: what admission adds ([`super::admission`]) and what a registry decides on
//! creation ([`super::strategy`]): neither is noted as the writer's.

use serde_json::{Map, Value, json};

use super::Kind;
use super::pod_defaults::{pod_spec, template};

/// Puts a value where there is none.
pub(crate) fn or(map: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(map) = map.as_object_mut()
        && map.get(key).is_none_or(Value::is_null)
    {
        map.insert(key.into(), value.into());
    }
}

/// Puts a text where there is none, or an empty one.
pub(crate) fn or_text(map: &mut Value, key: &str, value: &str) {
    if map.get(key).and_then(Value::as_str).is_none_or(str::is_empty)
        && let Some(map) = map.as_object_mut()
    {
        map.insert(key.into(), value.into());
    }
}

/// The items of a list, if it is one.
pub(crate) fn each<'a>(map: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    map.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Fills in the defaults of a built-in kind.
pub(crate) fn fill(kind: &Kind, object: &mut Value) {
    match kind.kind.as_str() {
        "Pod" => {
            // What is limited is asked for.
            for list in ["containers", "initContainers"] {
                each(&mut object["spec"], list).for_each(limits_are_requests);
            }
            or(&mut object["spec"], "enableServiceLinks", true);
            pod_spec(&mut object["spec"]);
            if let Some(status) = object.get_mut("status").filter(|status| status.is_object()) {
                super::pod_status::settle_addresses(status);
            }
        }
        "Node" => node(object),
        "Namespace" => {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            or_text(&mut object["status"], "phase", "Active");
            if !name.is_empty() {
                or(&mut object["metadata"], "labels", json!({}));
                object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
            }
        }
        "Secret" => secret(object),
        "Service" => {
            service(&mut object["spec"]);
            if let Some(balancer) = object.pointer_mut("/status/loadBalancer") {
                for ingress in each(balancer, "ingress").filter(|one| one.get("ip").is_some()) {
                    or(ingress, "ipMode", "VIP");
                }
            }
        }
        "PersistentVolumeClaim" => {
            or_text(&mut object["status"], "phase", "Pending");
            or(&mut object["spec"], "volumeMode", "Filesystem");
        }
        "PersistentVolume" => {
            or_text(&mut object["status"], "phase", "Pending");
            or_text(&mut object["spec"], "persistentVolumeReclaimPolicy", "Retain");
            or(&mut object["spec"], "volumeMode", "Filesystem");
            if let Some(path) = object["spec"].get_mut("hostPath") {
                or(path, "type", "");
            }
        }
        "Endpoints" => {
            for subset in each(object, "subsets") {
                each(subset, "ports").for_each(|port| or_text(port, "protocol", "TCP"));
            }
        }
        "EndpointSlice" => {
            for port in each(object, "ports") {
                or(port, "name", "");
                or(port, "protocol", "TCP");
            }
        }
        "StorageClass" => {
            or(object, "reclaimPolicy", "Delete");
            or(object, "volumeBindingMode", "Immediate");
        }
        "PriorityClass" => or(object, "preemptionPolicy", "PreemptLowerPriority"),
        "RoleBinding" | "ClusterRoleBinding" => {
            or_text(&mut object["roleRef"], "apiGroup", "rbac.authorization.k8s.io");
            for subject in each(object, "subjects") {
                if subject["kind"] != "ServiceAccount" {
                    or_text(subject, "apiGroup", "rbac.authorization.k8s.io");
                }
            }
        }
        "HorizontalPodAutoscaler" => {
            let spec = &mut object["spec"];
            or(spec, "minReplicas", 1);
            or(
                spec,
                "metrics",
                json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]),
            );
            if let Some(behavior) = spec.get_mut("behavior") {
                scaling(behavior);
            }
        }
        "NetworkPolicy" => {
            let mut types = vec!["Ingress"];
            if object["spec"]["egress"].as_array().is_some_and(|rules| !rules.is_empty()) {
                types.push("Egress");
            }
            or(&mut object["spec"], "policyTypes", json!(types));
            for direction in ["ingress", "egress"] {
                for rule in each(&mut object["spec"], direction) {
                    each(rule, "ports").for_each(|port| or(port, "protocol", "TCP"));
                }
            }
        }
        "CustomResourceDefinition" => definition(&mut object["spec"]),
        "TokenRequest" => or(&mut object["spec"], "expirationSeconds", 3600),
        _ => workload(kind, object),
    }
}

/// Kinds that make pods.
fn workload(kind: &Kind, object: &mut Value) {
    match kind.kind.as_str() {
        "Deployment" => deployment(&mut object["spec"]),
        "ReplicaSet" => {
            replicas(&mut object["spec"]);
            template(&mut object["spec"]);
        }
        "StatefulSet" => {
            replicas(&mut object["spec"]);
            template(&mut object["spec"]);
            let spec = &mut object["spec"];
            or_text(spec, "podManagementPolicy", "OrderedReady");
            or(spec, "revisionHistoryLimit", 10);
            or_text(&mut spec["updateStrategy"], "type", "RollingUpdate");
            if spec["updateStrategy"]["type"] == "RollingUpdate" {
                or(&mut spec["updateStrategy"], "rollingUpdate", json!({}));
                or(&mut spec["updateStrategy"]["rollingUpdate"], "partition", 0);
            }
            or(spec, "persistentVolumeClaimRetentionPolicy", json!({}));
            or_text(&mut spec["persistentVolumeClaimRetentionPolicy"], "whenDeleted", "Retain");
            or_text(&mut spec["persistentVolumeClaimRetentionPolicy"], "whenScaled", "Retain");
        }
        "DaemonSet" => {
            daemon_set(&mut object["spec"]);
            or(&mut object["metadata"], "annotations", json!({}));
            or(&mut object["metadata"]["annotations"], "deprecated.daemonset.template.generation", "0");
        }
        "Job" => job(&mut object["spec"]),
        "CronJob" => {
            or_text(&mut object["spec"], "concurrencyPolicy", "Allow");
            or(&mut object["spec"], "suspend", false);
            or(&mut object["spec"], "successfulJobsHistoryLimit", 3);
            or(&mut object["spec"], "failedJobsHistoryLimit", 1);
            template(&mut object["spec"]["jobTemplate"]["spec"]);
        }
        _ => {}
    }
}

fn limits_are_requests(container: &mut Value) {
    let Some(limits) =
        container["resources"]["limits"].as_object().filter(|limits| !limits.is_empty()).cloned()
    else {
        return;
    };
    or(&mut container["resources"], "requests", json!({}));
    let Some(requests) = container["resources"]["requests"].as_object_mut() else { return };
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

fn node(object: &mut Value) {
    let status = &mut object["status"];
    if status.get("allocatable").is_none()
        && let Some(capacity) = status.get("capacity").cloned()
    {
        status["allocatable"] = capacity;
    }
    // The older field names the first range, and wins where the two differ.
    let spec = &mut object["spec"];
    let first = spec["podCIDRs"].get(0).cloned();
    match (spec.get("podCIDR").cloned(), first) {
        (Some(single), first) if first.as_ref() != Some(&single) => spec["podCIDRs"] = json!([single]),
        (None, Some(first)) => spec["podCIDR"] = first,
        _ => {}
    }
}

/// Who says something about scaling has the rest filled in.
fn scaling(behavior: &mut Value) {
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    for (direction, policies) in [("scaleUp", json!([pods, percent])), ("scaleDown", json!([percent]))] {
        or(behavior, direction, json!({}));
        let rules = &mut behavior[direction];
        or(rules, "selectPolicy", "Max");
        or(rules, "policies", policies);
        if direction == "scaleUp" {
            or(rules, "stabilizationWindowSeconds", 0);
        }
    }
}

fn secret(object: &mut Value) {
    use base64::Engine as _;
    or_text(object, "type", "Opaque");
    let Some(plain) = object.as_object_mut().and_then(|object| object.remove("stringData")) else { return };
    or(object, "data", json!({}));
    for (key, value) in plain.as_object().into_iter().flatten() {
        let encoded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
        object["data"][key] = encoded.into();
    }
}

fn service(spec: &mut Value) {
    or_text(spec, "sessionAffinity", "None");
    or_text(spec, "type", "ClusterIP");
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    if spec["sessionAffinity"] == "ClientIP" {
        or(spec, "sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10800}}));
    } else if let Some(spec) = spec.as_object_mut() {
        spec.remove("sessionAffinityConfig");
    }
    for port in each(spec, "ports") {
        or_text(port, "protocol", "TCP");
        if port.get("targetPort").is_none_or(|target| *target == 0 || *target == "") {
            port["targetPort"] = port["port"].clone();
        }
    }
    if kind == "NodePort" || kind == "LoadBalancer" {
        or_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind != "ExternalName" {
        or(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        or(spec, "allocateLoadBalancerNodePorts", true);
    }
}

fn replicas(spec: &mut Value) {
    or(spec, "replicas", 1);
}

fn deployment(spec: &mut Value) {
    replicas(spec);
    template(spec);
    or(spec, "revisionHistoryLimit", 10);
    or(spec, "progressDeadlineSeconds", 600);
    or(spec, "strategy", json!({}));
    or_text(&mut spec["strategy"], "type", "RollingUpdate");
    if spec["strategy"]["type"] == "RollingUpdate" {
        or(&mut spec["strategy"], "rollingUpdate", json!({}));
        or(&mut spec["strategy"]["rollingUpdate"], "maxUnavailable", "25%");
        or(&mut spec["strategy"]["rollingUpdate"], "maxSurge", "25%");
    }
}

fn daemon_set(spec: &mut Value) {
    template(spec);
    or(spec, "revisionHistoryLimit", 10);
    or(spec, "updateStrategy", json!({}));
    or_text(&mut spec["updateStrategy"], "type", "RollingUpdate");
    if spec["updateStrategy"]["type"] == "RollingUpdate" {
        or(&mut spec["updateStrategy"], "rollingUpdate", json!({}));
        or(&mut spec["updateStrategy"]["rollingUpdate"], "maxUnavailable", 1);
        or(&mut spec["updateStrategy"]["rollingUpdate"], "maxSurge", 0);
    }
}

fn job(spec: &mut Value) {
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        or(spec, "completions", 1);
    }
    or(spec, "parallelism", 1);
    or(spec, "backoffLimit", 6);
    or(spec, "completionMode", "NonIndexed");
    or(spec, "suspend", false);
    or(spec, "manualSelector", false);
    or(spec, "podReplacementPolicy", "TerminatingOrFailed");
    template(spec);
}

fn definition(spec: &mut Value) {
    let kind = spec["names"]["kind"].as_str().unwrap_or_default().to_owned();
    or_text(&mut spec["names"], "singular", &kind.to_lowercase());
    or_text(&mut spec["names"], "listKind", &format!("{kind}List"));
    or(spec, "conversion", Value::Object(Map::new()));
    or_text(&mut spec["conversion"], "strategy", "None");
}

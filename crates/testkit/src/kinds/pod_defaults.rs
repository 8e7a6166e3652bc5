//! The defaults of a pod's spec, wherever it stands.
//!
//! Deliberately absent: what admission adds to a pod.

use serde_json::{Value, json};

use super::defaults::{each, or, or_text};

/// A pod template below `spec`.
pub(crate) fn template(spec: &mut Value) {
    if let Some(pod) = spec.pointer_mut("/template/spec") {
        pod_spec(pod);
    }
}

/// A pod's spec.
pub(crate) fn pod_spec(spec: &mut Value) {
    or_text(spec, "dnsPolicy", "ClusterFirst");
    or_text(spec, "restartPolicy", "Always");
    or(spec, "securityContext", json!({}));
    or(spec, "terminationGracePeriodSeconds", 30);
    or_text(spec, "schedulerName", "default-scheduler");
    // The older name says the same.
    let account = ["serviceAccountName", "serviceAccount"]
        .iter()
        .find_map(|key| spec[*key].as_str())
        .map(str::to_owned);
    if let Some(account) = account {
        spec["serviceAccountName"] = account.clone().into();
        spec["serviceAccount"] = account.into();
    }
    if spec["hostNetwork"] == true {
        for list in ["containers", "initContainers"] {
            for container in each(spec, list) {
                for port in each(container, "ports") {
                    let own = port["containerPort"].clone();
                    if port.get("hostPort").is_none_or(|host| *host == 0) {
                        port["hostPort"] = own;
                    }
                }
            }
        }
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        each(spec, list).for_each(container);
    }
    each(spec, "volumes").for_each(volume);
    for constraint in each(spec, "topologySpreadConstraints") {
        or(constraint, "nodeAffinityPolicy", Value::Null);
        if let Some(map) = constraint.as_object_mut() {
            map.retain(|_, value| !value.is_null());
        }
    }
}

fn container(container: &mut Value) {
    or_text(container, "terminationMessagePath", "/dev/termination-log");
    or_text(container, "terminationMessagePolicy", "File");
    let image = container["image"].as_str().unwrap_or_default();
    let (name, digest) = image.split_once('@').map_or((image, false), |(name, _)| (name, true));
    let tag = name.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag);
    let latest = tag == Some("latest") || (tag.is_none() && !digest);
    or_text(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" });
    or(container, "resources", json!({}));
    for port in each(container, "ports") {
        or_text(port, "protocol", "TCP");
    }
    for variable in each(container, "env") {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            or_text(field, "apiVersion", "v1");
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            or(probe, "timeoutSeconds", 1);
            or(probe, "periodSeconds", 10);
            or(probe, "successThreshold", 1);
            or(probe, "failureThreshold", 3);
            if let Some(get) = probe.get_mut("httpGet") {
                http_get(get);
            }
            if let Some(grpc) = probe.get_mut("grpc") {
                or(grpc, "service", "");
            }
        }
    }
    for hook in ["postStart", "preStop"] {
        if let Some(get) = container.pointer_mut(&format!("/lifecycle/{hook}/httpGet")) {
            http_get(get);
        }
    }
}

fn http_get(get: &mut Value) {
    or_text(get, "path", "/");
    or_text(get, "scheme", "HTTP");
}

/// `0644`.
const DEFAULT_MODE: i32 = 420;

fn volume(volume: &mut Value) {
    for source in ["secret", "configMap", "projected", "downwardAPI"] {
        if let Some(source) = volume.get_mut(source) {
            or(source, "defaultMode", DEFAULT_MODE);
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        or(path, "type", "");
    }
    if let Some(downward) = volume.get_mut("downwardAPI") {
        downward_items(downward);
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in each(projected, "sources") {
            if let Some(token) = source.get_mut("serviceAccountToken") {
                or(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = source.get_mut("downwardAPI") {
                downward_items(downward);
            }
        }
    }
    if let Some(spec) = volume.pointer_mut("/ephemeral/volumeClaimTemplate/spec") {
        or(spec, "volumeMode", "Filesystem");
    }
    // A volume without a source is an empty directory.
    if volume.as_object().is_some_and(|volume| volume.len() == 1) {
        volume["emptyDir"] = json!({});
    }
}

fn downward_items(downward: &mut Value) {
    for item in each(downward, "items") {
        if let Some(field) = item.get_mut("fieldRef") {
            or_text(field, "apiVersion", "v1");
        }
    }
}

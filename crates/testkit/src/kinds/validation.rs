//! What makes an object invalid: the rules of built-in kinds that tests meet.
//!
//! Deliberately absent: most of the real server's rules. What is refused here is refused there in the
//! same words; not all that is refused there is refused here.

use kubeocean_model::quantity::Quantity;
use serde_json::Value;

use super::{Kind, metadata, pods};
use crate::rest::Call;
use crate::schema::validate;
use crate::server::State;
use crate::status::Cause;

/// What is wrong with a new object.
pub(crate) fn create(_: &State, kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = metadata::causes(kind, object);
    if let Some(schema) = &kind.custom {
        causes.extend(validate::validate(schema, None, object));
        return causes;
    }
    causes.extend(of_kind(kind, object));
    causes
}

/// What is wrong with a change.
pub(crate) fn update(_: &State, call: &Call<'_>, old: &Value, new: &Value) -> Vec<Cause> {
    let kind = &call.kind;
    let mut causes = metadata::causes(kind, new);
    causes.extend(metadata::update_causes(old, new));
    // The server looks twice: for all objects, and for the kind.
    causes.extend_from_within(..);
    if let Some(schema) = &kind.custom {
        // And at what is new a third time.
        causes.extend(metadata::causes(kind, new));
        causes.extend(validate::validate(schema, Some(old), new));
        return causes;
    }
    let with_spec = matches!(call.place.subresource.as_str(), "" | "resize" | "ephemeralcontainers");
    if with_spec && (!kind.is("Pod") || old["spec"] != new["spec"]) {
        causes.extend(of_kind(kind, new));
    }
    match kind.kind.as_str() {
        "Pod" if call.place.subresource.is_empty() => causes.extend(pods::update_causes(old, new)),
        "Pod" if call.place.subresource == "resize" => causes.extend(pods::resize_causes(old, new)),
        "CertificateSigningRequest" => {
            use base64::Engine as _;
            let certificate = new["status"]["certificate"].as_str().unwrap_or_default();
            let pem = base64::engine::general_purpose::STANDARD.decode(certificate).unwrap_or_default();
            let found = String::from_utf8_lossy(&pem).contains("-----BEGIN CERTIFICATE-----");
            if !certificate.is_empty() && !found {
                let shown = "<certificate data>".into();
                causes.push(Cause::invalid(
                    "status.certificate",
                    &shown,
                    "must contain at least one CERTIFICATE PEM block",
                ));
            }
        }
        "ConfigMap" | "Secret" => immutable_content(kind, old, new, &mut causes),
        "Service" => {
            let address =
                |object: &Value| object["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
            if !address(old).is_empty()
                && address(old) != address(new)
                && new["spec"]["type"] != "ExternalName"
            {
                causes.push(Cause::invalid(
                    "spec.clusterIPs[0]",
                    &new["spec"]["clusterIPs"],
                    "may not change once set",
                ));
            }
        }
        "Deployment" | "ReplicaSet" | "DaemonSet" if old["spec"]["selector"] != new["spec"]["selector"] => {
            causes.push(Cause::invalid("spec.selector", &new["spec"]["selector"], "field is immutable"));
        }
        "RoleBinding" | "ClusterRoleBinding" if old["roleRef"] != new["roleRef"] => {
            causes.push(Cause::invalid("roleRef", &new["roleRef"], "cannot change roleRef"));
        }
        "PersistentVolumeClaim" if call.place.subresource.is_empty() => {
            let bare = |object: &Value| {
                let mut spec = object["spec"].clone();
                spec["resources"] = Value::Null;
                spec["volumeName"] = Value::Null;
                spec
            };
            if bare(old) != bare(new) {
                causes.push(Cause::forbidden("spec", "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"));
            }
        }
        "PriorityClass" if old["value"] != new["value"] => {
            causes.push(Cause::forbidden("value", "may not be changed in an update."));
        }
        "StorageClass" => {
            for key in ["provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"] {
                if old.get(key) != new.get(key) {
                    causes.push(Cause::forbidden(key, "updates to this field are forbidden."));
                }
            }
        }
        _ => {}
    }
    causes
}

fn of_kind(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    match kind.kind.as_str() {
        "Pod" => pod_spec(&object["spec"], "spec", true, &mut causes),
        "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" => workload(object, &mut causes),
        "Job" => {
            pod_spec(&object["spec"]["template"]["spec"], "spec.template.spec", false, &mut causes);
            if object["spec"]["template"]["spec"]["restartPolicy"] == "Always" {
                causes.push(Cause::required(
                    "spec.template.spec.restartPolicy",
                    "valid values: \"OnFailure\", \"Never\"",
                ));
            }
        }
        "ConfigMap" | "Secret" => keys(object, &mut causes),
        "Service" => service(&object["spec"], &mut causes),
        "Lease" => {
            for key in ["leaseDurationSeconds", "leaseTransitions"] {
                let least = i64::from(key == "leaseDurationSeconds");
                if let Some(value) = object["spec"][key].as_i64()
                    && value < least
                {
                    let detail = if least == 1 {
                        "must be greater than 0"
                    } else {
                        "must be greater than or equal to 0"
                    };
                    causes.push(Cause::invalid(format!("spec.{key}"), &value.into(), detail));
                }
            }
        }
        "Event" => {
            let (event, involved) = (
                metadata::text(object, "namespace"),
                object["involvedObject"]["namespace"].as_str().unwrap_or_default(),
            );
            if !involved.is_empty() && event != involved || involved.is_empty() && event != "default" {
                causes.push(Cause::invalid(
                    "involvedObject.namespace",
                    &involved.into(),
                    "does not match event.namespace",
                ));
            }
        }
        "CustomResourceDefinition" => {
            let spec = &object["spec"];
            let expected = format!(
                "{}.{}",
                spec["names"]["plural"].as_str().unwrap_or_default(),
                spec["group"].as_str().unwrap_or_default()
            );
            if metadata::text(object, "name") != expected {
                causes.push(Cause::invalid(
                    "metadata.name",
                    &object["metadata"]["name"],
                    "must be spec.names.plural+\".\"+spec.group",
                ));
            }
        }
        _ => {}
    }
    causes
}

fn texts<'a>(list: &'a Value, key: &'a str) -> impl Iterator<Item = &'a str> {
    list.as_array().into_iter().flatten().filter_map(move |item| item[key].as_str())
}

/// A pod's spec, in a pod or in a template.
fn pod_spec(spec: &Value, path: &str, is_pod: bool, causes: &mut Vec<Cause>) {
    let volumes: Vec<&str> = texts(&spec["volumes"], "name").collect();
    for (index, volume) in spec["volumes"].as_array().into_iter().flatten().enumerate() {
        let name = volume["name"].as_str().unwrap_or_default();
        let at = format!("{path}.volumes[{index}].name");
        let is_taken = volumes.iter().position(|one| *one == name) != Some(index);
        own_name(name, is_taken, &at, causes);
    }
    let containers = spec["containers"].as_array();
    if containers.is_none_or(Vec::is_empty) {
        causes.push(Cause::required(format!("{path}.containers"), ""));
    }
    let mut names: Vec<&str> = Vec::new();
    for list in ["containers", "initContainers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            container_causes(container, &format!("{path}.{list}[{index}]"), &volumes, &mut names, causes);
        }
    }
    let policy = spec["restartPolicy"].as_str().unwrap_or_default();
    if !matches!(policy, "Always" | "OnFailure" | "Never") {
        causes.push(Cause::unsupported(
            format!("{path}.restartPolicy"),
            &policy.into(),
            &["Always", "OnFailure", "Never"],
        ));
    }
    let dns = spec["dnsPolicy"].as_str().unwrap_or_default();
    if !matches!(dns, "ClusterFirst" | "ClusterFirstWithHostNet" | "Default" | "None") {
        causes.push(Cause::unsupported(
            format!("{path}.dnsPolicy"),
            &dns.into(),
            &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"],
        ));
    }
    metadata::label_causes(&spec["nodeSelector"], &format!("{path}.nodeSelector"), causes);
    if let Some(node) = spec["nodeName"].as_str() {
        causes.extend(
            metadata::subdomain_problems(node)
                .iter()
                .map(|problem| Cause::invalid(format!("{path}.nodeName"), &node.into(), problem)),
        );
    }
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64()
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        causes.push(Cause::invalid(
            format!("{path}.activeDeadlineSeconds"),
            &seconds.into(),
            "must be between 1 and 2147483647, inclusive",
        ));
    }
    let _ = is_pod;
}

fn container_causes<'a>(
    container: &'a Value,
    path: &str,
    volumes: &[&str],
    names: &mut Vec<&'a str>,
    causes: &mut Vec<Cause>,
) {
    let name = container["name"].as_str().unwrap_or_default();
    let at = format!("{path}.name");
    let is_taken = names.contains(&name);
    own_name(name, is_taken, &at, causes);
    if !name.is_empty() && !is_taken {
        names.push(name);
    }
    let image = container["image"].as_str().unwrap_or_default();
    if image.is_empty() {
        causes.push(Cause::required(format!("{path}.image"), ""));
    } else if image.trim() != image {
        causes.push(Cause::invalid(
            format!("{path}.image"),
            &image.into(),
            "must not have leading or trailing whitespace",
        ));
    }
    for (index, port) in container["ports"].as_array().into_iter().flatten().enumerate() {
        let at = format!("{path}.ports[{index}]");
        match port["containerPort"].as_i64().unwrap_or(0) {
            0 => causes.push(Cause::required(format!("{at}.containerPort"), "")),
            1..=65535 => {}
            other => causes.push(Cause::invalid(
                format!("{at}.containerPort"),
                &other.into(),
                "must be between 1 and 65535, inclusive",
            )),
        }
        let protocol = port["protocol"].as_str().unwrap_or_default();
        if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
            causes.push(Cause::unsupported(
                format!("{at}.protocol"),
                &protocol.into(),
                &["SCTP", "TCP", "UDP"],
            ));
        }
    }
    for (index, variable) in container["env"].as_array().into_iter().flatten().enumerate() {
        if variable["name"].as_str().is_none_or(str::is_empty) {
            causes.push(Cause::required(format!("{path}.env[{index}].name"), ""));
        }
    }
    let mut paths: Vec<&str> = Vec::new();
    for (index, mount) in container["volumeMounts"].as_array().into_iter().flatten().enumerate() {
        let at = format!("{path}.volumeMounts[{index}]");
        let (name, place) =
            (mount["name"].as_str().unwrap_or_default(), mount["mountPath"].as_str().unwrap_or_default());
        if name.is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        } else if !volumes.contains(&name) {
            causes.push(Cause::not_found(format!("{at}.name"), &name.into()));
        }
        if place.is_empty() {
            causes.push(Cause::required(format!("{at}.mountPath"), ""));
        } else if paths.contains(&place) {
            causes.push(Cause::invalid(format!("{at}.mountPath"), &place.into(), "must be unique"));
        }
        paths.push(place);
    }
    resources(&container["resources"], &format!("{path}.resources"), causes);
    let policy = container["imagePullPolicy"].as_str().unwrap_or_default();
    if !matches!(policy, "Always" | "IfNotPresent" | "Never") {
        causes.push(Cause::unsupported(
            format!("{path}.imagePullPolicy"),
            &policy.into(),
            &["Always", "IfNotPresent", "Never"],
        ));
    }
}

/// The name of a part of a pod: a label that no other part of its kind has.
fn own_name(name: &str, is_taken: bool, at: &str, causes: &mut Vec<Cause>) {
    if name.is_empty() {
        causes.push(Cause::required(at, ""));
    } else if is_taken {
        causes.push(Cause::duplicate(at, &name.into()));
    } else {
        let problems = metadata::label_problems(name);
        causes.extend(problems.iter().map(|problem| Cause::invalid(at, &name.into(), problem)));
    }
}

fn resources(resources: &Value, path: &str, causes: &mut Vec<Cause>) {
    let parsed = |value: &Value| value.as_str().and_then(|text| text.parse::<Quantity>().ok());
    for list in ["limits", "requests"] {
        for (name, value) in resources[list].as_object().into_iter().flatten() {
            if parsed(value).is_some_and(|quantity| quantity < Quantity::default()) {
                causes.push(Cause::invalid(
                    format!("{path}.{list}[{name}]"),
                    value,
                    "must be greater than or equal to 0",
                ));
            }
        }
    }
    for (name, request) in resources["requests"].as_object().into_iter().flatten() {
        let limit = &resources["limits"][name];
        if let (Some(asked), Some(most)) = (parsed(request), parsed(limit))
            && asked > most
        {
            let detail = format!(
                "must be less than or equal to {name} limit of {}",
                limit.as_str().unwrap_or_default()
            );
            causes.push(Cause::invalid(format!("{path}.requests"), request, &detail));
        }
    }
}

fn workload(object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    if let Some(replicas) = spec["replicas"].as_i64()
        && replicas < 0
    {
        causes.push(Cause::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0"));
    }
    let selector = &spec["selector"];
    let empty = selector.as_object().is_none_or(serde_json::Map::is_empty);
    if selector.is_null() {
        causes.push(Cause::required("spec.selector", ""));
    } else if empty {
        causes.push(Cause::invalid("spec.selector", selector, "empty selector is invalid for deployment"));
    }
    let selected = crate::selector::Labels::of(selector).matches(&spec["template"]);
    if !empty && !selected {
        causes.push(Cause::invalid(
            "spec.template.metadata.labels",
            &spec["template"]["metadata"]["labels"],
            "`selector` does not match template `labels`",
        ));
    }
    pod_spec(&spec["template"]["spec"], "spec.template.spec", false, causes);
}

fn keys(object: &Value, causes: &mut Vec<Cause>) {
    for section in ["data", "binaryData"] {
        for key in object[section].as_object().into_iter().flatten().map(|(key, _)| key) {
            let fine = !key.is_empty()
                && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
            if !fine {
                causes.push(Cause::invalid(
                    format!("{section}[{key}]"),
                    &key.as_str().into(),
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
                ));
            }
        }
    }
}

fn immutable_content(kind: &Kind, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if old["immutable"] == true {
        if new["immutable"] != true {
            causes.push(Cause::forbidden("immutable", "field is immutable when `immutable` is set"));
        }
        for section in ["data", "binaryData"] {
            if old.get(section) != new.get(section) {
                causes.push(Cause::forbidden(section, "field is immutable when `immutable` is set"));
            }
        }
    }
    if kind.is("Secret") && old["type"] != new["type"] {
        causes.push(Cause::invalid("type", &new["type"], "field is immutable"));
    }
}

fn service(spec: &Value, causes: &mut Vec<Cause>) {
    let kind = spec["type"].as_str().unwrap_or_default();
    if !matches!(kind, "ClusterIP" | "NodePort" | "LoadBalancer" | "ExternalName") {
        causes.push(Cause::unsupported(
            "spec.type",
            &kind.into(),
            &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
        ));
    }
    let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
    if ports.is_empty() && spec["clusterIP"] != "None" && kind != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    for (index, port) in ports.iter().enumerate() {
        if ports.len() > 1 && port["name"].as_str().is_none_or(str::is_empty) {
            causes.push(Cause::required(format!("spec.ports[{index}].name"), ""));
        }
        let number = port["port"].as_i64().unwrap_or(0);
        if !(1..=65535).contains(&number) {
            causes.push(Cause::invalid(
                format!("spec.ports[{index}].port"),
                &number.into(),
                "must be between 1 and 65535, inclusive",
            ));
        }
    }
}

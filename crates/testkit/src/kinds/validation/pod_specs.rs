//! What makes a pod's spec invalid, in a pod or in a template.

use kubeocean_model::quantity::Quantity;
use serde_json::Value;

use crate::kinds::metadata;
use crate::status::{Cause, go_quote};

fn texts<'a>(list: &'a Value, key: &'a str) -> impl Iterator<Item = &'a str> {
    list.as_array().into_iter().flatten().filter_map(move |item| item[key].as_str())
}

/// A pod's spec, in a template, or in the pod of this name.
pub(crate) fn pod_spec(spec: &Value, pod: Option<&str>, path: &str, causes: &mut Vec<Cause>) {
    let mut volumes: Vec<&str> = texts(&spec["volumes"], "name").collect();
    let mut claimless = Vec::new();
    for (index, volume) in spec["volumes"].as_array().into_iter().flatten().enumerate() {
        let name = volume["name"].as_str().unwrap_or_default();
        let at = format!("{path}.volumes[{index}].name");
        let is_taken = volumes.iter().position(|one| *one == name) != Some(index);
        own_name(name, is_taken, &at, causes);
        // A volume of the pod's own is a claim that is called after both, if that is a name.
        let Some(pod) = pod.filter(|_| !volume["ephemeral"].is_null()) else { continue };
        let claim = format!("{pod}-{name}");
        for problem in metadata::subdomain_problems(&claim) {
            let why = format!("PVC name {}: {problem}", go_quote(&claim));
            causes.push(Cause::invalid(&at, &name.into(), &why));
            claimless.push(name);
        }
    }
    volumes.retain(|name| !claimless.contains(name));
    let grace = spec["terminationGracePeriodSeconds"].as_i64().unwrap_or_default();
    let containers = spec["containers"].as_array();
    if containers.is_none_or(Vec::is_empty) {
        causes.push(Cause::required(format!("{path}.containers"), ""));
    }
    let mut names: Vec<&str> = Vec::new();
    for list in ["containers", "initContainers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            let at = format!("{path}.{list}[{index}]");
            container_causes(container, &at, &volumes, &mut names, causes);
            let sleeps = container.pointer("/lifecycle/preStop/sleep/seconds").and_then(Value::as_i64);
            if let Some(seconds) = sleeps.filter(|seconds| !(0..=grace).contains(seconds)) {
                let why =
                    format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                causes.push(Cause::invalid(format!("{at}.lifecycle.preStop.sleep"), &seconds.into(), &why));
            }
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

//! Services: addresses and ports that the server gives, keeps and takes back, and what is refused.
//!
//! Deliberately absent: the second address family, and running out of addresses.

use serde_json::{Value, json};

use super::defaults::{each, or};
use super::pod_status;
use crate::server::State;
use crate::status::Cause;

/// What a new service is given.
pub(crate) fn prepare_create(state: &mut State, object: &mut Value) {
    object["status"] = json!({"loadBalancer": {}});
    allocate(state, &mut object["spec"]);
}

/// What the type of a service needs and it does not have.
fn allocate(state: &mut State, spec: &mut Value) {
    if !needs_address(spec) {
        return;
    }
    if spec["clusterIP"].as_str().is_none_or(str::is_empty) {
        // The network of the sandbox; the first addresses are left to well-known services.
        state.addresses += 1;
        let host = 16 + state.addresses % 980;
        spec["clusterIP"] = format!("10.96.{}.{}", host / 250, host % 250).into();
    }
    if spec["clusterIPs"].as_array().is_none_or(Vec::is_empty) {
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
    }
    // Without a selector, addresses of both families are somebody else's to fill in.
    let both = spec["clusterIP"] == "None" && spec.get("selector").is_none();
    or(spec, "ipFamilies", if both { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) });
    or(spec, "ipFamilyPolicy", if both { "RequireDualStack" } else { "SingleStack" });
    if needs_ports(spec) && spec["allocateLoadBalancerNodePorts"] != false {
        for port in each(spec, "ports") {
            if port["nodePort"].as_i64().unwrap_or(0) == 0 {
                state.addresses += 1;
                port["nodePort"] = (30_000 + state.addresses % 2_700).into();
            }
        }
    }
}

fn needs_address(spec: &Value) -> bool {
    spec["type"] != "ExternalName"
}

fn needs_ports(spec: &Value) -> bool {
    matches!(spec["type"].as_str(), Some("NodePort" | "LoadBalancer"))
}

/// What stays with a changed service, what its new type takes away, and what it gives.
pub(crate) fn prepare_update(state: &mut State, old: &Value, object: &mut Value) {
    let before = &old["spec"];
    let spec = &mut object["spec"];
    keep(before, spec);
    let take = |spec: &mut Value, keys: &[&str]| {
        for key in keys {
            if spec.get(*key) == before.get(*key)
                && let Some(map) = spec.as_object_mut()
            {
                map.remove(*key);
            }
        }
    };
    if needs_address(before) && !needs_address(spec) {
        take(spec, &["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]);
    }
    if needs_ports(before) && !needs_ports(spec) {
        let ports = |spec: &Value| {
            let numbers =
                spec["ports"].as_array().into_iter().flatten().map(|port| port["nodePort"].as_i64());
            let mut numbers: Vec<_> = numbers.flatten().collect();
            numbers.sort_unstable();
            numbers
        };
        if ports(before) == ports(spec) {
            for port in each(spec, "ports") {
                port.as_object_mut().and_then(|port| port.remove("nodePort"));
            }
        }
        take(spec, &["externalTrafficPolicy"]);
    }
    if before["type"] == "LoadBalancer" && spec["type"] != "LoadBalancer" {
        take(spec, &["allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort"]);
    }
    allocate(state, spec);
    if spec["type"] != "LoadBalancer" {
        object["status"]["loadBalancer"] = json!({});
    }
}

/// Who leaves out what was given once does not mean to give it back.
fn keep(before: &Value, spec: &mut Value) {
    if needs_address(before) && needs_address(spec) {
        for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if spec.get(key).is_none()
                && let Some(value) = before.get(key)
            {
                spec[key] = value.clone();
            }
        }
    }
    if needs_ports(before) && needs_ports(spec) {
        let given: Vec<Value> =
            each(spec, "ports").filter_map(|port| port.get("nodePort").cloned()).collect();
        for port in each(spec, "ports").filter(|port| port.get("nodePort").is_none()) {
            let number = before["ports"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|one| one.get("name") == port.get("name"))
                .and_then(|one| one.get("nodePort"));
            if let Some(number) = number.filter(|number| !given.contains(number)) {
                port["nodePort"] = number.clone();
            }
        }
    }
}

/// What is wrong with a service.
pub(crate) fn causes(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
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
    causes
}

/// An address stays what it is, as long as there is one.
pub(crate) fn update_causes(old: &Value, new: &Value) -> Option<Cause> {
    let address = |object: &Value| object["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
    let moved = !address(old).is_empty() && address(old) != address(new) && needs_address(&new["spec"]);
    // The older field names the first address, and wins where the two differ.
    let given = json!([new["spec"]["clusterIP"]]);
    moved.then(|| Cause::invalid("spec.clusterIPs[0]", &given, "may not change once set"))
}

/// What is wrong with a service's status.
pub(crate) fn status_causes(status: &Value) -> Vec<Cause> {
    let ingress = status["loadBalancer"]["ingress"].as_array().into_iter().flatten();
    ingress
        .enumerate()
        .filter_map(|(index, one)| {
            let problem = pod_status::address_problem(one["ip"].as_str()?)?;
            Some(Cause::invalid(format!("status.loadBalancer.ingress[{index}].ip"), &one["ip"], problem))
        })
        .collect()
}

//! What makes a volume, a claim or a slice of endpoints invalid.

use serde_json::Value;

use crate::kinds::pod_status;
use crate::status::Cause;

/// What every volume may have; all else says where its storage is.
const COMMON: &[&str] = &[
    "capacity",
    "accessModes",
    "mountOptions",
    "claimRef",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}

fn sources(spec: &Value) -> Vec<(&String, &Value)> {
    let fields = spec.as_object().into_iter().flatten();
    let mut sources: Vec<_> = fields.filter(|(key, _)| !COMMON.contains(&key.as_str())).collect();
    // The last that the server looks at.
    sources.sort_by_key(|(key, _)| *key == "csi");
    sources
}

/// A volume.
pub(super) fn volume(spec: &Value, causes: &mut Vec<Cause>) {
    if is_empty(&spec["accessModes"]) {
        causes.push(Cause::required("spec.accessModes", ""));
    }
    if spec["capacity"].as_object().is_none_or(serde_json::Map::is_empty) {
        causes.push(Cause::required("spec.capacity", ""));
        causes.push(Cause::unsupported("spec.capacity", &Value::Null, &["storage"]));
    }
    let sources = sources(spec);
    if sources.is_empty() {
        causes.push(Cause::required("spec", "must specify a volume type"));
    }
    for (source, _) in sources.iter().skip(1) {
        causes.push(Cause::forbidden(format!("spec.{source}"), "may not specify more than 1 volume type"));
    }
}

/// What a volume has for life. The real server adds a diff of Go's structs.
pub(super) fn volume_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if sources(old) != sources(new) {
        let why = "spec.persistentvolumesource is immutable after creation\n";
        causes.push(Cause::forbidden("spec.persistentvolumesource", why));
    }
    if old["volumeMode"] != new["volumeMode"] {
        causes.push(Cause::invalid("volumeMode", &new["volumeMode"], "field is immutable"));
    }
    if !old["nodeAffinity"].is_null() && old["nodeAffinity"] != new["nodeAffinity"] {
        let why = "field is immutable, except for updating from beta label to GA";
        causes.push(Cause::invalid("nodeAffinity", &new["nodeAffinity"], why));
    }
}

/// A claim.
pub(super) fn claim(spec: &Value, causes: &mut Vec<Cause>) {
    if is_empty(&spec["accessModes"]) {
        causes.push(Cause::required("spec.accessModes", "at least 1 access mode is required"));
    }
    if spec["resources"]["requests"].get("storage").is_none() {
        causes.push(Cause::required("spec.resources[storage]", ""));
    }
}

/// What a claim has for life: all but its volume, until it has one, and its size, once it has one.
pub(super) fn claim_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let fixed = |object: &Value| {
        let mut spec = object["spec"].clone();
        if new["status"]["phase"] == "Bound" {
            spec["resources"] = Value::Null;
        }
        if old["spec"]["volumeName"].as_str().is_none_or(str::is_empty) {
            spec["volumeName"] = Value::Null;
        }
        spec
    };
    if fixed(old) != fixed(new) {
        causes.push(Cause::forbidden("spec", "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"));
    }
}

/// A slice of endpoints.
pub(super) fn slice(object: &Value, causes: &mut Vec<Cause>) {
    let kind = object["addressType"].as_str().unwrap_or_default();
    if kind.is_empty() {
        causes.push(Cause::required("addressType", ""));
    }
    for (index, endpoint) in object["endpoints"].as_array().into_iter().flatten().enumerate() {
        let at = format!("endpoints[{index}].addresses");
        if is_empty(&endpoint["addresses"]) {
            causes.push(Cause::required(at.clone(), "must contain at least 1 address"));
        }
        for (index, address) in endpoint["addresses"].as_array().into_iter().flatten().enumerate() {
            let text = address.as_str().unwrap_or_default();
            let problem = if kind == "FQDN" { None } else { pod_status::address_problem(text) };
            let is_local = text.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
            let loopback = is_local.then_some("may not be in the loopback range (127.0.0.0/8, ::1/128)");
            if let Some(why) = problem.or(loopback) {
                causes.push(Cause::invalid(format!("{at}[{index}]"), address, why));
            }
        }
    }
}

/// What a slice has for life.
pub(super) fn slice_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if old["addressType"] != new["addressType"] {
        causes.push(Cause::invalid("addressType", &new["addressType"], "field is immutable"));
    }
}

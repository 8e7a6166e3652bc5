//! What is served: versions, groups, resources, health.
//!
//! Deliberately absent: OpenAPI documents. The types here come from them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::kinds::{Kind, catalog};
use crate::rest::request::Request;
use crate::rest::{Answer, NOT_FOUND};
use crate::server::State;
use crate::status::{Failure, Result};

/// Answers every path that names no resource.
pub(crate) fn answer(state: &State, request: &Request) -> Result<Answer> {
    if request.method != "GET" {
        return Err(Failure::no_path());
    }
    let parts: Vec<&str> = request.path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        ["version"] => match state.options.minor {
            Some(minor) => Ok(Answer::Value(200, version(minor))),
            None => Err(Failure::internal("the version is not known")),
        },
        ["readyz" | "livez" | "healthz"] => Ok(Answer::Bytes(200, "ok".into())),
        ["api"] => Ok(Answer::Value(
            200,
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}]}),
        )),
        ["api", "v1"] => Ok(Answer::Value(200, resources(state, "", "v1"))),
        ["apis"] => Ok(Answer::Value(200, groups(state))),
        ["apis", group] => match group_entry(state, group) {
            Some(mut entry) => {
                entry["kind"] = "APIGroup".into();
                entry["apiVersion"] = "v1".into();
                Ok(Answer::Value(200, entry))
            }
            None => Ok(Answer::Text(404, NOT_FOUND)),
        },
        ["apis", group, version]
            if state.kinds.all().any(|kind| kind.group == *group && kind.version == *version)
                || catalog::reviews(group).any(|kind| kind.version == *version) =>
        {
            Ok(Answer::Value(200, resources(state, group, version)))
        }
        ["api", _] => Err(Failure::no_path()),
        _ => Ok(Answer::Text(404, NOT_FOUND)),
    }
}

fn version(minor: u32) -> Value {
    let (own, before) = (minor.to_string(), (minor - 1).to_string());
    json!({
        "major": "1", "minor": own, "emulationMajor": "1", "emulationMinor": own,
        "minCompatibilityMajor": "1", "minCompatibilityMinor": before, "gitVersion": format!("v1.{minor}.4"), "gitCommit": "simulated", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "go1.26", "compiler": "gc", "platform": "linux/amd64",
    })
}

fn group_entry(state: &State, group: &str) -> Option<Value> {
    let versions: BTreeSet<&str> =
        state.kinds.all().filter(|kind| kind.group == group).map(|kind| kind.version.as_str()).collect();
    let version = versions.into_iter().next().or_else(|| catalog::reviews(group).next().map(|_| "v1"))?;
    let entry = json!({"groupVersion": format!("{group}/{version}"), "version": version});
    Some(json!({"name": group, "versions": [entry], "preferredVersion": entry}))
}

fn groups(state: &State) -> Value {
    let mut names: BTreeSet<&str> =
        state.kinds.all().map(|kind| kind.group.as_str()).filter(|group| !group.is_empty()).collect();
    names.extend(["authorization.k8s.io", "authentication.k8s.io"]);
    let groups: Vec<_> = names.into_iter().filter_map(|group| group_entry(state, group)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn resources(state: &State, group: &str, version: &str) -> Value {
    let mut list = Vec::new();
    for kind in state.kinds.all().filter(|kind| kind.group == group && kind.version == version) {
        list.push(resource(kind));
        list.extend(kind.subresources.iter().map(|name| subresource(kind, name)));
    }
    for kind in catalog::reviews(group) {
        list.push(json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": ["create"],
        }));
    }
    if group.is_empty() {
        // The oldest list of all names no version of its own.
        return json!({"kind": "APIResourceList", "groupVersion": version, "resources": list});
    }
    let group_version = format!("{group}/{version}");
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list})
}

fn resource(kind: &Kind) -> Value {
    let verbs: &[&str] = if kind.is("Namespace") {
        &["create", "delete", "get", "list", "patch", "update", "watch"]
    } else if kind.is_custom() {
        &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
    } else {
        &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    };
    let mut entry = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": verbs,
    });
    for (key, words) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
        if !words.is_empty() {
            entry[key] = words.clone().into();
        }
    }
    entry
}

fn subresource(kind: &Kind, name: &str) -> Value {
    let (group, found, verbs): (&str, &str, &[&str]) = match name {
        "binding" => ("", "Binding", &["create"]),
        "eviction" => ("policy", "Eviction", &["create"]),
        "token" => ("authentication.k8s.io", "TokenRequest", &["create"]),
        "scale" => ("autoscaling", "Scale", &["get", "patch", "update"]),
        "finalize" => ("", &kind.kind, &["update"]),
        _ => ("", &kind.kind, &["get", "patch", "update"]),
    };
    let mut entry = json!({
        "name": format!("{}/{name}", kind.plural), "singularName": "", "namespaced": kind.namespaced,
        "kind": found, "verbs": verbs,
    });
    if !group.is_empty() {
        entry["group"] = group.into();
        entry["version"] = "v1".into();
    }
    entry
}

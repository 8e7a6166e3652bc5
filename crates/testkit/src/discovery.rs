//! What is served: versions, groups, resources, health.
//!
//! Deliberately absent: OpenAPI documents. The types here come from them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::kinds::Kind;
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
        ["version"] => Ok(Answer::Value(200, version())),
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
                || reviews(group).is_some() =>
        {
            Ok(Answer::Value(200, resources(state, group, version)))
        }
        _ => Ok(Answer::Text(404, NOT_FOUND)),
    }
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.4", "gitCommit": "simulated", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "go1.26", "compiler": "gc", "platform": "linux/amd64",
    })
}

fn group_entry(state: &State, group: &str) -> Option<Value> {
    let versions: BTreeSet<&str> =
        state.kinds.all().filter(|kind| kind.group == group).map(|kind| kind.version.as_str()).collect();
    let version = versions.into_iter().next().or_else(|| reviews(group).map(|_| "v1"))?;
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

/// Reviews are created and nothing else.
fn reviews(group: &str) -> Option<&'static [(&'static str, &'static str, bool)]> {
    match group {
        "authorization.k8s.io" => Some(&[
            ("localsubjectaccessreviews", "LocalSubjectAccessReview", true),
            ("selfsubjectaccessreviews", "SelfSubjectAccessReview", false),
            ("selfsubjectrulesreviews", "SelfSubjectRulesReview", false),
            ("subjectaccessreviews", "SubjectAccessReview", false),
        ]),
        "authentication.k8s.io" => Some(&[
            ("selfsubjectreviews", "SelfSubjectReview", false),
            ("tokenreviews", "TokenReview", false),
        ]),
        _ => None,
    }
}

fn resources(state: &State, group: &str, version: &str) -> Value {
    let mut list = Vec::new();
    for kind in state.kinds.all().filter(|kind| kind.group == group && kind.version == version) {
        list.push(resource(kind));
        for subresource in &kind.subresources {
            list.push(json!({
                "name": format!("{}/{subresource}", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                "kind": kind.kind, "verbs": ["get", "patch", "update"],
            }));
        }
    }
    for (plural, kind, namespaced) in reviews(group).into_iter().flatten() {
        list.push(json!({"name": plural, "singularName": kind.to_lowercase(), "namespaced": namespaced, "kind": kind, "verbs": ["create"]}));
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list})
}

fn resource(kind: &Kind) -> Value {
    let mut entry = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = kind.short_names.clone().into();
    }
    entry
}

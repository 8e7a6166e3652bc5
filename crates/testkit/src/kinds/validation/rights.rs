//! What makes roles and their bindings invalid.

use serde_json::Value;

use crate::kinds::{Kind, metadata};
use crate::status::Cause;

const GROUP: &str = "rbac.authorization.k8s.io";

fn is_empty(value: &Value) -> bool {
    value.as_array().is_none_or(Vec::is_empty)
}

/// A role, of a namespace or of the cluster.
pub(super) fn role(kind: &Kind, object: &Value, causes: &mut Vec<Cause>) {
    for (index, rule) in object["rules"].as_array().into_iter().flatten().enumerate() {
        let at = |key: &str| format!("rules[{index}].{key}");
        let mut required = |key: &str, why: &str| {
            if is_empty(&rule[key]) {
                causes.push(Cause::required(at(key), why));
            }
        };
        required("verbs", "verbs must contain at least one value");
        let urls = &rule["nonResourceURLs"];
        if is_empty(urls) {
            required("apiGroups", "resource rules must supply at least one api group");
            required("resources", "resource rules must supply at least one resource");
            continue;
        }
        if kind.namespaced {
            let why = "namespaced rules cannot apply to non-resource URLs";
            causes.push(Cause::invalid(at("nonResourceURLs"), urls, why));
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|key| !is_empty(&rule[*key])) {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            causes.push(Cause::invalid(at("nonResourceURLs"), urls, why));
        }
    }
}

/// A binding, of a namespace or of the cluster.
pub(super) fn binding(kind: &Kind, object: &Value, causes: &mut Vec<Cause>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let role = &object["roleRef"];
    if role["apiGroup"] != GROUP {
        causes.push(Cause::unsupported("roleRef.apiGroup", &role["apiGroup"], &[GROUP]));
    }
    let kinds: &[&str] = if kind.namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&text(&role["kind"]).as_str()) {
        causes.push(Cause::unsupported("roleRef.kind", &role["kind"], kinds));
    }
    if text(&role["name"]).is_empty() {
        causes.push(Cause::required("roleRef.name", ""));
    }
    for (index, subject) in object["subjects"].as_array().into_iter().flatten().enumerate() {
        let at = |key: &str| format!("subjects[{index}].{key}");
        let name = text(&subject["name"]);
        if name.is_empty() {
            causes.push(Cause::required(at("name"), ""));
        }
        match subject["kind"].as_str().unwrap_or_default() {
            "ServiceAccount" => {
                if !name.is_empty() {
                    let problems = metadata::subdomain_problems(&name);
                    causes
                        .extend(problems.iter().map(|why| Cause::invalid(at("name"), &subject["name"], why)));
                }
                if !text(&subject["apiGroup"]).is_empty() {
                    causes.push(Cause::unsupported(at("apiGroup"), &subject["apiGroup"], &[""]));
                }
                if !kind.namespaced && text(&subject["namespace"]).is_empty() {
                    causes.push(Cause::required(at("namespace"), ""));
                }
            }
            "User" | "Group" => {
                if subject["apiGroup"] != GROUP {
                    causes.push(Cause::unsupported(at("apiGroup"), &subject["apiGroup"], &[GROUP]));
                }
            }
            _ => causes.push(Cause::unsupported(
                at("kind"),
                &subject["kind"],
                &["ServiceAccount", "User", "Group"],
            )),
        }
    }
}

//! Custom resources: pruning, defaults, rules, status, apply.

use serde_json::Value;

use super::script::{Script, apply, delete, get, json_patch, merge, post, put, script, strategic};

fn binding(spec: Value) -> Value {
    let mut binding = json!({
        "apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding", "metadata": {"name": "{ns}"},
        "spec": {"clusterID": "w1", "secretRef": {"name": "w1", "namespace": "k"}, "mountNamespace": "b"},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        binding["spec"][key] = value.clone();
    }
    binding
}

fn policy(spec: Value) -> Value {
    let mut policy = json!({"apiVersion": "cloud.tencent.com/v1beta1", "kind": "ResourceLeasingPolicy", "metadata": {"name": "{ns}"}, "spec": {"cluster": "w1"}});
    for (key, value) in spec.as_object().into_iter().flatten() {
        policy["spec"][key] = value.clone();
    }
    policy
}

fn status(kind: &str, status: Value) -> Value {
    json!({"apiVersion": "cloud.tencent.com/v1beta1", "kind": kind, "metadata": {"name": "{ns}"}, "status": status})
}

fn condition(type_: &str, value: &str) -> Value {
    json!({"type": type_, "status": value, "reason": "Because", "message": "", "lastTransitionTime": "2001-01-02T03:04:05Z"})
}

pub(crate) fn scripts() -> Vec<Script> {
    vec![
        script("a custom resource and its endpoints", vec![
            post("clusterbindings", binding(json!({"colour": "blue"}))),
            get("clusterbindings/{ns}"),
            put("clusterbindings/{ns}", binding(json!({}))),
            merge("clusterbindings/{ns}", json!({"spec": {"directScheduling": true}})),
            merge("clusterbindings/{ns}", json!({"spec": {"directScheduling": true}})),
            merge("clusterbindings/{ns}", json!({"metadata": {"labels": {"a": "b"}}})),
            merge("clusterbindings/{ns}", json!({"status": {"phase": "Ready"}})),
            merge("clusterbindings/{ns}/status", json!({"metadata": {"labels": {"c": "d"}}, "spec": {"clusterID": "w9"}, "status": {"phase": "Ready", "colour": "blue"}})),
            merge("clusterbindings/{ns}/status", json!({"status": null})),
            strategic("clusterbindings/{ns}", json!({"spec": {"directScheduling": false}})),
            json_patch("clusterbindings/{ns}", json!([{"op": "replace", "path": "/spec/mountNamespace", "value": "c"}])),
            json_patch("clusterbindings/{ns}", json!([{"op": "replace", "path": "/spec/podPriorityClassName", "value": "c"}])),
            merge("clusterbindings/{ns}", json!({"metadata": {"uid": "00000000-0000-0000-0000-000000000000", "labels": {"bad key": "x"}}})),
            merge("clusterbindings/{ns}", json!({"metadata": {"finalizers": ["example.com/x"]}})),
            delete("clusterbindings/{ns}"),
            merge("clusterbindings/{ns}", json!({"metadata": {"finalizers": null}})),
            get("clusterbindings/{ns}"),
        ]),
        script("a custom resource that is refused", vec![
            post("clusterbindings", binding(json!({"clusterID": 7}))),
            post("clusterbindings", binding(json!({"clusterID": "W1", "serviceNamespaces": ["A", ""]}))),
            post("clusterbindings", binding(json!({"clusterID": null}))),
            post("clusterbindings", binding(json!({"clusterID": "a".repeat(25)}))),
            post("clusterbindings", binding(json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a b", "operator": "Like"}]}]}}))),
            post("clusterbindings?fieldValidation=Strict", binding(json!({"colour": "blue"}))),
            post("resourceleasingpolicies", policy(json!({"gracefulReclaimPeriodSeconds": 1.5}))),
            post("resourceleasingpolicies", policy(json!({"resourceLimits": [{"resource": "cpu"}, {"resource": "cpu", "percent": 101}]}))),
            post("resourceleasingpolicies", policy(json!({"resourceLimits": [{"resource": "cpu", "quantity": -1}, {"resource": "gpu", "quantity": "x"}]}))),
            post("resourceleasingpolicies", policy(json!({"timeZone": "Europe/Nowhere", "timeWindows": [{"start": "08:00", "end": "08:00", "days": ["Montag"]}]}))),
            post("resourceleasingpolicies", policy(json!({"timeWindows": [{"start": "08:00", "end": "25:00"}]}))),
            post("clusterbindings", json!({"apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding", "metadata": {"name": "Bad_Name"}})),
            post("clusterbindings", json!({"apiVersion": "cloud.tencent.com/v1", "kind": "ClusterBinding", "metadata": {"name": "x"}})),
        ]),
        script("applying a custom resource", vec![
            apply("resourceleasingpolicies/{ns}", "one", policy(json!({"resourceLimits": [{"resource": "cpu", "percent": 10}], "timeWindows": [{"start": "08:00", "end": "09:00"}]}))),
            apply("resourceleasingpolicies/{ns}", "two", policy(json!({"resourceLimits": [{"resource": "memory", "percent": 20}]}))),
            apply("resourceleasingpolicies/{ns}", "two", policy(json!({"resourceLimits": [{"resource": "cpu", "percent": 20}]}))),
            apply("resourceleasingpolicies/{ns}", "one", policy(json!({"timeWindows": [{"start": "08:00", "end": "10:00"}]}))),
            apply("resourceleasingpolicies/{ns}/status", "binding-a", status("ResourceLeasingPolicy", json!({"phase": "Active", "bindings": [{"bindingUID": "a", "nodes": 1}], "conditions": [condition("Valid", "True")]}))),
            apply("resourceleasingpolicies/{ns}/status", "binding-b", status("ResourceLeasingPolicy", json!({"bindings": [{"bindingUID": "b", "nodes": 2, "active": true}], "conditions": [condition("Active", "True")]}))),
            apply("resourceleasingpolicies/{ns}/status", "binding-b", status("ResourceLeasingPolicy", json!({"bindings": [{"bindingUID": "b", "nodes": 3, "active": true}], "conditions": [condition("Valid", "False")]}))),
            apply("resourceleasingpolicies/{ns}/status", "binding-a", status("ResourceLeasingPolicy", json!({"phase": "Active"}))),
            apply("resourceleasingpolicies/{ns}/status", "binding-a", status("ResourceLeasingPolicy", json!({"phase": "Active"}))),
            apply("resourceleasingpolicies/{ns}/status", "binding-b", status("ResourceLeasingPolicy", json!({}))),
            get("resourceleasingpolicies/{ns}"),
            apply("resourceleasingpolicies/{ns}", "one", policy(json!({"colour": "blue"}))),
            merge("resourceleasingpolicies/{ns}/status", json!({"status": {"conditions": [condition("Valid", "True"), condition("Valid", "False")]}})),
            delete("resourceleasingpolicies/{ns}"),
        ]),
    ]
}

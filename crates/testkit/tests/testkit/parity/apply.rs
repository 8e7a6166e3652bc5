//! Server-side apply: owners, conflicts, what goes when it is no longer applied.

use serde_json::Value;

use super::script::{Script, apply, get, merge, post, put, script};

fn map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

fn deployment(containers: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}}})
}

pub(crate) fn scripts() -> Vec<Script> {
    vec![
        script("apply creates and changes", vec![
            apply("configmaps/a", "one", map(json!({"x": "1", "y": "1"}))),
            apply("configmaps/a", "one", map(json!({"x": "1", "y": "1"}))),
            apply("configmaps/a", "one", map(json!({"x": "2", "y": "1"}))),
            apply("configmaps/a", "one", map(json!({"x": "2"}))),
            apply("configmaps/a", "two", map(json!({"x": "3"}))),
            apply("configmaps/a", "two", map(json!({"x": "2", "z": "1"}))),
            apply("configmaps/a", "two", map(json!({"x": "3", "z": "1"}))),
            apply("configmaps/a?force=true", "two", map(json!({"x": "3", "z": "1"}))),
            apply("configmaps/a", "one", map(json!({}))),
            apply("configmaps/a", "two", map(json!({}))),
            get("configmaps/a"),
        ]),
        script("apply next to updates", vec![
            post("configmaps", map(json!({"x": "1"}))),
            apply("configmaps/a", "one", map(json!({"x": "2"}))),
            apply("configmaps/a", "one", map(json!({"y": "2"}))),
            merge("configmaps/a", json!({"data": {"y": "3"}})),
            apply("configmaps/a", "one", map(json!({"y": "4"}))),
            apply("configmaps/a?force=true", "one", map(json!({"y": "4", "x": "9"}))),
            put("configmaps/a?fieldManager=putter", map(json!({"q": "1"}))),
            merge("configmaps/a", json!({"metadata": {"managedFields": []}})),
            apply("configmaps/a", "one", map(json!({"r": "1"}))),
        ]),
        script("apply on lists with keys", vec![
            apply("deployments/d", "one", deployment(json!([{"name": "c", "image": "x:1", "ports": [{"containerPort": 80}]}]))),
            apply("deployments/d", "two", deployment(json!([{"name": "side", "image": "y:1"}]))),
            apply("deployments/d", "two", deployment(json!([{"name": "c", "image": "z:1"}]))),
            apply("deployments/d", "one", deployment(json!([{"name": "c", "image": "x:2", "ports": [{"containerPort": 80}, {"containerPort": 81, "protocol": "UDP"}], "env": [{"name": "A", "value": "1"}]}]))),
            apply("deployments/d", "one", deployment(json!([{"name": "c", "image": "x:2"}]))),
            apply("deployments/d", "one", deployment(json!([{"name": "c", "image": "x:2"}, {"name": "c", "image": "x:3"}]))),
            apply("deployments/d", "one", deployment(json!([{"image": "x:2"}]))),
            apply("deployments/d", "one", deployment(json!([{"name": "c", "image": "x:2", "colour": "blue"}]))),
        ]),
        script("apply on the status of a node", vec![
            post("nodes", json!({"metadata": {"name": "{ns}"}})),
            apply("nodes/{ns}/status", "one", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "{ns}"}, "status": {"conditions": [{"type": "A", "status": "True"}], "capacity": {"cpu": "1"}}})),
            apply("nodes/{ns}/status", "two", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "{ns}"}, "status": {"conditions": [{"type": "B", "status": "True"}]}})),
            apply("nodes/{ns}/status", "one", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "{ns}"}, "status": {"capacity": {"cpu": "1"}}})),
            apply("nodes/{ns}/status", "two", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "{ns}"}, "status": {"conditions": [{"type": "B", "status": "False"}]}})),
        ]),
        script("an apply that is refused", vec![
            apply("configmaps/a", "", map(json!({}))),
            apply("configmaps/a", "one", json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})),
            apply("configmaps/a", "one", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}})),
            apply("configmaps/a", "one", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "managedFields": [{"manager": "x"}]}})),
            apply("configmaps/a", "one", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "uid": "00000000-0000-0000-0000-000000000000"}})),
            apply("configmaps/a", "one", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "colour": "blue"})),
            merge("configmaps/a?force=true", json!({})),
            apply("nodes/missing-{ns}/status", "one", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "missing-{ns}"}, "status": {}})),
        ]),
        script("apply on metadata", vec![
            apply("configmaps/a", "one", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"l": "1"}, "finalizers": ["example.com/one"]}})),
            apply("configmaps/a", "two", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": {"k": "1"}, "finalizers": ["example.com/two"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u1"}]}})),
            apply("configmaps/a", "one", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})),
            apply("configmaps/a", "two", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "finalizers": ["example.com/two"]}})),
        ]),
    ]
}

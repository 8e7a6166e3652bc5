//! Deletion: grace, finalizers, propagation, preconditions, collections, namespaces.

use serde_json::{Value, json};

use super::script::{Script, config, delete, delete_with, get, mark, merge, pod, post, script, watch};

fn owned(name: &str, owner: &str, block: bool) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": format!("{{uid:configmaps/{owner}}}"), "blockOwnerDeletion": block}]}})
}

pub(crate) fn scripts() -> Vec<Script> {
    vec![
        script("grace of a pod", vec![
            post("pods", pod("free", json!({}))),
            delete("pods/free"),
            post("pods", pod("bound", json!({"nodeName": "n1"}))),
            mark(),
            delete("pods/bound"),
            delete("pods/bound"),
            delete_with("pods/bound", json!({"gracePeriodSeconds": 60})),
            delete_with("pods/bound", json!({"gracePeriodSeconds": 5})),
            merge("pods/bound/status", json!({"status": {"phase": "Running"}})),
            post("pods", pod("bound", json!({"nodeName": "n1"}))),
            delete_with("pods/bound", json!({"gracePeriodSeconds": 0})),
            get("pods/bound"),
            watch("pods?resourceVersion={mark}&fieldSelector=metadata.name=bound"),
            post("pods", pod("done", json!({"nodeName": "n1"}))),
            merge("pods/done/status", json!({"status": {"phase": "Succeeded"}})),
            delete("pods/done"),
            post("pods", pod("query", json!({"nodeName": "n1"}))),
            delete("pods/query?gracePeriodSeconds=7"),
            delete("pods/query?gracePeriodSeconds=-3"),
        ]),
        script("a pod with a finalizer", vec![
            post("pods", json!({"metadata": {"name": "p", "finalizers": ["example.com/wait"]}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "x"}]}})),
            mark(),
            delete("pods/p"),
            delete_with("pods/p", json!({"gracePeriodSeconds": 0})),
            get("pods/p"),
            merge("pods/p", json!({"metadata": {"finalizers": ["example.com/wait", "example.com/new"]}})),
            merge("pods/p", json!({"metadata": {"finalizers": null}})),
            get("pods/p"),
            watch("pods?resourceVersion={mark}"),
        ]),
        script("finalizers", vec![
            post("configmaps", json!({"metadata": {"name": "a", "finalizers": ["example.com/one", "example.com/two"]}})),
            mark(),
            delete("configmaps/a"),
            delete("configmaps/a"),
            merge("configmaps/a", json!({"metadata": {"finalizers": ["example.com/two"]}})),
            merge("configmaps/a", json!({"data": {"still": "there"}})),
            post("configmaps", config("a")),
            merge("configmaps/a", json!({"metadata": {"finalizers": []}})),
            get("configmaps/a"),
            watch("configmaps?resourceVersion={mark}"),
        ]),
        script("preconditions of a deletion", vec![
            post("configmaps", config("a")),
            delete_with("configmaps/a", json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}})),
            delete_with("configmaps/a", json!({"preconditions": {"resourceVersion": "1"}})),
            delete_with("configmaps/a", json!({"preconditions": {"uid": "{uid:configmaps/a}", "resourceVersion": "{rv:configmaps/a}"}})),
            delete_with("configmaps/a", json!({"preconditions": {"uid": "{uid:configmaps/a}"}})),
            post("pods", pod("p", json!({"nodeName": "n1"}))),
            delete_with("pods/p", json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}})),
            delete_with("pods/p", json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": {"uid": "{uid:pods/p}", "resourceVersion": "{rv:pods/p}"}})),
        ]),
        script("propagation without a collector", vec![
            post("configmaps", config("a")),
            delete_with("configmaps/a", json!({"propagationPolicy": "Foreground"})),
            merge("configmaps/a", json!({"metadata": {"finalizers": null}})),
            post("configmaps", config("b")),
            delete_with("configmaps/b", json!({"propagationPolicy": "Orphan"})),
            delete_with("configmaps/b", json!({"propagationPolicy": "Background"})),
            post("configmaps", config("c")),
            delete_with("configmaps/c", json!({"orphanDependents": false})),
            post("configmaps", config("d")),
            delete_with("configmaps/d", json!({"orphanDependents": true})),
            delete_with("configmaps/d", json!({"propagationPolicy": "Sometimes"})),
            delete_with("configmaps/d", json!({"propagationPolicy": "Orphan", "orphanDependents": true})),
        ]),
        script("collections", vec![
            post("configmaps", json!({"metadata": {"name": "a", "labels": {"go": "yes"}}})),
            post("configmaps", json!({"metadata": {"name": "b", "labels": {"go": "yes"}}})),
            post("configmaps", json!({"metadata": {"name": "c"}})),
            mark(),
            delete("configmaps?labelSelector=go%3Dyes"),
            get("configmaps"),
            watch("configmaps?resourceVersion={mark}"),
            delete("/api/v1/configmaps"),
            delete("/api/v1/namespaces"),
        ]),
        script("what a deletion answers", vec![
            post("services", json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})),
            delete("services/s"),
            post("leases", json!({"metadata": {"name": "l"}})),
            delete("leases/l"),
            post("secrets", json!({"metadata": {"name": "s"}})),
            delete("secrets/s"),
            post("serviceaccounts", json!({"metadata": {"name": "s"}})),
            delete("serviceaccounts/s"),
            post("csinodes", json!({"metadata": {"name": "{ns}"}, "spec": {"drivers": []}})),
            delete("csinodes/{ns}"),
            post("nodes", json!({"metadata": {"name": "{ns}"}})),
            delete("nodes/{ns}"),
            post("clusterbindings", json!({"apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding", "metadata": {"name": "{ns}"}, "spec": {"clusterID": "w1", "secretRef": {"name": "w1", "namespace": "k"}, "mountNamespace": "b"}})),
            delete("clusterbindings/{ns}"),
            post("persistentvolumeclaims", json!({"metadata": {"name": "p"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})),
            delete("persistentvolumeclaims/p"),
        ]),
        script("a namespace that goes", vec![
            post("configmaps", config("a")),
            get("namespaces/{ns}"),
            delete("namespaces/{ns}"),
            get("namespaces/{ns}"),
            post("configmaps", config("b")).until(403),
            merge("configmaps/a", json!({"data": {"b": "2"}})),
            delete("namespaces/{ns}"),
            delete("namespaces/default"),
        ]),
    ]
}

/// With the controllers running: what is left in the end.
pub(crate) fn settled() -> Vec<Script> {
    vec![
        script("dependents go after their owner", vec![
            post("configmaps", config("owner")),
            post("configmaps", owned("owned", "owner", false)),
            delete_with("configmaps/owner", json!({"propagationPolicy": "Background"})),
            get("configmaps/owned").until(404),
        ]),
        script("dependents go before their owner", vec![
            post("configmaps", config("owner")),
            post("configmaps", owned("owned", "owner", true)),
            delete_with("configmaps/owner", json!({"propagationPolicy": "Foreground"})),
            get("configmaps/owned").until(404),
            get("configmaps/owner").until(404),
        ]),
        script("orphans stay", vec![
            post("configmaps", config("owner")),
            post("configmaps", owned("owned", "owner", true)),
            delete_with("configmaps/owner", json!({"propagationPolicy": "Orphan"})),
            get("configmaps/owner").until(404),
            get("configmaps/owned"),
        ]),
        script("an owner that never was", vec![
            post("configmaps", json!({"metadata": {"name": "lost", "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "00000000-0000-0000-0000-000000000000"}]}})),
            get("configmaps/lost").until(404),
        ]),
        script("one of two owners goes", vec![
            post("configmaps", config("owner")),
            post("configmaps", config("other")),
            post("configmaps", json!({"metadata": {"name": "owned", "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "{uid:configmaps/owner}"},
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "{uid:configmaps/other}"}]}})),
            post("configmaps", owned("witness", "owner", false)),
            delete("configmaps/owner"),
            get("configmaps/witness").until(404),
            get("configmaps/other"),
        ]),
        script("a namespace takes everything with it", vec![
            post("configmaps", config("a")),
            post("secrets", json!({"metadata": {"name": "s"}})),
            post("pods", pod("p", json!({}))),
            delete("namespaces/{ns}"),
            get("namespaces/{ns}").until(404),
            get("configmaps/a"),
            get("pods/p"),
        ]),
    ]
}

//! Binding, eviction, tokens, reviews.

use serde_json::json;

use super::script::{Script, delete, get, merge, pod, post, put, script, strategic};

/// A signing request; only its first lines are looked at.
const REQUEST: &str = include_str!("request.b64");

pub(crate) fn scripts() -> Vec<Script> {
    vec![
        script("binding a pod", vec![
            post("pods", pod("p", json!({}))),
            post("pods/p/binding", json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}})),
            get("pods/p"),
            post("pods/p/binding", json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n2"}})),
            post("pods/missing/binding", json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "missing"}, "target": {"kind": "Node", "name": "n1"}})),
            post("pods", pod("q", json!({}))),
            post("pods/q/binding", json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "q", "annotations": {"a": "b"}}, "target": {"kind": "Node", "name": "n1"}})),
            get("pods/q"),
            post("pods", pod("gated", json!({"schedulingGates": [{"name": "example.com/gate"}]}))),
            post("pods/gated/binding", json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "gated"}, "target": {"kind": "Node", "name": "n1"}})),
        ]),
        script("evicting a pod", vec![
            post("pods", json!({"metadata": {"name": "p", "labels": {"app": "x"}}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "x"}]}})),
            merge("pods/p/status", json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})),
            post("poddisruptionbudgets", json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}})),
            post("pods/p/eviction", json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "{ns}"}})),
            merge("poddisruptionbudgets/b/status", json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}})),
            post("pods/p/eviction", json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "{ns}"}})),
            merge("poddisruptionbudgets/b/status", json!({"status": {"disruptionsAllowed": 1}})),
            post("pods/p/eviction", json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "{ns}"}})),
            get("poddisruptionbudgets/b"),
            get("pods/p"),
            post("pods", pod("free", json!({}))),
            post("pods/free/eviction", json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "free", "namespace": "{ns}"}})),
            get("pods/free"),
            post("pods/missing/eviction", json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "missing", "namespace": "{ns}"}})),
        ]),
        script("tokens", vec![
            post("serviceaccounts/default/token", json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"], "expirationSeconds": 3600}})),
            post("serviceaccounts/default/token", json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})),
            post("serviceaccounts/default/token", json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"], "expirationSeconds": 60}})),
            post("serviceaccounts/missing/token", json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"]}})),
            post("pods", pod("p", json!({}))),
            post("serviceaccounts/default/token", json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"], "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "{uid:pods/p}"}}})),
            post("serviceaccounts/default/token", json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"], "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "00000000-0000-0000-0000-000000000000"}}})),
            post("serviceaccounts/default/token", json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"], "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "missing"}}})),
        ]),
        script("subresources that are not there", vec![
            post("configmaps", json!({"metadata": {"name": "a"}})),
            get("configmaps/a/status"),
            merge("configmaps/a/status", json!({"data": {}})),
            post("pods", pod("p", json!({}))),
            get("pods/p/binding"),
            put("pods/p/eviction", json!({})),
            delete("pods/p/status"),
        ]),
        script("ephemeral containers and resize", vec![
            post("pods", pod("p", json!({"nodeName": "n1", "containers": [{"name": "c", "image": "x:1", "resources": {"requests": {"cpu": "1"}}}]}))),
            strategic("pods/p/ephemeralcontainers", json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox:1"}]}})),
            strategic("pods/p/resize", json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}})),
            get("pods/p"),
            post("pods", pod("q", json!({"containers": [{"name": "c", "image": "x:1", "resources": {"requests": {"cpu": "1"}}}]}))),
            strategic("pods/q/resize", json!({"spec": {"containers": [{"name": "c", "image": "y:2", "resources": {"requests": {"cpu": "2"}}}]}})),
            strategic("pods/q/resize", json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]}})),
            strategic("pods/q/resize", json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}}]}})),
            strategic("pods/q/ephemeralcontainers", json!({"metadata": {"labels": {"a": "b"}}, "spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox:1"}], "nodeName": "n1"}})),
        ]),
        script("signing requests", vec![
            post("certificatesigningrequests", json!({"metadata": {"name": "{ns}"}, "spec": {"signerName": "example.com/x", "usages": ["client auth"], "request": REQUEST}})),
            merge("certificatesigningrequests/{ns}/approval", json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "R", "message": "m"}]}})),
            merge("certificatesigningrequests/{ns}", json!({"spec": {"signerName": "example.com/y"}, "metadata": {"labels": {"a": "b"}}})),
            merge("certificatesigningrequests/{ns}/status", json!({"status": {"certificate": "LS0="}})),
            delete("certificatesigningrequests/{ns}"),
        ]),
        script("a namespace's own endpoints", vec![
            merge("namespaces/{ns}", json!({"metadata": {"labels": {"a": "b"}}, "spec": {"finalizers": []}, "status": {"phase": "Terminating"}})),
            merge("namespaces/{ns}/status", json!({"status": {"conditions": [{"type": "X", "status": "True"}]}})),
            put("namespaces/{ns}/finalize", json!({"metadata": {"name": "{ns}"}, "spec": {"finalizers": ["kubernetes", "example.com/x"]}})),
            get("namespaces/{ns}"),
            delete("namespaces/{ns}"),
            put("namespaces/{ns}/finalize", json!({"metadata": {"name": "{ns}"}, "spec": {}})),
            get("namespaces/{ns}"),
        ]),
        script("content types", vec![
            post("configmaps", json!({"metadata": {"name": "a"}})).sent_as("text/plain"),
            post("configmaps", json!({"metadata": {"name": "a"}})).sent_as("application/json; charset=utf-8"),
            merge("configmaps/a", json!({})).sent_as("application/json"),
            merge("configmaps/a", json!([1])),
            merge("configmaps/a", json!({"data": {"a": 1}})),
            merge("configmaps/a", json!({"kind": "Secret"})),
            merge("configmaps/a?fieldValidation=Sometimes", json!({"data": {"a": "1"}})),
        ]),
        script("reviews", vec![
            post("selfsubjectreviews", json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})).sent_as("application/json"),
            get("selfsubjectaccessreviews"),
            post("subjectaccessreviews", json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "admin", "groups": ["system:masters"], "resourceAttributes": {"verb": "get", "resource": "pods"}}})),
            post("selfsubjectaccessreviews", json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}})),
        ]),
    ]
}

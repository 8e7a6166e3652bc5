//! Who one is and what one may: tokens, signing requests, reviews.

use serde_json::Value;

use super::script::{Script, Step, apply, delete, get, json_patch, merge, pod, post, put, script};

/// Signing requests and a certificate; the second asks for a node's serving certificate.
const REQUEST: &str = include_str!("request.b64");
const SERVING: &str = include_str!("serving.b64");
const CERTIFICATE: &str = include_str!("certificate.b64");

const OTHER_UID: &str = "00000000-0000-0000-0000-000000000000";

/// A token of the default account.
fn token(spec: Value) -> Step {
    token_of("default", spec)
}

fn token_of(account: &str, spec: Value) -> Step {
    post(&format!("serviceaccounts/{account}/token"), json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}))
}

fn bound(kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid})
}

fn request(name: &str, spec: Value) -> Value {
    let mut request = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"signerName": "kubernetes.io/kubelet-serving", "usages": ["digital signature", "server auth"], "request": SERVING},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        request["spec"][key] = value.clone();
    }
    request
}

fn access(attributes: Value) -> Step {
    post("selfsubjectaccessreviews", json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": attributes}))
}

fn access_of(user: &str, attributes: Value) -> Step {
    post("subjectaccessreviews", json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": user, "resourceAttributes": attributes}}))
}

/// With a time: a server gives each that has none the second in which it comes, so the same words a second later would be a change.
fn condition(type_: &str, status: &str) -> Value {
    json!({"type": type_, "status": status, "reason": "R", "message": "m", "lastUpdateTime": "2026-01-02T03:04:05Z"})
}

fn approval(conditions: Value) -> Step {
    merge("certificatesigningrequests/{ns}/approval", json!({"status": {"conditions": conditions}}))
}

pub(crate) fn scripts() -> Vec<Script> {
    vec![
        script("tokens", vec![
            token(json!({"audiences": ["a"], "expirationSeconds": 3600})),
            token(json!({})),
            token(json!({"audiences": ["a"], "expirationSeconds": 60})),
            token(json!({"audiences": ["a"], "expirationSeconds": 4_294_967_297_i64})),
            token(json!({"audiences": ["a"], "expirationSeconds": 86400})),
            token_of("missing", json!({"audiences": ["a"]})),
            post("pods", pod("p", json!({}))),
            token(json!({"audiences": ["a"], "boundObjectRef": bound("Pod", "p", "{uid:pods/p}")})),
            token(json!({"audiences": ["a"], "boundObjectRef": bound("Pod", "p", OTHER_UID)})),
            token(json!({"audiences": ["a"], "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "missing"}})),
            token(json!({"audiences": ["a"], "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}})),
            post("serviceaccounts", json!({"metadata": {"name": "other"}})),
            token_of("other", json!({"audiences": ["a"], "boundObjectRef": bound("Pod", "p", "{uid:pods/p}")})),
            token_of("other", json!({"audiences": ["a"], "boundObjectRef": bound("Pod", "p", OTHER_UID)})),
            post("pods", pod("q", json!({"serviceAccountName": "other", "nodeName": "n1"}))),
            token_of("other", json!({"audiences": ["a"], "boundObjectRef": bound("Pod", "q", "{uid:pods/q}")})),
            token(json!({"audiences": ["a"], "boundObjectRef": bound("Pod", "q", "{uid:pods/q}")})),
            delete("serviceaccounts/other"),
            token_of("other", json!({"audiences": ["a"], "boundObjectRef": bound("Pod", "q", "{uid:pods/q}")})),
        ]),
        script("tokens that live longer than they say", vec![
            post("pods", pod("p", json!({"nodeName": "{ns}"}))),
            post("nodes", json!({"metadata": {"name": "{ns}"}})),
            token(json!({"expirationSeconds": 3607, "boundObjectRef": bound("Pod", "p", "{uid:pods/p}")})),
            token(json!({"expirationSeconds": 3607, "audiences": ["https://kubernetes.default.svc.cluster.local"], "boundObjectRef": bound("Pod", "p", "{uid:pods/p}")})),
            token(json!({"expirationSeconds": 3607, "audiences": ["a"], "boundObjectRef": bound("Pod", "p", "{uid:pods/p}")})),
            token(json!({"expirationSeconds": 3607})),
            token(json!({"expirationSeconds": 3606, "boundObjectRef": bound("Pod", "p", "{uid:pods/p}")})),
            delete("nodes/{ns}"),
        ]),
        script("tokens bound to other things", vec![
            post("secrets", json!({"metadata": {"name": "s"}})),
            token(json!({"boundObjectRef": bound("Secret", "s", "{uid:secrets/s}")})),
            token(json!({"boundObjectRef": bound("Secret", "s", OTHER_UID)})),
            token(json!({"boundObjectRef": bound("Secret", "missing", "")})),
            post("nodes", json!({"metadata": {"name": "{ns}"}})),
            token(json!({"boundObjectRef": bound("Node", "{ns}", "{uid:nodes/{ns}}")})),
            token(json!({"boundObjectRef": bound("Node", "{ns}", OTHER_UID)})),
            token(json!({"boundObjectRef": bound("ConfigMap", "x", "")})),
            token(json!({"boundObjectRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}})),
            token(json!({"boundObjectRef": {}})),
            delete("nodes/{ns}"),
            post("serviceaccounts/default/token", json!({"metadata": {"name": "x"}, "spec": {}})),
            post("serviceaccounts/default/token", json!({"metadata": {"name": "default", "namespace": "x"}, "spec": {}})),
            post("serviceaccounts/default/token", json!({"metadata": {"uid": OTHER_UID}, "spec": {}})),
            post("serviceaccounts/default/token", json!({"kind": "Pod", "apiVersion": "v1", "spec": {}})),
            get("serviceaccounts/default/token"),
        ]),
        script("signing requests", vec![
            post("certificatesigningrequests", json!({"metadata": {"name": "{ns}"}, "spec": {"signerName": "example.com/x", "usages": ["client auth"], "request": REQUEST}})),
            approval(json!([condition("Approved", "True")])),
            merge("certificatesigningrequests/{ns}", json!({"spec": {"signerName": "example.com/y"}, "metadata": {"labels": {"a": "b"}}})),
            merge("certificatesigningrequests/{ns}/status", json!({"status": {"certificate": "LS0="}})),
            delete("certificatesigningrequests/{ns}"),
        ]),
        script("a serving certificate", vec![
            post("certificatesigningrequests", request("{ns}", json!({"username": "someone", "groups": ["system:masters"], "uid": "u"}))),
            post("certificatesigningrequests", request("{ns}", json!({}))),
            get("certificatesigningrequests?fieldSelector=spec.signerName%3Dnobody.io/x"),
            get("certificatesigningrequests/{ns}/approval"),
            merge("certificatesigningrequests/{ns}", json!({"status": {"conditions": [condition("Approved", "True")]}})),
            merge("certificatesigningrequests/{ns}/status", json!({"status": {"conditions": [condition("Approved", "True")]}})),
            approval(json!([condition("Approved", "False")])),
            approval(json!([condition("Approved", "")])),
            approval(json!([{"type": "", "status": "True"}])),
            merge("certificatesigningrequests/{ns}/approval", json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "R", "message": "m"}], "certificate": CERTIFICATE}})),
            approval(json!([condition("Approved", "True")])),
            approval(json!([condition("Approved", "True"), condition("Denied", "True")])),
            approval(json!([condition("Approved", "True"), condition("Approved", "True")])),
            approval(json!([])),
            approval(json!([{"type": "Approved", "status": "True", "reason": "Other", "message": "m"}])),
            merge("certificatesigningrequests/{ns}/status", json!({"status": {"certificate": CERTIFICATE}})),
            merge("certificatesigningrequests/{ns}/status", json!({"status": {"certificate": REQUEST}})),
            merge("certificatesigningrequests/{ns}/status", json!({"metadata": {"labels": {"a": "b"}}, "spec": {"signerName": "x"}, "status": {"conditions": [condition("Approved", "True"), condition("Failed", "True")]}})),
            merge("certificatesigningrequests/{ns}/status", json!({"status": {"conditions": [condition("Approved", "True")]}})),
            merge("certificatesigningrequests/{ns}/approval", json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}})),
            get("certificatesigningrequests/{ns}"),
            delete("certificatesigningrequests/{ns}"),
        ]),
        script("approving by put", vec![
            post("certificatesigningrequests", request("{ns}", json!({"expirationSeconds": 3600}))),
            put("certificatesigningrequests/{ns}/approval", {
                let mut approved = request("{ns}", json!({}));
                approved["status"] = json!({"conditions": [condition("Approved", "True")]});
                approved
            }),
            json_patch("certificatesigningrequests/{ns}/approval", json!([{"op": "add", "path": "/status/conditions/-", "value": condition("Denied", "True")}])),
            put("certificatesigningrequests/{ns}", request("{ns}", json!({}))),
            delete("certificatesigningrequests/{ns}"),
            apply("certificatesigningrequests/{ns}", "one", request("{ns}", json!({}))),
            apply("certificatesigningrequests/{ns}", "one", request("{ns}", json!({}))),
            apply("certificatesigningrequests/{ns}/approval", "one", json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "{ns}"}, "status": {"conditions": [condition("Denied", "True")]}})),
            apply("certificatesigningrequests/{ns}/approval", "one", json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "{ns}"}, "status": {"conditions": [condition("Denied", "True")]}})),
            delete("certificatesigningrequests/{ns}"),
        ]),
        script("a signing request that is refused", vec![
            post("certificatesigningrequests", request("{ns}", json!({"request": "LS0="}))),
            post("certificatesigningrequests", request("{ns}", json!({"request": null}))),
            post("certificatesigningrequests", request("{ns}", json!({"usages": []}))),
            post("certificatesigningrequests", request("{ns}", json!({"usages": ["client auth", "client auth"]}))),
            post("certificatesigningrequests", request("{ns}", json!({"usages": ["flying"]}))),
            post("certificatesigningrequests", request("{ns}", json!({"signerName": "kubernetes.io/legacy-unknown"}))),
            post("certificatesigningrequests", request("{ns}", json!({"signerName": "nobody"}))),
            post("certificatesigningrequests", request("{ns}", json!({"signerName": ""}))),
            post("certificatesigningrequests", request("{ns}", json!({"expirationSeconds": 60}))),
        ]),
        script("reviews", vec![
            post("selfsubjectreviews", json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})),
            post("selfsubjectreviews", json!({})),
            get("selfsubjectreviews"),
            get("selfsubjectaccessreviews"),
            post("subjectaccessreviews", json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "admin", "groups": ["system:masters"], "resourceAttributes": {"verb": "get", "resource": "pods"}}})),
            access_of("nobody", json!({"verb": "get", "resource": "pods"})),
            access_of("nobody", json!({"verb": "create", "group": "apps", "resource": "deployments", "subresource": "scale", "namespace": "x", "name": "y"})),
            access_of("", json!({"verb": "get", "resource": "pods"})),
            access(json!({"resourceAttributes": {"verb": "get", "resource": "pods"}})),
            access(json!({"resourceAttributes": {"verb": "*", "group": "*", "resource": "*"}})),
            access(json!({"resourceAttributes": {"verb": "patch", "group": "", "version": "v1", "resource": "pods", "subresource": "status", "namespace": "{ns}", "name": "p"}})),
            access(json!({"nonResourceAttributes": {"path": "/healthz", "verb": "get"}})),
            access(json!({})),
            access(json!({"resourceAttributes": {"verb": "get", "resource": "pods"}, "nonResourceAttributes": {"path": "/healthz", "verb": "get"}})),
            access(json!({"resourceAttributes": {"verb": "get", "resource": "pods"}, "colour": "blue"})),
            post("selfsubjectaccessreviews", json!({"metadata": {"name": "x"}, "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}})),
            post("selfsubjectaccessreviews", json!({"apiVersion": "v1", "kind": "Pod", "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}})),
            post("selfsubjectaccessreviews?dryRun=All", json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}})),
            post("localsubjectaccessreviews", json!({"metadata": {"namespace": "{ns}"}, "spec": {"user": "nobody", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "{ns}"}}})),
            post("localsubjectaccessreviews", json!({"spec": {"user": "nobody", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "other"}}})),
            post("selfsubjectrulesreviews", json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "{ns}"}})),
            post("selfsubjectrulesreviews", json!({"spec": {}})),
        ]),
    ]
}

//! What a cluster knows of its metrics-server: rights, a Service that leads to it, and the API that it serves.
//!
//! The rights are those of its own manifests, no more: what a kubelet, or one who answers as a kubelet, refuses it here, it refuses it anywhere.

use std::net::Ipv4Addr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use serde_json::{Value, json};

use crate::error::Error;
use crate::ready;

/// Beside the API server, on its address.
pub(crate) const PORT: u16 = 4443;

/// Who it is to the API server and to kubelets.
pub(crate) const USER: &str = "metrics-server";

/// The name that the API server wants to see in its certificate.
pub(crate) const HOST: &str = "metrics-server.kube-system.svc";

const NAME: &str = "metrics-server";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Puts its objects there.
pub(crate) async fn publish(
    client: &kube::Client,
    address: Ipv4Addr,
    authority_pem: &str,
) -> Result<(), kube::Error> {
    for (path, object) in objects(address, authority_pem) {
        let path = format!("{path}?fieldManager=kubeocean-sandbox&force=true");
        let request = Request::patch(path)
            .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(object.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        client.request::<Value>(request).await?;
    }
    Ok(())
}

/// Looks until what was granted has reached the API server's authorizer.
pub(crate) async fn may_start(client: &kube::Client, cluster: &str) -> Result<(), Error> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": USER,
            "resourceAttributes": {
                "namespace": "kube-system", "verb": "list", "resource": "configmaps",
                "name": "extension-apiserver-authentication",
            },
        },
    });
    ready::until(&format!("the rights of metrics-server in {cluster}"), async || {
        let request = Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(review.to_string().into_bytes())
            .map_err(|error| error.to_string())?;
        let answer: Value = client.request(request).await.map_err(|error| error.to_string())?;
        if answer["status"]["allowed"] == true { Ok(()) } else { Err("not granted yet".to_owned()) }
    })
    .await
}

/// Paths and objects, in the order in which they are needed.
fn objects(address: Ipv4Addr, authority_pem: &str) -> Vec<(String, Value)> {
    let role = |name: &str, labels: Value, rules: Value| {
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": name, "labels": labels }, "rules": rules,
        });
        (format!("{RBAC}/clusterroles/{name}"), object)
    };
    let grant = |name: &str, of: &str| {
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": name }, "roleRef": reference("ClusterRole", of), "subjects": [subject()],
        });
        (format!("{RBAC}/clusterrolebindings/{name}"), object)
    };
    let auth_reader = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "metrics-server-auth-reader" },
        "roleRef": reference("Role", "extension-apiserver-authentication-reader"), "subjects": [subject()],
    });
    let aggregated = ["view", "edit", "admin"]
        .map(|role| (format!("rbac.authorization.k8s.io/aggregate-to-{role}"), json!("true")));
    vec![
        role(
            "system:aggregated-metrics-reader",
            Value::Object(aggregated.into_iter().collect()),
            json!([{ "apiGroups": ["metrics.k8s.io"], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"] }]),
        ),
        role(
            "system:metrics-server",
            json!({}),
            json!([
                { "apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"] },
                { "apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"] },
            ]),
        ),
        grant("system:metrics-server", "system:metrics-server"),
        grant("metrics-server:system:auth-delegator", "system:auth-delegator"),
        (format!("{RBAC}/namespaces/kube-system/rolebindings/metrics-server-auth-reader"), auth_reader),
        (format!("/api/v1/namespaces/kube-system/services/{NAME}"), service()),
        (format!("/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/{NAME}"), slice(address)),
        ("/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io".to_owned(), api(authority_pem)),
    ]
}

fn reference(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name })
}

fn subject() -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER })
}

/// Without a selector: it runs beside the API server, not in a pod.
fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": NAME },
        "spec": { "ports": [{ "name": "https", "protocol": "TCP", "port": 443, "targetPort": PORT }] },
    })
}

fn slice(address: Ipv4Addr) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": { "name": NAME, "labels": { "kubernetes.io/service-name": NAME } },
        "addressType": "IPv4",
        "ports": [{ "name": "https", "protocol": "TCP", "port": PORT }],
        "endpoints": [{ "addresses": [address], "conditions": { "ready": true } }],
    })
}

fn api(authority_pem: &str) -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": "v1beta1.metrics.k8s.io" },
        "spec": {
            "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": { "name": NAME, "namespace": "kube-system", "port": 443 },
            "caBundle": STANDARD.encode(authority_pem),
        },
    })
}

//! The admission fences around our own identities, tried from inside.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use kubeocean_sandbox::Cluster;
use serde_json::{Value, json};

use crate::access::{attempt, client, kubectl, until};
use crate::installing::{INSTALLED, MANAGER, PROXIER, SYNCER, create, installed, node};

const NODES: &str = "/api/v1/nodes";
const CSI_NODES: &str = "/apis/storage.k8s.io/v1/csinodes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const ROLE_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const PODS: &str = "/api/v1/namespaces/default/pods";
const PLACEHOLDERS: &str = "/api/v1/namespaces/kubeocean-fake/pods";
const BINDINGS: &str = "/apis/cloud.tencent.com/v1beta1/clusterbindings";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SERVING: &str = "kubernetes.io/kubelet-serving";
const TOKENS: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";
const SYSTEM_TOKENS: &str = "/api/v1/namespaces/kube-system/serviceaccounts/default/token";
const MANAGER_TOKENS: &str = "/api/v1/namespaces/kubeocean-system/serviceaccounts/kubeocean-manager/token";

/// What is tried, method, path and body.
type Try = (&'static str, &'static str, String, Value);

#[tokio::test]
async fn a_syncer_touches_what_is_its_own_worker_clusters_and_nothing_else() {
    let (_sandbox, computing) = installed().await;
    let admin = computing.client().await.unwrap();
    populate(&admin).await;
    let uid = kubectl(&computing, "get pod ours -o jsonpath={.metadata.uid}", "");
    let syncer = client(&computing.kubeconfig(), Some(SYNCER)).await;
    for (what, method, path, body) in needed(&uid) {
        let answer = attempt(&syncer, method, &path, &body).await;
        assert!(answer.is_ok(), "a syncer has to be able to {what}: {answer:?}");
    }
    for (what, method, path, body) in forbidden(&uid) {
        match attempt(&syncer, method, &path, &body).await {
            Err((403, words)) if words.contains("ValidatingAdmissionPolicy 'kubeocean-syncer-") => {}
            other => panic!("a syncer must not {what}: {other:?}"),
        }
    }
    proxiers_write_neither_leases_nor_pods(&computing).await;
    nor_does_anybody_else_who_lives_beside_us(&computing).await;
    // The fences are around us alone.
    attempt(&admin, "PATCH", &format!("{NODES}/real"), &labelled("a", "b")).await.unwrap();
}

#[tokio::test]
async fn the_manager_touches_virtual_nodes_and_its_own_two_roles_and_nothing_else() {
    let (_sandbox, computing) = installed().await;
    let admin = computing.client().await.unwrap();
    for name in ["vnode-rome-n1", "iron"] {
        create(&admin, NODES, &node(name, "rome")).await.unwrap();
        create(&admin, LEASES, &lease(name)).await.unwrap();
    }
    let manager = client(&computing.kubeconfig(), Some(MANAGER)).await;
    for (what, method, path) in [
        ("take the finalizer of a virtual node", "PATCH", at(NODES, "vnode-rome-n1")),
        ("remove a virtual node", "DELETE", at(NODES, "vnode-rome-n1")),
        ("remove its Lease", "DELETE", at(LEASES, "vnode-rome-n1")),
        ("take a syncer's role", "DELETE", at(ROLE_BINDINGS, "kubeocean-syncer-berlin")),
    ] {
        let body = if method == "PATCH" { labelled("a", "b") } else { Value::Null };
        let answer = attempt(&manager, method, &path, &body).await;
        assert!(answer.is_ok(), "the manager has to be able to {what}: {answer:?}");
    }
    let hold = "/apis/coordination.k8s.io/v1/namespaces/kubeocean-system/leases";
    attempt(&manager, "POST", hold, &lease("kubeocean-manager-leader")).await.unwrap();
    for (what, method, path) in [
        ("label a real node", "PATCH", at(NODES, "iron")),
        ("remove a real node", "DELETE", at(NODES, "iron")),
        ("remove the Lease of a real node", "DELETE", at(LEASES, "iron")),
        ("take the administrators' role", "DELETE", at(ROLE_BINDINGS, "cluster-admin")),
    ] {
        let body = if method == "PATCH" { labelled("a", "b") } else { Value::Null };
        match attempt(&manager, method, &path, &body).await {
            Err((403, words)) if words.contains("ValidatingAdmissionPolicy 'kubeocean-manager-") => {}
            other => panic!("the manager must not {what}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_proxier_asks_to_serve_in_its_own_name_and_the_manager_approves_nobody_else() {
    let (_sandbox, computing) = installed().await;
    let admin = computing.client().await.unwrap();
    let proxier = client(&computing.kubeconfig(), Some(PROXIER)).await;
    let manager = client(&computing.kubeconfig(), Some(MANAGER)).await;
    let good = "kubeocean-proxier-berlin-1";
    let serve = ["digital signature", "server auth"];
    create(&proxier, REQUESTS, &signing_request(good, SERVING, &serve)).await.unwrap();
    let client_signer = "kubernetes.io/kube-apiserver-client";
    for (what, request) in [
        ("ask to call", signing_request("kubeocean-proxier-berlin-2", client_signer, &["client auth"])),
        (
            "ask to call as a node",
            signing_request("kubeocean-proxier-berlin-3", SERVING, &["digital signature", "client auth"]),
        ),
        ("ask in another's name", signing_request("kubeocean-proxier-paris-1", SERVING, &serve)),
    ] {
        match attempt(&proxier, "POST", REQUESTS, &request).await {
            Err((403, words))
                if words.contains("ValidatingAdmissionPolicy 'kubeocean-proxier-certificates'") => {}
            other => panic!("a proxier must not {what}: {other:?}"),
        }
    }
    create(&admin, REQUESTS, &signing_request("node-1", SERVING, &serve)).await.unwrap();
    let approved = approval();
    match attempt(&manager, "PATCH", &at(REQUESTS, "node-1/approval"), &approved).await {
        Err((403, words)) if words.contains("ValidatingAdmissionPolicy 'kubeocean-manager-certificates'") => {
        }
        other => panic!("the manager must not approve what others ask for: {other:?}"),
    }
    attempt(&proxier, "PATCH", &at(REQUESTS, &format!("{good}/approval")), &approved).await.unwrap_err();
    attempt(&manager, "PATCH", &at(REQUESTS, &format!("{good}/approval")), &approved).await.unwrap();
}

fn approval() -> Value {
    let condition = json!({ "type": "Approved", "status": "True", "reason": "Test", "message": "a test" });
    json!({ "status": { "conditions": [condition] } })
}

fn signing_request(name: &str, signer: &str, usages: &[&str]) -> Value {
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": { "name": name },
        "spec": { "signerName": signer, "usages": usages, "request": STANDARD.encode(pem) },
    })
}

/// The shipped roles name all accounts of our namespace.
async fn nor_does_anybody_else_who_lives_beside_us(computing: &Cluster) {
    let neighbour = format!("system:serviceaccount:{INSTALLED}:default");
    let other = client(&computing.kubeconfig(), Some(&neighbour)).await;
    for (path, body) in [
        (LEASES, lease("iron")),
        (LEASES, lease("vnode-berlin-n4")),
        (PLACEHOLDERS, pod("sly", "vnode-berlin-n1")),
    ] {
        let (code, words) = attempt(&other, "POST", path, &body).await.unwrap_err();
        assert!(
            code == 403 && words.contains("only syncers and the manager write Leases"),
            "{path}: {words}"
        );
    }
}

async fn proxiers_write_neither_leases_nor_pods(computing: &Cluster) {
    let proxier = client(&computing.kubeconfig(), Some(PROXIER)).await;
    for (path, body) in
        [(LEASES, lease("vnode-berlin-n3")), (PLACEHOLDERS, pod("placeholder", "vnode-berlin-n1"))]
    {
        let (code, words) = attempt(&proxier, "POST", path, &body).await.unwrap_err();
        assert!(code == 403 && words.contains("a proxier writes no Leases and no pods"), "{path}: {words}");
    }
}

/// A virtual node of Berlin, one of Paris and a real one; each with a Lease and a pod. Both bindings.
async fn populate(admin: &Client) {
    for name in ["vnode-berlin-n1", "vnode-paris-n1", "real"] {
        let cluster = name.split('-').nth(1).unwrap_or("none");
        create(admin, NODES, &node(name, cluster)).await.unwrap();
        create(admin, LEASES, &lease(name)).await.unwrap();
    }
    for (name, node) in [("ours", "vnode-berlin-n1"), ("theirs", "vnode-paris-n1"), ("real", "real")] {
        // A namespace has its service account a moment after it has its name.
        until("a pod is made", async || {
            create(admin, PODS, &pod(name, node)).await.map_err(|error| error.to_string())
        })
        .await;
    }
    for name in ["berlin", "paris"] {
        create(admin, BINDINGS, &binding(name)).await.unwrap();
    }
}

#[rustfmt::skip] // a table: one attempt, one line
fn needed(uid: &str) -> Vec<Try> {
    vec![
        ("make a virtual node", "POST", NODES.into(), node("vnode-berlin-n2", "berlin")),
        ("label it", "PATCH", at(NODES, "vnode-berlin-n1"), labelled("a", "b")),
        ("say how it is", "PATCH", at(NODES, "vnode-berlin-n1/status"), running()),
        ("remove it", "DELETE", at(NODES, "vnode-berlin-n1"), Value::Null),
        ("mirror its drivers", "POST", CSI_NODES.into(), csi_node("vnode-berlin-n1", "berlin")),
        ("make its Lease", "POST", LEASES.into(), lease("vnode-berlin-n2")),
        ("renew its Lease", "PATCH", at(LEASES, "vnode-berlin-n1"), renewed()),
        ("reserve host ports", "POST", PLACEHOLDERS.into(), pod("placeholder", "vnode-berlin-n1")),
        ("say how a pod is", "PATCH", at(PODS, "ours/status"), running()),
        ("remove a pod", "DELETE", at(PODS, "ours"), Value::Null),
        ("evict a pod", "POST", at(PODS, "ours/eviction"), eviction("ours")),
        ("bring a pod's token along", "POST", TOKENS.into(), token(Some(uid), 3600)),
        ("put its finalizer", "PATCH", at(BINDINGS, "berlin"), finalizer()),
        ("count", "PATCH", at(BINDINGS, "berlin/status"), counts()),
    ]
}

#[rustfmt::skip] // a table: one attempt, one line
fn forbidden(uid: &str) -> Vec<Try> {
    let bare = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "vnode-berlin-n3" } });
    let cluster = |id| labelled("kubeocean.io/physical-cluster-id", id);
    let other_secret = json!({ "spec": { "secretRef": { "name": "mine" } } });
    vec![
        ("make another's virtual node", "POST", NODES.into(), node("vnode-paris-n2", "paris")),
        ("make a node of any name", "POST", NODES.into(), node("any", "berlin")),
        ("make one without a label", "POST", NODES.into(), bare),
        ("label a real node", "PATCH", at(NODES, "real"), labelled("a", "b")),
        ("take a real node", "PATCH", at(NODES, "real"), cluster("berlin")),
        ("say how a real node is", "PATCH", at(NODES, "real/status"), running()),
        ("remove a real node", "DELETE", at(NODES, "real"), Value::Null),
        ("remove another's virtual node", "DELETE", at(NODES, "vnode-paris-n1"), Value::Null),
        ("give one away", "PATCH", at(NODES, "vnode-berlin-n1"), cluster("paris")),
        ("mirror drivers of a real node", "POST", CSI_NODES.into(), csi_node("real", "berlin")),
        ("make a Lease of a real node", "POST", LEASES.into(), lease("another")),
        ("renew the Lease of a real node", "PATCH", at(LEASES, "real"), renewed()),
        ("remove the Lease of a real node", "DELETE", at(LEASES, "real"), Value::Null),
        ("renew another's Lease", "PATCH", at(LEASES, "vnode-paris-n1"), renewed()),
        ("reserve ports of a real node", "POST", PLACEHOLDERS.into(), pod("placeholder", "real")),
        ("say how a pod elsewhere is", "PATCH", at(PODS, "real/status"), running()),
        ("say how another's pod is", "PATCH", at(PODS, "theirs/status"), running()),
        ("remove a pod elsewhere", "DELETE", at(PODS, "real"), Value::Null),
        ("remove another's pod", "DELETE", at(PODS, "theirs"), Value::Null),
        ("evict a system pod", "POST", "/api/v1/namespaces/kube-system/pods/any/eviction".into(), eviction("any")),
        ("get a token of its own", "POST", TOKENS.into(), token(None, 3600)),
        ("get a token for long", "POST", TOKENS.into(), token(Some(uid), 7200)),
        ("get a system token", "POST", SYSTEM_TOKENS.into(), token(Some(uid), 3600)),
        ("become the manager", "POST", MANAGER_TOKENS.into(), token(Some(uid), 3600)),
        ("write on another's binding", "PATCH", at(BINDINGS, "paris"), finalizer()),
        ("count for another", "PATCH", at(BINDINGS, "paris/status"), counts()),
        ("change its binding", "PATCH", at(BINDINGS, "berlin"), other_secret),
    ]
}

fn at(collection: &str, name: &str) -> String {
    format!("{collection}/{name}")
}

fn labelled(key: &str, value: &str) -> Value {
    json!({ "metadata": { "labels": { key: value } } })
}

fn running() -> Value {
    json!({ "status": { "phase": "Running" } })
}

fn renewed() -> Value {
    json!({ "spec": { "holderIdentity": "someone" } })
}

fn finalizer() -> Value {
    json!({ "metadata": { "finalizers": ["kubeocean.io/clusterbinding-syncer"] } })
}

fn counts() -> Value {
    json!({ "status": { "nodes": 1 } })
}

fn lease(name: &str) -> Value {
    json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name } })
}

fn eviction(name: &str) -> Value {
    json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name } })
}

fn csi_node(name: &str, cluster: &str) -> Value {
    let mut csi_node = node(name, cluster);
    csi_node["apiVersion"] = "storage.k8s.io/v1".into();
    csi_node["kind"] = "CSINode".into();
    csi_node["spec"] = json!({ "drivers": [] });
    csi_node
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "nodeName": node,
            "containers": [{ "name": "main", "image": "example.com/nothing" }],
            "tolerations": [{ "operator": "Exists" }],
        },
    })
}

fn binding(name: &str) -> Value {
    json!({
        "apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding", "metadata": { "name": name },
        "spec": {
            "clusterID": name, "mountNamespace": "kubeocean-worker",
            "secretRef": { "name": format!("{name}-kubeconfig"), "namespace": INSTALLED },
        },
    })
}

fn token(pod: Option<&str>, seconds: u32) -> Value {
    let mut request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "expirationSeconds": seconds },
    });
    if let Some(uid) = pod {
        request["spec"]["boundObjectRef"] =
            json!({ "apiVersion": "v1", "kind": "Pod", "name": "ours", "uid": uid });
    }
    request
}

//! Workers inside of the manager's process, with exactly the rights that are shipped for that: `config/inline`.

use std::net::TcpListener;

use kubeocean_api::keys::labels::{BINDING_UID, MANAGED_BY, MANAGED_BY_VALUE};
use kubeocean_api::keys::names::{FAKE_NAMESPACE, INSTALL_NAMESPACE, WORKER_NAMESPACE};
use kubeocean_sandbox::{COMPUTING, Spec};
use serde_json::{Value, json};

use super::place::{Place, apply, condition, get, text};
use super::rights::{apply_all, kubeconfig, manifest};
use super::vnodes::{all_are, policies, policy, usable};
use super::workloads::pod;
use crate::access::{kubectl, until};

const W1: (&str, usize) = ("w1", 2);

const PODS: &str = "/api/v1/namespaces/default/pods";

/// What of ours can be in a mount namespace.
const IN_WORKER: [&str; 6] = [
    "v1/namespaces/{}/pods",
    "v1/namespaces/{}/configmaps",
    "v1/namespaces/{}/secrets",
    "v1/namespaces/{}/persistentvolumeclaims",
    "v1/namespaces/{}/services",
    "v1/persistentvolumes",
];

#[tokio::test]
async fn a_manager_that_runs_the_workers_itself_needs_no_right_that_is_not_shipped() {
    let place = Place::of(Spec::new().workers(1, W1.1, 0)).await;
    let worker = place.worker("worker-1");
    let lender = worker.client().await.unwrap();
    apply_all(&lender, &manifest(WORKER_NAMESPACE)).await;
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config");
    for part in ["-k rbac", "-k admission", "-f inline/roles.yaml"] {
        let (flag, path) = part.split_once(' ').unwrap();
        kubectl(place.worker(COMPUTING), &format!("apply --server-side {flag} {config}/{path}"), "");
    }
    let account = place.kubeconfig_of(INSTALL_NAMESPACE, "kubeocean-manager").await;
    // The usual port may be that of a kubelet of this machine.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let port = format!("--listen-port={port}");
    let mut manager =
        place.manager_as(&account, "manager", &["--worker-mode=inline", "--leader-elect", &port]);
    place.secret("s1", &kubeconfig(worker, WORKER_NAMESPACE)).await;
    place.bind(W1.0, "s1", WORKER_NAMESPACE).await;
    let bound = place.all_ready([W1.0]).await;
    let uid = text(&bound[W1.0]["metadata"]["uid"]);
    apply(&place.virt, &policies(), &policy(W1.0, &json!({}))).await;
    all_are(&place, W1, "the virtual nodes are usable", usable).await;
    place.binding(W1.0, "leasing", |binding| condition(binding, "Leasing")["status"] == "True").await;

    until("there is a service account for pods", async || {
        get(&place.virt, "/api/v1/namespaces/default/serviceaccounts/default").await
    })
    .await;
    apply(&place.virt, PODS, &pod("app", &json!({}))).await;
    until("it runs in the worker cluster", async || {
        let app = get(&place.virt, &format!("{PODS}/app")).await?;
        let twins = of_ours(&lender, IN_WORKER[0], &uid).await?;
        let address = twins.first().map(|twin| twin["status"]["podIP"].clone()).unwrap_or_default();
        let status = &app["status"];
        if status["phase"] == "Running" && !address.is_null() && status["podIP"] == address {
            Ok(())
        } else {
            Err(format!("{status:#} {twins:#?}"))
        }
    })
    .await;

    // With the pod still there: its twin goes with the binding.
    place.unbind(W1.0, "Background").await;
    until("the binding is gone", async || {
        let left = place.bindings().await?;
        if left.is_empty() { Ok(()) } else { Err(format!("{left:#?}")) }
    })
    .await;
    all_are(&place, (W1.0, 0), "its virtual nodes are gone", |_| true).await;
    until("nothing is left on either side", async || {
        let mut left: Vec<String> = place.ours().await?.iter().map(|one| format!("{one:?}")).collect();
        left.retain(|one| one.contains(&uid));
        for kind in IN_WORKER {
            left.extend(of_ours(&lender, kind, &uid).await?.iter().map(|one| one["metadata"].to_string()));
        }
        let fakes = of_ours(&place.virt, &format!("v1/namespaces/{FAKE_NAMESPACE}/pods"), &uid).await?;
        left.extend(fakes.iter().map(|one| one["metadata"].to_string()));
        if left.is_empty() { Ok(()) } else { Err(left.join("\n")) }
    })
    .await;

    assert!(manager.is_running(), "{}", manager.said());
    let refused: Vec<Value> = manager
        .writes()
        .into_iter()
        .filter(|write| text(&write["outcome"]).starts_with("forbidden"))
        .collect();
    assert!(refused.is_empty(), "more rights were wanted than are shipped: {refused:#?}");
    let refused = manager.metric("kubeocean_requests_total", "code=\"403\"");
    // The lender has not lent volumes: that is found out by asking.
    let volumes = manager.metric("kubeocean_requests_total", "resource=\"persistentvolumes\",code=\"403\"");
    let refused = refused - volumes;
    assert!(refused < 0.5, "{refused} requests were refused: {}", manager.said());
    drop(manager);
    place.stop().await;
}

/// What carries our mark and this binding's uid.
async fn of_ours(client: &kube::Client, kind: &str, uid: &str) -> Result<Vec<Value>, String> {
    let kind = kind.replace("{}", WORKER_NAMESPACE);
    let path = format!("/api/{kind}?labelSelector={MANAGED_BY}%3D{MANAGED_BY_VALUE},{BINDING_UID}%3D{uid}");
    Ok(get(client, &path).await?["items"].as_array().cloned().unwrap_or_default())
}

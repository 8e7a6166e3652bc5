//! Kubeconfigs that change while a worker cluster is bound.

use std::time::{Duration, Instant};

use kube::Client;
use kubeocean_api::keys::names::{BORROWER, IDENTITY_NAMESPACE, WORKER_NAMESPACE};
use serde_json::{Value, json};

use super::place::{Ours, Place, apply, condition, get, namespace, request, text};
use super::vnodes::{all_are, policies, policy, syncer, usable};
use crate::access::until;
use crate::manager::Manager;
use crate::support::{answer, kubeocean};

/// From the change of a Secret to the new connection.
const ROTATED_WITHIN: Duration = Duration::from_secs(5);

/// The identity that comes after [`IDENTITY_NAMESPACE`].
const NEXT_IDENTITY: &str = "next-identity";

/// What `kubeocean worker-kubeconfig` prints, for the borrower of this namespace.
fn kubeconfig(place: &Place, identity: &str) -> String {
    let path = place.worker("worker-1").kubeconfig_path().to_str().unwrap();
    let printed =
        answer(kubeocean(["worker-kubeconfig", "--kubeconfig", path, "--identity-namespace", identity]));
    assert_eq!(printed.code, Some(0), "{}", printed.err);
    printed.out
}

/// The lender applies what `kubeocean worker-manifest` prints, and gives a second identity the same roles.
async fn lend(place: &Place, lender: &Client) {
    let manifest = answer(kubeocean(["worker-manifest"]));
    let file = place.sandbox.directory().join("worker.yaml");
    std::fs::write(&file, manifest.out).unwrap();
    let mut kubectl = place.worker("worker-1").kubectl();
    let applied = kubectl
        .args(["apply", "--server-side", "--force-conflicts", "-f"])
        .arg(&file)
        .output()
        .await
        .unwrap();
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));

    apply(lender, "/api/v1/namespaces", &namespace(NEXT_IDENTITY)).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": BORROWER}});
    apply(lender, &format!("/api/v1/namespaces/{NEXT_IDENTITY}/serviceaccounts"), &account).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    for collection in
        [format!("{rbac}/clusterrolebindings"), format!("{rbac}/namespaces/{WORKER_NAMESPACE}/rolebindings")]
    {
        let all = get(lender, &collection).await.unwrap();
        let is_borrowers = |one: &&Value| one["subjects"][0]["namespace"] == IDENTITY_NAMESPACE;
        let mut binding = all["items"].as_array().unwrap().iter().find(is_borrowers).unwrap().clone();
        let kind = if collection.contains("/namespaces/") { "RoleBinding" } else { "ClusterRoleBinding" };
        binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "next"},
            "roleRef": binding["roleRef"], "subjects": binding["subjects"],
        });
        binding["subjects"][0]["namespace"] = NEXT_IDENTITY.into();
        apply(lender, &collection, &binding).await;
    }
}

fn speaks_as(binding: &Value, identity: &str) -> bool {
    let connected = condition(binding, "Connected");
    connected["status"] == "True"
        && text(&connected["message"]).contains(&format!("{identity}:{BORROWER} may do"))
}

/// Waits until the worker cluster was asked so often, and every time with success.
async fn looked_at(manager: &Manager, times: f64) {
    let asked = || manager.metric("kubeocean_requests_total", "cluster=\"workers\"");
    let refused = || manager.metric("kubeocean_requests_total", "code=\"401\"");
    let (before, refused_before) = (asked(), refused());
    until("the worker cluster is looked at", async || match asked() - before {
        more if more >= times => Ok(()),
        more => Err(format!("{more} times")),
    })
    .await;
    assert!(refused() <= refused_before, "the old token is still in use");
}

async fn deployments(place: &Place) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for Ours { kind, path, .. } in place.ours().await.unwrap() {
        if kind.ends_with("/deployments") {
            let deployment = get(&place.virt, &path).await.unwrap();
            all.push((path, deployment["metadata"]["generation"].clone()));
        }
    }
    all
}

#[tokio::test]
async fn a_new_kubeconfig_is_used_within_seconds_and_a_bad_one_costs_nothing() {
    let place = Place::new(1).await;
    let lender = place.worker("worker-1").client().await.unwrap();
    lend(&place, &lender).await;
    let mut manager = place.manager("manager-a", &["--leader-elect"]);
    let [first, next] = [IDENTITY_NAMESPACE, NEXT_IDENTITY].map(|identity| kubeconfig(&place, identity));
    place.secret("w1", &first).await;
    place.bind("one", "w1", WORKER_NAMESPACE).await;
    let bound = &place.all_ready(["one"]).await["one"];
    assert!(speaks_as(bound, IDENTITY_NAMESPACE), "{bound:#}");
    let running = deployments(&place).await;

    // Another identity, within five seconds, and from then on only that.
    let changed = Instant::now();
    place.secret("w1", &next).await;
    let rotated = place.binding("one", "rotated", |one| speaks_as(one, NEXT_IDENTITY)).await;
    println!("rotated after {:.2?}", changed.elapsed());
    assert!(changed.elapsed() <= ROTATED_WITHIN, "{:?}", changed.elapsed());
    assert_eq!(rotated["status"]["phase"], "Ready");
    let account = format!("/api/v1/namespaces/{IDENTITY_NAMESPACE}/serviceaccounts/{BORROWER}");
    request(&lender, "DELETE", &account, "application/json", &Value::Null).await.unwrap();
    looked_at(&manager, 2.0).await;
    let after = place.binding("one", "Ready", |one| speaks_as(one, NEXT_IDENTITY)).await;
    assert_eq!(after["status"], rotated["status"], "nothing moved when the old token was revoked");

    // What cannot be used is said, and takes nothing down; what is good again is used at once.
    for (bad, reason, words) in [
        ("nonsense".to_owned(), "ValidationFailed", "the kubeconfig cannot be read"),
        (first, "ConnectivityFailed", "does not know who is asking"),
    ] {
        place.secret("w1", &bad).await;
        let told = place.binding("one", "told", |one| condition(one, "Connected")["reason"] == reason).await;
        assert!(text(&condition(&told, "Connected")["message"]).contains(words), "{told:#}");
        assert_eq!(told["status"]["workerUID"], rotated["status"]["workerUID"]);
        for about in ["SyncerReady", "ProxierReady"] {
            assert_eq!(condition(&told, about), condition(&rotated, about), "nothing is taken down");
        }
        assert_eq!(deployments(&place).await, running, "nothing is started anew");
        let mended = Instant::now();
        place.secret("w1", &next).await;
        place
            .binding("one", "mended", |one| {
                speaks_as(one, NEXT_IDENTITY) && one["status"]["phase"] == "Ready"
            })
            .await;
        println!("mended after {reason} within {:.2?}", mended.elapsed());
        assert!(mended.elapsed() <= ROTATED_WITHIN, "{:?}", mended.elapsed());
    }
    assert!(manager.is_running());
    drop(manager);
    place.stop().await;
}

/// Labels the worker's only node, and says how long it took until its virtual node had the label, and what the syncer
/// wrote to virtual nodes meanwhile.
async fn followed(place: &Place, lender: &Client, syncer: &Manager, value: &str) -> (Duration, Vec<Value>) {
    let before = written(syncer).len();
    let nodes = get(lender, "/api/v1/nodes").await.unwrap();
    let node = format!("/api/v1/nodes/{}", text(&nodes["items"][0]["metadata"]["name"]));
    let label = json!({"metadata": {"labels": {"rotated": value}}});
    request(lender, "PATCH", &node, "application/merge-patch+json", &label).await.unwrap();
    let changed = Instant::now();
    all_are(place, ("one", 1), "it follows", |node| node["metadata"]["labels"]["rotated"] == value).await;
    let took = changed.elapsed();
    // The node shows the label before the syncer has read that it wrote it.
    let since = until("the write is in the audit log", async || {
        let since = written(syncer).split_off(before);
        if since.is_empty() { Err("not yet".to_owned()) } else { Ok(since) }
    })
    .await;
    (took, since)
}

/// What a syncer has written to virtual nodes.
fn written(syncer: &Manager) -> Vec<Value> {
    let of_nodes = |line: &Value| text(&line["resource"]).starts_with("nodes");
    syncer.writes().into_iter().filter(of_nodes).collect()
}

#[tokio::test]
async fn a_syncer_moves_to_a_new_kubeconfig_within_seconds_and_never_to_another_cluster() {
    let place = Place::new(2).await;
    let lender = place.worker("worker-1").client().await.unwrap();
    lend(&place, &lender).await;
    let manager = place.manager("manager", &[]);
    let [first, next] = [IDENTITY_NAMESPACE, NEXT_IDENTITY].map(|identity| kubeconfig(&place, identity));
    place.secret("w1", &first).await;
    place.bind("one", "w1", WORKER_NAMESPACE).await;
    place.binding("one", "bound", |binding| !text(&binding["status"]["workerUID"]).is_empty()).await;
    let mut syncer = syncer(&place, "one", "syncer");
    apply(&place.virt, &policies(), &policy("one", &json!({}))).await;
    all_are(&place, ("one", 1), "a virtual node is usable", usable).await;

    // The old identity is gone in the moment after the Secret has changed: what comes next is heard by the new one.
    place.secret("w1", &next).await;
    until("the syncer has moved", async || {
        let moves =
            syncer.lines().iter().filter(|line| line["message"] == "connected to the worker cluster").count();
        if moves >= 2 { Ok(()) } else { Err(format!("{moves} connections")) }
    })
    .await;
    let account = format!("/api/v1/namespaces/{IDENTITY_NAMESPACE}/serviceaccounts/{BORROWER}");
    request(&lender, "DELETE", &account, "application/json", &Value::Null).await.unwrap();
    let (took, _) = followed(&place, &lender, &syncer, "once").await;
    println!("its virtual node followed {took:.2?} after the old identity was gone");
    assert!(took <= ROTATED_WITHIN, "{took:?}");

    // Another cluster is named, refused, and not believed about anything: the last good connection goes on.
    let before = written(&syncer).len();
    place.secret("w1", &place.worker("worker-2").kubeconfig()).await;
    until("the syncer refuses", async || {
        let refused = |line: &Value| text(&line["why"]).contains("is another cluster");
        if syncer.lines().iter().any(refused) { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    assert_eq!(written(&syncer).len(), before, "nothing is written on another cluster's word");
    let (took, since) = followed(&place, &lender, &syncer, "twice").await;
    println!("and {took:.2?} with a kubeconfig of another cluster");
    assert_eq!(since.len(), 1, "the label, and nothing else: {since:#?}");
    assert!(syncer.is_running());
    drop((syncer, manager));
    place.stop().await;
}

#[tokio::test]
async fn a_manager_that_runs_the_syncer_itself_rotates_without_a_false_alarm() {
    let place = Place::new(1).await;
    let lender = place.worker("worker-1").client().await.unwrap();
    lend(&place, &lender).await;
    let manager = place.manager("manager-a", &["--worker-mode=inline"]);
    let [first, next] = [IDENTITY_NAMESPACE, NEXT_IDENTITY].map(|identity| kubeconfig(&place, identity));
    place.secret("w1", &first).await;
    place.bind("one", "w1", WORKER_NAMESPACE).await;
    apply(&place.virt, &policies(), &policy("one", &json!({}))).await;
    all_are(&place, ("one", 1), "the virtual node is there", |_| true).await;
    let bound = place.binding("one", "connected", |one| speaks_as(one, IDENTITY_NAMESPACE)).await;
    let since = &condition(&bound, "Connected")["lastTransitionTime"];
    // The connection is the syncer's too, who wants each proven before it is used. That is not the worker cluster's fault.
    for (kubeconfig, identity) in
        [(&next, NEXT_IDENTITY), (&first, IDENTITY_NAMESPACE), (&next, NEXT_IDENTITY)]
    {
        let changed = Instant::now();
        place.secret("w1", kubeconfig).await;
        let rotated = place.binding("one", "rotated", |one| speaks_as(one, identity)).await;
        assert!(changed.elapsed() <= ROTATED_WITHIN, "{:?}", changed.elapsed());
        assert_eq!(condition(&rotated, "Connected")["lastTransitionTime"], *since, "it was never lost");
        looked_at(&manager, 2.0).await;
    }
    let events = get(&place.virt, "/api/v1/namespaces/default/events").await.unwrap();
    let alarms =
        events["items"].as_array().unwrap().iter().filter(|event| event["reason"] == "ConnectivityFailed");
    assert_eq!(alarms.count(), 0, "{events:#}");
    drop(manager);
    place.stop().await;
}

//! Virtual nodes in front of real control planes, with a scheduler and a node controller that believe them: two syncers of whom one leads.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kubeocean_api::keys::names::{FAKE_NAMESPACE, INSTALL_NAMESPACE, NODE_LEASE_NAMESPACE, WORKER_NAMESPACE};
use kubeocean_api::keys::taints::{VNODE_KEY, WORKER_UNREACHABLE_KEY};
use kubeocean_api::keys::{annotations, labels, reasons};
use kubeocean_model::bind::MANAGER;
use kubeocean_model::leasing::SYNCER;
use kubeocean_sandbox::{COMPUTING, Spec};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::place::{Place, apply, binding_path, get, request, text};
use super::rights::{kubeconfig, manifest, with_shipped_rights};
use super::vnodes::{all_are, policies, policy, ready, syncer_as, taints, usable, vnodes};
use crate::access::{kubectl, until};

/// The binding, and how many nodes it has.
const W1: (&str, usize) = ("w1", 3);

const MERGE: &str = "application/merge-patch+json";

/// Shorter than anything that may be said of a worker cluster, and longer.
const BLIP: Duration = Duration::from_secs(20);
const OUTAGE: Duration = Duration::from_secs(60);

/// Longer than between two renewals of a Lease.
const RENEWED_WITHIN: Duration = Duration::from_secs(15);

/// From when a worker cluster answers again to when all of its virtual nodes are Ready.
const BACK_WITHIN: Duration = Duration::from_secs(10);

fn deployment(replicas: usize) -> Value {
    let labels = json!({"app": "web"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {
                "nodeSelector": {labels::TYPE: labels::TYPE_VIRTUAL_KUBELET},
                "tolerations": [{"key": VNODE_KEY, "operator": "Exists"}],
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "700m"}}}],
            },
        }},
    })
}

#[tokio::test]
async fn leased_nodes_are_what_their_worker_cluster_says_through_everything() {
    let place = Place::of(Spec::new().workers(1, 3, 0)).await;
    let worker = place.worker("worker-1");
    let manager = with_shipped_rights(&place, &manifest(WORKER_NAMESPACE)).await;
    place.secret("s1", &kubeconfig(worker, WORKER_NAMESPACE)).await;
    place.bind("w1", "s1", WORKER_NAMESPACE).await;
    place.binding("w1", "bound", |binding| !text(&binding["status"]["workerUID"]).is_empty()).await;
    let account = place.kubeconfig_of(INSTALL_NAMESPACE, "kubeocean-syncer-w1").await;
    let (one, other) = (syncer_as(&place, &account, "w1", "one"), syncer_as(&place, &account, "w1", "other"));
    place
        .binding("w1", "without a policy", |binding| {
            super::place::condition(binding, "Leasing")["reason"] == reasons::Binding::NoPolicy.as_str()
        })
        .await;

    apply(&place.virt, &policies(), &policy("w1", &json!({}))).await;
    all_are(&place, W1, "three virtual nodes are usable", usable).await;
    // Who stands by knows as much as who leads.
    for process in [&one, &other] {
        until("Prometheus sees them", async || {
            let shown = ["vnode_total", "worker_reachable"]
                .map(|name| process.metric(&format!("kubeocean_syncer_{name}"), r#"clusterbinding="w1""#))
                .map(|value| value.to_string());
            if shown == ["3", "1"] { Ok(()) } else { Err(format!("{shown:?}")) }
        })
        .await;
    }

    each_says_what_is_its_own(&place).await;
    what_people_do_stays(&place).await;
    the_scheduler_believes_them(&place).await;
    let (came_back, back) = worker_stops(&place).await;
    assert!(back <= BACK_WITHIN, "{back:?}");
    println!("all virtual nodes were Ready {:.1} s after their worker cluster came back", back.as_secs_f64());
    let leader_dies = Instant::now();
    let (leader, standby) = if one.leads() { (one, other) } else { (other, one) };
    leader.signal(Signal::KILL);
    drop(leader);
    until("the standby leads", async || if standby.leads() { Ok(()) } else { Err("not yet".to_owned()) })
        .await;
    // V takes a node for lost fifty seconds after its last renewal: none is.
    while leader_dies.elapsed() < OUTAGE {
        for node in vnodes(&place, "w1").await.unwrap().iter().filter(|node| ready(node)["status"] != "True")
        {
            // The worker's own node controller may not have heard of any heartbeat yet when it is back, and says so.
            let physical = physical_of(&place, node).await;
            let moved: Timestamp = text(&ready(&physical)["lastTransitionTime"]).parse().unwrap();
            let (said, there) = (ready(node), ready(&physical));
            assert!(
                there["status"] != "True" || moved >= came_back,
                "{said:#} without a cause in the worker: {there:#}"
            );
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }

    request(&place.virt, "DELETE", &format!("{}/w1", policies()), "application/json", &Value::Null)
        .await
        .unwrap();
    all_are(&place, ("w1", 0), "without a policy they go", |_| true).await;
    let left: Vec<_> =
        place.ours().await.unwrap().into_iter().filter(|one| one.component.is_empty()).collect();
    assert!(left.is_empty(), "{left:?}");
    is_unbound(&place).await;
    drop((standby, manager));
    place.stop().await;
}

/// Whose each part of a binding's status is: the manager and the syncer never write over each other.
async fn each_says_what_is_its_own(place: &Place) {
    let manager =
        ["Connected", "ProxierReady", "Ready", "SyncerReady", "observedGeneration", "phase", "workerUID"];
    let syncer = ["Leasing", "lastSyncTime", "nodes", "pods"];
    let expected = BTreeMap::from([
        (MANAGER.to_owned(), manager.map(str::to_owned).into()),
        (SYNCER.to_owned(), syncer.map(str::to_owned).into()),
    ]);
    until("each says what is its own, and nobody else anything", async || {
        let binding = get(&place.virt, &binding_path("w1")).await?;
        let mut owners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for entry in binding["metadata"]["managedFields"].as_array().into_iter().flatten() {
            let owned = owners.entry(text(&entry["manager"])).or_default();
            for (field, below) in entry["fieldsV1"]["f:status"].as_object().into_iter().flatten() {
                match field.trim_start_matches("f:") {
                    "conditions" => {
                        let keys = below.as_object().into_iter().flatten();
                        let keys = keys.filter_map(|(key, _)| key.strip_prefix("k:"));
                        let types = keys.map(|key| serde_json::from_str::<Value>(key).unwrap());
                        owned.extend(types.map(|key| text(&key["type"])));
                    }
                    field => drop(owned.insert(field.to_owned())),
                }
            }
        }
        owners.retain(|_, owned| !owned.is_empty());
        if owners == expected { Ok(()) } else { Err(format!("{owners:#?}")) }
    })
    .await;
}

/// A binding that goes takes all of its virtual nodes along, and what belongs to them.
async fn is_unbound(place: &Place) {
    apply(&place.virt, &policies(), &policy("w1", &json!({}))).await;
    all_are(place, W1, "they are leased again", usable).await;
    kubectl(place.worker(COMPUTING), "delete clusterbinding w1 --timeout=120s", "");
    all_are(place, ("w1", 0), "without a binding they go", |_| true).await;
    until("nothing is left", async || {
        let left: Vec<_> = place.ours().await?.into_iter().filter(|one| !one.binding.is_empty()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

/// Labels, taints and a cordon of people survive a change of every offer.
async fn what_people_do_stays(place: &Place) {
    let node = "/api/v1/nodes/vnode-w1-sim-1";
    let own = json!({"metadata": {"labels": {"mine": "yes"}}, "spec": {"unschedulable": true}});
    request(&place.virt, "PATCH", node, MERGE, &own).await.unwrap();
    let computing = place.worker(COMPUTING);
    kubectl(computing, "taint nodes vnode-w1-sim-1 mine=yes:NoSchedule", "");
    let limit = json!({"resourceLimits": [{"resource": "cpu", "quantity": "1"}]});
    apply(&place.virt, &policies(), &policy("w1", &limit)).await;
    let nodes =
        all_are(place, W1, "each offers one core", |node| node["status"]["allocatable"]["cpu"] == "1").await;
    let first = nodes.iter().find(|node| node["metadata"]["name"] == "vnode-w1-sim-1").unwrap();
    assert_eq!(first["metadata"]["labels"]["mine"], "yes");
    assert_eq!(first["spec"]["unschedulable"], true);
    assert!(taints(first).contains(&"mine".to_owned()), "{first:#}");
    let said = get(&place.virt, &format!("{}/w1", policies())).await.unwrap();
    assert_eq!(said["status"]["bindings"][0]["nodes"], 3, "{said:#}");
}

/// One core each, and one of three cordoned: two pods of 700 m are placed, a third is not; a drain ends.
async fn the_scheduler_believes_them(place: &Place) {
    let pods = "/api/v1/namespaces/default/pods";
    apply(&place.virt, "/apis/apps/v1/namespaces/default/deployments", &deployment(3)).await;
    let placed = until("two are placed, and one is not", async || {
        let all = get(&place.virt, pods).await?;
        let all = all["items"].as_array().cloned().unwrap_or_default();
        let placed: Vec<String> =
            all.iter().map(|pod| text(&pod["spec"]["nodeName"])).filter(|node| !node.is_empty()).collect();
        let refused = all.iter().any(|pod| pod["status"]["conditions"][0]["reason"] == "Unschedulable");
        if placed.len() == 2 && refused { Ok(placed) } else { Err(format!("{placed:?}")) }
    })
    .await;
    assert!(!placed.iter().any(|node| node == "vnode-w1-sim-1"), "{placed:?}");
    a_port_is_taken(place, &placed[0]).await;
    kubectl(place.worker(COMPUTING), &format!("drain {} --timeout=60s", placed[0]), "");
    kubectl(place.worker(COMPUTING), &format!("uncordon {}", placed[0]), "");
    kubectl(place.worker(COMPUTING), "delete deployment web --timeout=60s", "");
    until("all pods are gone", async || match get(&place.virt, pods).await?["items"].as_array() {
        Some(left) if !left.is_empty() => Err(format!("{} are left", left.len())),
        _ => Ok(()),
    })
    .await;
}

/// Someone of the lender's listens on a port of the host: nobody on its virtual node can, and it can be drained all the same.
async fn a_port_is_taken(place: &Place, vnode: &str) {
    let node = vnode.strip_prefix("vnode-w1-").unwrap_or_default();
    let lender = place.worker("worker-1").client().await.unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "listens"},
        "spec": {"nodeName": node, "containers": [
            {"name": "c", "image": "i", "ports": [{"containerPort": 9090, "hostPort": 9090}]},
        ]},
    });
    apply(&lender, "/api/v1/namespaces/default/pods", &pod).await;
    until("the port is reserved", async || {
        let all = get(&place.virt, &format!("/api/v1/namespaces/{FAKE_NAMESPACE}/pods")).await?;
        let all = all["items"].as_array().cloned().unwrap_or_default();
        let held = all.iter().find(|pod| pod["spec"]["nodeName"] == vnode).ok_or("nobody holds it")?;
        let port = &held["spec"]["containers"][0]["ports"][0]["hostPort"];
        if port == 9090 { Ok(()) } else { Err(format!("{port}")) }
    })
    .await;
}

/// The node of the worker cluster behind a virtual one.
async fn physical_of(place: &Place, vnode: &Value) -> Value {
    let lender = place.worker("worker-1").client().await.unwrap();
    let name = text(&vnode["metadata"]["annotations"][annotations::PHYSICAL_NODE_NAME]);
    get(&lender, &format!("/api/v1/nodes/{name}")).await.unwrap()
}

/// When each virtual node was last kept alive.
async fn renewed(place: &Place) -> Vec<String> {
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{NODE_LEASE_NAMESPACE}/leases");
    let all = get(&place.virt, &leases).await.unwrap();
    let all = all["items"].as_array().cloned().unwrap_or_default();
    let ours = all.iter().filter(|lease| text(&lease["metadata"]["name"]).starts_with("vnode-w1-"));
    let renewed: Vec<String> = ours.map(|lease| text(&lease["spec"]["renewTime"])).collect();
    assert_eq!(renewed.len(), W1.1, "{all:?}");
    renewed
}

/// A worker cluster that is away for a moment is not away; one that is away for a minute is, and then comes back: since when, and how long its virtual
/// nodes took.
async fn worker_stops(place: &Place) -> (Timestamp, Duration) {
    let server = place.worker("worker-1").program("kube-apiserver");
    let said = async || -> Vec<Value> {
        vnodes(place, "w1").await.unwrap().iter().map(|node| json!([ready(node), taints(node)])).collect()
    };
    let before = said().await;
    server.stop().await.unwrap();
    tokio::time::sleep(BLIP).await;
    assert_eq!(said().await, before);
    server.start().await.unwrap();
    all_are(place, W1, "nothing has happened", usable).await;
    // Until the stores follow again.
    tokio::time::sleep(BLIP).await;
    assert_eq!(said().await, before);
    server.stop().await.unwrap();
    tokio::time::sleep(OUTAGE).await;
    let lost = reasons::Node::WorkerUnreachable.as_str();
    all_are(place, W1, "all are lost", |node| {
        let is_tainted = taints(node).iter().any(|key| key == WORKER_UNREACHABLE_KEY);
        ready(node)["status"] == "Unknown" && ready(node)["reason"] == lost && is_tainted
    })
    .await;
    let kept = renewed(place).await;
    tokio::time::sleep(RENEWED_WITHIN).await;
    assert_eq!(renewed(place).await, kept, "nobody knows whether they are alive");
    // As node conditions have it, to the second.
    let came_back = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
    server.start().await.unwrap();
    let back = Instant::now();
    all_are(place, W1, "all are back", |node| ready(node)["status"] == "True").await;
    let took = back.elapsed();
    all_are(place, W1, "all are usable", usable).await;
    let is_kept = renewed(place).await.iter().zip(&kept).all(|(now, before)| now > before);
    assert!(is_kept, "they are kept alive again");
    (came_back, took)
}

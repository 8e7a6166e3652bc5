//! Two worker clusters, a small one with a lender who has conditions, and one with five hundred nodes.

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kubeocean_api::keys::annotations;
use kubeocean_api::keys::names::{WORKER_NAMESPACE, WORKLOAD_SERVICE_ACCOUNT};
use kubeocean_api::keys::taints::OUT_OF_TIME_WINDOWS_KEY;
use kubeocean_sandbox::Spec;
use serde_json::{Value, json};

use super::place::{Place, apply, get, request, text};
use super::vnodes::{all_are, policies, policy, syncer, taints, usable};
use crate::access::until;

const SMALL: (&str, usize) = ("small", 3);
const LARGE: (&str, usize) = ("large", 500);

/// Long enough to see who goes before its end and who does not, on a busy machine, too.
const GRACE: SignedDuration = SignedDuration::from_secs(45);

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
async fn a_large_cluster_is_leased_as_a_small_one_is_and_a_lender_gets_its_nodes_back() {
    let place = Place::of(Spec::new().workers(1, SMALL.1, 0).workers(1, LARGE.1, 0)).await;
    let (small, large) = (place.worker("worker-1"), place.worker("worker-2"));
    let lender = small.client().await.unwrap();
    place.define(&lender).await;
    let manager = place.manager("manager", &[]);
    for (name, worker) in [(SMALL.0, small), (LARGE.0, large)] {
        place.secret(name, &worker.kubeconfig()).await;
        place.bind(name, name, WORKER_NAMESPACE).await;
        place.binding(name, "bound", |binding| !text(&binding["status"]["workerUID"]).is_empty()).await;
    }
    let syncers = (syncer(&place, SMALL.0, "small"), syncer(&place, LARGE.0, "large"));

    let began = Instant::now();
    apply(&place.virt, &policies(), &policy(LARGE.0, &json!({}))).await;
    all_are(&place, LARGE, "five hundred virtual nodes are usable", usable).await;
    println!("{} virtual nodes were usable after {:.1} s", LARGE.1, began.elapsed().as_secs_f64());
    let began = Instant::now();
    let limit =
        json!({"resourceLimits": [{"resource": "cpu", "percent": 1}, {"resource": "pods", "quantity": "7"}]});
    apply(&place.virt, &policies(), &policy(LARGE.0, &limit)).await;
    all_are(&place, LARGE, "all of them offer what the policy leaves", |node| {
        let offer = &node["status"]["allocatable"];
        offer["cpu"] == "10" && offer["pods"] == "7" && offer["memory"] == "4000Gi"
    })
    .await;
    println!("all of them offered what the policy leaves after {:.1} s", began.elapsed().as_secs_f64());
    until("the policy says so", async || {
        let said = get(&place.virt, &format!("{}/{}", policies(), LARGE.0)).await?;
        if said["status"]["bindings"][0]["nodes"] == LARGE.1 {
            Ok(())
        } else {
            Err(said["status"].to_string())
        }
    })
    .await;

    let late = a_window_closes(&place, &lender).await;
    println!("closed {:#} after the window, cleared {:#} after the deadline", late[0], late[1]);
    // By its own measure, from the edge to the answer of the API server: a busy test looks late at what was done in time.
    let edges =
        |words: &str| syncers.0.metric(&format!("kubeocean_syncer_window_edge_error_seconds_{words}"), "");
    let in_time = syncers.0.metric("kubeocean_syncer_window_edge_error_seconds_bucket", r#"le="1.0""#);
    assert!(edges("count") >= 3.0, "three nodes have closed: {}", edges("count"));
    assert!(in_time >= edges("count"), "{in_time} of {} within a second", edges("count"));

    let its = format!("{}/{}", policies(), SMALL.0);
    request(&lender, "DELETE", &its, "application/json", &Value::Null).await.unwrap();
    all_are(&place, (SMALL.0, 0), "without the lender's word they go", |_| true).await;
    all_are(&place, LARGE, "those of the other cluster stay", usable).await;
    drop((syncers, manager));
    place.stop().await;
}

/// The lender's window closes at the end of a minute, in real time: who has a budget that allows it goes at once, the others at the
/// deadline and not before. Says how late the nodes were closed, and cleared.
async fn a_window_closes(place: &Place, lender: &Client) -> [SignedDuration; 2] {
    let now = Timestamp::now();
    // Windows end with a minute: with the next one, so that there is at least one to put pods there.
    let end = now.checked_add(SignedDuration::from_mins(1)).unwrap();
    let closes = Timestamp::from_second((end.as_second() / 60 + 1) * 60).unwrap();
    let start = now.checked_sub(SignedDuration::from_hours(2)).unwrap();
    let clock = |at: Timestamp| at.strftime("%H:%M").to_string();
    let terms = json!({
        "timeWindows": [{"start": clock(start), "end": clock(end)}], "timeZone": "UTC",
        "forceReclaim": true, "gracefulReclaimPeriodSeconds": GRACE.as_secs(),
    });
    apply(lender, &policies(), &policy(SMALL.0, &terms)).await;
    let nodes = all_are(place, SMALL, "three virtual nodes are usable", usable).await;
    let node = text(&nodes[0]["metadata"]["name"]);
    for (name, least) in [("may", 0), ("must", 1)] {
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
            "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": name}}},
        });
        apply(&place.virt, "/apis/policy/v1/namespaces/default/poddisruptionbudgets", &budget).await;
    }
    // The only thing of what lenders apply that a pod cannot do without.
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": WORKLOAD_SERVICE_ACCOUNT}});
    apply(lender, &format!("/api/v1/namespaces/{WORKER_NAMESPACE}/serviceaccounts"), &account).await;
    for name in ["may", "must", "plain"] {
        runs(place, name, &node).await;
    }
    until("the budgets have counted", async || {
        let all = get(&place.virt, "/apis/policy/v1/namespaces/default/poddisruptionbudgets").await?;
        let allowed: Vec<_> = all["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["status"]["disruptionsAllowed"].clone())
            .collect();
        if allowed == [json!(1), json!(0)] { Ok(()) } else { Err(format!("{allowed:?}")) }
    })
    .await;
    assert!(Timestamp::now() < closes, "this machine is too slow for this test");

    all_are(place, SMALL, "the window closes", |node| {
        taints(node).iter().any(|key| key == OUT_OF_TIME_WINDOWS_KEY)
    })
    .await;
    let noticed = Timestamp::now();
    assert!(noticed >= closes, "{noticed} is before {closes}");
    let deadline = closes.checked_add(GRACE).unwrap();
    let told = deadline.to_string();
    is_gone(place, "may").await;
    for name in ["must", "plain"] {
        let pod = pod(place, name).await.unwrap();
        assert!(Timestamp::now() < deadline, "this machine is too slow for this test");
        let pod = pod.unwrap_or_else(|| panic!("{name} has until {deadline}"));
        assert_eq!(pod["metadata"]["annotations"][annotations::RECLAIM_AT], told, "{pod:#}");
        assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{pod:#}");
    }
    for name in ["must", "plain"] {
        is_gone(place, name).await;
    }
    let gone = Timestamp::now();
    assert!(gone >= deadline, "{gone} is before {deadline}");
    all_are(place, SMALL, "the nodes stay, closed", usable).await;
    [noticed.duration_since(closes), gone.duration_since(deadline)]
}

/// A pod on a virtual node, which runs on the node behind it.
async fn runs(place: &Place, name: &str, node: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 300,
            "tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "i"}],
        },
    });
    apply(&place.virt, PODS, &pod).await;
    until(&format!("{name} runs"), async || {
        let pod = get(&place.virt, &format!("{PODS}/{name}")).await?;
        if pod["status"]["phase"] == "Running" { Ok(()) } else { Err(pod["status"].to_string()) }
    })
    .await;
}

async fn pod(place: &Place, name: &str) -> Result<Option<Value>, String> {
    let all = get(&place.virt, PODS).await?;
    let all = all["items"].as_array().cloned().unwrap_or_default();
    Ok(all.into_iter().find(|pod| pod["metadata"]["name"] == name))
}

async fn is_gone(place: &Place, name: &str) {
    until(&format!("{name} is gone"), async || match pod(place, name).await? {
        Some(pod) => Err(format!("{:#}", pod["metadata"])),
        None => Ok(()),
    })
    .await;
}

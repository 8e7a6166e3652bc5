//! Several managers, of which one writes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use kubeocean_api::keys::names::{MANAGER_LEADER, WORKER_NAMESPACE};
use kubeocean_sandbox::{COMPUTING, Spec};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::place::{Ours, Place, apply, request, text};
use crate::access::until;
use crate::manager::Manager;
use crate::support::read;

/// As long as a virtual machine is stopped while it is moved, and twice as long as a hold is left alone.
const PAUSE: Duration = Duration::from_secs(30);

/// What `--leader-election-lease-duration` is by default.
const HOLD: SignedDuration = SignedDuration::from_secs(15);

/// From when the hold may be taken to when it is.
const FAILOVER_WITHIN: SignedDuration = SignedDuration::from_secs(5);

/// Kinds whose absence moves no condition: what is deleted of them comes back, and that is all.
const HARMLESS: [&str; 3] = ["/services", "/rolebindings", "/clusterrolebindings"];

const FLAGS: &[&str] = &["--leader-elect"];

/// A kubeconfig for a manager that the API server knows by this name.
async fn identity(place: &Place, name: &str) -> PathBuf {
    let accounts = "/api/v1/namespaces/kube-system/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    apply(&place.virt, accounts, &account).await;
    let all = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": name}],
    });
    apply(&place.virt, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &all).await;
    place.kubeconfig_of("kube-system", name).await
}

/// Deletes what comes back, and waits for it.
async fn disturb(place: &Place, wanted: &[(String, String)]) {
    take_away(place).await;
    restored(place, wanted).await;
}

async fn take_away(place: &Place) {
    for Ours { kind, path, .. } in place.ours().await.unwrap() {
        if HARMLESS.iter().any(|harmless| kind.ends_with(harmless)) {
            request(&place.virt, "DELETE", &path, "application/json", &Value::Null).await.unwrap();
        }
    }
}

async fn restored(place: &Place, wanted: &[(String, String)]) {
    until("what was deleted is back", async || {
        let there = names(place).await;
        if there == wanted { Ok(()) } else { Err(format!("{there:?}")) }
    })
    .await;
}

async fn names(place: &Place) -> Vec<(String, String)> {
    let all = place.ours().await.unwrap();
    all.into_iter().map(|one| (one.kind.to_owned(), one.name)).collect()
}

/// Waits until a manager holds the hold, and says since when.
async fn holder(place: &Place, name: &str) -> Timestamp {
    let hold = until(&format!("{name} leads"), async || {
        let hold = place.hold().await?;
        let leads = text(&hold["holderIdentity"]).starts_with(&format!("{name}_"));
        if leads { Ok(hold) } else { Err(hold.to_string()) }
    })
    .await;
    text(&hold["acquireTime"]).parse().unwrap()
}

async fn last_renewal(place: &Place) -> Timestamp {
    text(&place.hold().await.unwrap()["renewTime"]).parse().unwrap()
}

/// Asserts who wrote, in turn, as the API server saw it; renewals of the hold do not count.
fn wrote_in_turn(place: &Place, wanted: &[&str]) {
    let log = place.sandbox.directory().join(COMPUTING).join("logs/audit.log");
    let lines = read(&log);
    let mut writes: Vec<(String, String, String)> = lines
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|event| ["create", "update", "patch", "delete"].iter().any(|verb| event["verb"] == *verb))
        .filter(|event| event["objectRef"]["name"] != MANAGER_LEADER)
        .filter_map(|event| {
            let user = text(&event["user"]["username"]);
            let manager = user.strip_prefix("system:serviceaccount:kube-system:manager-")?;
            let what =
                format!("{} {} {}", event["verb"], event["requestURI"], event["responseStatus"]["code"]);
            Some((text(&event["requestReceivedTimestamp"]), manager.to_owned(), what))
        })
        .collect();
    writes.sort();
    let mut turns = writes.clone();
    turns.dedup_by(|(_, next, _), (_, before, _)| next == before);
    let in_turn: Vec<&str> = turns.iter().map(|(_, writer, _)| writer.as_str()).collect();
    assert_eq!(in_turn, wanted, "{turns:#?}");
}

fn status(manager: &Manager) -> f64 {
    manager.metric("kubeocean_leader_election_status", MANAGER_LEADER)
}

#[tokio::test]
async fn a_leader_that_is_paused_killed_or_ended_is_followed_and_two_never_write() {
    let place = Place::of(Spec::new().workers(1, 1, 0).audit(true)).await;
    let start = async |name: &str| place.manager_as(&identity(&place, name).await, name, FLAGS);
    let a = start("manager-a").await;
    holder(&place, "manager-a").await;
    let b = start("manager-b").await;
    place.secret("w1", &place.worker("worker-1").kubeconfig()).await;
    let bound = ["one", "two", "three"];
    for name in bound {
        place.bind(name, "w1", WORKER_NAMESPACE).await;
    }
    let before = place.all_ready(bound).await;
    let wanted = names(&place).await;
    let is_warm = async |manager: &Manager| match manager.ask("/readyz")? {
        (200, _) => Ok(()),
        (_, why) => Err(why),
    };
    until("the standby knows everything", async || is_warm(&b).await).await;

    // With work at hand, the leader is stopped.
    take_away(&place).await;
    a.signal(Signal::STOP);
    let stopped = Instant::now();
    let renewed = last_renewal(&place).await;
    let taken = holder(&place, "manager-b").await;
    let late = taken.duration_since(renewed) - HOLD;
    println!("paused: taken over {late:#} after the hold ran out");
    assert!(late >= SignedDuration::ZERO && late <= FAILOVER_WITHIN, "{late:#}");
    restored(&place, &wanted).await;
    // Not to wait for anything: how long the fault lasts.
    tokio::time::sleep(PAUSE.saturating_sub(stopped.elapsed())).await;
    a.signal(Signal::CONT);
    until("the former leader knows that it is one", async || {
        if a.leads() { Err("it leads".to_owned()) } else { Ok(()) }
    })
    .await;
    disturb(&place, &wanted).await;
    assert_eq!((status(&a), status(&b)), (0.0, 1.0));
    // What was at hand is not written by who goes on late.
    wrote_in_turn(&place, &["a", "b"]);

    // Killed: nobody gives the hold back.
    let renewed = last_renewal(&place).await;
    drop(b);
    let taken = holder(&place, "manager-a").await;
    let late = taken.duration_since(renewed) - HOLD;
    println!("killed: taken over {late:#} after the hold ran out");
    assert!(late <= FAILOVER_WITHIN, "{late:#}");
    disturb(&place, &wanted).await;

    // Asked to end: the hold is given back, and nobody has to wait for it to run out.
    let c = start("manager-c").await;
    until("the standby knows everything", async || is_warm(&c).await).await;
    let asked = Timestamp::now();
    let ended = a.stop();
    assert!(ended.success(), "{ended}");
    let late = holder(&place, "manager-c").await.duration_since(asked);
    println!("ended: taken over {late:#} after it was asked to");
    assert!(late <= FAILOVER_WITHIN, "{late:#}");
    disturb(&place, &wanted).await;
    wrote_in_turn(&place, &["a", "b", "a", "c"]);

    let after = place.all_ready(bound).await;
    for name in bound {
        assert_eq!(after[name]["status"], before[name]["status"], "{name}");
    }
    drop(c);
    place.stop().await;
}

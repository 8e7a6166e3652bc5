//! Two replicas answer for virtual nodes. One of them goes, dies, or hangs.

use std::process::Stdio;
use std::time::{Duration, Instant};

use kubeocean_api::keys::names::INSTALL_NAMESPACE;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::home::{Home, VNODE, WORKER};
use super::streams::within;
use crate::access::until;

/// How long a virtual node may be without anyone who answers for it.
const WITHIN: Duration = Duration::from_secs(10);

/// A replica.
struct Replica {
    pod: String,
    address: String,
    process: Pid,
}

pub(super) async fn a_replica_that_is_lost_or_hangs_is_replaced_in_time(home: &Home) {
    one_that_goes_lets_others_end(home).await;
    one_that_dies_is_not_missed(home).await;
    one_that_hangs_is_found_out(home).await;
}

/// As in an upgrade: who is there stays for a while, who comes goes to the other one.
async fn one_that_goes_lets_others_end(home: &Home) {
    let replica = serving(home).await;
    let mut follow = home.kubectl("logs -f app -c beside --tail=1");
    let mut follow = follow.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    within(lines.next_line()).await.unwrap().unwrap();
    let began = Instant::now();
    home.good(&format!("-n {INSTALL_NAMESPACE} delete pod {} --wait=false", replica.pod)).await;
    moved_from(home, &replica, began, "told to end").await;
    // Through the other one; and who followed is still there.
    home.good_with("exec app -c beside -- sh -c", "echo still > /proc/1/fd/1").await;
    assert_eq!(within(lines.next_line()).await.unwrap().as_deref(), Some("still"));
    follow.kill().await.unwrap();
}

async fn one_that_dies_is_not_missed(home: &Home) {
    let replica = serving(home).await;
    let began = Instant::now();
    kill_process(replica.process, Signal::KILL).unwrap();
    answered(home, began, "killed").await;
}

async fn one_that_hangs_is_found_out(home: &Home) {
    let replica = serving(home).await;
    let began = Instant::now();
    kill_process(replica.process, Signal::STOP).unwrap();
    moved_from(home, &replica, began, "paused").await;
    kill_process(replica.process, Signal::CONT).unwrap();
}

/// The one that serves the virtual node, when all are there.
async fn serving(home: &Home) -> Replica {
    let all = format!("-n {INSTALL_NAMESPACE} rollout status deployment/kubeocean-proxier-{WORKER}");
    home.good(&format!("{all} --timeout=120s")).await;
    until("one of the replicas serves the virtual node", async || {
        let address = address(home).await;
        let list = "get pods -l app.kubernetes.io/component=proxier -o json";
        let pods = home.good(&format!("-n {INSTALL_NAMESPACE} {list}")).await;
        let pods: Value = serde_json::from_str(&pods).unwrap();
        let pods = pods["items"].as_array().unwrap();
        let is_it = |pod: &&Value| {
            pod["status"]["podIP"] == *address && pod["metadata"]["deletionTimestamp"].is_null()
        };
        let metadata = &pods.iter().find(is_it).ok_or_else(|| address.clone())?["metadata"];
        let process = process(metadata["uid"].as_str().unwrap()).ok_or("it does not run")?;
        Ok(Replica { pod: metadata["name"].as_str().unwrap().to_owned(), address, process })
    })
    .await
}

async fn address(home: &Home) -> String {
    home.good(&format!("get node {VNODE} -o jsonpath={{.status.addresses[0].address}}")).await
}

/// The proxier in this pod: its control group is named for the pod's uid, whatever else is on this machine.
fn process(uid: &str) -> Option<Pid> {
    let is_ours = |id: &i32| {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{id}/{name}")).unwrap_or_default();
        read("cgroup").replace('_', "-").contains(uid) && read("cmdline").contains("--cluster-binding-name")
    };
    let all = std::fs::read_dir("/proc").unwrap();
    let mut ids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    ids.find(is_ours).and_then(Pid::from_raw)
}

async fn moved_from(home: &Home, replica: &Replica, began: Instant, what: &str) {
    until(&format!("the virtual node leaves a replica that was {what}"), async || {
        let address = address(home).await;
        if address == replica.address { Err(address) } else { Ok(()) }
    })
    .await;
    answered(home, began, what).await;
}

/// Waits until people are served again, and says how long it was.
async fn answered(home: &Home, began: Instant, what: &str) {
    until(&format!("somebody answers after a replica was {what}"), async || {
        let said = home.say("logs app -c c --tail=1 --request-timeout=2s", b"").await;
        if said.text() == "line-5\n" { Ok(()) } else { Err(said.err) }
    })
    .await;
    let took = began.elapsed();
    println!("a replica was {what}: its node was answered for after {:.1} s", took.as_secs_f64());
    assert!(took <= WITHIN, "a replica was {what}, and its node was not answered for in {took:?}");
}

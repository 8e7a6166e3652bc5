//! Pods on virtual nodes while their syncer is killed again and again, and while their worker cluster is cut off.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use kubeocean_api::keys::names::WORKER_NAMESPACE;
use kubeocean_api::keys::reasons::Pod as Reason;
use kubeocean_sandbox::lab::Program;
use serde_json::{Value, json};

use super::faults::SHORT_HOLD;
use super::place::{condition, request, text};
use super::vnodes::syncer_with;
use super::workloads::{Pool, job, pod, wanted, workload};
use crate::access::until;
use crate::manager::Manager;

const W1: (&str, usize) = ("w1", 3);

/// The numbers are five hundred pods (`KUBEOCEAN_CREATIONS`) and two minutes (`KUBEOCEAN_OUTAGE_SECONDS`).
const CREATIONS: usize = 80;
const OUTAGE_SECONDS: usize = 15;

/// In so many rounds: each is waited for, so that the syncer is killed in the midst of all of them.
const ROUNDS: usize = 4;

/// A syncer that starts leads after a second or two: it is killed in the midst of its work.
const KILLED_EVERY: Duration = Duration::from_secs(3);

const ROLLED: usize = 30;

/// A syncer that is killed every few seconds, and started again.
struct Mortal<'a> {
    pool: &'a Pool,
    kills: usize,
    syncer: Manager,
}

impl<'a> Mortal<'a> {
    fn new(pool: &'a Pool) -> Self {
        Self { pool, kills: 0, syncer: Self::born(pool, 0) }
    }

    fn born(pool: &Pool, life: usize) -> Manager {
        syncer_with(&pool.place, &pool.accounts[W1.0], W1.0, &format!("syncer-{life}"), SHORT_HOLD)
    }

    /// Something happens, and it dies again and again until that is over.
    async fn dies_during<T>(&mut self, story: impl Future<Output = T>) -> T {
        let mut story = std::pin::pin!(story);
        loop {
            // Not to wait for anything: the moment of the fault.
            if let Ok(told) = tokio::time::timeout(KILLED_EVERY, &mut story).await {
                return told;
            }
            self.kills += 1;
            // Whoever had this place before is killed.
            self.syncer = Self::born(self.pool, self.kills);
        }
    }
}

#[tokio::test]
async fn whatever_happens_to_syncer_and_worker_both_sides_agree_in_the_end_and_nothing_is_left() {
    let pool = Pool::new(&[W1]).await;
    let mut mortal = Mortal::new(&pool);
    pool.usable(W1).await;
    println!("{}", it_is_killed(&pool, &mut mortal).await);
    println!("{}", the_worker_is_cut_off(&pool).await);
    pool.nothing_left("").await;
    assert!(mortal.syncer.is_running(), "{}", mortal.syncer.said());
    drop(mortal);
    println!("{} pods had one twin each", pool.stop().await);
}

/// Pods come and go, and a Job does its work, while the syncer is killed all the time.
async fn it_is_killed(pool: &Pool, mortal: &mut Mortal<'_>) -> String {
    let (ns, count) = ("killed", wanted("KUBEOCEAN_CREATIONS", CREATIONS));
    pool.namespace(ns).await;
    pool.namespace("works").await;
    let named = |number: usize| {
        // Some that may be started again by a kubelet, and some that nobody may ever start again.
        let policy = if number.is_multiple_of(4) { "Never" } else { "Always" };
        pod(&format!("p{number}"), &json!({"restartPolicy": policy}))
    };
    let mut job = job("sums", count / 4, count.div_ceil(16));
    // A pod of it that is lost to a kill is replaced.
    job["spec"]["backoffLimit"] = count.into();
    let began = Instant::now();
    let come_and_go = async {
        pool.apply("works", &job).await;
        for round in 0..ROUNDS {
            let new = count * round / ROUNDS..count * (round + 1) / ROUNDS;
            for number in new.clone() {
                pool.apply(ns, &named(number)).await;
            }
            settled(pool, ns, new.len() + new.start / 2).await;
            for number in new.filter(|number| number.is_multiple_of(2)) {
                pool.delete(ns, &named(number)).await;
            }
        }
        until("the Job is complete", async || {
            let job = pool.read("works", &job).await?;
            let done =
                condition(&job, "Complete")["status"] == "True" && job["status"]["succeeded"] == count / 4;
            if done { Ok(()) } else { Err(job["status"].to_string()) }
        })
        .await;
    };
    mortal.dies_during(come_and_go).await;
    settled(pool, ns, count / 2).await;
    let lost = lost(pool, ns).await;
    for pod in &lost {
        pool.delete(ns, pod).await;
    }
    pool.agree(ns, count / 2 - lost.len(), "Running").await;
    let agreed = began.elapsed();
    let go = async {
        pool.delete("works", &job).await;
        for pod in pool.pods(ns).await.unwrap() {
            pool.delete(ns, &json!({"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"]})).await;
        }
        pool.nothing_left(ns).await;
        pool.nothing_left("works").await;
    };
    mortal.dies_during(go).await;
    format!(
        "{count} pods and a Job of {} under {} kills: both sides agreed after {agreed:.1?}, all was gone after {:.1?}; \
         {} that may run once only were lost before they ran",
        count / 4,
        mortal.kills,
        began.elapsed(),
        lost.len()
    )
}

/// A pod that may run once only was let in by a syncer that died before its twin was made: nobody can know that it was not, so it is lost.
fn is_lost(pod: &Value) -> bool {
    pod["status"]["reason"] == Reason::PhysicalPodLost.as_str()
}

/// Those that are lost. None of them ever ran.
async fn lost(pool: &Pool, ns: &str) -> Vec<Value> {
    let mut pods = pool.pods(ns).await.unwrap();
    pods.retain(is_lost);
    for pod in &mut pods {
        assert_eq!(pod["spec"]["restartPolicy"], "Never", "{pod:#}");
        assert!(!pool.twins.had(&pod["metadata"]["uid"]), "it ran, and is said to be lost: {pod:#}");
        *pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"]});
    }
    pods
}

/// Waits until so many pods run or are lost, and none other is there but those that are going.
async fn settled(pool: &Pool, ns: &str, count: usize) {
    until(&format!("{count} pods run"), async || {
        let mut pods = pool.pods(ns).await?;
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        match pods.iter().filter(|pod| pod["status"]["phase"] == "Running" || is_lost(pod)).count() {
            settled if settled == count && pods.len() == count => Ok(()),
            settled => Err(format!("{settled} of {}", pods.len())),
        }
    })
    .await;
}

/// While its API server was away nobody heard of the nodes, and the worker's node controller may have called their pods unready. A kubelet
/// says at once that they are ready all the same; simulated nodes say nothing twice.
async fn kubelets_say_it_again(pool: &Pool, ns: &str) -> Result<(), String> {
    for twin in pool.twins_of(ns).await? {
        let is = |about: &str| condition(&twin, about)["status"] == "True";
        if is("ContainersReady") && !is("Ready") {
            let place = format!(
                "/api/v1/namespaces/{WORKER_NAMESPACE}/pods/{}/status",
                text(&twin["metadata"]["name"])
            );
            let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": Timestamp::now().to_string()});
            let body = json!({"status": {"conditions": [ready]}});
            request(&pool.phys, "PATCH", &place, "application/strategic-merge-patch+json", &body).await?;
        }
    }
    Ok(())
}

/// The worker cluster does not answer from the midst of a rollout on, during which people want something else.
async fn the_worker_is_cut_off(pool: &Pool) -> String {
    let ns = "rolls";
    let outage =
        Duration::from_secs(u64::try_from(wanted("KUBEOCEAN_OUTAGE_SECONDS", OUTAGE_SECONDS)).unwrap());
    pool.namespace(ns).await;
    let deployment = |replicas: usize, image: &str| {
        workload("Deployment", "web", replicas, &json!({"containers": [{"name": "c", "image": image}]}))
    };
    pool.apply(ns, &deployment(ROLLED, "i:1")).await;
    pool.agree(ns, ROLLED, "Running").await;
    let server = pool.place.worker("worker-1").program(Program::KubeApiserver);
    pool.apply(ns, &deployment(ROLLED, "i:2")).await;
    until("the rollout is in its midst", async || {
        let twins = pool.twins_of(ns).await?;
        let new = twins.iter().filter(|twin| twin["spec"]["containers"][0]["image"] == "i:2").count();
        if new > 0 { Ok(()) } else { Err(format!("{new} of {}", twins.len())) }
    })
    .await;
    server.stop().await.unwrap();
    let fewer = ROLLED / 2;
    pool.apply(ns, &deployment(fewer, "i:3")).await;
    // Not to wait for anything: the time of the fault.
    tokio::time::sleep(outage).await;
    server.start().await.unwrap();
    let began = Instant::now();
    until("the Deployment is available", async || {
        kubelets_say_it_again(pool, ns).await?;
        let now = pool.read(ns, &deployment(0, "")).await?;
        let status = &now["status"];
        let done = status["observedGeneration"] == now["metadata"]["generation"]
            && ["availableReplicas", "updatedReplicas", "replicas"]
                .iter()
                .all(|field| status[field] == fewer);
        if done { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    for (_, twin) in pool.agree(ns, fewer, "Running").await {
        assert_eq!(twin["spec"]["containers"][0]["image"], "i:3");
    }
    let took = format!(
        "both sides agreed {:.1?} after a worker that was away for {outage:?} came back",
        began.elapsed()
    );
    pool.delete(ns, &deployment(0, "")).await;
    pool.nothing_left(ns).await;
    took
}

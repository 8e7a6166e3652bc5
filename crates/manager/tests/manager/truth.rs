//! What conditions say stays true, and what fails is tried again less and less often, until something is done about it.

use std::time::Duration;

use futures::FutureExt as _;
use kubeocean_api::keys::annotations;
use kubeocean_cluster::together::until_one_ends;
use kubeocean_model::bind::MANAGER;
use kubeocean_testkit::Right;
use kubeocean_testkit::chaos::Partition;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::residents::{collection, path, text};
use crate::scene::{MERGE, MOUNT, NAMESPACE, Scene};
use crate::stories::{calmly, condition, rest, seconds};

/// How soon people see what they have mended.
const AT_ONCE: Duration = Duration::from_secs(5);

fn phase(scene: &Scene, name: &str) -> String {
    let binding = scene.virt.server.get("clusterbindings", "", name).unwrap();
    text(&binding, "/status/phase").to_owned()
}

/// Waits until a condition has this status and reason; how long that took.
async fn until(scene: &Scene, about: &str, expected: [&str; 2], within: Duration) -> Duration {
    let began = Instant::now();
    loop {
        let [status, reason, message] = condition(scene, "w1", about);
        if [&*status, &*reason] == expected {
            return began.elapsed();
        }
        assert!(
            began.elapsed() < within,
            "{about} is {status} {reason} ({message}) and not {expected:?} after {within:?}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[test]
fn a_right_that_is_withdrawn_after_all_was_well_is_missed_and_given_back_is_found() {
    const WHOLE_LOOK: Duration = Duration::from_secs(310);
    calmly(false, |scene| async move {
        scene.bind("w1", "c1", "s1");
        rest(&scene).await;
        let right = Right::to("create", "pods");
        scene.workers[0].server.deny(MANAGER, right.clone());
        until(&scene, "Connected", ["False", "PermissionDenied"], WHOLE_LOOK).await;
        let [_, _, message] = condition(&scene, "w1", "Connected");
        assert!(message.contains("create pods"), "{message}");
        scene.workers[0].server.grant(MANAGER, &right);
        until(&scene, "Connected", ["True", "ConnectivityPassed"], WHOLE_LOOK).await;
        rest(&scene).await;
    });
}

#[test]
fn a_mount_namespace_that_is_deleted_is_missed_and_one_made_anew_is_another_one() {
    const LOOK: Duration = Duration::from_secs(60);
    calmly(false, |scene| async move {
        scene.bind("w1", "c1", "s1");
        rest(&scene).await;
        let worker = scene.workers[0].server.clone();
        let course = async {
            worker.call("lender", "DELETE", &format!("{}/{MOUNT}", collection("namespaces", "")), None, None);
            until(&scene, "Connected", ["False", "MountNamespaceMissing"], LOOK).await;
            seconds(60).await;
            let [_, _, message] = condition(&scene, "w1", "Connected");
            assert!(
                message.contains("does not exist in the worker cluster: the lender makes it"),
                "{message}"
            );
            let body = json!({"metadata": {"name": MOUNT}});
            worker.call("lender", "POST", &collection("namespaces", ""), None, Some(body));
            until(&scene, "Connected", ["False", "WorkerChanged"], Duration::from_secs(310)).await;
            let namespace = worker.get("namespaces", "", MOUNT).unwrap();
            let accept = json!({annotations::ACCEPT_WORKER: text(&namespace, "/metadata/uid")});
            scene.patch_binding("w1", json!({"metadata": {"annotations": accept}}));
            until(&scene, "Connected", ["True", "ConnectivityPassed"], AT_ONCE).await;
        };
        until_one_ends([worker.controllers().boxed_local(), course.boxed_local()]).await;
        rest(&scene).await;
    });
}

#[test]
fn a_worker_that_is_not_available_any_more_says_so_and_takes_it_back() {
    calmly(false, |scene| async move {
        scene.bind("w1", "c1", "s1");
        rest(&scene).await;
        for (role, about) in [("syncer", "SyncerReady"), ("proxier", "ProxierReady")] {
            let name = format!("kubeocean-{role}-c1");
            let deployment = scene.virt.server.get("deployments", NAMESPACE, &name).unwrap();
            let place = format!("{}/status", path("deployments", &deployment));
            let available = |status: &str| {
                let condition = json!({"type": "Available", "status": status, "reason": "MinimumReplicas"});
                let ready = if status == "True" { 2 } else { 0 };
                let body = json!({"status": {
                    "readyReplicas": ready, "availableReplicas": ready, "conditions": [condition],
                }});
                let (code, answer) =
                    scene.virt.server.call("deployments", "PATCH", &place, MERGE, Some(body));
                assert_eq!(code, 200, "{answer}");
            };
            let is = |scene: &Scene| condition(scene, "w1", about)[0].clone();
            for _ in 0..2 {
                available("False");
                seconds(AT_ONCE.as_secs()).await;
                assert_eq!(is(&scene), "False", "{about}");
                assert_eq!(condition(&scene, "w1", "Connected")[0], "True");
                available("True");
                seconds(AT_ONCE.as_secs()).await;
                assert_eq!(is(&scene), "True", "{about}");
            }
        }
        rest(&scene).await;
    });
}

/// When a worker cluster was looked at in vain, in so many seconds from now.
async fn attempts(scene: &Scene, outcome: &str, time: u64) -> Vec<u64> {
    let series = format!("kubeocean_sync_errors_total{{queue=\"probes\",outcome=\"{outcome}\"}} ");
    let count = || -> u64 {
        let text = scene.metrics.lock().as_ref().unwrap().encode();
        text.lines().find_map(|line| line.strip_prefix(&*series)?.parse().ok()).unwrap_or(0)
    };
    let mut known = count();
    let mut moments = Vec::new();
    for second in 1..=time {
        seconds(1).await;
        let now = count();
        moments.extend((known..now).map(|_| second));
        known = now;
    }
    moments
}

#[test]
fn what_stays_wrong_is_tried_less_and_less_often_and_at_once_when_it_is_mended() {
    const TIME: u64 = 20 * 60;
    type Deed = fn(&Scene);
    let wrong_secret: Deed = |scene| scene.write_secret("s1", "nonsense");
    let mended_secret: Deed = |scene| scene.write_secret("s1", "p1");
    let wrong_binding: Deed = |scene| {
        let reference = json!({"name": "of-nobody", "namespace": NAMESPACE});
        scene.patch_binding("w1", json!({"spec": {"secretRef": reference}}));
    };
    let mended_binding: Deed = |scene| {
        scene.patch_binding("w1", json!({"spec": {"secretRef": {"name": "s1", "namespace": NAMESPACE}}}));
    };
    let cases =
        [(wrong_secret, mended_secret, "bad-kubeconfig"), (wrong_binding, mended_binding, "no-secret")];
    for (after_ready, (wrong, mended, outcome)) in
        [false, true].into_iter().flat_map(|bound| cases.map(|case| (bound, case)))
    {
        calmly(false, |scene| async move {
            scene.bind("w1", "c1", "s1");
            if after_ready {
                rest(&scene).await;
            }
            wrong(&scene);
            let moments = attempts(&scene, outcome, TIME).await;
            let told = format!("{outcome}, after Ready: {after_ready}: {moments:?}");
            // 1, 2, 4 and so on to 256 s are nine; then each takes five minutes.
            assert!((9..=15).contains(&moments.len()), "{told}");
            let pauses: Vec<u64> = moments.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let last = *pauses.last().unwrap();
            assert!((150..=330).contains(&last), "up to five minutes: {told}");
            assert!(pauses.iter().all(|pause| *pause <= 330), "no longer: {told}");
            let half = pauses.len() / 2;
            let sum = |some: &[u64]| some.iter().sum::<u64>();
            assert!(sum(&pauses[..half]) * 4 < sum(&pauses[half..]), "less and less often: {told}");
            assert_eq!(phase(&scene, "w1"), "Failed", "{told}");

            mended(&scene);
            until(&scene, "Connected", ["True", "ConnectivityPassed"], AT_ONCE).await;
            until(&scene, "Ready", ["True", "SyncerReady"], AT_ONCE).await;
            rest(&scene).await;
        });
    }
}

#[test]
fn a_server_that_takes_a_call_and_never_answers_is_waited_for_half_a_minute() {
    calmly(false, |scene| async move {
        scene.workers[0].chaos.partition(Partition::Silent);
        scene.bind("w1", "c1", "s1");
        seconds(25).await;
        assert_eq!(condition(&scene, "w1", "Connected")[1], "Initializing", "it may answer yet");
        seconds(10).await;
        let [status, reason, message] = condition(&scene, "w1", "Connected");
        assert_eq!((&*status, &*reason), ("False", "ConnectivityFailed"), "{message}");
        assert!(message.contains("no answer within 30 s"), "{message}");
        assert_eq!(phase(&scene, "w1"), "Failed");
        scene.workers[0].chaos.calm();
        rest(&scene).await;
    });
}

#[test]
fn a_binding_that_names_another_secret_is_reached_by_it_and_its_workers_may_read_that_one_only() {
    calmly(false, |scene| async move {
        scene.bind("w1", "c1", "s1");
        rest(&scene).await;
        seconds(20).await;
        let readable = |role: &str| -> Vec<Value> {
            let role = scene.virt.server.get("roles", NAMESPACE, &format!("kubeocean-{role}-c1")).unwrap();
            let rules = role["rules"].as_array().cloned().unwrap_or_default();
            rules
                .iter()
                .filter(|rule| rule["resources"] == json!(["secrets"]))
                .map(|rule| rule["resourceNames"].clone())
                .collect()
        };
        for role in ["syncer", "proxier"] {
            assert_eq!(readable(role), [json!(["s1"])], "{role}");
        }
        scene.write_secret("another", "p1 far");
        assert_eq!(scene.far.counts().requests, 0);
        let reference = json!({"name": "another", "namespace": NAMESPACE});
        scene.patch_binding("w1", json!({"spec": {"secretRef": reference}}));
        seconds(AT_ONCE.as_secs()).await;
        assert!(scene.far.counts().requests > 0, "the new connection is in use");
        for role in ["syncer", "proxier"] {
            assert_eq!(readable(role), [json!(["another"])], "{role}");
        }
        let [status, _, message] = condition(&scene, "w1", "Connected");
        assert_eq!(status, "True", "{message}");

        // What becomes of the first one is nothing to it any more.
        rest(&scene).await;
        scene.write_secret("s1", "nonsense");
        seconds(60).await;
        let [status, _, message] = condition(&scene, "w1", "Connected");
        assert_eq!(status, "True", "{message}");
        rest(&scene).await;
    });
}

//! How long pods take to end on a node that is taken back: as long as they like until the deadline, and half a minute from then on at most.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::pods::leased;
use crate::scene::{MOUNT, Scene, Setting, collection, condition, is_deleting, minute, text};
use crate::simulated::{calm_in, wait};

/// Closes at the end of the fifth minute; a minute later what is left is removed. `course` gets that moment.
fn taken_back(course: impl AsyncFnOnce(&Scene, Timestamp)) {
    calm_in(
        Setting { nodes: &["n1"], ..Setting::default() },
        |_| (),
        async |scene| {
            let now = scene.clock.now();
            let window = json!({"start": minute(now, -60), "end": minute(now, 4)});
            let spec =
                json!({"timeWindows": [window], "forceReclaim": true, "gracefulReclaimPeriodSeconds": 60});
            scene.policy(&scene.phys, "nights", spec);
            wait(scene, "leased", 20, || scene.at_rest()).await;
            course(scene, now.checked_add(SignedDuration::from_mins(6)).unwrap()).await;
        },
    );
}

/// A pod that takes all of this time to end, once it runs.
async fn starts(scene: &Scene, name: &str, grace: u32) {
    scene.pod(name, "vnode-c1-n1", json!({"terminationGracePeriodSeconds": grace}));
    wait(scene, "it runs", 20, || match scene.get_pod(name) {
        Some(pod) if text(&pod, "/status/phase") == "Running" => Ok(()),
        pod => Err(format!("{pod:?}")),
    })
    .await;
}

async fn until(scene: &Scene, at: Timestamp, seconds: i64) {
    let at = at.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    tokio::time::sleep(scene.until(at)).await;
}

/// When the machine is to end the twins, by their own words.
fn ends(scene: &Scene) -> Vec<Timestamp> {
    let twins = scene.phys.server.list("pods", Some(MOUNT));
    twins.iter().filter_map(|twin| text(twin, "/metadata/deletionTimestamp").parse().ok()).collect()
}

#[test]
fn a_pod_that_was_ending_at_its_leisure_is_gone_half_a_minute_after_the_deadline() {
    taken_back(async |scene, deadline| {
        starts(scene, "slow-to-end", 3600).await;
        scene.remove(&scene.virt, "pods", "web", "slow-to-end");
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(
            ends(scene)[0] > deadline.checked_add(SignedDuration::from_mins(30)).unwrap(),
            "it has an hour"
        );
        until(scene, deadline, -1).await;
        assert!(is_deleting(&scene.get_pod("slow-to-end").unwrap()));
        until(scene, deadline, 35).await;
        assert!(scene.get_pod("slow-to-end").is_none());
        assert!(scene.phys.server.list("pods", Some(MOUNT)).is_empty());
    });
}

#[test]
fn a_pod_that_runs_until_the_deadline_has_its_own_time_or_half_a_minute() {
    taken_back(async |scene, deadline| {
        starts(scene, "slow-and-long", 3600).await;
        starts(scene, "slow-and-short", 10).await;
        until(scene, deadline, -1).await;
        assert!(ends(scene).is_empty());
        until(scene, deadline, 8).await;
        assert!(scene.get_pod("slow-and-short").is_some());
        until(scene, deadline, 14).await;
        assert!(scene.get_pod("slow-and-short").is_none(), "it asked for ten seconds");
        until(scene, deadline, 28).await;
        assert!(scene.get_pod("slow-and-long").is_some());
        until(scene, deadline, 35).await;
        assert!(scene.get_pod("slow-and-long").is_none());
    });
}

#[test]
fn a_pod_that_ends_in_time_by_itself_is_not_hurried() {
    taken_back(async |scene, deadline| {
        starts(scene, "slow-but-early", 70).await;
        until(scene, deadline, -50).await;
        scene.remove(&scene.virt, "pods", "web", "slow-but-early");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = ends(scene);
        until(scene, deadline, 3).await;
        assert_eq!(ends(scene), before, "twenty seconds after the deadline is early enough");
    });
}

#[test]
fn a_pod_that_was_deleted_by_force_goes_from_a_machine_that_has_stopped() {
    leased(async |scene| {
        scene.pod("dead", "vnode-c1-n1", json!({"terminationGracePeriodSeconds": 20}));
        scene.until_phase("dead", "Running").await;
        scene.remove(&scene.virt, "pods", "web", "dead");
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert!(scene.get_pod("dead").is_some(), "nobody has said that it runs no more");
        let place = format!("{}/dead", collection("pods", "web"));
        let by_force = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        scene.virt.server.call("user", "DELETE", &place, None, Some(by_force));
        assert!(scene.get_pod("dead").is_none());
        // The next one of that name, as a StatefulSet makes it, waits for the first.
        scene.pod("dead", "vnode-c1-n1", json!({}));
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert_eq!(scene.phys.server.list("pods", Some(MOUNT)).len(), 1, "the machine may only be slow");
        scene.until_phase("dead", "Running").await;
    });
}

#[test]
fn a_pod_whose_twin_is_deleted_while_it_runs_has_failed_though_it_ends_well() {
    leased(async |scene| {
        scene.pod("a", "vnode-c1-n1", json!({"restartPolicy": "Never"}));
        scene.until_phase("a", "Running").await;
        let place =
            format!("{}/{}", collection("pods", MOUNT), text(&scene.twin("a").unwrap(), "/metadata/name"));
        scene.phys.server.call("lender", "DELETE", &place, None, None);
        scene.until_phase("a", "Failed").await;
        let pod = scene.get_pod("a").unwrap();
        assert_eq!(text(&pod, "/status/reason"), "PhysicalPodLost");
        assert_eq!(condition(&pod, "DisruptionTarget")["status"], "True");

        // What had ended before is as it ended.
        scene.pod("job", "vnode-c1-n1", json!({"restartPolicy": "Never"}));
        scene.until_phase("job", "Succeeded").await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let place =
            format!("{}/{}", collection("pods", MOUNT), text(&scene.twin("job").unwrap(), "/metadata/name"));
        scene.phys.server.call("lender", "DELETE", &place, None, None);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(text(&scene.get_pod("job").unwrap(), "/status/phase"), "Succeeded");
    });
}

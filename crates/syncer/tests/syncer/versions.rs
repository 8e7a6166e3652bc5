//! The worker cluster's API server becomes another version: what it cannot pass on is not promised, and what it can is.

use std::time::Duration;

use kubeocean_testkit::chaos::Partition;
use serde_json::{Value, json};

use crate::scene::{MERGE, Scene, Setting};
use crate::simulated::{calm_in, calm_lives, wait};

const FEATURE: &str = "ExtendWebSocketsToKubelet";

/// A worker cluster whose API server is 1.35, and a kubelet that can what only 1.36 can pass on.
fn older(course: impl AsyncFnOnce(&Scene)) {
    let setting = Setting { nodes: &["n1"], physical_minor: 35, ..Setting::default() };
    let prepare = |scene: &Scene| {
        scene.policy(&scene.phys, "all", json!({}));
        let body = json!({"status": {"declaredFeatures": [FEATURE]}});
        let (code, answer) =
            scene.phys.server.call("kubelet", "PATCH", "/api/v1/nodes/n1/status", MERGE, Some(body));
        assert_eq!(code, 200, "{answer}");
    };
    calm_in(setting, prepare, async |scene| {
        wait(scene, "leased", 20, || scene.at_rest()).await;
        assert_eq!(features(scene), Value::Null);
        course(scene).await;
    });
}

fn features(scene: &Scene) -> Value {
    scene.vnode_of("n1")["status"]["declaredFeatures"].clone()
}

async fn is_promised(scene: &Scene, is: bool, within: u64) {
    let wanted = if is { json!([FEATURE]) } else { Value::Null };
    wait(scene, "its version is known", within, || match features(scene) {
        features if features == wanted => Ok(()),
        features => Err(features.to_string()),
    })
    .await;
}

#[test]
fn a_worker_that_was_away_for_its_upgrade_is_asked_when_it_is_back() {
    older(async |scene| {
        scene.phys.chaos.partition(Partition::Resets);
        tokio::time::sleep(Duration::from_secs(15)).await;
        scene.phys.server.becomes(Some(36));
        scene.phys.chaos.heal();
        is_promised(scene, true, 15).await;
    });
}

#[test]
fn a_new_way_to_an_upgraded_worker_is_a_reason_to_ask() {
    older(async |scene| {
        scene.phys.server.becomes(Some(36));
        scene.lead_astray(true);
        tokio::time::sleep(Duration::from_secs(2)).await;
        scene.lead_astray(false);
        is_promised(scene, true, 15).await;
    });
}

#[test]
fn an_upgrade_that_nobody_notices_is_found_and_so_is_the_way_back() {
    older(async |scene| {
        scene.phys.server.becomes(Some(36));
        tokio::time::sleep(Duration::from_secs(60)).await;
        is_promised(scene, true, 300).await;
        scene.phys.server.becomes(Some(35));
        is_promised(scene, false, 320).await;
    });
}

#[test]
fn a_version_that_cannot_be_had_at_first_is_asked_for_again() {
    let setting = Setting { nodes: &["n1"], ..Setting::default() };
    let prepare = |scene: &Scene| {
        scene.policy(&scene.phys, "all", json!({}));
        let body = json!({"status": {"declaredFeatures": [FEATURE]}});
        scene.phys.server.call("kubelet", "PATCH", "/api/v1/nodes/n1/status", MERGE, Some(body));
        scene.phys.server.becomes(None);
    };
    calm_in(setting, prepare, async |scene| {
        wait(scene, "leased", 20, || scene.at_rest()).await;
        assert_eq!(features(scene), Value::Null, "nobody knows whether it can");
        scene.phys.server.becomes(Some(36));
        is_promised(scene, true, 10).await;
    });
}

#[test]
fn one_that_says_nothing_after_its_downgrade_is_asked_until_it_does() {
    older(async |scene| {
        scene.phys.server.becomes(Some(36));
        is_promised(scene, true, 330).await;
        scene.phys.chaos.partition(Partition::Resets);
        tokio::time::sleep(Duration::from_secs(15)).await;
        scene.phys.server.becomes(None);
        scene.phys.chaos.heal();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(features(scene), json!([FEATURE]), "as far as anybody knows");
        scene.phys.server.becomes(Some(35));
        is_promised(scene, false, 15).await;
    });
}

#[test]
fn who_is_born_while_nobody_says_the_version_takes_no_promise_back() {
    let setting = Setting { nodes: &["n1"], ..Setting::default() };
    let prepare = |scene: &Scene| {
        scene.policy(&scene.phys, "all", json!({}));
        let body = json!({"status": {"declaredFeatures": [FEATURE]}});
        scene.phys.server.call("kubelet", "PATCH", "/api/v1/nodes/n1/status", MERGE, Some(body));
    };
    calm_lives(setting, prepare, async |scene, restarts| {
        wait(scene, "leased", 20, || scene.at_rest()).await;
        is_promised(scene, true, 15).await;
        // The computing cluster lets pods in.
        scene.comes_to_rest().await;
        let before = scene.vnode_of("n1")["metadata"]["resourceVersion"].clone();
        scene.phys.server.becomes(None);
        restarts.notify_one();
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(scene.vnode_of("n1")["metadata"]["resourceVersion"], before, "nothing is written");
    });
}

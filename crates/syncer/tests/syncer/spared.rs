//! Whom a toleration of closed windows spares: the borrower's own policy spares it, the lender's does not, and nobody stays on a node that
//! goes.

use std::time::Duration;

use kubeocean_api::keys::{annotations, taints};
use serde_json::{Value, json};

use crate::scene::{Scene, Setting, is_deleting, minute, text};
use crate::simulated::{calm_in, wait};

const GRACE: i64 = 60;

/// Closes five minutes from now, and takes pods a minute later.
fn closing(scene: &Scene, grace: i64) -> Value {
    let now = scene.clock.now();
    let window = json!({"start": minute(now, -60), "end": minute(now, 4)});
    json!({"timeWindows": [window], "forceReclaim": true, "gracefulReclaimPeriodSeconds": grace})
}

fn goes(scene: &Scene, pod: &str) -> bool {
    scene.get_pod(pod).is_none_or(|pod| is_deleting(&pod))
}

fn told(scene: &Scene, pod: &str) -> Value {
    scene.get_pod(pod).unwrap()["metadata"]["annotations"][annotations::RECLAIM_AT].clone()
}

fn pods(scene: &Scene) {
    let toleration =
        json!({"key": taints::OUT_OF_TIME_WINDOWS_KEY, "operator": "Exists", "effect": "NoExecute"});
    let soft = json!({"key": taints::OUT_OF_TIME_WINDOWS_KEY, "operator": "Exists", "effect": "NoSchedule"});
    scene.pod("plain", "vnode-c1-n1", json!({}));
    scene.pod("tolerant", "vnode-c1-n1", json!({"tolerations": [toleration]}));
    scene.pod("half-hearted", "vnode-c1-n1", json!({"tolerations": [soft]}));
}

/// Lends as `lend` says, starts the pods, and waits until the window has closed. `then` gets when the borrower's grace is over.
fn story(
    lender_has_policies: bool,
    lend: impl FnOnce(&Scene),
    then: impl AsyncFnOnce(&Scene, jiff::Timestamp),
) {
    let setting = Setting { lender_has_policies, nodes: &["n1"], ..Setting::default() };
    calm_in(
        setting,
        |_| (),
        async |scene| {
            let closes = scene.clock.now().checked_add(jiff::SignedDuration::from_mins(5)).unwrap();
            lend(scene);
            wait(scene, "leased", 20, || scene.at_rest()).await;
            pods(scene);
            tokio::time::sleep(scene.until(closes) + Duration::from_secs(2)).await;
            let deadline = closes.checked_add(jiff::SignedDuration::from_secs(GRACE)).unwrap();
            assert_eq!(text(&json!({"at": told(scene, "plain")}), "/at"), deadline.to_string());
            then(scene, deadline).await;
        },
    );
}

#[test]
fn under_the_borrowers_policy_alone_who_tolerates_closed_windows_stays() {
    let lend = |scene: &Scene| scene.policy(&scene.virt, "days", closing(scene, GRACE));
    story(false, lend, async |scene, deadline| {
        assert_eq!(told(scene, "tolerant"), Value::Null, "nobody wants it to go");
        tokio::time::sleep(scene.until(deadline) + Duration::from_secs(1)).await;
        assert!(goes(scene, "plain") && goes(scene, "half-hearted"));
        let taints = scene.vnode_of("n1")["spec"]["taints"].to_string();
        assert!(taints.contains("NoExecute"), "{taints}");
        tokio::time::sleep(Duration::from_secs(1200)).await;
        assert!(!goes(scene, "tolerant"));
        assert_eq!(text(&scene.get_pod("tolerant").unwrap(), "/status/phase"), "Running");

        // Its node goes: nothing is spared.
        let left = scene.clock.now();
        scene.remove(&scene.virt, "resourceleasingpolicies", "", "days");
        tokio::time::sleep(Duration::from_secs(5)).await;
        let gone: jiff::Timestamp = text(&json!({"at": told(scene, "tolerant")}), "/at").parse().unwrap();
        let grace = gone.duration_since(left).as_secs();
        assert!((GRACE..=GRACE + 2).contains(&grace), "{grace}");
        tokio::time::sleep(scene.until(gone).saturating_sub(Duration::from_secs(1))).await;
        assert!(!goes(scene, "tolerant"));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(goes(scene, "tolerant"));
        wait(
            scene,
            "gone",
            60,
            || if scene.vnodes().is_empty() { Ok(()) } else { Err("it stays".to_owned()) },
        )
        .await;
    });
}

#[test]
fn under_the_lenders_policy_nobody_stays() {
    let lend = |scene: &Scene| scene.policy(&scene.phys, "nights", closing(scene, GRACE));
    story(true, lend, async |scene, deadline| {
        assert_eq!(told(scene, "tolerant"), deadline.to_string());
        tokio::time::sleep(scene.until(deadline) + Duration::from_secs(1)).await;
        assert!(goes(scene, "plain") && goes(scene, "tolerant") && goes(scene, "half-hearted"));
    });
}

#[test]
fn under_both_who_tolerates_closed_windows_has_the_lenders_time() {
    let lend = |scene: &Scene| {
        scene.policy(&scene.virt, "days", closing(scene, GRACE));
        scene.policy(&scene.phys, "nights", closing(scene, GRACE + 120));
    };
    story(true, lend, async |scene, deadline| {
        let later = deadline.checked_add(jiff::SignedDuration::from_secs(120)).unwrap();
        assert_eq!(told(scene, "tolerant"), later.to_string());
        tokio::time::sleep(scene.until(deadline) + Duration::from_secs(1)).await;
        assert!(goes(scene, "plain") && goes(scene, "half-hearted"));
        tokio::time::sleep(scene.until(later).saturating_sub(Duration::from_secs(1))).await;
        assert!(!goes(scene, "tolerant"));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(goes(scene, "tolerant"));
    });
}

//! Whether the lender has a word is found out, and found out again: the definition of policies may come to the worker cluster later.

use std::time::Duration;

use kubeocean_api::keys::taints;
use kubeocean_model::action::kinds;
use kubeocean_model::leasing::SYNCER;
use kubeocean_testkit::{Refusal, Right};
use serde_json::{Value, json};

use crate::scene::{Scene, Setting, has_taint, is_deleting, text};
use crate::simulated::{calm_in, calm_lives, wait};

/// The next try to find policies is never longer away than this.
const FOUND_OUT: u64 = 60;

fn definitions() -> String {
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned()
}

fn name() -> String {
    format!("{}.{}", kinds::POLICY.plural, kinds::POLICY.group)
}

/// The definition of policies, as the computing cluster has it.
fn define(scene: &Scene) {
    let ours = scene.server().get("customresourcedefinitions", "", &name()).unwrap();
    let body = json!({
        "apiVersion": ours["apiVersion"], "kind": ours["kind"], "metadata": {"name": name()}, "spec": ours["spec"],
    });
    let (code, answer) = scene.phys.server.call("user", "POST", &definitions(), None, Some(body));
    assert_eq!(code, 201, "{answer}");
}

fn is_leaving(scene: &Scene) -> usize {
    scene
        .server()
        .list("nodes", None)
        .iter()
        .filter(|node| has_taint(node, taints::VNODE_DELETING_KEY))
        .count()
}

fn goes(scene: &Scene, pod: &str) -> bool {
    scene.get_pod(pod).is_none_or(|pod: std::sync::Arc<Value>| is_deleting(&pod))
}

#[test]
fn a_lender_who_gets_policies_and_has_none_takes_its_nodes_back_with_the_grace_that_was_granted() {
    let setting = Setting { lender_has_policies: false, nodes: &["n1", "n2"], ..Setting::default() };
    calm_in(
        setting,
        |_| (),
        async |scene| {
            let spec = json!({"forceReclaim": true, "gracefulReclaimPeriodSeconds": 120});
            scene.policy(&scene.virt, "all", spec);
            wait(scene, "leased", 20, || scene.at_rest()).await;
            scene.pod("plain", "vnode-c1-n1", json!({}));
            tokio::time::sleep(Duration::from_secs(20)).await;
            define(scene);
            wait(scene, "they leave", FOUND_OUT, || match is_leaving(scene) {
                // The one without a pod may be gone already.
                1 | 2 => Ok(()),
                others => Err(format!("{others} leave")),
            })
            .await;
            tokio::time::sleep(Duration::from_secs(110)).await;
            assert_eq!(scene.vnodes(), ["vnode-c1-n1"]);
            assert!(!goes(scene, "plain"), "its grace is two minutes");
            tokio::time::sleep(Duration::from_secs(12)).await;
            assert!(goes(scene, "plain"));
            wait(scene, "gone", 60, || scene.at_rest()).await;
            assert!(scene.vnodes().is_empty(), "the lender has not said a word");
            scene.policy(
                &scene.phys,
                "half",
                json!({"resourceLimits": [{"resource": "cpu", "percent": 50}]}),
            );
            wait(scene, "leased by its word", 20, || scene.at_rest()).await;
            assert_eq!(text(&scene.vnode_of("n1"), "/status/allocatable/cpu"), "3750m");
        },
    );
}

/// A worker cluster and a syncer that start together: policies can be listed, and not be watched yet. What was listed counts, and nobody loses a
/// node or a pod, nor gets more than the lender allows.
#[test]
fn a_lender_whose_policies_cannot_be_watched_yet_is_taken_at_its_word() {
    for is_narrowed in [false, true] {
        let setting = Setting { nodes: &["n1"], ..Setting::default() };
        let half = json!({"resourceLimits": [{"resource": "cpu", "percent": 50}], "forceReclaim": true});
        let prepare = |scene: &Scene| {
            scene.policy(&scene.phys, "half", half);
            if is_narrowed {
                scene.policy(&scene.virt, "all", json!({}));
            }
        };
        calm_lives(setting, prepare, async |scene, restarts| {
            wait(scene, "leased", 20, || scene.at_rest()).await;
            scene.pod("plain", "vnode-c1-n1", json!({}));
            tokio::time::sleep(Duration::from_secs(20)).await;
            let watch = Right::to("watch", "resourceleasingpolicies");
            scene.phys.server.refuse(SYNCER, watch, Refusal::Starting);
            scene.phys.server.drop_watches();
            restarts.notify_one();
            for _ in 0..60 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert_eq!(is_leaving(scene), 0, "the lender did not take its word back");
                assert_eq!(text(&scene.vnode_of("n1"), "/status/allocatable/cpu"), "3750m");
                assert!(!goes(scene, "plain"));
            }
            scene.phys.server.accept(SYNCER);
            wait(scene, "as before", 60, || scene.at_rest()).await;
        });
    }
}

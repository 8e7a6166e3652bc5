//! What the condition `Leasing` says while things change: as many nodes as there are, and no more.

use std::time::Duration;

use kubeocean_api::keys::conditions::Binding as BindingCondition;
use kubeocean_model::leasing::SYNCER;
use kubeocean_testkit::Right;
use serde_json::{Value, json};

use crate::scene::{BINDING, Scene, condition, text};
use crate::simulated::{calm, wait};

fn leasing(scene: &Scene) -> Value {
    let binding = scene.server().get("clusterbindings", "", BINDING).unwrap();
    condition(&binding, BindingCondition::Leasing.as_str())
}

fn says(scene: &Scene, status: &str, reason: &str, part: &str) -> Result<(), String> {
    let said = leasing(scene);
    let is_so =
        said["status"] == status && said["reason"] == reason && text(&said, "/message").contains(part);
    if is_so { Ok(()) } else { Err(said.to_string()) }
}

#[test]
fn nodes_that_cannot_be_made_are_said_to_be_on_their_way() {
    calm(
        async |scene| {
            scene.server().deny(SYNCER, Right::to("create", "nodes"));
            scene.policy(&scene.phys, "all", json!({}));
            let coming = "0 of 3 nodes are leased; 3 more are on their way";
            wait(scene, "on their way", 20, || says(scene, "True", "Leasing", coming)).await;
            scene.server().allow_all();
            wait(scene, "there", 400, || scene.at_rest()).await;
            wait(scene, "counted", 20, || match text(&leasing(scene), "/message") {
                "3 of 3 nodes are leased" => Ok(()),
                others => Err(others.to_owned()),
            })
            .await;
        },
        true,
    );
}

#[test]
fn a_policy_that_is_withdrawn_is_not_leasing_during_the_grace_of_its_pods() {
    calm(
        async |scene| {
            let spec = json!({"forceReclaim": true, "gracefulReclaimPeriodSeconds": 300});
            scene.policy(&scene.phys, "all", spec);
            wait(scene, "leased", 20, || scene.at_rest()).await;
            scene.pod("stays", "vnode-c1-n1", json!({}));
            tokio::time::sleep(Duration::from_secs(20)).await;
            scene.remove(&scene.phys, "resourceleasingpolicies", "", "all");
            wait(scene, "said", 5, || says(scene, "False", "NoPolicy", "virtual node")).await;
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(scene.vnodes(), ["vnode-c1-n1"], "the grace of its pod is not over");
            says(scene, "False", "NoPolicy", "; 1 virtual node leaves").unwrap();
            tokio::time::sleep(Duration::from_secs(300)).await;
            assert!(scene.vnodes().is_empty());
            assert!(!text(&leasing(scene), "/message").contains("leave"), "{}", leasing(scene));
        },
        true,
    );
}

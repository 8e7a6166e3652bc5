//! A worker cluster that is lost keeps nothing new, and nobody renews what nobody knows.

use std::time::Duration;

use kubeocean_api::keys::names::NODE_LEASE_NAMESPACE;
use kubeocean_api::keys::taints;
use kubeocean_testkit::chaos::Partition;
use serde_json::json;

use crate::scene::{Scene, has_taint, text};
use crate::simulated::{calm, wait};

fn renewed(scene: &Scene) -> Vec<String> {
    let all = scene.server().list("leases", Some(NODE_LEASE_NAMESPACE));
    all.iter().map(|lease| text(lease, "/spec/renewTime").to_owned()).collect()
}

fn unreachable(scene: &Scene) -> usize {
    let all = scene.server().list("nodes", None);
    all.iter().filter(|node| has_taint(node, taints::WORKER_UNREACHABLE_KEY)).count()
}

#[test]
fn nodes_of_a_lost_worker_are_tainted_and_not_kept_alive_until_it_is_back() {
    calm(
        async |scene| {
            scene.policy(&scene.virt, "all", json!({}));
            wait(scene, "leased", 20, || scene.at_rest()).await;
            for how in [Partition::Silent, Partition::Resets] {
                scene.phys.chaos.partition(how);
                tokio::time::sleep(Duration::from_secs(30)).await;
                let (before, tainted) = (renewed(scene), unreachable(scene));
                tokio::time::sleep(Duration::from_secs(5)).await;
                assert_eq!(tainted, 0, "half a minute is nothing");
                tokio::time::sleep(Duration::from_secs(20)).await;
                assert_eq!(unreachable(scene), 3);
                let last = renewed(scene);
                assert!(
                    before.iter().zip(&last).all(|(before, last)| before < last),
                    "they were kept alive until then"
                );
                tokio::time::sleep(Duration::from_secs(60)).await;
                assert_eq!(renewed(scene), last, "nobody knows whether they are alive");
                scene.phys.chaos.heal();
                wait(scene, "back", 10, || match unreachable(scene) {
                    0 if renewed(scene).iter().zip(&last).all(|(now, last)| now > last) => Ok(()),
                    missing => Err(format!("{missing} are lost")),
                })
                .await;
                wait(scene, "as before", 60, || scene.at_rest()).await;
            }
        },
        false,
    );
}

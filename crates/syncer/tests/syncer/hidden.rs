//! Virtual nodes from which someone takes the label away by which they are found: each is found, and nobody asks for that all the time.

use std::time::Duration;

use kubeocean_api::keys::labels;
use serde_json::json;

use crate::scene::{BINDING, Scene};
use crate::simulated::{calm, hide, wait};

/// How often hidden virtual nodes were looked for.
fn searches(scene: &Scene) -> usize {
    let all = scene.node_lists.lock();
    all.iter()
        .filter(|query| query.contains("%21%3D") || query.contains("!%3D") || query.contains("!="))
        .count()
}

fn is_hidden(scene: &Scene, vnode: &str) -> bool {
    let node = scene.server().get("nodes", "", vnode).unwrap();
    node["metadata"]["labels"][labels::CLUSTER_BINDING] != BINDING
}

async fn is_found(scene: &Scene, vnode: &str, within: u64) {
    let found = || if is_hidden(scene, vnode) { Err(format!("{vnode} is hidden")) } else { Ok(()) };
    wait(scene, "found", within, found).await;
}

#[test]
fn a_binding_of_which_much_is_said_is_no_reason_to_list_its_nodes() {
    calm(
        async |scene| {
            scene.policy(&scene.phys, "all", json!({}));
            wait(scene, "leased", 20, || scene.at_rest()).await;
            assert!(
                searches(scene) >= 1,
                "nobody knows since when nobody has looked: {:?}",
                scene.node_lists.lock()
            );
            tokio::time::sleep(Duration::from_secs(20)).await;
            let before = searches(scene);
            // Each is another number of nodes to be told on the binding.
            for _ in 0..10 {
                scene.add_node("n4");
                tokio::time::sleep(Duration::from_secs(6)).await;
                scene.policy(
                    &scene.phys,
                    "all",
                    json!({"resourceLimits": [{"resource": "cpu", "percent": 50}]}),
                );
                tokio::time::sleep(Duration::from_secs(6)).await;
                scene.policy(&scene.phys, "all", json!({"resourceLimits": null}));
            }
            assert!(searches(scene) <= before + 1, "{} in two minutes", searches(scene) - before);
            tokio::time::sleep(Duration::from_secs(1800)).await;
            let all = searches(scene) - before;
            assert!((5..=8).contains(&all), "{all} in half an hour and two minutes");
        },
        true,
    );
}

#[test]
fn a_node_that_is_hidden_is_found_at_once_and_one_that_was_hidden_unseen_a_little_later() {
    calm(
        async |scene| {
            scene.policy(&scene.phys, "all", json!({}));
            wait(scene, "leased", 20, || scene.at_rest()).await;
            // Also one that should not be there any more.
            scene.pod("stays", "vnode-c1-n1", json!({}));
            tokio::time::sleep(Duration::from_secs(20)).await;
            let spec = json!({"forceReclaim": true, "gracefulReclaimPeriodSeconds": 3600});
            scene.policy(&scene.phys, "all", spec);
            tokio::time::sleep(Duration::from_secs(20)).await;
            scene.remove(&scene.phys, "resourceleasingpolicies", "", "all");
            tokio::time::sleep(Duration::from_secs(20)).await;
            hide(scene, "vnode-c1-n1");
            is_found(scene, "vnode-c1-n1", 5).await;
            scene.policy(&scene.phys, "all", json!({}));
            wait(scene, "leased again", 20, || scene.at_rest()).await;
            // A list that comes after a watch has broken does not say what it has never shown.
            for _ in 0..3 {
                scene.server().drop_watches();
                hide(scene, "vnode-c1-n2");
                is_found(scene, "vnode-c1-n2", 320).await;
                tokio::time::sleep(Duration::from_secs(70)).await;
            }
        },
        true,
    );
}

/// Someone writes the label by which virtual nodes are found on a machine of the computing cluster.
#[test]
fn a_machine_that_names_the_binding_stays_what_it_is() {
    calm(
        async |scene| {
            let machine = json!({
                "metadata": {"name": "iron", "labels": {labels::CLUSTER_BINDING: BINDING}},
                "spec": {"providerID": "metal://iron"},
            });
            assert_eq!(scene.make(&scene.virt, "nodes", "", machine), 201);
            tokio::time::sleep(Duration::from_secs(10)).await;
            let before = scene.server().get("nodes", "", "iron").unwrap();
            scene.policy(&scene.phys, "all", json!({}));
            wait(scene, "leased", 20, || {
                let others = scene.vnodes().len();
                if others == 4 { Ok(()) } else { Err(format!("{others} nodes")) }
            })
            .await;
            tokio::time::sleep(Duration::from_secs(600)).await;
            assert_eq!(scene.server().get("nodes", "", "iron").unwrap(), before);
            let leases = scene.server().list("leases", Some("kube-node-lease"));
            assert!(leases.iter().all(|lease| lease["metadata"]["name"] != "iron"), "{leases:#?}");
        },
        true,
    );
}

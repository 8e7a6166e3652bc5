//! What a syncer owes to those before and beside it: other lives of its own, other bindings, other borrowers.

use std::collections::BTreeSet;
use std::time::Duration;

use kubeocean_api::keys::{annotations, finalizers, labels};
use kubeocean_model::naming::{ClusterId, Port, VnodeName};
use kubeocean_testkit::chaos::Partition;
use serde_json::{Value, json};

use crate::scene::{BINDING, Scene, Setting, label, text};
use crate::simulated::{calm, calm_in, calm_lives, wait};

/// Two nodes whose virtual nodes would like to have the same port.
fn rivals() -> [String; 2] {
    let cluster = ClusterId::parse("c1").unwrap();
    let port = |number: u32| VnodeName::of(&cluster, &format!("n{number}")).preferred_port();
    let mut seen = std::collections::BTreeMap::<Port, u32>::new();
    (0..)
        .find_map(|number| seen.insert(port(number), number).map(|other| [other, number]))
        .unwrap()
        .map(|number| format!("n{number}"))
}

fn port_of(scene: &Scene, node: &str) -> String {
    let vnode = scene.server().get("nodes", "", &format!("vnode-c1-{node}"));
    vnode.map(|vnode| label(&vnode, labels::PROXIER_PORT).to_owned()).unwrap_or_default()
}

#[test]
fn nodes_that_want_one_port_keep_what_they_got_whoever_dies() {
    let [one, other] = rivals();
    calm_lives(
        Setting { nodes: &[], ..Setting::default() },
        |scene| scene.policy(&scene.phys, "all", json!({})),
        async |scene, restarts| {
            let ports = || [port_of(scene, &one), port_of(scene, &other)];
            // The later of the two by name comes first, and has the port that both would like.
            scene.add_node(&other);
            wait(scene, "the first", 20, || scene.at_rest()).await;
            scene.add_node(&one);
            wait(scene, "both", 20, || scene.at_rest()).await;
            let before = ports();
            assert_ne!(before[0], before[1]);
            // Without the label, too: it is put back, and not given to anyone else.
            let gone = json!({"metadata": {"labels": {labels::PROXIER_PORT: null}}});
            scene.patch(&scene.virt, "nodes", "", &format!("vnode-c1-{other}"), gone);
            restarts.notify_one();
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert_eq!(ports(), before);
            scene.remove(&scene.phys, "nodes", "", &other);
            wait(scene, "one is gone", 60, || scene.at_rest()).await;
            restarts.notify_one();
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert_eq!(ports(), [before[0].clone(), String::new()]);
            scene.add_node(&other);
            wait(scene, "both again", 20, || scene.at_rest()).await;
            assert_eq!(ports(), before);
            scene.comes_to_rest().await;
        },
    );
}

#[test]
fn a_port_that_another_binding_has_in_the_same_process_is_not_handed_out() {
    let preferred = VnodeName::of(&ClusterId::parse("c1").unwrap(), "n1").preferred_port().to_string();
    calm_in(
        Setting::default(),
        |scene| {
            let labels = json!({labels::BINDING_UID: "another", labels::PROXIER_PORT: preferred});
            let body = json!({"metadata": {"name": "vnode-other-n1", "labels": labels}});
            assert_eq!(scene.make(&scene.virt, "nodes", "", body), 201);
            scene.policy(&scene.phys, "all", json!({}));
        },
        async |scene| {
            wait(scene, "leased", 20, || {
                if port_of(scene, "n1").is_empty() { Err("not yet".to_owned()) } else { Ok(()) }
            })
            .await;
            assert_ne!(port_of(scene, "n1"), preferred);
        },
    );
}

#[test]
fn a_node_that_forgot_its_grace_while_nobody_watched_still_gives_some() {
    calm_lives(
        Setting::default(),
        |scene| scene.policy(&scene.phys, "all", json!({"gracefulReclaimPeriodSeconds": 600})),
        async |scene, restarts| {
            wait(scene, "leased", 20, || scene.at_rest()).await;
            scene.pod("plain", "vnode-c1-n1", json!({}));
            tokio::time::sleep(Duration::from_secs(10)).await;
            // All in one moment: what it remembers, who else remembers it, and what it was about.
            scene.patch(&scene.virt, "nodes", "", "vnode-c1-n1", json!({"metadata": {"annotations": null}}));
            scene.remove(&scene.phys, "resourceleasingpolicies", "", "all");
            restarts.notify_one();
            tokio::time::sleep(Duration::from_secs(30)).await;
            let told = |pod: &Value| !pod["metadata"]["annotations"][annotations::RECLAIM_AT].is_null();
            assert!(told(&scene.get_pod("plain").unwrap()), "it has to go");
            tokio::time::sleep(Duration::from_secs(240)).await;
            assert!(scene.get_pod("plain").is_some(), "five minutes are not over");
            wait(scene, "gone", 60, || scene.at_rest()).await;
        },
    );
}

#[test]
fn a_syncer_that_is_born_while_its_binding_goes_takes_its_word_out_of_the_lenders_policy() {
    calm_lives(
        Setting { nodes: &[], ..Setting::default() },
        |scene| scene.policy(&scene.phys, "all", json!({})),
        async |scene, restarts| {
            let entries = || {
                let policy = scene.lenders_policy("all");
                policy["status"]["bindings"].as_array().map_or(0, Vec::len)
            };
            let is_there =
                |count| move || if entries() == count { Ok(()) } else { Err("not yet".to_owned()) };
            wait(scene, "it is spoken of", 60, is_there(1)).await;
            // In one moment: whoever led is gone, so is the binding, and the worker cluster does not answer for a while.
            scene.phys.chaos.partition(Partition::Resets);
            restarts.notify_one();
            scene.remove(&scene.virt, "clusterbindings", "", BINDING);
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert!(
                scene.server().get("clusterbindings", "", BINDING).is_some(),
                "nobody has asked the lender"
            );
            scene.phys.chaos.heal();
            wait(scene, "no word is left", 60, is_there(0)).await;
            wait(scene, "the binding is gone", 60, || {
                let finalizers = scene.server().get("clusterbindings", "", BINDING);
                let finalizers = finalizers.map(|binding| binding["metadata"]["finalizers"].to_string());
                let held = finalizers.is_some_and(|held| held.contains(finalizers::CLUSTER_BINDING_SYNCER));
                if held { Err("held".to_owned()) } else { Ok(()) }
            })
            .await;
        },
    );
}

#[test]
fn two_borrowers_of_one_policy_each_have_their_entry_and_take_it_away() {
    calm(
        async |scene| {
            let other = scene.another_borrower("c2");
            let limit = json!({"resourceLimits": [{"resource": "cpu", "percent": 50}]});
            scene.policy(&scene.phys, "shared", limit);
            let uid = |scene: &Scene| {
                let binding = scene.server().get("clusterbindings", "", BINDING);
                binding.map(|binding| text(&binding, "/metadata/uid").to_owned()).unwrap_or_default()
            };
            let uids = BTreeSet::from([uid(scene), uid(&other)]);
            let entries = || {
                let policy = scene.lenders_policy("shared");
                let all = policy["status"]["bindings"].as_array().cloned().unwrap_or_default();
                all.iter()
                    .map(|one| (text(one, "/bindingUID").to_owned(), one["nodes"].clone()))
                    .collect::<Vec<_>>()
            };
            let course = async {
                wait(scene, "both have three nodes", 60, || {
                    let all = entries();
                    let known: BTreeSet<String> = all.iter().map(|(uid, _)| uid.clone()).collect();
                    let counted = all.iter().all(|(_, nodes)| *nodes == json!(3));
                    if known == uids && counted { Ok(()) } else { Err(format!("{all:?}")) }
                })
                .await;
                assert_eq!(other.vnodes(), ["vnode-c2-n1", "vnode-c2-n2", "vnode-c2-n3"]);
                let details = scene.server().get("nodes", "", "vnode-c1-n1").unwrap();
                let details = details["metadata"]["annotations"][annotations::POLICY_DETAILS]
                    .as_str()
                    .unwrap()
                    .to_owned();
                assert!(details.contains(r#""limits":{"cpu":["50%"]}"#), "{details}");
                // What one of them runs is used for the other.
                scene.pod_of_another_binding("twin", "n1", "1500m");
                wait(scene, "less", 20, || scene.at_rest()).await;
                let written = scene.phys.server.revision();
                tokio::time::sleep(Duration::from_secs(120)).await;
                assert_eq!(scene.phys.server.revision(), written, "they do not argue");
                // Who leaves takes its own entry along, before its binding goes.
                other.remove(&other.virt, "clusterbindings", "", BINDING);
                wait(scene, "unbound", 60, || match other.server().get("clusterbindings", "", BINDING) {
                    Some(binding) => Err(format!("{}", binding["metadata"]["finalizers"])),
                    None => Ok(()),
                })
                .await;
                assert_eq!(entries(), [(uid(scene), json!(3))]);
            };
            tokio::select! {
                biased;
                () = other.sync(None) => {}
                () = course => {}
            }
        },
        true,
    );
}

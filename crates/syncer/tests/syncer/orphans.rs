//! What a binding has left in the worker cluster that was forced away: whoever comes after it under the same name clears it up.

use std::time::Duration;

use kubeocean_api::keys::labels;
use kubeocean_testkit::chaos::Partition;
use serde_json::{Value, json};

use crate::pods::leased;
use crate::scene::{BINDING, MOUNT, Scene, label, text};
use crate::simulated::wait;

const KINDS: [&str; 7] = [
    "pods",
    "configmaps",
    "secrets",
    "persistentvolumeclaims",
    "persistentvolumes",
    "services",
    "endpointslices",
];

impl Scene {
    /// Everything in the worker cluster that was made for a binding with this uid.
    fn made_for(&self, binding: &str) -> Vec<String> {
        let of = |plural: &'static str| {
            let all =
                self.made_by_us(plural).into_iter().filter(|one| label(one, labels::BINDING_UID) == binding);
            all.map(|one| format!("{plural}/{}", text(&one, "/metadata/name"))).collect::<Vec<_>>()
        };
        KINDS.into_iter().flat_map(of).collect()
    }

    fn binding_uid(&self) -> String {
        let binding = self.virt.server.get("clusterbindings", "", BINDING).unwrap();
        text(&binding, "/metadata/uid").to_owned()
    }

    /// A pod with everything that a pod can use.
    async fn equipped(&self, name: &str) {
        let volumes = json!([
            {"name": "c", "configMap": {"name": "settings"}}, {"name": "s", "secret": {"secretName": "key"}},
            {"name": "d", "persistentVolumeClaim": {"claimName": "disk"}},
        ]);
        self.pod(name, "vnode-c1-n1", json!({"volumes": volumes, "automountServiceAccountToken": true}));
        self.until_phase(name, "Running").await;
    }
}

/// The binding is gone at once, and nobody has cleared up after it; another one has its name.
fn forced_away_and_made_again(scene: &Scene) {
    scene.patch(&scene.virt, "clusterbindings", "", BINDING, json!({"metadata": {"finalizers": null}}));
    scene.remove(&scene.virt, "clusterbindings", "", BINDING);
    assert!(scene.virt.server.get("clusterbindings", "", BINDING).is_none());
    for pod in scene.virt.server.list("pods", Some("web")) {
        let force = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        let place = format!("/api/v1/namespaces/web/pods/{}", text(&pod, "/metadata/name"));
        scene.virt.server.call("user", "DELETE", &place, None, Some(force));
    }
    for vnode in scene.vnodes() {
        scene.remove(&scene.virt, "nodes", "", &vnode);
    }
    scene.bind();
}

#[test]
fn what_a_binding_left_that_was_forced_away_is_gone_a_minute_after_the_worker_is_reached_again() {
    leased(async |scene| {
        let secret = json!({"metadata": {"name": "key"}, "data": {"k": "cw=="}});
        scene.make(&scene.virt, "secrets", "web", secret);
        let settings = json!({"metadata": {"name": "settings"}, "data": {"a": "1"}});
        scene.make(&scene.virt, "configmaps", "web", settings);
        scene.claim("disk");
        scene.bind_claim("disk", json!({"nfs": {"server": "10.0.0.7", "path": "/data"}}));
        scene.service("db", json!({}));
        scene.slice("db-1", "db", "10.1.0.1");
        scene.equipped("a").await;
        // Nothing of this one holds anything else.
        scene.pod("b", "vnode-c1-n1", json!({}));
        scene.until_phase("b", "Running").await;
        let before = scene.binding_uid();
        for plural in KINDS {
            assert!(scene.made_for(&before).iter().any(|one| one.starts_with(plural)), "{plural}");
        }
        // What another cluster says to be its own is its own.
        let twin = scene.twin("b").unwrap();
        let name = text(&twin, "/metadata/name").to_owned();
        let other = json!({"metadata": {"labels": {labels::VIRTUAL_CLUSTER_UID: "another"}}});
        scene.phys.chaos.partition(Partition::Silent);
        scene.patch(&scene.phys, "pods", MOUNT, &name, other);
        forced_away_and_made_again(scene);
        tokio::time::sleep(Duration::from_secs(120)).await;
        scene.phys.chaos.heal();
        wait(scene, "nothing is left of the first", 60, || {
            let mut left = scene.made_for(&before);
            left.retain(|one| *one != format!("pods/{name}"));
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
        assert_ne!(scene.binding_uid(), before);
        tokio::time::sleep(Duration::from_secs(900)).await;
        let left = scene.phys.server.get("pods", MOUNT, &name).expect("it is another's");
        assert_eq!(left["metadata"]["uid"], twin["metadata"]["uid"]);
        assert_eq!(left["metadata"]["deletionTimestamp"], Value::Null);
    });
}

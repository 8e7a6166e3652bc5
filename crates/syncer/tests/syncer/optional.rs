//! What a pod can do without: it gets it if it is there, and waits for nothing that is not.

use std::time::Duration;

use kubeocean_model::leasing::SYNCER;
use kubeocean_testkit::{Refusal, Right};
use serde_json::{Value, json};

use crate::pods::{leased, leased_lives};
use crate::scene::{MOUNT, Scene, text};
use crate::simulated::wait;

impl Scene {
    fn settings(&self, name: &str) {
        let body = json!({"metadata": {"name": name}, "data": {"a": "1"}});
        assert_eq!(self.make(&self.virt, "configmaps", "web", body), 201);
    }

    /// Whatever the syncer has told people of missing things.
    fn complaints(&self) -> Vec<String> {
        let events = self.virt.server.list("events", Some("web"));
        let missing = events.iter().filter(|event| text(event, "/reason") == "DependencyMissing");
        missing.map(|event| text(event, "/message").to_owned()).collect()
    }
}

fn perhaps() -> Value {
    let optional = json!({"configMapRef": {"name": "perhaps", "optional": true}});
    let container = json!({"name": "c", "image": "i", "envFrom": [optional]});
    json!({"containers": [container], "imagePullSecrets": [{"name": "registry"}]})
}

#[test]
fn a_pod_starts_with_what_it_could_do_without_if_that_is_there() {
    leased_lives(async |scene, restarts| {
        scene.settings("perhaps");
        let secret = json!({"metadata": {"name": "registry"}, "data": {"k": "cw=="}});
        assert_eq!(scene.make(&scene.virt, "secrets", "web", secret), 201);
        // Its copy takes a while: the worker does not take it at once.
        scene.phys.server.refuse(SYNCER, Right::to("create", "configmaps").within(MOUNT), Refusal::Quota);
        scene.pod("a", "vnode-c1-n1", perhaps());
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(scene.twin("a").is_none(), "it would run without what is there");
        restarts.notify_one();
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(scene.twin("a").is_none(), "so it would under another leader");
        scene.phys.server.accept(SYNCER);
        wait(scene, "it runs", 120, || match scene.twin("a") {
            Some(_) => Ok(()),
            None => Err("no twin".to_owned()),
        })
        .await;
        let (twin, copies) = (scene.twin("a").unwrap(), scene.ours_in_p("configmaps"));
        assert_eq!(copies.len(), 1);
        assert_eq!(
            twin["spec"]["containers"][0]["envFrom"][0]["configMapRef"]["name"],
            copies[0]["metadata"]["name"]
        );
        assert_eq!(
            twin["spec"]["imagePullSecrets"][0]["name"],
            scene.ours_in_p("secrets")[0]["metadata"]["name"]
        );
    });
}

#[test]
fn a_pod_does_not_wait_for_what_it_can_do_without_and_nobody_complains() {
    leased(async |scene| {
        scene.pod("a", "vnode-c1-n1", perhaps());
        wait(scene, "it runs", 5, || match scene.twin("a") {
            Some(_) => Ok(()),
            None => Err("no twin".to_owned()),
        })
        .await;
        assert_eq!(scene.complaints(), Vec::<String>::new());
        // What was not there once may be there for the next one.
        scene.settings("perhaps");
        scene.pod("b", "vnode-c1-n1", perhaps());
        scene.until_phase("b", "Running").await;
        let name = &scene.ours_in_p("configmaps")[0]["metadata"]["name"];
        let twin = scene.twin("b").unwrap();
        assert_eq!(twin["spec"]["containers"][0]["envFrom"][0]["configMapRef"]["name"], *name);
    });
}

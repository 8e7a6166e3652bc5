//! What a user would notice, each told once in a calm world.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kubeocean_api::keys::{annotations, labels};
use kubeocean_model::action::kinds;
use kubeocean_model::key::Key;
use kubeocean_testkit::chaos::Profile;
use kubeocean_testkit::simulation::run;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::residents::{collection, text};
use crate::scene::{MOUNT, REST_WITHIN, Scene};
use crate::simulated::beside;

/// A course in a calm world, beside one manager.
fn calmly<F: Future<Output = ()>>(inline: bool, course: impl FnOnce(Scene) -> F) {
    let ((), violations) = run(7, |world| async move {
        let scene = Scene::new(&world, |_| Profile::calm());
        scene.inline.store(inline, Ordering::Relaxed);
        beside(&scene, &Notify::new(), course(scene.clone())).await;
    });
    assert!(violations.is_empty(), "{violations:#?}");
}

async fn rest(scene: &Scene) {
    scene.world.oracle.rest(REST_WITHIN, || scene.at_rest()).await;
}

async fn seconds(time: u64) {
    tokio::time::sleep(Duration::from_secs(time)).await;
}

#[test]
fn a_binding_that_became_misspelt_can_be_unbound() {
    for (inline, foreground) in [(false, false), (false, true), (true, true)] {
        calmly(inline, |scene| async move {
            scene.bind("w1", "c1", "s1");
            rest(&scene).await;
            // Its syncer has work to do.
            seconds(20).await;
            scene.misspell("w1");
            seconds(20).await;
            let bindings = scene.virt.server.list("clusterbindings", None);
            assert_eq!(text(&bindings[0], "/status/phase"), "Failed", "{}", bindings[0]);
            scene.unbind("w1", foreground);
            rest(&scene).await;
            assert_eq!(scene.virt.server.list("clusterbindings", None).len(), 0, "inline: {inline}");
        });
    }
}

#[test]
fn what_is_left_is_counted_when_the_syncer_of_the_manager_has_ended() {
    calmly(true, |scene| async move {
        scene.bind("w1", "c1", "s1");
        rest(&scene).await;
        seconds(20).await;
        let binding = scene.virt.server.get("clusterbindings", "", "w1").unwrap();
        let stamp = json!({labels::BINDING_UID: text(&binding, "/metadata/uid")});
        let pod = json!({
            "metadata": {"name": "a", "labels": stamp},
            "spec": {"automountServiceAccountToken": false, "containers": [{"name": "main", "image": "none"}]},
        });
        let (code, answer) =
            scene.workers[0].server.call("syncer", "POST", &collection("pods", MOUNT), None, Some(pod));
        assert_eq!(code, 201, "{answer}");
        let forced = json!({"metadata": {"annotations": {annotations::FORCE_UNBIND: "a test"}}});
        scene.patch_binding("w1", forced);
        scene.unbind("w1", false);
        rest(&scene).await;
        seconds(10).await;
        let events = scene.virt.server.list("events", None);
        let said: Vec<&str> = events.iter().map(|event| text(event, "/message")).collect();
        assert!(said.iter().any(|words| words.contains("Left in the worker cluster: nothing;")), "{said:#?}");
    });
}

#[test]
fn a_rotated_kubeconfig_is_used_before_all_rights_are_asked_for() {
    const CALLS: u64 = 20;
    calmly(true, |scene| async move {
        scene.bind("w1", "c1", "s1");
        rest(&scene).await;
        seconds(20).await;
        let phys = scene.phys.lock().clone().unwrap();
        // Seventy questions, two at a time, take more than half a minute.
        scene.workers[0].chaos.set_profile(Profile { slow: Duration::from_secs(1), ..Profile::calm() });
        scene.write_secret("s1", "p1 far");
        seconds(5).await;
        let before = scene.far.counts().requests;
        let (kind, namespace) = (kinds::NAMESPACE, Key::cluster_scoped(MOUNT));
        let calls = (0..CALLS).map(|_| phys.get(&kind, &namespace));
        futures::future::join_all(calls).await;
        let through = scene.far.counts().requests - before;
        assert!(through >= CALLS, "{through} of {CALLS} went over the new connection");
        scene.workers[0].chaos.calm();
        scene.comes_to_rest().await;
    });
}

/// The condition Valid of the only policy: its status and reason.
fn valid(scene: &Scene) -> Option<(String, String)> {
    let policies = scene.virt.server.list("resourceleasingpolicies", None);
    let conditions = policies[0]["status"]["conditions"].as_array()?.clone();
    let valid: &Value = conditions.iter().find(|one| one["type"] == "Valid")?;
    Some((text(valid, "/status").to_owned(), text(valid, "/reason").to_owned()))
}

#[test]
fn a_policy_hears_that_its_binding_does_not_exist_as_long_as_that_is_true() {
    calmly(false, |scene| async move {
        let policy = json!({
            "apiVersion": kinds::POLICY.api_version(), "kind": "ResourceLeasingPolicy",
            "metadata": {"name": "nights"}, "spec": {"cluster": "w1"},
        });
        let place = collection("resourceleasingpolicies", "");
        let (code, answer) = scene.virt.server.call("user", "POST", &place, None, Some(policy));
        assert_eq!(code, 201, "{answer}");
        let complaint = Some(("False".to_owned(), "NoSuchBinding".to_owned()));
        seconds(5).await;
        assert_eq!(valid(&scene), complaint);
        scene.bind("w1", "c1", "s1");
        rest(&scene).await;
        seconds(5).await;
        assert_eq!(valid(&scene), None, "what is not true any more is taken back");
        scene.unbind("w1", false);
        rest(&scene).await;
        seconds(5).await;
        assert_eq!(valid(&scene), complaint);
    });
}

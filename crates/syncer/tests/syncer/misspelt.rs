//! A binding that was good, and was then edited to something that nobody can follow: what is borrowed is kept, given back in time, and
//! told, and nothing more is borrowed.

use std::time::Duration;

use kubeocean_api::keys::conditions::Binding as BindingCondition;
use kubeocean_api::keys::{annotations, taints};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::scene::{BINDING, Scene, Setting, condition, has_taint, is_deleting, minute, text};
use crate::simulated::{calm_lives, wait};

/// API servers take it: they do not look at values of selectors.
pub(crate) fn misspell(scene: &Scene) {
    let expressions = json!([{"key": "zone", "operator": "In", "values": ["not a label!"]}]);
    select(scene, json!({"nodeSelectorTerms": [{"matchExpressions": expressions}]}));
}

/// Corrects it, if it is misspelt.
pub(crate) fn correct(scene: &Scene) {
    let binding = scene.server().get("clusterbindings", "", BINDING);
    if binding.is_some_and(|binding| binding["spec"]["nodeSelector"].to_string().contains("not a label!")) {
        select(scene, Value::Null);
    }
}

fn select(scene: &Scene, selector: Value) {
    scene.patch(&scene.virt, "clusterbindings", "", BINDING, json!({"spec": {"nodeSelector": selector}}));
}

fn leasing(scene: &Scene) -> Value {
    let binding = scene.server().get("clusterbindings", "", BINDING).unwrap();
    condition(&binding, BindingCondition::Leasing.as_str())
}

async fn runs(scene: &Scene, pod: &str) {
    wait(scene, "it runs", 20, || {
        match scene.get_pod(pod).map(|pod| text(&pod, "/status/phase").to_owned()) {
            Some(phase) if phase == "Running" => Ok(()),
            phase => Err(format!("{pod} is {phase:?}")),
        }
    })
    .await;
}

/// Five minutes until the window closes, another minute until what runs is removed. `meanwhile` comes right after the edit.
fn with_a_window_that_closes(meanwhile: impl AsyncFnOnce(&Scene, &Notify)) {
    let setting = Setting { nodes: &["n1", "n2"], ..Setting::default() };
    calm_lives(
        setting,
        |_| (),
        async |scene, restarts| {
            let now = scene.clock.now();
            let window = json!({"start": minute(now, -60), "end": minute(now, 4)});
            let closes = now.checked_add(jiff::SignedDuration::from_mins(5)).unwrap();
            let deadline = closes.checked_add(jiff::SignedDuration::from_secs(60)).unwrap();
            let spec =
                json!({"timeWindows": [window], "forceReclaim": true, "gracefulReclaimPeriodSeconds": 60});
            scene.policy(&scene.phys, "nights", spec);
            wait(scene, "leased", 20, || scene.at_rest()).await;
            scene.pod("before", "vnode-c1-n1", json!({}));
            runs(scene, "before").await;

            misspell(scene);
            let binding = scene.server().get("clusterbindings", "", BINDING).unwrap();
            assert!(binding["spec"]["nodeSelector"].is_object(), "the API server takes it: {binding}");
            meanwhile(scene, restarts).await;
            tokio::time::sleep(Duration::from_secs(30)).await;
            scene.add_node("n3");
            scene.pod("after", "vnode-c1-n1", json!({}));
            runs(scene, "after").await;
            let said = leasing(scene);
            assert_eq!((&said["status"], &said["reason"]), (&json!("False"), &json!("ValidationFailed")));
            let words = text(&said, "/message");
            for part in [
                "spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0]",
                "not a label!",
                "2 virtual nodes go on",
            ] {
                assert!(words.contains(part), "{words}");
            }
            assert_eq!(scene.vnodes(), ["vnode-c1-n1", "vnode-c1-n2"], "nothing more, and nothing less");

            tokio::time::sleep(scene.until(closes) + Duration::from_secs(1)).await;
            assert!(has_taint(&scene.vnode_of("n1"), taints::OUT_OF_TIME_WINDOWS_KEY));
            let told = |pod: &Value| text(pod, "/metadata/annotations/kubeocean.io~1reclaim-at").to_owned();
            assert_eq!(annotations::RECLAIM_AT, "kubeocean.io/reclaim-at");
            for pod in ["before", "after"] {
                assert_eq!(told(&scene.get_pod(pod).unwrap()), deadline.to_string(), "{pod}");
            }
            tokio::time::sleep(scene.until(deadline) + Duration::from_secs(1)).await;
            for pod in ["before", "after"] {
                assert!(scene.get_pod(pod).is_none_or(|pod| is_deleting(&pod)), "{pod} is past its time");
            }
            let policy = scene.lenders_policy("nights");
            assert_eq!(text(&policy, "/status/phase"), "Inactive", "{policy}");

            correct(scene);
            wait(scene, "all is said", 30, || scene.at_rest()).await;
            assert_eq!(scene.vnodes().len(), 3);
            assert_eq!(leasing(scene)["status"], "True");
        },
    );
}

#[test]
fn a_binding_that_someone_misspelt_keeps_its_nodes_and_gives_them_back_in_time() {
    with_a_window_that_closes(async |_, _| ());
}

#[test]
fn a_syncer_that_starts_with_a_misspelt_binding_keeps_its_nodes_and_gives_them_back_in_time() {
    with_a_window_that_closes(async |_, restarts| restarts.notify_one());
}

#[test]
fn a_misspelt_binding_is_let_go_like_any_other() {
    let setting = Setting { nodes: &["n1"], ..Setting::default() };
    calm_lives(
        setting,
        |_| (),
        async |scene, _| {
            scene.policy(&scene.phys, "all", json!({"forceReclaim": true}));
            wait(scene, "leased", 20, || scene.at_rest()).await;
            misspell(scene);
            tokio::time::sleep(Duration::from_secs(30)).await;
            scene.remove(&scene.virt, "clusterbindings", "", BINDING);
            wait(scene, "gone", 60, || match scene.server().get("clusterbindings", "", BINDING) {
                Some(binding) => Err(format!("{}", binding["metadata"]["finalizers"])),
                None => Ok(()),
            })
            .await;
            assert!(scene.vnodes().is_empty());
        },
    );
}

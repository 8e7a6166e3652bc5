//! Pods that the worker cluster does not let in: its words are told, nobody believes that they ran, and they run once they may.

use std::time::Duration;

use kubeocean_api::keys::reasons::Event as EventReason;
use kubeocean_model::leasing::SYNCER;
use kubeocean_testkit::{Refusal, Right, Verb};
use serde_json::{Value, json};

use crate::pods::leased_lives;
use crate::scene::{MERGE, MOUNT, Scene, collection, condition, text};
use crate::simulated::wait;

/// The longest between two tries, with what the queue adds.
const TRIED_AGAIN: u64 = 330;

const MAPPED: &str = "kubeocean.io/Mapped";

const REFUSALS: [(Refusal, &str); 3] = [
    (Refusal::Quota, "exceeded quota: lent"),
    (Refusal::Denied, "denied the request: not here"),
    (Refusal::Broken, "failed calling webhook \"guard.example.com\""),
];

impl Scene {
    fn refuse_twins(&self, refusal: Refusal) {
        self.phys.server.refuse(SYNCER, Right::to("create", "pods").within(MOUNT), refusal);
    }

    fn mapped(&self, name: &str) -> Value {
        self.get_pod(name).map(|pod| condition(&pod, MAPPED)).unwrap_or_default()
    }

    async fn until_refused(&self, name: &str, words: &str) {
        wait(self, "it says that it is refused", 10, || {
            let said = self.mapped(name);
            let is_said = said["status"] == "False"
                && said["reason"] == "FailedCreate"
                && text(&said, "/message").contains(words);
            if is_said { Ok(()) } else { Err(said.to_string()) }
        })
        .await;
    }

    /// How often the syncer has written on a pod since.
    fn writes_on(&self, name: &str, since: u64) -> usize {
        let all = self.virt.server.history(since);
        all.iter().filter(|one| one.actor == SYNCER && one.plural == "pods" && one.name == name).count()
    }

    /// How many twins a pod ever had.
    fn births_of(&self, pod: &Value) -> usize {
        let uid = text(pod, "/metadata/uid");
        let all = self.phys.server.history(0);
        let born = all.iter().filter(|one| one.plural == "pods" && one.verb == Verb::Create);
        born.filter(|one| one.new.as_deref().is_some_and(|new| crate::pods::virtual_uid(new) == uid)).count()
    }
}

#[test]
fn a_job_that_the_worker_refuses_has_not_run_and_runs_once_when_it_is_let_in() {
    for (refusal, words) in REFUSALS {
        leased_lives(async |scene, restarts| {
            scene.refuse_twins(refusal);
            scene.pod("job", "vnode-c1-n1", json!({"restartPolicy": "Never"}));
            scene.until_refused("job", words).await;
            let events = scene.virt.server.list("events", Some("web"));
            let told = |event: &Value| {
                event["reason"] == EventReason::FailedCreate.as_str()
                    && text(event, "/involvedObject/name") == "job"
                    && text(event, "/message").contains(words)
            };
            assert!(events.iter().any(|event| told(event)), "{events:#?}");
            let since = scene.virt.server.revision();
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(200)).await;
                // Others come and go meanwhile: the number in a quota's words is another one.
                scene.pod_of_another_binding("other", "n2", "1m");
                assert_eq!(scene.mapped("job")["status"], "False");
                assert_eq!(text(&scene.get_pod("job").unwrap(), "/status/phase"), "Pending");
                restarts.notify_one();
            }
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(scene.mapped("job")["status"], "False");
            assert_eq!(scene.writes_on("job", since), 0, "all of it is said");
            scene.phys.server.accept(SYNCER);
            wait(scene, "it has run", TRIED_AGAIN, || {
                let pod = scene.get_pod("job").unwrap();
                match text(&pod, "/status/phase") {
                    "Succeeded" => Ok(()),
                    _ => Err(pod["status"].to_string()),
                }
            })
            .await;
            let said = scene.mapped("job");
            assert_eq!((&said["status"], &said["message"]), (&json!("True"), &Value::Null));
            assert_eq!(scene.births_of(&scene.get_pod("job").unwrap()), 1);
        });
    }
}

#[test]
fn what_was_said_of_a_refusal_is_taken_back_when_the_pod_runs() {
    for (refusal, words) in REFUSALS {
        leased_lives(async |scene, restarts| {
            scene.refuse_twins(refusal);
            scene.pod("a", "vnode-c1-n1", json!({}));
            scene.until_refused("a", words).await;
            restarts.notify_one();
            tokio::time::sleep(Duration::from_secs(200)).await;
            assert_eq!(scene.mapped("a")["status"], "False");
            scene.phys.server.accept(SYNCER);
            wait(scene, "it runs", TRIED_AGAIN, || {
                let pod = scene.get_pod("a").unwrap();
                if text(&pod, "/status/phase") == "Running" { Ok(()) } else { Err(pod["status"].to_string()) }
            })
            .await;
            assert_eq!(scene.mapped("a"), Value::Null);
            assert_eq!(condition(&scene.get_pod("a").unwrap(), "Ready")["status"], "True");
            assert_eq!(scene.births_of(&scene.get_pod("a").unwrap()), 1);
        });
    }
}

#[test]
fn a_pod_that_is_deleted_while_it_is_refused_goes_at_once() {
    leased_lives(async |scene, _| {
        scene.refuse_twins(Refusal::Quota);
        scene.pod(
            "job",
            "vnode-c1-n1",
            json!({"restartPolicy": "Never", "automountServiceAccountToken": true}),
        );
        scene.until_refused("job", "exceeded quota").await;
        tokio::time::sleep(Duration::from_secs(400)).await;
        scene.remove(&scene.virt, "pods", "web", "job");
        wait(scene, "gone", 5, || scene.get_pod("job").map_or(Ok(()), |pod| Err(pod["status"].to_string())))
            .await;
        scene.until_clean().await;
    });
}

#[test]
fn a_change_that_the_worker_refuses_for_a_while_is_passed_on_later() {
    for (refusal, words) in REFUSALS {
        leased_lives(async |scene, _| {
            scene.pod("a", "vnode-c1-n1", json!({}));
            scene.until_phase("a", "Running").await;
            scene.phys.server.refuse(SYNCER, Right::to("update", "pods").within(MOUNT), refusal);
            let image = json!({"spec": {"containers": [{"name": "c", "image": "other"}]}});
            let place = format!("{}/a", collection("pods", "web"));
            let strategic = Some("application/strategic-merge-patch+json");
            scene.virt.server.call("user", "PATCH", &place, strategic, Some(image));
            tokio::time::sleep(Duration::from_secs(20)).await;
            let events = scene.virt.server.list("events", Some("web"));
            assert!(events.iter().any(|event| text(event, "/message").contains(words)), "{events:#?}");
            // What the twin says is told all the same.
            is_told_of_another_address(scene, "a").await;
            scene.phys.server.accept(SYNCER);
            wait(scene, "its twin has the other image", 65, || {
                let twin = scene.twin("a").unwrap();
                let image = text(&twin, "/spec/containers/0/image").to_owned();
                if image == "other" { Ok(()) } else { Err(image) }
            })
            .await;
        });
    }
}

#[test]
fn what_cannot_be_passed_on_keeps_no_word_of_the_twin_back() {
    leased_lives(async |scene, _| {
        scene.pod("a", "vnode-c1-n1", json!({"automountServiceAccountToken": true}));
        scene.until_phase("a", "Running").await;
        let before = scene.tokens_of("a");
        // Its token cannot be renewed any more.
        scene.phys.server.refuse(SYNCER, Right::to("update", "secrets").within(MOUNT), Refusal::Quota);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(scene.tokens_of("a"), before, "it is refused");
        is_told_of_another_address(scene, "a").await;
        scene.phys.server.accept(SYNCER);
    });
}

/// What a kubelet says of the twin reaches its pod.
async fn is_told_of_another_address(scene: &Scene, pod: &str) {
    let twin = scene.twin(pod).unwrap();
    let place = format!("{}/{}/status", collection("pods", MOUNT), text(&twin, "/metadata/name"));
    let body = json!({"status": {"podIP": "10.1.0.9", "podIPs": [{"ip": "10.1.0.9"}]}});
    scene.phys.server.call("kubelet", "PATCH", &place, MERGE, Some(body));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(text(&scene.get_pod(pod).unwrap(), "/status/podIP"), "10.1.0.9");
}

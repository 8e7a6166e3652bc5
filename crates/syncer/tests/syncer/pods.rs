//! Pods of virtual nodes run in the worker cluster, with what they need, and come back clean.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use kubeocean_api::keys::reasons::Pod as Reason;
use kubeocean_api::keys::{annotations, labels};
use kubeocean_model::leasing::SYNCER;
use kubeocean_model::vnode::VirtualNode;
use kubeocean_testkit::{Right, Verb};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::kubelet::{NOWHERE, virtual_name};
use crate::scene::{MOUNT, Scene, Setting, condition, label, object, text};
use crate::simulated::{calm_lives, counted, shows, wait};

const ONE_TWIN: &str = "a pod has at most one living twin";
const TWIN_FIRST: &str = "a pod that we remove has no twin any more";
const FINAL: &str = "what has ended does not run again";

impl Scene {
    /// What must hold of pods and their twins after every commit.
    pub(crate) fn rules_of_twins(&self) {
        let oracle = &self.world.oracle;
        let server = self.phys.server.clone();
        oracle.always("P", &self.phys.server, ONE_TWIN, move |commit| {
            if commit.plural != "pods" || commit.verb != Verb::Create {
                return Ok(());
            }
            let Some(new) = commit.new.as_deref() else { return Ok(()) };
            let of = virtual_uid(new);
            let same = |one: &&Arc<Value>| !of.is_empty() && virtual_uid(one) == of;
            let all = server.list_at(commit.revision, "pods", Some(MOUNT));
            match all.iter().filter(same).count() {
                0 | 1 => Ok(()),
                many => Err(format!("{many} twins of {}", virtual_name(new))),
            }
        });
        let (phys, restored) = (self.phys.server.clone(), Arc::clone(&self.restored));
        let virt = self.virt.server.clone();
        oracle.always("V", &self.virt.server, TWIN_FIRST, move |commit| {
            let goes = commit.plural == "pods" && commit.verb == Verb::Delete && commit.actor == SYNCER;
            let Some(old) = commit.old.as_deref().filter(|_| goes) else { return Ok(()) };
            let uid = text(old, "/metadata/uid");
            // What ran on a machine that is gone is declared lost at once, also if V does not take that word; a restored etcd may bring
            // back a twin of long ago.
            let nodes = virt.list_at(commit.revision, "nodes", None);
            let node = nodes.iter().find(|one| text(one, "/metadata/name") == text(old, "/spec/nodeName"));
            let is_lost = text(old, "/status/reason") == Reason::PhysicalPodLost.as_str()
                || node.is_some_and(|node| VirtualNode::read(&object(node)).tenure.is_lost());
            // One that has ended runs nowhere, wherever it is.
            let runs = |twin: &&Arc<Value>| !matches!(text(twin, "/status/phase"), "Succeeded" | "Failed");
            let twins = phys.list("pods", Some(MOUNT));
            let lives = twins.iter().filter(runs).any(|twin| virtual_uid(twin) == uid);
            if lives && !is_lost && !restored.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(format!("pod {} still has its twin", commit.name));
            }
            Ok(())
        });
        let (ended, restored): (Arc<Mutex<BTreeMap<String, String>>>, _) =
            (Arc::default(), Arc::clone(&self.restored));
        oracle.always("V", &self.virt.server, FINAL, move |commit| {
            let Some(new) = commit.new.as_deref().filter(|_| commit.plural == "pods") else { return Ok(()) };
            let (uid, phase) = (text(new, "/metadata/uid"), text(new, "/status/phase"));
            let mut ended = ended.lock();
            match ended.get(uid) {
                // A restored etcd takes back that a pod has ended: then only what this commit itself changes counts.
                Some(before)
                    if before != phase
                        && commit.actor == SYNCER
                        && (!restored.load(std::sync::atomic::Ordering::Relaxed)
                            || commit
                                .old
                                .as_deref()
                                .is_some_and(|old| text(old, "/status/phase") == before)) =>
                {
                    return Err(format!("pod {} was {before} and is {phase}", commit.name));
                }
                _ if matches!(phase, "Succeeded" | "Failed") => {
                    drop(ended.insert(uid.to_owned(), phase.to_owned()));
                }
                _ => {}
            }
            Ok(())
        });
    }

    /// Everything of ours in the mount namespace.
    pub(crate) fn ours_in_p(&self, plural: &str) -> Vec<Arc<Value>> {
        let mut all = self.phys.server.list(plural, Some(MOUNT));
        all.retain(|one| !label(one, labels::BINDING_UID).is_empty());
        all
    }

    /// Someone in the worker cluster deletes a twin.
    pub(crate) fn lose_a_twin(&self, draw: u64) {
        let twins = self.ours_in_p("pods");
        if let Some(twin) = twins.get(usize::try_from(draw).unwrap_or_default() % twins.len().max(1)) {
            self.remove(&self.phys, "pods", MOUNT, text(twin, "/metadata/name"));
        }
    }

    /// Someone makes, edits or removes what pods refer to; or edits its copy.
    pub(crate) fn change_settings(&self, draw: u64) {
        let data = json!({"data": {"a": (draw >> 8 & 255).to_string()}});
        match draw & 7 {
            0 => self.remove(&self.virt, "configmaps", "web", "settings"),
            1 => {
                for copy in self.ours_in_p("configmaps") {
                    self.patch(&self.phys, "configmaps", MOUNT, text(&copy, "/metadata/name"), data.clone());
                }
            }
            2 => {
                for copy in self.ours_in_p("configmaps") {
                    self.remove(&self.phys, "configmaps", MOUNT, text(&copy, "/metadata/name"));
                }
            }
            3 | 4 => self.patch(&self.virt, "configmaps", "web", "settings", data),
            _ => {
                let body = json!({"metadata": {"name": "settings"}, "data": {"a": "0"}});
                self.make(&self.virt, "configmaps", "web", body);
            }
        }
    }

    /// What is wrong with pods and twins at rest.
    pub(crate) fn twins_at_rest(&self) -> Result<(), String> {
        let pods = self.virt.server.list("pods", Some("web"));
        let mut twins = self.ours_in_p("pods");
        // Others have stamps, too, and no pods here.
        twins.retain(|twin| !virtual_uid(twin).is_empty());
        for twin in &twins {
            let uid = virtual_uid(twin);
            if pods.iter().all(|pod| text(pod, "/metadata/uid") != uid) {
                return Err(format!("twin {} has no pod", virtual_name(twin)));
            }
        }
        for pod in &pods {
            let name = text(pod, "/metadata/name");
            let node = text(pod, "/spec/nodeName");
            let phase = text(pod, "/status/phase");
            let has_ended = matches!(phase, "Succeeded" | "Failed");
            let twin = twins.iter().find(|twin| virtual_uid(twin) == text(pod, "/metadata/uid"));
            let is_ours = self.virt.server.get("nodes", "", node).is_some();
            match twin {
                Some(twin) if !has_ended && phase != text(twin, "/status/phase") => {
                    return Err(format!(
                        "pod {name} is {phase}, its twin is {}",
                        text(twin, "/status/phase")
                    ));
                }
                None if !has_ended && is_ours && self.could_run(pod) => {
                    return Err(format!("pod {name} is {phase}, and has no twin"));
                }
                _ => {}
            }
        }
        for copy in self.ours_in_p("configmaps") {
            let name =
                copy["metadata"]["annotations"][annotations::VIRTUAL_NAME].as_str().unwrap_or_default();
            let original = self.virt.server.get("configmaps", "web", name);
            if original.as_ref().is_none_or(|original| original["data"] != copy["data"]) {
                return Err(format!("the copy of {name} says {}", copy["data"]));
            }
        }
        // Who waits for one thing has the others.
        let has_ended = |pod: &Arc<Value>| matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        if twins.is_empty() && pods.iter().all(has_ended) {
            let copies = ["configmaps", "secrets"].iter().flat_map(|plural| self.ours_in_p(plural));
            let left: Vec<String> = copies.map(|one| text(&one, "/metadata/name").to_owned()).collect();
            if !left.is_empty() {
                return Err(format!("nobody uses {left:?}"));
            }
        }
        Ok(())
    }

    /// Whether all is there that a pod refers to.
    fn could_run(&self, pod: &Value) -> bool {
        let volumes = pod["spec"]["volumes"].as_array();
        let names = volumes.into_iter().flatten().filter_map(|volume| volume["configMap"]["name"].as_str());
        let claims = pod["spec"]["volumes"].as_array();
        let mut claims = claims
            .into_iter()
            .flatten()
            .filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str());
        names.into_iter().all(|name| self.virt.server.get("configmaps", "web", name).is_some())
            && claims.all(|name| self.is_claim_good(name))
    }

    /// The twin of a pod.
    pub(crate) fn twin(&self, name: &str) -> Option<Arc<Value>> {
        self.ours_in_p("pods").into_iter().find(|twin| virtual_name(twin) == name)
    }

    fn phase(&self, name: &str) -> String {
        self.get_pod(name).map(|pod| text(&pod, "/status/phase").to_owned()).unwrap_or_default()
    }

    pub(crate) async fn until_phase(&self, name: &str, phase: &str) {
        wait(self, &format!("{name} is {phase}"), 60, || {
            let is = self.phase(name);
            if is == phase { Ok(()) } else { Err(format!("{name} is {is}")) }
        })
        .await;
    }

    /// Nothing of ours is left in the mount namespace.
    pub(crate) async fn until_clean(&self) {
        wait(self, "clean", 60, || {
            let left: Vec<String> = ["pods", "configmaps", "secrets"]
                .iter()
                .flat_map(|plural| self.ours_in_p(plural))
                .map(|one| text(&one, "/metadata/name").to_owned())
                .collect();
            if left.is_empty() { Ok(()) } else { Err(format!("left: {left:?}")) }
        })
        .await;
    }
}

pub(crate) fn virtual_uid(twin: &Value) -> &str {
    twin["metadata"]["annotations"][annotations::VIRTUAL_POD_UID].as_str().unwrap_or_default()
}

pub(crate) fn leased(course: impl AsyncFnOnce(&Scene)) {
    leased_lives(async |scene, _| course(scene).await);
}

/// The same, with a syncer that dies whenever it is told to, and is born again at once.
pub(crate) fn leased_lives(course: impl AsyncFnOnce(&Scene, &Notify)) {
    calm_lives(
        Setting::default(),
        |scene| scene.policy(&scene.phys, "all", json!({})),
        async |scene, restarts| {
            wait(scene, "leased", 20, || scene.at_rest()).await;
            course(scene, restarts).await;
        },
    );
}

#[test]
fn a_pod_runs_in_the_worker_and_is_gone_there_when_it_is_deleted() {
    leased(async |scene| {
        scene.pod("a", "vnode-c1-n1", json!({"terminationGracePeriodSeconds": 7}));
        scene.until_phase("a", "Running").await;
        let twin = scene.twin("a").unwrap();
        assert_eq!(text(&twin, "/spec/nodeName"), "n1");
        assert_eq!(text(&twin, "/spec/serviceAccountName"), "kubeocean-workload");
        let pod = scene.get_pod("a").unwrap();
        assert_eq!(text(&pod, "/status/podIP"), "10.1.0.1");
        assert_eq!(condition(&pod, "Ready")["status"], "True");
        let said = &pod["metadata"]["annotations"];
        assert_eq!(said[annotations::PHYSICAL_POD_NAME], twin["metadata"]["name"]);
        for (name, count) in [("create_pod_total", 1), ("pod_created_total", 1)] {
            assert_eq!(counted(scene, name, "w1"), count, "{name}");
        }
        shows(scene, r#"virtual_pod_total{clusterbinding="w1"} 1.0"#);
        // One that its node does not take is counted, too, and not as one that was asked for.
        scene.pod(
            "large",
            "vnode-c1-n1",
            json!({"containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1000"}}},
            ]}),
        );
        scene.until_phase("large", "Failed").await;
        assert_eq!(counted(scene, "pod_created_failed_total", "w1"), 1);
        assert_eq!(counted(scene, "create_pod_total", "w1"), 1);
        scene.remove(&scene.virt, "pods", "web", "a");
        wait(
            scene,
            "gone",
            30,
            || if scene.get_pod("a").is_none() { Ok(()) } else { Err("there".to_owned()) },
        )
        .await;
        scene.until_clean().await;
    });
}

#[test]
fn a_pod_costs_four_writes_on_each_side() {
    leased(async |scene| {
        let before = (scene.virt.server.revision(), scene.phys.server.revision());
        let token = json!({"automountServiceAccountToken": true});
        scene.pod("a", "vnode-c1-n1", token);
        scene.until_phase("a", "Running").await;
        scene.remove(&scene.virt, "pods", "web", "a");
        wait(
            scene,
            "gone",
            30,
            || if scene.get_pod("a").is_none() { Ok(()) } else { Err("there".to_owned()) },
        )
        .await;
        scene.until_clean().await;
        let writes = |site: &kubeocean_testkit::simulation::Site, since| {
            let all = site.server.history(since);
            let ours = all.iter().filter(|one| {
                one.actor == SYNCER
                    && !matches!(
                        &*one.plural,
                        "leases"
                            | "events"
                            | "clusterbindings"
                            | "priorityclasses"
                            | "nodes"
                            | "resourceleasingpolicies"
                    )
            });
            ours.map(|one| {
                format!(
                    "{:?} {} {}",
                    one.verb,
                    one.plural,
                    one.new.as_deref().map(|new| new["status"].to_string()).unwrap_or_default()
                )
            })
            .collect::<Vec<_>>()
        };
        let (v, p) = (writes(&scene.virt, before.0), writes(&scene.phys, before.1));
        // It runs, it has ended, it goes. A token is asked for, and nothing is committed for that; a deletion is two commits.
        assert!(v.len() <= 4, "{v:?}");
        // The kubelet's last word costs one more, and so does the root certificate that comes with every token.
        assert!(p.len() <= 6, "{p:?}");
    });
}

#[test]
fn a_pod_waits_for_what_it_refers_to_and_gets_it() {
    leased(async |scene| {
        let volumes = json!([
            {"name": "c", "configMap": {"name": "settings"}}, {"name": "s", "secret": {"secretName": "key"}},
            {"name": "o", "configMap": {"name": "perhaps", "optional": true}},
        ]);
        scene.pod("a", "vnode-c1-n1", json!({"volumes": volumes}));
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(scene.twin("a").is_none(), "nothing is there that it refers to");
        scene.make(
            &scene.virt,
            "configmaps",
            "web",
            json!({"metadata": {"name": "settings"}, "data": {"a": "1"}}),
        );
        scene.make(
            &scene.virt,
            "secrets",
            "web",
            json!({"metadata": {"name": "key"}, "data": {"k": "cw=="}}),
        );
        scene.make(
            &scene.virt,
            "secrets",
            "web",
            json!({"metadata": {"name": "other"}, "data": {"k": "cw=="}}),
        );
        scene.until_phase("a", "Running").await;
        let twin = scene.twin("a").unwrap();
        let copies = scene.ours_in_p("configmaps");
        assert_eq!(copies.len(), 1);
        assert_eq!(twin["spec"]["volumes"][0]["configMap"]["name"], copies[0]["metadata"]["name"]);
        assert_eq!(copies[0]["data"]["a"], "1");
        assert_eq!(scene.ours_in_p("secrets").len(), 1, "and no other");
        // V is the truth, in both directions.
        scene.patch(&scene.virt, "configmaps", "web", "settings", json!({"data": {"a": "2", "b": "3"}}));
        let name = text(&copies[0], "/metadata/name").to_owned();
        let data = || {
            scene
                .phys
                .server
                .get("configmaps", MOUNT, &name)
                .map(|one| one["data"].clone())
                .unwrap_or_default()
        };
        wait(scene, "updated", 2, || {
            if data() == json!({"a": "2", "b": "3"}) { Ok(()) } else { Err(data().to_string()) }
        })
        .await;
        scene.patch(
            &scene.phys,
            "configmaps",
            MOUNT,
            &name,
            json!({"data": {"a": "x", "c": "y"}, "metadata": {"labels": {"mine": "yes"}}}),
        );
        wait(scene, "repaired", 2, || {
            if data() == json!({"a": "2", "b": "3"}) { Ok(()) } else { Err(data().to_string()) }
        })
        .await;
        assert_eq!(label(&scene.phys.server.get("configmaps", MOUNT, &name).unwrap(), "mine"), "yes");
        scene.remove(&scene.virt, "pods", "web", "a");
        scene.until_clean().await;
    });
}

#[test]
fn a_job_that_ended_well_stays_so_and_never_runs_again() {
    leased(async |scene| {
        scene.pod("job", "vnode-c1-n1", json!({"restartPolicy": "Never"}));
        scene.until_phase("job", "Succeeded").await;
        let pod = scene.get_pod("job").unwrap();
        assert_eq!(condition(&pod, "kubeocean.io/Mapped")["status"], "True");
        // Someone clears up in the worker cluster.
        let twin = scene.twin("job").unwrap();
        scene.remove(&scene.phys, "pods", MOUNT, text(&twin, "/metadata/name"));
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(scene.twin("job").is_none());
        assert_eq!(scene.phase("job"), "Succeeded");
        scene.remove(&scene.virt, "pods", "web", "job");
        scene.until_clean().await;
    });
}

#[test]
fn a_pod_whose_twin_is_deleted_behind_our_back_has_failed() {
    leased(async |scene| {
        scene.pod("a", "vnode-c1-n1", json!({}));
        scene.until_phase("a", "Running").await;
        let twin = scene.twin("a").unwrap();
        scene.remove(&scene.phys, "pods", MOUNT, text(&twin, "/metadata/name"));
        scene.until_phase("a", "Failed").await;
        let pod = scene.get_pod("a").unwrap();
        assert_eq!(text(&pod, "/status/reason"), "PhysicalPodLost");
        assert_eq!(condition(&pod, "DisruptionTarget")["status"], "True");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(scene.twin("a").is_none());
    });
}

#[test]
fn what_another_cluster_listed_is_not_believed_of_the_right_one_when_it_is_back() {
    leased(async |scene| {
        scene.pod("a", "vnode-c1-n1", json!({}));
        scene.until_phase("a", "Running").await;
        let before = scene.get_pod("a").unwrap();
        scene.lead_astray(true);
        tokio::time::sleep(Duration::from_secs(10)).await;
        // The right one answers, and does not say for a while which pods it has.
        scene.phys.server.deny(SYNCER, Right::to("list", "pods"));
        scene.lead_astray(false);
        tokio::time::sleep(Duration::from_secs(8)).await;
        scene.phys.server.allow_all();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(scene.get_pod("a").unwrap()["status"], before["status"]);
        assert!(scene.twin("a").is_some());
    });
}

#[test]
fn a_pod_that_no_node_of_the_worker_takes_has_failed_after_five_minutes_whatever_the_clocks_say() {
    for ahead in [-3, 0, 3] {
        leased(async |scene| {
            scene.clock.jump(SignedDuration::from_hours(ahead));
            scene.pod(NOWHERE, "vnode-c1-n1", json!({}));
            let made = || scene.twin(NOWHERE).map(|_| ()).ok_or_else(|| "no twin yet".to_owned());
            wait(scene, "it is made", 10, made).await;
            let twin = scene.twin(NOWHERE).unwrap();
            tokio::time::sleep(Duration::from_secs(285)).await;
            assert_eq!(scene.twin(NOWHERE).unwrap()["metadata"]["uid"], twin["metadata"]["uid"]);
            assert_ne!(text(&scene.get_pod(NOWHERE).unwrap(), "/status/phase"), "Failed");
            wait(scene, "it is given up", 20, || {
                let pod = scene.get_pod(NOWHERE).unwrap();
                let reason = text(&pod, "/status/reason");
                if reason == "PhysicalUnschedulable" { Ok(()) } else { Err(format!("{reason:?}")) }
            })
            .await;
            assert!(scene.twin(NOWHERE).is_none(), "it must not start after all");
        });
    }
}

#[test]
fn a_pod_that_does_not_fit_is_refused_and_nothing_of_it_leaves() {
    leased(async |scene| {
        scene.make(
            &scene.virt,
            "secrets",
            "web",
            json!({"metadata": {"name": "key"}, "data": {"k": "cw=="}}),
        );
        let before = scene.phys.server.revision();
        let big = json!({
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100"}}, "envFrom": [{"secretRef": {"name": "key"}}]}],
        });
        scene.pod("big", "vnode-c1-n1", big);
        scene.until_phase("big", "Failed").await;
        assert_eq!(text(&scene.get_pod("big").unwrap(), "/status/reason"), "OutOfcpu");
        let all = scene.phys.server.history(before);
        let written: BTreeSet<&str> =
            all.iter().filter(|one| one.actor == SYNCER).map(|one| &*one.plural).collect();
        assert!(written.iter().all(|plural| *plural == "resourceleasingpolicies"), "{written:?}");
    });
}

#[test]
fn a_name_that_a_stranger_has_in_the_worker_is_left_to_him() {
    leased(async |scene| {
        let name = kubeocean_model::naming::Origin::Object { namespace: "web", name: "a" }
            .physical_name()
            .to_string();
        let theirs = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": "n2", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]},
        });
        assert_eq!(scene.make(&scene.phys, "pods", MOUNT, theirs), 201);
        scene.pod("a", "vnode-c1-n1", json!({}));
        scene.until_phase("a", "Running").await;
        assert_ne!(text(&scene.twin("a").unwrap(), "/metadata/name"), name);
        scene.remove(&scene.virt, "pods", "web", "a");
        scene.until_clean().await;
        assert!(scene.phys.server.get("pods", MOUNT, &name).is_some());
    });
}

#[test]
fn a_twin_without_a_pod_is_removed() {
    leased(async |scene| {
        scene.pod("a", "vnode-c1-n1", json!({}));
        scene.until_phase("a", "Running").await;
        let force = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        scene.virt.server.call("user", "DELETE", "/api/v1/namespaces/web/pods/a", None, Some(force));
        scene.until_clean().await;
    });
}

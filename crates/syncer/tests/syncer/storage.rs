//! Volumes that pods take along: made in the worker cluster as far as the lender lets them in, and gone with their last user.

use std::sync::Arc;
use std::time::Duration;

use kubeocean_api::keys::{annotations, labels};
use kubeocean_model::leasing::SYNCER;
use serde_json::{Value, json};

use crate::kubelet::virtual_name;
use crate::pods::leased;
use crate::scene::{BINDING, MERGE, MOUNT, Scene, collection, is_deleting, label, text};
use crate::simulated::wait;

/// The claim that pods of chaos use.
pub(crate) const CLAIM: &str = "data";

fn nfs() -> Value {
    json!({"nfs": {"server": "10.0.0.7", "path": "/data"}})
}

impl Scene {
    /// A claim of V without a volume.
    pub(crate) fn claim(&self, name: &str) {
        let spec = json!({
            "accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": format!("pv-{name}"),
            "resources": {"requests": {"storage": "1Gi"}},
        });
        self.make(
            &self.virt,
            "persistentvolumeclaims",
            "web",
            json!({"metadata": {"name": name}, "spec": spec}),
        );
        self.say(&format!("{}/{name}", collection("persistentvolumeclaims", "web")), "Pending");
    }

    /// V's own controller gives it one, from this source.
    pub(crate) fn bind_claim(&self, name: &str, source: Value) {
        let Some(claim) = self.virt.server.get("persistentvolumeclaims", "web", name) else { return };
        let mut spec = json!({
            "accessModes": ["ReadWriteMany"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "web", "name": name,
                "uid": claim["metadata"]["uid"],
            },
        });
        for (field, value) in source.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        let volume = format!("pv-{name}");
        self.make(
            &self.virt,
            "persistentvolumes",
            "",
            json!({"metadata": {"name": volume}, "spec": spec.clone()}),
        );
        let reference = json!({"spec": {"claimRef": spec["claimRef"]}});
        self.patch(&self.virt, "persistentvolumes", "", &volume, reference);
        self.say(&format!("{}/{volume}", collection("persistentvolumes", "")), "Bound");
        self.say(&format!("{}/{name}", collection("persistentvolumeclaims", "web")), "Bound");
    }

    fn say(&self, place: &str, phase: &str) {
        let body = json!({"status": {"phase": phase}});
        self.virt.server.call("user", "PATCH", &format!("{place}/status"), MERGE, Some(body));
    }

    /// What the lender lets in.
    fn let_in(&self, sources: Value) {
        let body = json!({"metadata": {"annotations": {annotations::ALLOWED_VOLUME_SOURCES: sources}}});
        self.patch(&self.phys, "namespaces", "", MOUNT, body);
    }

    /// Someone makes or removes a claim or its volume, on this side or that, or the lender changes its mind.
    pub(crate) fn change_storage(&self, draw: u64) {
        let ours = |plural: &str| self.made_by_us(plural);
        match draw & 15 {
            0 => self.remove(&self.virt, "persistentvolumeclaims", "web", CLAIM),
            1 => self.remove(&self.virt, "persistentvolumes", "", &format!("pv-{CLAIM}")),
            2 => {
                for claim in ours("persistentvolumeclaims") {
                    self.remove(&self.phys, "persistentvolumeclaims", MOUNT, text(&claim, "/metadata/name"));
                }
            }
            3 => {
                for volume in ours("persistentvolumes") {
                    self.remove(&self.phys, "persistentvolumes", "", text(&volume, "/metadata/name"));
                }
            }
            4 => {
                for volume in ours("persistentvolumes") {
                    let body = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
                    let name = text(&volume, "/metadata/name");
                    self.patch(&self.phys, "persistentvolumes", "", name, body);
                }
            }
            5 => self.let_in("csi".into()),
            6 | 7 => self.let_in(Value::Null),
            8 => self.claim(CLAIM),
            _ => {
                self.claim(CLAIM);
                self.bind_claim(CLAIM, nfs());
            }
        }
    }

    /// Everything that we made of a kind, wherever.
    pub(crate) fn made_by_us(&self, plural: &str) -> Vec<Arc<Value>> {
        let mut all = self.phys.server.list(plural, None);
        all.retain(|one| !label(one, labels::VIRTUAL_CLUSTER_UID).is_empty());
        all
    }

    /// Whether someone wants the copy of a claim to go, and a twin that runs keeps it: nobody can call that off, and nobody new may have it.
    fn is_going_and_held(&self, copy: &Value) -> bool {
        let uses = |twin: &Arc<Value>| {
            let volumes = twin["spec"]["volumes"].as_array();
            let mut names =
                volumes.into_iter().flatten().map(|one| &one["persistentVolumeClaim"]["claimName"]);
            names.any(|name| *name == copy["metadata"]["name"])
        };
        is_deleting(copy) && self.ours_in_p("pods").iter().any(uses)
    }

    /// Whether P would take a claim that a pod refers to.
    pub(crate) fn is_claim_good(&self, name: &str) -> bool {
        let claim = self.virt.server.get("persistentvolumeclaims", "web", name);
        let Some(claim) = claim.filter(|claim| text(claim, "/status/phase") == "Bound") else { return false };
        let volume = self.virt.server.get("persistentvolumes", "", text(&claim, "/spec/volumeName"));
        let allowed = self.phys.server.get("namespaces", "", MOUNT);
        let allowed = allowed.and_then(|one| {
            one["metadata"]["annotations"][annotations::ALLOWED_VOLUME_SOURCES].as_str().map(str::to_owned)
        });
        let copies = self.made_by_us("persistentvolumeclaims");
        let is_copy = |copy: &&Arc<Value>| copy["metadata"]["annotations"][annotations::VIRTUAL_NAME] == name;
        // One that is to go lets nobody new in.
        !is_deleting(&claim)
            && !copies.iter().filter(is_copy).any(|copy| self.is_going_and_held(copy))
            && volume.is_some_and(|volume| volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"])
            && allowed.is_none_or(|allowed| allowed.contains("nfs"))
    }

    /// What is wrong with claims and volumes at rest.
    pub(crate) fn claims_at_rest(&self) -> Result<(), String> {
        let pods = self.virt.server.list("pods", Some("web"));
        let uses = |pod: &&Arc<Value>, claim: &str| {
            let volumes = pod["spec"]["volumes"].as_array();
            let mut names =
                volumes.into_iter().flatten().map(|one| text(one, "/persistentVolumeClaim/claimName"));
            names.any(|name| name == claim)
        };
        for claim in self.made_by_us("persistentvolumeclaims") {
            let of = claim["metadata"]["annotations"][annotations::VIRTUAL_NAME].as_str().unwrap_or_default();
            if !pods.iter().any(|pod| uses(&pod, of)) {
                return Err(format!("nobody uses claim {of}"));
            }
            if is_deleting(&claim) && !self.is_going_and_held(&claim) {
                return Err(format!("claim {of} goes for ever"));
            }
        }
        for volume in self.made_by_us("persistentvolumes") {
            if text(&volume, "/spec/persistentVolumeReclaimPolicy") != "Retain" {
                return Err("a volume would go with its data".to_owned());
            }
            let claim = text(&volume, "/spec/claimRef/name");
            let waits = pods.iter().any(|pod| uses(&pod, CLAIM));
            if self.phys.server.get("persistentvolumeclaims", MOUNT, claim).is_none() && !waits {
                return Err(format!("a volume is left of claim {claim}"));
            }
        }
        Ok(())
    }

    fn told(&self, about: &str) -> Vec<(String, String)> {
        let all = self.virt.server.list("events", None);
        let mine = all.iter().filter(|event| text(event, "/involvedObject/name") == about);
        mine.map(|event| (text(event, "/reason").to_owned(), text(event, "/message").to_owned())).collect()
    }

    async fn until_told(&self, about: &str, reason: &str, word: &str) {
        wait(self, &format!("{about} is told of {reason}"), 60, || {
            let told = self.told(about);
            let heard = told.iter().any(|(one, message)| one == reason && message.contains(word));
            if heard { Ok(()) } else { Err(format!("{told:?}")) }
        })
        .await;
    }

    async fn until_no_volumes(&self) {
        wait(self, "no volumes", 60, || {
            let left =
                ["persistentvolumeclaims", "persistentvolumes"].map(|plural| self.made_by_us(plural).len());
            if left == [0; 2] { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    }
}

fn with_claim(claim: &str) -> Value {
    json!({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": claim}}]})
}

#[test]
fn a_pod_has_its_volume_in_the_worker_until_its_last_user_is_gone() {
    leased(async |scene| {
        scene.claim("disk");
        scene.bind_claim("disk", nfs());
        let before = scene.virt.server.revision();
        scene.pod("a", "vnode-c1-n1", with_claim("disk"));
        scene.pod("b", "vnode-c1-n2", with_claim("disk"));
        scene.until_phase("a", "Running").await;
        scene.until_phase("b", "Running").await;
        let [claim] = scene.made_by_us("persistentvolumeclaims").try_into().unwrap();
        let [volume] = scene.made_by_us("persistentvolumes").try_into().unwrap();
        assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Retain");
        assert_eq!(volume["spec"]["nfs"]["path"], "/data");
        assert_eq!(volume["spec"]["claimRef"]["name"], claim["metadata"]["name"]);
        assert_eq!(claim["spec"]["volumeName"], volume["metadata"]["name"]);
        let twins = scene.ours_in_p("pods");
        let twin = twins.iter().find(|twin| virtual_name(twin) == "a").unwrap();
        assert_eq!(
            twin["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"],
            claim["metadata"]["name"]
        );
        scene.remove(&scene.virt, "pods", "web", "a");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(scene.made_by_us("persistentvolumeclaims").len(), 1, "the other one uses it");
        scene.remove(&scene.virt, "pods", "web", "b");
        scene.until_no_volumes().await;
        let wrote = scene.virt.server.history(before);
        let wrote: Vec<_> =
            wrote.iter().filter(|one| one.actor == SYNCER && one.plural.starts_with("persistent")).collect();
        assert!(wrote.is_empty(), "nothing is written on V's own: {wrote:?}");
    });
}

#[test]
fn a_volume_of_a_kind_that_the_lender_does_not_list_is_refused_in_words_until_it_does() {
    leased(async |scene| {
        scene.claim("disk");
        scene.bind_claim("disk", json!({"hostPath": {"path": "/etc"}}));
        scene.pod("a", "vnode-c1-n1", with_claim("disk"));
        scene.until_told("disk", "VolumeRefused", "hostPath").await;
        scene.until_told("a", "VolumeRefused", annotations::ALLOWED_VOLUME_SOURCES).await;
        assert!(scene.made_by_us("persistentvolumes").is_empty());
        assert!(scene.ours_in_p("pods").is_empty());
        scene.let_in("csi,hostPath".into());
        scene.until_phase("a", "Running").await;
    });
}

#[test]
fn a_pod_whose_claim_is_not_bound_waits_and_is_told_so() {
    leased(async |scene| {
        scene.pod("a", "vnode-c1-n1", with_claim("disk"));
        scene.until_told("a", "VolumePending", "create it").await;
        scene.claim("disk");
        scene.until_told("disk", "VolumePending", "not bound").await;
        assert!(scene.ours_in_p("pods").is_empty());
        scene.bind_claim("disk", nfs());
        scene.until_phase("a", "Running").await;
    });
}

#[test]
fn a_lender_who_grants_no_volumes_is_named_with_the_fix_and_pods_without_volumes_run() {
    leased(async |scene| {
        scene.phys.server.forbid(SYNCER, "*", "", "persistentvolumes");
        scene.phys.server.drop_watches();
        tokio::time::sleep(Duration::from_secs(60)).await;
        scene.claim("disk");
        scene.bind_claim("disk", nfs());
        scene.pod("a", "vnode-c1-n1", with_claim("disk"));
        scene.pod("b", "vnode-c1-n1", json!({}));
        scene.until_phase("b", "Running").await;
        scene.until_told("a", "VolumeRefused", "--storage").await;
        scene.phys.server.allow_all();
        scene.until_phase("a", "Running").await;
    });
}

#[test]
fn a_driver_has_its_secret_for_as_long_as_its_volume_is_there() {
    leased(async |scene| {
        let secret = json!({"metadata": {"name": "key"}, "data": {"k": "cw=="}});
        scene.make(&scene.virt, "namespaces", "", json!({"metadata": {"name": "drivers"}}));
        scene.claim("disk");
        let reference = json!({"name": "key", "namespace": "drivers"});
        let csi =
            json!({"csi": {"driver": "d.example", "volumeHandle": "1", "nodeStageSecretRef": reference}});
        scene.bind_claim("disk", csi);
        scene.pod("a", "vnode-c1-n1", with_claim("disk"));
        scene.until_told("disk", "DependencyMissing", "key").await;
        assert!(scene.made_by_us("persistentvolumes").is_empty(), "what it says of its Secret is final");
        scene.make(&scene.virt, "secrets", "drivers", secret);
        scene.until_phase("a", "Running").await;
        let [copy] = scene.ours_in_p("secrets").try_into().unwrap();
        assert_eq!(label(&copy, labels::USED_BY_PV), "true");
        let [volume] = scene.made_by_us("persistentvolumes").try_into().unwrap();
        let named = &volume["spec"]["csi"]["nodeStageSecretRef"];
        assert_eq!(*named, json!({"name": copy["metadata"]["name"], "namespace": MOUNT}));
        scene.remove(&scene.virt, "pods", "web", "a");
        scene.until_no_volumes().await;
        scene.until_clean().await;
    });
}

#[test]
fn nothing_is_left_of_volumes_when_a_worker_is_unbound() {
    leased(async |scene| {
        scene.claim("disk");
        scene.bind_claim("disk", nfs());
        scene.pod("a", "vnode-c1-n1", with_claim("disk"));
        scene.until_phase("a", "Running").await;
        scene.remove(&scene.virt, "clusterbindings", "", BINDING);
        wait(scene, "unbound", 900, || scene.at_rest()).await;
        scene.until_no_volumes().await;
    });
}

use kubeocean_api::keys::{annotations, labels};

use super::*;
use crate::action::{Kind, Verb};
use crate::binding::Binding;
use crate::pretend::{Pretend, binding, nasty, object};

/// One claim of V, its volume, and what the worker cluster has of both.
struct Scene {
    binding: Binding,
    claim: Option<Value>,
    volume: Option<Value>,
    worker: Pretend,
    is_used: bool,
    may_make_volumes: bool,
    taken: (bool, bool),
    allowed: Option<&'static str>,
}

fn csi() -> Value {
    json!({
        "driver": "disks.example.com", "volumeHandle": "h-1", "volumeAttributes": {"a": "b"},
        "nodePublishSecretRef": {"name": "publish", "namespace": "kube-system"},
        "nodeStageSecretRef": {"name": "stage", "namespace": "storage"},
        "controllerPublishSecretRef": {"name": "publish", "namespace": "kube-system"},
        "controllerExpandSecretRef": {"name": "expand", "namespace": "storage"},
        "nodeExpandSecretRef": {"name": "node-expand", "namespace": "storage"},
    })
}

fn scene(source: &str, value: Value) -> Scene {
    let mut volume = json!({
        "metadata": {
            "name": "pv-1", "uid": "v-pv", "labels": {"topology.kubernetes.io/zone": "z"},
            "annotations": {"pv.kubernetes.io/provisioned-by": "disks.example.com"},
        },
        "spec": {
            "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "fast",
            "mountOptions": ["noatime"],
            "claimRef": {"namespace": "web", "name": "data", "uid": "v-c", "resourceVersion": "5"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{
                "matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": ["vnode-w1-n1", "elsewhere"]},
                    {"key": "zone", "operator": "In", "values": ["z"]},
                ],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["vnode-w1-n1"]}],
            }]}},
        },
        "status": {"phase": "Bound"},
    });
    volume["spec"][source] = value;
    let claim = json!({
        "metadata": {
            "namespace": "web", "name": "data", "uid": "v-c",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Gi"}}, "volumeMode": "Filesystem",
            "volumeName": "pv-1", "storageClassName": "fast", "selector": {"matchLabels": {"a": "b"}},
            "dataSource": {"kind": "VolumeSnapshot", "name": "x"},
        },
        "status": {"phase": "Bound"},
    });
    Scene {
        binding: binding("b-1"),
        claim: Some(claim),
        volume: Some(volume),
        worker: Pretend::default(),
        is_used: true,
        may_make_volumes: true,
        taken: (false, false),
        allowed: None,
    }
}

impl Scene {
    fn of(&self, kind: &Kind) -> Option<Object> {
        let mut all = self.worker.objects.iter().filter(|(place, _)| place.0 == *kind.plural);
        let found = all.next().map(|(_, value)| object(value));
        assert!(all.next().is_none(), "two of them");
        found
    }

    fn at(&mut self, kind: &Kind) -> &mut Value {
        let name = self.of(kind).unwrap().meta.name;
        self.worker.value_mut(kind, &name)
    }

    fn plan(&self) -> Decision {
        let annotations = self.allowed.map(|allowed| json!({annotations::ALLOWED_VOLUME_SOURCES: allowed}));
        let mount = json!({"metadata": {"name": "mount", "annotations": annotations}});
        let claim = self.claim.as_ref().map(object);
        let volume = self.volume.as_ref().map(object);
        let (copied_claim, copied_volume) = (self.of(&kinds::CLAIM), self.of(&kinds::VOLUME));
        plan(&Situation {
            stamp: Stamp { binding: &self.binding, virtual_cluster: "v-1" },
            key: &Key::new("web", "data"),
            claim: claim.as_ref(),
            volume: volume.as_ref(),
            copied_claim: copied_claim.as_ref(),
            copied_volume: copied_volume.as_ref(),
            is_claim_name_taken: self.taken.0,
            is_volume_name_taken: self.taken.1,
            is_used: self.is_used,
            may_make_volumes: self.may_make_volumes,
            allowed: &Allowed::by_lender(&object(&mount).meta),
            node: &|vnode| {
                (vnode == "vnode-w1-n1")
                    .then(|| NodeNames { name: "n1".to_owned(), hostname: "n1.example.com".to_owned() })
            },
            secret: &|key| Origin::Object { namespace: &key.namespace, name: &key.name }.physical_name(),
        })
    }

    /// Plans and writes until there is nothing left to write; the worker cluster binds what it can.
    fn settle(&mut self) -> Vec<String> {
        let mut written = Vec::new();
        for round in 0.. {
            assert!(round < 8, "it does not come to rest: {written:?}");
            let actions = self.plan().actions;
            if actions.is_empty() {
                break;
            }
            for action in &actions {
                self.worker.apply(std::slice::from_ref(action));
                written.push(format!("{} {}", action.verb.name(), action.kind.plural));
            }
            self.bind();
        }
        written
    }

    fn bind(&mut self) {
        let (Some(claim), Some(volume)) = (self.of(&kinds::CLAIM), self.of(&kinds::VOLUME)) else { return };
        let reference = &mut self.worker.value_mut(&kinds::VOLUME, &volume.meta.name)["spec"]["claimRef"];
        if reference["name"] == *claim.meta.name && reference.get("uid").is_none() {
            reference["uid"] = (*claim.meta.uid).into();
            reference["resourceVersion"] = "7".into();
        }
    }

    fn said(&self) -> String {
        let telling = self.plan().standing.telling().unwrap();
        format!("{}: {}", telling.reason, telling.message)
    }
}

#[test]
fn a_bound_volume_comes_along_for_one_claim_alone_and_is_never_removed_there() {
    let mut scene = scene("csi", csi());
    assert_eq!(scene.plan().standing, Standing::Underway);
    assert_eq!(scene.settle(), ["create persistentvolumes", "create persistentvolumeclaims"]);
    assert_eq!(scene.plan().standing, Standing::Usable);
    let (claim, volume) = (scene.of(&kinds::CLAIM).unwrap(), scene.of(&kinds::VOLUME).unwrap());
    assert_eq!((&*volume.meta.namespace, volume.meta.labels.get(labels::BINDING_UID)), ("", Some("b-1")));
    assert_eq!(volume.meta.annotations.iter().count(), 2, "whose it is, and nothing of the original");
    let name = |namespace: &str, name: &str| json!({"name": Origin::Object { namespace, name }.physical_name().as_str(), "namespace": "mount"});
    let spec: Value = volume.field("spec").unwrap().unwrap();
    assert_eq!(
        spec,
        json!({
            "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "", "mountOptions": ["noatime"],
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "mount", "name": &*claim.meta.name,
                "uid": &*claim.meta.uid, "resourceVersion": "7",
            },
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{
                "matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1.example.com", "elsewhere"]},
                    {"key": "zone", "operator": "In", "values": ["z"]},
                ],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
            }]}},
            "csi": {
                "driver": "disks.example.com", "volumeHandle": "h-1", "volumeAttributes": {"a": "b"},
                "nodePublishSecretRef": name("kube-system", "publish"), "nodeStageSecretRef": name("storage", "stage"),
                "controllerPublishSecretRef": name("kube-system", "publish"),
                "controllerExpandSecretRef": name("storage", "expand"),
                "nodeExpandSecretRef": name("storage", "node-expand"),
            },
        })
    );
    let spec: Value = claim.field("spec").unwrap().unwrap();
    assert_eq!(
        spec,
        json!({
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Gi"}},
            "volumeMode": "Filesystem", "storageClassName": "", "volumeName": &*volume.meta.name,
        })
    );
    assert_eq!(claim.meta.annotations.iter().count(), 3, "no word of being bound");
    let needs: Vec<String> = scene.plan().needs.iter().map(ToString::to_string).collect();
    assert_eq!(needs, ["kube-system/publish", "storage/expand", "storage/node-expand", "storage/stage"]);
}

#[test]
fn a_claim_goes_before_its_volume_and_only_when_the_data_is_safe() {
    let mut scene = scene("csi", csi());
    scene.settle();
    scene.at(&kinds::VOLUME)["spec"]["persistentVolumeReclaimPolicy"] = "Delete".into();
    scene.is_used = false;
    assert_eq!(scene.plan().standing, Standing::Unused);
    assert_eq!(scene.plan().needs.len(), 4, "to let go of it");
    assert_eq!(
        scene.settle(),
        ["patch persistentvolumes", "delete persistentvolumeclaims", "delete persistentvolumes"]
    );
    assert_eq!(scene.plan().needs, [], "nothing is there any more");
}

#[test]
fn a_claim_that_a_pod_still_holds_is_waited_for() {
    let mut scene = scene("csi", csi());
    scene.settle();
    scene.at(&kinds::CLAIM)["metadata"]["deletionTimestamp"] = "2026-11-20T08:00:00Z".into();
    assert_eq!((scene.plan().actions, scene.plan().standing), (vec![], Standing::Underway));
    scene.is_used = false;
    assert_eq!(scene.plan().actions, []);
}

#[test]
fn a_volume_that_grows_in_the_computing_cluster_grows_in_the_worker_cluster() {
    let mut scene = scene("nfs", json!({"server": "files", "path": "/"}));
    scene.settle();
    scene.volume.as_mut().unwrap()["spec"]["capacity"]["storage"] = "20Gi".into();
    scene.claim.as_mut().unwrap()["spec"]["resources"]["requests"]["storage"] = "20Gi".into();
    let actions = scene.plan().actions;
    let [Action { verb: Verb::Patch { body, .. }, .. }] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!(*body, json!({"spec": {"capacity": {"storage": "20Gi"}}}));
    assert_eq!(scene.settle(), ["patch persistentvolumes"]);
    scene.volume.as_mut().unwrap()["spec"]["capacity"]["storage"] = "20480Mi".into();
    assert_eq!(scene.settle(), [""; 0], "as much as before");
}

#[test]
fn a_claim_that_waits_for_more_gets_what_there_is() {
    let mut scene = scene("nfs", json!({"server": "files", "path": "/"}));
    scene.claim.as_mut().unwrap()["spec"]["resources"]["requests"]["storage"] = "50Gi".into();
    scene.settle();
    let claim = scene.of(&kinds::CLAIM).unwrap();
    let spec: Value = claim.field("spec").unwrap().unwrap();
    assert_eq!(spec["resources"]["requests"]["storage"], "10Gi");
}

#[test]
fn what_was_removed_in_the_worker_cluster_comes_back_and_finds_together() {
    let mut scene = scene("csi", csi());
    scene.settle();
    let name = scene.of(&kinds::CLAIM).unwrap().meta.name;
    scene.worker.objects.remove(&("persistentvolumeclaims".into(), "mount".into(), name.into()));
    assert_eq!(scene.settle(), ["create persistentvolumeclaims", "patch persistentvolumes"]);
    let (claim, volume) = (scene.of(&kinds::CLAIM).unwrap(), scene.of(&kinds::VOLUME).unwrap());
    assert_eq!(volume.text("spec", &["claimRef", "uid"]).as_deref(), Some(&*claim.meta.uid));
    scene.worker.objects.remove(&("persistentvolumes".into(), String::new(), volume.meta.name.into()));
    assert_eq!(scene.settle(), ["create persistentvolumes"]);
}

#[test]
fn what_others_changed_on_our_volume_is_mended() {
    let mut scene = scene("csi", csi());
    scene.settle();
    let volume = scene.at(&kinds::VOLUME);
    volume["metadata"]["labels"]["theirs"] = "x".into();
    volume["metadata"]["labels"][labels::MANAGED_BY] = "x".into();
    volume["spec"]["persistentVolumeReclaimPolicy"] = "Recycle".into();
    volume["spec"]["storageClassName"] = "theirs".into();
    volume["spec"]["mountOptions"] = json!([]);
    assert_eq!(scene.settle(), ["patch persistentvolumes"]);
    assert_eq!(scene.at(&kinds::VOLUME)["metadata"]["labels"]["theirs"], "x");
    scene.at(&kinds::CLAIM)["metadata"]["labels"][labels::MANAGED_BY] = "x".into();
    assert_eq!(scene.settle(), ["patch persistentvolumeclaims"]);
}

#[test]
fn a_claim_that_was_made_anew_with_another_volume_does_not_get_the_old_one() {
    let mut scene = scene("csi", csi());
    scene.settle();
    scene.claim.as_mut().unwrap()["metadata"]["uid"] = "v-c2".into();
    scene.volume.as_mut().unwrap()["metadata"]["uid"] = "v-pv2".into();
    scene.volume.as_mut().unwrap()["spec"]["claimRef"]["uid"] = "v-c2".into();
    scene.volume.as_mut().unwrap()["spec"]["csi"]["volumeHandle"] = "h-2".into();
    assert_eq!(scene.plan().standing, Standing::Underway, "pods wait for the new one");
    assert_eq!(
        scene.settle(),
        [
            "delete persistentvolumeclaims",
            "delete persistentvolumes",
            "create persistentvolumes",
            "create persistentvolumeclaims"
        ]
    );
    assert_eq!(scene.at(&kinds::VOLUME)["spec"]["csi"]["volumeHandle"], "h-2");
}

#[test]
fn only_kinds_that_the_lender_lists_come_along() {
    let by_default = [("csi", true), ("nfs", true), ("hostPath", false), ("local", false), ("rbd", false)];
    for (source, expected) in by_default {
        assert_eq!(scene(source, json!({"path": "/x"})).settle().is_empty(), !expected, "{source}");
    }
    let mut scene = scene("local", json!({"path": "/disks/1"}));
    assert_eq!(
        scene.said(),
        format!(
            "VolumeRefused: PersistentVolume pv-1 is of kind `local`, which the worker cluster does not let in (it lets in: csi, \
             nfs): the lender lists kinds in the annotation {} of namespace mount",
            annotations::ALLOWED_VOLUME_SOURCES
        )
    );
    scene.allowed = Some("");
    assert!(scene.said().contains("(it lets in: none)"), "{}", scene.said());
    scene.allowed = Some(" local , csi");
    assert_eq!(scene.settle().len(), 2);
    scene.volume.as_mut().unwrap()["spec"]["nfs"] = json!({"server": "x"});
    assert!(scene.said().contains("`nfs`"), "the second source counts, too");
    scene.volume.as_mut().unwrap()["spec"]["nfs"] = Value::Null;
    scene.volume.as_mut().unwrap()["spec"]["a-field-of-next-year"] = json!({"hostPath": "/"});
    assert!(scene.said().contains("`a-field-of-next-year`"), "what we do not know is not let in");
    scene.allowed = Some("none");
    assert_eq!(scene.plan().actions, [], "a pod that runs keeps its volume");
    scene.may_make_volumes = false;
    assert!(scene.said().contains("worker-manifest --storage"), "{}", scene.said());
}

#[test]
fn a_claim_that_is_not_ready_says_what_it_waits_for() {
    let fresh = || scene("csi", csi());
    let said = |change: &dyn Fn(&mut Scene)| {
        let mut scene = fresh();
        change(&mut scene);
        assert_eq!(scene.plan().actions, []);
        scene.said()
    };
    let missing = said(&|scene| scene.claim = None);
    assert_eq!(missing, "VolumePending: there is no PersistentVolumeClaim web/data: create it");
    let unbound = said(&|scene| scene.claim.as_mut().unwrap()["spec"]["volumeName"] = Value::Null);
    assert!(unbound.contains("is not bound in the computing cluster"), "{unbound}");
    let binding = said(&|scene| scene.claim.as_mut().unwrap()["status"]["phase"] = "Pending".into());
    assert!(binding.contains("is not bound"), "{binding}");
    let lost = said(&|scene| scene.volume = None);
    assert!(lost.contains("has lost its PersistentVolume pv-1"), "{lost}");
    let going = said(&|scene| {
        scene.claim.as_mut().unwrap()["metadata"]["deletionTimestamp"] = "2026-11-20T08:00:00Z".into();
    });
    assert!(going.contains("is being deleted"), "{going}");
    for (field, value) in [("uid", "v-other"), ("name", "other"), ("namespace", "other")] {
        let forged = said(&|scene| scene.volume.as_mut().unwrap()["spec"]["claimRef"][field] = value.into());
        assert!(forged.contains("is bound to another claim"), "{forged}");
    }
}

#[test]
fn two_bindings_that_share_a_worker_cluster_keep_to_their_own_volumes() {
    let mut first = scene("csi", csi());
    first.settle();
    let mut second = scene("csi", csi());
    second.binding = binding("b-2");
    second.worker.objects = first.worker.objects.clone();
    let actions = second.plan().actions;
    let [Action { verb: Verb::Create { body, mark }, name, .. }] = actions.as_slice() else {
        panic!("{actions:?}")
    };
    let theirs = first.of(&kinds::VOLUME).unwrap();
    assert_eq!(**name, *theirs.meta.name);
    assert!(!mark.is_on(&theirs.meta, body), "the name is taken, and not by us");
    second.is_used = false;
    assert_eq!(second.plan().actions, [], "nothing of theirs is removed");
    second.is_used = true;
    second.worker = Pretend::default();
    second.taken = (true, true);
    second.settle();
    let ours = second.of(&kinds::VOLUME).unwrap();
    assert_ne!(ours.meta.name, theirs.meta.name);
    assert_ne!(second.of(&kinds::CLAIM).unwrap().meta.name, first.of(&kinds::CLAIM).unwrap().meta.name);
    // Also when nobody remembers that the name was taken.
    second.taken = (false, false);
    assert_eq!(second.settle(), [""; 0]);
    second.worker.objects.remove(&("persistentvolumes".into(), String::new(), ours.meta.name.clone().into()));
    second.settle();
    assert_eq!(second.of(&kinds::VOLUME).unwrap().meta.name, ours.meta.name);
}

#[test]
fn secrets_without_a_namespace_are_those_of_the_claim_and_odd_ones_are_left_out() {
    let mut scene = scene("rbd", json!({"secretRef": {"name": "ceph"}, "image": "i", "secretName": "azure"}));
    scene.allowed = Some("rbd");
    let needs: Vec<String> = scene.plan().needs.iter().map(ToString::to_string).collect();
    assert_eq!(needs, ["web/azure", "web/ceph"]);
    scene.volume.as_mut().unwrap()["spec"]["rbd"] =
        json!({"secretRef": {"name": ""}, "otherSecretRef": {}, "xSecretRef": "text"});
    assert_eq!(scene.plan().needs, []);
}

#[test]
fn odd_shapes_make_nobody_fall_over() {
    for shape in nasty() {
        for field in ["spec", "status"] {
            for part in
                ["", "csi", "claimRef", "nodeAffinity", "capacity", "accessModes", "resources", "volumeName"]
            {
                let mut odd = scene("csi", csi());
                odd.settle();
                let place = |object: &mut Value| {
                    if part.is_empty() {
                        object[field] = shape.clone();
                    } else {
                        object[field][part] = shape.clone();
                    }
                };
                let mut settled = scene("csi", csi());
                settled.settle();
                place(settled.at(&kinds::VOLUME));
                place(settled.at(&kinds::CLAIM));
                let _ = settled.plan();
                place(odd.claim.as_mut().unwrap());
                let _ = odd.plan();
                odd = scene("csi", csi());
                place(odd.volume.as_mut().unwrap());
                let _ = odd.plan();
            }
        }
    }
}

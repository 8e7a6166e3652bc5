//! Volumes, claims, Services without a selector and their endpoints, as a syncer writes them. Where the real server shows a diff of Go's structs, only
//! the code is compared.

use serde_json::Value;

use super::script::{Script, delete, get, merge, post, script};

fn volume(spec: Value) -> Value {
    let mut volume = json!({"metadata": {"name": "{ns}"}, "spec": {
        "capacity": {"storage": "10240Mi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "",
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "{ns}", "name": "c"},
    }});
    volume["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    volume
}

fn csi() -> Value {
    json!({"driver": "disks.example.com", "volumeHandle": "h", "nodeStageSecretRef": {"name": "s", "namespace": "{ns}"}})
}

fn affinity(value: &str) -> Value {
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [value]}]}]}})
}

fn claim(spec: Value) -> Value {
    let mut claim = json!({"metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8192Mi"}}, "storageClassName": "", "volumeName": "{ns}",
    }});
    claim["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    claim
}

fn slice(content: Value) -> Value {
    let mut slice = json!({"metadata": {"name": "e", "labels": {"kubernetes.io/service-name": "s", "endpointslice.kubernetes.io/managed-by": "kubeocean"}}, "addressType": "IPv4"});
    slice.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
    slice
}

pub(crate) fn scripts() -> Vec<Script> {
    vec![
        script("a volume that is made for one claim", vec![
            post("persistentvolumes", volume(json!({"csi": csi(), "nodeAffinity": affinity("n1"), "mountOptions": ["noatime"]}))),
            merge("persistentvolumes/{ns}", json!({"metadata": {"uid": "{uid:persistentvolumes/{ns}}"}, "spec": {"capacity": {"storage": "20Gi"}}})),
            merge("persistentvolumes/{ns}", json!({"spec": {"mountOptions": [], "accessModes": ["ReadOnlyMany"]}})),
            merge("persistentvolumes/{ns}", json!({"spec": {"claimRef": {"uid": "u-1", "resourceVersion": "7"}}})),
            merge("persistentvolumes/{ns}", json!({"spec": {"claimRef": {"name": "d", "uid": null, "resourceVersion": null}}})),
            merge("persistentvolumes/{ns}", json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}})),
            merge("persistentvolumes/{ns}", json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})),
            merge("persistentvolumes/{ns}", json!({"spec": {"storageClassName": "other"}})),
            merge("persistentvolumes/{ns}", json!({"spec": {"storageClassName": ""}})),
            merge("persistentvolumes/{ns}", json!({"spec": {"csi": {"nodeExpandSecretRef": {"name": "s", "namespace": "{ns}"}}}})).code_only(422),
            delete("persistentvolumes/{ns}"),
            get("persistentvolumes/{ns}"),
        ]),
        script("what a volume cannot become", vec![
            post("persistentvolumes", volume(json!({"csi": csi(), "nodeAffinity": affinity("n1")}))),
            merge("persistentvolumes/{ns}", json!({"spec": {"volumeMode": "Block"}})),
            merge("persistentvolumes/{ns}", json!({"spec": {"csi": {"volumeHandle": "other"}}})).code_only(422),
            merge("persistentvolumes/{ns}", json!({"spec": {"nodeAffinity": affinity("n2")}})),
        ]),
        script("what no volume is", vec![
            post("persistentvolumes", volume(json!({}))),
            post("persistentvolumes", volume(json!({"csi": csi(), "nfs": {"server": "x", "path": "/"}}))),
            post("persistentvolumes", volume(json!({"csi": csi(), "capacity": null}))),
            post("persistentvolumes", volume(json!({"csi": csi(), "accessModes": []}))),
        ]),
        script("a claim that names its volume", vec![
            post("persistentvolumeclaims", claim(json!({}))),
            merge("persistentvolumeclaims/c", json!({"metadata": {"uid": "{uid:persistentvolumeclaims/c}", "labels": {"a": "b"}}})),
            merge("persistentvolumeclaims/c", json!({"spec": {"volumeName": "other"}})).code_only(422),
            merge("persistentvolumeclaims/c", json!({"spec": {"accessModes": ["ReadOnlyMany"]}})).code_only(422),
            post("persistentvolumeclaims", json!({"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"]}})),
            post("persistentvolumeclaims", json!({"metadata": {"name": "d"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}})),
            delete("persistentvolumeclaims/c"),
            get("persistentvolumeclaims/c"),
        ]),
        script("a claim whose volume is to grow", vec![
            post("persistentvolumeclaims", claim(json!({}))),
            merge("persistentvolumeclaims/c", json!({"spec": {"resources": {"requests": {"storage": "9Gi"}}}})).code_only(422),
            merge("persistentvolumeclaims/c", json!({"spec": {"resources": {"requests": {"storage": "7Gi"}}}})).code_only(422),
            merge("persistentvolumeclaims/c/status", json!({"status": {"phase": "Bound", "capacity": {"storage": "8Gi"}}})),
            merge("persistentvolumeclaims/c", json!({"spec": {"resources": {"requests": {"storage": "9Gi"}}}})),
            post("storageclasses", json!({"metadata": {"name": "{ns}"}, "provisioner": "x", "allowVolumeExpansion": true})),
            post("persistentvolumeclaims", json!({"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Gi"}}, "storageClassName": "{ns}"}})),
            merge("persistentvolumeclaims/d", json!({"spec": {"volumeName": "v"}})),
            merge("persistentvolumeclaims/d/status", json!({"status": {"phase": "Bound", "capacity": {"storage": "8Gi"}}})),
            merge("persistentvolumeclaims/d", json!({"spec": {"resources": {"requests": {"storage": "9Gi"}}}})),
        ]),
        script("a service without a selector", vec![
            post("services", json!({"metadata": {"name": "s"}, "spec": {"type": "ClusterIP", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "ports": [{"name": "a", "port": 80, "protocol": "TCP", "appProtocol": "http"}, {"name": "b", "port": 53, "protocol": "UDP"}]}})),
            merge("services/s", json!({"spec": {"ports": [{"port": 81, "protocol": "TCP"}]}})),
            merge("services/s", json!({"spec": {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}})),
            merge("services/s", json!({"spec": {"sessionAffinity": "None", "sessionAffinityConfig": null}})),
            merge("services/s", json!({"spec": {"selector": {"a": "b"}, "externalIPs": ["1.2.3.4"], "internalTrafficPolicy": "Local", "type": "NodePort"}})),
            merge("services/s", json!({"spec": {"selector": null, "externalIPs": null, "internalTrafficPolicy": "Cluster", "type": "ClusterIP"}})),
            merge("services/s", json!({"spec": {"clusterIP": "None"}})),
            post("services", json!({"metadata": {"name": "h"}, "spec": {"type": "ClusterIP", "clusterIP": "None", "ports": []}})),
            merge("services/h", json!({"spec": {"ports": [{"name": "a", "port": 80, "protocol": "TCP"}]}})),
            delete("services/s"),
        ]),
        script("endpoints of a service", vec![
            post("endpointslices", slice(json!({"endpoints": [{"addresses": ["10.0.0.7"], "conditions": {"ready": true, "serving": true, "terminating": false}}, {"addresses": ["10.0.0.8"], "conditions": {}, "hostname": "b"}], "ports": [{"port": 80, "protocol": "TCP"}, {"name": "b", "port": 53, "protocol": "UDP", "appProtocol": "dns"}]}))),
            merge("endpointslices/e", json!({"endpoints": [{"addresses": ["10.0.0.9"], "conditions": {"ready": false}}]})),
            merge("endpointslices/e", json!({"endpoints": []})),
            merge("endpointslices/e", json!({"ports": []})),
            merge("endpointslices/e", json!({"metadata": {"labels": {"kubernetes.io/service-name": "other"}}})),
            merge("endpointslices/e", json!({"addressType": "IPv6"})),
            merge("endpointslices/e", json!({"endpoints": [{"addresses": []}]})),
            merge("endpointslices/e", json!({"endpoints": [{"addresses": ["nowhere"]}]})),
            merge("endpointslices/e", json!({"endpoints": [{"addresses": ["127.0.0.1"]}]})),
            post("endpointslices", json!({"metadata": {"name": "f"}, "endpoints": []})),
            delete("endpointslices/e"),
        ]),
    ]
}

/// With the controllers running: who names whom finds together, and nothing goes while it is used.
pub(crate) fn settled() -> Vec<Script> {
    vec![
        script("a volume and a claim that name each other", vec![
            post("persistentvolumes", volume(json!({"csi": csi()}))),
            get("persistentvolumes/{ns}").until_it_says("/status/phase", "Available"),
            post("persistentvolumeclaims", claim(json!({}))),
            get("persistentvolumeclaims/c").until_it_has("/status/capacity"),
            get("persistentvolumes/{ns}"),
            delete("persistentvolumes/{ns}"),
            delete("persistentvolumeclaims/c"),
            get("persistentvolumeclaims/c").until(404),
            get("persistentvolumes/{ns}").until(404),
        ]),
        script("a volume whose claim was made anew", vec![
            post("persistentvolumes", volume(json!({"csi": csi()}))),
            post("persistentvolumeclaims", claim(json!({}))),
            get("persistentvolumeclaims/c").until_it_has("/status/capacity"),
            delete("persistentvolumeclaims/c"),
            get("persistentvolumeclaims/c").until(404),
            get("persistentvolumes/{ns}").until_it_says("/status/phase", "Released"),
            merge("persistentvolumes/{ns}", json!({"spec": {"claimRef": {"uid": null, "resourceVersion": null}}})),
            post("persistentvolumeclaims", claim(json!({}))),
            get("persistentvolumeclaims/c").until_it_has("/status/capacity"),
            delete("persistentvolumeclaims/c"),
            get("persistentvolumeclaims/c").until(404),
            get("persistentvolumes/{ns}").until_it_says("/status/phase", "Released"),
            delete("persistentvolumes/{ns}"),
            get("persistentvolumes/{ns}").until(404),
        ]),
    ]
}

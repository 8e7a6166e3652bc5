//! A worker cluster as a busy one is: nodes with images and conditions, pods of others with requests and a full status.

use kubeocean_api::{GROUP, VERSION};
use serde_json::{Value, json};

use super::bound::BINDING;

/// The namespace of the worker's own pods.
pub(super) const NAMESPACE: &str = "bench";

const SINCE: &str = "2026-11-01T08:00:00Z";

pub(super) fn node_name(number: usize) -> String {
    format!("node-{number:04}")
}

pub(super) fn node(number: usize) -> Value {
    let name = node_name(number);
    let resources = json!({"cpu": "16", "memory": "64Gi", "ephemeral-storage": "200Gi", "hugepages-2Mi": "0", "pods": "110"});
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": format!("kubelet says {reason}"),
            "lastHeartbeatTime": SINCE, "lastTransitionTime": SINCE,
        })
    };
    let image = |of: usize| {
        json!({"sizeBytes": 123_456_789 + of, "names": [
            format!("registry.example.com/team/application-{of}@sha256:{of:064x}"),
            format!("registry.example.com/team/application-{of}:v1.27.3"),
        ]})
    };
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "m5.4xlarge", "topology.kubernetes.io/region": "r1",
                "topology.kubernetes.io/zone": format!("r1-{}", number % 3),
            },
        },
        "status": {
            "capacity": resources, "allocatable": resources,
            "addresses": [{"type": "InternalIP", "address": format!("192.0.2.{}", number % 250)}],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "images": (0..20).map(image).collect::<Vec<_>>(),
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "v1.36.4", "kubeProxyVersion": "",
                "bootID": format!("{number:032x}"), "machineID": format!("{number:032x}"), "systemUUID": format!("{number:032x}"),
                "containerRuntimeVersion": "containerd://2.1.4", "kernelVersion": "6.12.0", "osImage": "Debian GNU/Linux 13",
            },
        },
    })
}

/// As the registrar of a driver leaves it.
pub(super) fn csi_node(number: usize) -> Value {
    let name = node_name(number);
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
        "spec": {"drivers": [{
            "name": "disk.csi.example.com", "nodeID": name, "allocatable": {"count": 25},
            "topologyKeys": ["topology.kubernetes.io/zone"],
        }]},
    })
}

/// A pod that someone else has on a node. Every tenth asks for nothing.
pub(super) fn pod(name: &str, node: &str, number: usize) -> Value {
    let resources = if number % 10 == 9 {
        json!({})
    } else {
        json!({"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}})
    };
    let container = |name: &str, resources: &Value| {
        json!({
            "name": name, "image": "registry.example.com/team/application:v1.27.3", "resources": resources,
            "args": ["--listen=:8080", "--log-level=info"], "env": [{"name": "MODE", "value": "production"}],
            "ports": [{"containerPort": 8080, "name": "http"}],
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10},
            "volumeMounts": [{"mountPath": "/data", "name": "data"}],
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "labels": {"app": "application", "tier": "backend", "pod-template-hash": "7c5ddbdf54"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
        },
        "spec": {
            "nodeName": node, "automountServiceAccountToken": false,
            "containers": [container("main", &resources), container("sidecar", &json!({}))],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    })
}

/// What its kubelet says of such a pod.
pub(super) fn running(number: usize) -> Value {
    let kinds = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": SINCE});
    let state = |name: &str| {
        json!({
            "name": name, "image": "registry.example.com/team/application:v1.27.3", "ready": true, "restartCount": 0,
            "containerID": format!("containerd://{number:064x}"), "started": true, "lastState": {},
            "imageID": format!("registry.example.com/team/application@sha256:{:064x}", 7),
            "state": {"running": {"startedAt": SINCE}},
        })
    };
    json!({"status": {
        "phase": "Running", "conditions": kinds.map(condition), "containerStatuses": [state("main"), state("sidecar")],
        "hostIP": "192.0.2.1", "hostIPs": [{"ip": "192.0.2.1"}], "podIP": "198.51.100.1",
        "podIPs": [{"ip": "198.51.100.1"}], "startTime": SINCE,
    }})
}

/// The lender's word: four fifths of what is left on each node.
pub(super) fn policy() -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ResourceLeasingPolicy", "metadata": {"name": "all"},
        "spec": {"cluster": BINDING, "resourceLimits": [
            {"resource": "cpu", "percent": 80}, {"resource": "memory", "percent": 80},
        ]},
    })
}

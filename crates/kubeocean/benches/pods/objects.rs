//! Pods of three kinds on virtual nodes, and what a bare client makes of them.

use std::fmt;

use kubeocean_api::keys::taints::VNODE_KEY;
use kubeocean_api::{GROUP, VERSION};
use serde_json::{Value, json};

use super::bound::BINDING;

/// The namespace of the pods in the computing cluster.
pub(super) const NAMESPACE: &str = "bench";

/// What a pod brings along.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Nothing.
    Bare,
    /// A token of its service account, and the certificate that goes with it, which all of them share.
    Token,
    /// A `ConfigMap` that no other pod has.
    ConfigMap,
}

pub(super) const KINDS: [Kind; 3] = [Kind::Bare, Kind::Token, Kind::ConfigMap];

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bare => "bare",
            Self::Token => "token",
            Self::ConfigMap => "config",
        })
    }
}

/// The virtual node of a simulated one.
fn vnode(number: usize, nodes: usize) -> String {
    format!("vnode-{BINDING}-sim-{}", number % nodes + 1)
}

/// Bound from the start: what a scheduler takes is none of our business.
pub(super) fn pod(kind: Kind, name: &str, number: usize, nodes: usize) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "bench"}},
        "spec": {
            "nodeName": vnode(number, nodes), "automountServiceAccountToken": kind == Kind::Token,
            "tolerations": [{"key": VNODE_KEY, "operator": "Exists"}],
            "containers": [{
                "name": "main", "image": "registry.example.com/team/application:v1.27.3",
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "32Mi"}},
                "env": [{"name": "MODE", "value": "production"}],
            }],
        },
    });
    if kind == Kind::ConfigMap {
        pod["spec"]["volumes"] = json!([{"name": "config", "configMap": {"name": name}}]);
    }
    pod
}

pub(super) fn config_map(name: &str) -> Value {
    let data = json!({"settings.yaml": "mode: production\n".repeat(32)});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// As a syncer asks for one.
pub(super) fn token_request(pod: &Value) -> Value {
    let metadata = &pod["metadata"];
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]});
    json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": 3600, "boundObjectRef": bound},
    })
}

/// The lender's word: everything.
pub(super) fn policy() -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ResourceLeasingPolicy", "metadata": {"name": "all"},
        "spec": {"cluster": BINDING},
    })
}

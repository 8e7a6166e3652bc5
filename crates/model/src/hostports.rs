//! Host ports that others use on a node of a worker cluster, reserved on its virtual node.
//!
//! V's scheduler knows only V's pods. One placeholder pod per virtual node holds the ports that are taken in P, and runs nothing. The
//! ports of a pod cannot be changed, so another one is made before the old one goes.

use std::collections::BTreeSet;

use kubeocean_api::keys::names::FAKE_NAMESPACE;
use kubeocean_api::keys::{TRUE, labels};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::action::{Action, Dependents, Mark, Verb, kinds};
use crate::binding::Binding;
use crate::key::{Key, Virtual};
use crate::naming::Origin;
use crate::reclaim::VirtualPod;
use crate::vnode::VirtualNode;

/// A port of a node that a pod has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Where it listens; empty: everywhere.
    pub address: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The port.
    pub port: u16,
}

impl HostPort {
    /// Whether two pods cannot both have theirs on one node.
    pub fn clashes_with(&self, other: &Self) -> bool {
        let meet = self.address.is_empty() || other.address.is_empty() || self.address == other.address;
        meet && (self.port, &self.protocol) == (other.port, &other.protocol)
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    containers: Vec<Container>,
    init_containers: Vec<Container>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    ports: Vec<Written>,
    restart_policy: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Written {
    host_port: u16,
    #[serde(rename = "hostIP")]
    host_ip: String,
    protocol: String,
}

/// The host ports of a pod, as a scheduler counts them: of its containers and sidecars. API servers fill them in for pods in the
/// host's network.
pub fn of_pod(spec: &str) -> Vec<HostPort> {
    // Most pods have none, and need not be read for that.
    if !spec.contains("\"hostPort\"") {
        return Vec::new();
    }
    let Ok(spec) = serde_json::from_str::<Spec>(spec) else { return Vec::new() };
    let sidecars = spec.init_containers.iter().filter(|one| one.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports);
    let read = |port: &Written| HostPort {
        address: if port.host_ip == "0.0.0.0" { String::new() } else { port.host_ip.clone() },
        protocol: if port.protocol.is_empty() { "TCP".to_owned() } else { port.protocol.clone() },
        port: port.host_port,
    };
    let mut all: Vec<HostPort> = ports.filter(|port| port.host_port > 0).map(read).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// What has to be written so that `wanted` is reserved on a virtual node, and nothing else. `existing` are its placeholders.
pub fn plan(
    binding: &Binding,
    virtual_cluster: &str,
    vnode: &VirtualNode,
    wanted: &BTreeSet<HostPort>,
    existing: &[&VirtualPod],
) -> Vec<Action> {
    let name = name(vnode.name(), wanted);
    let why = "others use these host ports in the worker cluster";
    let lives = |pod: &&&VirtualPod| !pod.meta.is_deleting() && !pod.is_terminal;
    let current = existing.iter().filter(lives).find(|pod| *pod.meta.name == *name);
    if !wanted.is_empty() && current.is_none() {
        // The one of this name may still be ending, and is finished first; one that has ended holds no port, and makes room.
        if let Some(pod) = existing.iter().find(|pod| *pod.meta.name == *name) {
            return if pod.meta.is_deleting() { Vec::new() } else { vec![end(pod)] };
        }
        let key = Key::<Virtual>::new(FAKE_NAMESPACE, name.as_str());
        let body = body(binding, virtual_cluster, vnode, wanted);
        let mark = Mark { labels: &[labels::BINDING_UID, labels::HOSTPORT_FAKE_POD], annotations: &[] };
        return vec![Action::new(kinds::POD, &key, Verb::Create { body, mark }, why)];
    }
    let outdated = existing.iter().filter(|pod| !pod.meta.is_deleting());
    let outdated = outdated.filter(|pod| wanted.is_empty() || *pod.meta.name != *name);
    outdated.map(|pod| end(pod)).collect()
}

fn end(pod: &VirtualPod) -> Action {
    let key = Key::<Virtual>::new(&*pod.meta.namespace, &*pod.meta.name);
    let verb = Verb::Delete { grace: Some(0), dependents: Dependents::Background };
    let why = "it does not hold the host ports that others use in the worker cluster now";
    Action::new(kinds::POD, &key, verb, why).if_uid(&*pod.meta.uid)
}

/// Another set of ports is another name.
fn name(vnode: &str, ports: &BTreeSet<HostPort>) -> String {
    let words: Vec<String> =
        ports.iter().map(|port| format!("{}/{}/{}", port.address, port.protocol, port.port)).collect();
    let origin = Origin::Object { namespace: &words.join(","), name: vnode };
    origin.physical_name().as_str().to_owned()
}

fn body(binding: &Binding, virtual_cluster: &str, vnode: &VirtualNode, ports: &BTreeSet<HostPort>) -> Value {
    let port = |port: &HostPort| {
        let mut value = json!({"containerPort": port.port, "hostPort": port.port, "protocol": port.protocol});
        if !port.address.is_empty() {
            value["hostIP"] = port.address.as_str().into();
        }
        value
    };
    json!({
        "metadata": {
            "labels": {
                labels::MANAGED_BY: labels::MANAGED_BY_VALUE, labels::BINDING_UID: binding.uid,
                labels::VIRTUAL_CLUSTER_UID: virtual_cluster, labels::HOSTPORT_FAKE_POD: TRUE,
            },
            // Of its node, as static pods are: `kubectl drain` refuses to end what nobody would make anew.
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": vnode.name(), "uid": &*vnode.meta.uid, "controller": true},
            ],
        },
        "spec": {
            "nodeName": vnode.name(),
            "containers": [{
                "name": "ports", "image": "kubeocean.invalid/runs-nowhere",
                "ports": ports.iter().map(port).collect::<Vec<_>>(),
            }],
            "tolerations": [{"operator": "Exists"}],
            // Whoever could push it aside would get a port that is not free.
            "priorityClassName": "system-node-critical",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
        },
    })
}

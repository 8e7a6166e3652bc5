//! A computing cluster and one worker, and a bare client in front of each.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use kube::Client;
use kubeocean_api::keys::labels;
use kubeocean_api::keys::names::NODE_LEASE_NAMESPACE;
use kubeocean_api::keys::taints::NODE_NOT_READY_KEY;
use kubeocean_sandbox::Spec;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::bound::calls::{JSON, MERGE, count, get, items, plain, send, text, until};
use super::bound::{AT_A_TIME, BINDING, Bound, NODES, PATIENT, WORKER};
use super::objects::{self, NAMESPACE};

const CSI_NODES: &str = "/apis/storage.k8s.io/v1/csinodes";

pub(super) struct Place {
    pub(super) bound: Bound,
}

/// All that V has of one virtual node, as anyone could write it: without what a server puts.
pub(super) struct Copied {
    node: Value,
    lease: Value,
    csi_node: Value,
}

impl Place {
    /// Both clusters, and a namespace for the worker's own pods.
    pub(super) async fn new() -> Self {
        // Nobody renews the Leases of the worker's nodes: a thousand of them would be a hundred writes a second beside what is
        // measured.
        let spec = Spec::new().workers(1, 0, 0).extra_arg(WORKER, "kube-controller-manager", PATIENT);
        let bound = Bound::new(spec, &objects::policy()).await;
        Bound::namespace(&bound.phys, NAMESPACE).await;
        Self { bound }
    }

    /// More nodes of the worker, each with its pods.
    pub(super) async fn grow(&self, numbers: std::ops::Range<usize>, pods_each: usize) {
        let make = stream::iter(numbers).for_each_concurrent(AT_A_TIME, async |number| {
            let name = objects::node_name(number);
            send(&self.bound.phys, "POST", NODES, JSON, &objects::node(number)).await;
            send(&self.bound.phys, "POST", CSI_NODES, JSON, &objects::csi_node(number)).await;
            for pod in 0..pods_each {
                let pod = number * pods_each + pod;
                let called = format!("application-7c5ddbdf54-{pod:05}");
                start_pod(&self.bound.phys, &called, &name, pod).await;
                let path = format!("{}/{called}/status", pods());
                send(&self.bound.phys, "PATCH", &path, MERGE, &objects::running(pod)).await;
            }
        });
        make.await;
        // The worker's own controller has to believe in them, or their virtual nodes change under our eyes.
        until(async || {
            let all = get(&self.bound.phys, NODES).await.unwrap();
            let is_new = |node: &Value| node["spec"]["taints"].to_string().contains(NODE_NOT_READY_KEY);
            (!items(&all).iter().any(is_new)).then_some(())
        })
        .await;
    }

    /// How long a bare client takes to read what a syncer reads of the worker.
    pub(super) async fn list_worker(&self) -> Duration {
        let started = Instant::now();
        for path in [NODES, CSI_NODES, "/api/v1/pods"] {
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            assert!(!self.bound.phys.request_text(request).await.unwrap().is_empty());
        }
        started.elapsed()
    }

    /// Waits until each of so many nodes has all that belongs to it.
    pub(super) async fn whole(&self, nodes: usize) {
        self.counted(CSI_NODES, nodes).await;
        self.counted(&leases(), nodes).await;
    }

    async fn counted(&self, collection: &str, expected: usize) {
        until(async || (count(&self.bound.virt, collection).await == expected).then_some(())).await;
    }

    /// What the syncer has written, to be written again.
    pub(super) async fn copied(&self) -> Vec<Copied> {
        let by_name = async |path: &str| -> std::collections::BTreeMap<String, Value> {
            let all = get(&self.bound.virt, path).await.unwrap();
            items(&all).iter().map(|one| (text(&one["metadata"]["name"]), plain(one))).collect()
        };
        let mut nodes = by_name(NODES).await;
        let (mut leases, mut csi_nodes) = (by_name(&leases()).await, by_name(CSI_NODES).await);
        let names: Vec<String> = nodes.keys().cloned().collect();
        let mut take = |name: &String| {
            let (node, lease) = (nodes.remove(name).unwrap(), leases.remove(name).unwrap());
            Copied { node, lease, csi_node: csi_nodes.remove(name).unwrap() }
        };
        names.iter().map(&mut take).collect()
    }

    /// Writes the same under other names.
    pub(super) async fn write(&self, copied: &[Copied]) -> Duration {
        let started = Instant::now();
        let leases = leases();
        let write = stream::iter(copied.iter().enumerate()).for_each_concurrent(
            AT_A_TIME,
            async |(number, copied): (usize, &Copied)| {
                let mut node = copied.node.clone();
                node["metadata"]["name"] = format!("bare-{number}").into();
                let written = send(&self.bound.virt, "POST", NODES, JSON, &node).await;
                let metadata = &written["metadata"];
                let owner = json!([{
                    "apiVersion": "v1", "kind": "Node", "name": metadata["name"], "uid": metadata["uid"],
                }]);
                for (path, of) in [(leases.as_str(), &copied.lease), (CSI_NODES, &copied.csi_node)] {
                    let mut of = of.clone();
                    of["metadata"]["name"] = metadata["name"].clone();
                    of["metadata"]["ownerReferences"] = owner.clone();
                    send(&self.bound.virt, "POST", path, JSON, &of).await;
                }
            },
        );
        write.await;
        started.elapsed()
    }

    /// Nothing of any node is left in V, as before the first start.
    pub(super) async fn clear(&self) {
        let all = get(&self.bound.virt, NODES).await.unwrap();
        let remove = stream::iter(items(&all)).for_each_concurrent(AT_A_TIME, async |node: &Value| {
            let path = format!("{NODES}/{}", text(&node["metadata"]["name"]));
            if node["metadata"]["labels"][labels::CLUSTER_BINDING] == BINDING {
                send(&self.bound.virt, "PATCH", &path, MERGE, &json!({"metadata": {"finalizers": null}}))
                    .await;
            }
            send(&self.bound.virt, "DELETE", &path, JSON, &Value::Null).await;
        });
        remove.await;
        for collection in [CSI_NODES, &leases()] {
            send(&self.bound.virt, "DELETE", collection, JSON, &Value::Null).await;
            self.counted(collection, 0).await;
        }
        self.counted(NODES, 0).await;
    }
}

pub(super) async fn start_pod(phys: &Client, name: &str, node: &str, number: usize) {
    send(phys, "POST", &pods(), JSON, &objects::pod(name, node, number)).await;
}

/// At once: there is no kubelet that could say that it has ended.
pub(super) async fn end_pod(phys: &Client, name: &str) {
    let path = format!("{}/{name}", pods());
    send(phys, "DELETE", &path, JSON, &json!({"gracePeriodSeconds": 0})).await;
}

fn leases() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{NODE_LEASE_NAMESPACE}/leases")
}

fn pods() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}

//! Both clusters with simulated nodes, and how much of everything there is to be.

use kubeocean_api::keys::names::WORKER_NAMESPACE;
use kubeocean_api::keys::taints::NODE_NOT_READY_KEY;
use kubeocean_sandbox::{COMPUTING, NodeSize, Spec};
use serde::Serialize;
use serde_json::{Value, json};

use super::bound::calls::{get, items, until};
use super::bound::process::Component;
use super::bound::{Bound, NAMESPACES, NODES, PATIENT, WHERE_NOBODY_IS, WORKER};
use super::follow::Followed;
use super::objects::{self, NAMESPACE};

/// How much of everything. `KUBEOCEAN_BENCH_…` changes it.
#[derive(Clone, Serialize)]
pub(super) struct Sizes {
    pub(super) nodes: usize,
    /// In a burst.
    pub(super) pods: usize,
    pub(super) rounds: usize,
    /// At each rate.
    pub(super) seconds: usize,
    pub(super) many_nodes: usize,
    /// On many nodes; a tenth of them first. None: that part is left out.
    pub(super) many_pods: usize,
}

impl Sizes {
    pub(super) fn wanted() -> Self {
        let of = |name: &str, usually: usize| {
            let said = std::env::var(format!("KUBEOCEAN_BENCH_{name}"));
            said.ok().and_then(|text| text.parse().ok()).unwrap_or(usually)
        };
        Self {
            nodes: of("NODES", 50),
            pods: of("PODS", 1000),
            rounds: of("ROUNDS", 3),
            seconds: of("SECONDS", 20),
            many_nodes: of("MANY_NODES", 1000),
            many_pods: of("MANY_PODS", 10_000),
        }
    }
}

pub(super) struct Place {
    pub(super) bound: Bound,
    pub(super) sizes: Sizes,
    /// Our pods, and their twins.
    pub(super) virt: Followed,
    pub(super) phys: Followed,
}

impl Place {
    pub(super) async fn new(sizes: Sizes, audit: bool) -> Self {
        let size = NodeSize { cpu: "64".into(), memory: "256Gi".into(), pods: "1000".into() };
        // Now and then no syncer runs, and virtual nodes are to stay what they are.
        let spec = Spec::new().workers(1, sizes.nodes, 0).sim_node_size(size).audit(audit);
        let spec = spec.extra_arg(COMPUTING, "kube-controller-manager", PATIENT);
        let spec = spec.extra_arg(WORKER, "kube-controller-manager", PATIENT);
        let bound = Bound::new(spec, &objects::policy()).await;
        Bound::namespace(&bound.virt, NAMESPACE).await;
        bound.ready_for_pods().await;
        let (virt, phys) = (
            Followed::new(bound.virt.clone(), NAMESPACE),
            Followed::new(bound.phys.clone(), WORKER_NAMESPACE),
        );
        Self { bound, sizes, virt, phys }
    }

    /// A syncer whose virtual nodes may all be used.
    pub(super) async fn syncer(&self) -> Component {
        let syncer = self.bound.syncer(&WHERE_NOBODY_IS);
        self.bound.ready(self.sizes.nodes).await;
        until(async || {
            let all = get(&self.bound.virt, NODES).await.unwrap();
            let is_new = |node: &Value| node["spec"]["taints"].to_string().contains(NODE_NOT_READY_KEY);
            (!items(&all).iter().any(is_new)).then_some(())
        })
        .await;
        syncer
    }
}

/// Where things of a namespace are.
pub(super) fn within(namespace: &str, plural: &str) -> String {
    format!("{NAMESPACES}/{namespace}/{plural}")
}

pub(super) fn pods(namespace: &str) -> String {
    within(namespace, "pods")
}

/// What makes a deletion final.
pub(super) fn at_once() -> Value {
    json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
}

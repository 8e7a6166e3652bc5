//! What Prometheus sees of a worker cluster's nodes: what they have, what they offer, who uses it, and whether the lease clock is right.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kubeocean_cluster::metrics::{Metrics, MetricsError, Observation, Observed, Series};
use kubeocean_model::key::{Key, Physical};
use kubeocean_model::quantity::Quantity;
use kubeocean_model::resources::Resources;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::histogram::Histogram;

use crate::pulse::Pulse;
use crate::seen::SeenVnode;
use crate::world::World;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(crate) struct OfBinding {
    pub(crate) clusterbinding: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct OfCluster {
    clusterbinding: String,
    resource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct OfNode {
    clusterbinding: String,
    node: String,
    resource: String,
}

/// What is done at a window's edge takes milliseconds; more than a second is late.
const EDGE_SECONDS: [f64; 8] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 60.0];

/// From pods that go at once to grace periods of hours.
const RECLAIM_SECONDS: [f64; 9] = [1.0, 5.0, 15.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 7200.0];

/// Around ten seconds, and up to the fifty after which V takes a node for lost.
const RENEWAL_SECONDS: [f64; 9] = [5.0, 9.0, 10.0, 11.0, 12.0, 15.0, 20.0, 40.0, 50.0];

/// How well a syncer keeps time. Clones count together.
#[derive(Clone)]
pub(crate) struct Timekeeping {
    labels: OfBinding,
    edges: Series<OfBinding, Histogram>,
    reclaims: Series<OfBinding, Histogram>,
    renewals: Series<OfBinding, Histogram>,
    /// When a node has to be looked at, as the lease clock has it.
    due: Arc<Mutex<BTreeMap<Arc<str>, Timestamp>>>,
    /// Since when the pods of a node have been asked to go.
    asked: Arc<Mutex<BTreeMap<Arc<str>, Timestamp>>>,
}

impl Timekeeping {
    pub(crate) fn new(metrics: &Metrics, binding: &str) -> Result<Self, MetricsError> {
        let part = metrics.part("syncer");
        let series = |name: &str, help: &str, make: fn() -> Histogram| {
            part.shared(name, help, || Series::<OfBinding, Histogram>::new(make))
        };
        Ok(Self {
            labels: OfBinding { clusterbinding: binding.to_owned() },
            edges: series(
                "window_edge_error_seconds",
                "From a moment of the lease clock (a window's edge, a notice) to when what follows from it was written",
                || Histogram::new(EDGE_SECONDS),
            )?,
            reclaims: series(
                "reclaim_duration_seconds",
                "From when the pods of a virtual node were asked to go to when none was left",
                || Histogram::new(RECLAIM_SECONDS),
            )?,
            renewals: series(
                "lease_renewal_interval_seconds",
                "Time between two renewals of the Lease of one virtual node",
                || Histogram::new(RENEWAL_SECONDS),
            )?,
            due: Arc::default(),
            asked: Arc::default(),
        })
    }

    /// When a node has to be looked at.
    pub(crate) fn due(&self, node: &str) -> Option<Timestamp> {
        self.due.lock().get(node).copied()
    }

    /// A node was looked at, and what was to be written is: the clock asks for the next look then.
    pub(crate) fn looked(&self, node: &Arc<str>, next: Option<Timestamp>, now: Timestamp) {
        let mut due = self.due.lock();
        let before = match next {
            Some(next) => due.insert(Arc::clone(node), next),
            None => due.remove(node),
        };
        drop(due);
        if let Some(before) = before.filter(|before| *before <= now) {
            self.edges.of(&self.labels).observe(seconds(before, now));
        }
    }

    /// Pods of a node have been asked to go since then, or not; some are left, or none.
    pub(crate) fn reclaims(&self, node: &Arc<str>, since: Option<Timestamp>, left: usize, now: Timestamp) {
        let mut asked = self.asked.lock();
        match since {
            Some(since) if left > 0 => {
                asked.entry(Arc::clone(node)).or_insert(since);
            }
            _ => {
                let since = asked.remove(node);
                drop(asked);
                if let Some(since) = since.filter(|_| left == 0) {
                    self.reclaims.of(&self.labels).observe(seconds(since, now));
                }
            }
        }
    }

    /// A Lease was renewed, so long after the last time.
    pub(crate) fn renewed(&self, after: Duration) {
        self.renewals.of(&self.labels).observe(after.as_secs_f64());
    }
}

pub(crate) fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    Duration::try_from(to.duration_since(from)).unwrap_or_default().as_secs_f64()
}

/// What is measured of each virtual node.
#[derive(Clone, Copy)]
enum Measure {
    /// What the node could give to pods.
    Origin,
    /// What the virtual node offers.
    Available,
    /// What pods of others have.
    PhysicalUsage,
    /// What our pods have.
    VirtualUsage,
}

impl Measure {
    const ALL: [(&'static str, &'static str, Self); 4] = [
        ("origin_resource", "What the nodes behind virtual nodes can give to pods", Self::Origin),
        ("available_resource", "What virtual nodes offer", Self::Available),
        ("physical_usage", "What pods of others use of the nodes behind virtual nodes", Self::PhysicalUsage),
        (
            "virtual_usage",
            "What pods of this binding use of the nodes behind virtual nodes",
            Self::VirtualUsage,
        ),
    ];

    fn of(self, world: &World, vnode: &SeenVnode) -> Vec<(String, f64)> {
        let vnode = &vnode.0;
        let listed = |all: &Resources| -> Vec<(String, f64)> {
            all.iter().map(|(resource, amount)| (resource.to_owned(), amount.as_f64())).collect()
        };
        match self {
            Self::Origin => {
                let seen = world.nodes.get(&Key::<Physical>::cluster_scoped(vnode.physical_name.as_str()));
                let node = seen.as_ref().and_then(|seen| seen.0.as_ref().ok());
                node.map(|node| listed(&node.node.allocatable)).unwrap_or_default()
            }
            Self::Available => {
                let amount = |text: &str| text.parse::<Quantity>().map(Quantity::as_f64).ok();
                let all = vnode.allocatable.iter();
                all.filter_map(|(resource, text)| Some((resource.clone(), amount(text)?))).collect()
            }
            Self::PhysicalUsage => world.usage.with(&vnode.physical_name, |ledger| listed(&ledger.used())),
            Self::VirtualUsage => world.usage.with(&vnode.physical_name, |ledger| listed(&ledger.ours())),
        }
    }
}

/// Shows the nodes of a binding at each scrape, for as long as the result lives.
pub(crate) fn nodes(
    metrics: &Metrics,
    binding: &str,
    world: &World,
    pulse: &Pulse,
) -> Result<Vec<Observation>, MetricsError> {
    let part = metrics.part("syncer");
    let labels = OfBinding { clusterbinding: binding.to_owned() };
    let count = part.shared("vnode_total", "Virtual nodes", Observed::<OfBinding>::default)?;
    let vnodes = world.vnodes.clone();
    let number = |count: usize| Some(f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
    let mut shown = vec![count.observe(labels.clone(), move || number(vnodes.len()))];
    let help = "Pods on virtual nodes of this binding that have not ended";
    let pods = part.shared("virtual_pod_total", help, Observed::<OfBinding>::default)?;
    let known = world.clone();
    shown.push(pods.observe(labels.clone(), move || number(live_pods(&known))));
    let help = "Pods of this binding in the worker cluster that have not ended";
    let twins = part.shared("physical_pod_total", help, Observed::<OfBinding>::default)?;
    let usage = world.usage.clone();
    shown.push(twins.observe(labels.clone(), move || number(usage.ours())));
    let help = "Whether the worker cluster answers, and is the one that was bound: 1 or 0";
    let reachable = part.shared("worker_reachable", help, Observed::<OfBinding>::default)?;
    let pulse = pulse.clone();
    shown.push(reachable.observe(labels, move || Some(if pulse.is_reachable() { 1.0 } else { 0.0 })));
    for (name, help, measure) in Measure::ALL {
        let family = part.shared(&format!("vnode_{name}"), help, Observed::<OfNode>::default)?;
        let (of, known) = (binding.to_owned(), world.clone());
        shown.push(family.observe_all(move || each(measure, &of, &known)));
        let help = format!("{help}, all together");
        let family = part.shared(&format!("cluster_{name}"), &help, Observed::<OfCluster>::default)?;
        let (of, known) = (binding.to_owned(), world.clone());
        shown.push(family.observe_all(move || sums(measure, &of, &known)));
    }
    Ok(shown)
}

/// Those that only hold ports are none that anyone asked for.
fn live_pods(world: &World) -> usize {
    let on = |vnode: &str| {
        world.pods_on(vnode).into_iter().filter(|pod| !pod.0.is_terminal && !pod.0.is_placeholder())
    };
    world.vnodes.all().iter().map(|(key, _)| on(&key.name).count()).sum()
}

fn each(measure: Measure, binding: &str, world: &World) -> Vec<(OfNode, f64)> {
    let mut all = Vec::new();
    for (key, vnode) in world.vnodes.all() {
        for (resource, amount) in measure.of(world, &vnode) {
            let (clusterbinding, node) = (binding.to_owned(), key.name.to_string());
            all.push((OfNode { clusterbinding, node, resource }, amount));
        }
    }
    all
}

fn sums(measure: Measure, binding: &str, world: &World) -> Vec<(OfCluster, f64)> {
    let mut sums = BTreeMap::<String, f64>::new();
    for (_, vnode) in world.vnodes.all() {
        for (resource, amount) in measure.of(world, &vnode) {
            *sums.entry(resource).or_default() += amount;
        }
    }
    let labelled = |resource| OfCluster { clusterbinding: binding.to_owned(), resource };
    sums.into_iter().map(|(resource, sum)| (labelled(resource), sum)).collect()
}

//! Reads `metrics.k8s.io` of a worker cluster, where its kubelets cannot be asked.
//!
//! It says how fast CPU time was used in a window of late, not how much of it there was. [`super::Meters`] turn that into a counter: whoever takes
//! the rate of it has what the worker cluster said. There are no start times, no swap, and no pod as a whole: a pod is the sum of its
//! containers, those that the worker cluster added included.

use jiff::Timestamp;
use serde::Deserialize;

use super::{Amounts, Cpu, Freshness, Point, Tally, Tenants, Usage, is_amount};
use crate::quantity::Quantity;

/// What `metrics.k8s.io` says of the pods of a namespace, of all nodes: read once for all of them.
#[derive(Debug)]
pub struct PodMetrics(List);

/// It is not a list of what pods use.
#[derive(Debug, thiserror::Error)]
#[error("metrics.k8s.io of the worker cluster answered something other than a PodMetricsList")]
pub struct PodMetricsError(#[source] serde_json::Error);

#[derive(Debug, Deserialize)]
struct List {
    items: Vec<Item>,
}

#[derive(Debug, Deserialize)]
struct Item {
    metadata: Name,
    timestamp: Timestamp,
    #[serde(default)]
    containers: Vec<Container>,
}

#[derive(Debug, Deserialize)]
struct Name {
    name: Box<str>,
    #[serde(default)]
    namespace: Box<str>,
}

#[derive(Debug, Deserialize)]
struct Container {
    name: Box<str>,
    usage: Used,
}

#[derive(Debug, Deserialize)]
struct Used {
    cpu: Option<Quantity>,
    memory: Option<Quantity>,
}

impl PodMetrics {
    /// Reads a `PodMetricsList`, as JSON.
    pub fn parse(json: &[u8]) -> Result<Self, PodMetricsError> {
        serde_json::from_slice(json).map(Self).map_err(PodMetricsError)
    }

    /// What it says of the pods of one node.
    pub fn usage(&self, tenants: &Tenants, fresh: Freshness) -> (Usage, Tally) {
        let mut usage = Usage { errors: vec![("resource_scrape_error", 0.0)], ..Usage::default() };
        let mut tally = Tally::default();
        // Without pods there is nothing to be old.
        if tenants.is_empty() {
            usage.looked_at(fresh.moment(None));
        }
        for item in &self.0.items {
            let numbers = item.containers.len() as u64;
            let at = item.timestamp.as_millisecond();
            let Some(tenant) = tenants.behind(&item.metadata.namespace, &item.metadata.name) else {
                tally.foreign += numbers;
                continue;
            };
            if !fresh.allows(Some(at)) {
                tally.stale += numbers;
                usage.stale = true;
                continue;
            }
            usage.looked_at(at);
            let pod = usage.pod(tenant);
            let point = |value| Point { value, at, stamped: true };
            for container in &item.containers {
                let amount =
                    |quantity: Option<Quantity>| quantity.map(Quantity::as_f64).filter(|v| is_amount(*v));
                let (Some(cpu), Some(memory)) = (amount(container.usage.cpu), amount(container.usage.memory))
                else {
                    tally.nonsense += 1;
                    continue;
                };
                let so_far = |cpu: Option<Cpu>| match cpu {
                    Some(Cpu::Rate(rate)) => rate.value,
                    _ => 0.0,
                };
                pod.whole.cpu = Some(Cpu::Rate(point(so_far(pod.whole.cpu) + cpu)));
                pod.whole.memory = Some(point(pod.whole.memory.map_or(0.0, |point| point.value) + memory));
                if !tenant.has(&container.name) {
                    tally.foreign += 1;
                    continue;
                }
                tally.kept += 1;
                let amounts = Amounts {
                    cpu: Some(Cpu::Rate(point(cpu))),
                    memory: Some(point(memory)),
                    ..Amounts::default()
                };
                pod.containers.insert(container.name.clone(), amounts);
            }
        }
        (usage, tally)
    }
}

//! Adds up what the pods of a virtual node use, over time.
//!
//! metrics-server takes rates of counters, and passes over a node or a container whose counter went down; one that jumps up it believes, and autoscalers with it.
//! So the node's counter is made of what each pod added since it was last looked at: a pod that goes takes nothing with it, and
//! one that comes brings what it has used. It is never less than what the pods that are there have used, so that a replica that takes over a node, and
//! knows nothing of pods that went, starts lower and not higher.
//!
//! A container's counter is the kubelet's, as it is, as long as that is who is asked. Rates of `metrics.k8s.io` are added up on top of it, and
//! a kubelet that answers again goes on from there: a change of source is no jump either way.
//!
//! metrics-server takes a zero for a number that is missing. A node without pods therefore uses one byte and has used one microsecond: it is shown
//! as idle, not as unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Amounts, Cpu, Point, Tenants, Usage};
use crate::exposition::Writer;
use crate::key::{Key, Virtual};

/// Where counters of our own begin, in seconds: above zero, and far below what anyone sees.
const FIRST: f64 = 1e-6;

/// The smallest number of bytes that is not taken for a missing number.
const LEAST_BYTES: f64 = 1.0;

/// The counters of one virtual node. To be kept for as long as the node is served.
#[derive(Clone, Debug)]
pub struct Meters {
    node: f64,
    pods: BTreeMap<Arc<str>, PodMeters>,
}

#[derive(Clone, Debug, Default)]
struct PodMeters {
    whole: Option<Meter>,
    containers: BTreeMap<Box<str>, Meter>,
    /// Nothing was said of the pod as a whole, so its containers were counted.
    by_containers: bool,
}

/// A counter as we show it. The last total that a kubelet gave is `raw`, and `offset` is what we show beyond it.
#[derive(Clone, Copy, Debug)]
struct Meter {
    shown: f64,
    raw: f64,
    offset: f64,
    rated: bool,
    at: i64,
}

impl Meter {
    fn new(cpu: Cpu) -> Self {
        match cpu {
            Cpu::Total(Point { value, at, .. }) => {
                Self { shown: value, raw: value, offset: 0.0, rated: false, at }
            }
            Cpu::Rate(Point { at, .. }) => Self { shown: FIRST, raw: 0.0, offset: FIRST, rated: true, at },
        }
    }

    /// Takes a reading, and says how much was added. `None` if it is older than the last one.
    fn read(&mut self, cpu: Cpu) -> Option<f64> {
        let (Cpu::Total(point) | Cpu::Rate(point)) = cpu;
        if point.at < self.at {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "milliseconds between two readings")]
        let seconds = point.at.saturating_sub(self.at) as f64 / 1000.0;
        self.at = point.at;
        let added = match cpu {
            Cpu::Rate(rate) => {
                let added = rate.value * seconds;
                self.offset += added;
                self.rated = true;
                self.shown += added;
                added
            }
            Cpu::Total(total) if self.rated => {
                self.offset = self.shown - total.value;
                self.rated = false;
                0.0
            }
            // It began anew, and so does what is shown: readers know that by its start.
            Cpu::Total(total) if total.value < self.raw => {
                self.offset = 0.0;
                self.shown = total.value;
                total.value
            }
            Cpu::Total(total) => {
                self.shown = self.shown.max(total.value + self.offset);
                total.value - self.raw
            }
        };
        if let Cpu::Total(total) = cpu {
            self.raw = total.value;
        }
        Some(added)
    }
}

/// Reads a meter that may be new: how much it was when it was new, else how much was added.
fn read(meter: &mut Option<Meter>, cpu: Cpu) -> Option<f64> {
    match meter {
        Some(meter) => meter.read(cpu),
        None => Some(meter.insert(Meter::new(cpu)).raw),
    }
}

/// What is shown of a pod or a container.
struct Row<'a> {
    key: &'a Key<Virtual>,
    container: Option<&'a str>,
    amounts: &'a Amounts,
    cpu: Option<Point>,
}

impl Default for Meters {
    fn default() -> Self {
        Self { node: FIRST, pods: BTreeMap::new() }
    }
}

impl Meters {
    /// Nothing was used yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// CPU time of the node so far, in seconds. It never becomes less.
    pub fn node_cpu_seconds(&self) -> f64 {
        self.node
    }

    /// Adds what was used, and says all of it as `/metrics/resource` does. Pods that are no tenants any more are forgotten.
    pub fn answer(&mut self, usage: &Usage, tenants: &Tenants) -> String {
        let living: BTreeSet<&str> = tenants.all().map(|tenant| &*tenant.uid).collect();
        self.pods.retain(|uid, _| living.contains(&**uid));
        let mut rows = Vec::new();
        for (uid, pod) in usage.pods.iter().filter(|(uid, _)| living.contains(&***uid)) {
            let meters = self.pods.entry(Arc::clone(uid)).or_default();
            let mut added_by_containers = 0.0;
            for (name, amounts) in &pod.containers {
                let mut meter = meters.containers.get(name).copied();
                let added = amounts.cpu.and_then(|cpu| read(&mut meter, cpu));
                added_by_containers += added.unwrap_or_default();
                let cpu = added.and(shown(meter, amounts));
                if let Some(meter) = meter {
                    meters.containers.insert(name.clone(), meter);
                }
                rows.push(Row { key: &pod.key, container: Some(name), amounts, cpu });
            }
            let is_first = meters.whole.is_none();
            let added = pod.whole.cpu.and_then(|cpu| read(&mut meters.whole, cpu));
            self.node += match added {
                // Its containers were counted for as long as nothing was said of the whole.
                Some(_) if is_first && meters.by_containers => added_by_containers,
                Some(added) => added,
                None if is_first && pod.whole.cpu.is_none() => {
                    meters.by_containers = true;
                    added_by_containers
                }
                None => 0.0,
            };
            let cpu = added.and(shown(meters.whole, &pod.whole));
            rows.push(Row { key: &pod.key, container: None, amounts: &pod.whole, cpu });
        }
        let mut text = String::with_capacity(4096 + rows.len() * 512);
        self.write(&mut Writer::new(&mut text), usage, &rows);
        text
    }

    fn write(&self, writer: &mut Writer<'_>, usage: &Usage, rows: &[Row<'_>]) {
        let (of_containers, of_pods) = FAMILIES.split_at(CONTAINER_FAMILIES);
        for family in of_containers {
            family.write(writer, rows);
        }
        if let Some(at) = usage.looked.filter(|_| !usage.is_all_stale()) {
            let mut node = |name: &str, help: &str, kind: &str, value: f64| {
                writer.help(name, help);
                writer.kind(name, kind);
                writer.sample(name, NO_LABELS, value, Some(at));
            };
            let memory = sum(usage, |amounts| amounts.memory).unwrap_or_default().max(LEAST_BYTES);
            node("node_cpu_usage_seconds_total", NODE_CPU, "counter", self.node);
            node("node_memory_working_set_bytes", NODE_MEMORY, "gauge", memory);
            if let Some(swap) = sum(usage, |amounts| amounts.swap) {
                node("node_swap_usage_bytes", NODE_SWAP, "gauge", swap);
            }
        }
        for family in of_pods {
            family.write(writer, rows);
        }
        // Who collects would otherwise take a node of which nothing is known for one of which there is nothing to know.
        let is_unknown = usage.is_all_stale();
        let unsaid = (is_unknown && usage.errors.is_empty()).then_some(&("resource_scrape_error", 1.0));
        for (name, value) in usage.errors.iter().chain(unsaid) {
            let value = if is_unknown { &1.0 } else { value };
            writer.help(name, "1 if there was an error while getting container metrics, 0 otherwise");
            writer.kind(name, "gauge");
            writer.sample(name, NO_LABELS, *value, None);
        }
    }
}

const NO_LABELS: [(&str, &str); 0] = [];

const NODE_CPU: &str = "Cumulative cpu time consumed by the pods of this virtual node in core-seconds: the leased share of a machine, not the whole of it";
const NODE_MEMORY: &str = "Current working set of the pods of this virtual node in bytes: the leased share of a machine, not the whole of it";
const NODE_SWAP: &str = "Current swap usage of the pods of this virtual node in bytes: the leased share of a machine, not the whole of it";

fn shown(meter: Option<Meter>, amounts: &Amounts) -> Option<Point> {
    let (Cpu::Total(point) | Cpu::Rate(point)) = amounts.cpu?;
    Some(Point { value: meter?.shown, ..point })
}

/// The sum over pods; of their containers, where nothing is said of a pod. `None` if nothing is said at all.
fn sum(usage: &Usage, field: impl Fn(&Amounts) -> Option<Point>) -> Option<f64> {
    let of = |amounts: &Amounts| field(amounts).map(|point| point.value);
    let of_pod =
        |pod: &super::PodUsage| of(&pod.whole).or_else(|| total(pod.containers.values().filter_map(&of)));
    total(usage.pods.values().filter_map(of_pod))
}

fn total(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.reduce(|sum, value| sum + value)
}

struct Family {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    of_pods: bool,
    point: fn(&Row<'_>) -> Option<Point>,
}

/// How many of the families are of containers. In text they come before those of nodes, which come before those of pods.
const CONTAINER_FAMILIES: usize = 5;

static FAMILIES: [Family; 8] = [
    Family {
        name: "container_cpu_usage_seconds_total",
        help: "Cumulative cpu time consumed by the container in core-seconds",
        kind: "counter",
        of_pods: false,
        point: |row| row.cpu,
    },
    Family {
        name: "container_memory_working_set_bytes",
        help: "Current working set of the container in bytes",
        kind: "gauge",
        of_pods: false,
        point: |row| row.amounts.memory,
    },
    Family {
        name: "container_start_time_seconds",
        help: "Start time of the container since unix epoch in seconds",
        kind: "gauge",
        of_pods: false,
        point: |row| row.amounts.start.filter(|_| row.amounts.is_measured()),
    },
    Family {
        name: "container_swap_limit_bytes",
        help: "Current amount of the container swap limit in bytes",
        kind: "gauge",
        of_pods: false,
        point: |row| row.amounts.swap_limit,
    },
    Family {
        name: "container_swap_usage_bytes",
        help: "Current amount of the container swap usage in bytes",
        kind: "gauge",
        of_pods: false,
        point: |row| row.amounts.swap,
    },
    Family {
        name: "pod_cpu_usage_seconds_total",
        help: "Cumulative cpu time consumed by the pod in core-seconds",
        kind: "counter",
        of_pods: true,
        point: |row| row.cpu,
    },
    Family {
        name: "pod_memory_working_set_bytes",
        help: "Current working set of the pod in bytes",
        kind: "gauge",
        of_pods: true,
        point: |row| row.amounts.memory,
    },
    Family {
        name: "pod_swap_usage_bytes",
        help: "Current amount of the pod swap usage in bytes",
        kind: "gauge",
        of_pods: true,
        point: |row| row.amounts.swap,
    },
];

impl Family {
    fn write(&self, writer: &mut Writer<'_>, rows: &[Row<'_>]) {
        let mut points = rows
            .iter()
            .filter(|row| row.container.is_none() == self.of_pods)
            .filter_map(|row| Some((row, (self.point)(row)?)))
            .peekable();
        if points.peek().is_none() {
            return;
        }
        writer.help(self.name, self.help);
        writer.kind(self.name, self.kind);
        for (row, point) in points {
            let container = row.container.map(|name| ("container", name));
            let labels = [("namespace", &*row.key.namespace), ("pod", &*row.key.name)];
            let at = point.stamped.then_some(point.at);
            writer.sample(self.name, container.into_iter().chain(labels), point.value, at);
        }
    }
}

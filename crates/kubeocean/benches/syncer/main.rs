//! What a syncer costs, as a process in front of real control planes: 100, 300 and 1,000 nodes with ten pods of others each.
//! `make bench`.
//!
//! Seconds depend on the machine; ratios are taken in one run, side by side. A cold start is held against a bare client that
//! writes the same objects to the same server, as many at a time. Nothing fails here on a slow day: the budget stands beside
//! what was measured. All samples are kept in a file, whose name is printed last.
//!
//! The budget of writes is for five idle minutes, at the largest size; `KUBEOCEAN_STEADY_SECONDS=60` is for the impatient.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark prints, and one that cannot run says so"
)]

#[allow(dead_code, reason = "other benchmarks need all of it")]
#[path = "../bound/mod.rs"]
mod bound;
mod objects;
mod place;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bound::process::Component;
use place::Place;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

const SIZES: [usize; 3] = [100, 300, 1000];
const PODS_EACH: usize = 10;

/// Cold starts and bare writes of each size, in turn.
const ROUNDS: usize = 3;

/// What a start brings along has come by then: Events, counts, the taints that V's node controller lifts.
const SETTLED_AFTER: Duration = Duration::from_secs(15);

/// How many seconds nothing happens: five minutes at the largest size, where it is judged.
const USUALLY: u64 = 300;
const SHORTLY: u64 = 20;

/// Pods that come and go, so many of each in a second, on the same few nodes at every size: what one costs must not depend on
/// the others that there are.
const COME_AND_GO: usize = 1500;
const EACH_SECOND: u32 = 75;
const ON_NODES: usize = 100;

/// So many are there at a time.
const STAY: usize = 300;

/// A node whose pods change is looked at a second later.
const LOOKED_AT_AFTER: Duration = Duration::from_secs(3);

/// One cold start.
struct Start {
    ready: f64,
    whole: f64,
    cpu: f64,
}

/// Everything about one size.
#[derive(Default)]
struct Measured {
    starts: Vec<Start>,
    lists: Vec<f64>,
    bare: Vec<f64>,
    rss: f64,
    peak: f64,
    idle_seconds: f64,
    idle_cpu: f64,
    idle_writes: f64,
    stirred_seconds: f64,
    stirred_cpu: f64,
    stirred_writes: f64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let steady = std::env::var("KUBEOCEAN_STEADY_SECONDS").ok().and_then(|text| text.parse().ok());
    let steady = steady.unwrap_or(USUALLY);
    let place = Place::new().await;
    let mut all = Vec::new();
    let mut there = 0;
    for nodes in SIZES {
        place.grow(there..nodes, PODS_EACH).await;
        there = nodes;
        let idle = if nodes == SIZES[SIZES.len() - 1] { steady } else { SHORTLY };
        all.push(measure(&place, nodes, Duration::from_secs(idle)).await);
        keep(&all);
    }
    place.bound.stop().await;
    print(&all);
    println!("all samples: {}", samples().display());
}

async fn measure(place: &Place, nodes: usize, idle: Duration) -> Measured {
    let mut measured = Measured::default();
    for round in 0..ROUNDS {
        measured.lists.push(place.list_worker().await.as_secs_f64());
        let began = Instant::now();
        let syncer = place.bound.syncer(&[]);
        place.bound.ready(nodes).await;
        let ready = began.elapsed().as_secs_f64();
        place.whole(nodes).await;
        let (whole, cpu) = (began.elapsed().as_secs_f64(), syncer.cpu());
        measured.starts.push(Start { ready, whole, cpu });
        if round + 1 == ROUNDS {
            tokio::time::sleep(SETTLED_AFTER).await;
            (measured.rss, measured.peak) = (syncer.memory("VmRSS"), syncer.memory("VmHWM"));
            rest(&syncer, idle, &mut measured).await;
            stir(place, &syncer, &mut measured).await;
        }
        let copied = place.copied().await;
        syncer.stop().await;
        measured.bare.push(place.write(&copied).await.as_secs_f64());
        place.clear().await;
    }
    measured
}

/// Nothing happens.
async fn rest(syncer: &Component, idle: Duration, measured: &mut Measured) {
    let (began, writes, cpu) = (Instant::now(), syncer.writes().await, syncer.cpu());
    tokio::time::sleep(idle).await;
    measured.idle_cpu = syncer.cpu() - cpu;
    measured.idle_seconds = began.elapsed().as_secs_f64();
    measured.idle_writes = syncer.writes().await - writes;
}

/// Pods of others come and go.
async fn stir(place: &Place, syncer: &Component, measured: &mut Measured) {
    let (began, writes, cpu) = (Instant::now(), syncer.writes().await, syncer.cpu());
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / EACH_SECOND);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut under_way = JoinSet::new();
    for number in 0..COME_AND_GO + STAY {
        ticks.tick().await;
        let name = |number: usize| format!("passing-{number:05}");
        if number < COME_AND_GO {
            let (phys, name, node) =
                (place.bound.phys.clone(), name(number), objects::node_name(number % ON_NODES));
            under_way.spawn(async move { place::start_pod(&phys, &name, &node, number).await });
        }
        if let Some(number) = number.checked_sub(STAY) {
            let (phys, name) = (place.bound.phys.clone(), name(number));
            under_way.spawn(async move { place::end_pod(&phys, &name).await });
        }
    }
    under_way.join_all().await;
    tokio::time::sleep(LOOKED_AT_AFTER).await;
    measured.stirred_cpu = syncer.cpu() - cpu;
    measured.stirred_seconds = began.elapsed().as_secs_f64();
    measured.stirred_writes = syncer.writes().await - writes;
}

impl Measured {
    fn start(&self, of: fn(&Start) -> f64) -> f64 {
        median(self.starts.iter().map(of))
    }

    fn bare(&self) -> f64 {
        median(self.bare.iter().copied())
    }

    /// What a pod that comes or goes costs, beyond what nothing costs.
    fn each_event(&self) -> f64 {
        let idle = self.idle_cpu / self.idle_seconds * self.stirred_seconds;
        (self.stirred_cpu - idle) * 1e6 / events()
    }

    fn raw(&self, nodes: usize) -> Value {
        let start = |start: &Start| json!({"ready": start.ready, "whole": start.whole, "cpu": start.cpu});
        json!({
            "nodes": nodes, "pods": nodes * PODS_EACH, "starts": self.starts.iter().map(start).collect::<Vec<_>>(),
            "lists": self.lists, "bare": self.bare, "rss": self.rss, "peak": self.peak,
            "idle": {"seconds": self.idle_seconds, "cpu": self.idle_cpu, "writes": self.idle_writes},
            "stirred": {
                "seconds": self.stirred_seconds, "cpu": self.stirred_cpu, "writes": self.stirred_writes,
                "events": events(),
            },
        })
    }
}

fn events() -> f64 {
    f64::from(u32::try_from(2 * COME_AND_GO).unwrap())
}

/// The one in the middle: a server that collects its garbage once says nothing about us.
fn median(samples: impl Iterator<Item = f64>) -> f64 {
    let mut samples: Vec<f64> = samples.collect();
    samples.sort_unstable_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn print(all: &[Measured]) {
    let heads = SIZES.map(|nodes| format!("{nodes} nodes"));
    let growth = SIZES.windows(2).map(|pair| format!("{}/{}", pair[1], pair[0]));
    let growth: Vec<String> = growth.collect();
    line("what", &heads, &growth, "budget");
    let row = |what: &str, unit: &str, budget: &str, of: &dyn Fn(&Measured) -> f64| {
        let values: Vec<f64> = all.iter().map(of).collect();
        let places = if unit == "s" || unit.is_empty() { 2 } else { 1 };
        let shown: Vec<String> = values.iter().map(|value| format!("{value:.places$} {unit}")).collect();
        let growth: Vec<String> = values.windows(2).map(|pair| format!("{:.1}", pair[1] / pair[0])).collect();
        line(what, &shown, &growth, budget);
    };
    row("cold start to all virtual nodes Ready", "s", "", &|of| of.start(|start| start.ready));
    row("cold start to all objects written", "s", "", &|of| of.start(|start| start.whole));
    row("  a bare client writes the same", "s", "", &Measured::bare);
    row("  and lists the worker", "s", "", &|of| median(of.lists.iter().copied()));
    row("  cold start / bare writes", "", "", &|of| of.start(|start| start.whole) / of.bare());
    row("CPU of a cold start", "s", "", &|of| of.start(|start| start.cpu));
    row("resident after the start", "MiB", "≤ 120", &|of| of.rss);
    row("  at most", "MiB", "", &|of| of.peak);
    row("CPU per idle second", "ms", "", &|of| of.idle_cpu * 1e3 / of.idle_seconds);
    row("CPU per pod of others that comes or goes", "µs", "× 1.0", &Measured::each_event);
    row("  writes for it", "", "", &|of| of.stirred_writes / events());
    // Not all of them rested for as long.
    let writes = all.iter().map(|of| format!("{:.0} in {:.0} s", of.idle_writes, of.idle_seconds));
    let writes: Vec<String> = writes.collect();
    line("writes at rest, without renewals", &writes, &[], "0");
}

fn line(what: &str, values: &[String], growth: &[String], budget: &str) {
    let wide = |texts: &[String]| texts.iter().map(|text| format!("{text:>12}")).collect::<Vec<_>>().concat();
    println!("{what:<46}{}{:<24} {budget:>8}", wide(values), wide(growth));
}

/// Where cargo keeps what benchmarks leave.
fn samples() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("syncer.json")
}

fn keep(all: &[Measured]) {
    let raw: Vec<Value> = all.iter().zip(SIZES).map(|(of, nodes)| of.raw(nodes)).collect();
    std::fs::write(samples(), serde_json::to_string_pretty(&raw).unwrap()).unwrap();
}

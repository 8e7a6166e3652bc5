//! What pods on virtual nodes cost, with a syncer as a process between real control planes and simulated nodes. `make bench`.
//!
//! Seconds depend on the machine; the ratio to a bare client that makes the same writes is taken in one run, in turn. Waits and
//! requests are what the audit logs of both API servers say. Nothing fails here on a slow day: each budget stands beside what was
//! measured, and whether it holds. All samples are kept in a directory, whose name is printed last.
//!
//! `KUBEOCEAN_BENCH_NODES`, `_PODS` (of a burst), `_ROUNDS`, `_SECONDS` (at each rate), `_MANY_NODES` and `_MANY_PODS` are for the
//! impatient: `KUBEOCEAN_BENCH_NODES=5 KUBEOCEAN_BENCH_PODS=40 KUBEOCEAN_BENCH_ROUNDS=1 KUBEOCEAN_BENCH_SECONDS=3
//! KUBEOCEAN_BENCH_MANY_NODES=20 KUBEOCEAN_BENCH_MANY_PODS=200` takes a minute or two.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark prints, and one that cannot run says so"
)]

mod audit;
#[path = "../bound/mod.rs"]
mod bound;
mod burst;
mod figures;
mod follow;
mod objects;
mod paced;
mod place;
#[path = "../table/mod.rs"]
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bound::WORKER;
use burst::{Mirrored, Took};
use figures::{Kept, Many};
use jiff::Timestamp;
use kubeocean_sandbox::COMPUTING;
use objects::{KINDS, Kind};
use place::{Place, Sizes};

/// What a start or a crowd brings along has come by then.
const SETTLED_AFTER: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let sizes = Sizes::wanted();
    // Where cargo keeps what benchmarks leave.
    let named = format!("pods-{}", Timestamp::now().strftime("%Y%m%d-%H%M%S"));
    let kept = Kept::new(Path::new(env!("CARGO_TARGET_TMPDIR")).join(named), &sizes);
    let place = Place::new(sizes.clone(), true).await;
    let (mirrored, bare) = bursts(&place).await;
    let paced = pace(&place).await;
    let logs = |cluster: &str| -> PathBuf { place.bound.sandbox.directory().join(cluster).join("logs") };
    let (virt, phys) = (audit::read(&logs(COMPUTING)), audit::read(&logs(WORKER)));
    kept.requests("virtual", &virt);
    kept.requests("physical", &phys);
    let mut rows = figures::bursts(&kept, &sizes, &mirrored, &bare, (&virt, &phys));
    rows.extend(figures::waits(&kept, &paced, &virt, &phys));
    place.bound.stop().await;
    if sizes.many_pods > 0 {
        rows.extend(figures::many(&kept, &crowds(&sizes).await));
    }
    kept.rows(&rows);
    table::print(&rows);
    println!("all samples: {}", kept.directory().display());
}

type Bursts<T> = BTreeMap<Kind, Vec<T>>;

/// In turn: a syncer with all kinds of pods, then a bare client with the same.
async fn bursts(place: &Place) -> (Bursts<Mirrored>, Bursts<Took>) {
    let (mut mirrored, mut bare) = (Bursts::<Mirrored>::new(), Bursts::<Took>::new());
    for round in 0..place.sizes.rounds {
        let syncer = place.syncer().await;
        let mut samples = Vec::new();
        for kind in KINDS {
            let (measured, sample) = burst::mirrored(place, &syncer, kind, round).await;
            mirrored.entry(kind).or_default().push(measured);
            samples.push((kind, sample));
        }
        syncer.stop().await;
        for (kind, sample) in samples {
            bare.entry(kind).or_default().push(burst::bare(place, &sample, kind, round).await);
        }
    }
    (mirrored, bare)
}

async fn pace(place: &Place) -> Vec<paced::Paced> {
    let syncer = place.syncer().await;
    let mut all = Vec::new();
    for kind in [Kind::Bare, Kind::Token] {
        for rate in paced::RATES {
            all.push(paced::come(place, kind, rate).await);
        }
    }
    syncer.stop().await;
    all
}

/// Many nodes, a tenth of many pods on them, then all of them. Nobody writes audit logs here.
async fn crowds(sizes: &Sizes) -> Vec<Many> {
    let tenth = sizes.many_pods / 10;
    let pods = sizes.pods.min(tenth.max(1));
    let place = Place::new(Sizes { nodes: sizes.many_nodes, pods, ..sizes.clone() }, false).await;
    let syncer = place.syncer().await;
    let mut all = Vec::new();
    let mut there = 0;
    for pods in [tenth, sizes.many_pods] {
        burst::fill(&place, there..pods).await;
        there = pods;
        tokio::time::sleep(SETTLED_AFTER).await;
        let rss = syncer.memory("VmRSS");
        let (cpu, writes) = burst::passing(&place, &syncer, there, SETTLED_AFTER).await;
        all.push(Many { pods, nodes: sizes.many_nodes, rss, peak: syncer.memory("VmHWM"), cpu, writes });
    }
    syncer.stop().await;
    place.bound.stop().await;
    all
}

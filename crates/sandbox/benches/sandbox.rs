//! How long a sandbox takes, and what it leaves. `make bench`; needs root for the part with real nodes.
//!
//! Seconds depend on the machine; the budgets are for two idle cores. Nothing fails here on a slow day:
//! what is over its budget is marked, and what is left behind is an error.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark prints, and one that cannot run says so"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kubeocean_sandbox::{Progress, Sandbox, Spec, doctor, leftovers, registry};

const ROUNDS: usize = 10;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // `cargo bench` passes its own flags; there is nothing to choose from.
    println!("{:<58} {:>10} {:>10}", "what", "measured", "budget");
    let one = measure(Spec::new()).await;
    row("one control plane alone, ready", one.up, Some(8.0));
    let three = measure(Spec::new().workers(2, 3, 0)).await;
    row("three control planes, ready", three.up, Some(25.0));
    memory("three control planes, resident", three.resident_kib, Some(2560));
    row("three control planes, down", three.down, Some(5.0));
    let real = doctor::require_real_nodes(3, 2);
    match &real {
        Ok(()) => {
            let nodes = measure(Spec::new().workers(2, 0, 1)).await;
            row("three clusters with two real nodes, ready", nodes.up, None);
            for (node, after) in &nodes.nodes {
                row(&format!("  real node of {node}, after its control plane"), *after, Some(15.0));
            }
            memory("three clusters with two real nodes, resident", nodes.resident_kib, None);
            row("three clusters with two real nodes, down", nodes.down, Some(5.0));
        }
        Err(error) => println!("not measured: {error}"),
    }
    rounds(real.is_ok()).await;
}

struct Measured {
    up: Duration,
    down: Duration,
    resident_kib: u64,
    nodes: BTreeMap<String, Duration>,
}

async fn measure(spec: Spec) -> Measured {
    let nodes = Arc::new(Mutex::new(BTreeMap::new()));
    let seen = Arc::clone(&nodes);
    let report = Box::new(move |progress: Progress<'_>| {
        if let Progress::NodeReady { cluster, after, .. } = progress {
            seen.lock().unwrap().insert(cluster.to_owned(), after);
        }
    });
    let start = Instant::now();
    let sandbox = Sandbox::start_with(spec, report, std::future::pending()).await.unwrap();
    let up = start.elapsed();
    let name = sandbox.name().to_owned();
    let state = registry::find(&name).unwrap().state.unwrap();
    let programs = state.clusters.iter().flat_map(|cluster| &cluster.programs);
    let resident_kib = programs.map(kubeocean_sandbox::state::ProgramState::resident_kib).sum();
    let start = Instant::now();
    sandbox.stop().await.unwrap();
    let down = start.elapsed();
    assert_eq!(leftovers(&name), Vec::<String>::new());
    let nodes = nodes.lock().unwrap().clone();
    Measured { up, down, resident_kib, nodes }
}

fn row(what: &str, measured: Duration, budget: Option<f64>) {
    let seconds = measured.as_secs_f64();
    let limit = budget.map_or_else(String::new, |budget| format!("≤ {budget} s"));
    let mark = if budget.is_some_and(|budget| seconds > budget) { "  OVER" } else { "" };
    println!("{what:<58} {:>10} {limit:>10}{mark}", format!("{seconds:.1} s"));
}

fn memory(what: &str, kib: u64, budget_mib: Option<u64>) {
    let mib = kib / 1024;
    let limit = budget_mib.map_or_else(String::new, |budget| format!("≤ {budget} MiB"));
    let mark = if budget_mib.is_some_and(|budget| mib > budget) { "  OVER" } else { "" };
    println!("{what:<58} {:>10} {limit:>10}{mark}", format!("{mib} MiB"));
}

/// What a machine has, as far as a sandbox could leave something in it.
#[derive(Debug, PartialEq, Eq)]
struct Inventory {
    processes: usize,
    mounts: usize,
    interfaces: usize,
    namespaces: usize,
    control_groups: usize,
    sandboxes: usize,
}

impl Inventory {
    fn take() -> Self {
        let lines = |path: &str| std::fs::read_to_string(path).unwrap_or_default().lines().count();
        let entries =
            |path: &std::path::Path| std::fs::read_dir(path).into_iter().flatten().flatten().count();
        let alive = std::fs::read_dir("/proc").unwrap().flatten().filter(|process| {
            let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
            // Threads of the kernel come and go, and zombies wait for their parent, not for us.
            let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            !command.is_empty() && !stat.contains(") Z ")
        });
        let processes: Vec<_> = alive.map(|process| process.path()).collect();
        let namespaces: std::collections::BTreeSet<_> = processes
            .iter()
            .flat_map(|process| ["net", "mnt", "pid", "cgroup"].map(|kind| process.join("ns").join(kind)))
            .filter_map(|link| std::fs::read_link(link).ok())
            .collect();
        Self {
            processes: processes.len(),
            namespaces: namespaces.len(),
            mounts: lines("/proc/self/mounts"),
            interfaces: entries("/sys/class/net".as_ref()),
            control_groups: entries("/sys/fs/cgroup/cpu".as_ref()) + entries("/sys/fs/cgroup".as_ref()),
            sandboxes: entries(&kubeocean_sandbox::sandboxes()),
        }
    }
}

async fn rounds(real: bool) {
    let before = Inventory::take();
    let start = Instant::now();
    for _ in 0..ROUNDS {
        measure(Spec::new().workers(1, 1, usize::from(real))).await;
    }
    let what = format!("{ROUNDS} rounds of up and down, two clusters each");
    row(&what, start.elapsed(), None);
    let after = Inventory::take();
    assert_eq!(before, after, "something was left behind");
    println!("after {ROUNDS} rounds the machine is as before: {after:?}");
}

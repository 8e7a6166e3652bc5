//! What it costs to go through a proxier: commands, logs and idle streams of a pod on a virtual node, beside the same asked of its worker cluster.
//! `make bench`.
//!
//! Seconds depend on the machine; ratios are taken in one run, in turn. The client is our own (`streams.rs`), and the same on both ways; kubectl's start would
//! hide the difference. Nothing fails here on a slow day: each budget stands beside what was measured, and whether it holds. All samples are kept in a
//! file, whose name is printed last.
//!
//! `KUBEOCEAN_BENCH_EXECS`, `_LOG_MIB`, `_ROUNDS` (of the log) and `_STREAMS` are for the impatient.

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
mod place;
mod streams;
#[allow(dead_code, reason = "other benchmarks need all of it")]
#[path = "../table/mod.rs"]
mod table;

use std::path::Path;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use kubeocean_cluster::process::may_open_all;
use place::{Place, Ways};
use serde::Serialize;
use streams::{Spot, Stream, exec, logs};
use table::{Row, median, number, percentile};

/// So many are opened at a time.
const AT_A_TIME: usize = 20;

/// What was opened or read has been tidied up by then.
const SETTLED_AFTER: Duration = Duration::from_secs(5);

const WAITS: &str = "sleep 2147483647 & wait";

#[derive(Clone, Serialize)]
struct Sizes {
    execs: usize,
    log_mib: usize,
    rounds: usize,
    streams: usize,
}

impl Sizes {
    fn wanted() -> Self {
        let of = |name: &str, usually: usize| {
            let said = std::env::var(format!("KUBEOCEAN_BENCH_{name}"));
            said.ok().and_then(|text| text.parse().ok()).unwrap_or(usually)
        };
        Self {
            execs: of("EXECS", 100),
            log_mib: of("LOG_MIB", 128),
            rounds: of("ROUNDS", 7),
            streams: of("STREAMS", 1000),
        }
    }
}

/// The same, asked on both ways in turn.
#[derive(Default, Serialize)]
struct Pairs {
    ours: Vec<f64>,
    direct: Vec<f64>,
}

#[derive(Serialize)]
struct Idle {
    streams: usize,
    /// In MiB, of the proxier.
    before: f64,
    during: f64,
    after: f64,
}

#[derive(Serialize)]
struct Measured {
    sizes: Sizes,
    /// In milliseconds.
    execs: Pairs,
    /// In MiB per second.
    logs: Pairs,
    idle: Idle,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    // A thousand streams are a thousand sockets here, too.
    may_open_all();
    let sizes = Sizes::wanted();
    let place = Place::new().await;
    let execs = run_commands(&place, sizes.execs).await;
    let logs = read_logs(&place, sizes.log_mib, sizes.rounds).await;
    let idle = hold(&place, sizes.streams).await;
    place.bound.stop().await;
    let measured = Measured { sizes, execs, logs, idle };
    // Where cargo keeps what benchmarks leave.
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("proxier.json");
    std::fs::write(&file, serde_json::to_string_pretty(&measured).unwrap()).unwrap();
    table::print(&rows(&measured));
    println!("all samples: {}", file.display());
}

impl Pairs {
    /// One more of each, and another one begins each time.
    async fn take(&mut self, ways: &Ways, number: usize, sample: impl AsyncFn(&Spot) -> f64) {
        if number.is_multiple_of(2) {
            self.ours.push(sample(&ways.ours).await);
            self.direct.push(sample(&ways.direct).await);
        } else {
            self.direct.push(sample(&ways.direct).await);
            self.ours.push(sample(&ways.ours).await);
        }
    }
}

async fn run_commands(place: &Place, execs: usize) -> Pairs {
    let ways = place.pod("runs", WAITS).await;
    let (mut first, mut pairs) = (Pairs::default(), Pairs::default());
    let one = async |spot: &Spot| exec(spot).await.as_secs_f64() * 1e3;
    // Whoever is asked for the first time looks who it is.
    first.take(&ways, 0, one).await;
    for number in 0..execs {
        pairs.take(&ways, number, one).await;
    }
    pairs
}

async fn read_logs(place: &Place, mebibytes: usize, rounds: usize) -> Pairs {
    // Lines as they are in logs, a hundred bytes long.
    let line = "x".repeat(99);
    let lines = (mebibytes << 20) / 100;
    let ways =
        place.pod("tells", &format!("yes {line} | head -n {lines}; echo; echo all-of-it; {WAITS}")).await;
    let whole = u64::try_from(lines * 100).unwrap();
    let one = async |spot: &Spot| {
        let (bytes, took) = logs(spot).await;
        assert!(bytes > whole, "{bytes} bytes of {whole} were read");
        f64::from(u32::try_from(bytes >> 10).unwrap()) / 1024.0 / took.as_secs_f64()
    };
    bound::calls::until(async || (logs(&ways.direct).await.0 > whole).then_some(())).await;
    let (mut first, mut pairs) = (Pairs::default(), Pairs::default());
    first.take(&ways, 0, one).await;
    for number in 0..rounds {
        pairs.take(&ways, number, one).await;
    }
    pairs
}

/// Streams that have carried something, and then carry nothing.
async fn hold(place: &Place, count: usize) -> Idle {
    let ways = place
        .pod("waits", "until [ -e /tmp/go ]; do sleep 0.1; done; echo hello; sleep 2147483647 & wait")
        .await;
    tokio::time::sleep(SETTLED_AFTER).await;
    let before = place.proxier.memory("VmRSS");
    let open = stream::iter(0..count).map(|_| Stream::attach(&ways.ours)).buffer_unordered(AT_A_TIME);
    let mut streams: Vec<Stream> = open.collect().await;
    streams::touch(&ways.direct, "/tmp/go").await;
    for stream in &mut streams {
        stream.says("hello").await;
    }
    tokio::time::sleep(SETTLED_AFTER).await;
    let during = place.proxier.memory("VmRSS");
    for stream in &mut streams {
        assert!(stream.is_there().await, "a stream has ended by itself");
    }
    drop(streams);
    tokio::time::sleep(SETTLED_AFTER).await;
    Idle { streams: count, before, during, after: place.proxier.memory("VmRSS") }
}

fn rows(measured: &Measured) -> Vec<Row> {
    let Measured { execs, logs, idle, sizes } = measured;
    let of = |samples: &[f64]| median(samples.iter().copied());
    let (ours, direct) = (of(&execs.ours), of(&execs.direct));
    let mut rows = vec![
        Row::new(format!("exec, {} times: p50", sizes.execs), ours, "ms"),
        Row::new("  asked of the worker cluster", direct, "ms"),
        Row::new("  ratio", ours / direct, "").at_most(1.3),
        Row::new("  p99", percentile(&execs.ours, 99), "ms"),
        Row::new("  p99, asked of the worker cluster", percentile(&execs.direct, 99), "ms"),
    ];
    let (ours, direct) = (of(&logs.ours), of(&logs.direct));
    rows.extend([
        Row::new(format!("a log of {} MiB, read {} times", sizes.log_mib, sizes.rounds), ours, "MiB/s"),
        Row::new("  asked of the worker cluster", direct, "MiB/s"),
        Row::new("  ratio", ours / direct, "").at_least(0.8),
    ]);
    let more = idle.during - idle.before;
    rows.extend([
        Row::new("resident without streams", idle.before, "MiB"),
        Row::new(format!("  with {} idle streams", idle.streams), idle.during, "MiB"),
        Row::new("  more", more, "MiB").at_most(80.0),
        Row::new("  each", more * 1024.0 / number(idle.streams), "KiB").at_most(64.0),
        Row::new("  when they are gone", idle.after, "MiB"),
    ]);
    rows
}

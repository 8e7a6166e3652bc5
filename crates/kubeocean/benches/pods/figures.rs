//! What was measured beside what it may be, and where all of it is kept.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;

use super::audit::{Request, counted};
use super::burst::{Mirrored, Took};
use super::objects::Kind;
use super::paced::Paced;
use super::place::Sizes;
use super::table::{Row, median, number, percentile};

/// How often one has to look to tell linear growth from noise: a tenth more is still linear.
const LINEAR: f64 = 1.1;

/// A crowd of pods on many nodes.
#[derive(Serialize)]
pub(super) struct Many {
    pub(super) nodes: usize,
    pub(super) pods: usize,
    /// In MiB.
    pub(super) rss: f64,
    pub(super) peak: f64,
    /// Of one pod more that comes and goes: seconds, and writes.
    pub(super) cpu: f64,
    pub(super) writes: f64,
}

/// The directory with all samples.
pub(super) struct Kept(PathBuf);

impl Kept {
    pub(super) fn new(directory: PathBuf, sizes: &Sizes) -> Self {
        std::fs::create_dir_all(&directory).unwrap();
        let kept = Self(directory);
        kept.keep("sizes", sizes);
        kept
    }

    pub(super) fn directory(&self) -> &Path {
        &self.0
    }

    fn keep(&self, name: &str, what: &impl Serialize) {
        let text = serde_json::to_string_pretty(what).unwrap();
        std::fs::write(self.0.join(format!("{name}.json")), text).unwrap();
    }

    pub(super) fn rows(&self, rows: &[Row]) {
        self.keep("pods", &rows);
    }

    /// One to a line.
    pub(super) fn requests(&self, side: &str, all: &[Request]) {
        let file = std::fs::File::create(self.0.join(format!("audit-{side}.jsonl"))).unwrap();
        let mut file = std::io::BufWriter::new(file);
        for one in all {
            serde_json::to_writer(&mut file, one).unwrap();
            file.write_all(b"\n").unwrap();
        }
        file.flush().unwrap();
    }
}

type Bursts<T> = BTreeMap<Kind, Vec<T>>;

pub(super) fn bursts(
    kept: &Kept,
    sizes: &Sizes,
    mirrored: &Bursts<Mirrored>,
    bare: &Bursts<Took>,
    (virt, phys): (&[Request], &[Request]),
) -> Vec<Row> {
    let pods = number(sizes.pods);
    let mut rows = Vec::new();
    let mut raw = Vec::new();
    for (kind, rounds) in mirrored {
        let bare = &bare[kind];
        for (what, of) in [("started", (|took| took.up) as fn(&Took) -> f64), ("ended", |took| took.down)] {
            let ours = pods / median(rounds.iter().map(|round| of(&round.took)));
            let theirs = pods / median(bare.iter().map(of));
            rows.push(Row::new(format!("{kind} pods {what}"), ours, "pods/s"));
            rows.push(Row::new(format!("  by a bare client, {what}"), theirs, "pods/s"));
            rows.push(Row::new("  ratio", ours / theirs, "").at_least(0.8));
        }
        let cpu = median(rounds.iter().map(|round| round.cpu)) * 1e3 / pods;
        rows.push(Row::new(format!("CPU of a {kind} pod's life"), cpu, "ms").at_most(3.0));
        let each = |all: &[Request], which: fn(&Request) -> bool| {
            median(
                rounds
                    .iter()
                    .map(|round| number(round.span.asked(all).filter(|one| which(one)).count()) / pods),
            )
        };
        let (written, copied) = (each(virt, Request::is_write), each(phys, Request::is_write));
        let asked = each(virt, |_| true) + each(phys, |_| true);
        // What all pods share is no pod's own: the certificate that comes with tokens, a look at the namespace and the priority
        // class now and then. Among a thousand pods that is less than a hundredth of a request each; among forty it shows.
        let (written, copied, asked) = (tenths(written), tenths(copied), tenths(asked));
        let limit = if *kind == Kind::Bare { 5.0 } else { 8.0 };
        rows.push(Row::new(format!("writes to V in a {kind} pod's life"), written, "").at_most(4.0));
        rows.push(Row::new("  to P", copied, "").at_most(4.0));
        rows.push(Row::new("  requests in all", asked, "").at_most(limit));
        let asked = |all: &[Request]| -> Vec<_> {
            rounds.iter().map(|round| counted(round.span.asked(all))).collect()
        };
        raw.push(json!({
            "kind": kind.to_string(), "pods": sizes.pods, "mirrored": rounds, "bare": bare,
            "asked of V": asked(virt), "asked of P": asked(phys),
        }));
    }
    kept.keep("bursts", &raw);
    rows
}

pub(super) fn waits(kept: &Kept, paced: &[Paced], virt: &[Request], phys: &[Request]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut raw = Vec::new();
    for one in paced {
        let waits = one.waits(virt, phys);
        let of = format!("{} {} pods/s", one.rate, one.kind);
        // The budgets are those of a hundred pods in a second.
        for (what, all, limit) in [
            ("bind to create in P", &waits.bind_to_create, Some(50.0)),
            ("status in P to status in V", &waits.status_to_status, Some(100.0)),
            ("bind to Running in V", &waits.bind_to_running, None),
        ] {
            rows.push(Row::new(format!("{of}: {what}, p50"), percentile(all, 50), "ms"));
            let slow = Row::new(format!("{of}: {what}, p99"), percentile(all, 99), "ms");
            rows.push(match limit {
                Some(limit) => slow.at_most(limit),
                None => slow,
            });
        }
        if waits.unknown > 0 {
            rows.push(
                Row::new(format!("{of}: of whom not all is known"), number(waits.unknown), "").at_most(0.0),
            );
        }
        raw.push(json!({"kind": one.kind.to_string(), "rate": one.rate, "milliseconds": waits}));
    }
    kept.keep("waits", &raw);
    rows
}

pub(super) fn many(kept: &Kept, crowds: &[Many]) -> Vec<Row> {
    kept.keep("many", &crowds);
    let mut rows = Vec::new();
    for crowd in crowds {
        let of = format!("{} nodes, {} pods", crowd.nodes, crowd.pods);
        rows.push(Row::new(format!("{of}: resident"), crowd.rss, "MiB").at_most(150.0));
        rows.push(Row::new("  at most", crowd.peak, "MiB"));
        rows.push(Row::new("  CPU of one pod more", crowd.cpu * 1e3, "ms"));
        rows.push(Row::new("  writes for it", crowd.writes, ""));
    }
    if let [few, all] = crowds {
        let more = number(all.pods) / number(few.pods).max(1.0);
        rows.push(
            Row::new(format!("memory of {more} times the pods"), all.rss / few.rss, "×")
                .at_most(more * LINEAR),
        );
        let each = (all.rss - few.rss) * 1024.0 / number(all.pods - few.pods).max(1.0);
        rows.push(Row::new("  of each pod more", each, "KiB"));
        // What all of them cost grows with their number; what one costs must not.
        rows.push(Row::new("  CPU of one pod among them", all.cpu / few.cpu, "×").at_most(LINEAR));
    }
    rows
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

//! Many seeds on all cores, and one line for each that fails.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{World, run};
use crate::oracle::Violation;

/// Replays one seed.
const ONE: &str = "KUBEOCEAN_SEED";
/// How many seeds are tried.
const COUNT: &str = "KUBEOCEAN_SEEDS";
/// From which one on: to go on where a long run was stopped.
const FIRST: &str = "KUBEOCEAN_FIRST_SEED";
/// After so many failed seeds the others tell nothing new.
const ENOUGH: usize = 5;

/// Which seeds to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds(Vec<u64>);

/// So many seeds, unless the environment asks for others: `KUBEOCEAN_SEED` replays one, `KUBEOCEAN_SEEDS` is
/// another count, from `KUBEOCEAN_FIRST_SEED` on.
pub fn seeds(default_count: u64) -> Seeds {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    match (number(ONE), number(COUNT)) {
        (Some(seed), _) => Seeds(vec![seed]),
        (None, count) => {
            let first = number(FIRST).unwrap_or_default();
            Seeds((first..first.saturating_add(count.unwrap_or(default_count))).collect())
        }
    }
}

/// Whether the environment asks for one seed or crash point: someone wants to know all about it.
pub(crate) fn is_replay() -> bool {
    [ONE, crate::crash::ONE].into_iter().any(|name| std::env::var_os(name).is_some())
}

impl Seeds {
    /// The first so many, whatever the environment says: for tests that must find something.
    pub fn first(count: u64) -> Self {
        Self((0..count).collect())
    }
}

/// Of a thousand seeds and more, one hears on the way.
const PROGRESS_EVERY: usize = 1000;

/// Which test it is, for the line that replays a seed. Made by [`test!`](crate::test).
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// The crate.
    pub package: &'static str,
    /// Path of the test function, with the name of its binary first.
    pub path: &'static str,
}

/// The test that this stands in.
#[macro_export]
macro_rules! test {
    () => {{
        fn here() {}
        $crate::simulation::Test { package: env!("CARGO_PKG_NAME"), path: std::any::type_name_of_val(&here) }
    }};
}

impl Test {
    /// The command that runs it with one seed.
    pub fn replay(&self, seed: u64) -> String {
        self.command(&format!("{ONE}={seed}"))
    }

    /// The command that runs it, with this in its environment.
    pub(crate) fn command(&self, setting: &str) -> String {
        let path = self.path.trim_end_matches("::here").trim_end_matches("::{{closure}}");
        let (binary, name) = path.split_once("::").unwrap_or(("", path));
        let package = self.package;
        // Unit tests live in the library, whose name is the package's.
        let target =
            if binary == package.replace('-', "_") { "--lib".to_owned() } else { format!("--test {binary}") };
        format!("{setting} cargo test -p {package} {target} {name} -- --exact --nocapture")
    }
}

/// A seed that failed.
#[derive(Debug)]
pub struct Failure {
    /// Which.
    pub seed: u64,
    /// What was violated; empty if it panicked.
    pub violations: Vec<Violation>,
    /// With what it panicked.
    pub panic: Option<String>,
}

/// What came of some seeds.
#[derive(Debug)]
pub struct Report {
    /// How many were run.
    pub seeds: usize,
    /// How long it took, on the wall.
    pub took: Duration,
    /// Those that failed, lowest seed first.
    pub failures: Vec<Failure>,
}

impl Report {
    /// The first seed that broke this rule, and how.
    pub fn broken(&self, invariant: &str) -> Option<(u64, &Violation)> {
        let mut all =
            self.failures.iter().flat_map(|failure| failure.violations.iter().map(|v| (failure.seed, v)));
        all.find(|(_, violation)| violation.invariant == invariant)
    }

    /// All rules that were broken.
    pub fn rules(&self) -> std::collections::BTreeSet<&'static str> {
        let all = self.failures.iter().flat_map(|failure| failure.violations.iter());
        all.map(|violation| violation.invariant).collect()
    }
}

/// Runs a scenario with each seed, on all cores, and says what came of it.
pub fn explore<F: Future<Output = ()>>(seeds: &Seeds, scenario: impl Fn(World) -> F + Sync) -> Report {
    let began = Instant::now();
    let failed = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let results = on_all_cores(&seeds.0, |seed| {
        if failed.load(Ordering::Relaxed) >= ENOUGH {
            return None;
        }
        let result = catch_unwind(AssertUnwindSafe(|| run(*seed, &scenario)));
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(PROGRESS_EVERY) {
            let (minutes, failed) = (began.elapsed().as_secs() / 60, failed.load(Ordering::Relaxed));
            // Who waits for hours wants to see something; who does not listen misses nothing.
            drop(writeln!(io::stderr(), "{done} seeds in {minutes} min, {failed} failed"));
        }
        let failure = match result {
            Ok(((), violations)) if violations.is_empty() => return Some(None),
            Ok(((), violations)) => Failure { seed: *seed, violations, panic: None },
            Err(panic) => Failure { seed: *seed, violations: Vec::new(), panic: Some(words_of(&*panic)) },
        };
        failed.fetch_add(1, Ordering::Relaxed);
        // At once: a long run may be stopped before its end.
        drop(writeln!(io::stderr(), "seed {seed} failed"));
        Some(Some(failure))
    });
    let seeds = results.iter().flatten().count();
    Report { seeds, took: began.elapsed(), failures: results.into_iter().flatten().flatten().collect() }
}

/// What a panic said.
pub(crate) fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default().to_owned()
}

/// As [`explore`], where no seed may fail.
///
/// # Panics
///
/// With the command that replays the first failed seed, and its story.
pub fn hunt<F: Future<Output = ()>>(
    test: Test,
    seeds: &Seeds,
    scenario: impl Fn(World) -> F + Sync,
) -> Report {
    let report = explore(seeds, scenario);
    if let Some(failure) = report.failures.first() {
        let count = report.failures.len();
        let others: Vec<String> =
            report.failures.iter().skip(1).map(|other| other.seed.to_string()).collect();
        assert!(
            report.failures.is_empty(),
            "{count} of {} seeds failed (others: {})\n{failure}\nreplay:\n  {}\n",
            report.seeds,
            others.join(", "),
            test.replay(failure.seed)
        );
    }
    report
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        if let Some(panic) = &self.panic {
            writeln!(f, "panicked: {panic}")?;
        }
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, failed) = (self.took.as_secs_f64(), self.failures.len());
        write!(f, "{} seeds in {seconds:.1} s, {failed} failed", self.seeds)
    }
}

/// Does the same to each item, on all cores; the results are in the order of the items.
pub fn on_all_cores<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        for _ in 0..cores.min(items.len()) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    let result = work(item);
                    results.lock().push((at, result));
                }
            });
        }
    });
    let mut results = results.into_inner();
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

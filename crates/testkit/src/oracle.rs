//! What must never be seen, what must hold at rest, and that rest comes.
//!
//! An invariant is a closure that looks at each commit and says what is wrong with it. A violation keeps the
//! story that led to it. Of each invariant the first violation of a run is kept: the others follow from it.
//!
//! Deliberately absent: any invariant. Those belong to whoever writes the controller.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use crate::simulation::is_replay;
use crate::story::Story;
use crate::traffic::Traffic;
use crate::{ApiServer, Commit, Verb};

/// How often it is looked whether everything is at rest.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// People who delete a thing as often as they like stay below: a deed every half a second, of which one in thirty is this one.
const MOST_A_MINUTE: usize = 30;

/// What was seen and must not be.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The rule, in words.
    pub invariant: &'static str,
    /// What is wrong.
    pub what: String,
    /// The commit that did it.
    pub commit: Option<String>,
    /// What happened before.
    pub story: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "violated: {}\n  {}", self.invariant, self.what)?;
        if let Some(commit) = &self.commit {
            writeln!(f, "  by: {commit}")?;
        }
        write!(f, "the story:\n{}", self.story)
    }
}

/// Collects violations. Clones are the same.
#[derive(Clone)]
pub struct Oracle {
    story: Story,
    violations: Arc<Mutex<Vec<Violation>>>,
}

impl Oracle {
    /// Nothing was seen yet.
    pub fn new(story: &Story) -> Self {
        Self { story: story.clone(), violations: Arc::default() }
    }

    /// Tells all commits of a server to the story.
    pub fn follow(&self, name: &'static str, server: &ApiServer) {
        let story = self.story.clone();
        server.on_shared_commit(move |commit| {
            let commit = Arc::clone(commit);
            story.tell(move || told(name, &commit));
        });
    }

    /// A rule for each commit of a server. The closure may ask the servers what they hold right now.
    pub fn always(
        &self,
        name: &'static str,
        server: &ApiServer,
        invariant: &'static str,
        mut holds: impl FnMut(&Commit) -> Result<(), String> + Send + 'static,
    ) {
        let oracle = self.clone();
        server.on_commit(move |commit| {
            if let Err(what) = holds(commit) {
                oracle.note(invariant, what, Some(told(name, commit)));
            }
        });
    }

    /// Nobody makes the same object again and again, whoever takes it away: what is made in vain is tried less and less often.
    pub fn not_in_vain(&self, name: &'static str, server: &ApiServer, actor: &'static str) {
        let mut made: BTreeMap<(String, String, String), VecDeque<Instant>> = BTreeMap::new();
        self.always(name, server, IN_VAIN, move |commit| {
            if commit.verb != Verb::Create || commit.actor != actor {
                return Ok(());
            }
            let key = (commit.plural.clone(), commit.namespace.clone(), commit.name.clone());
            let times = made.entry(key).or_default();
            times.push_back(Instant::now());
            times.retain(|at| at.elapsed() < Duration::from_secs(60));
            if times.len() <= MOST_A_MINUTE {
                return Ok(());
            }
            Err(format!("{} {} was made {} times in a minute", commit.plural, commit.name, times.len()))
        });
    }

    /// A violation that someone else found.
    pub fn report(&self, invariant: &'static str, what: String) {
        self.note(invariant, what, None);
    }

    /// Where it tells what it sees.
    pub fn story(&self) -> &Story {
        &self.story
    }

    /// What was seen so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.violations.lock().clone()
    }

    /// Waits until `at_rest` says so, at most so long. Says whether it did.
    pub async fn rest(&self, within: Duration, at_rest: impl Fn() -> Result<(), String>) -> bool {
        let began = Instant::now();
        loop {
            match at_rest() {
                Ok(()) => return true,
                Err(what) if began.elapsed() >= within => {
                    self.report(LIVENESS, format!("not at rest after {} s: {what}", within.as_secs()));
                    return false;
                }
                Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// At rest nothing is written, little is asked, and what holds goes on to hold.
    pub async fn stays_at_rest(
        &self,
        time: Duration,
        traffic: &Traffic,
        requests_a_minute: u64,
        at_rest: impl Fn() -> Result<(), String>,
    ) {
        let before = traffic.counts();
        tokio::time::sleep(time).await;
        let after = traffic.counts();
        let writes = after.writes - before.writes;
        if writes > 0 {
            self.report(
                QUIET,
                format!("{} wrote {writes} times in {} idle s", traffic.actor(), time.as_secs()),
            );
        }
        let (asked, most) = (after.requests - before.requests, requests_a_minute * time.as_secs() / 60);
        if asked > most {
            let actor = traffic.actor();
            self.report(
                HOT_LOOP,
                format!("{actor} asked {asked} times in {} idle s, at most {most} are fine", time.as_secs()),
            );
        }
        if let Err(what) = at_rest() {
            self.report(LIVENESS, format!("was at rest, and no more: {what}"));
        }
    }

    fn note(&self, invariant: &'static str, what: String, commit: Option<String>) {
        let mut violations = self.violations.lock();
        if violations.iter().all(|known| known.invariant != invariant) {
            let violation = Violation { invariant, what, commit, story: self.story.to_string() };
            if is_replay() {
                // At once: what was violated may be why it takes so long.
                drop(writeln!(io::stderr(), "{violation}"));
            }
            violations.push(violation);
        }
    }
}

/// Rest comes within the time given after the last fault.
pub const LIVENESS: &str = "rest comes";
/// At rest nobody writes.
pub const QUIET: &str = "nothing is written at rest";
/// Nobody makes the same thing without end.
pub const IN_VAIN: &str = "nothing is made again and again in vain";
/// Nobody asks without end.
pub const HOT_LOOP: &str = "no hot loop";
/// No write that changes nothing.
pub const NO_EMPTY_WRITE: &str = "no write that changes nothing";

impl fmt::Debug for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Oracle").field("violations", &self.violations.lock().len()).finish_non_exhaustive()
    }
}

/// A commit in one line: who did what to which object, and what changed in it.
fn told(server: &str, commit: &Commit) -> String {
    let Commit { revision, actor, verb, plural, namespace, name, old, new, .. } = commit;
    let mut line = format!("{server} r{revision} {actor}: {verb:?} {plural} {namespace}/{name}");
    match (old, new) {
        (Some(old), Some(new)) => {
            let mut paths = BTreeSet::new();
            differences(old, new, "", &mut paths);
            for path in paths {
                line.push_str("\n                ");
                line.push_str(&path);
            }
        }
        (Some(one), None) | (None, Some(one)) => {
            let meta = &one["metadata"];
            line.push_str(" uid=");
            line.push_str(meta["uid"].as_str().unwrap_or_default());
            for map in ["labels", "annotations"].into_iter().filter(|map| !meta[*map].is_null()) {
                line.extend([" ", map, "=", &meta[map].to_string()]);
            }
        }
        (None, None) => {}
    }
    line
}

fn differences(old: &Value, new: &Value, path: &str, paths: &mut BTreeSet<String>) {
    if old == new || path.ends_with(".resourceVersion") || path.ends_with(".managedFields") {
        return;
    }
    match (old, new) {
        (Value::Object(before), Value::Object(after)) => {
            let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for key in keys {
                differences(&old[key.as_str()], &new[key.as_str()], &format!("{path}.{key}"), paths);
            }
        }
        _ => {
            paths.insert(format!("{path}: {old} -> {new}"));
        }
    }
}

//! A controller that dies at a chosen write, and is started again from nothing.
//!
//! ```text
//!   reference run ──▶ W writes ──▶ for n in 1..=W: die before write n; die after it, unanswered
//!                                  restart, come to rest, compare with the reference
//! ```
//!
//! A [`Crash`] stands before all clients of a controller. At its write it answers nothing any more, and tells
//! the harness, which drops the controller and starts the next one on [`Crash::layer`] again. What the dead
//! one still sends does not pass.
//!
//! Deliberately absent: faults besides. A crash in bad weather is a matter of the two layers together.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use http::{Request, Response};
use kube::client::Body;
use serde_json::Value;
use tokio::sync::watch;
use tower::{BoxError, Layer, Service, ServiceExt as _};

use crate::chaos::request::Asked;
use crate::simulation::{Test, on_all_cores, words_of};
use crate::{ApiServer, Verb};

/// Replays one point, such as `7:after`.
pub(crate) const ONE: &str = "KUBEOCEAN_CRASH";

/// Before the write is heard, or after it was done and nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// The server never heard of it.
    Before,
    /// The server did it; the answer was lost with the one who asked.
    After,
}

/// Where a controller dies: at its n-th write, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Which write.
    pub write: u64,
    /// Before or after it is done.
    pub when: When,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.when {
            When::Before => write!(f, "a crash before write {}", self.write),
            When::After => write!(f, "a crash after write {}, unanswered", self.write),
        }
    }
}

impl Point {
    /// As the environment asks for it.
    fn word(&self) -> String {
        let when = if self.when == When::Before { "before" } else { "after" };
        format!("{}:{when}", self.write)
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once(':').and_then(|(write, when)| {
            let when = match when {
                "before" => When::Before,
                "after" => When::After,
                _ => return None,
            };
            Some(Self { write: write.parse().ok()?, when })
        });
        parsed.ok_or_else(|| format!("{ONE}={text} is no crash point such as 7:before or 7:after"))
    }
}

/// Counts the writes of a controller, and ends it at one of them. Clones are the same.
#[derive(Clone)]
pub struct Crash {
    point: Option<Point>,
    writes: Arc<AtomicU64>,
    /// Which life of the controller may speak.
    life: Arc<watch::Sender<u64>>,
}

impl Crash {
    /// Only counts.
    pub fn never() -> Self {
        Self { point: None, writes: Arc::default(), life: Arc::new(watch::Sender::new(0)) }
    }

    /// Dies there, once.
    pub fn at(point: Point) -> Self {
        Self { point: Some(point), ..Self::never() }
    }

    /// Writes so far, of all lives.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Whether it came to the crash.
    pub fn has_happened(&self) -> bool {
        *self.life.borrow() > 0
    }

    /// For the clients of the life that begins now.
    pub fn layer(&self) -> CrashLayer {
        CrashLayer { crash: self.clone(), life: *self.life.borrow() }
    }

    /// Runs what `start` makes; when it dies, drops it and starts it again.
    pub async fn survive<F: Future>(&self, mut start: impl FnMut() -> F) -> F::Output {
        loop {
            let mut deaths = self.life.subscribe();
            tokio::select! {
                biased;
                _ = deaths.changed() => {}
                output = start() => return output,
            }
        }
    }

    fn die(&self) {
        self.life.send_modify(|life| *life += 1);
    }
}

/// One life of a controller.
#[derive(Clone)]
pub struct CrashLayer {
    crash: Crash,
    life: u64,
}

impl<S> Layer<S> for CrashLayer {
    type Service = CrashService<S>;

    fn layer(&self, inner: S) -> CrashService<S> {
        CrashService { crash: self.crash.clone(), life: self.life, inner }
    }
}

/// See [`Crash`].
#[derive(Clone)]
pub struct CrashService<S> {
    crash: Crash,
    life: u64,
    inner: S,
}

impl<S, B> Service<Request<Body>> for CrashService<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { crash, life, inner } = self.clone();
        if *crash.life.borrow() != life {
            return Box::pin(std::future::pending());
        }
        let is_write = Asked::of(&request).is_write();
        let write = if is_write { crash.writes.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 };
        let fatal = crash.point.filter(|point| is_write && point.write == write);
        Box::pin(async move {
            match fatal.map(|point| point.when) {
                None => return inner.oneshot(request).await,
                Some(When::Before) => {}
                Some(When::After) => drop(inner.oneshot(request).await),
            }
            crash.die();
            std::future::pending().await
        })
    }
}

/// How a run ended: what is there, and what was made and removed on the way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ending {
    /// Every object, without what differs from run to run.
    pub state: BTreeMap<String, Value>,
    /// How often an actor created or deleted each object.
    pub summary: BTreeMap<String, u64>,
}

impl Ending {
    /// Of the objects of these kinds, and what `actor` did to them.
    pub fn of(servers: &[(&str, &ApiServer)], kinds: &[&str], actor: &str) -> Self {
        let mut ending = Self::default();
        let mut names = BTreeMap::new();
        let mut objects = Vec::new();
        for (server, api) in servers {
            for kind in kinds {
                for object in api.list(kind, None) {
                    let meta = &object["metadata"];
                    let text = |field: &str| meta[field].as_str().unwrap_or_default().to_owned();
                    let place = format!("{server} {kind} {}/{}", text("namespace"), text("name"));
                    names.insert(text("uid"), format!("<uid of {place}>"));
                    objects.push((place, object));
                }
            }
            for commit in api.history(0).iter().filter(|commit| commit.actor == actor) {
                let word = match commit.verb {
                    Verb::Create => "create",
                    Verb::Delete => "delete",
                    Verb::Update => continue,
                };
                let line = format!("{word} {server} {} {}/{}", commit.plural, commit.namespace, commit.name);
                *ending.summary.entry(line).or_default() += 1;
            }
        }
        for (place, object) in objects {
            let mut object = (*object).clone();
            if let Some(meta) = object["metadata"].as_object_mut() {
                for field in ["resourceVersion", "creationTimestamp", "managedFields", "generation"] {
                    meta.remove(field);
                }
            }
            call_by_name(&mut object, &names);
            ending.state.insert(place, object);
        }
        ending
    }

    /// What is otherwise than in the reference, line by line.
    pub fn differs_from(&self, reference: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        let show = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
        for place in self.state.keys().chain(reference.state.keys()) {
            let (is, was) = (self.state.get(place), reference.state.get(place));
            if is != was {
                lines.push(format!("{place}: {}, in the reference {}", show(is), show(was)));
            }
        }
        for line in self.summary.keys().chain(reference.summary.keys()) {
            let count = |ending: &Self| ending.summary.get(line).copied().unwrap_or_default();
            if count(self) != count(reference) {
                lines.push(format!("{line}: {} times, in the reference {}", count(self), count(reference)));
            }
        }
        lines.sort();
        lines.dedup();
        lines
    }
}

/// Uids differ from run to run; what they stand for does not.
fn call_by_name(value: &mut Value, names: &BTreeMap<String, String>) {
    match value {
        Value::String(text) => {
            if let Some(name) = names.get(text.as_str()) {
                text.clone_from(name);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| call_by_name(item, names)),
        Value::Object(map) => map.values_mut().for_each(|item| call_by_name(item, names)),
        _ => {}
    }
}

/// All points of a scenario that makes so many writes, or the one that is asked for.
fn points(writes: u64, asked: Option<&str>) -> Result<Vec<Point>, String> {
    if let Some(asked) = asked {
        return Ok(vec![asked.parse()?]);
    }
    let both = |write| [When::Before, When::After].map(|when| Point { write, when });
    Ok((1..=writes).flat_map(both).collect())
}

/// What was tried.
#[derive(Clone, Copy, Debug)]
pub struct Enumerated {
    /// Writes of the reference run.
    pub writes: u64,
    /// Points that were tried.
    pub points: usize,
}

/// Runs a scenario once for reference, and then once for every crash point, or for the one that `KUBEOCEAN_CRASH` names. It
/// gets the crash that it has to put before the clients of its controller, and says how it ended, or what was violated.
///
/// # Panics
///
/// Where a point ends otherwise than the reference: with how, and the command that replays the first of them.
pub fn hunt(test: Test, scenario: impl Fn(Crash) -> Result<Ending, String> + Sync) -> Enumerated {
    let crash = Crash::never();
    let reference = scenario(crash.clone());
    let asked = std::env::var(ONE).ok();
    let tried = reference.and_then(|reference| {
        let points = points(crash.writes(), asked.as_deref())?;
        let differences = on_all_cores(&points, |point| {
            let lines = differences_at(*point, &reference, &scenario);
            (!lines.is_empty()).then_some((*point, lines))
        });
        told(test, points.len(), &differences.into_iter().flatten().collect::<Vec<_>>())
            .map(|()| points.len())
    });
    match tried {
        Ok(points) => Enumerated { writes: crash.writes(), points },
        #[expect(clippy::panic, reason = "it is how a test fails")]
        Err(why) => panic!("{why}"),
    }
}

fn differences_at(
    point: Point,
    reference: &Ending,
    scenario: impl Fn(Crash) -> Result<Ending, String>,
) -> Vec<String> {
    let crash = Crash::at(point);
    match catch_unwind(AssertUnwindSafe(|| scenario(crash.clone()))) {
        Ok(Ok(_)) if !crash.has_happened() => vec!["the crash never came".to_owned()],
        Ok(Ok(ending)) => ending.differs_from(reference),
        Ok(Err(violations)) => vec![violations],
        Err(panic) => vec![format!("panicked: {}", words_of(&*panic))],
    }
}

/// Nothing, if nothing differs.
fn told(test: Test, tried: usize, differences: &[(Point, Vec<String>)]) -> Result<(), String> {
    let Some((first, _)) = differences.first() else { return Ok(()) };
    let each = differences.iter().map(|(point, lines)| format!("{point}:\n  {}", lines.join("\n  ")));
    Err(format!(
        "{} of {tried} crash points end otherwise than the reference\n{}\nreplay:\n  {}\n",
        differences.len(),
        each.collect::<Vec<_>>().join("\n"),
        test.command(&format!("{ONE}={}", first.word()))
    ))
}

impl fmt::Debug for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crash")
            .field("point", &self.point)
            .field("writes", &self.writes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_that_is_asked_for_is_the_only_one() {
        let all = points(2, None).unwrap();
        assert_eq!(
            all.iter().map(Point::word).collect::<Vec<_>>(),
            ["1:before", "1:after", "2:before", "2:after"]
        );
        for point in all {
            assert_eq!(points(2, Some(&point.word())), Ok(vec![point]));
        }
        for text in ["", "7", "7:", "x:after", "7:never", "-1:before"] {
            let error = points(2, Some(text)).unwrap_err();
            assert!(error.contains("KUBEOCEAN_CRASH") && error.contains("7:before"), "{error}");
        }
    }
}

//! What people read in `kubectl describe`: Events, without flooding anyone.
//!
//! - The same sentence about the same object is one Event that counts.
//! - Many different sentences for one reason become one that says so.
//! - An object that is talked about all the time gets one Event in five minutes, after a first burst.
//!
//! These are the rules of Kubernetes' own components. Events are best effort: a full queue drops them, and
//! counts what it dropped.
//!
//! Deliberately absent: what is worth an Event.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kubeocean_api::keys::names::EVENT_NAMESPACE;
use kubeocean_model::action::{Action, Kind, Mark, PatchForm, Verb, kinds};
use kubeocean_model::bind::Telling;
use kubeocean_model::key::{Key, OnSide};
use kubeocean_model::object::Meta;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::apply::{Applier, Outcome};
use crate::clock::Clock;
use crate::metrics::{EventLabels, Metrics};

/// After this silence the same sentence is a new Event.
const TOGETHER: Duration = Duration::from_secs(600);

/// So many different sentences for one reason about one object are told apart; then they are combined.
const DIFFERENT: usize = 10;

/// An object may be talked about so often at once...
const BURST: f64 = 25.0;

/// ...and then once in this time.
const REFILL: Duration = Duration::from_secs(300);

/// Events that wait to be sent: some seconds of a bad minute.
const QUEUE: usize = 1000;

/// Objects and sentences that are remembered; the longest silent ones are forgotten first.
const REMEMBERED: usize = 4096;

/// What an API server takes.
const LONGEST_MESSAGE: usize = 1024;

/// How serious it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Good to know.
    Normal,
    /// Someone should look.
    Warning,
}

impl Severity {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// What an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// Its kind.
    pub kind: Kind,
    /// Empty for cluster-scoped objects; their Events live in `default`.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid: Events about its predecessor are not about it.
    pub uid: String,
}

impl Subject {
    /// An object, by its metadata.
    pub fn of(kind: Kind, meta: &Meta) -> Self {
        let Meta { namespace, name, uid, .. } = meta;
        Self { kind, namespace: namespace.to_string(), name: name.to_string(), uid: uid.to_string() }
    }
}

/// Takes what is worth telling. Clones are the same recorder.
#[derive(Clone, Debug)]
pub struct Recorder {
    sender: mpsc::Sender<Note>,
    metrics: Metrics,
}

#[derive(Debug)]
struct Note {
    subject: Subject,
    severity: Severity,
    reason: String,
    message: String,
    /// Who waits for it to be written, whatever it costs.
    certain: Option<oneshot::Sender<bool>>,
}

impl Note {
    fn new(
        subject: &Subject,
        severity: Severity,
        reason: impl Into<String>,
        message: impl Into<String>,
        certain: Option<oneshot::Sender<bool>>,
    ) -> Self {
        Self { subject: subject.clone(), severity, reason: reason.into(), message: message.into(), certain }
    }
}

impl Recorder {
    /// Tells what a plan found worth telling.
    pub fn tell_all(&self, subject: &Subject, told: &[Telling]) {
        for Telling { warning, reason, message } in told {
            let severity = if *warning { Severity::Warning } else { Severity::Normal };
            self.tell(subject, severity, *reason, message.as_str());
        }
    }

    /// A recorder, and the task that sends what it is told.
    pub fn new<S: OnSide>(
        component: impl Into<Arc<str>>,
        applier: Applier,
        clock: &Clock,
        metrics: &Metrics,
    ) -> (Self, Reporter<S>) {
        let (sender, notes) = mpsc::channel(QUEUE);
        let reporter = Reporter {
            notes,
            applier,
            component: component.into(),
            clock: clock.clone(),
            metrics: metrics.clone(),
            sentences: BTreeMap::new(),
            budgets: BTreeMap::new(),
            sent: 0,
            side: std::marker::PhantomData,
        };
        (Self { sender, metrics: metrics.clone() }, reporter)
    }

    /// Tells. Never waits.
    pub fn tell(
        &self,
        subject: &Subject,
        severity: Severity,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) {
        let note = Note::new(subject, severity, reason, message, None);
        if self.sender.try_send(note).is_err() {
            count(&self.metrics, "dropped");
        }
    }

    /// Tells what nobody could tell later, and waits until it is written; no budget counts. Whether it is, or never will be
    /// because the server refuses it.
    pub async fn tell_for_certain(
        &self,
        subject: &Subject,
        severity: Severity,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> bool {
        let (certain, written) = oneshot::channel();
        let note = Note::new(subject, severity, reason, message, Some(certain));
        self.sender.send(note).await.is_ok() && written.await.unwrap_or(false)
    }
}

/// Sends what a [`Recorder`] was told.
pub struct Reporter<S> {
    notes: mpsc::Receiver<Note>,
    applier: Applier,
    component: Arc<str>,
    clock: Clock,
    metrics: Metrics,
    /// By subject, severity and reason.
    sentences: BTreeMap<Topic, Vec<Sentence>>,
    budgets: BTreeMap<Subject, Budget>,
    sent: u64,
    side: std::marker::PhantomData<fn() -> S>,
}

type Topic = (Subject, Severity, String);

/// An Event that was sent.
struct Sentence {
    message: String,
    /// Name of the Event object; `None` until the server has taken it.
    event: Option<String>,
    count: u64,
    last: Instant,
}

struct Budget {
    tokens: f64,
    last: Instant,
}

impl Budget {
    fn allows(&mut self, now: Instant) -> bool {
        let refilled = now.duration_since(self.last).as_secs_f64() / REFILL.as_secs_f64();
        self.tokens = (self.tokens + refilled).min(BURST);
        self.last = now;
        let allowed = self.tokens >= 1.0;
        if allowed {
            self.tokens -= 1.0;
        }
        allowed
    }
}

impl<S: OnSide> Reporter<S> {
    /// As [`Reporter::run`], until told to stop.
    pub async fn run_until(self, stop: CancellationToken) {
        stop.run_until_cancelled_owned(self.run()).await;
    }

    /// Sends until every recorder is gone.
    pub async fn run(mut self) {
        while let Some(mut note) = self.notes.recv().await {
            let certain = note.certain.take();
            let result = self.send(note, certain.is_some()).await;
            count(&self.metrics, result);
            if certain.is_some_and(|certain| certain.send(result != "failed").is_err()) {
                tracing::debug!("nobody waits any more for an Event that was to be certain");
            }
        }
    }

    async fn send(&mut self, note: Note, certain: bool) -> &'static str {
        let now = Instant::now();
        self.forget_old(now);
        let budget = self.budgets.entry(note.subject.clone()).or_insert(Budget { tokens: BURST, last: now });
        if !budget.allows(now) && !certain {
            return "dropped";
        }
        let topic = (note.subject.clone(), note.severity, note.reason.clone());
        let sentences = self.sentences.entry(topic).or_default();
        sentences.retain(|sentence| now.duration_since(sentence.last) < TOGETHER);
        let mut message = cut(&note.message);
        if !sentences.iter().any(|sentence| sentence.message == message) && sentences.len() >= DIFFERENT {
            message = cut(&format!("(combined from similar events): {message}"));
            // The combined one is the last; its words change, its count goes on.
            if let Some(combined) = sentences.get_mut(DIFFERENT) {
                combined.message.clone_from(&message);
            }
        }
        let place =
            sentences.iter().position(|sentence| sentence.message == message).unwrap_or(sentences.len());
        if place == sentences.len() {
            sentences.push(Sentence { message: message.clone(), event: None, count: 0, last: now });
        }
        let sentence = &mut sentences[place];
        sentence.last = now;
        sentence.count += 1;
        let wall = self.clock.now();
        if let Some(event) = sentence.event.clone() {
            let body = json!({"count": sentence.count, "lastTimestamp": seconds(wall), "message": message});
            let patch = Verb::Patch { form: PatchForm::Merge, subresource: None, body };
            let action =
                Action::new(kinds::EVENT, &event_key::<S>(&note.subject, &event), patch, "an Event again");
            match self.applier.apply(&action).await {
                Outcome::Gone => {}
                outcome if outcome.is_done() => return "merged",
                outcome => return failed(&outcome),
            }
        }
        self.sent += 1;
        let event = event_name(&note.subject.name, wall, self.sent);
        let body = body(&note, &message, &self.component, wall, sentence.count);
        let create = Verb::Create { body, mark: Mark::default() };
        let action = Action::new(kinds::EVENT, &event_key::<S>(&note.subject, &event), create, "an Event");
        let outcome = self.applier.apply(&action).await;
        if !outcome.is_done() {
            return failed(&outcome);
        }
        sentence.event = Some(event);
        "sent"
    }

    fn forget_old(&mut self, now: Instant) {
        if self.sentences.len() >= REMEMBERED {
            self.sentences.retain(|_, sentences| {
                sentences.iter().any(|sentence| now.duration_since(sentence.last) < TOGETHER / 10)
            });
        }
        if self.budgets.len() >= REMEMBERED {
            self.budgets.retain(|_, budget| now.duration_since(budget.last) < REFILL);
        }
        // A storm about ever new objects: rather start anew than grow.
        if self.sentences.len() >= REMEMBERED {
            self.sentences.clear();
        }
        if self.budgets.len() >= REMEMBERED {
            self.budgets.clear();
        }
    }
}

impl<S> std::fmt::Debug for Reporter<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reporter").field("sent", &self.sent).finish_non_exhaustive()
    }
}

/// Whether it may be written another time.
fn failed(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Invalid(_) | Outcome::Forbidden(_) => "refused",
        _ => "failed",
    }
}

fn body(note: &Note, message: &str, component: &str, wall: Timestamp, count: u64) -> Value {
    let Subject { kind, namespace, name, uid } = &note.subject;
    json!({
        "involvedObject": {
            "apiVersion": kind.api_version(), "kind": kind.kind,
            "namespace": namespace, "name": name, "uid": uid,
        },
        "reason": note.reason, "message": message, "type": note.severity.as_str(), "count": count,
        "firstTimestamp": seconds(wall), "lastTimestamp": seconds(wall),
        "source": {"component": component}, "reportingComponent": component, "reportingInstance": component,
    })
}

fn event_key<S>(subject: &Subject, event: &str) -> Key<S> {
    let namespace = if subject.namespace.is_empty() { EVENT_NAMESPACE } else { &subject.namespace };
    Key::new(namespace, event)
}

/// Names of objects have up to 253 characters; so may this one.
fn event_name(object: &str, wall: Timestamp, number: u64) -> String {
    let start: String = object.chars().take(200).collect();
    format!("{}.{:x}{number:x}", start.trim_end_matches(['.', '-']), wall.as_microsecond())
}

fn seconds(wall: Timestamp) -> String {
    format!("{wall:.0}")
}

/// Whole characters, within what a server takes.
fn cut(message: &str) -> String {
    if message.len() <= LONGEST_MESSAGE {
        return message.to_owned();
    }
    let mut end = LONGEST_MESSAGE - 3;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &message[..end])
}

fn count(metrics: &Metrics, result: &'static str) {
    metrics.cluster().events.of(&EventLabels { result }).inc();
}

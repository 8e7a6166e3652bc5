//! The only place that writes to an API server.
//!
//! An [`Applier`] takes the actions of a plan and says what came of each, sorted by what one does about it.
//! It repeats nothing. It refuses to write when this process does not lead, in the moment of writing. Every write is one
//! line of the audit log: who, why, what, on which condition, with which outcome.
//!
//! Deliberately absent: what to write, and what to do about an outcome.

mod memory;
mod outcome;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use kubeocean_model::action::{Action, Kind, PatchForm, Precondition, Verb};
use kubeocean_model::key::{Key, OnSide, Physical, Side, Virtual};
use serde_json::{Map, Value, json};

pub use outcome::{Outcome, Written};

use crate::client::{Call, Cluster, JSON, Lane, Query, collection_path, object_path, parse};
use crate::error::{CallError, Status};
use crate::fence::{Before, Followed};
use crate::leader::Leadership;
use crate::metrics::WriteLabels;
use crate::store::{Shape, Store};
use crate::telemetry::AUDIT;
use memory::Memory;

/// Writes to the clusters it was given. Clones are the same.
#[derive(Clone)]
pub struct Applier {
    component: Arc<str>,
    virt: Option<Cluster<Virtual>>,
    phys: Option<Cluster<Physical>>,
    leadership: Option<Leadership>,
    followed: Arc<Vec<Followed>>,
    memory: Arc<Memory>,
}

impl Applier {
    /// Writes nowhere yet. `component` is the name in the audit log and the field manager.
    pub fn new(component: impl Into<Arc<str>>) -> Self {
        Self {
            component: component.into(),
            virt: None,
            phys: None,
            leadership: None,
            followed: Arc::default(),
            memory: Arc::default(),
        }
    }

    /// Writes of the virtual side go here.
    #[must_use]
    pub fn virtually(mut self, cluster: &Cluster<Virtual>) -> Self {
        self.virt = Some(cluster.clone());
        self
    }

    /// Writes of the physical side go here.
    #[must_use]
    pub fn physically(mut self, cluster: &Cluster<Physical>) -> Self {
        self.phys = Some(cluster.clone());
        self
    }

    /// Nothing is written unless this process leads at that moment.
    #[must_use]
    pub fn while_leading(mut self, leadership: &Leadership) -> Self {
        self.leadership = Some(leadership.clone());
        self
    }

    /// Plans are made on this store: writes of its kind close the fence of their key until it has seen them.
    #[must_use]
    pub fn following<S: OnSide, T: Shape>(mut self, kind: Kind, store: &Store<S, T>) -> Self {
        Arc::make_mut(&mut self.followed).push(Followed::new(kind, store));
        self
    }

    /// Whether it would write now.
    pub fn leads(&self) -> bool {
        self.leadership.as_ref().is_none_or(Leadership::holds)
    }

    /// Does it, unless it is known to change nothing.
    pub async fn apply(&self, action: &Action) -> Outcome {
        self.apply_in(Lane::Normal, action).await
    }

    /// As [`Applier::apply`], beside the limit of the cluster: for node leases and the like.
    pub async fn apply_vital(&self, action: &Action) -> Outcome {
        self.apply_in(Lane::Vital, action).await
    }

    /// What would come of a creation, by the server's own rules, quotas and webhooks; nothing is written.
    pub async fn try_out(&self, action: &Action) -> Outcome {
        match action.side {
            Side::Virtual => self.try_in(self.virt.as_ref(), action).await,
            Side::Physical => self.try_in(self.phys.as_ref(), action).await,
        }
    }

    async fn try_in<S: OnSide>(&self, cluster: Option<&Cluster<S>>, action: &Action) -> Outcome {
        let Some(cluster) = cluster else { return not_connected(action) };
        let call = self.call(action, Lane::Normal);
        let sign = if call.path.contains('?') { '&' } else { '?' };
        let path = format!("{}{sign}dryRun=All", call.path);
        match cluster.ask(Call { path, ..call }).await {
            Ok(bytes) => written(action, &bytes, None),
            // Whose it is will be found out by who means it.
            Err(CallError::Refused(status)) if status.already_exists() => Outcome::ExistsForeign,
            Err(error) => outcome::sort(error),
        }
    }

    /// What the stores know now of what is about to be written.
    pub(crate) fn before(&self, action: &Action) -> Vec<Before> {
        self.followed.iter().filter(|followed| followed.is_of(action)).map(|one| one.before(action)).collect()
    }

    async fn apply_in(&self, lane: Lane, action: &Action) -> Outcome {
        let sent = Arc::default();
        let unanswered = Unanswered { applier: self, lane, action, sent: Arc::clone(&sent) };
        let outcome = match action.side {
            Side::Virtual => self.write(self.virt.as_ref(), lane, action, &sent).await,
            Side::Physical => self.write(self.phys.as_ref(), lane, action, &sent).await,
        };
        sent.store(false, Ordering::Relaxed);
        drop(unanswered);
        self.log(lane, action, &outcome);
        outcome
    }

    async fn write<S: OnSide>(
        &self,
        cluster: Option<&Cluster<S>>,
        lane: Lane,
        action: &Action,
        sent: &Arc<AtomicBool>,
    ) -> Outcome {
        // Without a name, a path means all objects there are.
        if action.name.is_empty() {
            let status = Status::read(400, None, b"an object without a name cannot be written");
            return Outcome::Invalid(Box::new(status));
        }
        let Some(cluster) = cluster else { return not_connected(action) };
        let known =
            self.followed.iter().filter(|followed| followed.is_of(action)).find_map(|f| f.version_of(action));
        let list = self.followed.iter().find(|followed| followed.is_of(action)).map_or(0, Followed::list);
        if self.memory.has_written(action, known.as_deref(), list) {
            return Outcome::Unchanged { asked: false };
        }
        let answer = cluster.ask(Call { sent: Some(Arc::clone(sent)), ..self.call(action, lane) }).await;
        let outcome = match answer {
            Ok(bytes) => written(action, &bytes, known.as_deref()),
            Err(CallError::Refused(status)) if status.already_exists() => {
                whose_is_it(cluster, lane, action).await
            }
            Err(error) => outcome::sort(error),
        };
        self.memory.note(action, &outcome, known.as_deref(), list);
        if let Some(known) = known.as_deref().filter(|known| contradicts(action, known, &outcome)) {
            self.followed.iter().filter(|one| one.is_of(action)).for_each(|one| one.doubt(action, known));
        }
        let labels = WriteLabels {
            cluster: Arc::clone(cluster.name()),
            verb: action.verb.name(),
            resource: action.resource().into(),
            outcome: outcome.word(),
        };
        cluster.metrics().cluster().writes.of(&labels).inc();
        outcome
    }

    /// The request that an action is.
    fn call(&self, action: &Action, lane: Lane) -> Call {
        let Action { kind, namespace, name, verb, precondition, .. } = action;
        let object = |subresource| object_path(kind, namespace, name, subresource);
        let mut query = Query::default();
        let bytes = |body: &Value| Some(body.to_string().into_bytes());
        let call = Call {
            lane,
            leadership: self.leadership.clone(),
            proven: true,
            resource: action.resource().into(),
            ..Call::read(verb.name(), kind, String::new())
        };
        match verb {
            Verb::Create { body, .. } => {
                query.add("fieldManager", Some(&self.component));
                let mut body = whole(action, body);
                if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("resourceVersion");
                    metadata.remove("uid");
                }
                let collection = collection_path(kind, namespace);
                Call {
                    method: Method::POST,
                    path: format!("{collection}{query}"),
                    body: bytes(&body),
                    ..call
                }
            }
            Verb::Patch { form, subresource, body } => {
                let mut body =
                    if matches!(form, PatchForm::Apply { .. }) { whole(action, body) } else { body.clone() };
                insert(&mut body, "uid", precondition.uid.as_deref());
                insert(&mut body, "resourceVersion", precondition.resource_version.as_deref());
                let content_type = match form {
                    PatchForm::Merge => "application/merge-patch+json",
                    PatchForm::Strategic => "application/strategic-merge-patch+json",
                    PatchForm::Apply { .. } => "application/apply-patch+yaml",
                };
                match form {
                    PatchForm::Apply { manager, force } => {
                        query.add("fieldManager", Some(manager));
                        query.add("force", force.then_some("true"));
                    }
                    _ => query.add("fieldManager", Some(&self.component)),
                }
                Call {
                    method: Method::PATCH,
                    path: format!("{}{query}", object(*subresource)),
                    body: bytes(&body),
                    content_type,
                    ..call
                }
            }
            Verb::Post { subresource, body } => {
                Call { method: Method::POST, path: object(Some(subresource)), body: bytes(body), ..call }
            }
            Verb::Evict { grace } => {
                let eviction = json!({
                    "apiVersion": "policy/v1", "kind": "Eviction",
                    "metadata": {"name": name, "namespace": namespace},
                    "deleteOptions": delete_options(action, *grace, None),
                });
                Call { method: Method::POST, path: object(Some("eviction")), body: bytes(&eviction), ..call }
            }
            Verb::Delete { grace, dependents } => Call {
                method: Method::DELETE,
                path: object(None),
                body: bytes(&delete_options(action, *grace, Some(dependents.as_str()))),
                content_type: JSON,
                ..call
            },
        }
    }

    /// One line per write. What was not sent is not a write.
    fn log(&self, lane: Lane, action: &Action, outcome: &Outcome) {
        if matches!(outcome, Outcome::NotLeading | Outcome::Unchanged { asked: false }) {
            return;
        }
        let slash = if action.namespace.is_empty() { "" } else { "/" };
        let object = format!("{}{slash}{}", action.namespace, action.name);
        let cluster = match action.side {
            Side::Virtual => self.virt.as_ref().map(|cluster| Arc::clone(cluster.name())),
            Side::Physical => self.phys.as_ref().map(|cluster| Arc::clone(cluster.name())),
        };
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    target: AUDIT,
                    component = %self.component,
                    cluster = cluster.as_deref().unwrap_or_default(),
                    verb = action.verb.name(),
                    resource = action.resource(),
                    object,
                    uid = action.precondition.uid.as_deref().unwrap_or_default(),
                    version = action.precondition.resource_version.as_deref().unwrap_or_default(),
                    why = %action.why,
                    outcome = %outcome,
                )
            };
        }
        // A hundred renewals of leases a second, each as it should be, would bury the rest of the log.
        let renews = lane == Lane::Vital && matches!(action.verb, Verb::Patch { .. });
        if renews && outcome.is_done() { line!(debug) } else { line!(info) }
    }
}

impl std::fmt::Debug for Applier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applier").field("component", &self.component).finish_non_exhaustive()
    }
}

/// A write that is under way. If whoever asked for it leaves, it may be written all the same.
struct Unanswered<'a> {
    applier: &'a Applier,
    lane: Lane,
    action: &'a Action,
    /// And its outcome not known: a name that is taken has to be asked about first.
    sent: Arc<AtomicBool>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.sent.load(Ordering::Relaxed) {
            return;
        }
        let cause = "nobody waited for the answer".to_owned();
        self.applier.log(self.lane, self.action, &Outcome::Unreachable(CallError::Unreachable { cause }));
    }
}

fn not_connected(action: &Action) -> Outcome {
    let cause = format!("no {} cluster is connected", action.side);
    Outcome::Unreachable(CallError::Unreachable { cause })
}

/// Whether the server says what a store that shows this version should have known. A conflict without a precondition
/// is one of fields, and one about an older version is our own.
fn contradicts(action: &Action, known: &str, outcome: &Outcome) -> bool {
    let Precondition { uid, resource_version } = &action.precondition;
    match outcome {
        Outcome::Gone => true,
        Outcome::Conflict(_) => match resource_version {
            Some(version) => version == known,
            None => uid.is_some(),
        },
        _ => false,
    }
}

/// What a good answer says.
fn written(action: &Action, bytes: &[u8], known: Option<&str>) -> Outcome {
    let answer: Value = match parse(bytes) {
        Ok(answer) => answer,
        // Something in between answered: it may be written or not, and no version says when a store has seen it.
        Err(error) => return Outcome::Unreachable(error),
    };
    let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let resource_version = text("/metadata/resourceVersion");
    let patched = matches!(action.verb, Verb::Patch { .. });
    // What loses its last finalizer is gone with that very write, and shows the version that it had.
    let finalizers = answer.pointer("/metadata/finalizers").and_then(Value::as_array);
    let frees =
        matches!(&action.verb, Verb::Patch { body, .. } if body.pointer("/metadata/finalizers").is_some());
    let same = known.is_none() || known == resource_version.as_deref();
    if frees && same && text("/metadata/deletionTimestamp").is_some() && finalizers.is_none_or(Vec::is_empty)
    {
        return Outcome::Done(Box::new(Written {
            uid: text("/metadata/uid"),
            resource_version: None,
            answer,
        }));
    }
    if patched && known.is_some() && known == resource_version.as_deref() {
        return Outcome::Unchanged { asked: true };
    }
    Outcome::Done(Box::new(Written { uid: text("/metadata/uid"), resource_version, answer }))
}

/// A body with its kind, name and namespace.
fn whole(action: &Action, body: &Value) -> Value {
    let mut body = body.clone();
    body["apiVersion"] = action.kind.api_version().into();
    body["kind"] = (&*action.kind.kind).into();
    insert(&mut body, "name", Some(&action.name));
    insert(&mut body, "namespace", (!action.namespace.is_empty()).then_some(action.namespace.as_str()));
    body
}

/// A name that we wanted is taken: by our own earlier attempt, or by a stranger?
async fn whose_is_it<S: OnSide>(cluster: &Cluster<S>, lane: Lane, action: &Action) -> Outcome {
    let Verb::Create { body, mark } = &action.verb else { return Outcome::ExistsForeign };
    let key = Key::<S>::new(action.namespace.as_str(), action.name.as_str());
    match cluster.get_in(lane, &action.kind, &key).await {
        Ok(Some(existing)) if mark.is_on(&existing.meta, body) => Outcome::ExistsOurs(Box::new(existing)),
        Ok(Some(_)) => Outcome::ExistsForeign,
        // It went in between: as if the create had come a moment too early.
        Ok(None) => Outcome::Conflict("the name was taken, and is free again".to_owned()),
        Err(error) => outcome::sort(error),
    }
}

fn delete_options(action: &Action, grace: Option<u32>, dependents: Option<&str>) -> Value {
    let mut options = Map::new();
    options.insert("apiVersion".to_owned(), "v1".into());
    options.insert("kind".to_owned(), "DeleteOptions".into());
    if let Some(grace) = grace {
        options.insert("gracePeriodSeconds".to_owned(), grace.into());
    }
    if let Some(dependents) = dependents {
        options.insert("propagationPolicy".to_owned(), dependents.into());
    }
    let mut preconditions = Map::new();
    if let Some(uid) = &action.precondition.uid {
        preconditions.insert("uid".to_owned(), uid.as_str().into());
    }
    if let Some(version) = &action.precondition.resource_version {
        preconditions.insert("resourceVersion".to_owned(), version.as_str().into());
    }
    if !preconditions.is_empty() {
        options.insert("preconditions".to_owned(), preconditions.into());
    }
    options.into()
}

fn insert(body: &mut Value, field: &str, value: Option<&str>) {
    if let Some(value) = value {
        body["metadata"][field] = value.into();
    }
}

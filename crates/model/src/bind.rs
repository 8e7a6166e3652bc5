//! Binding a worker cluster: what should be written for one `ClusterBinding`.
//!
//! ```text
//!   finalizer → valid? → is the clusterID ours? → what does the worker say? → proxier → syncer → Ready
//! ```
//!
//! A failure stops the way forward and is said in the status; what was set up before it stays. The way back is
//! [`unbind`]'s.
//!
//! Deliberately absent: looking. Whoever asks brings the [`Situation`]: objects as stores know them, and what a
//! probe found out about the worker cluster.

mod children;
mod finding;
mod state;
mod status;
mod unbind;

use jiff::Timestamp;
use kubeocean_api::keys::annotations::{ACCEPT_WORKER, FORCE_UNBIND, SIZE_CLASS, SIZE_CLASSES};
use kubeocean_api::keys::finalizers::CLUSTER_BINDING_MANAGER;
use kubeocean_api::keys::reasons::{Binding as Reason, Event as EventReason};
use kubeocean_api::{ClusterBinding, ClusterBindingStatus};
use serde_json::{Value, json};

pub use children::{Child, Existing, KINDS as CHILD_KINDS, MENDED, REMADE, Refusal, Served, served};
pub use finding::{Finding, Swapped, Trouble, Worker, certificate_trouble};
pub use state::{Availability, Hosting, Role, TaskState, TemplateFault};
pub(crate) use unbind::remove_hold;
pub use unbind::{Leftover, Remains};

use crate::action::{Action, PatchForm, Verb, kinds};
use crate::binding::{Binding, BindingFault};
use crate::key::{Key, Virtual};
use crate::naming::ClusterId;
use crate::object::{Meta, Object};

/// The field manager of what the manager applies.
pub const MANAGER: &str = "kubeocean-manager";

/// A `ClusterBinding` as a store keeps it: read once, faults included.
#[derive(Clone, Debug)]
pub struct BindingObject {
    /// Its metadata.
    pub meta: Meta,
    /// What it asks for, or what is wrong with that. One that goes may ask for what cannot be followed: it is let go all the same.
    pub parsed: Result<Binding, Vec<BindingFault>>,
    /// All that is wrong with it.
    pub faults: Vec<BindingFault>,
    /// What it stands for as long as it cannot be read.
    stand_in: Option<Binding>,
    /// What was last said about it.
    pub status: ClusterBindingStatus,
    cluster_id: Option<String>,
}

impl BindingObject {
    /// Reads an object.
    pub fn read(object: &Object) -> Self {
        let read = || -> Result<ClusterBinding, serde_json::Error> {
            let mut value = Value::Object(object.content()?);
            value["metadata"] = json!({"name": &*object.meta.name, "uid": &*object.meta.uid});
            if let Some(since) = object.meta.deletion_timestamp {
                value["metadata"]["deletionTimestamp"] = since.to_string().into();
            }
            serde_json::from_value(value)
        };
        let meta = object.meta.clone();
        let cluster_id = object.text("spec", &["clusterID"]);
        match read() {
            Ok(binding) => {
                let (parsed, faults) = Binding::parse_unless_it_goes(&binding);
                let stand_in = if parsed.is_err() { Binding::stand_in(&binding) } else { None };
                let status = binding.status.unwrap_or_default();
                Self { meta, parsed, faults, stand_in, status, cluster_id }
            }
            Err(error) => {
                let status = object.field("status").ok().flatten().unwrap_or_default();
                let faults = vec![BindingFault::Unreadable(error.to_string())];
                Self { meta, parsed: Err(faults.clone()), faults, stand_in: None, status, cluster_id }
            }
        }
    }

    /// Why it is to be unbound by force, if it is.
    pub fn forced(&self) -> Option<&str> {
        self.meta.annotations.get(FORCE_UNBIND).filter(|reason| !reason.trim().is_empty())
    }

    /// What is to be said about a size that is none.
    fn unknown_size(&self) -> Option<String> {
        let word = self.meta.annotations.get(SIZE_CLASS).filter(|word| !SIZE_CLASSES.contains(word))?;
        let words = SIZE_CLASSES.join(", ");
        Some(format!(
            "annotation {SIZE_CLASS} is `{word}`, which is none of {words}: the number of nodes decides"
        ))
    }

    /// The `clusterID` that it keeps others from. One that is not in order has it only if it is bound: its virtual nodes are
    /// there, and named after it.
    pub fn claims(&self) -> Option<&str> {
        let valid = self.faults.is_empty() || self.bound_to().is_some();
        self.cluster_id.as_deref().filter(|_| valid)
    }

    /// What is followed of it by who knows nothing of what it said before. One that is bound and was misspelt since stands for the nodes
    /// that it has; nothing new is leased by it.
    pub fn followed(&self) -> Result<&Binding, &[BindingFault]> {
        match (&self.parsed, &self.stand_in) {
            (Ok(binding), _) => Ok(binding),
            (Err(_), Some(binding)) if self.bound_to().is_some() => Ok(binding),
            (Err(faults), _) => Err(faults),
        }
    }

    /// What is wrong with it, in one line.
    pub(crate) fn faults_in_words(&self) -> String {
        self.faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    /// Its name.
    pub fn key(&self) -> Key<Virtual> {
        Key::cluster_scoped(&*self.meta.name)
    }

    /// Whether it has this finalizer.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.meta.finalizers.iter().any(|one| **one == *finalizer)
    }

    /// The worker cluster that it was bound to.
    pub fn bound_to(&self) -> Option<&str> {
        self.status.worker_uid.as_deref().filter(|uid| !uid.is_empty())
    }

    /// The worker cluster that an operator accepts.
    pub fn accepted(&self) -> Option<&str> {
        self.meta.annotations.get(ACCEPT_WORKER)
    }

    /// Whether a worker cluster is the one that was bound, or one that an operator accepts instead.
    pub fn recognises(&self, found: &str) -> Result<(), Swapped> {
        match self.bound_to() {
            Some(bound) if bound != found && self.accepted() != Some(found) => {
                Err(Swapped { bound: bound.to_owned(), found: found.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Whether it has the better right to a `clusterID` than another: it is older. One that is bound is not driven out by one
    /// that is not, though a clock that was set back may make that look older.
    pub fn precedes(&self, other: &Self) -> bool {
        let right = |object: &Self| {
            (object.bound_to().is_none(), object.meta.creation_timestamp, object.meta.name.clone())
        };
        right(self) < right(other)
    }
}

/// Everything that a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The binding.
    pub object: &'a BindingObject,
    /// An older binding with the same `clusterID`.
    pub rival: Option<&'a str>,
    /// Other bindings of the same worker cluster and mount namespace.
    pub neighbours: &'a [String],
    /// What is known of the worker cluster.
    pub finding: &'a Finding,
    /// How its syncer and proxier are run, and how they are.
    pub hosting: &'a Hosting<'a>,
    /// Whether what was found is of a kubeconfig that was not taken, so that an earlier connection is still in use.
    pub kept: bool,
    /// What an API server last refused.
    pub refusal: Option<&'a Refusal>,
    /// What there is of it in V, besides its syncer and proxier.
    pub leftovers: &'a [Leftover],
    /// What its syncer holds the lead by; asked for only when it goes.
    pub hold: Option<&'a Meta>,
    /// What there is of it in P; asked for only when it has to be left there.
    pub remains: &'a Remains,
    /// What time it is.
    pub now: Timestamp,
}

impl Situation<'_> {
    /// What keeps its syncer or proxier from being as it is wanted: a broken template, or an object that is refused.
    fn fault(&self, role: Role) -> Option<&str> {
        let refused = self.refusal.filter(|refusal| refusal.role == role).map(|refusal| &*refusal.message);
        refused.or_else(|| self.hosting.fault(role))
    }

    /// How its syncer or proxier is. One that runs is available, whatever keeps it from being another.
    fn availability(&self, role: Role) -> Availability {
        match (self.hosting.availability(role), self.fault(role)) {
            (Availability::Starting(_) | Availability::Failing(_), Some(fault)) => {
                Availability::Failing(fault.to_owned())
            }
            (availability, _) => availability,
        }
    }
}

/// What should happen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// To be told for certain before anything is written: afterwards nobody knows it any more.
    pub farewell: Option<Telling>,
    /// To be written, in this order.
    pub actions: Vec<Action>,
    /// To be written last, also when one of the others fails.
    pub status: Option<Action>,
    /// To be told once all is written.
    pub events: Vec<Telling>,
    /// Whether what is left in P is to be counted now: nobody works there any more.
    pub counts: bool,
    /// Whether this is the last that is written for a binding: nobody looks after it any more.
    pub is_last: bool,
}

/// An Event about the binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telling {
    /// Someone should look.
    pub warning: bool,
    /// In one word.
    pub reason: &'static str,
    /// In a sentence.
    pub message: String,
}

impl Telling {
    /// Of something that is no condition.
    pub const fn event(warning: bool, reason: EventReason, message: String) -> Self {
        Self { warning, reason: reason.as_str(), message }
    }
}

impl Decision {
    fn of(actions: Vec<Action>) -> Self {
        Self { actions, ..Self::default() }
    }
}

/// What should be written for a binding.
pub fn plan(situation: &Situation<'_>) -> Decision {
    let Situation { object, .. } = situation;
    if object.meta.is_deleting() {
        return unbind::plan(situation);
    }
    if !object.has_finalizer(CLUSTER_BINDING_MANAGER) {
        let mut finalizers: Vec<&str> = object.meta.finalizers.iter().map(|one| &**one).collect();
        finalizers.push(CLUSTER_BINDING_MANAGER);
        return Decision::of(vec![set_finalizers(
            object,
            &finalizers,
            "it is to be asked before the binding goes",
        )]);
    }
    let verdict = status::judge(situation);
    let actions = if may_run(situation) { situation.hosting.set_up() } else { Vec::new() };
    let (status, mut events) = status::write(situation, &verdict);
    events.extend(warnings(situation, status.is_some()));
    Decision { actions, status, events, ..Decision::default() }
}

/// Whether the binding's syncer and proxier should run: it is in order, the `clusterID` is its own, and its status says which
/// worker cluster it is bound to. That is written first: whoever has objects is bound, and is not driven out by another who
/// claims the same `clusterID`. What is wrong with the worker now takes nothing down.
pub fn may_run(situation: &Situation<'_>) -> bool {
    let Situation { object, rival, .. } = situation;
    object.parsed.is_ok() && rival.is_none() && object.bound_to().is_some()
}

/// The name of what the syncer of a binding that goes holds the lead by, where that is this binding's to remove: it is made of
/// the `clusterID`, which may be another's.
pub fn hold_of(object: &BindingObject, rival: Option<&str>) -> Option<String> {
    let goes = object.meta.is_deleting() && object.has_finalizer(CLUSTER_BINDING_MANAGER);
    let cluster_id = object.claims().filter(|_| goes && rival.is_none())?;
    ClusterId::parse(cluster_id).ok().map(|id| id.syncer())
}

/// Whether a binding, as the API server has it now, goes no less than it did when that was decided on. A store may be behind, and
/// a restored etcd may have taken back that the syncer has done its work.
pub fn goes_as_seen(seen: &BindingObject, now: &BindingObject) -> bool {
    let stage = |one: &BindingObject| (one.meta.uid.clone(), one.meta.is_deleting(), unbind::is_done(one));
    stage(seen) == stage(now)
}

/// What becomes of a binding's tasks in the manager's own process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tasks {
    /// They run.
    Run,
    /// Those that run go on, and none is started.
    Stay,
    /// They end.
    Stop,
}

/// What becomes of the tasks of a binding in the manager's own process.
pub fn tasks(situation: &Situation<'_>) -> Tasks {
    let object = situation.object;
    let goes = object.meta.is_deleting() && unbind::takes_down(situation);
    if goes || !object.has_finalizer(CLUSTER_BINDING_MANAGER) {
        Tasks::Stop
    } else if object.parsed.is_err() || (object.meta.is_deleting() && situation.rival.is_some()) {
        // A bad edit takes nothing down, and a syncer is needed until it has given the worker cluster back.
        Tasks::Stay
    } else if may_run(situation) && situation.hosting.is_replaced() {
        Tasks::Run
    } else {
        Tasks::Stop
    }
}

/// What is not wrong, and yet worth a word, each time the status changes.
fn warnings(situation: &Situation<'_>, changed: bool) -> Vec<Telling> {
    let (Finding::Good(worker), Ok(binding), true) = (situation.finding, &situation.object.parsed, changed)
    else {
        return Vec::new();
    };
    let object = situation.object;
    if object.recognises(&worker.uid).is_err() {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    let Binding { mount_namespace, .. } = binding;
    if worker.user.starts_with(&format!("system:serviceaccount:{mount_namespace}:")) {
        warnings.push(Telling {
            warning: true,
            reason: EventReason::IdentityInMountNamespace.as_str(),
            message: format!(
                "{} lives in the mount namespace, where whoever can make a pod can use it: give the identity a namespace \
                 of its own, as `kubeocean worker-manifest` does",
                worker.user
            ),
        });
    }
    if let Some(message) = object.unknown_size() {
        warnings.push(Telling::event(true, EventReason::UnknownSizeClass, message));
    }
    if !situation.neighbours.is_empty() {
        warnings.push(Telling {
            warning: true,
            reason: EventReason::SharedMountNamespace.as_str(),
            message: format!(
                "namespace {mount_namespace} of that worker cluster is also used by {}: each can read all of it; give \
                 each binding a mount namespace of its own unless they trust each other",
                situation.neighbours.join(", ")
            ),
        });
    }
    warnings
}

/// Finalizers are a list without keys: it is written whole, and only if nobody else wrote since.
pub(crate) fn set_finalizers(object: &BindingObject, finalizers: &[&str], why: &'static str) -> Action {
    let body = json!({"metadata": {"finalizers": finalizers}});
    let verb = Verb::Patch { form: PatchForm::Merge, subresource: None, body };
    Action::new(kinds::BINDING, &object.key(), verb, why)
        .if_uid(&*object.meta.uid)
        .if_version(&*object.meta.resource_version)
}

fn telling(warning: bool, reason: Reason, message: String) -> Telling {
    Telling { warning, reason: reason.as_str(), message }
}

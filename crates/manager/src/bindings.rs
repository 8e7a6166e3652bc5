//! The loop around [`bind::plan`](kubeocean_model::bind::plan): gathers the situation of a binding, writes what the plan says,
//! and remembers what an API server did not take.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kubeocean_api::keys::annotations::SIZE_CLASS;
use kubeocean_api::keys::finalizers::CLUSTER_BINDING_SYNCER;
use kubeocean_api::keys::labels;
use kubeocean_api::keys::reasons::Event as EventReason;
use kubeocean_cluster::apply::Outcome;
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::events::{Recorder, Severity, Subject};
use kubeocean_cluster::queue::Verdict;
use kubeocean_cluster::reconcile::Reconciler;
use kubeocean_model::action::{Action, PatchForm, Verb, kinds};
use kubeocean_model::bind::{
    self, BindingObject, Child, Decision, Existing, Finding, Hosting, MENDED, REMADE, Refusal, Role,
    Situation, TaskState, Tasks, Telling, TemplateFault,
};
use kubeocean_model::binding::Binding;
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::object::Meta;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use crate::certainty::Asked;
use crate::contest::{Advice, CONTEST, Contests, MENDS};
use crate::inline::Host;
use crate::observe::Rounds;
use crate::probe::Prober;
use crate::template::{Installation, SizeClass, Templates, Wish};
use crate::world::World;

/// The templates as they are now, or why there are none.
pub type CurrentTemplates = Arc<RwLock<Arc<Result<Templates, TemplateFault>>>>;

/// How many bindings' objects are kept as they were rendered, at a hundred kilobytes each. Those that change are few at a
/// time.
const KEPT: usize = 16;

/// Once it is deleted it is gone, unless someone else has put a finalizer on it.
const HOLD_GOES_WITHIN: Duration = Duration::from_secs(1);

/// What a server could not take so often in a row, some seconds, does not pass by itself.
const LASTING: u32 = 3;

/// How syncers and proxiers are run.
#[derive(Clone)]
pub enum Mode {
    /// As Deployments, from these templates.
    Deployed(CurrentTemplates),
    /// As tasks of this process.
    Inline(Host),
}

/// Plans and writes for bindings. Clones are the same.
#[derive(Clone)]
pub struct Bindings {
    /// What is known of V.
    pub world: World,
    /// What is known of worker clusters.
    pub prober: Prober,
    /// How workers are run.
    pub mode: Mode,
    /// What all bindings have in common.
    pub installation: Arc<Installation>,
    /// The computing cluster.
    pub virt: Cluster<Virtual>,
    /// Who writes.
    pub reconciler: Reconciler<Key<Virtual>>,
    /// Who tells.
    pub recorder: Recorder,
    /// What was last refused, by the binding's uid.
    pub refusals: Arc<Mutex<BTreeMap<String, Refusal>>>,
    /// How often in a row a server could not take something, by the binding's uid.
    pub troubles: Arc<Mutex<BTreeMap<String, u32>>>,
    /// Which objects someone else changes as often as they are mended.
    pub contests: Contests,
    /// What the templates last made, by the binding's uid.
    pub rendered: Arc<Mutex<BTreeMap<String, Rendered>>>,
    /// Where rounds are counted.
    pub rounds: Rounds,
}

/// Objects that were made of templates. It takes a thousand times as long to make them as to compare what they were made
/// of, and they are looked at with every change of a Deployment.
pub struct Rendered {
    templates: Arc<Result<Templates, TemplateFault>>,
    binding: Binding,
    size: SizeClass,
    owned: bool,
    children: Result<Arc<Vec<Child>>, TemplateFault>,
}

impl Rendered {
    fn is_of(&self, templates: &Arc<Result<Templates, TemplateFault>>, wish: &Wish<'_>) -> bool {
        Arc::ptr_eq(&self.templates, templates)
            && (&self.binding, self.size, self.owned) == (wish.binding, wish.size, wish.owned)
    }
}

impl Bindings {
    /// One round for one binding.
    pub async fn look(&self, key: &Key<Virtual>) -> Verdict {
        let started = Instant::now();
        let verdict = self.plan_and_write(key).await;
        if self.world.bindings.get(key).is_some() {
            self.rounds.count(&key.name, started.elapsed(), verdict);
        }
        verdict
    }

    async fn plan_and_write(&self, key: &Key<Virtual>) -> Verdict {
        if !self.reconciler.fences.is_open(key) {
            return Verdict::Blocked;
        }
        let Some(seen) = self.world.bindings.get(key) else {
            self.forget_the_gone();
            return Verdict::Done;
        };
        // One of that name may have gone before this one came.
        self.stop_the_gone();
        let object = &seen.0;
        let (asked, decision) = match self.decide_for_certain(key, object).await {
            Ok(decided) => decided,
            Err(verdict) => return verdict,
        };
        if let Some(Telling { reason, message, .. }) = &decision.farewell {
            let subject = subject(&object.meta);
            let told = self.recorder.tell_for_certain(&subject, Severity::Warning, *reason, message.as_str());
            if !told.await {
                return Verdict::Failed("not-told");
            }
        }
        let failed = match self.write_all(key, object, &asked, &decision).await {
            Ok(()) => None,
            Err(Failed::Told) => return Verdict::Failed("refused"),
            Err(Failed::NotNow(verdict)) => return verdict,
            Err(Failed::Trouble(verdict)) => Some(verdict),
        };
        // What is true is said also when something cannot be done about it.
        if let Some(status) = &decision.status {
            let outcome = self.write_status(key, object, status).await;
            if !outcome.is_done() {
                return outcome.verdict();
            }
        }
        self.tell(object, &decision.events);
        if let Some(verdict) = failed {
            return verdict;
        }
        if decision.counts {
            self.prober.count_soon(object);
        }
        if let Some(hold) = &asked.hold
            && decision.actions.iter().any(|action| action.precondition.uid.as_deref() == Some(&*hold.uid))
        {
            // No store shows it, and so nobody says that it is gone.
            self.reconciler.queue.add_after(key.clone(), HOLD_GOES_WITHIN);
        }
        if self.refusals.lock().contains_key(&*object.meta.uid) {
            // It is tried again, for the server may think otherwise by then.
            return Verdict::Failed("refused");
        }
        Verdict::Done
    }

    /// Writes the status. Where the server does not take it, an Event says so: nothing else would.
    async fn write_status(&self, key: &Key<Virtual>, object: &BindingObject, status: &Action) -> Outcome {
        let outcome = self.reconciler.write(key, status).await;
        if outcome.is_refused() {
            let message = format!(
                "its status cannot be written, and may be an old one: {outcome}; if the definitions in this cluster are older than the manager: \
                 kubeocean crds | kubectl apply --server-side -f -"
            );
            self.tell(object, &[Telling::event(true, EventReason::WriteRefused, message)]);
        }
        outcome
    }

    fn tell(&self, object: &BindingObject, events: &[Telling]) {
        self.recorder.tell_all(&subject(&object.meta), events);
    }

    /// The situation, and what should be done about it.
    pub(crate) fn decide(&self, object: &BindingObject, asked: &Asked) -> Decision {
        let uid = &*object.meta.uid;
        let finding = self.prober.finding(object);
        let remains = self.prober.remains(uid);
        let mut existing = self.world.children_of(object);
        existing.extend(asked.unseen.iter().cloned());
        let leftovers = self.world.leftovers_of(object);
        let rival = self.world.rival(object);
        // What another cluster says is nothing to us.
        let worker = match &finding {
            Finding::Good(worker) => Some(worker).filter(|worker| object.recognises(&worker.uid).is_ok()),
            _ => None,
        };
        let neighbours =
            self.world.neighbours(object, worker.map(|worker| &*worker.uid).or(object.bound_to()));
        let refusal = self.refusals.lock().get(uid).cloned();
        let wanted = self.wanted(object, worker.map(|worker| worker.nodes), &existing);
        let hosting = match &self.mode {
            Mode::Deployed(_) => Hosting::Deployed {
                wanted: wanted.as_ref().map(|children| children.as_slice()),
                existing: &existing,
            },
            Mode::Inline(host) => Hosting::Inline {
                syncer: task(host, object, Role::Syncer),
                proxier: task(host, object, Role::Proxier),
                existing: &existing,
            },
        };
        let situation = Situation {
            object,
            rival: rival.as_deref(),
            neighbours: &neighbours,
            finding: &finding,
            kept: self.prober.kept(uid),
            hosting: &hosting,
            refusal: refusal.as_ref(),
            leftovers: &leftovers,
            hold: asked.hold.as_ref(),
            remains: &remains,
            now: self.reconciler.clock.now(),
        };
        if let (Mode::Inline(host), true) = (&self.mode, self.reconciler.applier.leads()) {
            match (bind::tasks(&situation), &object.parsed, self.prober.cluster(uid)) {
                (Tasks::Run, Ok(binding), Some(phys)) => host.start(binding, &self.virt, &phys),
                (Tasks::Stop, ..) => host.stop(uid),
                // Those that run go on; or the worker cluster has not answered since this process started.
                (Tasks::Run | Tasks::Stay, ..) => {}
            }
        }
        bind::plan(&situation)
    }

    fn wanted(
        &self,
        object: &BindingObject,
        nodes: Option<usize>,
        existing: &[Existing],
    ) -> Result<Arc<Vec<Child>>, TemplateFault> {
        let (Mode::Deployed(templates), Ok(binding)) = (&self.mode, &object.parsed) else {
            return Ok(Arc::default());
        };
        let now = existing.iter().find_map(|child| child.object.meta.annotations.get(SIZE_CLASS));
        let size =
            SizeClass::choose(object.meta.annotations.get(SIZE_CLASS), nodes, now.and_then(SizeClass::parse));
        // Whoever deletes the binding in the foreground has the garbage collector take everything away that it owns, before we hear of it.
        // From its first write on the syncer is needed until it has taken that back, and nobody but us removes what it runs by.
        let owned = !object.meta.is_deleting() && !object.has_finalizer(CLUSTER_BINDING_SYNCER);
        let wish = Wish { binding, size, owned };
        let templates = Arc::clone(&templates.read());
        let mut rendered = self.rendered.lock();
        let known = rendered.get(&*object.meta.uid).filter(|known| known.is_of(&templates, &wish));
        if let Some(known) = known {
            return known.children.clone();
        }
        let children = match &*templates {
            Ok(templates) => templates.render(&self.installation, &wish).map(Arc::new),
            Err(fault) => Err(fault.clone()),
        };
        let kept = Rendered {
            templates,
            binding: binding.clone(),
            size,
            owned: wish.owned,
            children: children.clone(),
        };
        if rendered.len() >= KEPT {
            rendered.clear();
        }
        rendered.insert(object.meta.uid.to_string(), kept);
        children
    }

    /// Writes the actions; what a server does not take is remembered, and said in the status at once. What it cannot take now is said when
    /// that has been so for a while.
    async fn write_all(
        &self,
        key: &Key<Virtual>,
        object: &BindingObject,
        asked: &Asked,
        decision: &Decision,
    ) -> Result<(), Failed> {
        let uid = &*object.meta.uid;
        let mut refusal = None;
        let mut trouble: Option<(Verdict, Refusal)> = None;
        for action in &decision.actions {
            let place = format!("{} {}/{}", action.kind.kind, action.namespace, action.name);
            let refused = match self.whose_name(object, action).await {
                // An earlier attempt, whose answer was lost. The store will show it.
                Ok(Name::Ours) => continue,
                Ok(Name::Taken) => {
                    Some(format!("{place} exists and is not this binding's: rename or delete it"))
                }
                Ok(name) => {
                    if self.contested(object, action, &place) {
                        continue;
                    }
                    let outcome = match name {
                        Name::Unmarked(uid) => self.reconciler.write(key, &taken_back(action, &uid)).await,
                        _ => self.reconciler.write(key, action).await,
                    };
                    if let (Outcome::Done(_), true) = (&outcome, is_mending(action)) {
                        self.contests.mended(&place);
                    }
                    match &outcome {
                        outcome if outcome.fulfils(action) => None,
                        Outcome::Invalid(status) | Outcome::Forbidden(status) => {
                            Some(format!("{place} is refused by the API server: {status}"))
                        }
                        // A patch that would make an object, and finds nothing to make it in.
                        Outcome::Gone if is_apply(action) => Some(format!(
                            "{place} cannot be made: namespace {} does not exist; create it, or start the manager with its own --namespace",
                            action.namespace
                        )),
                        Outcome::Unreachable(_) | Outcome::Throttled { .. } => {
                            let role = self.role_of(object, action);
                            let message = format!("{place} cannot be written: {outcome}");
                            trouble.get_or_insert((outcome.verdict(), Refusal { role, message }));
                            None
                        }
                        outcome => return Err(Failed::NotNow(outcome.verdict())),
                    }
                }
                Err(verdict) => return Err(Failed::NotNow(verdict)),
            };
            if let Some(message) = refused {
                // The others are not to wait for it.
                refusal.get_or_insert_with(|| Refusal { role: self.role_of(object, action), message });
            }
        }
        let lasts = self.count_trouble(uid, trouble.is_some());
        let lasting = trouble.as_ref().filter(|_| lasts).map(|(_, refusal)| refusal.clone());
        if let Some(refusal) = refusal.or(lasting) {
            self.refusals.lock().insert(uid.to_owned(), refusal);
            let mut again = self.decide(object, asked);
            if let Some(status) = &again.status {
                self.write_status(key, object, status).await;
            }
            again.events.retain(|telling| telling.warning);
            self.tell(object, &again.events);
            return Err(Failed::Told);
        }
        if let Some((verdict, _)) = trouble {
            return Err(Failed::Trouble(verdict));
        }
        // What was refused before is taken now, or no longer wanted.
        let recovered = self.refusals.lock().remove(uid).is_some();
        if recovered {
            self.reconciler.queue.add(key.clone());
        }
        Ok(())
    }

    /// Whether a server has not taken something so often in a row that people should hear of it.
    fn count_trouble(&self, uid: &str, is_trouble: bool) -> bool {
        let mut troubles = self.troubles.lock();
        if !is_trouble {
            troubles.remove(uid);
            return false;
        }
        let count = troubles.entry(uid.to_owned()).or_insert(0);
        *count += 1;
        *count >= LASTING
    }

    /// Whether someone else changes an object as often as it is mended. Then it is left alone for a while, and people hear of it.
    fn contested(&self, object: &BindingObject, action: &Action, place: &str) -> bool {
        if !is_mending(action) {
            return false;
        }
        match self.contests.advice(place) {
            Advice::Mend => return false,
            Advice::TellAndLeave => {
                let message = format!(
                    "{place} was changed by someone else {MENDS} times within {} s, and is left alone until then: stop whoever writes it \
                     (kubectl get --show-managed-fields names them), or change the template so that both agree",
                    CONTEST.as_secs()
                );
                self.tell(object, &[Telling::event(true, EventReason::Contested, message)]);
            }
            Advice::Leave => {}
        }
        self.reconciler.queue.add_after(object.key(), CONTEST);
        true
    }

    /// Whether an object that is to be made is there already. Stores do not show other people's.
    async fn whose_name(&self, object: &BindingObject, action: &Action) -> Result<Name, Verdict> {
        let Verb::Patch { form: PatchForm::Apply { force: false, .. }, .. } = &action.verb else {
            return Ok(Name::Free);
        };
        let key = Key::new(action.namespace.as_str(), action.name.as_str());
        match self.virt.get(&action.kind, &key).await {
            Ok(Some(found)) => {
                let stamped = found.meta.labels.get(labels::BINDING_UID) == Some(&*object.meta.uid);
                let owned = found.meta.owner_references.iter().any(|owner| *owner.uid == *object.meta.uid);
                let marked = found.meta.labels.get(labels::MANAGED_BY) == Some(labels::MANAGED_BY_VALUE);
                Ok(match (stamped && marked, stamped || owned) {
                    (true, _) => Name::Ours,
                    (false, true) => Name::Unmarked(found.meta.uid.to_string()),
                    (false, false) => Name::Taken,
                })
            }
            Ok(None) => Ok(Name::Free),
            Err(_) => Err(Verdict::Failed("unreachable")),
        }
    }

    /// Whom an action serves; by labels, of what it writes or of what is there, since nothing else tells.
    fn role_of(&self, object: &BindingObject, action: &Action) -> Role {
        let proxier = Some(Role::Proxier.as_str());
        let is_proxier = match &action.verb {
            Verb::Patch { body, .. } => body["metadata"]["labels"][labels::COMPONENT].as_str() == proxier,
            _ => self.world.children_of(object).iter().any(|Existing { kind, object }| {
                let meta = &object.meta;
                *kind == action.kind
                    && (&*meta.namespace, &*meta.name) == (&*action.namespace, &*action.name)
                    && meta.labels.get(labels::COMPONENT) == proxier
            }),
        };
        if is_proxier { Role::Proxier } else { Role::Syncer }
    }

    fn stop_the_gone(&self) {
        if let Mode::Inline(host) = &self.mode {
            host.keep_only(|uid| self.world.by_uid(uid).is_some());
        }
    }

    fn forget_the_gone(&self) {
        self.stop_the_gone();
        self.refusals.lock().retain(|uid, _| self.world.by_uid(uid).is_some());
        self.troubles.lock().retain(|uid, _| self.world.by_uid(uid).is_some());
        self.rendered.lock().retain(|uid, _| self.world.by_uid(uid).is_some());
        self.rounds.forget(|name| self.world.bindings.get(&Key::cluster_scoped(name)).is_some());
    }
}

/// A patch that makes an object or changes it.
const fn is_apply(action: &Action) -> bool {
    matches!(action.verb, Verb::Patch { form: PatchForm::Apply { .. }, .. })
}

/// A write that only puts back what someone else changed: in place, or by making the object anew.
fn is_mending(action: &Action) -> bool {
    action.why == MENDED || action.why == REMADE
}

/// Why not everything was written.
enum Failed {
    /// The server does not take it, and the status says so.
    Told,
    /// The world has changed, or the server is away: look again.
    NotNow(Verdict),
    /// The server cannot take something now.
    Trouble(Verdict),
}

/// Whose a name is.
enum Name {
    Free,
    Ours,
    /// Ours too, but someone took its labels away, so that no store shows it.
    Unmarked(String),
    Taken,
}

/// The same write, on an object that lost what it is known by.
fn taken_back(action: &Action, uid: &str) -> Action {
    let mut action = action.clone();
    if let Verb::Patch { form: PatchForm::Apply { force, .. }, .. } = &mut action.verb {
        *force = true;
    }
    action.if_uid(uid)
}

/// How a task is. What this program does not have never runs, and so it is gone as soon as that is wanted.
fn task(host: &Host, object: &BindingObject, role: Role) -> TaskState {
    if host.has(role) || object.meta.is_deleting() {
        host.state(&object.meta.uid, role)
    } else {
        TaskState::Missing
    }
}

fn subject(meta: &Meta) -> Subject {
    Subject::of(kinds::BINDING, meta)
}

//! Does the worker cluster answer, and is it the one that we are bound to?
//!
//! One small question every five seconds: the mount namespace, whose uid is the worker cluster's identity. Silence counts from the last
//! good answer, and only while questions are asked and fail: a process that slept has not been waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::connector::Worker as Bound;
use kubeocean_cluster::error::CallError;
use kubeocean_cluster::progress::{Listed, Progress, Step};
use kubeocean_model::action::{Kind, kinds};
use kubeocean_model::key::{Key, Physical};
use kubeocean_model::object::{Meta, Object};
use kubeocean_model::storage::Allowed;
use kubeocean_model::vnode::{Settings, Worker};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::policies::Policies;
use crate::world::{Subject, World};

/// A worker that is lost is noticed within one of these after the time is up.
const EVERY: Duration = Duration::from_secs(5);

/// A namespace is read in milliseconds. Who takes longer than this does not answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Silence of thirty seconds changes nothing, of more than this everything; the rest is for the questions under way.
const LOST_AFTER: Duration = Duration::from_secs(40);

/// And not before so many questions in a row went unanswered: one that slept through its own deadline proves nothing.
const FAILURES: u32 = 3;

/// A worker cluster that is being listed is given this long to be known, before it is taken for one of which nothing will be:
/// twenty seconds more than it takes to find it lost.
const LEARNS_FOR: Duration = Duration::from_secs(60);

/// An upgrade ends connections, mostly: the version is asked for with every new one, and after every silence. Behind a balancer nobody
/// may notice; then one small question more in five minutes.
const VERSION_EVERY: Duration = Duration::from_secs(300);

/// Who hears the question for the namespace hears this one, too. Nodes that come back do not wait for it longer than that.
const VERSION_WITHIN: Duration = Duration::from_secs(1);

/// Some let nobody ask for their version. After a minute of that, they are asked once a minute.
const VERSION_AGAIN: Duration = Duration::from_secs(60);
const VERSION_TRIES: u32 = 12;

/// A server that has just started does not know its own roles, and refuses everyone for a moment.
const FORBIDDEN_FOR: Duration = Duration::from_secs(10);

/// What is known of the worker cluster's health. Clones are the same.
#[derive(Clone)]
pub struct Pulse {
    state: Arc<Mutex<State>>,
    world: World,
    policies: Policies,
    phys: Cluster<Physical>,
    subject: Subject,
    clock: Clock,
    changed: Arc<dyn Fn(bool) + Send + Sync>,
    /// Where the version of its API server is noted.
    settings: Arc<Mutex<Settings>>,
    /// Something was listed: from whom?
    listed: Arc<Notify>,
}

struct State {
    /// When it was last known; at first, when this syncer was born.
    known_at: Instant,
    heard_at: Instant,
    failures: u32,
    /// Whether something could not be followed when someone last wanted to know.
    was_behind: bool,
    /// Why the last question failed.
    trouble: Option<String>,
    /// Another cluster answers in its place.
    refused: Option<String>,
    /// The lists that were complete when the cluster last proved to be the right one.
    verified: Option<Vec<Listed>>,
    /// The same, whatever answered since.
    last_verified: Vec<Listed>,
    told: Option<Worker>,
    /// Someone asked while it was not known, and has to ask again: also if no question of ours fell into that time.
    passed_over: bool,
    /// What may not be read, and since when.
    forbidden: BTreeMap<Kind, Instant>,
    /// What that is true of for long enough.
    unreadable: BTreeSet<Kind>,
    /// Kinds of volumes that the lender allows, as it wrote them on the mount namespace.
    volumes: Arc<Allowed>,
    /// Whether it allows none at all.
    without_volumes: bool,
    /// When it said its version, and over which connection.
    version: Option<(Instant, u64)>,
    /// When it was last asked for it, and how often in vain since it last said it.
    version_asked: Option<Instant>,
    version_unsaid: u32,
}

impl Pulse {
    pub(crate) fn new(
        phys: &Cluster<Physical>,
        world: &World,
        policies: &Policies,
        subject: &Subject,
        clock: &Clock,
        settings: &Arc<Mutex<Settings>>,
        changed: Arc<dyn Fn(bool) + Send + Sync>,
    ) -> Self {
        let state = State {
            known_at: Instant::now(),
            heard_at: Instant::now(),
            failures: 0,
            was_behind: false,
            trouble: None,
            refused: None,
            verified: None,
            last_verified: Vec::new(),
            told: None,
            passed_over: false,
            forbidden: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            volumes: Arc::new(Allowed::by_lender(&Meta::default())),
            without_volumes: false,
            version: None,
            version_asked: None,
            version_unsaid: 0,
        };
        phys.wants_proof();
        let listed = Arc::new(Notify::new());
        let policies_of_it = ("worker policies", world.physical_policies.progress().clone());
        let volumes = ("volumes", world.belongings.volumes.progress().clone());
        let belongings = world.belongings.progress().map(|progress| ("copies", progress.clone()));
        let belongings = belongings.into_iter().chain([volumes, policies_of_it]);
        for (_, progress) in world.physical_progress().into_iter().chain(belongings) {
            let listed = Arc::clone(&listed);
            progress.listen(move |step| {
                if matches!(step, Step::List) {
                    listed.notify_one();
                }
                true
            });
        }
        Self {
            listed,
            state: Arc::new(Mutex::new(state)),
            world: world.clone(),
            policies: policies.clone(),
            phys: phys.clone(),
            subject: subject.clone(),
            clock: clock.clone(),
            settings: Arc::clone(settings),
            changed,
        }
    }

    /// What may be said of the worker cluster now.
    pub fn worker(&self) -> Worker {
        let mut state = self.state.lock();
        let worker = self.judge(&state);
        state.passed_over |= worker != Worker::Known;
        worker
    }

    fn judge(&self, state: &State) -> Worker {
        if state.refused.is_some() {
            return Worker::NotKnown;
        }
        if state.is_lost() {
            let silence = SignedDuration::try_from(state.heard_at.elapsed()).unwrap_or_default();
            let now = self.clock.now();
            return Worker::Lost { since: now.checked_sub(silence).unwrap_or(now) };
        }
        let is_whole = |progress: &Progress| progress.is_synced() && !progress.is_half_listed();
        let synced = self.world.physical_progress().iter().all(|(_, progress)| is_whole(progress))
            && !self.world.physical_policies.progress().is_half_listed();
        let verified = state.verified.as_ref() == Some(&self.lists());
        if synced && verified && self.policies.is_known() { Worker::Known } else { Worker::NotKnown }
    }

    /// Whether something cannot be followed now that decides what may be offered. The cluster itself may answer all the same.
    pub(crate) fn is_behind(&self) -> bool {
        let mut behind = self.world.physical_progress();
        if self.policies.are_served() {
            behind.push(("worker policies", self.world.physical_policies.progress().clone()));
        }
        let is_behind = behind.iter().any(|(_, progress)| progress.trouble().is_some());
        // Who asks is held back, and has to ask again: also if no question of ours fell into that time.
        self.state.lock().was_behind |= is_behind;
        is_behind
    }

    /// Whether nodes may be kept alive: everything but a lost worker cluster.
    pub fn is_alive(&self) -> bool {
        let state = self.state.lock();
        state.refused.is_some() || !state.is_lost()
    }

    /// The kinds of volumes that the lender lets pods bring.
    pub(crate) fn allowed_volumes(&self) -> Arc<Allowed> {
        Arc::clone(&self.state.lock().volumes)
    }

    /// Whether it answers, and not another cluster in its place.
    pub(crate) fn is_reachable(&self) -> bool {
        let state = self.state.lock();
        state.refused.is_none() && !state.is_lost()
    }

    /// Whether nothing is known of it now, and something may be in a moment.
    pub(crate) fn is_learning(&self) -> bool {
        let state = self.state.lock();
        let is_possible = state.refused.is_none() && !state.is_lost();
        is_possible && self.judge(&state) == Worker::NotKnown && state.known_at.elapsed() < LEARNS_FOR
    }

    /// Why not, for people.
    pub fn trouble(&self) -> Option<String> {
        let state = self.state.lock();
        state.refused.clone().or_else(|| state.trouble.clone())
    }

    fn lists(&self) -> Vec<Listed> {
        let physical = self.world.physical_progress();
        let mut lists: Vec<Listed> = physical.iter().map(|(_, progress)| progress.list()).collect();
        lists.push(self.world.physical_policies.progress().list());
        lists.extend(self.world.belongings.progress().map(Progress::list));
        lists.push(self.world.belongings.volumes.progress().list());
        lists
    }

    /// Asks, for as long as it runs.
    pub async fn run_until(&self, stop: CancellationToken) {
        self.state.lock().heard_at = Instant::now();
        while !stop.is_cancelled() {
            self.beat().await;
            let rest = tokio::time::timeout(EVERY, self.listed.notified());
            stop.run_until_cancelled(rest).await;
        }
    }

    /// One question.
    pub async fn beat(&self) {
        let lists = self.lists();
        let over = self.phys.connection_number();
        let key = Key::cluster_scoped(&*self.subject.mount_namespace);
        let asked =
            tokio::time::timeout(ANSWER_WITHIN, self.phys.get_unproven(&kinds::NAMESPACE, &key)).await;
        let answer = asked.unwrap_or(Err(CallError::TimedOut { limit: ANSWER_WITHIN }));
        let answered_at = Instant::now();
        let expected = identities(&self.world, &self.subject);
        let is_it = |namespace: &Object| expected.iter().any(|uid| **uid == *namespace.meta.uid);
        let mut is_news =
            matches!(&answer, Ok(Some(namespace)) if is_it(namespace)) && self.hear_version(over).await;
        {
            let mut state = self.state.lock();
            match answer {
                Ok(Some(namespace)) if is_it(&namespace) => {
                    state.heard_at = answered_at;
                    state.failures = 0;
                    state.trouble = None;
                    state.refused = None;
                    // Another connection that came meanwhile has to show it itself.
                    let is_same = self.phys.connection_number() == over;
                    if is_same {
                        self.phys.proven(over);
                    }
                    // What another cluster listed is not made true by who answers now: its connection was another one. Each is listed anew
                    // over this one, and then asked about.
                    let verified = Some(lists).filter(|lists| is_same && state.vouches_for(lists, over));
                    // What was listed since the last question was looked at while nobody knew whose it was, and passed over.
                    is_news |= state.verified != verified;
                    let volumes = Allowed::by_lender(&namespace.meta);
                    if *state.volumes != volumes {
                        state.volumes = Arc::new(volumes);
                        is_news = true;
                    }
                    if let Some(lists) = &verified {
                        state.last_verified.clone_from(lists);
                    }
                    state.verified = verified;
                }
                // Nobody has said yet which cluster it should be; but it answers.
                Ok(_) if expected.is_empty() => {
                    state.heard_at = Instant::now();
                    state.failures = 0;
                    state.trouble = None;
                }
                Ok(found) => {
                    let found = found.map_or("none".to_owned(), |namespace| namespace.meta.uid.to_string());
                    let message = format!(
                        "namespace {} of the worker cluster was {} and is {found}: another cluster answers in its place, and nothing \
                         is done until the right one does",
                        self.subject.mount_namespace,
                        expected.join(" or "),
                    );
                    if state.refused.as_ref() != Some(&message) {
                        tracing::warn!(binding = %self.subject.binding, message, "the worker cluster is another one");
                    }
                    state.refused = Some(message);
                    state.verified = None;
                    // What was decided before this was known does not go there either.
                    self.phys.disproven(over);
                }
                Err(error) => {
                    state.failures += 1;
                    state.trouble = Some(error.to_string());
                }
            }
        }
        is_news |= self.policies.judge_access();
        // What a claim was refused for may be over.
        let may_not = self.world.belongings.may_not_have_volumes();
        is_news |= std::mem::replace(&mut self.state.lock().without_volumes, may_not) != may_not;
        let is_behind = self.is_behind();
        // What was held back meanwhile may be said now.
        is_news |= std::mem::replace(&mut self.state.lock().was_behind, is_behind) && !is_behind;
        self.tell(is_news);
        self.judge_rights();
    }

    /// Asks what version it is, if that may be another one than it was; whether it is. Who does not say is asked again with the next question,
    /// and taken for what it was.
    async fn hear_version(&self, over: u64) -> bool {
        {
            let mut state = self.state.lock();
            if state.failures > 0 {
                // What was said before a silence has to be said again, however often that takes.
                state.version = None;
            }
            let is_fresh = |(at, by): (Instant, u64)| by == over && at.elapsed() < VERSION_EVERY;
            let is_reticent = state.version_unsaid >= VERSION_TRIES
                && state.version_asked.is_some_and(|at| at.elapsed() < VERSION_AGAIN);
            if state.version.is_some_and(is_fresh) || is_reticent || self.phys.connection_number() != over {
                return false;
            }
            state.version_asked = Some(Instant::now());
        }
        self.phys.proven(over);
        let answer = tokio::time::timeout(VERSION_WITHIN, self.phys.version()).await;
        let answer = answer.unwrap_or(Err(CallError::TimedOut { limit: VERSION_WITHIN }));
        let said = answer.map(|version| minor(&version).ok_or(version));
        let minor = match said {
            Ok(Ok(minor)) => minor,
            Ok(Err(unknown)) => return self.says_no_version(&format!("{unknown:?} is no version")),
            Err(error) => return self.says_no_version(&error.to_string()),
        };
        {
            let mut state = self.state.lock();
            state.version = Some((Instant::now(), over));
            state.version_unsaid = 0;
        }
        let before = self.settings.lock().physical_minor.replace(minor);
        if before != Some(minor) {
            tracing::info!(binding = %self.subject.binding, before, minor, "the worker cluster's version is known");
        }
        before != Some(minor)
    }

    /// That is no news of the version.
    fn says_no_version(&self, why: &str) -> bool {
        let mut state = self.state.lock();
        state.version_unsaid = state.version_unsaid.saturating_add(1);
        if state.version_unsaid == VERSION_TRIES {
            let binding = &self.subject.binding;
            tracing::warn!(%binding, why, "the worker cluster does not say its version: what depends on that stays as it is");
        }
        false
    }

    /// Kinds of objects that may not be read there.
    pub(crate) fn unreadable(&self) -> BTreeSet<Kind> {
        self.state.lock().unreadable.clone()
    }

    /// Looks what may not be read.
    fn judge_rights(&self) {
        let now = self.world.physically_forbidden();
        let is_news = {
            let mut state = self.state.lock();
            // What another cluster forbids is its own affair.
            if state.refused.is_some() {
                return;
            }
            state.forbidden.retain(|kind, _| now.contains(kind));
            for kind in now {
                state.forbidden.entry(kind).or_insert_with(Instant::now);
            }
            let lasting = state.forbidden.iter().filter(|(_, since)| since.elapsed() >= FORBIDDEN_FOR);
            let lasting: BTreeSet<Kind> = lasting.map(|(kind, _)| kind.clone()).collect();
            let before = std::mem::replace(&mut state.unreadable, lasting);
            before != state.unreadable
        };
        if is_news {
            (self.changed)(false);
        }
    }

    /// Whoever acts on it hears of a change.
    fn tell(&self, is_news: bool) {
        let (before, now, passed_over) = {
            let mut state = self.state.lock();
            let now = self.judge(&state);
            let passed_over = state.passed_over;
            state.passed_over = passed_over && now != Worker::Known;
            if now == Worker::Known {
                state.known_at = Instant::now();
            }
            (state.told.replace(now), now, passed_over)
        };
        let was_lost = matches!(before, Some(Worker::Lost { .. }));
        let is_back = was_lost && !matches!(now, Worker::Lost { .. });
        match now {
            Worker::Known if is_news || passed_over || before != Some(Worker::Known) => {
                (self.changed)(is_back);
            }
            Worker::Lost { .. } if !was_lost => (self.changed)(false),
            // Its nodes are kept alive from this moment on, also while it is being listed.
            _ if is_back => (self.changed)(true),
            // What is not known is no reason to do anything.
            _ => {}
        }
    }
}

/// The number behind the point of a version such as `v1.36.4`.
fn minor(version: &str) -> Option<u32> {
    version.trim_start_matches('v').split('.').nth(1)?.parse().ok()
}

/// The uids by which the worker cluster is known.
pub(crate) fn identities(world: &World, subject: &Subject) -> Vec<String> {
    let seen = world.bindings.get(&Key::cluster_scoped(&*subject.binding));
    Bound::of(seen.as_ref().map(|seen| &seen.0)).identities
}

impl State {
    /// Whether a cluster that answers as it should over this connection is the one that was listed: over the same connection, or earlier,
    /// when it had proved who it is. What was never listed is nobody's.
    fn vouches_for(&self, lists: &[Listed], connection: u64) -> bool {
        let is_good = |(index, list): (usize, &Listed)| {
            list.number == 0 || list.connection == connection || self.last_verified.get(index) == Some(list)
        };
        lists.iter().enumerate().all(is_good)
    }

    fn is_lost(&self) -> bool {
        self.failures >= FAILURES && self.heard_at.elapsed() > LOST_AFTER
    }
}

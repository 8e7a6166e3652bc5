//! The server as tests hold it: a handle to everything, and the hands that reach in from outside.
//!
//! One lock guards the whole state, as one etcd does. It is never held across an await.
//!
//! Deliberately absent: sockets, threads, detached tasks, faults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::{Mutex, ReentrantMutex};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use crate::bootstrap;
use crate::clock::Clock;
use crate::kinds::{Kinds, catalog};
use crate::news;
use crate::rest::refusal::Refusal;
use crate::rest::request::{Query, Request};
use crate::rest::rights::{Right, Rights};
use crate::rest::{self, Answer};
use crate::service::SimService;
use crate::store::{Entry, Key, Shared, Store, Verb};

/// How a server is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// All randomness: uids, generated names, tokens.
    pub seed: u64,
    /// What its clock shows first.
    pub start: Timestamp,
    /// How often a watch that wants bookmarks gets one.
    pub bookmark_every: Duration,
    /// Older revisions than this many behind the newest are compacted by themselves. `None`: never.
    pub history: Option<u64>,
    /// Whether the definitions of Kubeocean are installed.
    pub with_crds: bool,
    /// Whether a new namespace gets its `default` service account at once, as the controller manager
    /// would give it one a moment later. Without it, pods are refused until someone creates it.
    pub default_service_accounts: bool,
    /// Who an actor is when it asks, or signs: one who was not given a name with
    /// [`ApiServer::identify`], and whose own name is no user's (it has no `:`).
    pub user: String,
    /// What is denied to whom (`*` is everyone) from the start, as by [`ApiServer::deny`].
    pub denied: Vec<(String, Right)>,
    /// It says that it is 1.this; what it does is what the newest does. `None`: it cannot say.
    pub minor: Option<u32>,
    /// Fields that it does not know, as an older one would not: a kind's plural, and where. It keeps nothing that is written there.
    pub unknown_fields: Vec<(&'static str, &'static str)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            // A Thursday, long after any certificate of a test was made.
            start: Timestamp::constant(1_767_225_600, 0),
            // The server's own interval.
            bookmark_every: Duration::from_secs(60),
            history: None,
            with_crds: true,
            default_service_accounts: true,
            user: "system:serviceaccount:kubeocean-worker:kubeocean".to_owned(),
            denied: Vec::new(),
            minor: Some(36),
            unknown_fields: Vec::new(),
        }
    }
}

/// One committed change.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The revision it made: the resource version of the new object.
    pub revision: u64,
    /// Who did it.
    pub actor: String,
    /// When.
    pub at: Timestamp,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural of the resource.
    pub plural: String,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// What was done.
    pub verb: Verb,
    /// The object before.
    pub old: Option<Arc<Value>>,
    /// The object after.
    pub new: Option<Arc<Value>>,
}

type Hook = Box<dyn FnMut(&Arc<Commit>) + Send>;

/// Everything a server knows.
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) kinds: Kinds,
    pub(crate) clock: Clock,
    pub(crate) random: ChaCha8Rng,
    pub(crate) options: Options,
    pub(crate) rights: Rights,
    /// Grows when all watches are cut.
    pub(crate) epoch: u64,
    /// Whether its history was ever cut.
    pub(crate) was_restored: bool,
    /// Addresses and ports that were given to services.
    pub(crate) addresses: u32,
    /// Changes that no hook has seen yet.
    fresh: Vec<Arc<Entry>>,
    /// Hooks run now; what they change they will see.
    in_hooks: bool,
}

impl State {
    pub(crate) fn uid(&mut self) -> String {
        let (high, low) = (self.random.next_u64(), self.random.next_u64());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:x}{:03x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            8 + (low >> 62),
            (low >> 48) & 0xfff,
            low & 0xffff_ffff_ffff
        )
    }

    /// Five characters, of those that spell no words.
    pub(crate) fn suffix(&mut self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5)
            .map(|_| char::from(ALPHABET[usize::try_from(self.random.next_u64() % 27).unwrap_or(0)]))
            .collect()
    }

    pub(crate) fn now(&mut self) -> Timestamp {
        self.clock.now()
    }

    /// The one place where anything changes.
    pub(crate) fn commit(&mut self, key: Key, new: Option<Value>, actor: &Arc<str>) -> Arc<Entry> {
        let at = self.now();
        let entry = self.store.commit(key, new, actor, at);
        if let Some(history) = self.options.history {
            self.store.compacted = self.store.compacted.max(self.store.revision.saturating_sub(history));
        }
        self.fresh.push(entry.clone());
        entry
    }

    fn commit_of(&self, entry: &Entry) -> Commit {
        let kind = self.kinds.id(entry.key.kind);
        let value = |object: &Option<Shared>| object.as_ref().map(|object| object.value.clone());
        Commit {
            revision: entry.revision,
            actor: entry.actor.to_string(),
            at: entry.at,
            group: kind.map(|kind| kind.group.clone()).unwrap_or_default(),
            plural: kind.map(|kind| kind.plural.clone()).unwrap_or_default(),
            namespace: entry.key.namespace.to_string(),
            name: entry.key.name.to_string(),
            verb: entry.verb(),
            old: value(&entry.old),
            new: value(&entry.new),
        }
    }
}

struct Inner {
    state: Mutex<State>,
    hooks: Mutex<Vec<Hook>>,
    /// Held for a request and the hooks after it; a hook may call back.
    turn: ReentrantMutex<()>,
    changed: news::Sender<()>,
    /// The same for those who care for one kind. There are dozens of watches, and most changes are of Leases.
    changed_kinds: Mutex<BTreeMap<u32, news::Sender<()>>>,
}

/// A simulated API server. Cloning gives another handle to the same one.
#[derive(Clone)]
pub struct ApiServer(Arc<Inner>);

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

impl ApiServer {
    /// A new server, with the namespaces every cluster starts with.
    pub fn new(options: Options) -> Self {
        let state = State {
            store: Store::new(),
            kinds: catalog::built_in(),
            clock: Clock::new(options.start),
            random: ChaCha8Rng::seed_from_u64(options.seed),
            rights: Rights::new(options.denied.clone()),
            epoch: 0,
            was_restored: false,
            addresses: 0,
            fresh: Vec::new(),
            in_hooks: false,
            options,
        };
        let with_crds = state.options.with_crds;
        let server = Self(Arc::new(Inner {
            state: Mutex::new(state),
            hooks: Mutex::default(),
            turn: ReentrantMutex::default(),
            changed: news::Sender::new(()),
            changed_kinds: Mutex::default(),
        }));
        bootstrap::fill(&server, with_crds);
        server
    }

    /// The server as someone called `actor` reaches it.
    pub fn service(&self, actor: &str) -> SimService {
        SimService::new(self.clone(), actor)
    }

    /// A client of someone called `actor`. Needs a runtime, because kube's client has a task of its own.
    pub fn client(&self, actor: &str) -> kube::Client {
        kube::Client::new(self.service(actor), "default")
    }

    /// The server's time: its start, plus tokio's time since it was first asked, plus jumps.
    pub fn now(&self) -> Timestamp {
        self.with(State::now)
    }

    /// Sets the server's clock forward or back.
    pub fn jump_clock(&self, by: SignedDuration) {
        self.with(|state| state.clock.jump(by));
    }

    /// Calls `hook` after every committed change, in order, before the writer has its answer. The hook may
    /// call the server; what was true right after the commit is read with [`Self::list_at`].
    pub fn on_commit(&self, mut hook: impl FnMut(&Commit) + Send + 'static) {
        self.on_shared_commit(move |commit| hook(commit));
    }

    /// The same, for who keeps it.
    pub(crate) fn on_shared_commit(&self, hook: impl FnMut(&Arc<Commit>) + Send + 'static) {
        self.0.hooks.lock().push(Box::new(hook));
    }

    /// Forgets them all. Rules that ask the very server that they are the rules of hold it, and it holds them: each world of a
    /// thousand would stay for ever.
    pub(crate) fn forget_hooks(&self) {
        self.0.hooks.lock().clear();
    }

    /// A request without a client: same meaning, same answer, at once. Watches are not answered this way.
    pub fn call(
        &self,
        actor: &str,
        method: &str,
        path_and_query: &str,
        content_type: Option<&str>,
        body: Option<Value>,
    ) -> (u16, Value) {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let request = Request {
            actor: actor.into(),
            method: method.into(),
            path: path.into(),
            query: Query::parse(query),
            accept: "application/json".into(),
            content_type: content_type.unwrap_or("application/json").into(),
            user_agent: actor.into(),
            body: body.map(|body| serde_json::to_vec(&body).unwrap_or_default()).unwrap_or_default().into(),
        };
        match self.answer(&request) {
            Answer::Bytes(code, bytes) => (code, serde_json::from_slice(&bytes).unwrap_or_default()),
            Answer::Value(code, value) => (code, value),
            Answer::Text(code, text) => (code, text.into()),
            Answer::Watch(_) => (501, Value::Null),
        }
    }

    /// An object, by plural or kind (`pods`, `Pod`, `leases.coordination.k8s.io`).
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.with(|state| {
            let kind = state.kinds.find(kind)?.id;
            state.store.get(&Key::new(kind, namespace, name)).map(|object| object.value.clone())
        })
    }

    /// Objects of a kind, in the order of their names; of all namespaces if `namespace` is `None`.
    pub fn list(&self, kind: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        self.list_at(self.revision(), kind, namespace)
    }

    /// As [`Self::list`], at an earlier revision. Every version is kept, compacted or not.
    pub fn list_at(&self, revision: u64, kind: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        self.with(|state| {
            let Some(kind) = state.kinds.find(kind).map(|kind| kind.id) else { return Vec::new() };
            let found = state.store.at(revision, kind, namespace, None);
            found.into_iter().map(|(_, object)| object.value.clone()).collect()
        })
    }

    /// Another one whenever an object of one of these kinds has changed: for who looks often, where rarely something happens.
    pub fn mark(&self, kinds: &[&str]) -> (u64, u64) {
        self.with(|state| {
            let newest = |kind: &&str| Some(state.store.newest_of(state.kinds.find(kind)?.id));
            (state.epoch, kinds.iter().filter_map(newest).max().unwrap_or_default())
        })
    }

    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.with(|state| state.store.revision)
    }

    /// All changes after a revision.
    pub fn history(&self, since: u64) -> Vec<Commit> {
        self.with(|state| state.store.since(since).iter().map(|entry| state.commit_of(entry)).collect())
    }

    /// Watches and lists from before `revision` are refused from now on (410).
    pub fn compact(&self, revision: u64) {
        self.with(|state| {
            state.store.compacted = state.store.compacted.max(revision.min(state.store.revision));
        });
    }

    /// etcd came back from a backup: state and revision go back, and every watch breaks.
    pub fn restore(&self, revision: u64) {
        self.with(|state| {
            state.store.restore(revision);
            state.was_restored = true;
            state.epoch += 1;
            crate::kinds::strategy::reload_definitions(state);
        });
        self.tell_everyone();
    }

    /// Whether its etcd was ever restored: the same version of an object may be another one since.
    pub fn was_restored(&self) -> bool {
        self.with(|state| state.was_restored)
    }

    /// Ends every open watch.
    pub fn drop_watches(&self) {
        self.with(|state| state.epoch += 1);
        self.tell_everyone();
    }

    /// Another version of it answers from now on.
    pub fn becomes(&self, minor: Option<u32>) {
        self.with(|state| state.options.minor = minor);
    }

    /// Refuses a verb on a resource to an actor, from now on. `*` stands for any.
    pub fn forbid(&self, actor: &str, verb: &str, group: &str, resource: &str) {
        let right = Right::of_group(verb, group, resource);
        self.with(|state| state.rights.deny(actor, right));
    }

    /// Refuses something to an actor (`*` is everyone) from now on: requests, and reviews that ask.
    pub fn deny(&self, actor: &str, right: Right) {
        self.with(|state| state.rights.deny(actor, right));
    }

    /// Takes back what was denied in the same words.
    pub fn grant(&self, actor: &str, right: &Right) {
        self.with(|state| state.rights.grant(actor, right));
    }

    /// Refuses what an actor (`*` is everyone) may do, from now on, in the name of a quota or a webhook. The verbs are `create` and
    /// `update`, however something is changed.
    pub fn refuse(&self, actor: &str, right: Right, refusal: Refusal) {
        self.with(|state| state.rights.refuse(actor, right, refusal));
    }

    /// Takes back everything that was refused to an actor so.
    pub fn accept(&self, actor: &str) {
        self.with(|state| state.rights.accept(actor));
    }

    /// Says which user an actor is, to reviews and signing requests.
    pub fn identify(&self, actor: &str, user: &str) {
        self.with(|state| state.rights.identify(actor, user));
    }

    /// Allows everything again.
    pub fn allow_all(&self) {
        self.with(|state| state.rights.grant_all());
    }

    /// What runs next to an API server: garbage collection and the deletion of namespaces. Runs until it
    /// is dropped; nothing is spawned.
    pub async fn controllers(&self) {
        crate::controllers::run(self).await;
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.state.lock())
    }

    pub(crate) fn changes(&self) -> news::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// As [`Self::changes`], of one kind.
    pub(crate) fn changes_of(&self, kind: u32) -> news::Receiver<()> {
        let mut kinds = self.0.changed_kinds.lock();
        kinds.entry(kind).or_insert_with(|| news::Sender::new(())).subscribe()
    }

    fn tell_everyone(&self) {
        for kind in self.0.changed_kinds.lock().values() {
            kind.send(());
        }
        self.0.changed.send(());
    }

    pub(crate) fn answer(&self, request: &Request) -> Answer {
        self.act(|state| rest::answer(state, request))
    }

    /// Does something to the state, then tells hooks and watches.
    pub(crate) fn act<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let turn = self.0.turn.lock();
        let (result, changed) = self.with(|state| {
            let before = state.store.revision;
            let result = act(state);
            let changed: BTreeSet<u32> =
                state.store.since(before).iter().map(|entry| entry.key.kind).collect();
            (result, changed)
        });
        if !changed.is_empty() {
            self.run_hooks();
            let kinds = self.0.changed_kinds.lock();
            for kind in changed.iter().filter_map(|kind| kinds.get(kind)) {
                kind.send(());
            }
            drop(kinds);
            self.0.changed.send(());
        }
        drop(turn);
        result
    }

    fn run_hooks(&self) {
        // A hook that writes ends up here again; the outer round shows it what it did.
        if self.with(|state| std::mem::replace(&mut state.in_hooks, true)) {
            return;
        }
        let mut hooks = std::mem::take(&mut *self.0.hooks.lock());
        loop {
            let commits: Vec<_> = self.with(|state| {
                let fresh = std::mem::take(&mut state.fresh);
                if hooks.is_empty() {
                    Vec::new()
                } else {
                    fresh.iter().map(|entry| Arc::new(state.commit_of(entry))).collect()
                }
            });
            if commits.is_empty() {
                break;
            }
            for commit in &commits {
                for hook in &mut hooks {
                    hook(commit);
                }
            }
        }
        let mut place = self.0.hooks.lock();
        // Hooks that were added meanwhile come after.
        hooks.append(&mut place);
        *place = hooks;
        drop(place);
        self.with(|state| state.in_hooks = false);
    }
}

//! Keeps a [`Store`] current: lists, then watches, for as long as it runs.
//!
//! ```text
//!          ┌──────────── expired, counted back, moved, resync ─────────────┐
//!          ▼                                                               │
//!   list (in pages, or streamed) ──▶ watch ──▶ ends in time ──▶ watch from there
//!          ▲                                │
//!          └── the server counts lower ◀── ask ◀── broken, silent (after a pause)
//! ```
//!
//! - A list is taken in object by object and then swept: what vanished while nobody watched gives a
//!   deletion like any other.
//! - Each watch is told to end after one to two minutes. One that does not is a connection that died
//!   silently.
//! - A watch that broke may have broken because etcd was restored. Before going on, the server is asked
//!   where it stands; if that is before us, everything is listed anew. Since it may have caught up in the
//!   meantime, everything is also listed anew when a write is answered as if the store were wrong, and now and then
//!   anyway.
//! - New credentials ([`Cluster::replace`]) move the watch over at once. The store stays, and is compared with a list.
//!
//! Deliberately absent: what the objects mean.

mod builder;
mod listing;

use std::time::Duration;

use kubeocean_model::action::Kind;
use kubeocean_model::key::{Key, OnSide};
use kubeocean_model::object::Object;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff::{Backoff, fraction};
use crate::client::{Call, Cluster, Connection, JSON};
use crate::error::CallError;
use crate::metrics::{ClusterResource, Observation, WatchRestart};
use crate::store::{Change, Shape, Store};
use crate::watch::{Event, Events};
use builder::Control;
pub use builder::{Builder, Switch};

/// What a server may take longer than it was told before we take the connection for dead.
const PATIENCE: Duration = Duration::from_secs(15);

/// A watch that was open for so long was a good one, even if nothing happened: proxies end idle ones.
const LIVED: Duration = Duration::from_secs(10);

/// A list of 10,000 pods costs a server about half a second. Once in fifteen minutes that is nothing, and
/// it bounds how long a miss that nobody could notice (a restored etcd, a server's bug) stays.
const RELIST_AFTER: Duration = Duration::from_secs(15 * 60);

/// How soon after a list another one may be asked for by a contradiction: whatever is wrong, it is not worth more than
/// one list a minute.
const DOUBT_AFTER: Duration = Duration::from_secs(60);

/// So many failures in a row, some two seconds, are more than a server that restarts or a connection that breaks.
const LASTING: u32 = 4;

/// The first retry is quick, since most breaks are restarts of a server; the last is one call in half a
/// minute, which no server minds.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), most: Duration::from_secs(30) };

const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

type Handler<S, T> = Box<dyn Fn(&Change<'_, S, T>) + Send + Sync>;
type Filter = Box<dyn Fn(&Object) -> bool + Send + Sync>;

/// Keeps one store current. Made by [`Informer::of`], then run.
pub struct Informer<S, T> {
    cluster: Cluster<S>,
    kind: Kind,
    scope: Scope,
    store: Store<S, T>,
    handlers: Vec<Handler<S, T>>,
    keep: Option<Filter>,
    control: watch::Receiver<Control>,
    connection: Connection,
    streaming: bool,
    labels: ClusterResource,
    /// How many watches there were: each lives for another time.
    watches: u64,
    /// In a row, without a word from the server between them.
    failures: u32,
    /// What was last complained about in the log, until it is over.
    complaint: Option<String>,
    /// Over which connection the last list came.
    listed_over: u64,
    listed_at: Instant,
    /// How often it was told to list anew, as far as it has done so.
    relists: u64,
    /// Tells waiters apart.
    salt: u64,
    _age: Observation,
}

/// Which objects, and how much of them.
#[derive(Clone, Debug, Default)]
struct Scope {
    namespace: Option<String>,
    labels: Option<String>,
    fields: Option<String>,
    metadata_only: bool,
}

/// Where to go on.
enum Next {
    /// List everything.
    List,
    /// Watch from this version.
    Watch(Box<str>),
}

/// How a watch ended.
struct End {
    cause: Cause,
    /// Up to where it was heard.
    version: Option<Box<str>>,
    /// Whether it said anything.
    heard: bool,
    /// How long it was open.
    lived: Duration,
}

enum Cause {
    /// As it was told to.
    Timeout,
    /// Paused, or asked to list anew.
    Told,
    /// Other credentials.
    Moved,
    /// Its version is gone, or the server counts lower than before.
    Expired,
    /// A write was answered as if the store were wrong, and it was not mended since.
    Contradicted,
    /// The server does not stream lists.
    NoStreaming,
    /// It did not end in time.
    Silent,
    /// The server or the connection ended it.
    Broken(CallError),
    /// The server ended it early, and said nothing.
    Closed,
}

impl Cause {
    const fn word(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Told => "told",
            Self::Moved => "moved",
            Self::Expired => "expired",
            Self::Contradicted => "contradicted",
            Self::NoStreaming => "no-streaming",
            Self::Silent => "silent",
            Self::Broken(_) => "broken",
            Self::Closed => "closed",
        }
    }
}

impl<S: OnSide, T: Shape> Informer<S, T> {
    /// Starts to describe an informer of a kind.
    pub fn of(cluster: &Cluster<S>, kind: Kind) -> Builder<S, T> {
        Builder {
            cluster: cluster.clone(),
            kind,
            scope: Scope::default(),
            indexes: Vec::new(),
            handlers: Vec::new(),
            keep: None,
            streaming: false,
        }
    }

    /// What it keeps current.
    pub fn store(&self) -> Store<S, T> {
        self.store.clone()
    }

    /// Keeps the store current, for ever. To be given to a supervisor.
    pub async fn run(mut self) {
        let mut next = Next::List;
        loop {
            self.while_paused().await;
            if self.has_to_list_anew() {
                next = Next::List;
            }
            next = match next {
                Next::Watch(version) => self.follow(Some(version)).await,
                Next::List if self.streaming => self.follow(None).await,
                Next::List => {
                    let left = self.connection.left.clone();
                    let listed = tokio::select! {
                        biased;
                        // A server that is left need not be waited for.
                        () = left.cancelled() => {
                            next = Next::List;
                            continue;
                        }
                        listed = self.list_in_pages() => listed,
                    };
                    match listed {
                        Ok(version) => {
                            self.be_reconciled();
                            Next::Watch(version)
                        }
                        Err(error) => {
                            self.rest(&error).await;
                            Next::List
                        }
                    }
                }
            };
        }
    }

    /// As [`Informer::run`], until told to stop.
    pub async fn run_until(self, stop: CancellationToken) {
        stop.run_until_cancelled_owned(self.run()).await;
    }

    async fn while_paused(&mut self) {
        // A switch that nobody holds any more stays as it is.
        if self.control.wait_for(|control| !control.paused).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether it was told to, or the last list came over another connection: who knows whether the new one leads
    /// to a server that counts alike. Asked before each step, so that no moment is missed.
    fn has_to_list_anew(&mut self) -> bool {
        let relists = self.control.borrow_and_update().relists;
        let told = std::mem::replace(&mut self.relists, relists) != relists;
        self.connection = self.cluster.connection();
        told || self.connection.number != self.listed_over
    }

    /// One watch, and what comes after it.
    async fn follow(&mut self, from: Option<Box<str>>) -> Next {
        let end = self.watch(from).await;
        self.after(end).await
    }

    /// Where to go on after a watch has ended.
    async fn after(&mut self, end: End) -> Next {
        self.count_restart(end.cause.word());
        if end.heard || end.lived >= LIVED {
            self.failures = 0;
        }
        let relist_after = RELIST_AFTER + RELIST_AFTER.mul_f64(fraction(self.salt));
        let version = end.version.filter(|_| self.listed_at.elapsed() < relist_after);
        match end.cause {
            Cause::Timeout | Cause::Told | Cause::Moved => version.map_or(Next::List, Next::Watch),
            Cause::Contradicted => Next::List,
            Cause::NoStreaming => {
                self.streaming = false;
                Next::List
            }
            Cause::Expired => {
                // Once is the way of things. A server that says so again and again gets its rest.
                self.failures += 1;
                if self.failures > 1 {
                    self.rest(&CallError::Unreachable { cause: "every version is gone".to_owned() }).await;
                }
                Next::List
            }
            Cause::Silent | Cause::Closed => {
                self.rest(&CallError::Unreachable { cause: format!("the watch is {}", end.cause.word()) })
                    .await;
                self.where_the_server_stands(version).await
            }
            Cause::Broken(error) => {
                self.rest(&error).await;
                self.where_the_server_stands(version).await
            }
        }
    }

    /// Waits after a failure, unless there is news that may help.
    async fn rest(&mut self, error: &CallError) {
        self.failures += 1;
        self.store.progress().failed(error);
        let delay = BACKOFF.delay(self.failures, self.salt);
        self.complain(error);
        tokio::select! {
            biased;
            () = self.connection.left.cancelled() => {}
            () = changed(&mut self.control) => {}
            () = tokio::time::sleep(delay) => {}
        }
    }

    /// Says once what does not pass by itself: a right that is missing, a server that stays away.
    fn complain(&mut self, error: &CallError) {
        let (cluster, resource) = (self.cluster.name(), &self.kind.plural);
        let words = error.to_string();
        if self.failures < LASTING || self.complaint.as_ref() == Some(&words) {
            tracing::debug!(%cluster, %resource, %error, "cannot be listed or watched");
            return;
        }
        tracing::warn!(%cluster, %resource, %error, "cannot be listed or watched; it is tried again");
        self.complaint = Some(words);
    }

    fn be_reconciled(&mut self) {
        if self.complaint.take().is_some() {
            let (cluster, resource) = (self.cluster.name(), &self.kind.plural);
            tracing::info!(%cluster, %resource, "can be listed and watched again");
        }
    }

    /// Watches from a version, or lists first if there is none.
    async fn watch(&mut self, from: Option<Box<str>>) -> End {
        self.watches += 1;
        let watch_for = self.cluster.watch_for();
        let lifetime = watch_for + watch_for.mul_f64(fraction(self.salt ^ self.watches));
        let mut query = self.scope.query();
        query.add("watch", Some("true"));
        query.add("allowWatchBookmarks", Some("true"));
        query.add("timeoutSeconds", Some(&lifetime.as_secs().max(1).to_string()));
        let mut list = None;
        if let Some(version) = &from {
            query.add("resourceVersion", Some(version));
        } else {
            query.add("sendInitialEvents", Some("true"));
            query.add("resourceVersionMatch", Some("NotOlderThan"));
            list = Some(self.begin_list());
        }
        let path = format!("{}{query}", self.collection());
        let accept = if self.scope.metadata_only { METADATA_ONLY } else { JSON };
        let call = Call { accept, ..Call::read("watch", &self.kind, path) };
        let started = Instant::now();
        let mut end = End { cause: Cause::Timeout, version: from, heard: false, lived: Duration::ZERO };
        let opened = tokio::select! {
            biased;
            () = self.connection.left.cancelled() => {
                end.cause = Cause::Moved;
                return end;
            }
            opened = self.cluster.open(call) => opened,
        };
        let response = match opened {
            Ok(response) => response,
            Err(error) => {
                end.cause = why_not_opened(error, list.is_some());
                return end;
            }
        };
        if list.is_none() {
            self.store.progress().recovered();
            self.be_reconciled();
        }
        self.store.postpone_doubts();
        let mut events = Events::new(response.into_body());
        let give_up = started + lifetime + PATIENCE;
        loop {
            // Orders first: a busy stream must not keep them waiting.
            let event = tokio::select! {
                biased;
                () = self.connection.left.cancelled() => {
                    end.cause = Cause::Moved;
                    return end;
                }
                () = changed(&mut self.control) => {
                    end.cause = Cause::Told;
                    return end;
                }
                () = tokio::time::sleep_until(give_up) => {
                    end.cause = Cause::Silent;
                    return end;
                }
                event = events.next() => event,
                () = self.store.contradicted(), if list.is_none() && self.listed_at.elapsed() >= DOUBT_AFTER => {
                    end.cause = Cause::Contradicted;
                    return end;
                }
            };
            end.lived = started.elapsed();
            let Some(event) = event else {
                let in_time = started.elapsed() + Duration::from_secs(1) >= lifetime;
                end.cause = if in_time && list.is_none() { Cause::Timeout } else { Cause::Closed };
                return end;
            };
            match event {
                Ok(event) => {
                    if list.is_some() {
                        self.store.progress().take_in_list();
                    }
                    if let Err(cause) = self.take_event(event, &mut end, &mut list) {
                        end.cause = cause;
                        return end;
                    }
                }
                Err(error) => {
                    end.cause = Cause::Broken(error);
                    return end;
                }
            }
        }
    }

    /// Takes one event in, and says so if it was the last.
    fn take_event(&mut self, event: Event, end: &mut End, list: &mut Option<u64>) -> Result<(), Cause> {
        let version = match &event {
            Event::Put(object) | Event::Gone(object) => object.meta.resource_version.clone(),
            Event::Bookmark { version, .. } => version.clone(),
            Event::Unreadable { .. } => end.version.clone().unwrap_or_default(),
            Event::Error(status) if status.is_expired() => return Err(Cause::Expired),
            Event::Error(status) => return Err(Cause::Broken(CallError::Refused(Box::new(status.clone())))),
        };
        if version.is_empty() && !matches!(event, Event::Unreadable { .. }) {
            return Err(Cause::Broken(CallError::Malformed {
                cause: "an event without a version".to_owned(),
            }));
        }
        if list.is_none() && counts_back(end.version.as_deref(), &version) {
            return Err(Cause::Expired);
        }
        end.heard = true;
        let mut about = None;
        match event {
            Event::Put(object) => {
                about = Some(object.key());
                self.take_in(object);
            }
            Event::Gone(object) => {
                self.store.remove(&object.key(), &|change| self.tell(change));
                about = Some(object.key());
            }
            // What is known of it stays, unless it is gone.
            Event::Unreadable { namespace, name, gone } => {
                let key = Key::new(namespace, name);
                if gone {
                    self.store.remove(&key, &|change| self.tell(change));
                } else {
                    self.store.leave(&key);
                }
                return Ok(());
            }
            Event::Bookmark { initial_events_end: true, .. } => {
                if let Some(list) = list.take() {
                    self.end_list(list, &version);
                }
            }
            Event::Bookmark { .. } | Event::Error(_) => {}
        }
        // Initial events come in the order of names: a version counts only once they are all here.
        if list.is_none() {
            let about = about.as_ref().map(|key: &Key<S>| (&*key.namespace, &*key.name));
            self.store.progress().saw(version.parse().ok(), about);
            self.show_size();
            end.version = Some(version);
        }
        Ok(())
    }

    fn take_in(&self, object: Object) {
        if self.keep.as_ref().is_none_or(|keep| keep(&object)) {
            self.store.put(object, &|change| self.tell(change));
        } else {
            self.store.remove(&object.key(), &|change| self.tell(change));
        }
    }

    fn tell(&self, change: &Change<'_, S, T>) {
        for handler in &self.handlers {
            handler(change);
        }
    }

    fn show_size(&self) {
        let size = i64::try_from(self.store.len()).unwrap_or(i64::MAX);
        self.cluster.metrics().cluster().store_objects.of(&self.labels).set(size);
    }

    fn count_restart(&self, cause: &'static str) {
        let ClusterResource { cluster, resource } = self.labels.clone();
        self.cluster.metrics().cluster().watch_restarts.of(&WatchRestart { cluster, resource, cause }).inc();
    }
}

fn why_not_opened(error: CallError, listing: bool) -> Cause {
    match error.status() {
        Some(status) if status.is_expired() => Cause::Expired,
        // Older servers, and storages that cannot: they say that the parameters are wrong.
        Some(status) if listing && matches!(status.code, 400 | 422) => Cause::NoStreaming,
        _ => Cause::Broken(error),
    }
}

fn counts_back(before: Option<&str>, now: &str) -> bool {
    match (before.map(str::parse::<u64>), now.parse::<u64>()) {
        (Some(Ok(before)), Ok(now)) => now < before,
        _ => false,
    }
}

/// Waits for a change; for ever if nobody can make one any more.
async fn changed<V>(receiver: &mut watch::Receiver<V>) {
    if receiver.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl<S, T> std::fmt::Debug for Informer<S, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Informer")
            .field("kind", &self.kind.plural)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

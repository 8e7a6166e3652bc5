//! No key is planned again before the stores have seen what was written for it.
//!
//! Without this a planner whose store is a moment behind would create again what it just created.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubeocean_model::action::{Action, Kind, Verb};
use kubeocean_model::key::{Key, OnSide, Side};
use parking_lot::Mutex;

use crate::apply::Outcome;
use crate::progress::{Progress, Ticket};
use crate::queue::{Queue, QueueKey};
use crate::store::{Shape, Store};

/// A store that plans are made on, as the applier knows it.
#[derive(Clone)]
pub(crate) struct Followed {
    side: Side,
    kind: Kind,
    store: Arc<dyn Known>,
}

/// Uid and version of an object in a store; `None`: it is not there.
type Version = Option<(Box<str>, Box<str>)>;

/// What a fence has to know of a store.
trait Known: Send + Sync {
    fn progress(&self) -> &Progress;
    fn covers(&self, namespace: &str) -> bool;
    fn find(&self, namespace: &str, name: &str) -> Version;
}

impl<S: OnSide, T: Shape> Known for Store<S, T> {
    fn progress(&self) -> &Progress {
        Store::progress(self)
    }

    fn covers(&self, namespace: &str) -> bool {
        Store::covers(self, namespace)
    }

    fn find(&self, namespace: &str, name: &str) -> Version {
        let entry = self.get(&Key::new(namespace, name))?;
        Some((entry.uid.clone(), entry.resource_version.clone()))
    }
}

impl Followed {
    pub(crate) fn new<S: OnSide, T: Shape>(kind: Kind, store: &Store<S, T>) -> Self {
        Self { side: S::SIDE, kind, store: Arc::new(store.clone()) }
    }

    /// Whether what the action writes can be in the store.
    pub(crate) fn is_of(&self, action: &Action) -> bool {
        self.side == action.side && self.kind == action.kind && self.store.covers(&action.namespace)
    }

    pub(crate) fn version_of(&self, action: &Action) -> Option<Box<str>> {
        self.store.find(&action.namespace, &action.name).map(|(_, version)| version)
    }

    /// To be taken before the write: the store may see it before its answer comes.
    pub(crate) fn before(&self, action: &Action) -> Before {
        let store = Arc::clone(&self.store);
        let was = store.find(&action.namespace, &action.name);
        Before { store, was, namespace: action.namespace.clone(), name: action.name.clone() }
    }
}

/// What a store knew of an object before it was written.
pub(crate) struct Before {
    store: Arc<dyn Known>,
    namespace: String,
    name: String,
    was: Version,
}

impl Before {
    /// What has to be seen after this outcome, if anything.
    pub(crate) fn wait_for(self, action: &Action, outcome: &Outcome) -> Option<Sighting> {
        let version = match outcome {
            Outcome::Done(written) => written.resource_version.as_deref(),
            Outcome::ExistsOurs(object) => Some(&*object.meta.resource_version),
            _ => return None,
        };
        // The answer of a subresource such as a token is not a version of the object.
        if matches!(action.verb, Verb::Post { .. }) {
            return None;
        }
        let version = version.and_then(|version| version.parse().ok());
        // No version passes `MAX`, but a list that begins from now on does.
        let ticket = self.store.progress().ticket(version.unwrap_or(u64::MAX));
        Some(Sighting { version, ticket, before: self })
    }
}

/// One thing that one store has to see.
pub(crate) struct Sighting {
    /// Answers to evictions, and to deletions that are over at once, name none.
    version: Option<u64>,
    ticket: Ticket,
    before: Before,
}

impl Sighting {
    fn has_come(&self) -> bool {
        let Before { store, namespace, name, was } = &self.before;
        if store.progress().has_passed(self.ticket) {
            return true;
        }
        let now = store.find(namespace, name);
        match self.version {
            Some(version) => {
                now.is_some_and(|(_, known)| known.parse().is_ok_and(|known: u64| known >= version))
            }
            None => now != *was,
        }
    }
}

/// The fences of all keys of one queue. Clones are the same.
pub struct Fences<K> {
    waiting: Arc<Mutex<BTreeMap<K, Vec<Sighting>>>>,
}

impl<K: QueueKey> Fences<K> {
    /// Keys whose fence opens are added to the queue.
    pub fn new() -> Self {
        Self { waiting: Arc::default() }
    }

    /// From now on, whenever one of these stores comes further, keys that waited for it go to the queue.
    pub fn open_into(&self, queue: &Queue<K>, progress: &Progress) {
        // The store may live longer than the queue, and must not keep it.
        let (waiting, queue) = (Arc::downgrade(&self.waiting), queue.downgrade());
        progress.listen(move || {
            let (Some(waiting), Some(queue)) = (waiting.upgrade(), queue.upgrade()) else { return false };
            for key in (Self { waiting }).opened() {
                queue.add(key);
            }
            true
        });
    }

    /// Whether a key may be planned.
    pub fn is_open(&self, key: &K) -> bool {
        let mut waiting = self.waiting.lock();
        let Some(sightings) = waiting.get_mut(key) else { return true };
        sightings.retain(|sighting| !sighting.has_come());
        if sightings.is_empty() {
            waiting.remove(key);
            return true;
        }
        false
    }

    pub(crate) fn close(&self, key: &K, sightings: Vec<Sighting>) {
        if !sightings.is_empty() {
            self.waiting.lock().entry(key.clone()).or_default().extend(sightings);
        }
    }

    fn opened(&self) -> Vec<K> {
        let mut waiting = self.waiting.lock();
        let mut opened = Vec::new();
        waiting.retain(|key, sightings| {
            sightings.retain(|sighting| !sighting.has_come());
            if sightings.is_empty() {
                opened.push(key.clone());
            }
            !sightings.is_empty()
        });
        opened
    }
}

impl<K: QueueKey> Default for Fences<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Clone for Fences<K> {
    fn clone(&self) -> Self {
        Self { waiting: Arc::clone(&self.waiting) }
    }
}

impl<K: QueueKey> std::fmt::Debug for Fences<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.waiting.lock().keys()).finish()
    }
}

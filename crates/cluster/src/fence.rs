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

/// What a fence has to know of a store.
trait Known: Send + Sync {
    fn progress(&self) -> &Progress;
    /// Uid and version of an object.
    fn find(&self, namespace: &str, name: &str) -> Option<(Box<str>, Box<str>)>;
}

impl<S: OnSide, T: Shape> Known for Store<S, T> {
    fn progress(&self) -> &Progress {
        Store::progress(self)
    }

    fn find(&self, namespace: &str, name: &str) -> Option<(Box<str>, Box<str>)> {
        let entry = self.get(&Key::new(namespace, name))?;
        Some((entry.uid.clone(), entry.resource_version.clone()))
    }
}

impl Followed {
    pub(crate) fn new<S: OnSide, T: Shape>(kind: Kind, store: &Store<S, T>) -> Self {
        Self { side: S::SIDE, kind, store: Arc::new(store.clone()) }
    }

    pub(crate) fn is_of(&self, action: &Action) -> bool {
        self.side == action.side && self.kind == action.kind
    }

    pub(crate) fn version_of(&self, action: &Action) -> Option<Box<str>> {
        self.store.find(&action.namespace, &action.name).map(|(_, version)| version)
    }

    /// What has to be seen after this outcome, if anything.
    pub(crate) fn wait_for(&self, action: &Action, outcome: &Outcome) -> Option<Sightings> {
        let version = match outcome {
            Outcome::Done(written) => written.resource_version.as_deref(),
            Outcome::ExistsOurs(object) => Some(&*object.meta.resource_version),
            _ => return None,
        };
        // The answer of a subresource such as a token is not a version of the object.
        if matches!(action.verb, Verb::Post { .. }) {
            return None;
        }
        let awaited = if let Some(version) = version.and_then(|version| version.parse().ok()) {
            Awaited::Version(self.store.progress().ticket(version))
        } else {
            let (uid, _) = self.store.find(&action.namespace, &action.name)?;
            let (namespace, name) = (action.namespace.clone(), action.name.clone());
            // No version will pass this ticket, but a list that begins from now on will.
            Awaited::Removal { namespace, name, uid, ticket: self.store.progress().ticket(u64::MAX) }
        };
        Some(Sightings { store: Arc::clone(&self.store), awaited })
    }
}

/// One thing that one store has to see.
pub(crate) struct Sightings {
    store: Arc<dyn Known>,
    awaited: Awaited,
}

enum Awaited {
    Version(Ticket),
    /// The object of that uid is gone. Deletions that are over at once answer without a version.
    Removal {
        namespace: String,
        name: String,
        uid: Box<str>,
        ticket: Ticket,
    },
}

impl Sightings {
    fn has_come(&self) -> bool {
        match &self.awaited {
            Awaited::Version(ticket) => self.store.progress().has_passed(*ticket),
            Awaited::Removal { namespace, name, uid, ticket } => {
                self.store.find(namespace, name).is_none_or(|(known, _)| known != *uid)
                    || self.store.progress().has_passed(*ticket)
            }
        }
    }
}

/// The fences of all keys of one queue. Clones are the same.
pub struct Fences<K> {
    waiting: Arc<Mutex<BTreeMap<K, Vec<Sightings>>>>,
}

impl<K: QueueKey> Fences<K> {
    /// Keys whose fence opens are added to the queue.
    pub fn new() -> Self {
        Self { waiting: Arc::default() }
    }

    /// From now on, whenever one of these stores comes further, keys that waited for it go to the queue.
    pub fn open_into(&self, queue: &Queue<K>, progress: &Progress) {
        let (fences, queue) = (self.clone(), queue.clone());
        progress.listen(move || {
            for key in fences.opened() {
                queue.add(key);
            }
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

    pub(crate) fn close(&self, key: &K, sightings: Vec<Sightings>) {
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

//! No key is planned again before the stores have seen what was written for it.
//!
//! Without this a planner whose store is a moment behind would create again what it just created.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kubeocean_model::action::{Action, Kind, Verb};
use kubeocean_model::key::{Key, OnSide, Side};
use parking_lot::Mutex;

use crate::apply::Outcome;
use crate::progress::{Progress, Step, Ticket};
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

/// Tells stores apart.
type StoreId = usize;

/// What a fence has to know of a store.
trait Known: Send + Sync {
    fn progress(&self) -> &Progress;
    fn covers(&self, namespace: &str) -> bool;
    fn find(&self, namespace: &str, name: &str) -> Version;
    fn is_leaving(&self, namespace: &str, name: &str) -> bool;
    fn doubt(&self, namespace: &str, name: &str, version: &str);
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

    fn is_leaving(&self, namespace: &str, name: &str) -> bool {
        self.get(&Key::new(namespace, name)).is_some_and(|entry| entry.leaving)
    }

    fn doubt(&self, namespace: &str, name: &str, version: &str) {
        Store::doubt(self, &Key::new(namespace, name), version);
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

    /// The last list of the store. Versions of another list may be of another history: etcd may have been restored.
    pub(crate) fn list(&self) -> u64 {
        self.store.progress().list().number
    }

    pub(crate) fn version_of(&self, action: &Action) -> Option<Box<str>> {
        self.store.find(&action.namespace, &action.name).map(|(_, version)| version)
    }

    /// A server said something that does not go with what the store shows.
    pub(crate) fn doubt(&self, action: &Action, version: &str) {
        self.store.doubt(&action.namespace, &action.name, version);
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
        match action.verb {
            // The answer of a subresource such as a token is not a version of the object.
            Verb::Post { .. } => return None,
            // To evict what is leaving already changes nothing that could be waited for.
            Verb::Evict { .. } if self.store.is_leaving(&self.namespace, &self.name) => return None,
            _ => {}
        }
        let version = version.and_then(|version| version.parse().ok());
        // What the store does not show cannot be seen to go.
        if version.is_none() && self.was.is_none() {
            return None;
        }
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
    /// Any word of a store that is past the version will do. Answers without a version are those to deletions and evictions:
    /// the object itself has to be on its way, or gone.
    fn has_come(&self) -> bool {
        let Before { store, namespace, name, was } = &self.before;
        let uid = |version: &Version| version.as_ref().map(|(uid, _)| uid.clone());
        store.progress().has_passed(self.ticket)
            || (self.version.is_none()
                && (uid(&store.find(namespace, name)) != uid(was) || store.is_leaving(namespace, name)))
    }
}

/// The fences of all keys of one queue. Clones are the same.
pub struct Fences<K> {
    waiting: Arc<Mutex<Waiting<K>>>,
}

/// Who waits, and where to look for them: a store that takes a step asks only those whom it may concern.
struct Waiting<K> {
    keys: BTreeMap<K, Vec<Sighting>>,
    stores: BTreeMap<StoreId, Places<K>>,
}

/// What keys wait for in one store. May name some that wait no longer.
struct Places<K> {
    versions: BTreeMap<u64, BTreeSet<K>>,
    objects: BTreeMap<Key<()>, BTreeSet<K>>,
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
        let store = progress.id();
        progress.listen(move |step| {
            let (Some(waiting), Some(queue)) = (waiting.upgrade(), queue.upgrade()) else { return false };
            for key in waiting.lock().opened_by(store, step) {
                queue.add(key);
            }
            true
        });
    }

    /// Whether a key may be planned.
    pub fn is_open(&self, key: &K) -> bool {
        self.waiting.lock().is_open(key)
    }

    pub(crate) fn close(&self, key: &K, sightings: Vec<Sighting>) {
        if !sightings.is_empty() {
            self.waiting.lock().close(key, sightings);
        }
    }
}

impl<K: QueueKey> Waiting<K> {
    fn is_open(&mut self, key: &K) -> bool {
        let Some(sightings) = self.keys.get_mut(key) else { return true };
        sightings.retain(|sighting| !sighting.has_come());
        if sightings.is_empty() {
            self.keys.remove(key);
            return true;
        }
        false
    }

    fn close(&mut self, key: &K, sightings: Vec<Sighting>) {
        for sighting in &sightings {
            let Before { store, namespace, name, .. } = &sighting.before;
            let places = self.stores.entry(store.progress().id()).or_default();
            let place = match sighting.version {
                Some(version) => places.versions.entry(version).or_default(),
                // It came before the answer did: the next word of the store will do.
                None if sighting.has_come() => places.versions.entry(0).or_default(),
                None => places.objects.entry(Key::new(namespace.as_str(), name.as_str())).or_default(),
            };
            place.insert(key.clone());
        }
        self.keys.entry(key.clone()).or_default().extend(sightings);
    }

    /// Those that wait for nothing any more, now that a store took this step.
    fn opened_by(&mut self, store: StoreId, step: &Step<'_>) -> Vec<K> {
        let mut asked = match step {
            Step::Event { seen, object } => match self.stores.get_mut(&store) {
                Some(places) => places.concerned(*seen, *object),
                None => return Vec::new(),
            },
            // Seldom, and it may concern everyone.
            Step::List => self.keys.keys().cloned().collect(),
        };
        asked.retain(|key| self.keys.contains_key(key));
        let (opened, waiting): (Vec<K>, Vec<K>) = asked.into_iter().partition(|key| self.is_open(key));
        // It was another event about that object.
        if let Step::Event { object: Some((namespace, name)), .. } = step
            && let Some(places) = self.stores.get_mut(&store)
        {
            for key in waiting {
                places.objects.entry(Key::new(*namespace, *name)).or_default().insert(key);
            }
        }
        if matches!(step, Step::List) {
            let Self { keys, stores } = self;
            let waits = |waiting: &BTreeSet<K>| waiting.iter().any(|key| keys.contains_key(key));
            for places in stores.values_mut() {
                places.versions.retain(|_, waiting| waits(waiting));
                places.objects.retain(|_, waiting| waits(waiting));
            }
        }
        opened
    }
}

impl<K: Ord> Places<K> {
    /// Takes those out that may have waited for this.
    fn concerned(&mut self, seen: Option<u64>, object: Option<(&str, &str)>) -> BTreeSet<K> {
        let mut concerned = BTreeSet::new();
        while let Some(entry) = self.versions.first_entry()
            && *entry.key() <= seen.unwrap_or_default()
        {
            concerned.append(&mut entry.remove());
        }
        if let Some((namespace, name)) = object
            && !self.objects.is_empty()
            && let Some(mut waiting) = self.objects.remove(&Key::new(namespace, name))
        {
            concerned.append(&mut waiting);
        }
        concerned
    }
}

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Self { keys: BTreeMap::new(), stores: BTreeMap::new() }
    }
}

impl<K> Default for Places<K> {
    fn default() -> Self {
        Self { versions: BTreeMap::new(), objects: BTreeMap::new() }
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
        f.debug_set().entries(self.waiting.lock().keys.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use kubeocean_model::action::{Dependents, kinds};
    use kubeocean_model::key::Virtual;
    use kubeocean_model::object::Object;
    use serde_json::json;

    use super::*;
    use crate::apply::Written;
    use crate::progress::Listed;
    use crate::queue::Retry;

    fn store_with(names: usize) -> Store<Virtual, Object> {
        let store = Store::new(&[], None);
        for n in 0..names {
            let meta =
                json!({"namespace": "web", "name": format!("p{n}"), "uid": "u", "resourceVersion": "1"});
            store.put(Object::from_value(json!({"metadata": meta})).unwrap(), &|_| {});
        }
        store
    }

    fn close(fences: &Fences<String>, store: &Store<Virtual, Object>, n: usize, version: Option<u64>) {
        let verb = Verb::Delete { grace: None, dependents: Dependents::default() };
        let action = Action::new(kinds::POD, &Key::<Virtual>::new("web", format!("p{n}")), verb, "the test");
        let before = Followed::new(kinds::POD, store).before(&action);
        let resource_version = version.map(|version| version.to_string());
        let outcome = Outcome::Done(Box::new(Written { resource_version, ..Written::default() }));
        fences.close(&format!("p{n}"), before.wait_for(&action, &outcome).into_iter().collect());
    }

    #[tokio::test(start_paused = true)]
    async fn each_key_opens_with_its_own_sighting() {
        let store = store_with(3);
        let fences = Fences::new();
        let queue = Queue::new("test", Retry::default(), &crate::metrics::Metrics::new("test"));
        fences.open_into(&queue, store.progress());
        close(&fences, &store, 0, Some(5));
        close(&fences, &store, 1, Some(9));
        close(&fences, &store, 2, None);
        store.progress().saw(Some(5), None);
        assert!(fences.is_open(&"p0".into()) && !fences.is_open(&"p1".into()));
        assert!(!fences.is_open(&"p2".into()), "only its own object, or a list, can tell");
        store.remove(&Key::new("web", "p2"), &|_| {});
        store.progress().saw(Some(6), Some(("web", "p2")));
        assert!(fences.is_open(&"p2".into()) && !fences.is_open(&"p1".into()));
        let number = store.progress().begin_list();
        store.progress().end_list(Listed { number, connection: 0 }, Some(2));
        assert!(
            fences.is_open(&"p1".into()),
            "a list that began after the write has seen it, whatever it counts"
        );
        assert_eq!(queue.sizes().ready, 3, "each was put into the queue when it opened");
    }

    #[tokio::test]
    async fn an_event_asks_only_those_whom_it_may_concern() {
        let store = store_with(1_000);
        let fences = Fences::new();
        for n in 0..1_000 {
            close(&fences, &store, n, Some(n as u64 + 1).filter(|_| n % 2 == 0));
        }
        let mut waiting = fences.waiting.lock();
        let places = waiting.stores.get_mut(&store.progress().id()).unwrap();
        assert_eq!(places.concerned(Some(1), None), BTreeSet::from(["p0".to_owned()]));
        assert_eq!(places.concerned(Some(2), Some(("web", "p7"))), BTreeSet::from(["p7".to_owned()]));
        assert_eq!(places.concerned(Some(2), Some(("web", "p7"))), BTreeSet::new());
    }
}

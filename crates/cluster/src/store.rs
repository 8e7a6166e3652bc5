//! What we know of one kind of objects in one cluster.
//!
//! A store is written by its [`Informer`](crate::informer::Informer) and read by everyone else. Reading never waits
//! for a network. What is kept of an object is the reader's choice: a [`Shape`].
//!
//! Deliberately absent: how the objects came here, and what should be done about them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use kubeocean_model::bind::BindingObject;
use kubeocean_model::key::Key;
use kubeocean_model::object::Object;
use parking_lot::RwLock;

use crate::doubt::Doubts;
use crate::progress::Progress;

/// What a store keeps of an object.
///
/// Making one cannot fail: a shape that parses keeps the error as a part of itself, so that one bad
/// object never stops the others.
pub trait Shape: Send + Sync + 'static {
    /// Takes what it needs.
    fn of(object: Object) -> Self;
}

impl Shape for Object {
    fn of(object: Object) -> Self {
        object
    }
}

impl Shape for BindingObject {
    fn of(object: Object) -> Self {
        Self::read(&object)
    }
}

/// An object in a store.
#[derive(Debug)]
pub struct Entry<T> {
    /// Which of all objects of that name this is.
    pub uid: Box<str>,
    /// Its version, for preconditions.
    pub resource_version: Box<str>,
    /// Whether someone asked for its deletion.
    pub leaving: bool,
    value: T,
}

impl<T> Deref for Entry<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A way to look objects up: the words under which each is found.
#[derive(Debug)]
pub struct Index<T> {
    name: &'static str,
    words: fn(&T) -> Vec<String>,
}

impl<T> Index<T> {
    /// An index; its name is what tells it from the others of the store.
    pub const fn new(name: &'static str, words: fn(&T) -> Vec<String>) -> Self {
        Self { name, words }
    }
}

/// One change of a store, for whoever wants to know which keys to look at.
#[derive(Debug)]
pub struct Change<'a, S, T> {
    /// Which object.
    pub key: &'a Key<S>,
    /// As it was known before.
    pub old: Option<&'a Arc<Entry<T>>>,
    /// As it is known now; `None`: it is gone.
    pub new: Option<&'a Arc<Entry<T>>>,
}

/// All objects of one kind. Clones are the same store.
pub struct Store<S, T> {
    contents: Arc<RwLock<Contents<S, T>>>,
    progress: Progress,
    doubts: Arc<Doubts<S>>,
    namespace: Option<Arc<str>>,
}

struct Contents<S, T> {
    entries: BTreeMap<Key<S>, Marked<T>>,
    indexes: Vec<Lookup<S, T>>,
    /// Which list is being taken in; what an older one brought is swept when it ends.
    round: u64,
}

struct Marked<T> {
    entry: Arc<Entry<T>>,
    round: u64,
}

struct Lookup<S, T> {
    name: &'static str,
    words: fn(&T) -> Vec<String>,
    keys: BTreeMap<String, BTreeSet<Key<S>>>,
}

impl<S, T: Shape> Store<S, T> {
    pub(crate) fn new(indexes: &[&Index<T>], namespace: Option<&str>) -> Self {
        let indexes = indexes
            .iter()
            .map(|index| Lookup { name: index.name, words: index.words, keys: BTreeMap::new() })
            .collect();
        let contents = Contents { entries: BTreeMap::new(), indexes, round: 0 };
        Self {
            contents: Arc::new(RwLock::new(contents)),
            progress: Progress::default(),
            doubts: Arc::default(),
            namespace: namespace.map(Arc::from),
        }
    }

    /// One object.
    pub fn get(&self, key: &Key<S>) -> Option<Arc<Entry<T>>> {
        self.contents.read().entries.get(key).map(|marked| Arc::clone(&marked.entry))
    }

    /// Whether objects of this namespace can be in it.
    pub(crate) fn covers(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|own| own == namespace)
    }

    /// The objects found under a word, in the order of their keys. The index must be one that the informer was
    /// given ([`Builder::indexed_by`](crate::informer::Builder::indexed_by)).
    pub fn by(&self, index: &Index<T>, word: &str) -> Vec<Arc<Entry<T>>> {
        let contents = self.contents.read();
        contents
            .keys_by(index, word)
            .filter_map(|key| contents.entries.get(key).map(|marked| Arc::clone(&marked.entry)))
            .collect()
    }

    /// Their keys alone.
    pub fn keys_by(&self, index: &Index<T>, word: &str) -> Vec<Key<S>> {
        self.contents.read().keys_by(index, word).cloned().collect()
    }

    /// Everything, in the order of the keys.
    pub fn all(&self) -> Vec<(Key<S>, Arc<Entry<T>>)> {
        let contents = self.contents.read();
        contents.entries.iter().map(|(key, marked)| (key.clone(), Arc::clone(&marked.entry))).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.contents.read().entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How far it has come: whether it was ever complete, and what it has seen.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The words of an index under which anything is found.
    pub fn words(&self, index: &Index<T>) -> Vec<String> {
        let contents = self.contents.read();
        let known = contents.indexes.iter().find(|known| known.name == index.name);
        known.map_or_else(Vec::new, |known| known.keys.keys().cloned().collect())
    }

    /// A server contradicted what is known of this object. If that is still so in a while, the informer lists anew.
    /// Whoever wrote assumed this version.
    pub fn doubt(&self, key: &Key<S>, version: &str) {
        if self.get(key).is_some_and(|entry| *entry.resource_version == *version) {
            self.doubts.add(key, version);
        }
    }

    /// The server is only now listened to again: it gets its time to say what it has to say.
    pub(crate) fn postpone_doubts(&self) {
        self.doubts.postpone();
    }

    /// Waits until a doubt proves right: the store should have heard by now, and has not.
    pub(crate) async fn contradicted(&self) {
        loop {
            let (key, version) = self.doubts.next().await;
            if self.get(&key).is_some_and(|entry| *entry.resource_version == *version) {
                return;
            }
        }
    }

    /// A list brought this object, in a form that cannot be read: what is known of it stays.
    pub(crate) fn leave(&self, key: &Key<S>) {
        let mut contents = self.contents.write();
        let round = contents.round;
        if let Some(known) = contents.entries.get_mut(key) {
            known.round = round;
        }
    }

    /// A list begins: what is not put again before [`Store::end_list`] is gone.
    pub(crate) fn begin_list(&self) {
        self.contents.write().round += 1;
    }

    /// The list is complete; what it did not bring goes.
    pub(crate) fn end_list(&self, changed: &dyn Fn(&Change<'_, S, T>)) {
        let vanished: Vec<Key<S>> = {
            let contents = self.contents.read();
            let old = contents.entries.iter().filter(|(_, marked)| marked.round < contents.round);
            old.map(|(key, _)| key.clone()).collect()
        };
        for key in vanished {
            self.remove(&key, changed);
        }
    }

    /// Takes an object in. What is the same version of the same object changes nothing, unless a list brings it: a restored
    /// etcd counts up to the same versions again, with other content.
    pub(crate) fn put(&self, object: Object, changed: &dyn Fn(&Change<'_, S, T>)) {
        let key = object.key();
        let uid = object.meta.uid.clone();
        let resource_version = object.meta.resource_version.clone();
        let leaving = object.meta.is_deleting();
        {
            let contents = self.contents.read();
            let round = contents.round;
            if let Some(known) = contents.entries.get(&key)
                && known.entry.uid == uid
                && known.entry.resource_version == resource_version
                && known.round == round
            {
                return;
            }
        }
        let new = Arc::new(Entry { uid, resource_version, leaving, value: T::of(object) });
        let old = self.contents.write().put(&key, &new);
        match old {
            // Another object of the same name: the first one was deleted, and someone may wait for that.
            Some(old) if old.uid != new.uid => {
                changed(&Change { key: &key, old: Some(&old), new: None });
                changed(&Change { key: &key, old: None, new: Some(&new) });
            }
            old => changed(&Change { key: &key, old: old.as_ref(), new: Some(&new) }),
        }
    }

    /// Forgets an object.
    pub(crate) fn remove(&self, key: &Key<S>, changed: &dyn Fn(&Change<'_, S, T>)) {
        let old = self.contents.write().remove(key);
        if let Some(old) = old {
            changed(&Change { key, old: Some(&old), new: None });
        }
    }
}

impl<S, T> Contents<S, T> {
    fn keys_by<'a>(&'a self, index: &Index<T>, word: &str) -> impl Iterator<Item = &'a Key<S>> {
        let known = self.indexes.iter().find(|known| known.name == index.name);
        debug_assert!(known.is_some(), "the store has no index {}: give it to the informer", index.name);
        known.and_then(|known| known.keys.get(word)).into_iter().flatten()
    }

    fn put(&mut self, key: &Key<S>, entry: &Arc<Entry<T>>) -> Option<Arc<Entry<T>>> {
        let marked = Marked { entry: Arc::clone(entry), round: self.round };
        let old = self.entries.insert(key.clone(), marked).map(|marked| marked.entry);
        for index in &mut self.indexes {
            if let Some(old) = &old {
                index.take_out(key, old);
            }
            for word in (index.words)(entry) {
                index.keys.entry(word).or_default().insert(key.clone());
            }
        }
        old
    }

    fn remove(&mut self, key: &Key<S>) -> Option<Arc<Entry<T>>> {
        let old = self.entries.remove(key)?.entry;
        for index in &mut self.indexes {
            index.take_out(key, &old);
        }
        Some(old)
    }
}

impl<S, T> Lookup<S, T> {
    fn take_out(&mut self, key: &Key<S>, entry: &Entry<T>) {
        for word in (self.words)(entry) {
            if let Some(keys) = self.keys.get_mut(&word) {
                keys.remove(key);
                if keys.is_empty() {
                    self.keys.remove(&word);
                }
            }
        }
    }
}

impl<S, T> Clone for Store<S, T> {
    fn clone(&self) -> Self {
        Self {
            contents: Arc::clone(&self.contents),
            progress: self.progress.clone(),
            doubts: Arc::clone(&self.doubts),
            namespace: self.namespace.clone(),
        }
    }
}

impl<S, T> std::fmt::Debug for Store<S, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let entries = self.contents.read().entries.len();
        f.debug_struct("Store").field("entries", &entries).finish_non_exhaustive()
    }
}

/// For benchmarks: a store without an informer.
#[doc(hidden)]
pub mod bench {
    use super::{Index, Object, Shape, Store};

    /// Decodes and takes in.
    pub fn fill<'a, S, T: Shape>(
        indexes: &[&Index<T>],
        objects: impl Iterator<Item = &'a str>,
    ) -> Store<S, T> {
        let store = Store::new(indexes, None);
        for object in objects.filter_map(|text| serde_json::from_str::<Object>(text).ok()) {
            store.put(object, &|_| {});
        }
        store
    }
}

#[cfg(test)]
mod tests {
    use kubeocean_model::key::Virtual;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;

    static BY_NODE: Index<Object> =
        Index::new("node", |pod| pod.text("spec", &["nodeName"]).into_iter().collect());

    static OTHER: Index<Object> = Index::new("other", |_| vec!["n1".to_owned()]);

    fn pod(name: &str, uid: &str, version: &str, node: &str) -> Object {
        let meta = json!({"namespace": "web", "name": name, "uid": uid, "resourceVersion": version});
        Object::from_value(json!({"metadata": meta, "spec": {"nodeName": node}})).unwrap()
    }

    struct Watched {
        store: Store<Virtual, Object>,
        changes: Mutex<Vec<String>>,
    }

    impl Watched {
        fn new() -> Self {
            Self { store: Store::new(&[&BY_NODE], None), changes: Mutex::default() }
        }

        fn put(&self, object: Object) {
            self.store.put(object, &|change| self.note(change));
        }

        fn note(&self, change: &Change<'_, Virtual, Object>) {
            let side =
                |entry: Option<&Arc<Entry<Object>>>| entry.map_or("-".to_owned(), |e| e.uid.to_string());
            self.changes.lock().push(format!("{} {}>{}", change.key, side(change.old), side(change.new)));
        }

        fn on(&self, node: &str) -> Vec<String> {
            self.store.by(&BY_NODE, node).iter().map(|pod| pod.meta.name.to_string()).collect()
        }
    }

    #[test]
    fn an_index_follows_its_objects() {
        let watched = Watched::new();
        watched.put(pod("a", "1", "1", "n1"));
        watched.put(pod("b", "2", "2", "n1"));
        assert_eq!(watched.on("n1"), ["a", "b"]);
        watched.put(pod("a", "1", "3", "n2"));
        assert_eq!((watched.on("n1"), watched.on("n2")), (vec!["b".to_owned()], vec!["a".to_owned()]));
        watched.store.remove(&Key::new("web", "a"), &|_| {});
        assert!(watched.on("n2").is_empty());
        assert_eq!(watched.store.words(&BY_NODE), ["n1"], "words that nobody is found under are dropped");
    }

    #[test]
    #[should_panic(expected = "give it to the informer")]
    fn an_index_that_nobody_keeps_is_a_mistake_and_not_an_empty_answer() {
        Watched::new().store.by(&OTHER, "n1");
    }

    #[test]
    fn what_a_list_does_not_bring_is_gone() {
        let watched = Watched::new();
        watched.put(pod("a", "1", "1", "n1"));
        watched.put(pod("b", "2", "2", "n1"));
        watched.store.begin_list();
        watched.put(pod("a", "1", "1", "n1"));
        watched.store.end_list(&|change| watched.note(change));
        assert_eq!(*watched.changes.lock(), ["web/a ->1", "web/b ->2", "web/a 1>1", "web/b 2>-"]);
        assert_eq!(watched.on("n1"), ["a"]);
    }

    #[test]
    fn what_a_list_brings_counts_though_its_version_is_known() {
        let watched = Watched::new();
        watched.put(pod("a", "1", "7", "n1"));
        watched.put(pod("a", "1", "7", "n2"));
        assert_eq!(watched.on("n1"), ["a"], "a watch repeats itself");
        watched.store.begin_list();
        watched.put(pod("a", "1", "7", "n2"));
        watched.store.end_list(&|_| {});
        assert_eq!(watched.on("n2"), ["a"], "etcd was restored, and has come to version 7 again");
        assert_eq!(watched.changes.lock().len(), 2);
    }

    #[test]
    fn a_recreated_object_is_a_deletion_and_a_creation() {
        let watched = Watched::new();
        watched.put(pod("a", "1", "1", "n1"));
        watched.put(pod("a", "2", "5", "n1"));
        assert_eq!(*watched.changes.lock(), ["web/a ->1", "web/a 1>-", "web/a ->2"]);
    }
}

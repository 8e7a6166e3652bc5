//! One kind of V's objects, followed everywhere or only in some namespaces.
//!
//! Who may not read all of them has one informer, and one store, per namespace. Whoever looks things up need not know.

use std::sync::Arc;

use kubeocean_cluster::progress::Progress;
use kubeocean_cluster::store::{Entry, Index, Shape, Store};
use kubeocean_model::key::{Key, Virtual};

/// The stores of one kind, in the order of their namespaces. Clones are the same.
pub struct Several<T>(Vec<Part<T>>);

/// One of them, and the namespace that it is of; `None`: of all.
type Part<T> = (Option<Arc<str>>, Store<Virtual, T>);

impl<T: Shape> Clone for Several<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Shape> Several<T> {
    pub(crate) fn of(mut parts: Vec<Part<T>>) -> Self {
        parts.sort_by(|(one, _), (other, _)| one.cmp(other));
        Self(parts)
    }

    fn covering(&self, namespace: &str) -> impl Iterator<Item = &Store<Virtual, T>> {
        let covers = move |of: &Option<Arc<str>>| of.as_deref().is_none_or(|of| of == namespace);
        self.0.iter().filter(move |(of, _)| covers(of)).map(|(_, store)| store)
    }

    /// One object.
    pub fn get(&self, key: &Key<Virtual>) -> Option<Arc<Entry<T>>> {
        self.covering(&key.namespace).find_map(|store| store.get(key))
    }

    /// The objects found under a word.
    pub fn by(&self, index: &Index<T>, word: &str) -> Vec<Arc<Entry<T>>> {
        self.0.iter().flat_map(|(_, store)| store.by(index, word)).collect()
    }

    /// Their keys alone.
    pub fn keys_by(&self, index: &Index<T>, word: &str) -> Vec<Key<Virtual>> {
        self.0.iter().flat_map(|(_, store)| store.keys_by(index, word)).collect()
    }

    /// Everything.
    pub fn all(&self) -> Vec<(Key<Virtual>, Arc<Entry<T>>)> {
        self.0.iter().flat_map(|(_, store)| store.all()).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|(_, store)| store.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How far each store has come.
    pub fn progress(&self) -> impl Iterator<Item = &Progress> {
        self.0.iter().map(|(_, store)| store.progress())
    }
}

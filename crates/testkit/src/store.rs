//! What etcd is to an API server: every version of every object, in the order of its making.
//!
//! Objects are shared, never copied: a version is an [`Arc`] to a value and, once someone asked for it,
//! to its bytes. Nothing is forgotten; [`Store::compacted`] only says what may no longer be asked for.
//!
//! Deliberately absent: any opinion on what an object may be. It was decided before it came here.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// One version of an object, and its bytes once they were needed.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) value: Arc<Value>,
    bytes: OnceLock<Bytes>,
    item: OnceLock<Bytes>,
}

/// A shared version.
pub(crate) type Shared = Arc<Object>;

impl Object {
    pub(crate) fn new(value: Value) -> Shared {
        Arc::new(Self { value: Arc::new(value), bytes: OnceLock::new(), item: OnceLock::new() })
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        self.bytes.get_or_init(|| serde_json::to_vec(&*self.value).unwrap_or_default().into())
    }

    /// As an item of a list of built-in objects, which name no kind.
    pub(crate) fn item(&self) -> &Bytes {
        self.item.get_or_init(|| serde_json::to_vec(&Item(&self.value)).unwrap_or_default().into())
    }
}

struct Item<'a>(&'a Value);

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.0.as_object().into_iter().flatten();
        serializer.collect_map(fields.filter(|(key, _)| *key != "kind" && *key != "apiVersion"))
    }
}

/// Where an object is. Ordered as etcd orders its keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) kind: u32,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl Key {
    pub(crate) fn new(kind: u32, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// The object is new.
    Create,
    /// The object has another content.
    Update,
    /// The object is gone.
    Delete,
}

/// One change.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) revision: u64,
    pub(crate) actor: Arc<str>,
    pub(crate) at: Timestamp,
    pub(crate) key: Key,
    pub(crate) old: Option<Shared>,
    pub(crate) new: Option<Shared>,
    /// The old content under the new revision: what a watch shows of an object that left.
    gone: OnceLock<Shared>,
}

impl Entry {
    pub(crate) fn verb(&self) -> Verb {
        match (&self.old, &self.new) {
            (None, _) => Verb::Create,
            (Some(_), Some(_)) => Verb::Update,
            (Some(_), None) => Verb::Delete,
        }
    }

    pub(crate) fn gone(&self) -> Option<&Shared> {
        let old = self.old.as_ref()?;
        Some(self.gone.get_or_init(|| {
            let mut value = (*old.value).clone();
            value["metadata"]["resourceVersion"] = self.revision.to_string().into();
            Object::new(value)
        }))
    }
}

/// All versions of one object, oldest first; `None` where it did not exist.
type Versions = Vec<(u64, Option<Shared>)>;

/// See the module.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) revision: u64,
    /// Revisions below this one cannot be read any more.
    pub(crate) compacted: u64,
    versions: BTreeMap<Key, Versions>,
    live: BTreeMap<Key, Shared>,
    log: Vec<Arc<Entry>>,
    by_kind: BTreeMap<u32, Vec<Arc<Entry>>>,
}

impl Store {
    pub(crate) fn new() -> Self {
        // etcd's first revision.
        Self { revision: 1, ..Self::default() }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Shared> {
        self.live.get(key)
    }

    /// Makes a change. `new` carries no resource version yet.
    pub(crate) fn commit(
        &mut self,
        key: Key,
        new: Option<Value>,
        actor: &Arc<str>,
        at: Timestamp,
    ) -> Arc<Entry> {
        self.revision += 1;
        let revision = self.revision;
        let new = new.map(|mut value| {
            value["metadata"]["resourceVersion"] = revision.to_string().into();
            Object::new(value)
        });
        let old = match &new {
            Some(object) => self.live.insert(key.clone(), object.clone()),
            None => self.live.remove(&key),
        };
        self.versions.entry(key.clone()).or_default().push((revision, new.clone()));
        let kind = key.kind;
        let entry =
            Arc::new(Entry { revision, actor: actor.clone(), at, key, old, new, gone: OnceLock::new() });
        self.log.push(entry.clone());
        self.by_kind.entry(kind).or_default().push(entry.clone());
        entry
    }

    /// Live objects of a kind, in order; `after` a key and in one namespace if given.
    pub(crate) fn live(&self, kind: u32, namespace: Option<&str>) -> impl Iterator<Item = (&Key, &Shared)> {
        let from = Key::new(kind, namespace.unwrap_or_default(), "");
        let namespace = namespace.map(str::to_owned);
        self.live.range(from..).take_while(move |(key, _)| {
            key.kind == kind && namespace.as_deref().is_none_or(|wanted| *key.namespace == *wanted)
        })
    }

    /// The objects as they were at a revision.
    pub(crate) fn at(
        &self,
        revision: u64,
        kind: u32,
        namespace: Option<&str>,
        after: Option<&Key>,
    ) -> Vec<(Key, Shared)> {
        let from = match after {
            Some(key) => Bound::Excluded(key.clone()),
            None => Bound::Included(Key::new(kind, namespace.unwrap_or_default(), "")),
        };
        if revision >= self.revision {
            let of_kind = self.live.range((from, Bound::Unbounded));
            return of_kind
                .take_while(|(key, _)| key.kind == kind && namespace.is_none_or(|one| *key.namespace == *one))
                .map(|(key, object)| (key.clone(), object.clone()))
                .collect();
        }
        self.versions
            .range((from, Bound::Unbounded))
            .take_while(|(key, _)| key.kind == kind && namespace.is_none_or(|one| *key.namespace == *one))
            .filter_map(|(key, versions)| {
                let until = versions.partition_point(|(made, _)| *made <= revision);
                let object = versions.get(until.checked_sub(1)?)?.1.clone()?;
                Some((key.clone(), object))
            })
            .collect()
    }

    /// Changes after a revision.
    pub(crate) fn since(&self, revision: u64) -> &[Arc<Entry>] {
        &self.log[self.log.partition_point(|entry| entry.revision <= revision)..]
    }

    /// Changes to a kind after a revision.
    pub(crate) fn since_of(&self, kind: u32, revision: u64) -> &[Arc<Entry>] {
        let log = self.by_kind.get(&kind).map_or(&[][..], Vec::as_slice);
        &log[log.partition_point(|entry| entry.revision <= revision)..]
    }

    /// The newest revision of a kind.
    pub(crate) fn newest_of(&self, kind: u32) -> u64 {
        self.by_kind.get(&kind).and_then(|log| log.last()).map_or(0, |entry| entry.revision)
    }

    /// Goes back to what was: later changes never happened.
    pub(crate) fn restore(&mut self, revision: u64) {
        let revision = revision.min(self.revision);
        self.revision = revision;
        self.compacted = self.compacted.min(revision);
        self.log.truncate(self.log.partition_point(|entry| entry.revision <= revision));
        for log in self.by_kind.values_mut() {
            log.truncate(log.partition_point(|entry| entry.revision <= revision));
        }
        self.live.clear();
        self.versions.retain(|key, versions| {
            versions.truncate(versions.partition_point(|(made, _)| *made <= revision));
            if let Some((_, Some(object))) = versions.last() {
                self.live.insert(key.clone(), object.clone());
            }
            !versions.is_empty()
        });
    }
}

//! Names of objects, on one side or the other.
//!
//! The two sides are types, so that a name of the computing cluster cannot be looked up in a worker.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;

/// The computing cluster, as a type.
#[derive(Clone, Copy, Debug)]
pub enum Virtual {}

/// A worker cluster, as a type.
#[derive(Clone, Copy, Debug)]
pub enum Physical {}

/// The two sides, as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The computing cluster.
    Virtual,
    /// A worker cluster.
    Physical,
}

impl Side {
    /// The word for it, in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Physical => "physical",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What [`Virtual`] and [`Physical`] are.
pub trait OnSide: Copy + Send + Sync + 'static {
    /// The same as a value.
    const SIDE: Side;
}

impl OnSide for Virtual {
    const SIDE: Side = Side::Virtual;
}

impl OnSide for Physical {
    const SIDE: Side = Side::Physical;
}

/// Namespace and name of an object on side `S`. The namespace of a cluster-scoped object is empty.
pub struct Key<S> {
    /// Empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    side: PhantomData<fn() -> S>,
}

impl<S> Key<S> {
    /// A namespaced object.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into(), side: PhantomData }
    }

    /// An object without a namespace.
    pub fn cluster_scoped(name: impl Into<Arc<str>>) -> Self {
        Self::new("", name)
    }
}

impl<S> Clone for Key<S> {
    fn clone(&self) -> Self {
        Self { namespace: Arc::clone(&self.namespace), name: Arc::clone(&self.name), side: PhantomData }
    }
}

impl<S> PartialEq for Key<S> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.namespace == other.namespace
    }
}

impl<S> Eq for Key<S> {}

impl<S> PartialOrd for Key<S> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<S> Ord for Key<S> {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.namespace, &self.name).cmp(&(&other.namespace, &other.name))
    }
}

impl<S> Hash for Key<S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.namespace.hash(state);
        self.name.hash(state);
    }
}

impl<S> fmt::Display for Key<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

impl<S> fmt::Debug for Key<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

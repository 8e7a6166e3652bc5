//! What pods of virtual nodes use, as a kubelet would say it: `/metrics/resource` and `/metrics/cadvisor`.
//!
//! A worker's kubelet speaks of all that runs on its machine. Only what is said of [`Tenants`] leaves: pods of this binding on this node, under
//! their V names. Which P pods those are is the caller's word, from twins that carry our stamp; a name that is not among them does not leave,
//! whatever else its line says.
//!
//! What a virtual node uses is what its pods use, never what the machine does:
//! [`Meters`] add it up. Numbers that were taken longer ago than [`Freshness`] allows are dropped, not repeated: whoever reads them sees that there are none.
//!
//! - [`Resource`] reads a kubelet's `/metrics/resource`, [`PodMetrics`] what `metrics.k8s.io` of the worker cluster says instead. Both
//!   give a [`Usage`], and [`Meters::answer`] makes the text of it that metrics-server reads.
//! - [`Cadvisor`] rewrites a kubelet's `/metrics/cadvisor` while it comes. There is nothing else to make that from.
//!
//! Deliberately absent: how kubelets are reached, how often, and how long an answer is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kubeocean_api::keys::annotations;

use crate::key::{Key, Virtual};
use crate::object::Meta;
use crate::stamp::Stamp;

mod cadvisor;
mod meters;
mod pod_metrics;
mod resource;
#[cfg(test)]
mod tests;

pub use cadvisor::Cadvisor;
pub use meters::Meters;
pub use pod_metrics::{PodMetrics, PodMetricsError};
pub use resource::Resource;

/// A pod of V, behind its twin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its V name.
    pub key: Key<Virtual>,
    /// Its V uid.
    pub uid: Arc<str>,
    /// The containers of its V spec, of all three kinds. What a worker cluster adds to a twin is not said of the pod, only counted in its sums.
    pub containers: Box<[Box<str>]>,
    /// Whether it uses the network of the machine: what cadvisor then says of its network is the machine's, with an interface for every pod on it.
    pub host_network: bool,
}

impl Tenant {
    /// The V pod that a twin serves, if the twin carries our stamp and says whose it is. `containers` and `host_network` are those of the V pod.
    pub fn of_twin(
        stamp: &Stamp<'_>,
        twin: &Meta,
        containers: impl IntoIterator<Item = Box<str>>,
        host_network: bool,
    ) -> Option<Self> {
        let said = |key| twin.annotations.get(key).filter(|value: &&str| !value.is_empty());
        if !stamp.is_ours(twin) {
            return None;
        }
        Some(Self {
            key: Key::new(said(annotations::VIRTUAL_POD_NAMESPACE)?, said(annotations::VIRTUAL_POD_NAME)?),
            uid: said(annotations::VIRTUAL_POD_UID)?.into(),
            containers: containers.into_iter().collect(),
            host_network,
        })
    }

    fn has(&self, container: &str) -> bool {
        self.containers.iter().any(|one| &**one == container)
    }
}

/// The pods of this binding on one node, by the names of their twins.
///
/// It should be complete before it is first used: a pod that comes in later is taken for one that has just started.
#[derive(Clone, Debug, Default)]
pub struct Tenants {
    mount_namespace: Box<str>,
    by_twin: BTreeMap<Box<str>, Tenant>,
}

impl Tenants {
    /// None yet, in this namespace of the worker cluster.
    pub fn new(mount_namespace: &str) -> Self {
        Self { mount_namespace: mount_namespace.into(), by_twin: BTreeMap::new() }
    }

    /// The P pod of this name, in the mount namespace, serves this one.
    pub fn insert(&mut self, twin: &str, tenant: Tenant) {
        self.by_twin.insert(twin.into(), tenant);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_twin.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_twin.is_empty()
    }

    /// Whom a P pod serves.
    fn behind(&self, namespace: &str, pod: &str) -> Option<&Tenant> {
        if self.mount_namespace.is_empty() || *self.mount_namespace != *namespace {
            return None;
        }
        self.by_twin.get(pod)
    }

    fn all(&self) -> impl Iterator<Item = &Tenant> {
        self.by_twin.values()
    }
}

/// Which numbers are of now.
#[derive(Clone, Copy, Debug)]
pub struct Freshness {
    now: i64,
    limit: i64,
}

impl Freshness {
    /// Those that were taken within `limit` of `now`, before or after: a clock that is ahead is as wrong as one that is behind.
    pub fn new(now: Timestamp, limit: SignedDuration) -> Self {
        let limit = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX).max(0);
        Self { now: now.as_millisecond(), limit }
    }

    /// A number without a time was taken when it was asked for.
    fn moment(self, at: Option<i64>) -> i64 {
        at.unwrap_or(self.now)
    }

    fn allows(self, at: Option<i64>) -> bool {
        at.is_none_or(|at| {
            i128::from(at).abs_diff(i128::from(self.now)) <= u128::from(self.limit.unsigned_abs())
        })
    }
}

/// What became of the lines of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Numbers of ours.
    pub kept: u64,
    /// Numbers of other pods, of the machine, and of families that do not leave.
    pub foreign: u64,
    /// Numbers that were too old.
    pub stale: u64,
    /// Lines that are not in the format, and numbers that cannot be.
    pub nonsense: u64,
}

/// What was used, of pods of V.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    pods: BTreeMap<Arc<str>, PodUsage>,
    /// When the node was last looked at, as far as that is fresh.
    looked: Option<i64>,
    /// Whether something of ours was dropped because it was old.
    stale: bool,
    /// What the kubelet says of its own trouble.
    errors: Vec<(&'static str, f64)>,
}

/// What one pod used.
#[derive(Clone, Debug)]
struct PodUsage {
    key: Key<Virtual>,
    whole: Amounts,
    containers: BTreeMap<Box<str>, Amounts>,
}

/// What a pod or a container used.
#[derive(Clone, Copy, Debug, Default)]
struct Amounts {
    cpu: Option<Cpu>,
    memory: Option<Point>,
    swap: Option<Point>,
    swap_limit: Option<Point>,
    start: Option<Point>,
}

/// CPU time: all of it since the start, or how fast it was used of late.
#[derive(Clone, Copy, Debug)]
enum Cpu {
    Total(Point),
    Rate(Point),
}

/// A number, and when it was taken. `stamped` says whether it came with that time.
#[derive(Clone, Copy, Debug)]
struct Point {
    value: f64,
    at: i64,
    stamped: bool,
}

impl PodUsage {
    fn amounts(&self) -> impl Iterator<Item = &Amounts> {
        std::iter::once(&self.whole).chain(self.containers.values())
    }
}

impl Amounts {
    /// Kubelets give no time with a start, so that alone says nothing of now.
    fn is_measured(&self) -> bool {
        self.cpu.is_some() || self.memory.is_some()
    }
}

impl Usage {
    fn pod(&mut self, tenant: &Tenant) -> &mut PodUsage {
        self.pods.entry(Arc::clone(&tenant.uid)).or_insert_with(|| PodUsage {
            key: tenant.key.clone(),
            whole: Amounts::default(),
            containers: BTreeMap::new(),
        })
    }

    /// Then nothing is known of the pods, which is not the same as pods that use nothing.
    fn is_all_stale(&self) -> bool {
        self.stale && !self.pods.values().any(|pod| pod.amounts().any(Amounts::is_measured))
    }

    fn looked_at(&mut self, at: i64) {
        self.looked = self.looked.max(Some(at));
    }
}

/// More CPU seconds or bytes than any machine has: what is larger, negative or no number at all is nonsense.
const MOST: f64 = 1e18;

fn is_amount(value: f64) -> bool {
    (0.0..=MOST).contains(&value)
}

//! What a node offers, under which policy, and why.
//!
//! [`Explanation::of`] answers for one node: which policies were looked at and what became of each, which one
//! counts on each side, how every offered number came about, and whether the lease is open now. Whoever
//! needs only the answer takes [`Explanation::outcome`]; whoever questions it prints all of it.
//!
//! If the worker cluster serves policies, the lender's word is required and the borrower's only narrows. Where
//! it does not serve them, the borrower's counts alone. Where they are served but cannot be read,
//! nobody knows the lender's word, and nothing *new* is leased.
//!
//! Deliberately absent: what is done about a lease that closes, and every write.

mod choice;
mod ledger;
mod offer;
mod policy;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kubeocean_api::keys::{labels, reasons};

use crate::binding::Binding;
use crate::key::Side;
use crate::resources::Resources;
use crate::selector::{Labels, Mismatch};
use crate::window::{Edge, Schedule};

pub use choice::{Choice, Considered, Verdict};
pub use ledger::{Ledger, Share, User};
pub use offer::{AppliedLimit, Offer};
pub use policy::{Cap, Invalid, Limit, Policy, PolicyFault};

/// A policy as it was read: one that can be followed, or why not.
pub type Candidate = Result<Arc<Policy>, Arc<Invalid>>;

/// What the worker cluster says about policies.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkerPolicies {
    /// It has no such resource: the borrower's policies count alone.
    NotServed,
    /// It has, and does not let us read it.
    Unreadable,
    /// These.
    Served(Vec<Candidate>),
}

/// All policies there are, on both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Policies {
    /// The lender's word.
    pub worker: WorkerPolicies,
    /// The borrower's.
    pub computing: Vec<Candidate>,
}

/// What has to be known of a P node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// `status.allocatable`.
    pub allocatable: Resources,
    /// `status.capacity`; counts where nothing is allocatable.
    pub capacity: Resources,
}

impl Node {
    /// What there is to share.
    pub fn base(&self) -> &Resources {
        if self.allocatable.is_empty() { &self.capacity } else { &self.allocatable }
    }

    /// The label that says that no machine of its own is behind this node, if it has one.
    pub fn exclusion(&self) -> Option<(&'static str, &str)> {
        let value = |key: &'static str| self.labels.get(key).map(|value| (key, value.as_str()));
        let by_type = value(labels::INSTANCE_TYPE)
            .filter(|(_, instance_type)| labels::EXCLUDED_INSTANCE_TYPES.contains(instance_type));
        by_type.or_else(|| value(labels::TYPE).filter(|(_, kind)| *kind == labels::TYPE_VIRTUAL_KUBELET))
    }
}

/// The policies that count for a node: at least one.
#[derive(Clone, Debug, PartialEq)]
pub enum Winners {
    /// The lender's alone.
    Worker(Arc<Policy>),
    /// The borrower's alone; the worker serves no policies.
    Computing(Arc<Policy>),
    /// Both: the smaller offer, and only while both are open.
    Both {
        /// The lender's.
        worker: Arc<Policy>,
        /// The borrower's.
        computing: Arc<Policy>,
    },
}

impl Winners {
    /// The lender's policy, if it is one of them.
    pub fn worker(&self) -> Option<&Arc<Policy>> {
        match self {
            Self::Worker(policy) | Self::Both { worker: policy, .. } => Some(policy),
            Self::Computing(_) => None,
        }
    }

    /// The borrower's policy, if it is one of them.
    pub fn computing(&self) -> Option<&Arc<Policy>> {
        match self {
            Self::Computing(policy) | Self::Both { computing: policy, .. } => Some(policy),
            Self::Worker(_) => None,
        }
    }

    /// Each with its side, the lender's first.
    pub fn iter(&self) -> impl Iterator<Item = (Side, &Policy)> {
        let worker = self.worker().map(|policy| (Side::Physical, policy.as_ref()));
        worker.into_iter().chain(self.computing().map(|policy| (Side::Virtual, policy.as_ref())))
    }

    /// When all of them are open.
    pub fn schedule(&self) -> Schedule {
        self.iter().fold(Schedule::always(), |all, (_, policy)| all.and(&policy.schedule))
    }
}

/// A node that is leased.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    /// Under which policies.
    pub winners: Winners,
    /// What is offered of each resource, and how that came about.
    pub offers: BTreeMap<String, Offer>,
    /// Whether the lease is open now.
    pub active: bool,
    /// When that changes next; `None`: never.
    pub next_edge: Option<Edge>,
}

impl Lease {
    /// What is offered, as a virtual node says it.
    pub fn offered(&self) -> Resources {
        self.offers.iter().map(|(resource, offer)| (resource.as_str(), offer.offer)).collect()
    }

    /// Whether it is closed for ever: each side has windows, and they never meet.
    pub const fn never_opens(&self) -> bool {
        !self.active && self.next_edge.is_none()
    }

    /// When the lease closes; `None` if it never does, or is closed.
    pub fn closes_at(&self) -> Option<Timestamp> {
        self.next_edge.filter(|edge| !edge.opens).map(|edge| edge.at)
    }
}

/// Why a node is not leased.
#[derive(Clone, Debug, PartialEq)]
pub enum NoLease {
    /// There is no machine of its own behind the node.
    ExcludedNode {
        /// The label that says so.
        label: &'static str,
        /// Its value.
        value: String,
    },
    /// The binding does not mean this node.
    NotSelected {
        /// The binding.
        binding: String,
        /// Why not.
        why: Mismatch,
    },
    /// The lender's policies cannot be read.
    PermissionDenied {
        /// The binding.
        binding: String,
    },
    /// No policy that counts means this node.
    NoPolicy {
        /// The binding.
        binding: String,
        /// Where one is missing.
        side: Side,
    },
}

impl NoLease {
    /// The reason of the binding's condition, where this is one.
    pub const fn reason(&self) -> Option<reasons::Binding> {
        match self {
            Self::ExcludedNode { .. } | Self::NotSelected { .. } => None,
            Self::PermissionDenied { .. } => Some(reasons::Binding::PermissionDenied),
            Self::NoPolicy { .. } => Some(reasons::Binding::NoPolicy),
        }
    }

    /// Whether a lease that exists has to end. Not when nobody knows what the lender says.
    pub const fn ends_leases(&self) -> bool {
        !matches!(self, Self::PermissionDenied { .. })
    }
}

/// Whether a node is leased.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It is.
    Leased(Lease),
    /// It is not.
    NotLeased(NoLease),
}

/// The answer for one node, with everything that led to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The node.
    pub node: String,
    /// What became of the lender's policies; `None` where they are not served or cannot be read.
    pub worker: Option<Choice>,
    /// What became of the borrower's policies.
    pub computing: Choice,
    /// The answer.
    pub outcome: Outcome,
}

impl Explanation {
    /// What `node` offers to `binding`, when its pods are those of `ledger`.
    pub fn of(binding: &Binding, policies: &Policies, node: &Node, ledger: &Ledger, now: Timestamp) -> Self {
        let worker = match &policies.worker {
            WorkerPolicies::Served(candidates) => Some(Choice::among(candidates, binding, node)),
            WorkerPolicies::NotServed | WorkerPolicies::Unreadable => None,
        };
        let computing = Choice::among(&policies.computing, binding, node);
        let outcome = match winners(binding, &policies.worker, worker.as_ref(), &computing, node) {
            Ok(winners) => Outcome::Leased(lease(winners, node, ledger, now)),
            Err(why) => Outcome::NotLeased(why),
        };
        Self { node: node.name.clone(), worker, computing, outcome }
    }

    /// The lease, if the node is leased.
    pub const fn lease(&self) -> Option<&Lease> {
        match &self.outcome {
            Outcome::Leased(lease) => Some(lease),
            Outcome::NotLeased(_) => None,
        }
    }
}

/// Who decides about the node.
fn winners(
    binding: &Binding,
    served: &WorkerPolicies,
    worker: Option<&Choice>,
    computing: &Choice,
    node: &Node,
) -> Result<Winners, NoLease> {
    if let Some((label, value)) = node.exclusion() {
        return Err(NoLease::ExcludedNode { label, value: value.to_owned() });
    }
    let binding_name = || binding.name.clone();
    if let Err(why) = binding.selector.explain(&node.name, &node.labels) {
        return Err(NoLease::NotSelected { binding: binding_name(), why });
    }
    if matches!(served, WorkerPolicies::Unreadable) {
        return Err(NoLease::PermissionDenied { binding: binding_name() });
    }
    let computing = computing.winner.clone();
    match worker {
        None => computing
            .map(Winners::Computing)
            .ok_or_else(|| NoLease::NoPolicy { binding: binding_name(), side: Side::Virtual }),
        Some(worker) => match (worker.winner.clone(), computing) {
            (None, _) => Err(NoLease::NoPolicy { binding: binding_name(), side: Side::Physical }),
            (Some(worker), None) => Ok(Winners::Worker(worker)),
            (Some(worker), Some(computing)) => Ok(Winners::Both { worker, computing }),
        },
    }
}

fn lease(winners: Winners, node: &Node, ledger: &Ledger, now: Timestamp) -> Lease {
    let schedule = winners.schedule();
    let used = ledger.used();
    let offers = node
        .base()
        .iter()
        .map(|(resource, base)| {
            (resource.to_owned(), Offer::of(resource, base, used.get(resource), ledger, &winners))
        })
        .collect();
    Lease { offers, active: schedule.active(now), next_edge: schedule.next_edge(now), winners }
}

#[cfg(test)]
mod tests;

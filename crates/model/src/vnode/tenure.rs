//! What a virtual node remembers of its lease: under which terms it is leased, since when it is closed, why it leaves.
//!
//! It is written on the node itself before anything is done about it. So the moment from which a grace period counts survives
//! whoever decided on it, and the policy that granted it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::lease::{Lease, NoLease, Policy};

/// What pods have, in seconds, on a node that leaves after someone took away what it remembered while no syncer ran: its policy may be gone,
/// and its grace with it. As much as Kubernetes gives the pods of a node of which it has not heard.
const FORGOTTEN_GRACE: u64 = 300;

/// The lease of one virtual node, as its annotation `policy-details` has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tenure {
    /// The lender's terms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<Terms>,
    /// The borrower's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub computing: Option<Terms>,
    /// Set when the node is about to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaving: Option<Leaving>,
}

/// What one policy said, and what became of its window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terms {
    /// Name of the policy.
    pub policy: String,
    /// What it lets the node offer at most, by resource; where there are several, all of them apply.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Vec<String>>,
    /// Whether pods are removed when its window closes.
    pub force_reclaim: bool,
    /// How many seconds later.
    pub grace_seconds: u64,
    /// When the window that is open closes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closes_at: Option<Timestamp>,
    /// When it closed; `None` while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
    /// While it is closed, when it is to open again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opens_at: Option<Timestamp>,
}

/// Why a node goes, and since when that is so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leaving {
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub cause: Cause,
    /// Seconds that its pods have.
    #[serde(default)]
    pub grace_seconds: u64,
    /// Whether it was cordoned for that, and not by someone else before.
    #[serde(default)]
    pub cordoned: bool,
}

/// Why a virtual node goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The worker cluster's node is gone: what ran there is lost.
    NodeGone,
    /// The binding no longer selects the node.
    NotSelected,
    /// No policy allows it any more.
    NoPolicy,
    /// The node says now that there is no machine behind it.
    Excluded,
    /// The binding is being deleted.
    Unbinding,
    /// Someone deleted the virtual node.
    Deleted,
}

impl Cause {
    /// For people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::NodeGone => "its node no longer exists in the worker cluster",
            Self::NotSelected => "the binding no longer selects it",
            Self::NoPolicy => "no leasing policy allows it any more",
            Self::Excluded => "its node says now that there is no machine behind it",
            Self::Unbinding => "the worker cluster is being unbound",
            Self::Deleted => "someone deleted the virtual node",
        }
    }
}

impl From<&NoLease> for Cause {
    fn from(why: &NoLease) -> Self {
        match why {
            NoLease::ExcludedNode { .. } => Self::Excluded,
            NoLease::NotSelected { .. } => Self::NotSelected,
            NoLease::PermissionDenied { .. } | NoLease::NoPolicy { .. } => Self::NoPolicy,
        }
    }
}

/// That pods have to go, by when, and whom that spares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// When they are removed, whatever they tolerate and however long they would like to take.
    pub deadline: Timestamp,
    /// Pods that tolerate a closed window may stay: only the borrower's own policy spares them.
    pub spares_the_tolerant: bool,
    /// The node is to go: nothing may stay on it.
    pub clears_the_node: bool,
}

impl Terms {
    /// The terms of a policy now. What is remembered of a window that has closed stays.
    fn of(policy: &Policy, before: Option<&Self>, now: Timestamp) -> Self {
        let closed_at = (!policy.schedule.active(now)).then(|| {
            // What the window of another policy did is not this one's: its grace counts from when it counts.
            let before = before.filter(|before| before.policy == policy.name);
            let known = before.and_then(|before| before.closed_at.or(before.closes_at));
            // A window that was cut short closes when that is noticed, and one that nobody watched closed in time.
            let known = known.filter(|at| *at <= now);
            // It may have opened and closed again since then, while nobody watched: the grace counts from the last time.
            let unwatched = before.and_then(|before| before.opens_at.or(before.closes_at));
            let unwatched = unwatched.filter(|at| *at <= now);
            unwatched.and_then(|from| policy.schedule.last_closed(from, now)).or(known).unwrap_or(now)
        });
        let next = policy.schedule.next_edge(now);
        let opens_at = next.filter(|edge| edge.opens).map(|edge| edge.at);
        let mut limits = BTreeMap::<String, Vec<String>>::new();
        for limit in &policy.limits {
            limits.entry(limit.resource.clone()).or_default().push(limit.cap.in_short());
        }
        Self {
            policy: policy.name.clone(),
            limits,
            force_reclaim: policy.force_reclaim,
            grace_seconds: policy.grace_seconds,
            closes_at: next.filter(|edge| !edge.opens).map(|edge| edge.at),
            closed_at,
            opens_at,
        }
    }

    /// The same terms, of which nobody can say whether they still stand: a window that was to close by now has closed.
    fn passed(&self, now: Timestamp) -> Self {
        match self.closes_at.filter(|at| *at <= now) {
            Some(at) => Self { closed_at: Some(at), closes_at: None, ..self.clone() },
            None => self.clone(),
        }
    }

    fn deadline(&self) -> Option<Timestamp> {
        let closed_at = self.closed_at.filter(|_| self.force_reclaim)?;
        Some(later(closed_at, self.grace_seconds))
    }
}

impl Tenure {
    /// A lease that goes on.
    pub(super) fn of(lease: &Lease, before: Option<&Self>, now: Timestamp) -> Self {
        let terms = |policy: &Policy, known: Option<&Terms>| Terms::of(policy, known, now);
        let (worker, computing) = (lease.winners.worker(), lease.winners.computing());
        Self {
            worker: worker.map(|policy| terms(policy, before.and_then(|before| before.worker.as_ref()))),
            computing: computing
                .map(|policy| terms(policy, before.and_then(|before| before.computing.as_ref()))),
            leaving: None,
        }
    }

    /// A lease that goes on as far as anyone knows, while nobody can read its policies.
    pub(super) fn passed(&self, now: Timestamp) -> Self {
        let passed = |terms: &Option<Terms>| terms.as_ref().map(|terms| terms.passed(now));
        Self {
            worker: passed(&self.worker),
            computing: passed(&self.computing),
            leaving: self.leaving.clone(),
        }
    }

    /// The same lease, on its way out.
    pub(super) fn leave(&self, cause: Cause, cordoned: bool, now: Timestamp) -> Self {
        let known = self.leaving.as_ref();
        // What is lost is lost, also if it was leaving for another reason before.
        let known = known.filter(|known| cause != Cause::NodeGone || known.cause == cause);
        // A clock that was set back would make everyone wait for as long.
        let known = known.filter(|known| known.since <= now);
        let leaving = known.cloned().unwrap_or_else(|| {
            let cordoned = self.leaving.as_ref().map_or(cordoned, |known| known.cordoned);
            let grace_seconds = if cause == Cause::NodeGone { 0 } else { self.last_grace() };
            Leaving { since: now, cause, grace_seconds, cordoned }
        });
        Self { leaving: Some(leaving), ..self.clone() }
    }

    /// The lender's word, if there is one. Where nobody knows it any more, nobody says that there was no grace.
    fn last_grace(&self) -> u64 {
        self.worker.as_ref().or(self.computing.as_ref()).map_or(FORGOTTEN_GRACE, |terms| terms.grace_seconds)
    }

    /// Whether nothing is remembered: every lease has terms, and who leaves knows why.
    pub fn is_forgotten(&self) -> bool {
        self.leaving.is_none() && self.terms().next().is_none()
    }

    /// Whether what ran on it is gone with the machine.
    pub fn is_lost(&self) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| leaving.cause == Cause::NodeGone)
    }

    /// Whether a window is closed.
    pub fn is_closed(&self) -> bool {
        self.terms().any(|terms| terms.closed_at.is_some())
    }

    /// When the lease closes; `None` while it is closed, or if it never does.
    pub fn closes_at(&self) -> Option<Timestamp> {
        if self.is_closed() {
            return None;
        }
        self.terms().filter_map(|terms| terms.closes_at).min()
    }

    fn terms(&self) -> impl Iterator<Item = &Terms> {
        self.worker.iter().chain(&self.computing)
    }

    /// Since when pods have been asked to go.
    pub fn demanded_since(&self) -> Option<Timestamp> {
        let closed = self.terms().filter(|terms| terms.force_reclaim).filter_map(|terms| terms.closed_at);
        closed.chain(self.leaving.iter().map(|leaving| leaving.since)).min()
    }

    /// What is asked of the pods on the node.
    pub fn demands(&self) -> impl Iterator<Item = Demand> {
        let by_terms = |terms: &Option<Terms>, spares_the_tolerant| {
            let deadline = terms.as_ref().and_then(Terms::deadline);
            deadline.map(|deadline| Demand { deadline, spares_the_tolerant, clears_the_node: false })
        };
        let leaving = self.leaving.as_ref().map(|leaving| Demand {
            deadline: later(leaving.since, leaving.grace_seconds),
            spares_the_tolerant: false,
            clears_the_node: true,
        });
        [by_terms(&self.worker, false), by_terms(&self.computing, true), leaving].into_iter().flatten()
    }
}

/// So many seconds later, or never.
fn later(at: Timestamp, seconds: u64) -> Timestamp {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    at.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

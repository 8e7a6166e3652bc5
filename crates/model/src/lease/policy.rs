//! A `ResourceLeasingPolicy`, read once.

use std::fmt;

use jiff::Timestamp;
use kubeocean_api::{ResourceLeasingPolicy, ResourceLimit};

use crate::quantity::{ParseQuantityError, Quantity};
use crate::resources::EPHEMERAL_STORAGE;
use crate::selector::{NodeSelector, SelectorError};
use crate::window::{Schedule, WindowError, Zone};

/// Another name for [`EPHEMERAL_STORAGE`], in policies.
const STORAGE: &str = "storage";

/// A policy that can be followed.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// Uid of the object; empty if it has none.
    pub uid: String,
    /// When it was created: the oldest policy counts.
    pub created: Timestamp,
    /// Name of the binding that it is about.
    pub binding: String,
    /// Which nodes.
    pub selector: NodeSelector,
    /// When.
    pub schedule: Schedule,
    /// How much. A resource may have several limits, and all of them apply.
    pub limits: Vec<Limit>,
    /// Whether pods are removed when the lease closes.
    pub force_reclaim: bool,
    /// How many seconds after it closes they are.
    pub grace_seconds: u64,
}

/// At most so much of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The resource; an alias is resolved.
    pub resource: String,
    /// How much.
    pub cap: Cap,
}

/// A bound on what is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    /// So much.
    Quantity(Quantity),
    /// Such a part of what others leave, in per cent.
    Percent(u8),
    /// The smaller of the two.
    Either {
        /// So much.
        quantity: Quantity,
        /// Such a part of what others leave, in per cent.
        percent: u8,
    },
}

impl Cap {
    /// In short, as annotations have it.
    pub fn in_short(self) -> String {
        match self {
            Self::Quantity(quantity) => quantity.to_string(),
            Self::Percent(percent) => format!("{percent}%"),
            Self::Either { quantity, percent } => format!("{quantity} or {percent}%"),
        }
    }

    /// What it comes to.
    pub fn of(self, remaining: Quantity) -> Quantity {
        match self {
            Self::Quantity(quantity) => quantity,
            Self::Percent(percent) => remaining.percent(percent),
            Self::Either { quantity, percent } => quantity.min(remaining.percent(percent)),
        }
    }
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantity(quantity) => write!(f, "{quantity}"),
            Self::Percent(percent) => write!(f, "{percent} % of what is left"),
            Self::Either { quantity, percent } => write!(f, "{quantity} or {percent} % of what is left"),
        }
    }
}

/// A policy that cannot be followed, and all that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy `{name}` is invalid and leases nothing: {}", list(faults))]
pub struct Invalid {
    /// Its name.
    pub name: String,
    /// Name of the binding that it is about, as written.
    pub binding: String,
    /// What is wrong.
    pub faults: Vec<PolicyFault>,
}

fn list(faults: &[PolicyFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// What can be wrong with a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyFault {
    /// Fields of other types than ours.
    #[error(
        "the object cannot be read: {0}; apply the CustomResourceDefinitions of this version (kubeocean crds)"
    )]
    Unreadable(String),
    /// It names no binding.
    #[error("spec.cluster is empty: name the ClusterBinding that this policy is about")]
    NoBinding,
    /// The object does not come from an API server.
    #[error("metadata.creationTimestamp is missing: read the object from the API server")]
    NoAge,
    /// A selector that cannot be followed.
    #[error("spec.nodeSelector.{0}")]
    Selector(SelectorError),
    /// Windows that cannot be followed.
    #[error("spec.{0}")]
    Window(WindowError),
    /// A limit without a resource.
    #[error("spec.resourceLimits[{index}].resource is empty: name a resource such as cpu")]
    NoResource {
        /// Which limit.
        index: usize,
    },
    /// A limit that limits nothing.
    #[error("spec.resourceLimits[{index}] ({resource}): set quantity, percent or both")]
    NoCap {
        /// Which limit.
        index: usize,
        /// Its resource.
        resource: String,
    },
    /// A quantity that is none.
    #[error("spec.resourceLimits[{index}].quantity ({resource}): {source}")]
    Quantity {
        /// Which limit.
        index: usize,
        /// Its resource.
        resource: String,
        /// What is wrong.
        source: ParseQuantityError,
    },
    /// A quantity below zero.
    #[error("spec.resourceLimits[{index}].quantity ({resource}): {given} is negative: write zero or more")]
    Negative {
        /// Which limit.
        index: usize,
        /// Its resource.
        resource: String,
        /// What was written.
        given: Quantity,
    },
    /// A percentage that is none.
    #[error("spec.resourceLimits[{index}].percent ({resource}): {given} is not a percentage: write 0 to 100")]
    Percent {
        /// Which limit.
        index: usize,
        /// Its resource.
        resource: String,
        /// What was written.
        given: i32,
    },
    /// A delay below zero.
    #[error("spec.gracefulReclaimPeriodSeconds: {0} is negative: write zero or more")]
    Grace(i64),
}

impl Policy {
    /// Reads an object; every fault is named. Windows without a zone are in `default_zone`.
    pub fn parse(object: &ResourceLeasingPolicy, default_zone: &Zone) -> Result<Self, Invalid> {
        let spec = &object.spec;
        let name = object.metadata.name.clone().unwrap_or_default();
        let mut faults = Vec::new();
        if spec.cluster.is_empty() {
            faults.push(PolicyFault::NoBinding);
        }
        let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
        if created.is_none() {
            faults.push(PolicyFault::NoAge);
        }
        let selector = NodeSelector::parse(spec.node_selector.as_ref())
            .inspect_err(|errors| faults.extend(errors.iter().cloned().map(PolicyFault::Selector)));
        let schedule = Schedule::parse(&spec.time_windows, spec.time_zone.as_deref(), default_zone)
            .inspect_err(|errors| faults.extend(errors.iter().cloned().map(PolicyFault::Window)));
        let limits = spec
            .resource_limits
            .iter()
            .enumerate()
            .filter_map(|(index, limit)| read_limit(index, limit, &mut faults))
            .collect();
        let grace = u64::try_from(spec.graceful_reclaim_period_seconds)
            .inspect_err(|_| faults.push(PolicyFault::Grace(spec.graceful_reclaim_period_seconds)));
        match (created, selector, schedule, grace) {
            (Some(created), Ok(selector), Ok(schedule), Ok(grace_seconds)) if faults.is_empty() => Ok(Self {
                name,
                uid: object.metadata.uid.clone().unwrap_or_default(),
                created,
                binding: spec.cluster.clone(),
                selector,
                schedule,
                limits,
                force_reclaim: spec.force_reclaim,
                grace_seconds,
            }),
            _ => Err(Invalid { name, binding: spec.cluster.clone(), faults }),
        }
    }

    /// The limits on one resource.
    pub fn limits_on(&self, resource: &str) -> impl Iterator<Item = Cap> {
        self.limits.iter().filter(move |limit| limit.resource == resource).map(|limit| limit.cap)
    }
}

fn read_limit(index: usize, limit: &ResourceLimit, faults: &mut Vec<PolicyFault>) -> Option<Limit> {
    let before = faults.len();
    let resource = || limit.resource.clone();
    if limit.resource.is_empty() {
        faults.push(PolicyFault::NoResource { index });
    }
    let quantity = limit.quantity.as_ref().map(Quantity::try_from).transpose();
    match &quantity {
        Err(source) => {
            faults.push(PolicyFault::Quantity { index, resource: resource(), source: source.clone() });
        }
        Ok(Some(given)) if given.is_negative() => {
            faults.push(PolicyFault::Negative { index, resource: resource(), given: *given });
        }
        Ok(_) => {}
    }
    let percent = limit.percent.map(|given| match u8::try_from(given) {
        Ok(percent) if percent <= 100 => percent,
        _ => {
            faults.push(PolicyFault::Percent { index, resource: resource(), given });
            0
        }
    });
    let cap = match (quantity.ok().flatten(), percent) {
        (Some(quantity), Some(percent)) => Some(Cap::Either { quantity, percent }),
        (Some(quantity), None) => Some(Cap::Quantity(quantity)),
        (None, Some(percent)) => Some(Cap::Percent(percent)),
        (None, None) => None,
    };
    if cap.is_none() && faults.len() == before {
        faults.push(PolicyFault::NoCap { index, resource: resource() });
    }
    let resource = if limit.resource == STORAGE { EPHEMERAL_STORAGE.to_owned() } else { resource() };
    cap.filter(|_| faults.len() == before).map(|cap| Limit { resource, cap })
}

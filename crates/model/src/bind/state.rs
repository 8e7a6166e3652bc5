//! How a binding's syncer and proxier are run, and how they are.

use std::fmt;

use jiff::Timestamp;
use kubeocean_api::keys::labels;
use serde::Deserialize;

use super::children::{self, Child, Existing, Haste};
use crate::action::{Action, kinds};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Bottom-up and top-down.
    Syncer,
    /// The kubelet API.
    Proxier,
}

impl Role {
    /// Both, in the order in which they are set up.
    pub const ALL: [Self; 2] = [Self::Proxier, Self::Syncer];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Syncer => "syncer",
            Self::Proxier => "proxier",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A template that cannot be used: where, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateFault {
    /// Whose.
    pub role: Role,
    /// Which file, and which line of it; what is wrong and what to do.
    pub message: String,
}

/// How workers are run.
#[derive(Clone, Debug)]
pub enum Hosting<'a> {
    /// As objects of V.
    Deployed {
        /// What should be there; the templates may be broken.
        wanted: Result<&'a [Child], &'a TemplateFault>,
        /// What is there.
        existing: &'a [Existing],
    },
    /// As tasks of the manager.
    Inline {
        /// How the syncer is.
        syncer: TaskState,
        /// How the proxier is.
        proxier: TaskState,
        /// What is there of a time when they were Deployments. It goes first: nothing may run twice.
        existing: &'a [Existing],
    },
}

/// How a task of the manager is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TaskState {
    /// It does not run.
    #[default]
    Stopped,
    /// This program has no such task.
    Missing,
    /// It runs, and is not ready; in its own words.
    Starting(String),
    /// It says that it is ready.
    Ready,
    /// It failed, and is started again.
    Waiting {
        /// Why.
        why: String,
        /// How often it was started again.
        restarts: u32,
        /// When it will be.
        until: Timestamp,
    },
}

/// Whether a worker can do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It can.
    Available,
    /// Not yet.
    Starting(String),
    /// It will not without help.
    Failing(String),
}

impl Hosting<'_> {
    /// What is to be written so that they run.
    pub(super) fn set_up(&self) -> Vec<Action> {
        match self {
            Self::Deployed { wanted: Ok(wanted), existing } => children::heal(wanted, existing),
            // What runs stays.
            Self::Deployed { wanted: Err(_), .. } => Vec::new(),
            // What this program cannot run itself goes on to run as it did.
            Self::Inline { existing, .. } => {
                let replaced =
                    existing.iter().filter(|one| !self.is_missing(one)).cloned().collect::<Vec<_>>();
                children::remove(&replaced, Haste::Orderly)
            }
        }
    }

    /// Whether an object is of a role that this program has no task for.
    fn is_missing(&self, existing: &Existing) -> bool {
        let Self::Inline { syncer, proxier, .. } = self else { return false };
        let role = existing.object.meta.labels.get(labels::COMPONENT);
        [(Role::Syncer, syncer), (Role::Proxier, proxier)]
            .iter()
            .any(|(of, state)| **state == TaskState::Missing && role == Some(of.as_str()))
    }

    /// What there is of a time when they were Deployments, and is to go before tasks may run.
    pub(super) fn is_replaced(&self) -> bool {
        match self {
            Self::Deployed { .. } => false,
            Self::Inline { existing, .. } => existing.iter().all(|one| self.is_missing(one)),
        }
    }

    /// What is to be written so that they go on though their binding goes.
    pub(super) fn keep_up(&self) -> Vec<Action> {
        match self {
            Self::Deployed { wanted: Err(_), .. } => self.disown(),
            _ => self.set_up(),
        }
    }

    /// What is to be written so that what there is goes on though its binding goes, where nobody can say what should be there.
    pub(super) fn disown(&self) -> Vec<Action> {
        children::disown(self.existing())
    }

    /// What is to be written so that they are gone.
    pub(super) fn take_down(&self, haste: Haste) -> Vec<Action> {
        match self {
            Self::Deployed { existing, .. } | Self::Inline { existing, .. } => {
                children::remove(existing, haste)
            }
        }
    }

    /// What there is of them in V.
    pub(super) const fn existing(&self) -> &[Existing] {
        match self {
            Self::Deployed { existing, .. } | Self::Inline { existing, .. } => existing,
        }
    }

    /// Whether anything of them is left.
    pub(super) fn is_gone(&self) -> bool {
        match self {
            Self::Deployed { existing, .. } => existing.is_empty(),
            Self::Inline { syncer, proxier, existing } => {
                existing.is_empty()
                    && [syncer, proxier]
                        .iter()
                        .all(|state| matches!(state, TaskState::Stopped | TaskState::Missing))
            }
        }
    }

    /// What keeps one of them from being as it is wanted, though it may run as it was.
    pub(super) fn fault(&self, role: Role) -> Option<&str> {
        match self {
            Self::Deployed { wanted: Err(fault), .. } if fault.role == role => Some(&fault.message),
            _ => None,
        }
    }

    /// How one of them is.
    pub fn availability(&self, role: Role) -> Availability {
        match self {
            Self::Deployed { existing, .. } => deployed(role, existing),
            Self::Inline { syncer, proxier, existing } => {
                match if role == Role::Syncer { syncer } else { proxier } {
                    TaskState::Ready => Availability::Available,
                    TaskState::Stopped => Availability::Starting(format!("the {role} does not run yet")),
                    TaskState::Starting(words) => Availability::Starting(words.clone()),
                    TaskState::Waiting { why, restarts, until } => Availability::Failing(format!(
                        "the {role} failed: {why}; it was started again {restarts} times, and will be at {until}"
                    )),
                    TaskState::Missing if has_deployment(role, existing) => deployed(role, existing),
                    TaskState::Missing => {
                        Availability::Starting(format!("this version of Kubeocean has no {role} to run"))
                    }
                }
            }
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeploymentStatus {
    observed_generation: i64,
    available_replicas: i64,
    conditions: Vec<DeploymentCondition>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeploymentCondition {
    #[serde(rename = "type")]
    name: String,
    status: String,
    reason: String,
    message: String,
}

fn has_deployment(role: Role, existing: &[Existing]) -> bool {
    existing.iter().any(|child| {
        child.kind == kinds::DEPLOYMENT
            && child.object.meta.labels.get(labels::COMPONENT) == Some(role.as_str())
    })
}

/// What the Deployments of a role say.
fn deployed(role: Role, existing: &[Existing]) -> Availability {
    let mut deployments = existing
        .iter()
        .filter(|child| child.kind == kinds::DEPLOYMENT)
        .filter(|child| child.object.meta.labels.get(labels::COMPONENT) == Some(role.as_str()))
        .filter(|child| !child.object.meta.is_deleting())
        .peekable();
    if deployments.peek().is_none() {
        return Availability::Starting(format!("the Deployment of the {role} is being made"));
    }
    let states: Vec<Availability> = deployments.map(|child| deployment(role, child)).collect();
    let worst = states.iter().find(|state| matches!(state, Availability::Failing(_)));
    let worst = worst.or_else(|| states.iter().find(|state| matches!(state, Availability::Starting(_))));
    worst.cloned().unwrap_or(Availability::Available)
}

fn deployment(role: Role, child: &Existing) -> Availability {
    let meta = &child.object.meta;
    let status: DeploymentStatus = child.object.field("status").ok().flatten().unwrap_or_default();
    let condition = |name: &str| status.conditions.iter().find(|condition| condition.name == name);
    let place = format!("Deployment {}/{}", meta.namespace, meta.name);
    // One that is scaled to nothing is available, too.
    if condition("Available").is_some_and(|available| available.status == "True")
        && status.available_replicas > 0
    {
        return Availability::Available;
    }
    if status.observed_generation < meta.generation {
        return Availability::Starting(format!("{place} is being rolled out"));
    }
    // Where no pod can be made there is none to look at.
    let stuck = [
        ("Progressing", "ProgressDeadlineExceeded", "pods"),
        ("ReplicaFailure", "FailedCreate", "replicasets"),
    ];
    for (name, reason, look_at) in stuck {
        if let Some(condition) = condition(name).filter(|condition| condition.reason == reason) {
            return Availability::Failing(format!(
                "the {role} does not start, {place}: {}; see kubectl -n {} describe {look_at} -l {}={role}",
                condition.message,
                meta.namespace,
                labels::COMPONENT
            ));
        }
    }
    Availability::Starting(format!("{place} has no available pod yet"))
}

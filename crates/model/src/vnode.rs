//! One virtual node: what should be written so that V knows the truth about a node of a worker cluster.
//!
//! ```text
//!                       ┌───────────── leased again ─────────────┐
//!                       ▼                                         │
//!   not leased ──▶ leased, open ◀──▶ leased, closed ──▶ leaving: no pod comes, all go ──▶ gone
//!                       └──── node, policy or binding gone ───────┘
//! ```
//!
//! Where the worker cluster does not answer, its nodes are not known, and that is all that is said about them. What is about to be
//! taken away is remembered on the node first ([`Tenure`]); what follows for its pods is [`reclaim`](crate::reclaim)'s.
//!
//! Deliberately absent: node Leases, which are a matter of seconds, and pods.

mod change;
mod existing;
mod physical;
mod tenure;
mod unkept;
mod wish;

use std::borrow::Cow;

use jiff::Timestamp;
use kubeocean_api::keys::reasons::Event as EventReason;

pub use change::{is_hidden, show};
pub use existing::VirtualNode;
pub use physical::{PhysicalNode, Taint};
pub use tenure::{Cause, Demand, Leaving, Tenure, Terms};
pub use unkept::Unkept;
pub use wish::Settings;

use crate::action::{Action, kinds};
use crate::bind::{Leftover, Telling};
use crate::binding::Binding;
use crate::lease::{Explanation, Lease, Outcome};
use crate::naming::Port;
use crate::resources::Resources;
use wish::Wish;

/// What is known of the worker cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worker {
    /// It answers, or did so a moment ago, and what was read of it was read from the cluster that we are bound to.
    Known,
    /// It has not answered since then, for too long.
    Lost {
        /// Since when.
        since: Timestamp,
    },
    /// Nobody has heard of it yet, or made sure since the last list that it is the one; or another cluster answers in its place.
    NotKnown,
}

/// Everything about one node.
pub struct Situation<'a> {
    /// The binding.
    pub binding: &'a Binding,
    /// Uid that stands for the computing cluster.
    pub virtual_cluster: &'a str,
    /// Name of the P node.
    pub physical_name: &'a str,
    /// What is known of the worker cluster.
    pub worker: Worker,
    /// Whether something of it cannot be followed now: more may be used there, and less be allowed, than is known.
    pub is_behind: bool,
    /// The P node, if it is there; and what could not be read of it.
    pub node: Option<Result<&'a PhysicalNode, &'a str>>,
    /// What it offers, and why. There where the node is.
    pub explanation: Option<&'a Explanation>,
    /// What others leave of it. There where the node is.
    pub remaining: Option<&'a Resources>,
    /// The virtual node, if it is there.
    pub existing: Option<&'a VirtualNode>,
    /// How many pods stand in the way of its removal.
    pub occupants: usize,
    /// What else goes with it: its Lease and `CSINode`.
    pub belongings: &'a [Leftover],
    /// What it is or will be called.
    pub name: &'a str,
    /// The port that it has or will have.
    pub port: Port,
    /// The address of the proxier that answers for it.
    pub address: Option<&'a str>,
    /// What the syncer was told.
    pub settings: &'a Settings,
    /// What time it is.
    pub now: Timestamp,
}

/// What should happen for one node.
#[derive(Debug, Default)]
pub struct Decision {
    /// To be written, in this order.
    pub actions: Vec<Action>,
    /// When to look again.
    pub again_at: Option<Timestamp>,
    /// What people should hear of, about the virtual node.
    pub events: Vec<Telling>,
    /// What the node remembers of its lease once this is written.
    pub tenure: Option<Tenure>,
}

/// Plans for one node.
pub fn plan(situation: &Situation<'_>) -> Decision {
    let Situation { worker, existing, binding, .. } = situation;
    match worker {
        Worker::NotKnown => return Decision::default(),
        // Who lets a worker cluster go need not wait for it to say how its nodes are.
        Worker::Lost { since } if !binding.is_deleting => {
            let Some(existing) = existing else { return Decision::default() };
            let actions = change::lose(existing, &Wish::lost(*since));
            return Decision { actions, ..Decision::default() };
        }
        Worker::Lost { .. } | Worker::Known => {}
    }
    let node = match situation.node {
        Some(Ok(node)) => Some(node),
        // Who lets a worker cluster go need not read its nodes.
        Some(Err(_)) if binding.is_deleting => None,
        Some(Err(fault)) => return unreadable(situation, fault),
        None => None,
    };
    let outcome = situation.explanation.map(|explanation| &explanation.outcome);
    let cause = match (node, outcome) {
        _ if binding.is_deleting => Some(Cause::Unbinding),
        (None, _) | (_, None) => Some(Cause::NodeGone),
        (_, Some(Outcome::NotLeased(why))) if why.ends_leases() => Some(Cause::from(why)),
        _ if existing.is_some_and(|existing| existing.meta.is_deleting()) => Some(Cause::Deleted),
        _ => None,
    };
    match (cause, existing) {
        (Some(_), None) => Decision { actions: belongings(situation), ..Decision::default() },
        (Some(cause), Some(existing)) => leave(situation, existing, node, cause),
        (None, Some(existing)) => {
            let lease = situation.explanation.and_then(Explanation::lease);
            stay(situation, existing, node, lease)
        }
        (None, None) => begin(situation, node),
    }
}

fn unreadable(situation: &Situation<'_>, fault: &str) -> Decision {
    let message = format!(
        "node {} of the worker cluster cannot be read, so what is said of it stays: {fault}",
        situation.physical_name
    );
    Decision {
        events: vec![Telling::event(true, EventReason::NodeUnreadable, message)],
        ..Decision::default()
    }
}

/// A node that is leased for the first time.
fn begin(situation: &Situation<'_>, node: Option<&PhysicalNode>) -> Decision {
    let lease = situation.explanation.and_then(Explanation::lease);
    let (Some(node), Some(lease)) = (node, lease) else { return Decision::default() };
    if situation.is_behind {
        return Decision::default();
    }
    let tenure = Tenure::of(lease, None, situation.now);
    let wish = Wish::of(situation, node, Some(lease), &tenure);
    let message = format!("leased from the worker cluster: {}", lease.offered());
    let mut events = vec![Telling::event(false, EventReason::NodeLeased, message)];
    events.extend(
        wish.omitted.clone().map(|message| Telling::event(true, EventReason::LabelsOmitted, message)),
    );
    Decision {
        actions: vec![change::create(situation, &wish)],
        again_at: next_edge(situation, Some(lease), &tenure),
        events,
        tenure: Some(tenure),
    }
}

/// A node that stays. Without a lease, nobody knows what the lender says: what he said last stands, and what falls, falls.
fn stay(
    situation: &Situation<'_>,
    existing: &VirtualNode,
    node: Option<&PhysicalNode>,
    lease: Option<&Lease>,
) -> Decision {
    let Some(node) = node else { return Decision::default() };
    let before = &existing.tenure;
    let tenure = match lease {
        Some(lease) => Tenure::of(lease, Some(before), situation.now),
        None => before.passed(situation.now),
    };
    let mut wish = Wish::of(situation, node, lease, &tenure);
    if lease.is_none() {
        wish.resources = wish::no_more_than_remains(situation, existing);
    }
    let returned = before.leaving.as_ref().filter(|_| tenure.leaving.is_none());
    let cordon = returned.filter(|leaving| leaving.cordoned).map(|_| false);
    let change = change::update(existing, &wish, cordon, situation.now);
    let mut events = Vec::new();
    if returned.is_some() {
        let message = "leased again: it stays".to_owned();
        events.push(Telling::event(false, EventReason::NodeLeased, message));
    }
    match (before.is_closed(), tenure.is_closed()) {
        (false, true) => events.push(closed(&tenure)),
        (true, false) => {
            let message = match tenure.closes_at() {
                Some(at) => format!("a lease window is open, until {at}"),
                None => "the lease is open".to_owned(),
            };
            events.push(Telling::event(false, EventReason::LeaseOpened, message));
        }
        _ => {}
    }
    if let Some(message) = wish.omitted.filter(|_| change.moves_labels) {
        events.push(Telling::event(true, EventReason::LabelsOmitted, message));
    }
    let edge = next_edge(situation, lease, &tenure);
    let again_at = earlier(edge, change.later);
    Decision { actions: change.actions, again_at, events, tenure: Some(tenure) }
}

fn closed(tenure: &Tenure) -> Telling {
    let deadline = tenure.demands().map(|demand| demand.deadline).min();
    let message = match deadline {
        Some(deadline) => format!(
            "no lease window is open: nothing new is scheduled, and what runs is removed at {deadline}"
        ),
        None => "no lease window is open: nothing new is scheduled, and what runs may go on".to_owned(),
    };
    Telling::event(false, EventReason::LeaseClosed, message)
}

/// A node that goes: nothing new comes, what is there leaves, and then it goes itself, last of all.
fn leave(
    situation: &Situation<'_>,
    existing: &VirtualNode,
    node: Option<&PhysicalNode>,
    cause: Cause,
) -> Decision {
    let now = situation.now;
    let tenure = existing.tenure.leave(cause, !existing.unschedulable, now);
    let is_news = tenure.leaving != existing.tenure.leaving;
    let mut decision = Decision::default();
    if is_news {
        let deadline = tenure.demands().filter(|demand| demand.clears_the_node).map(|demand| demand.deadline);
        let deadline = deadline.min().unwrap_or(now);
        let message =
            format!("{}: nothing new is scheduled, and what runs is removed at {deadline}", cause.words());
        decision.events.push(Telling::event(true, EventReason::NodeLeaving, message));
    }
    let kept = node.map_or_else(|| Cow::Owned(remembered(existing)), Cow::Borrowed);
    let is_whole = node.is_some() || existing.expected.is_some();
    let wish = Wish { is_whole, ..Wish::of(situation, &kept, None, &tenure) };
    let change = change::update(existing, &wish, Some(true), now);
    decision.actions = change.actions;
    decision.again_at = next_edge(situation, None, &tenure);
    // Removal comes after what keeps pods away has been seen by everyone, us included.
    if decision.actions.is_empty() && situation.occupants == 0 {
        decision.actions = belongings(situation);
        decision.actions.extend(remove(existing));
    }
    decision.tenure = Some(tenure);
    decision
}

/// A P node that is gone, as its virtual node knew it.
fn remembered(existing: &VirtualNode) -> PhysicalNode {
    let expected = existing.expected.clone().unwrap_or_default();
    let labels = existing.meta.labels.iter().filter(|(key, _)| expected.labels.contains(*key));
    let taint = |taint: &serde_json::Value| serde_json::from_value::<Taint>(taint.clone()).ok();
    let copied = existing.taints.iter().filter_map(taint);
    PhysicalNode {
        node: crate::lease::Node {
            name: existing.physical_name.clone(),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            ..crate::lease::Node::default()
        },
        uid: {
            let uid = existing.meta.annotations.get(kubeocean_api::keys::annotations::PHYSICAL_NODE_UID);
            uid.unwrap_or_default().to_owned()
        },
        annotations: existing.meta.annotations.clone(),
        unschedulable: false,
        taints: copied
            .filter(|taint| expected.taints.contains(&format!("{}:{}", taint.key, taint.effect)))
            .collect(),
        conditions: existing
            .conditions
            .iter()
            .filter(|one| one["type"].as_str().is_some_and(|type_| expected.conditions.contains(type_)))
            .cloned()
            .collect(),
        info: existing.info.clone(),
        features: existing.features.clone(),
        address: {
            let address = existing.meta.labels.get(kubeocean_api::keys::labels::PHYSICAL_NODE_INNER_IP);
            address.map(str::to_owned)
        },
    }
}

fn belongings(situation: &Situation<'_>) -> Vec<Action> {
    situation.belongings.iter().flat_map(|one| one.remove("its virtual node goes")).collect()
}

fn remove(existing: &VirtualNode) -> Vec<Action> {
    let node = Leftover { kind: kinds::NODE, meta: existing.meta.clone() };
    node.remove("it is not leased any more, and no pod is on it")
}

/// When something about the node changes by the clock alone.
fn next_edge(situation: &Situation<'_>, lease: Option<&Lease>, tenure: &Tenure) -> Option<Timestamp> {
    let now = situation.now;
    let by_lease = lease.into_iter().flat_map(|lease| {
        let closing = wish::closing_from(lease, situation);
        // Either side's edge may be one of terms, though the other is closed.
        let edges = lease.winners.iter().filter_map(|(_, policy)| policy.schedule.next_edge(now));
        edges.map(|edge| edge.at).chain(closing).collect::<Vec<_>>()
    });
    let by_demand = tenure.demands().map(|demand| demand.deadline);
    by_lease.chain(tenure.closes_at()).chain(by_demand).filter(|at| *at > now).min()
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

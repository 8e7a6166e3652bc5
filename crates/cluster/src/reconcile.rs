//! The loop that every component is made of: key, plan, writes, fence.
//!
//! A planner looks at its stores and says what should be written for one key. Each write is done in order;
//! the first that fails ends the round, and its outcome says when to come back. A key is not planned again
//! before the stores have seen what was written for it.
//!
//! Deliberately absent: events. Planners get a key, and look.

use std::time::Duration;

use jiff::Timestamp;
use kubeocean_model::action::Action;

use crate::apply::Applier;
use crate::clock::Clock;
use crate::fence::Fences;
use crate::queue::{Queue, QueueKey, Verdict};

/// What should happen for one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// To be written, in this order.
    pub actions: Vec<Action>,
    /// When to look again even if nothing happens.
    pub again_at: Option<Timestamp>,
}

impl Plan {
    /// Nothing is to be done.
    pub fn rest() -> Self {
        Self::default()
    }

    /// These writes, and no timer.
    pub fn of(actions: Vec<Action>) -> Self {
        Self { actions, again_at: None }
    }
}

/// Plans and writes for the keys of one queue. Clones are the same.
pub struct Reconciler<K> {
    /// The keys. Informers add to it.
    pub queue: Queue<K>,
    /// Who writes.
    pub applier: Applier,
    /// What keys wait for.
    pub fences: Fences<K>,
    /// What time it is.
    pub clock: Clock,
}

impl<K: QueueKey> Reconciler<K> {
    /// Runs until the queue is closed. `at_a_time` keys are worked on together.
    pub async fn run(&self, at_a_time: usize, plan: impl Fn(&K, Timestamp) -> Plan) {
        self.queue
            .run(at_a_time, |key| {
                let plan = &plan;
                async move { self.look_at(&key, plan).await }
            })
            .await;
    }

    /// One round for one key.
    pub async fn look_at(&self, key: &K, plan: &impl Fn(&K, Timestamp) -> Plan) -> Verdict {
        if !self.fences.is_open(key) {
            return Verdict::Blocked;
        }
        let now = self.clock.now();
        let Plan { actions, again_at } = plan(key, now);
        for action in &actions {
            let outcome = self.applier.apply(action).await;
            self.fences.close(key, self.applier.sightings(action, &outcome));
            if !outcome.is_done() {
                return outcome.verdict();
            }
        }
        match again_at {
            Some(at) => Verdict::Again(Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)),
            None => Verdict::Done,
        }
    }
}

impl<K> Clone for Reconciler<K> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            applier: self.applier.clone(),
            fences: self.fences.clone(),
            clock: self.clock.clone(),
        }
    }
}

impl<K: QueueKey> std::fmt::Debug for Reconciler<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reconciler").field("queue", &self.queue).finish_non_exhaustive()
    }
}

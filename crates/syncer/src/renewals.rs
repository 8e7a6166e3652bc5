//! The Leases of all virtual nodes, renewed one after the other.
//!
//! V takes a node for lost fifty seconds after its last renewal. Each is renewed every ten seconds or up to a tenth later, so that a thousand
//! of them are ninety-five small writes a second. There is no crowd, whoever asks for them: one leaves after the other, as many in ten seconds
//! as there are nodes, which for a thousand is a hundred a second and never more. At the start of a term they come before anything else: a
//! standby takes over fifteen seconds after its leader's last word, the last renewal was eleven seconds before that, and ten more are needed
//! for a thousand nodes: fourteen are left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kubeocean_api::keys::labels;
use kubeocean_api::keys::names::NODE_LEASE_NAMESPACE;
use kubeocean_cluster::apply::{Applier, Outcome};
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::leader::micro_time;
use kubeocean_cluster::queue::{Queue, Verdict};
use kubeocean_model::action::{Action, Mark, PatchForm, Verb, kinds};
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::vnode::VirtualNode;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::observe::Timekeeping;
use crate::pulse::Pulse;
use crate::world::{Subject, World};

/// How long a Lease counts, as kubelets have it.
const LASTS: u32 = 40;

/// Renewals at a time. A hundred have to be answered in a second, which sixty-four do also where each answer takes half a second: a computing
/// cluster may be far away. They leave one after the other all the same.
const AT_A_TIME: usize = 64;

/// Who is asked for again so soon need not be renewed again.
const FRESH: Duration = Duration::from_secs(1);

/// The longest between two renewals that are due: a hundred a second, which is what a thousand nodes need.
const SPREAD: Duration = Duration::from_millis(10);

/// Keeps virtual nodes alive.
#[derive(Clone)]
pub(crate) struct Renewals {
    pub(crate) queue: Queue<String>,
    pub(crate) applier: Applier,
    pub(crate) world: World,
    pub(crate) pulse: Pulse,
    pub(crate) subject: Subject,
    pub(crate) clock: Clock,
    pub(crate) every: Duration,
    pub(crate) holder: Arc<str>,
    pub(crate) timekeeping: Timekeeping,
    /// When the next may leave.
    pub(crate) turn: Arc<Mutex<Instant>>,
    /// When each was last renewed, in this term.
    pub(crate) last: Arc<Mutex<BTreeMap<String, Instant>>>,
    /// Those that have a Lease: who was there when this term began, since whoever made them made that, too, and who got one since.
    pub(crate) known: Arc<Mutex<BTreeSet<String>>>,
    /// Those that are being removed at this moment, Lease first.
    pub(crate) ending: Arc<Mutex<BTreeSet<String>>>,
}

/// While it lives, a virtual node gets no new Lease.
pub(crate) struct Ending<'a> {
    all: &'a Mutex<BTreeSet<String>>,
    vnode: &'a str,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.all.lock().remove(self.vnode);
    }
}

impl Renewals {
    /// A virtual node is about to be removed.
    pub(crate) fn end<'a>(&'a self, vnode: &'a str) -> Ending<'a> {
        self.ending.lock().insert(vnode.to_owned());
        Ending { all: &self.ending, vnode }
    }

    /// Renews for as long as this process leads.
    pub(crate) async fn run_until(&self, stop: CancellationToken) {
        self.queue.attend();
        self.world.vnodes.progress().synced().await;
        let known = self.world.vnodes.all().into_iter().map(|(key, _)| key.name.to_string()).collect();
        *self.known.lock() = known;
        self.renew_all();
        let look = |vnode: String| async move { self.renew(&vnode).await };
        self.queue.run_until(stop, AT_A_TIME, look).await;
        self.queue.rest();
    }

    /// All of them are due: what another leader did meanwhile is not known, nor for how long this machine has slept.
    pub(crate) fn renew_all(&self) {
        self.last.lock().clear();
        for (key, _) in self.world.vnodes.all() {
            self.queue.add(key.name.to_string());
        }
    }

    /// Waits for a turn: as many in ten seconds as there are nodes.
    async fn take_turn(&self) {
        let nodes = u32::try_from(self.world.vnodes.len()).unwrap_or(u32::MAX).max(1);
        let gap = SPREAD.min(self.every / nodes);
        let mine = {
            let mut turn = self.turn.lock();
            let mine = (*turn).max(Instant::now());
            *turn = mine + gap;
            mine
        };
        tokio::time::sleep_until(mine).await;
    }

    async fn renew(&self, vnode: &str) -> Verdict {
        let Some(seen) = self.world.vnodes.get(&Key::cluster_scoped(vnode)) else {
            self.last.lock().remove(vnode);
            self.known.lock().remove(vnode);
            return Verdict::Done;
        };
        let again = Verdict::Again(self.interval(vnode));
        let last = self.last.lock().get(vnode).map(Instant::elapsed);
        if !self.pulse.is_alive() || last.is_some_and(|last| last < FRESH) {
            return again;
        }
        self.take_turn().await;
        let key = Key::<Virtual>::new(NODE_LEASE_NAMESPACE, vnode);
        let is_new = !self.known.lock().contains(vnode);
        if is_new && self.goes(vnode) {
            return again;
        }
        // One request each: who knows whether there is one does not ask.
        let first = if is_new { self.create(&key, &seen.0) } else { self.patch(&key) };
        let outcome = match self.applier.apply_vital(&first).await {
            Outcome::ExistsOurs(_) | Outcome::ExistsForeign => {
                self.applier.apply_vital(&self.patch(&key)).await
            }
            Outcome::Gone if is_new => Outcome::Gone,
            Outcome::Gone if self.goes(vnode) => return again,
            Outcome::Gone => self.applier.apply_vital(&self.create(&key, &seen.0)).await,
            outcome => outcome,
        };
        match outcome {
            outcome if outcome.is_done() => {
                self.last.lock().insert(vnode.to_owned(), Instant::now());
                self.known.lock().insert(vnode.to_owned());
                if let Some(after) = last {
                    self.timekeeping.renewed(after);
                }
                again
            }
            Outcome::NotLeading => again,
            // Later is too late.
            _ => Verdict::Again(Duration::from_secs(2)),
        }
    }

    /// Whether a node goes by itself now. Its Lease goes before it, and is not made anew; not even if someone puts a pod there in the last
    /// moment.
    fn goes(&self, vnode: &str) -> bool {
        if self.ending.lock().contains(vnode) {
            return true;
        }
        let seen = self.world.vnodes.get(&Key::cluster_scoped(vnode));
        seen.is_none_or(|seen| seen.0.tenure.leaving.is_some() && self.world.pods_on(vnode).is_empty())
    }

    fn spec(&self) -> Value {
        json!({"renewTime": micro_time(self.clock.now()), "holderIdentity": &*self.holder, "leaseDurationSeconds": LASTS})
    }

    fn patch(&self, key: &Key<Virtual>) -> Action {
        let body = json!({"spec": self.spec()});
        let verb = Verb::Patch { form: PatchForm::Merge, subresource: None, body };
        Action::new(kinds::LEASE, key, verb, "its worker cluster answers")
    }

    fn create(&self, key: &Key<Virtual>, vnode: &VirtualNode) -> Action {
        let body = json!({
            "metadata": {
                "labels": {
                    labels::MANAGED_BY: labels::MANAGED_BY_VALUE, labels::BINDING_UID: &*self.subject.uid,
                    labels::VIRTUAL_CLUSTER_UID: &*self.subject.virtual_cluster,
                },
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": vnode.name(), "uid": &*vnode.meta.uid},
                ],
            },
            "spec": self.spec(),
        });
        let mark = Mark { labels: &[labels::BINDING_UID], annotations: &[] };
        Action::new(kinds::LEASE, key, Verb::Create { body, mark }, "its virtual node is new")
    }

    /// Up to a tenth later, each node its own: those that were renewed together part.
    fn interval(&self, vnode: &str) -> Duration {
        let place = vnode.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
        self.every.mul_f64(1.0 + f64::from(place % 100) / 1000.0)
    }
}

//! Removing what bindings that no longer exist have left in V.
//!
//! A store may be two minutes behind and not know it, and what is removed here does not come back. So before anything goes, the API server
//! itself is asked which bindings there are.
//!
//! Deliberately absent: whose an object is, which is [`sweep`](kubeocean_model::sweep)'s.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::queue::Verdict;
use kubeocean_cluster::reconcile::{Reconciler, look_again};
use kubeocean_model::action::{Action, kinds};
use kubeocean_model::bind::BindingObject;
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::sweep::{self, Fate};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::world::{Suspect, World};

/// Between two looks for leads that are nobody's.
const HOLDS_EVERY: Duration = Duration::from_secs(600);

/// How soon an object is looked at again when it cannot be known whose it is.
const AGAIN: Duration = Duration::from_secs(30);

/// Who removes what is nobody's.
pub(crate) struct Sweeper {
    pub(crate) virt: Cluster<Virtual>,
    pub(crate) world: World,
    pub(crate) reconciler: Reconciler<Suspect>,
    /// The uid of the computing cluster.
    pub(crate) cluster: String,
    /// Where syncers hold their leads.
    pub(crate) namespace: String,
    /// The last answer: many objects that are looked at together need one.
    pub(crate) living: Mutex<Option<Arc<Living>>>,
}

/// The bindings that there are, as the API server said.
pub(crate) struct Living {
    asked: Instant,
    uids: BTreeSet<String>,
    names: BTreeSet<String>,
    cluster_ids: BTreeSet<String>,
}

impl Sweeper {
    /// One look at one object.
    pub(crate) async fn look(&self, suspect: &Suspect) -> Verdict {
        if !self.reconciler.fences.is_open(suspect) {
            return Verdict::Blocked;
        }
        if suspect.kind == kinds::LEASE && *suspect.key.namespace == *self.namespace {
            return self.look_at_hold(suspect).await;
        }
        let Some(found) = self.world.find(suspect) else { return Verdict::Done };
        // Who cannot hear of bindings does not know which of them live.
        if self.world.bindings.progress().trouble().is_some() {
            return Verdict::Again(AGAIN);
        }
        let (began, now) = (Instant::now(), self.reconciler.clock.now());
        let lives = |uid: &str| self.world.by_uid(uid).is_some();
        let named = |name: &str| self.world.bindings.get(&Key::cluster_scoped(name)).is_some();
        match sweep::judge(&found, &self.cluster, lives, named, now) {
            Fate::Stays => return Verdict::Done,
            Fate::Young(due) => return look_again(due.checked_add(SignedDuration::from_secs(1)).ok(), now),
            Fate::Goes(_) => {}
        }
        let Some(living) = self.living_since(began).await else {
            return Verdict::Failed("virtual-unreachable");
        };
        let lives = |uid: &str| living.uids.contains(uid);
        let named = |name: &str| living.names.contains(name);
        let Fate::Goes(actions) = sweep::judge(&found, &self.cluster, lives, named, now) else {
            // The store has not heard of the binding yet.
            return Verdict::Again(AGAIN);
        };
        self.write(suspect, &actions).await
    }

    /// Leads that syncers of bindings that are gone may have left, again and again: a restored etcd brings them back. No store shows them:
    /// they are renewed all the time.
    pub(crate) async fn suspect_holds(&self) {
        loop {
            let Ok(all) = self.virt.list(&kinds::LEASE, Some(&self.namespace), None).await else {
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            for hold in all.iter().filter(|hold| sweep::cluster_of_hold(&hold.meta.name).is_some()) {
                self.reconciler.queue.add(Suspect { kind: kinds::LEASE, key: hold.key() });
            }
            drop(all);
            tokio::time::sleep(HOLDS_EVERY).await;
        }
    }

    /// One look at what syncers hold the lead by. In this order: whoever takes it after it was read is known by its version.
    async fn look_at_hold(&self, suspect: &Suspect) -> Verdict {
        let is_bound = |id: &str| self.world.is_bound(id);
        if sweep::cluster_of_hold(&suspect.key.name).is_none_or(is_bound) {
            return Verdict::Done;
        }
        if self.world.bindings.progress().trouble().is_some() {
            return Verdict::Again(AGAIN);
        }
        let hold = match self.virt.get(&kinds::LEASE, &suspect.key).await {
            Ok(Some(hold)) => hold,
            Ok(None) => return Verdict::Done,
            Err(_) => return Verdict::Failed("virtual-unreachable"),
        };
        let now = self.reconciler.clock.now();
        match sweep::judge_hold(&hold, is_bound, now) {
            Fate::Stays => return Verdict::Done,
            Fate::Young(due) => return look_again(due.checked_add(SignedDuration::from_secs(1)).ok(), now),
            Fate::Goes(_) => {}
        }
        let Some(living) = self.living_since(Instant::now()).await else {
            return Verdict::Failed("virtual-unreachable");
        };
        let Fate::Goes(actions) = sweep::judge_hold(&hold, |id| living.cluster_ids.contains(id), now) else {
            // The store has not heard of the binding yet.
            return Verdict::Again(AGAIN);
        };
        self.write(suspect, &actions).await
    }

    async fn write(&self, suspect: &Suspect, actions: &[Action]) -> Verdict {
        for action in actions {
            let outcome = self.reconciler.write(suspect, action).await;
            if !outcome.fulfils(action) {
                return outcome.verdict();
            }
        }
        Verdict::Done
    }

    /// Which bindings there are, asked at this moment or later; `None` if the server does not say.
    async fn living_since(&self, moment: Instant) -> Option<Arc<Living>> {
        let mut living = self.living.lock().await;
        if let Some(known) = living.as_ref().filter(|known| known.asked >= moment) {
            return Some(Arc::clone(known));
        }
        let asked = Instant::now();
        let all = self.virt.list(&kinds::BINDING, None, None).await.ok()?;
        let uids = all.iter().map(|binding| binding.meta.uid.to_string()).collect();
        let names = all.iter().map(|binding| binding.meta.name.to_string()).collect();
        let claimed = |binding| BindingObject::read(binding).claims().map(str::to_owned);
        let cluster_ids = all.iter().filter_map(claimed).collect();
        let known = Arc::new(Living { asked, uids, names, cluster_ids });
        *living = Some(Arc::clone(&known));
        Some(known)
    }
}

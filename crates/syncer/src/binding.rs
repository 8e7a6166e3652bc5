//! The binding: the finalizer, the condition `Leasing`, the counts.

use std::sync::Arc;
use std::time::Duration;

use kubeocean_api::keys::labels;
use kubeocean_api::keys::names::{FAKE_NAMESPACE, NODE_LEASE_NAMESPACE};
use kubeocean_cluster::apply::Outcome;
use kubeocean_cluster::events;
use kubeocean_cluster::queue::Verdict;
use kubeocean_cluster::reconcile::look_again;
use kubeocean_cluster::store::Entry;
use kubeocean_model::action::{Action, Dependents, Kind, Verb, kinds};
use kubeocean_model::binding::Binding;
use kubeocean_model::key::{Key, Side, Virtual};
use kubeocean_model::leasing::{self, Tally};
use kubeocean_model::object::{Meta, Object};
use kubeocean_model::policies;
use kubeocean_model::reclaim::VirtualPod;
use kubeocean_model::vnode::{self, Worker};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::seen::SeenVnode;
use crate::syncer::Syncer;
use crate::world::Duty;

/// A virtual node that someone hides while nobody watches is found this much later. It is one question that nothing answers; but the
/// server looks at all its nodes for that.
const LOOK_FOR_HIDDEN: Duration = Duration::from_secs(300);

/// When hidden virtual nodes are looked for. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Search(Arc<Mutex<Option<Instant>>>);

impl Search {
    /// One may have been hidden a moment ago; or nobody knows since when nobody has looked.
    pub(crate) fn suspect(&self) {
        *self.0.lock() = None;
    }

    /// Begins one, if it is time; else, how long it is until then.
    fn begin(&self) -> Result<(), Duration> {
        let mut begun = self.0.lock();
        match begun.map(|at| LOOK_FOR_HIDDEN.saturating_sub(at.elapsed())) {
            Some(rest) if !rest.is_zero() => Err(rest),
            _ => {
                *begun = Some(Instant::now());
                Ok(())
            }
        }
    }
}

/// As often as the worker cluster is asked whether it is there.
const LEARN_BEFORE_LEAVING: Duration = Duration::from_secs(5);

impl Syncer {
    /// One round for the binding.
    pub(crate) async fn look_at_binding(&self) -> Verdict {
        let duty = Duty::Binding;
        if !self.reconciler.fences.is_open(&duty) {
            return Verdict::Blocked;
        }
        let Some(seen) = self.binding_object() else { return Verdict::Done };
        let object = &seen.0;
        let now = self.reconciler.clock.now();
        let mut look_for_hidden = LOOK_FOR_HIDDEN;
        if let Some(binding) = self.binding() {
            match self.world.hidden.begin() {
                Err(rest) => look_for_hidden = rest,
                Ok(()) => {
                    if let Err(verdict) = self.show_hidden(&binding).await {
                        self.world.hidden.suspect();
                        return verdict;
                    }
                }
            }
        }
        let is_known = matches!(self.pulse.worker(), Worker::Known);
        let tally = if is_known { self.tally() } else { None };
        let left = match self.is_left(object.meta.is_deleting()).await {
            Ok(left) => left,
            Err(verdict) => return verdict,
        };
        let decision = leasing::plan(object, tally.as_ref(), left, now);
        for action in &decision.actions {
            let outcome = self.reconciler.write(&duty, action).await;
            if !outcome.fulfils(action) {
                self.complain(action, &outcome);
                return outcome.verdict();
            }
        }
        if let Some(subject) = self.binding_subject().filter(|_| leasing::has_begun(object)) {
            self.tell(&subject, &decision.events);
            self.tell_of_rights(&subject);
        }
        look_again(decision.again_at, now).at_most(look_for_hidden)
    }

    /// What there is; `None` before each node was looked at: until then nobody knows whether none is leased.
    fn tally(&self) -> Option<Tally> {
        let physical = self.world.nodes.len();
        let (looked_at, allowed) = self.standings.count();
        if looked_at < physical {
            return None;
        }
        let (refusal, closed) = self.standings.summary();
        let pods = self.world.usage.ours();
        let vnodes = self.world.vnodes.all();
        let leaves = |seen: &Entry<SeenVnode>| seen.0.tenure.leaving.is_some();
        let (nodes, leaving) = (vnodes.len(), vnodes.iter().filter(|(_, seen)| leaves(seen)).count());
        let never_open = self.standings.never_open();
        Some(Tally { nodes, leaving, pods, physical, allowed, refusal, closed, never_open })
    }

    /// Tells once of what may not be read in the worker cluster, and again only if it was mended in between.
    fn tell_of_rights(&self, subject: &events::Subject) {
        let now = self.pulse.unreadable();
        let before = std::mem::replace(&mut *self.unreadable.lock(), now.clone());
        let news = now.difference(&before).map(|kind| leasing::not_readable(kind, &self.subject.binding));
        self.tell(subject, &news.collect::<Vec<_>>());
    }

    /// Whether anything of the binding is left. Asked only when it is on its way out; the last word is the server's, since a store may
    /// be far behind, and nobody looks after what is left once the finalizer is gone.
    async fn is_left(&self, is_deleting: bool) -> Result<bool, Verdict> {
        if !is_deleting {
            return Ok(true);
        }
        if self.has_anything_there() {
            return Ok(true);
        }
        let ours = |meta: &Meta| meta.labels.get(labels::BINDING_UID) == Some(&self.subject.uid);
        let placeholder = |pod: &VirtualPod| pod.is_placeholder() && ours(&pod.meta);
        let placeholders = self.world.pods.all().iter().any(|(_, pod)| placeholder(&pod.0));
        if placeholders || !self.world.vnodes.is_empty() || !self.world.virtual_csi.is_empty() {
            return Ok(true);
        }
        let by_uid = format!("{}={}", labels::BINDING_UID, self.subject.uid);
        // Those of older installations have no uid.
        let by_name = format!("{}={}", labels::CLUSTER_BINDING, self.subject.binding);
        let nodes = self.listed(&kinds::NODE, None, &by_name).await?;
        let is_foreign =
            |meta: &Meta| meta.labels.get(labels::BINDING_UID).is_some_and(|uid| *uid != *self.subject.uid);
        let unseen = nodes.iter().any(|node| !is_foreign(&node.meta))
            || !self.listed(&kinds::CSI_NODE, None, &by_uid).await?.is_empty()
            || !self.listed(&kinds::POD, Some(FAKE_NAMESPACE), &by_uid).await?.is_empty();
        if unseen {
            return Err(Verdict::Failed("not-seen-yet"));
        }
        // Whoever led before may not have come to take our word out of the lender's policies.
        if self.pulse.is_learning() {
            return Err(Verdict::Again(LEARN_BEFORE_LEAVING));
        }
        if self.is_spoken_of() {
            return Ok(true);
        }
        for lease in &self.listed(&kinds::LEASE, Some(NODE_LEASE_NAMESPACE), &by_uid).await? {
            let key = Key::<Virtual>::new(NODE_LEASE_NAMESPACE, &*lease.meta.name);
            let verb = Verb::Delete { grace: None, dependents: Dependents::Background };
            let action =
                Action::new(kinds::LEASE, &key, verb, "its virtual node is gone").if_uid(&*lease.meta.uid);
            let outcome = self.reconciler.write(&Duty::Binding, &action).await;
            if !outcome.fulfils(&action) {
                return Err(outcome.verdict());
            }
        }
        Ok(false)
    }

    /// Whether a policy still has our entry, and a cluster that lets us take it away: nobody else would.
    fn is_spoken_of(&self) -> bool {
        let is_known = matches!(self.pulse.worker(), Worker::Known);
        let refusing = self.refusing.lock();
        self.policies.read().seen.iter().any(|(place, policy)| {
            let reachable = place.0 == Side::Virtual || is_known;
            let ours = policy.status.bindings.iter().any(|one| *one.binding_uid == *self.subject.uid);
            reachable && ours && !policy.meta.is_deleting() && !refusing.contains(place)
        })
    }

    /// Whether twins or copies are left in the worker cluster. Where that is lost, nobody waits for it.
    fn has_anything_there(&self) -> bool {
        if !self.knows_belongings() {
            return false;
        }
        let has_twins = self.has_twins();
        let has_more = self.world.belongings.any_of(&self.subject);
        // What stays for as long as pods run need not wait for more.
        if has_more && !has_twins {
            self.world.look_at_what_we_made(&self.reconciler.queue);
        }
        has_twins || has_more
    }

    /// Whether a pod of this binding is in the worker cluster.
    pub(crate) fn has_twins(&self) -> bool {
        let is_twin = |seen: &crate::usage::SeenPod| seen.twin.is_some() && seen.is_ours(&self.subject);
        self.world.physical_pods.all().iter().any(|(_, seen)| is_twin(seen))
    }

    /// Virtual nodes without the label by which they are found get it back: nobody else would look after them.
    async fn show_hidden(&self, binding: &Binding) -> Result<(), Verdict> {
        let (uid, name) = (&self.subject.uid, &self.subject.binding);
        let hidden = format!("{}={uid},{}!={name}", labels::BINDING_UID, labels::CLUSTER_BINDING);
        for node in &self.listed(&kinds::NODE, None, &hidden).await? {
            let action = vnode::show(&node.meta, binding);
            let outcome = self.reconciler.write(&Duty::Binding, &action).await;
            if !outcome.fulfils(&action) {
                return Err(outcome.verdict());
            }
        }
        Ok(())
    }

    async fn listed(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: &str,
    ) -> Result<Vec<Object>, Verdict> {
        let listed = self.virt.list(kind, namespace, Some(selector)).await;
        listed.map_err(|_| Verdict::Failed("leftovers-not-read"))
    }

    /// One round for one policy.
    pub(crate) async fn look_at_policy(&self, side: Side, name: &str) -> Verdict {
        let duty = Duty::Policy(side, name.into());
        if !self.reconciler.fences.is_open(&duty) {
            return Verdict::Blocked;
        }
        let Some(binding) = self.binding() else { return Verdict::Done };
        let read = self.policies.read();
        let Some(seen) = read.seen.get(&(side, name.to_owned())) else { return Verdict::Done };
        let now = self.reconciler.clock.now();
        // What a cluster that may be another one says is not answered.
        if side == Side::Physical && !matches!(self.pulse.worker(), Worker::Known) {
            return Verdict::Done;
        }
        let used = self.standings.use_of(side, name);
        let (action, again_at) = match side {
            Side::Virtual => policies::plan::<Virtual>(seen, &binding, &used, now),
            Side::Physical => policies::plan::<kubeocean_model::key::Physical>(seen, &binding, &used, now),
        };
        if let Some(action) = action {
            let outcome = self.reconciler.write(&duty, &action).await;
            // Who lets nobody write there, or holds what we said as well, does not keep the binding for that.
            if binding.is_deleting && (outcome.is_refused() || matches!(outcome, Outcome::Unchanged { .. })) {
                self.refusing.lock().insert((side, name.to_owned()));
                self.reconciler.queue.add(Duty::Binding);
            }
            if !outcome.fulfils(&action) {
                self.complain(&action, &outcome);
                return outcome.verdict();
            }
        } else if binding.is_deleting {
            self.reconciler.queue.add(Duty::Binding);
        }
        look_again(again_at, now)
    }
}

//! The binding: the finalizer, the condition `Leasing`, the counts.

use kubeocean_api::keys::labels;
use kubeocean_api::keys::names::NODE_LEASE_NAMESPACE;
use kubeocean_cluster::queue::Verdict;
use kubeocean_model::action::{Action, Dependents, Verb, kinds};
use kubeocean_model::key::{Key, Side, Virtual};
use kubeocean_model::leasing::{self, Tally};
use kubeocean_model::policies;
use kubeocean_model::vnode::Worker;

use crate::syncer::{Syncer, after};
use crate::world::Duty;

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
        let is_known = matches!(self.pulse.worker(), Worker::Known);
        let tally = is_known.then(|| self.tally());
        let left = match self.is_left(object.meta.is_deleting()).await {
            Ok(left) => left,
            Err(verdict) => return verdict,
        };
        let decision = leasing::plan(object, tally.as_ref(), left, now);
        for action in &decision.actions {
            let outcome = self.reconciler.write(&duty, action).await;
            if !outcome.fulfils(action) {
                return outcome.verdict();
            }
        }
        if let Some(subject) = self.binding_subject() {
            self.tell(&subject, &decision.events);
        }
        after(decision.again_at, now)
    }

    fn tally(&self) -> Tally {
        let (refusal, closed) = self.standings.summary();
        let ours = self.world.physical_pods.all();
        let pods = ours.iter().filter(|(_, pod)| pod.is_ours(&self.subject)).count();
        let nodes = self.world.vnodes.len();
        Tally { nodes, pods, physical: self.world.nodes.len(), refusal, closed }
    }

    /// Whether anything of the binding is left. Asked only when it is on its way out.
    async fn is_left(&self, is_deleting: bool) -> Result<bool, Verdict> {
        let placeholders = self.world.pods.all();
        let ours = |labels: &kubeocean_model::object::Pairs| {
            labels.get(labels::BINDING_UID) == Some(&self.subject.uid)
        };
        let placeholder =
            placeholders.iter().any(|(_, pod)| pod.0.is_placeholder() && ours(&pod.0.meta.labels));
        if !is_deleting || placeholder || !self.world.vnodes.is_empty() || !self.world.virtual_csi.is_empty()
        {
            return Ok(true);
        }
        let selector = format!("{}={}", labels::BINDING_UID, self.subject.uid);
        let leases = self.virt.list(&kinds::LEASE, Some(NODE_LEASE_NAMESPACE), Some(&selector)).await;
        let leases = leases.map_err(|_| Verdict::Failed("leases-not-read"))?;
        for lease in &leases {
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
            if !outcome.fulfils(&action) {
                self.complain(&action, &outcome);
                return outcome.verdict();
            }
        }
        after(again_at, now)
    }
}

//! One pod on a virtual node: what its node's lease means for it.

use std::time::Duration;

use kubeocean_cluster::events::Subject;
use kubeocean_cluster::queue::Verdict;
use kubeocean_cluster::reconcile::look_again;
use kubeocean_model::action::{Action, Verb, kinds};
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::reclaim::{self, Situation, Twin};
use kubeocean_model::vnode::Worker;

use crate::syncer::Syncer;
use crate::world::{Duty, TWIN_OF};

/// A budget that does not allow it now may allow it soon: another pod has become ready.
const ASK_AGAIN: Duration = Duration::from_secs(5);

impl Syncer {
    /// One round for one pod.
    pub(crate) async fn look_at_pod(&self, key: &Key<Virtual>) -> Verdict {
        let duty = Duty::Pod(key.clone());
        if !self.reconciler.fences.is_open(&duty) {
            return Verdict::Blocked;
        }
        let (Some(binding), Some(seen)) = (self.binding(), self.world.pods.get(key)) else {
            return Verdict::Done;
        };
        let pod = &seen.0;
        // Those on other bindings' nodes are theirs, and those on nodes that are gone V's own.
        let Some(vnode) = self.world.vnodes.get(&Key::cluster_scoped(pod.node.as_str())) else {
            return Verdict::Done;
        };
        // Nobody knows what its node remembered: that is found out first, and this looked at again when it has been written.
        let Some(tenure) = self.world.tenure_of(&vnode.0) else { return Verdict::Done };
        let now = self.reconciler.clock.now();
        let situation = Situation {
            pod,
            tenure: Some(&tenure),
            is_mapped: pod.is_mapped(&binding, &self.subject.install_namespace),
            has_budget: self.world.has_budget(pod),
            twin: self.twin_of(&pod.meta.uid),
            now,
        };
        let decision = reclaim::plan(&situation);
        self.remind(&duty, decision.again_at, now);
        for (index, action) in decision.actions.iter().enumerate() {
            let outcome = self.reconciler.write(&duty, action).await;
            if !outcome.fulfils(action) {
                if matches!(action.verb, Verb::Evict { .. }) {
                    return look_again(decision.again_at, now).at_most(ASK_AGAIN);
                }
                self.complain(action, &outcome);
                let removes = |later: &Action| matches!(later.verb, Verb::Delete { .. });
                // Who does not take our word does not keep its pod for that.
                if outcome.is_refused() && decision.actions[index + 1..].iter().any(removes) {
                    continue;
                }
                return outcome.verdict();
            }
        }
        self.tell(&Subject::of(kinds::POD, &pod.meta), decision.event.as_slice());
        look_again(decision.again_at, now)
    }

    /// Whether a pod runs in the worker cluster.
    fn twin_of(&self, uid: &str) -> Twin {
        if !matches!(self.pulse.worker(), Worker::Known) {
            return Twin::NotKnown;
        }
        let twins = self.world.physical_pods.by(&TWIN_OF, uid);
        if twins.iter().any(|twin| twin.is_ours(&self.subject)) { Twin::Lives } else { Twin::None }
    }
}

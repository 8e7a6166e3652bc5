//! One pod on a virtual node: what its node's lease means for it, and what its twin does.

use std::sync::Arc;
use std::time::Duration;

use kubeocean_api::keys::reasons::Event as EventReason;
use kubeocean_cluster::events::Subject;
use kubeocean_cluster::queue::Verdict;
use kubeocean_cluster::reconcile::look_again;
use kubeocean_cluster::store::Entry;
use kubeocean_model::action::{Action, Dependents, Verb, kinds};
use kubeocean_model::bind::Telling;
use kubeocean_model::binding::Binding;
use kubeocean_model::key::{Key, Physical, Virtual};
use kubeocean_model::object::Object;
use kubeocean_model::reclaim::{self, Situation, Twin, VirtualPod};
use kubeocean_model::reflect;
use kubeocean_model::twin::{self, Next};

use crate::belongings::SeenMeta;
use crate::syncer::Syncer;
use crate::twins::Case;
use crate::world::Duty;

/// A budget that does not allow it now may allow it soon: another pod has become ready.
const ASK_AGAIN: Duration = Duration::from_secs(5);

impl Syncer {
    /// One round for one pod.
    pub(crate) async fn look_at_pod(&self, key: &Key<Virtual>) -> Verdict {
        let duty = Duty::Pod(key.clone());
        if !self.reconciler.fences.is_open(&duty) {
            return Verdict::Blocked;
        }
        let Some(binding) = self.binding() else { return Verdict::Done };
        // Before and after what is read of it: a list may come in between.
        let was_known = self.knows_belongings();
        let seen = self.world.pods.get(key);
        let twins = self.world.twins_of(key, &self.subject);
        let is_known = was_known && self.knows_belongings();
        let twins: Vec<&Object> = twins.iter().filter_map(|seen| seen.twin.as_deref()).collect();
        let Some(seen) = seen else {
            return if is_known { self.clear_away(&duty, key, &twins).await } else { Verdict::Done };
        };
        let pod = &seen.0;
        // Those on other bindings' nodes are theirs, and those on nodes that are gone V's own.
        let Some(vnode) = self.world.vnodes.get(&Key::cluster_scoped(pod.node.as_str())) else {
            return Verdict::Done;
        };
        // Nobody knows what its node remembered: that is found out first, and this looked at again when it has been written.
        let Some(tenure) = self.world.tenure_of(&vnode.0) else { return Verdict::Done };
        let now = self.reconciler.clock.now();
        let case = Case { duty: &duty, binding: &binding, pod, vnode: &vnode.0, tenure: &tenure, now };
        let is_mapped = self.subject.maps(pod, &binding);
        let has_run = reflect::has_run(pod) && !self.term.unborn.lock().contains(&*pod.meta.uid);
        let next = twin::next(Some(pod), &twins, is_mapped, has_run);
        let twin = match &next {
            _ if !is_known => Twin::NotKnown,
            Next::Stop(_) | Next::KeepInStep(_) => Twin::Lives,
            _ => Twin::None,
        };
        if pod.is_terminal && twin == Twin::None {
            self.let_go_of(key, Some(&pod.meta.uid));
        }
        if is_known && let Err(verdict) = self.remove_spent_tokens(&case, &twins).await {
            return verdict;
        }
        // It may have ended and gone in one moment: how it ended is what counts.
        if let Some(last) =
            self.world.ended.last(&pod.meta.uid).filter(|_| twin == Twin::None && !pod.is_terminal)
            && let Some(last) = last.twin.as_deref().filter(|last| reflect::is_terminal(last))
        {
            match self.try_to_reflect(&case, last, None).await {
                Ok(()) => return Verdict::Done,
                // Who does not take our word does not keep its pod for that.
                Err(not_told) if not_told.is_refused && pod.meta.is_deleting() => {}
                Err(not_told) => return not_told.verdict,
            }
        }
        // What goes for good must be known to run nowhere, and not only by a store that may be behind.
        if pod.meta.is_deleting()
            && is_mapped
            && twin == Twin::None
            && !tenure.is_lost()
            && let Err(verdict) = self.leaves_nothing(&case).await
        {
            return verdict;
        }
        let situation = Situation {
            pod,
            tenure: Some(&tenure),
            is_mapped,
            has_budget: self.world.has_budget(pod),
            twin,
            now,
        };
        let decision = reclaim::plan(&situation);
        // API servers end at once what has ended. Its twin goes before it.
        let goes = decision.actions.iter().any(|action| matches!(action.verb, Verb::Delete { .. }));
        if let Next::KeepInStep(twin) = &next
            && goes
            && pod.is_terminal
            && !tenure.is_lost()
        {
            return self.remove_twins(&duty, &[twin]).await;
        }
        let has_plans = !decision.actions.is_empty();
        let reclaimed = self.reclaim(&case, decision).await;
        // Whoever is told something, or is to go, is looked at again when the watch has told of that.
        if !is_known || has_plans || matches!(reclaimed, Verdict::Failed(_)) {
            return reclaimed;
        }
        if !is_mapped {
            self.tell_unmapped(&binding, pod);
        }
        match self.follow(&case, next).await {
            Verdict::Done => reclaimed,
            Verdict::Again(wait) => reclaimed.at_most(wait),
            verdict => verdict,
        }
    }

    /// What the lease of its node means for a pod.
    async fn reclaim(&self, case: &Case<'_>, decision: reclaim::Decision) -> Verdict {
        let Case { duty, pod, now, .. } = case;
        self.remind(duty, decision.again_at, *now);
        for (index, action) in decision.actions.iter().enumerate() {
            let outcome = self.reconciler.write(duty, action).await;
            if !outcome.fulfils(action) {
                if matches!(action.verb, Verb::Evict { .. }) {
                    return look_again(decision.again_at, *now).at_most(ASK_AGAIN);
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
        look_again(decision.again_at, *now)
    }

    /// There is no such pod in V, as far as the store knows. Before anything of it is taken away in P, the server is asked.
    async fn clear_away(&self, duty: &Duty, key: &Key<Virtual>, twins: &[&Object]) -> Verdict {
        let tokens = self.world.belongings.tokens_of(key, &self.subject);
        if twins.is_empty() {
            self.let_go_of(key, None);
            self.world.ended.forget_all_of(key);
        }
        if twins.is_empty() && tokens.is_empty() {
            return Verdict::Done;
        }
        // Of a pod whose twin we saw go, V's own watch has told.
        match self.virt.get(&kinds::POD, key).await {
            Ok(None) => {}
            Ok(Some(_)) => return Verdict::Failed("not-seen-yet"),
            Err(_) => return Verdict::Failed("pod-not-read"),
        }
        for uid in twins.iter().filter_map(|twin| twin::uid_of_pod(&twin.meta)) {
            self.term.forget(uid);
        }
        if let Next::Remove(twins) = twin::next(None, twins, false, false) {
            return self.remove_twins(duty, &twins).await;
        }
        match self.remove_tokens(duty, &tokens).await {
            Ok(()) => Verdict::Done,
            Err(verdict) => verdict,
        }
    }

    /// A pod that is to go runs nowhere, and nothing of it is left in P when it goes.
    async fn leaves_nothing(&self, case: &Case<'_>) -> Result<(), Verdict> {
        self.makes_sure_that_nothing_runs(case.pod).await?;
        let key = case.pod.key();
        self.remove_tokens(case.duty, &self.world.belongings.tokens_of(&key, &self.subject)).await?;
        self.let_go_of(&key, Some(&case.pod.meta.uid));
        Ok(())
    }

    /// Tokens of what has ended, and of earlier pods of that name, serve nobody.
    async fn remove_spent_tokens(&self, case: &Case<'_>, twins: &[&Object]) -> Result<(), Verdict> {
        let uid = &*case.pod.meta.uid;
        let mut tokens = self.world.belongings.tokens_of(&case.pod.key(), &self.subject);
        tokens.retain(|secret| {
            let of = twin::uid_of_pod(&secret.0);
            let is_mounted = twins.iter().any(|twin| twin::uid_of_pod(&twin.meta) == of);
            !is_mounted && (of != Some(uid) || case.pod.is_terminal)
        });
        self.remove_tokens(case.duty, &tokens).await
    }

    async fn remove_tokens(&self, duty: &Duty, tokens: &[Arc<Entry<SeenMeta>>]) -> Result<(), Verdict> {
        for secret in tokens.iter().filter(|secret| !secret.leaving) {
            let place = Key::<Physical>::new(&*secret.0.namespace, &*secret.0.name);
            let verb = Verb::Delete { grace: None, dependents: Dependents::Background };
            let action =
                Action::new(kinds::SECRET, &place, verb, "its pod is no more").if_uid(&*secret.0.uid);
            let outcome = self.reconciler.write(duty, &action).await;
            if !outcome.fulfils(&action) {
                return Err(outcome.verdict());
            }
        }
        Ok(())
    }

    /// Someone put a pod on a virtual node that will not run there.
    fn tell_unmapped(&self, binding: &Binding, pod: &VirtualPod) {
        if pod.is_placeholder() || pod.is_terminal || pod.meta.is_deleting() {
            return;
        }
        let message = self.subject.why_unmapped(pod, binding);
        let event = Telling::event(true, EventReason::NotMapped, message);
        self.tell(&Subject::of(kinds::POD, &pod.meta), &[event]);
    }
}

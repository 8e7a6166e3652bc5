//! One pod and its twin in the worker cluster: started, kept in step, stopped.
//!
//! What comes next is decided in `model::twin`; here it is done, one step after the other, and what came of each is told.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use kubeocean_api::keys::reasons::{Event as EventReason, Pod as Reason};
use kubeocean_api::keys::{annotations, names};
use kubeocean_cluster::apply::Outcome;
use kubeocean_cluster::events::Subject as Told;
use kubeocean_cluster::queue::Verdict;
use kubeocean_cluster::reconcile::look_again;
use kubeocean_model::action::{Action, Mark, PatchForm, Verb, kinds};
use kubeocean_model::admission::{self, Question, Rejection};
use kubeocean_model::bind::Telling;
use kubeocean_model::binding::Binding;
use kubeocean_model::key::{Key, Physical, Virtual};
use kubeocean_model::naming::Origin;
use kubeocean_model::object::Object;
use kubeocean_model::project::{self, Needs, Referent, Surroundings};
use kubeocean_model::reclaim::VirtualPod;
use kubeocean_model::reflect;
use kubeocean_model::twin::{self, Next};
use kubeocean_model::vnode::{Tenure, VirtualNode};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::references::{Original, User, copied, duty_of};
use crate::syncer::{REMEMBERED, Syncer};
use crate::world::Duty;

/// What a pod waits for comes with a watch. This is for who waits for a word that nobody gives.
const WAITS_AT_MOST: Duration = Duration::from_secs(60);

/// A change that the worker cluster does not want now is tried again after this time, and not at each word of the twin's.
const ASKS_AGAIN: Duration = Duration::from_secs(60);

/// What a pod uses of V; `None`: it cannot run anyway.
pub(crate) fn uses_of(pod: &VirtualPod) -> Option<BTreeSet<Original>> {
    project::needs(pod).ok().map(|needs| originals(pod, &needs))
}

fn originals(pod: &VirtualPod, needs: &Needs) -> BTreeSet<Original> {
    let all = needs.references.keys();
    all.map(|(referent, name)| (*referent, Key::new(&*pod.meta.namespace, name.as_str()))).collect()
}

/// A pod that is to be looked at, and where it is.
pub(crate) struct Case<'a> {
    pub(crate) duty: &'a Duty,
    pub(crate) binding: &'a Binding,
    pub(crate) pod: &'a VirtualPod,
    pub(crate) vnode: &'a VirtualNode,
    pub(crate) tenure: &'a Tenure,
    pub(crate) now: Timestamp,
}

impl Case<'_> {
    fn told(&self) -> Told {
        Told::of(kinds::POD, &self.pod.meta)
    }

    /// A patch of the pod's status. With the version: what is final must not be written over.
    fn status(&self, body: Value, why: &'static str) -> Action {
        let verb = Verb::Patch { form: PatchForm::Strategic, subresource: Some("status"), body };
        let action = Action::new(kinds::POD, &self.pod.key(), verb, why).if_uid(&*self.pod.meta.uid);
        action.if_version(&*self.pod.meta.resource_version)
    }
}

/// How far the changes of a pod have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    /// Its twin runs by them.
    On,
    /// It does not. What comes next is news of one of the two, if anything.
    NotYet,
    /// The worker cluster did not want them then, and may think otherwise later.
    NotNow(Instant),
}

/// What V was to be told, and does not know.
pub(crate) struct NotTold {
    pub(crate) verdict: Verdict,
    /// Whether V does not take it.
    pub(crate) is_refused: bool,
}

/// Done, or the verdict that ends this look.
type Step = Result<(), Verdict>;

impl Syncer {
    /// What comes next for a pod that is there.
    pub(crate) async fn follow(&self, case: &Case<'_>, next: Next<'_>) -> Verdict {
        match next {
            Next::Rest | Next::Release => Verdict::Done,
            Next::Remove(twins) => self.remove_those_before(case, &twins).await,
            Next::Start => self.start(case).await,
            Next::DeclareLost => self.declare_lost(case).await,
            Next::Stop(twin) => self.stop(case, twin).await,
            Next::KeepInStep(twin) => self.keep_in_step(case, twin).await,
        }
    }

    /// One write; what it says to be refused is told.
    async fn written(&self, duty: &Duty, action: &Action) -> Step {
        let outcome = self.reconciler.write(duty, action).await;
        if outcome.fulfils(action) {
            return Ok(());
        }
        self.complain(action, &outcome);
        Err(outcome.verdict())
    }

    /// Twins of earlier pods of the same name. The store may be the one that is behind: the server is asked which pod is the earlier one.
    async fn remove_those_before(&self, case: &Case<'_>, twins: &[&Object]) -> Verdict {
        match self.virt.get(&kinds::POD, &case.pod.key()).await {
            Ok(Some(now)) if now.meta.uid == case.pod.meta.uid => self.remove_twins(case.duty, twins).await,
            Ok(_) => Verdict::Failed("not-seen-yet"),
            Err(_) => Verdict::Failed("pod-not-read"),
        }
    }

    /// Twins of pods that are no more.
    pub(crate) async fn remove_twins(&self, duty: &Duty, twins: &[&Object]) -> Verdict {
        let mut verdict = Verdict::Done;
        for twin in twins {
            let left = self.patience_with_the_end_of(twin);
            let forced = left.is_some_and(|left| left.is_zero());
            let action = if forced { Some(twin::force(twin)) } else { twin::remove(twin) };
            if let Some(action) = action
                && let Err(verdict) = self.written(duty, &action).await
            {
                return verdict;
            }
            verdict = left.filter(|_| !forced).into_iter().fold(verdict, Verdict::at_most);
        }
        verdict
    }

    /// How long a twin that is ending is still waited for, counted from when we first saw it end; `None`: it is not ending.
    fn patience_with_the_end_of(&self, twin: &Object) -> Option<Duration> {
        let takes = twin::takes_to_end(twin)?;
        let mut ending_since = self.term.ending_since.lock();
        if ending_since.len() >= REMEMBERED {
            ending_since.clear();
        }
        let since = ending_since.entry(twin.meta.uid.to_string()).or_insert_with(Instant::now);
        Some((takes + twin::LINGERS_AT_MOST).saturating_sub(since.elapsed()))
    }

    async fn start(&self, case: &Case<'_>) -> Verdict {
        match self.try_to_start(case).await {
            Ok(()) => Verdict::Done,
            Err(verdict) => verdict,
        }
    }

    async fn try_to_start(&self, case: &Case<'_>) -> Step {
        let pod = case.pod;
        let needs = match project::needs(pod) {
            Ok(needs) => needs,
            Err(refusal) => return Err(self.refuse(case, &refusal)),
        };
        if let Err(rejection) = self.let_in(case) {
            return self.reject(case, &rejection).await;
        }
        self.enter_uses(&User::Pod(pod.key()), originals(pod, &needs));
        let has_all = self.has_all(case, &needs);
        if !has_all || !self.services_have_come(&pod.meta.namespace, case.binding) {
            return Err(Verdict::Again(WAITS_AT_MOST));
        }
        self.know_priority_class(case).await?;
        let tokens = self.bring_tokens(case, &needs).await?;
        let twin = self.twin_to_create(case, &needs, tokens.as_deref()).await?;
        // From here on it may have run, whatever is lost.
        let mut mapped = None;
        if let Some(body) = reflect::mapped(pod, case.now) {
            self.is_let_in_there(case, &twin).await?;
            let action = case.status(body, "it must not run twice");
            let outcome = self.reconciler.write(case.duty, &action).await;
            if !outcome.is_done() {
                self.complain(&action, &outcome);
                return Err(outcome.verdict());
            }
            let version = outcome.version().map(str::to_owned);
            mapped = Some(version.unwrap_or_else(|| pod.meta.resource_version.to_string()));
            // Nobody else wrote that, so nobody else makes its twin.
            self.term.unborn.lock().insert(pod.meta.uid.to_string());
        }
        self.create_twin(case, &twin, mapped.as_deref()).await
    }

    /// Where the worker cluster refused the twin the last time, it is asked first whether it still does: that the pod may have run is not
    /// said, and taken back, at each try.
    async fn is_let_in_there(&self, case: &Case<'_>, twin: &Action) -> Step {
        if reflect::refusal(case.pod).is_none() {
            return Ok(());
        }
        let outcome = self.reconciler.applier.try_out(twin).await;
        if outcome.is_done() || matches!(outcome, Outcome::ExistsForeign) {
            return Ok(());
        }
        self.placements.asked(case.pod, &outcome, false, self.reconciler.clock.now());
        match why_refused(&outcome, twin) {
            Some(why) => Err(self.refused_there(case, &why, &outcome, None).await),
            None => Err(outcome.verdict()),
        }
    }

    /// What cannot run anywhere else than in V's own nodes: people hear why, and the pod waits.
    fn refuse(&self, case: &Case<'_>, refusal: &project::Refusal) -> Verdict {
        self.tell(&case.told(), &[Telling::event(true, refusal.reason(), refusal.to_string())]);
        Verdict::Done
    }

    /// Whether a pod may start. Who is let in counts from that moment on, also before its twin is seen.
    fn let_in(&self, case: &Case<'_>) -> Result<(), Rejection> {
        let mut admitted = self.term.admitted.lock();
        if admitted.contains(&*case.pod.meta.uid) {
            return Ok(());
        }
        let on_node = self.world.pods_on(case.vnode.name());
        let is_in = |pod: &VirtualPod| {
            pod.is_placeholder()
                || admitted.contains(&*pod.meta.uid)
                || !self.world.twins_of(&pod.key(), &self.subject).is_empty()
        };
        let others: Vec<&VirtualPod> = on_node
            .iter()
            .map(|seen| &seen.0)
            .filter(|other| other.meta.uid != case.pod.meta.uid && !other.is_terminal && is_in(other))
            .collect();
        let namespace = self.world.namespaces.get(&Key::cluster_scoped(&*case.pod.meta.namespace));
        admission::admit(&Question {
            pod: case.pod,
            vnode: case.vnode,
            tenure: case.tenure,
            others: &others,
            binding: &self.subject.binding,
            allowed: namespace
                .as_ref()
                .and_then(|seen| seen.0.annotations.get(annotations::ALLOWED_CLUSTERS)),
        })?;
        admitted.insert(case.pod.meta.uid.to_string());
        Ok(())
    }

    /// As a kubelet does it: the pod has failed, and whoever made it makes another one.
    async fn reject(&self, case: &Case<'_>, Rejection { reason, message }: &Rejection) -> Step {
        let body = reflect::failed(case.pod, reason, message, false, case.now);
        self.written(case.duty, &case.status(body, "its node does not take it")).await?;
        self.placements.rejected();
        Ok(())
    }

    /// What someone uses has changed, perhaps.
    pub(crate) fn enter_uses(&self, user: &User, now: BTreeSet<Original>) {
        for original in self.references.put(user, now) {
            // Who comes now may have brought what was not there for others.
            self.term.absent.lock().remove(&original);
            let duty = duty_of(original);
            if matches!(duty, Duty::Claim(_)) {
                self.term.unheard.names(duty.clone());
            }
            self.reconciler.queue.add(duty);
        }
    }

    /// Whether all that the pod cannot do without is there, and all else that there is.
    fn has_all(&self, case: &Case<'_>, needs: &Needs) -> bool {
        needs.references.iter().all(|((referent, name), is_required)| {
            let original = (*referent, Key::new(&*case.pod.meta.namespace, name.as_str()));
            if !is_required && self.is_known_to_be_absent(&original) {
                return true;
            }
            let is_usable = *referent != Referent::Claim || {
                let key = Key::new(&*case.pod.meta.namespace, name.as_str());
                let decision = self.decide_claim(&key, case.binding, true);
                decision.is_some_and(|decision| decision.standing.is_usable()) && !self.ending.has(&key)
            };
            is_usable && self.name_there(case.pod, *referent, name).is_some()
        })
    }

    /// What something that a pod refers to is called in P, if it is there.
    fn name_there(&self, pod: &VirtualPod, referent: Referent, name: &str) -> Option<String> {
        let key = Key::new(&*pod.meta.namespace, name);
        let Some(what) = copied(referent) else {
            let claim = self.world.belongings.claim_of(&key, &self.subject)?;
            return (!claim.leaving).then(|| claim.meta.name.to_string());
        };
        let copy = self.world.belongings.copy_of(what, &key, &self.subject)?;
        (!copy.leaving).then(|| copy.0.name.to_string())
    }

    /// The class of borrowed pods is made once, where the lender did not.
    async fn know_priority_class(&self, case: &Case<'_>) -> Step {
        if case.binding.priority_class.is_some() || self.has_priority_class.load(Ordering::Relaxed) {
            return Ok(());
        }
        let key = Key::<Physical>::cluster_scoped(names::DEFAULT_PRIORITY_CLASS);
        let found = self.phys.get(&kinds::PRIORITY_CLASS, &key).await;
        if found.map_err(|_| Verdict::Failed("priority-class-not-read"))?.is_none() {
            let body = json!({
                "value": names::DEFAULT_PRIORITY, "preemptionPolicy": names::DEFAULT_PREEMPTION_POLICY,
                "description": "Borrowed pods: they run before nobody, and push nobody out.",
            });
            let verb = Verb::Create { body, mark: Mark::default() };
            let action = Action::new(kinds::PRIORITY_CLASS, &key, verb, "borrowed pods need a class");
            let outcome = self.reconciler.write(case.duty, &action).await;
            // Another binding may have made it in this moment.
            if !outcome.is_done() && !matches!(outcome, Outcome::ExistsForeign) {
                self.complain(&action, &outcome);
                return Err(outcome.verdict());
            }
        }
        self.has_priority_class.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// What the pod would be in P now.
    fn projected(
        &self,
        case: &Case<'_>,
        name: &str,
        tokens: Option<&str>,
        keeps_class: bool,
    ) -> Result<Value, project::Refusal> {
        let computing = self.computing_for(&case.pod.meta.namespace, case.binding);
        project::project(
            case.pod,
            &Surroundings {
                binding: case.binding,
                virtual_cluster: &self.subject.virtual_cluster,
                vnode: case.vnode.name(),
                physical_node: &case.vnode.physical_name,
                name,
                names: &|referent, name| self.name_there(case.pod, referent, name),
                tokens,
                keeps_runtime_class: keeps_class,
                allows_inline_csi: self.pulse.allowed_volumes().has("csi"),
                computing: &computing,
                allowed_annotations: &[],
            },
        )
    }

    /// The twin as it is to be made now.
    async fn twin_to_create(
        &self,
        case: &Case<'_>,
        needs: &Needs,
        tokens: Option<&str>,
    ) -> Result<Action, Verdict> {
        let origin = Origin::Object { namespace: &case.pod.meta.namespace, name: &case.pod.meta.name };
        let first = origin.physical_name();
        let other = origin.fallback_name(&self.subject.uid);
        let is_taken = self.taken.lock().contains(&taken_word(first.as_str()));
        let name = if is_taken { other.as_str() } else { first.as_str() };
        let keeps_class = self.keeps_runtime_class(needs).await?;
        match self.projected(case, name, tokens, keeps_class) {
            Ok(body) => Ok(twin::create(&self.subject.mount_namespace, name, project::to_create(body))),
            Err(refusal) => Err(self.refuse(case, &refusal)),
        }
    }

    /// Makes it. `mapped` is the version of the pod that says that it may have run, if that was written just before.
    async fn create_twin(&self, case: &Case<'_>, action: &Action, mapped: Option<&str>) -> Step {
        // Whoever is stopped while he waits for the answer does not know it: then it may have run.
        let was_unborn = self.term.unborn.lock().remove(&*case.pod.meta.uid);
        let outcome = self.reconciler.write(case.duty, action).await;
        let is_there = outcome.fulfils(action);
        self.placements.asked(case.pod, &outcome, is_there, self.reconciler.clock.now());
        if was_unborn && is_surely_not_made(&outcome) {
            self.term.unborn.lock().insert(case.pod.meta.uid.to_string());
        }
        if is_there {
            self.tell_of_the_unknown();
            return Ok(());
        }
        if let Some(why) = why_refused(&outcome, action) {
            return Err(self.refused_there(case, &why, &outcome, mapped).await);
        }
        match outcome {
            Outcome::ExistsForeign => Err(self.twin_name_is_taken(case, &action.name).await),
            outcome => Err(outcome.verdict()),
        }
    }

    /// A runtime class that the worker does not have is left out.
    async fn keeps_runtime_class(&self, needs: &Needs) -> Result<bool, Verdict> {
        let Some(class) = &needs.runtime_class else { return Ok(false) };
        let found = self.phys.get(&kinds::RUNTIME_CLASS, &Key::cluster_scoped(class.as_str())).await;
        Ok(found.map_err(|_| Verdict::Failed("runtime-class-not-read"))?.is_some())
    }

    /// The name of the twin is taken: by the twin of an earlier pod, which is on its way out, or by someone else.
    async fn twin_name_is_taken(&self, case: &Case<'_>, name: &str) -> Verdict {
        let key = Key::<Physical>::new(&*self.subject.mount_namespace, name);
        let Ok(found) = self.phys.get(&kinds::POD, &key).await else {
            return Verdict::Failed("twin-not-read");
        };
        if found.is_none_or(|found| crate::belongings::is_ours(&found.meta, &self.subject)) {
            return Verdict::Failed("not-seen-yet");
        }
        if self.taken.lock().insert(taken_word(name)) {
            let message = format!(
                "pod {name} of the worker cluster is not of this binding: the pod gets another name there"
            );
            self.tell(&case.told(), &[Telling::event(false, EventReason::NameTaken, message)]);
        }
        Verdict::Failed("name-taken")
    }

    /// The worker cluster does not want the pod: quota, `PodSecurity`, a webhook. Its words are the pod's, and it has not run.
    async fn refused_there(
        &self,
        case: &Case<'_>,
        why: &str,
        outcome: &Outcome,
        mapped: Option<&str>,
    ) -> Verdict {
        // What was there may have been taken away.
        self.has_priority_class.store(false, Ordering::Relaxed);
        let message = format!("the worker cluster {} refuses the pod: {why}", self.subject.binding);
        self.tell(&case.told(), &[Telling::event(true, EventReason::FailedCreate, message.clone())]);
        let reason = EventReason::FailedCreate.as_str();
        if let Some(body) = reflect::not_mapped(case.pod, mapped.is_some(), reason, &message, case.now) {
            // Of this version, or of the one that was written just before: a later one may be about a twin that is there.
            let mut action = case.status(body, "the worker cluster refuses it");
            if let Some(version) = mapped {
                action = action.if_version(version);
            }
            self.reconciler.write(case.duty, &action).await;
        }
        outcome.verdict()
    }

    /// It ran, and its twin is not there. What a watch has not told of yet is asked for.
    async fn declare_lost(&self, case: &Case<'_>) -> Verdict {
        match self.makes_sure_that_nothing_runs(case.pod).await {
            Ok(()) => {}
            Err(verdict) => return verdict,
        }
        let message = format!("the pod was deleted in {} while it was running", self.subject.binding);
        let body = reflect::failed(case.pod, Reason::PhysicalPodLost.as_str(), &message, true, case.now);
        let event = Telling { warning: true, reason: Reason::PhysicalPodLost.as_str(), message };
        match self.written(case.duty, &case.status(body, "its twin is gone")).await {
            Ok(()) => {
                self.tell(&case.told(), &[event]);
                Verdict::Done
            }
            Err(verdict) => verdict,
        }
    }

    /// Whether nothing runs of a pod: we saw its twin go, or P says so.
    pub(crate) async fn makes_sure_that_nothing_runs(&self, pod: &VirtualPod) -> Step {
        if self.world.ended.last(&pod.meta.uid).is_some() {
            return Ok(());
        }
        let origin = Origin::Object { namespace: &pod.meta.namespace, name: &pod.meta.name };
        for name in [origin.physical_name(), origin.fallback_name(&self.subject.uid)] {
            let key = Key::<Physical>::new(&*self.subject.mount_namespace, name.as_str());
            let found = self.phys.get(&kinds::POD, &key).await;
            let found = found.map_err(|_| Verdict::Failed("twin-not-read"))?;
            let is_twin = |found: &Object| {
                crate::belongings::is_ours(&found.meta, &self.subject)
                    && twin::uid_of_pod(&found.meta) == Some(&*pod.meta.uid)
            };
            if found.as_ref().is_some_and(is_twin) {
                return Err(Verdict::Failed("not-seen-yet"));
            }
        }
        Ok(())
    }

    async fn stop(&self, case: &Case<'_>, twin: &Object) -> Verdict {
        if let Some(action) = twin::stop(case.pod, twin, case.now)
            && let Err(verdict) = self.written(case.duty, &action).await
        {
            return verdict;
        }
        self.reflect(case, twin, None).await
    }

    async fn keep_in_step(&self, case: &Case<'_>, twin: &Object) -> Verdict {
        self.term.admitted.lock().remove(&*case.pod.meta.uid);
        if case.pod.is_terminal {
            self.term.in_step.lock().remove(&*case.pod.meta.uid);
            return Verdict::Done;
        }
        let Ok(needs) = project::needs(case.pod) else { return self.reflect(case, twin, None).await };
        self.enter_uses(&User::Pod(case.pod.key()), originals(case.pod, &needs));
        let patience = self.patience_with(case.pod, twin);
        if patience.is_some_and(|left| left.is_zero()) {
            return self.give_up(case, twin).await;
        }
        let kept = self.bring_up_to_date(case, twin, &needs).await;
        let is_of_now = matches!(kept, Ok((_, Passed::On)));
        // Whatever could not be passed on: what becomes of the twin is told.
        match (self.reflect(case, twin, is_of_now.then_some(case.pod.meta.generation)).await, kept) {
            (Verdict::Done, Ok((renewed, passed))) => {
                let later = match passed {
                    Passed::NotNow(at) => Some(ASKS_AGAIN.saturating_sub(at.elapsed())),
                    Passed::On | Passed::NotYet => None,
                };
                let renewal = look_again(renewed, case.now);
                patience.into_iter().chain(later).fold(renewal, Verdict::at_most)
            }
            (Verdict::Done, Err(verdict)) | (verdict, _) => verdict,
        }
    }

    /// Its tokens are fresh, and its changes are passed on. Gives when the tokens are to be renewed, and how far the changes have come.
    async fn bring_up_to_date(
        &self,
        case: &Case<'_>,
        twin: &Object,
        needs: &Needs,
    ) -> Result<(Option<Timestamp>, Passed), Verdict> {
        let renewed = self.renew_tokens(case, needs).await;
        let passed = self.pass_on(case, twin, needs).await?;
        Ok((renewed?, passed))
    }

    /// How long P's scheduler still has to find a node for the twin; `None`: it has found one.
    fn patience_with(&self, pod: &VirtualPod, twin: &Object) -> Option<Duration> {
        let mut unplaced = self.term.unplaced.lock();
        if !twin::waits_for_a_node(twin) {
            unplaced.remove(&*pod.meta.uid);
            return None;
        }
        let fresh = || (twin.meta.uid.to_string(), Instant::now());
        let waiting = unplaced.entry(pod.meta.uid.to_string()).or_insert_with(fresh);
        if waiting.0 != *twin.meta.uid {
            *waiting = fresh();
        }
        Some(twin::PLACED_WITHIN.saturating_sub(waiting.1.elapsed()))
    }

    /// No node of P wants the twin. It goes first: a pod that has failed must not start after all.
    async fn give_up(&self, case: &Case<'_>, twin: &Object) -> Verdict {
        let why = kubeocean_model::twin::why_not_placed(twin);
        let message = format!("no node of the worker cluster took the pod within five minutes: {why}");
        let body =
            reflect::failed(case.pod, Reason::PhysicalUnschedulable.as_str(), &message, true, case.now);
        for action in [twin::give_up(twin), case.status(body, "no node wants it")] {
            if let Err(verdict) = self.written(case.duty, &action).await {
                return verdict;
            }
        }
        Verdict::Done
    }

    /// What has changed of the pod since its twin was made.
    async fn pass_on(&self, case: &Case<'_>, twin: &Object, needs: &Needs) -> Result<Passed, Verdict> {
        let uid = case.pod.meta.uid.to_string();
        let seen = |passed| Seen { pod: fingerprint(case.pod), twin: fingerprint(twin), passed };
        let now = seen(Passed::On);
        let known =
            self.term.in_step.lock().get(&uid).filter(|known| known.is_of(&now)).map(|known| known.passed);
        match known {
            Some(Passed::NotNow(at)) if at.elapsed() >= ASKS_AGAIN => {}
            Some(passed) => return Ok(passed),
            None => {}
        }
        let tokens = self.token_secret_name(case.pod, needs);
        // What the worker lacked when the twin was made it lacks for the twin's whole life.
        let keeps_class = twin.text("spec", &["runtimeClassName"]).is_some();
        let Ok(wanted) = self.projected(case, &twin.meta.name, tokens.as_deref(), keeps_class) else {
            return Ok(Passed::NotYet);
        };
        let changes = project::changes(&wanted, twin);
        if changes.is_empty() {
            self.term.in_step.lock().insert(uid, now);
            return Ok(Passed::On);
        }
        // One that is refused keeps none of the others back, but for the last word: that the twin is of this generation now.
        let mut refused = None;
        for project::Change { subresource, form, body } in changes {
            if refused.is_some() && subresource.is_none() {
                break;
            }
            let verb = Verb::Patch { form, subresource, body };
            let action = Action::new(kinds::POD, &twin.key::<Physical>(), verb, "its pod has changed");
            let action = action.if_uid(&*twin.meta.uid);
            let outcome = self.reconciler.write(case.duty, &action).await;
            let why = match (&outcome, subresource) {
                (Outcome::Invalid(status) | Outcome::Forbidden(status), _) => {
                    format!("the worker cluster refuses a change of the pod: {status}")
                }
                (Outcome::Gone, Some(subresource)) if self.is_there(twin).await? => format!(
                    "the worker cluster does not know pods/{subresource}: that change of the pod needs a newer Kubernetes there"
                ),
                (outcome, _) if outcome.fulfils(&action) => continue,
                (outcome, _) => return Err(outcome.verdict()),
            };
            self.tell_once(&case.told(), &Telling::event(true, EventReason::FailedUpdate, why));
            // A quota may be freed, a webhook mended, a right granted. All else will be said again.
            let may_change = match &outcome {
                Outcome::Invalid(status) => status.is_admission(),
                outcome => matches!(outcome, Outcome::Forbidden(_)),
            };
            refused = if may_change {
                Some(Passed::NotNow(Instant::now()))
            } else {
                refused.or(Some(Passed::NotYet))
            };
        }
        match refused {
            None => Ok(Passed::NotYet),
            Some(passed) => {
                self.term.in_step.lock().insert(uid, seen(passed));
                Ok(passed)
            }
        }
    }

    /// Whether a twin is there by the server's own word.
    async fn is_there(&self, twin: &Object) -> Result<bool, Verdict> {
        let found = self.phys.get(&kinds::POD, &twin.key::<Physical>()).await;
        let found = found.map_err(|_| Verdict::Failed("twin-not-read"))?;
        Ok(found.is_some_and(|found| found.meta.uid == twin.meta.uid))
    }

    /// Tells V what became of the twin.
    pub(crate) async fn reflect(&self, case: &Case<'_>, twin: &Object, observed: Option<i64>) -> Verdict {
        match self.try_to_reflect(case, twin, observed).await {
            Ok(()) => Verdict::Done,
            Err(not_told) => not_told.verdict,
        }
    }

    /// Tells V what became of the twin, or says why not.
    pub(crate) async fn try_to_reflect(
        &self,
        case: &Case<'_>,
        twin: &Object,
        observed: Option<i64>,
    ) -> Result<(), NotTold> {
        let reflection = reflect::reflect(case.pod, twin, observed, case.now);
        if let Some(body) = reflection.patch {
            let action = case.status(body, "what the worker cluster says of it");
            let outcome = self.reconciler.write(case.duty, &action).await;
            if !outcome.fulfils(&action) {
                self.complain(&action, &outcome);
                return Err(NotTold { verdict: outcome.verdict(), is_refused: outcome.is_refused() });
            }
        }
        self.tell(&case.told(), &reflection.events);
        Ok(())
    }

    /// A pod is no more, and nothing of it runs: what it used may go.
    pub(crate) fn let_go_of(&self, key: &Key<Virtual>, uid: Option<&str>) {
        if let Some(uid) = uid {
            self.term.forget(uid);
            self.told_once.lock().retain(|(of, _), _| of != uid);
        }
        for original in self.references.remove(&User::Pod(key.clone())) {
            self.reconciler.queue.add(duty_of(original));
        }
    }
}

/// Why the worker cluster does not let a twin be made, if it is that.
fn why_refused(outcome: &Outcome, action: &Action) -> Option<String> {
    match outcome {
        Outcome::Invalid(status) | Outcome::Forbidden(status) => Some(status.to_string()),
        Outcome::Gone => Some(format!("there is no namespace {}", action.namespace)),
        _ => None,
    }
}

/// The server has answered that it did not make it: two that are counted in a quota at the same time get such an answer, and so does who
/// asks too often. Without an answer it may have been made.
fn is_surely_not_made(outcome: &Outcome) -> bool {
    outcome.is_refused()
        || matches!(
            outcome,
            Outcome::Conflict(_) | Outcome::Gone | Outcome::ExistsForeign | Outcome::Throttled { .. }
        )
}

/// As far as changes of one have to be passed on to the other.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pod: u64,
    twin: u64,
    passed: Passed,
}

impl Seen {
    /// Whether nothing has changed since.
    fn is_of(&self, now: &Self) -> bool {
        (self.pod, self.twin) == (now.pod, now.twin)
    }
}

/// What changes of an object can matter: its spec and its metadata, not its status.
fn fingerprint(object: &Object) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    object.raw("spec").map(serde_json::value::RawValue::get).hash(&mut hasher);
    for pairs in [&object.meta.labels, &object.meta.annotations] {
        for pair in pairs.iter().filter(|(key, _)| *key != annotations::LAST_SYNC_TIME) {
            pair.hash(&mut hasher);
        }
    }
    hasher.finish()
}

fn taken_word(name: &str) -> String {
    format!("pods/{name}")
}

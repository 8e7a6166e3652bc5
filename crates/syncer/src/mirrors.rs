//! Services of V that pods reach in the worker cluster, and their endpoints, one by one.

use kubeocean_api::keys::reasons::Event as EventReason;
use kubeocean_cluster::apply::Outcome;
use kubeocean_cluster::events::Subject as Told;
use kubeocean_cluster::progress::Progress;
use kubeocean_cluster::queue::Verdict;
use kubeocean_model::action::{Action, Kind, Verb, kinds};
use kubeocean_model::bind::Telling;
use kubeocean_model::binding::Binding;
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::naming::{Origin, PhysicalName};
use kubeocean_model::object::Object;
use kubeocean_model::services::{self, plan_service, plan_slice};
use kubeocean_model::stamp::Stamp;

use crate::belongings::whole;
use crate::seen::SERVICES_IN;
use crate::syncer::Syncer;
use crate::world::Duty;

impl Syncer {
    /// One round for one Service.
    pub(crate) async fn look_at_service(&self, key: &Key<Virtual>) -> Verdict {
        let duty = Duty::Service(key.clone());
        if !self.reconciler.fences.is_open(&duty) {
            return Verdict::Blocked;
        }
        let Some(binding) = self.binding() else { return Verdict::Done };
        if !self.knows_belongings() {
            return Verdict::Done;
        }
        let is_mirrored = self.is_mirrored(&key.namespace, &binding);
        let original = self.world.services.get(key);
        let copy = self.world.belongings.service_of(key, &self.subject);
        // Its address goes with it, and pods have that: a store that is behind is no reason.
        if is_mirrored
            && original.is_none()
            && copy.is_some()
            && let Err(verdict) = self.is_really_gone(&kinds::SERVICE, key).await
        {
            return verdict;
        }
        let name = self.mirror_name(&kinds::SERVICE, key);
        let stamp = Stamp { binding: &binding, virtual_cluster: &self.subject.virtual_cluster };
        let object = original.as_ref().map(|seen| &seen.object);
        let decision = plan_service(&stamp, object, whole(copy.as_ref()), &name, is_mirrored);
        if let (Some(skipped), Some(original)) = (decision.skipped, object) {
            self.tell_once(&Told::of(kinds::SERVICE, &original.meta), &skipped.telling());
        }
        let is_new = copy.is_none() && !decision.actions.is_empty();
        if let Err(verdict) = self.mirror(&duty, key, &decision.actions).await {
            return verdict;
        }
        self.unmirrored.lock().remove(key);
        if let Some(original) = object.filter(|_| is_new) {
            self.tell_of_older_pods(original);
        }
        Verdict::Done
    }

    /// One round for one slice of endpoints.
    pub(crate) async fn look_at_slice(&self, key: &Key<Virtual>) -> Verdict {
        let duty = Duty::Slice(key.clone());
        if !self.reconciler.fences.is_open(&duty) {
            return Verdict::Blocked;
        }
        let Some(binding) = self.binding() else { return Verdict::Done };
        if !self.knows_belongings() || !self.world.slices.progress().all(Progress::is_synced) {
            return Verdict::Done;
        }
        let original = self.world.slices.get(key);
        let copy = self.world.belongings.slice_of(key, &self.subject);
        // Which slices are kept depends on the binding: a list from before it was known, or was another, is no reason either.
        if original.is_none()
            && copy.is_some()
            && self.is_mirrored(&key.namespace, &binding)
            && let Err(verdict) = self.is_really_gone(&kinds::ENDPOINT_SLICE, key).await
        {
            return verdict;
        }
        let service = original.as_ref().and_then(|slice| self.service_of_slice(slice, &binding));
        let name = self.mirror_name(&kinds::ENDPOINT_SLICE, key);
        let stamp = Stamp { binding: &binding, virtual_cluster: &self.subject.virtual_cluster };
        let actions =
            plan_slice(&stamp, whole(original.as_ref()), whole(copy.as_ref()), &name, service.as_ref());
        match self.mirror(&duty, key, &actions).await {
            Ok(()) => Verdict::Done,
            Err(verdict) => verdict,
        }
    }

    /// Whether Services of a namespace are brought along. Those of a binding that goes stay for as long as pods of it run.
    fn is_mirrored(&self, namespace: &str, binding: &Binding) -> bool {
        let is_over = binding.is_deleting && !self.has_twins();
        !is_over && services::is_mirrored(binding, namespace, &self.subject.install_namespace)
    }

    /// The Service in P that the endpoints of a V slice are behind, if there is one.
    fn service_of_slice(&self, slice: &Object, binding: &Binding) -> Option<PhysicalName> {
        let namespace = &*slice.meta.namespace;
        let name = services::service_of(&slice.meta).filter(|_| self.is_mirrored(namespace, binding))?;
        let key = Key::new(namespace, name);
        self.world.services.get(&key)?;
        let copy = self.world.belongings.service_of(&key, &self.subject)?;
        (!copy.leaving).then(|| PhysicalName::existing(&copy.meta))
    }

    async fn mirror(&self, duty: &Duty, key: &Key<Virtual>, actions: &[Action]) -> Result<(), Verdict> {
        for action in actions {
            let outcome = self.reconciler.write(duty, action).await;
            if matches!(outcome, Outcome::ExistsForeign) {
                return Err(self.mirror_name_is_taken(key, action));
            }
            if !outcome.fulfils(action) {
                // Pods do not wait for what nobody lets us make.
                let creates = matches!(action.verb, Verb::Create { .. }) && outcome.is_refused();
                if creates && action.kind == kinds::SERVICE && self.unmirrored.lock().insert(key.clone()) {
                    self.look_at_pods_in(&key.namespace);
                }
                self.complain(action, &outcome);
                return Err(outcome.verdict());
            }
        }
        Ok(())
    }

    /// Someone else has the name in P. The copy gets the other one, and people hear of it once: at the Service, also of its endpoints.
    fn mirror_name_is_taken(&self, key: &Key<Virtual>, action: &Action) -> Verdict {
        let Action { kind, name, .. } = action;
        if self.taken.lock().insert(taken_word(kind, name)) {
            let service = if *kind == kinds::SERVICE {
                Some(key.clone())
            } else {
                let slice = self.world.slices.get(key);
                slice.and_then(|slice| Some(Key::new(&*key.namespace, services::service_of(&slice.meta)?)))
            };
            if let Some(original) = service.and_then(|service| self.world.services.get(&service)) {
                let message = format!(
                    "{} {name} of the worker cluster is not of this binding: the copy of {key} gets another name there",
                    kind.kind
                );
                let telling = Telling::event(false, EventReason::NameTaken, message);
                self.tell(&Told::of(kinds::SERVICE, &original.object.meta), &[telling]);
            }
        }
        Verdict::Failed("name-taken")
    }

    /// What a copy that does not exist yet is to be called.
    fn mirror_name(&self, kind: &Kind, key: &Key<Virtual>) -> PhysicalName {
        let origin = Origin::Object { namespace: &key.namespace, name: &key.name };
        let name = origin.physical_name();
        let is_taken = self.taken.lock().contains(&taken_word(kind, name.as_str()));
        if is_taken { origin.fallback_name(&self.subject.uid) } else { name }
    }

    /// Whether V's server says, too, that something is not there.
    async fn is_really_gone(&self, kind: &Kind, key: &Key<Virtual>) -> Result<(), Verdict> {
        match self.virt.get(kind, key).await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(Verdict::Failed("not-seen-yet")),
            Err(_) => Err(Verdict::Failed("original-not-read")),
        }
    }

    /// Whether all Services of a pod's namespace that come along have come: a pod is told of them once, when it starts.
    pub(crate) fn services_have_come(&self, namespace: &str, binding: &Binding) -> bool {
        if !self.is_mirrored(namespace, binding) {
            return true;
        }
        let unmirrored = self.unmirrored.lock();
        self.world.services.by(&SERVICES_IN, namespace).iter().all(|seen| {
            let key = seen.object.key();
            !services::has_address(&seen.object)
                || unmirrored.contains(&key)
                || self.world.belongings.service_of(&key, &self.subject).is_some()
        })
    }

    fn look_at_pods_in(&self, namespace: &str) {
        for pod in self.world.pods_in(namespace) {
            self.reconciler.queue.reset(Duty::Pod(pod.0.key()));
        }
    }

    /// Pods that run already do not have the name of a new Service.
    fn tell_of_older_pods(&self, service: &Object) {
        let pods = self.world.pods_in(&service.meta.namespace);
        let runs = |key: &Key<Virtual>| !self.world.twins_of(key, &self.subject).is_empty();
        let count = pods.iter().filter(|pod| !pod.0.is_terminal && runs(&pod.0.key())).count();
        if count > 0 {
            let message = format!(
                "{count} pods of its namespace run in {} already and do not have its name in /etc/hosts or in variables: restart them",
                self.subject.binding
            );
            let told = Told::of(kinds::SERVICE, &service.meta);
            self.tell_once(&told, &Telling::event(false, EventReason::ServiceAfterPods, message));
        }
    }
}

/// Names of several kinds that others have.
fn taken_word(kind: &Kind, name: &str) -> String {
    format!("{}/{name}", kind.plural)
}

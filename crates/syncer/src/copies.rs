//! One `ConfigMap` or Secret that pods use: its copy in the worker cluster says what it says, and is there while it is used.

use std::collections::HashMap;
use std::sync::Arc;

use kubeocean_api::keys::labels;
use kubeocean_api::keys::reasons::Event as EventReason;
use kubeocean_cluster::apply::Outcome;
use kubeocean_cluster::events::Subject as Told;
use kubeocean_cluster::queue::Verdict;
use kubeocean_model::action::{Verb, kinds};
use kubeocean_model::bind::Telling;
use kubeocean_model::binding::Binding;
use kubeocean_model::copy::{Copied, Usage, plan_copy};
use kubeocean_model::key::{Key, Physical, Virtual};
use kubeocean_model::naming::{Origin, PhysicalName};
use kubeocean_model::object::{Meta, Object};
use kubeocean_model::project;
use kubeocean_model::stamp::Stamp;
use kubeocean_model::vnode::Worker;
use parking_lot::Mutex;

use crate::references::{Original, User, copied};
use crate::syncer::Syncer;
use crate::world::Duty;

/// Versions of an original and its copy that were found to say the same. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Compared(Arc<Mutex<HashMap<Original, Same>>>);

/// What was found to say the same.
struct Same {
    of: Box<str>,
    copy: Box<str>,
    usage: Usage,
    /// Whether a watch has told of the original. Then it tells of its end, too.
    is_told: bool,
}

impl Compared {
    fn note(&self, original: Original, of: &str, copy: &str, usage: Usage, is_told: bool) {
        self.0.lock().insert(original, Same { of: of.into(), copy: copy.into(), usage, is_told });
    }

    fn forget(&self, original: &Original) {
        self.0.lock().remove(original);
    }

    /// Whether these versions say the same. Of an original that nobody ever told of, the last one counts.
    fn holds(&self, original: &Original, of: Option<&str>, copy: Option<&str>, usage: Usage) -> bool {
        let mut compared = self.0.lock();
        let Some(known) = compared.get_mut(original) else { return false };
        let is_same = of.map_or(!known.is_told, |of| *of == *known.of);
        known.is_told |= of.is_some();
        is_same && copy == Some(&*known.copy) && known.usage == usage
    }

    /// Lists that came from another history of the server prove nothing.
    pub(crate) fn forget_all(&self) {
        self.0.lock().clear();
    }
}

impl Syncer {
    /// One round for one original and its copy.
    pub(crate) async fn look_at_copy(&self, what: Copied, key: &Key<Virtual>) -> Verdict {
        let duty = Duty::Copy(what, key.clone());
        if !self.reconciler.fences.is_open(&duty) {
            return Verdict::Blocked;
        }
        let Some(binding) = self.binding() else { return Verdict::Done };
        if !self.knows_belongings() {
            return Verdict::Done;
        }
        let original: Original = (what.into(), key.clone());
        let copy = self.world.belongings.copy_of(what, key, &self.subject);
        let usage = self.usage(&original, &binding, copy.as_deref().map(|copy| &copy.0));
        let is_used = usage.is_any();
        if !is_used {
            self.term.absent.lock().remove(&original);
        }
        if !is_used && copy.is_none() {
            self.compared.forget(&original);
            return Verdict::Done;
        }
        if !is_used && self.term.unheard.holds_copy(&duty) {
            return Verdict::Done;
        }
        let seen = self.world.originals(what).get(key);
        let versions = (
            seen.as_ref().map(|seen| &*seen.resource_version),
            copy.as_ref().map(|copy| &*copy.resource_version),
        );
        if is_used && self.compared.holds(&original, versions.0, versions.1, usage) {
            return Verdict::Done;
        }
        let (content, copied) =
            match self.read_both(what, key, copy.as_deref().map(|copy| &copy.0), is_used).await {
                Ok(both) => both,
                Err(verdict) => return verdict,
            };
        self.note_absence(&original, is_used && content.is_none());
        let name = self.copy_name(what, key);
        let stamp = Stamp { binding: &binding, virtual_cluster: &self.subject.virtual_cluster };
        let actions = plan_copy(&stamp, what, content.as_ref(), copied.as_ref(), &name, usage);
        let mut version = copied.as_ref().map(|copied| copied.meta.resource_version.to_string());
        for action in &actions {
            let outcome = self.reconciler.write(&duty, action).await;
            match &outcome {
                Outcome::Done(written) => version.clone_from(&written.resource_version),
                Outcome::ExistsForeign if matches!(action.verb, Verb::Create { .. }) => {
                    return self.copy_name_is_taken(what, &original, &action.name);
                }
                // An earlier attempt whose answer was lost: what it says is looked at when the watch has told of it.
                Outcome::ExistsOurs(_) => return Verdict::Failed("not-seen-yet"),
                _ => {}
            }
            if !outcome.fulfils(action) {
                self.complain(action, &outcome);
                self.tell_of_a_refused_copy(&original, &outcome);
                return outcome.verdict();
            }
        }
        match (content, version) {
            (Some(content), Some(version)) if is_used => {
                self.compared.note(original, &content.meta.resource_version, &version, usage, seen.is_some());
                Verdict::Done
            }
            (None, _) if is_used => {
                self.tell_waiters(&original);
                Verdict::Done
            }
            _ => {
                self.compared.forget(&original);
                Verdict::Done
            }
        }
    }

    /// Whoever can do without it need not wait for it any longer.
    fn note_absence(&self, original: &Original, is_absent: bool) {
        if !is_absent {
            self.term.absent.lock().remove(original);
        } else if self.term.absent.lock().insert(original.clone()) {
            for user in self.references.users(original) {
                self.reconciler.queue.add(user.duty());
            }
        }
    }

    /// Whether V has said that it has no such original, and has not said otherwise since.
    pub(crate) fn is_known_to_be_absent(&self, original: &Original) -> bool {
        let (referent, key) = original;
        let Some(what) = copied(*referent) else { return false };
        self.term.absent.lock().contains(original) && self.world.originals(what).get(key).is_none()
    }

    /// What an original and its copy say, by the servers' own word. An original that nobody uses need not be read.
    async fn read_both(
        &self,
        what: Copied,
        key: &Key<Virtual>,
        copy: Option<&Meta>,
        is_used: bool,
    ) -> Result<(Option<Object>, Option<Object>), Verdict> {
        let original = if is_used { self.virt.get(&what.kind(), key).await } else { Ok(None) };
        let original = original.map_err(|_| Verdict::Failed("original-not-read"))?;
        let Some(copy) = copy else { return Ok((original, None)) };
        if !is_used {
            // By its metadata it is known whose it is, and what it says does not matter any more.
            let copy = Object::of_meta(copy.clone());
            return Ok((original, Some(copy)));
        }
        let place = Key::<Physical>::new(&*copy.namespace, &*copy.name);
        let copied = self.phys.get(&what.kind(), &place).await;
        Ok((original, copied.map_err(|_| Verdict::Failed("copy-not-read"))?))
    }

    /// Who uses something that is copied.
    fn usage(&self, original: &Original, binding: &Binding, copy: Option<&Meta>) -> Usage {
        let users = self.references.users(original);
        let was_by_volumes = copy.is_some_and(|copy| copy.labels.get(labels::USED_BY_PV).is_some());
        Usage {
            by_pods: users.iter().any(|user| matches!(user, User::Pod(_)))
                || self.is_used_by_twins(original, binding),
            by_volumes: users.iter().any(|user| matches!(user, User::Claim(_)))
                || (was_by_volumes && self.is_needed_by_a_volume(&original.1, binding)),
        }
    }

    /// Whether a pod that was let in uses it.
    pub(crate) fn is_used(&self, original: &Original, binding: &Binding) -> bool {
        self.references.is_used(original) || self.is_used_by_twins(original, binding)
    }

    /// A pod of which nobody has thought yet counts, if it has a twin.
    fn is_used_by_twins(&self, original: &Original, binding: &Binding) -> bool {
        let in_namespace = self.world.pods_in(&original.1.namespace);
        in_namespace.iter().any(|pod| {
            let uses = || crate::twins::uses_of(&pod.0);
            let was_let_in = self.subject.maps(&pod.0, binding)
                && !self.world.twins_of(&pod.0.key(), &self.subject).is_empty();
            was_let_in && uses().is_some_and(|uses| uses.contains(original))
        })
    }

    /// What a copy that does not exist yet is to be called.
    pub(crate) fn copy_name(&self, what: Copied, key: &Key<Virtual>) -> PhysicalName {
        let origin = Origin::Object { namespace: &key.namespace, name: &key.name };
        let name = origin.physical_name();
        if self.taken.lock().contains(&taken_word(what, name.as_str())) {
            origin.fallback_name(&self.subject.uid)
        } else {
            name
        }
    }

    /// Someone else has the name in P. The copy gets the other one, and people hear of it once.
    fn copy_name_is_taken(&self, what: Copied, original: &Original, taken: &str) -> Verdict {
        let key = &original.1;
        if self.taken.lock().insert(taken_word(what, taken)) {
            let message = format!(
                "{} {taken} of the worker cluster is not of this binding: the copy of {key} has another name there",
                what.kind().kind
            );
            for pod in self.users_of(original) {
                self.tell(&pod, &[Telling::event(false, EventReason::NameTaken, message.clone())]);
            }
        }
        Verdict::Failed("name-taken")
    }

    /// Pods that use something hear that it is not there.
    fn tell_waiters(&self, original: &Original) {
        let (what, key) = original;
        let kind = what.kind().kind.to_lowercase();
        let message = format!("{kind} \"{}\" not found: it is waited for", key.name);
        let waits = |user: &User| match user {
            User::Pod(pod) => self.world.pods.get(pod).is_some_and(|pod| {
                let needs = project::needs(&pod.0).ok();
                needs.is_some_and(|needs| needs.references.get(&(*what, key.name.to_string())) == Some(&true))
            }),
            User::Claim(_) => true,
        };
        for user in
            self.references.users(original).into_iter().filter(waits).filter_map(|user| self.told(user))
        {
            self.tell_once(&user, &Telling::event(true, EventReason::DependencyMissing, message.clone()));
        }
    }

    /// Pods that use something hear that the worker cluster does not take it: they wait for that.
    fn tell_of_a_refused_copy(&self, original: &Original, outcome: &Outcome) {
        let (Outcome::Invalid(status) | Outcome::Forbidden(status)) = outcome else { return };
        let (what, key) = original;
        let (binding, kind) = (&self.subject.binding, what.kind().kind.to_lowercase());
        let message =
            format!("the worker cluster {binding} refuses the copy of {kind} \"{}\": {status}", key.name);
        for user in self.users_of(original) {
            self.tell_once(&user, &Telling::event(true, EventReason::FailedCreate, message.clone()));
        }
    }

    /// Those who use something, to be told of it.
    pub(crate) fn users_of(&self, original: &Original) -> Vec<Told> {
        self.references.users(original).into_iter().filter_map(|user| self.told(user)).collect()
    }

    /// Who hears of what happens to what it uses.
    fn told(&self, user: User) -> Option<Told> {
        match user {
            User::Pod(key) => {
                let pod = self.world.pods.get(&key).filter(|pod| !pod.0.is_terminal)?;
                Some(Told::of(kinds::POD, &pod.0.meta))
            }
            User::Claim(key) => Some(Told::of(kinds::CLAIM, &self.world.claims.get(&key)?.meta)),
        }
    }

    /// Whether what is known of P's copies is known of the right cluster.
    pub(crate) fn knows_belongings(&self) -> bool {
        let is_whole =
            self.world.belongings.progress().iter().all(|one| one.is_synced() && !one.is_half_listed());
        is_whole && matches!(self.pulse.worker(), Worker::Known)
    }
}

/// Names of several kinds that others have.
fn taken_word(what: Copied, name: &str) -> String {
    format!("{}/{name}", what.kind().plural)
}

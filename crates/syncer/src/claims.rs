//! One claim that pods use: it and its volume in the worker cluster, as far as the lender lets them in.

use std::collections::BTreeSet;
use std::sync::Arc;

use kubeocean_api::keys::labels::HOSTNAME;
use kubeocean_api::keys::reasons::Event as EventReason;
use kubeocean_cluster::apply::Outcome;
use kubeocean_cluster::events::Subject as Told;
use kubeocean_cluster::queue::Verdict;
use kubeocean_model::action::{Action, Verb, kinds};
use kubeocean_model::bind::Telling;
use kubeocean_model::binding::Binding;
use kubeocean_model::copy::Copied;
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::naming::{Origin, PhysicalName};
use kubeocean_model::object::Object;
use kubeocean_model::project::Referent;
use kubeocean_model::stamp::Stamp;
use kubeocean_model::storage::{self, Decision, NodeNames, Situation};
use parking_lot::Mutex;

use crate::belongings::{original_of, whole};
use crate::references::{Original, User};
use crate::syncer::Syncer;
use crate::world::Duty;

/// Claims of P that are about to go. Whoever wants one meanwhile waits: what is on its way out lets no pod start, and a pod that waits for it
/// would keep it there. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Ending(Arc<Mutex<BTreeSet<Key<Virtual>>>>);

impl Ending {
    pub(crate) fn has(&self, claim: &Key<Virtual>) -> bool {
        self.0.lock().contains(claim)
    }

    fn begin(&self, claim: &Key<Virtual>) {
        self.0.lock().insert(claim.clone());
    }

    /// Whether it was.
    fn over(&self, claim: &Key<Virtual>) -> bool {
        self.0.lock().remove(claim)
    }
}

impl Syncer {
    /// One round for one claim.
    pub(crate) async fn look_at_claim(&self, key: &Key<Virtual>) -> Verdict {
        let duty = Duty::Claim(key.clone());
        if !self.reconciler.fences.is_open(&duty) {
            return Verdict::Blocked;
        }
        let Some(binding) = self.binding() else { return Verdict::Done };
        if !self.knows_belongings() {
            return Verdict::Done;
        }
        let used: Original = (Referent::Claim, key.clone());
        let mut is_used = self.is_used(&used, &binding);
        if !is_used && self.term.unheard.holds_claim(&duty) {
            return Verdict::Done;
        }
        if !is_used {
            self.ending.begin(key);
            // Whoever came before that is seen now, and whoever comes later sees that it goes.
            is_used = self.is_used(&used, &binding);
        }
        if is_used && self.ending.over(key) {
            // It stays: those who waited need not.
            for user in self.references.users(&used) {
                self.reconciler.queue.reset(user.duty());
            }
        }
        let Some(decision) = self.decide_claim(key, &binding, is_used) else { return Verdict::Done };
        let needs = decision.needs.iter().map(|secret| (Referent::Secret, secret.clone())).collect();
        self.enter_uses(&User::Claim(key.clone()), needs);
        // What a volume says of its Secrets can never be changed: they come first, under the names that they get.
        let creates = decision.actions.iter().any(|action| matches!(action.verb, Verb::Create { .. }));
        let is_there = |secret: &Key<Virtual>| {
            self.world.belongings.copy_of(Copied::Secret, secret, &self.subject).is_some()
        };
        if creates && !decision.needs.iter().all(is_there) {
            return Verdict::Done;
        }
        for action in &decision.actions {
            let outcome = self.reconciler.write(&duty, action).await;
            if matches!(outcome, Outcome::ExistsForeign) {
                return self.claim_name_is_taken(key, action);
            }
            if !outcome.fulfils(action) {
                self.complain(action, &outcome);
                return outcome.verdict();
            }
        }
        if !is_used && decision.actions.is_empty() {
            self.ending.over(key);
        }
        if let Some(telling) = decision.standing.telling() {
            let claim = self.world.claims.get(key).map(|claim| Told::of(kinds::CLAIM, &claim.meta));
            for subject in claim.into_iter().chain(self.users_of(&used)) {
                self.tell_once(&subject, &telling);
            }
        }
        Verdict::Done
    }

    /// What should be done about a claim; `None`: nobody knows yet which volumes there are.
    pub(crate) fn decide_claim(
        &self,
        key: &Key<Virtual>,
        binding: &Binding,
        is_used: bool,
    ) -> Option<Decision> {
        let may_make_volumes = self.may_make_volumes()?;
        let Self { world, subject, .. } = self;
        let claim = world.claims.get(key);
        let claim = whole(claim.as_ref());
        let wanted = claim.and_then(|claim| claim.text("spec", &["volumeName"]));
        let volume = wanted.as_deref().and_then(|name| world.volumes.get(&Key::cluster_scoped(name)));
        let origin = Origin::Object { namespace: &key.namespace, name: &key.name };
        let names = [origin.physical_name(), origin.fallback_name(&subject.uid)];
        let copied_claim = world.belongings.claim_of(key, subject);
        let names = names.each_ref().map(PhysicalName::as_str);
        let copied_volume = world.belongings.volume_for(&names, wanted.as_deref(), subject);
        let is_taken =
            |kind: &str, name: &PhysicalName| self.taken.lock().contains(&format!("{kind}/{name}"));
        let first = |name: &str| Origin::Volume { name }.physical_name();
        Some(storage::plan(&Situation {
            stamp: Stamp { binding, virtual_cluster: &subject.virtual_cluster },
            key,
            claim,
            volume: whole(volume.as_ref()),
            copied_claim: whole(copied_claim.as_ref()),
            copied_volume: whole(copied_volume.as_ref()),
            is_claim_name_taken: is_taken(&kinds::CLAIM.plural, &origin.physical_name()),
            is_volume_name_taken: wanted
                .as_deref()
                .is_some_and(|name| is_taken(&kinds::VOLUME.plural, &first(name))),
            is_used,
            may_make_volumes,
            allowed: &self.pulse.allowed_volumes(),
            node: &|vnode| self.node_behind(vnode),
            secret: &|secret| self.secret_name(secret),
        }))
    }

    /// Whether volumes may be made there; `None`: nobody has said yet.
    fn may_make_volumes(&self) -> Option<bool> {
        if self.world.belongings.may_not_have_volumes() {
            return Some(false);
        }
        let progress = self.world.belongings.volumes.progress();
        (progress.is_synced() && !progress.is_half_listed()).then_some(true)
    }

    fn node_behind(&self, vnode: &str) -> Option<NodeNames> {
        let vnode = self.world.vnodes.get(&Key::cluster_scoped(vnode))?;
        let name = vnode.0.physical_name.clone();
        let node = self.world.nodes.get(&Key::cluster_scoped(name.as_str()))?;
        let labels = node.0.as_ref().ok().map(|node| &node.node.labels);
        let hostname = labels.and_then(|labels| labels.get(HOSTNAME)).cloned();
        Some(NodeNames { hostname: hostname.unwrap_or_else(|| name.clone()), name })
    }

    /// What the copy of a Secret is called, or will be.
    fn secret_name(&self, secret: &Key<Virtual>) -> PhysicalName {
        let copy = self.world.belongings.copy_of(Copied::Secret, secret, &self.subject);
        copy.map_or_else(|| self.copy_name(Copied::Secret, secret), |copy| PhysicalName::existing(&copy.0))
    }

    /// The V claim that a volume of P serves, as far as anyone knows.
    pub(crate) fn claim_of_volume(&self, volume: &Object) -> Option<Key<Virtual>> {
        self.world.claim_of_volume(volume)
    }

    /// Someone else has the name in P. The other one is taken, and people hear of it once.
    fn claim_name_is_taken(&self, key: &Key<Virtual>, action: &Action) -> Verdict {
        let (kind, name) = (&action.kind, &action.name);
        if self.taken.lock().insert(format!("{}/{name}", kind.plural)) {
            let message = format!(
                "{} {name} of the worker cluster is not of this binding: what belongs to claim {key} has another name there",
                kind.kind
            );
            for pod in self.users_of(&(Referent::Claim, key.clone())) {
                self.tell(&pod, &[Telling::event(false, EventReason::NameTaken, message.clone())]);
            }
        }
        Verdict::Failed("name-taken")
    }

    /// Whether the driver of a volume that is there needs a Secret. For lives that begin: nobody has looked at claims yet.
    pub(crate) fn is_needed_by_a_volume(&self, secret: &Key<Virtual>, binding: &Binding) -> bool {
        let volumes = self.world.belongings.volumes.all();
        let ours = volumes.iter().filter(|(_, one)| crate::belongings::is_stamped(&one.meta, &self.subject));
        let claims: BTreeSet<Key<Virtual>> =
            ours.filter_map(|(_, volume)| self.claim_of_volume(volume)).collect();
        claims.iter().any(|claim| {
            let is_used = self.is_used(&(Referent::Claim, claim.clone()), binding);
            let decision = self.decide_claim(claim, binding, is_used);
            decision.is_some_and(|decision| decision.needs.contains(secret))
        })
    }
}

/// The V claim that a volume of V says to serve.
pub(crate) fn claim_named_by(volume: &Object) -> Option<Key<Virtual>> {
    let said = |field: &str| volume.text("spec", &["claimRef", field]).filter(|text| !text.is_empty());
    said("namespace").zip(said("name")).map(|(namespace, name)| Key::new(namespace, name))
}

/// The V claim that a claim of P is the copy of.
pub(crate) fn claim_copied_by(claim: &Object) -> Option<Key<Virtual>> {
    original_of(&claim.meta)
}

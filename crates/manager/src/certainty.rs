//! What the API server is asked before a binding goes for good.
//!
//! Stores may be behind, and after an etcd was restored they may not know it for a while. What is removed when a binding goes is not
//! made anew: its syncer, the lead of that, and our finalizer, after which nobody looks any more. So before such a write the server
//! itself says what there is.
//!
//! Deliberately absent: what should be written, which is [`bind::plan`](kubeocean_model::bind::plan)'s.

use kubeocean_api::keys::labels;
use kubeocean_cluster::queue::Verdict;
use kubeocean_model::action::kinds;
use kubeocean_model::bind::{self, BindingObject, Decision, Existing};
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::object::Meta;

use crate::bindings::Bindings;

/// What no store shows of a binding.
#[derive(Default)]
pub(crate) struct Asked {
    /// What its syncer holds the lead by; asked for when nothing else of the syncer is left.
    pub(crate) hold: Option<Meta>,
    /// Deployments of it that a store should show, and does not; asked for before the last write.
    pub(crate) unseen: Vec<Existing>,
}

impl Bindings {
    /// What should be done about a binding. Where that cannot be undone, the server agrees that it goes.
    pub(crate) async fn decide_for_certain(
        &self,
        key: &Key<Virtual>,
        object: &BindingObject,
    ) -> Result<(Asked, Decision), Verdict> {
        let mut asked = Asked { hold: self.hold_of(object).await?, ..Asked::default() };
        let mut decision = self.decide(object, &asked);
        if decision.is_last {
            asked.unseen = self.unseen_of(object).await?;
            decision = self.decide(object, &asked);
        }
        // In this order: who holds the lead of a binding that still goes now cannot be the syncer of one that came after it.
        if object.meta.is_deleting() && !decision.actions.is_empty() {
            self.still_goes(key, object).await?;
        }
        Ok((asked, decision))
    }

    /// What the syncer of a binding holds the lead by, when nothing else of the syncer is left.
    async fn hold_of(&self, object: &BindingObject) -> Result<Option<Meta>, Verdict> {
        let rival = self.world.rival(object);
        let Some(name) = bind::hold_of(object, rival.as_deref()) else { return Ok(None) };
        if !self.world.children_of(object).is_empty() {
            return Ok(None);
        }
        let key = Key::new(self.installation.namespace.as_str(), name.as_str());
        let found = self.virt.get(&kinds::LEASE, &key).await.map_err(|_| Verdict::Failed("unreachable"))?;
        // While it was asked for, another binding may have come by the clusterID, and its syncer by the lead.
        let is_its_own = bind::hold_of(object, self.world.rival(object).as_deref()).is_some();
        Ok(found.filter(|_| is_its_own).map(|hold| hold.meta))
    }

    /// Deployments of a binding that came back, and that a store does not show yet.
    async fn unseen_of(&self, object: &BindingObject) -> Result<Vec<Existing>, Verdict> {
        let ours = format!("{}={}", labels::BINDING_UID, object.meta.uid);
        let namespace = self.installation.namespace.as_str();
        let found = self.virt.list(&kinds::DEPLOYMENT, Some(namespace), Some(&ours)).await;
        let found = found.map_err(|_| Verdict::Failed("unreachable"))?;
        Ok(found.into_iter().map(|object| Existing { kind: kinds::DEPLOYMENT, object }).collect())
    }

    async fn still_goes(&self, key: &Key<Virtual>, object: &BindingObject) -> Result<(), Verdict> {
        let now = self.virt.get(&kinds::BINDING, key).await.map_err(|_| Verdict::Failed("unreachable"))?;
        if now.is_some_and(|now| bind::goes_as_seen(object, &BindingObject::read(&now))) {
            return Ok(());
        }
        self.world.bindings.doubt(key, &object.meta.resource_version);
        Err(Verdict::Failed("outdated"))
    }
}

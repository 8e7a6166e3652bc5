//! What bindings that are gone have left in the worker cluster: removed by whoever comes by.
//!
//! A binding that was taken apart by force, or that a restored etcd forgot, has no syncer any more that would look after its twins and copies.
//! What lost its pod or its original under this binding is looked at with that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kubeocean_api::keys::labels;
use kubeocean_cluster::queue::Verdict;
use kubeocean_cluster::store::Entry;
use kubeocean_model::action::{Kind, kinds};
use kubeocean_model::binding::Binding;
use kubeocean_model::copy::Copied;
use kubeocean_model::object::{Meta, Object};
use kubeocean_model::orphan::orphan;
use kubeocean_model::stamp::Stamp;
use kubeocean_model::storage;

use crate::belongings::is_stamped;
use crate::syncer::Syncer;
use crate::world::Duty;

/// Everything that we made is looked at so often, whatever the watches say.
const LOOK_AROUND: Duration = Duration::from_secs(600);

impl Syncer {
    /// One round for what others have left.
    pub(crate) async fn look_for_leftovers(&self) -> Verdict {
        let duty = Duty::Leftovers;
        if !self.reconciler.fences.is_open(&duty) {
            return Verdict::Blocked;
        }
        let Some(binding) = self.binding() else { return Verdict::Done };
        if !self.knows_belongings() {
            return Verdict::Done;
        }
        // An original that nobody used when it was listed goes without a word.
        self.compared.forget_all();
        self.world.look_at_what_we_made(&self.reconciler.queue);
        if let Err(verdict) = self.remove_lost_volumes(&binding).await {
            return verdict;
        }
        let foreign = self.foreign();
        if foreign.is_empty() {
            return Verdict::Again(LOOK_AROUND);
        }
        let Ok(bindings) = self.virt.list(&kinds::BINDING, None, None).await else {
            return Verdict::Failed("bindings-not-read");
        };
        let living: BTreeSet<&str> = bindings.iter().map(|binding| &*binding.meta.uid).collect();
        let stamp = Stamp { binding: &binding, virtual_cluster: &self.subject.virtual_cluster };
        // No data goes with a claim, whoever looks after it.
        for volume in self.foreign_volumes() {
            let lives = volume.meta.labels.get(labels::BINDING_UID).is_some_and(|uid| living.contains(uid));
            if let Some(action) = storage::retain(&volume).filter(|_| !lives) {
                let outcome = self.reconciler.write(&duty, &action).await;
                if !outcome.fulfils(&action) {
                    return outcome.verdict();
                }
            }
        }
        for (kind, meta) in &foreign {
            let lives = meta.labels.get(labels::BINDING_UID).is_some_and(|uid| living.contains(uid));
            let Some(action) = orphan(&stamp, kind, meta, true, lives) else { continue };
            let outcome = self.reconciler.write(&duty, &action).await;
            if !outcome.fulfils(&action) {
                return outcome.verdict();
            }
        }
        Verdict::Again(LOOK_AROUND)
    }

    /// Volumes of ours of which nobody knows any more which claim they were for.
    async fn remove_lost_volumes(&self, binding: &Binding) -> Result<(), Verdict> {
        let stamp = Stamp { binding, virtual_cluster: &self.subject.virtual_cluster };
        let volumes = self.world.belongings.volumes.all();
        let ours = volumes.iter().filter(|(_, one)| is_stamped(&one.meta, &self.subject));
        for (_, volume) in ours.filter(|(_, volume)| self.claim_of_volume(volume).is_none()) {
            if let Some(action) = orphan(&stamp, &kinds::VOLUME, &volume.meta, false, true) {
                let outcome = self.reconciler.write(&Duty::Leftovers, &action).await;
                if !outcome.fulfils(&action) {
                    return Err(outcome.verdict());
                }
            }
        }
        Ok(())
    }

    fn foreign_volumes(&self) -> Vec<Arc<Entry<Object>>> {
        let volumes = self.world.belongings.volumes.all().into_iter().map(|(_, volume)| volume);
        volumes.filter(|volume| self.is_foreign(&volume.meta)).collect()
    }

    fn is_foreign(&self, meta: &Meta) -> bool {
        meta.labels.get(labels::VIRTUAL_CLUSTER_UID) == Some(&self.subject.virtual_cluster)
            && (meta.namespace.is_empty() || *meta.namespace == *self.subject.mount_namespace)
            && meta.labels.get(labels::BINDING_UID).is_some_and(|uid| *uid != *self.subject.uid)
    }

    /// What carries the stamp of this computing cluster, but of another binding.
    fn foreign(&self) -> Vec<(Kind, Meta)> {
        let is_foreign = |meta: &Meta| self.is_foreign(meta);
        let mut all = Vec::new();
        for (_, seen) in self.world.physical_pods.all() {
            if let Some(twin) = seen.twin.as_deref().filter(|twin| is_foreign(&twin.meta)) {
                all.push((kinds::POD, twin.meta.clone()));
            }
        }
        for what in [Copied::ConfigMap, Copied::Secret] {
            for (_, seen) in self.world.belongings.store(what).all() {
                if is_foreign(&seen.0) {
                    all.push((what.kind(), seen.0.clone()));
                }
            }
        }
        let belongings = &self.world.belongings;
        for (kind, store) in [
            (kinds::CLAIM, &belongings.claims),
            (kinds::VOLUME, &belongings.volumes),
            (kinds::SERVICE, &belongings.services),
            (kinds::ENDPOINT_SLICE, &belongings.slices),
        ] {
            let foreign = store.all().into_iter().filter(|(_, one)| is_foreign(&one.meta));
            all.extend(foreign.map(|(_, one)| (kind.clone(), one.meta.clone())));
        }
        all
    }
}

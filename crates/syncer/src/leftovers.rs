//! What bindings that are gone have left in the worker cluster: removed by whoever comes by.
//!
//! A binding that was taken apart by force, or that a restored etcd forgot, has no syncer any more that would look after its twins and copies.
//! What lost its pod or its original under this binding is looked at with that.

use std::collections::BTreeSet;
use std::time::Duration;

use kubeocean_api::keys::labels;
use kubeocean_cluster::queue::Verdict;
use kubeocean_model::action::{Kind, kinds};
use kubeocean_model::copy::Copied;
use kubeocean_model::object::Meta;
use kubeocean_model::orphan::orphan;
use kubeocean_model::stamp::Stamp;

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
        let foreign = self.foreign();
        if foreign.is_empty() {
            return Verdict::Again(LOOK_AROUND);
        }
        let Ok(bindings) = self.virt.list(&kinds::BINDING, None, None).await else {
            return Verdict::Failed("bindings-not-read");
        };
        let living: BTreeSet<&str> = bindings.iter().map(|binding| &*binding.meta.uid).collect();
        let stamp = Stamp { binding: &binding, virtual_cluster: &self.subject.virtual_cluster };
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

    /// What carries the stamp of this computing cluster, but of another binding.
    fn foreign(&self) -> Vec<(Kind, Meta)> {
        let is_foreign = |meta: &Meta| {
            meta.labels.get(labels::VIRTUAL_CLUSTER_UID) == Some(&self.subject.virtual_cluster)
                && *meta.namespace == *self.subject.mount_namespace
                && meta.labels.get(labels::BINDING_UID).is_some_and(|uid| *uid != *self.subject.uid)
        };
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
        all
    }
}

//! The way to the worker cluster, as a syncer follows it.

use std::sync::Arc;

use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::connector::{Connector, Worker};
use kubeocean_cluster::metrics::Metrics;
use kubeocean_model::key::{Key, Physical, Virtual};
use kubeocean_model::leasing::SYNCER;

use crate::syncer::Syncer;

/// Follows the Secret of the binding that a syncer works for.
pub(crate) fn connector(
    syncer: &Syncer,
    virt: Cluster<Virtual>,
    phys: Cluster<Physical>,
    metrics: Metrics,
) -> Connector {
    let (world, key) = (syncer.world.clone(), Key::cluster_scoped(&*syncer.subject.binding));
    Connector {
        virt,
        phys,
        component: SYNCER,
        binding: syncer.subject.binding.clone(),
        mount_namespace: syncer.subject.mount_namespace.clone(),
        bindings: world.bindings.progress().clone(),
        worker: Arc::new(move || Worker::of(world.bindings.get(&key).as_ref().map(|seen| &seen.0))),
        metrics,
    }
}

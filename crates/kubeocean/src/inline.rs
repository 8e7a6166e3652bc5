//! What the manager can run in its own process.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use kubeocean_cluster::shutdown::BoxError;
use kubeocean_cluster::telemetry::Environment;
use kubeocean_manager::args::ManagerArgs;
use kubeocean_manager::inline::{Job, Workload};
use kubeocean_model::bind::Role;
use kubeocean_model::window::{UnknownZone, Zone};
use kubeocean_syncer::args::NodeArgs;
use kubeocean_syncer::run::{Inline, run_inline, zone};
use kubeocean_syncer::syncer::Ports;
use tokio_util::sync::CancellationToken;

/// The flags of a manager, and of what it runs inline.
#[derive(Debug, clap::Args)]
pub(crate) struct Managing {
    #[command(flatten)]
    pub(crate) manager: ManagerArgs,

    #[command(flatten, next_help_heading = "With --worker-mode=inline")]
    pub(crate) nodes: NodeArgs,
}

/// A syncer of one binding, as a task.
struct Syncer {
    namespace: String,
    nodes: NodeArgs,
    zone: Zone,
    /// All virtual nodes of the process are answered for at one address.
    ports: Ports,
}

impl Workload for Syncer {
    fn run(&self, job: Job, stop: CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> {
        let Job { binding, uid, virt, phys, leadership, readiness } = job;
        let inline = Inline {
            virt,
            phys,
            binding: binding.name.to_string(),
            uid,
            namespace: self.namespace.clone(),
            leadership,
            ports: self.ports.clone(),
            address: None,
            zone: self.zone.clone(),
            nodes: self.nodes.clone(),
        };
        let tell = move |how: Result<(), String>| match how {
            Ok(()) => readiness.ready(),
            Err(why) => readiness.not_ready(why),
        };
        Box::pin(run_inline(inline, stop, tell))
    }
}

/// Everything that this program can run inside of such a manager.
pub(crate) fn workloads(args: &Managing) -> Result<BTreeMap<Role, Arc<dyn Workload>>, UnknownZone> {
    let zone = zone(&Environment::of_process())?;
    let (namespace, nodes) = (args.manager.namespace.clone(), args.nodes.clone());
    let syncer = Syncer { namespace, nodes, zone, ports: Ports::default() };
    Ok(BTreeMap::from([(Role::Syncer, Arc::new(syncer) as Arc<dyn Workload>)]))
}

//! What the manager can run in its own process.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use kubeocean_cluster::credentials::Credentials;
use kubeocean_cluster::shutdown::BoxError;
use kubeocean_cluster::telemetry::Environment;
use kubeocean_manager::args::{ManagerArgs, WorkerMode};
use kubeocean_manager::inline::{Job, Workload};
use kubeocean_model::bind::Role;
use kubeocean_model::window::Zone;
use kubeocean_proxier::args::AnswerArgs;
use kubeocean_proxier::desk::House;
use kubeocean_proxier::run::source_address;
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

    #[command(flatten)]
    pub(crate) answers: AnswerArgs,
}

/// A syncer of one binding, as a task.
struct Syncer {
    namespace: String,
    domain: String,
    nodes: NodeArgs,
    zone: Zone,
    /// All virtual nodes of the process are answered for at one address.
    ports: Ports,
    /// Where the process answers for virtual nodes.
    address: Arc<str>,
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
            domain: self.domain.clone(),
            leadership,
            ports: self.ports.clone(),
            address: Some(Arc::clone(&self.address)),
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

/// A proxier of one binding, as a task.
struct Proxier {
    namespace: String,
    answers: AnswerArgs,
    address: IpAddr,
    /// All of them share a port and their limits.
    house: House,
    ports: Ports,
}

impl Workload for Proxier {
    fn run(&self, job: Job, stop: CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> {
        let Job { binding, uid, virt, phys, leadership: _, readiness } = job;
        let ports = self.ports.clone();
        let inline = kubeocean_proxier::run::Inline {
            virt,
            phys,
            binding: binding.name.to_string(),
            uid,
            namespace: self.namespace.clone(),
            house: self.house.clone(),
            address: self.address,
            answers: self.answers.clone(),
            on_conflict: Arc::new(move |port| ports.refuse([port])),
        };
        let tell = move |how: Result<(), String>| match how {
            Ok(()) => readiness.ready(),
            Err(why) => readiness.not_ready(why),
        };
        Box::pin(kubeocean_proxier::run::run_inline(inline, stop, tell))
    }
}

/// Runs a manager, and what it runs inline.
pub(crate) async fn run(args: Managing) -> anyhow::Result<()> {
    let (workloads, reached_at) = match args.manager.worker_mode {
        WorkerMode::Deployment => (BTreeMap::new(), None),
        WorkerMode::Inline => {
            let (workloads, address) = workloads(&args).await?;
            (workloads, Some(address))
        }
    };
    Ok(kubeocean_manager::run::run(args.manager, workloads, reached_at).await?)
}

type Workloads = BTreeMap<Role, Arc<dyn Workload>>;

/// Everything that this program can run inside of such a manager, and where it is reached.
async fn workloads(args: &Managing) -> anyhow::Result<(Workloads, IpAddr)> {
    let Managing { manager, nodes, answers } = args;
    let zone = zone(&Environment::of_process())?;
    let address = match answers.advertise_address {
        Some(address) => address,
        None => source_address(&Credentials::infer(manager.kubeconfig.as_deref()).await?.server())?,
    };
    let (namespace, ports) = (manager.namespace.clone(), Ports::default());
    let syncer = Syncer {
        namespace: namespace.clone(),
        domain: manager.cluster_domain.clone(),
        nodes: nodes.clone(),
        zone,
        ports: ports.clone(),
        address: address.to_string().into(),
    };
    let proxier = Proxier { namespace, answers: answers.clone(), address, house: House::default(), ports };
    let workloads = BTreeMap::from([
        (Role::Syncer, Arc::new(syncer) as Arc<dyn Workload>),
        (Role::Proxier, Arc::new(proxier) as Arc<dyn Workload>),
    ]);
    Ok((workloads, address))
}

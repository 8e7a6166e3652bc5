//! The syncer as a process, and as a task of another one.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use kubeocean_cluster::admin::{Admin, AdminError};
use kubeocean_cluster::client::{Cluster, Settings as Connection};
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::connector::{Connector, nowhere};
use kubeocean_cluster::credentials::{CredentialError, Credentials};
use kubeocean_cluster::introduction::{Introduction, WhoIsIt, virtual_cluster_uid};
use kubeocean_cluster::leader::{ElectionError, Leadership};
use kubeocean_cluster::metrics::{Metrics, MetricsError};
use kubeocean_cluster::process;
use kubeocean_cluster::shutdown::{BoxError, Signals, Supervisor, SupervisorError};
use kubeocean_cluster::telemetry::{Environment, Telemetry, TelemetryError};
use kubeocean_model::action::kinds;
use kubeocean_model::bind::BindingObject;
use kubeocean_model::binding::Binding;
use kubeocean_model::key::{Key, Physical, Virtual};
use kubeocean_model::leasing::SYNCER;
use kubeocean_model::vnode::{Settings, Unkept, Worker};
use kubeocean_model::window::{UnknownZone, Zone};
use tokio_util::sync::CancellationToken;

use crate::args::{NodeArgs, PodArgs, SyncerArgs};
use crate::connection::connector;
use crate::syncer::{Background, ComputingEndpoints, Parts, Ports, Syncer, forget_queues};
use crate::world::Subject;

/// The DNS domain of a cluster where nobody says otherwise.
const DOMAIN: &str = "cluster.local";

/// A binding that is not there yet is looked for so often.
const LOOK_FOR_IT: Duration = Duration::from_secs(2);

/// Why a syncer does not run.
#[derive(Debug, thiserror::Error)]
pub enum SyncerError {
    /// Logs or traces.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// Who we are.
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    /// Durations.
    #[error(transparent)]
    Election(#[from] ElectionError),
    /// Ports.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// Two metrics of one name.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// A loop.
    #[error(transparent)]
    Supervisor(#[from] SupervisorError),
    /// The computing cluster.
    #[error(transparent)]
    WhoIsIt(#[from] WhoIsIt),
    /// Another binding has its name now.
    #[error(
        "ClusterBinding {0} was deleted and made anew: this syncer worked for the former one; start it again for the new one"
    )]
    MadeAnew(String),
    /// The machine's time zone.
    #[error("TZ: {0}")]
    Zone(#[from] UnknownZone),
}

/// The zone of windows that name none: `TZ`, else UTC.
pub fn zone(environment: &Environment) -> Result<Zone, UnknownZone> {
    match environment.get("TZ").filter(|name| !name.is_empty()) {
        Some(name) => Zone::parse(name),
        None => Ok(Zone::utc()),
    }
}

/// What a syncer inside of another process is given.
pub struct Inline {
    /// The computing cluster.
    pub virt: Cluster<Virtual>,
    /// The worker cluster; whoever runs it keeps the connection right.
    pub phys: Cluster<Physical>,
    /// The binding's name.
    pub binding: String,
    /// The binding's uid.
    pub uid: String,
    /// Where Kubeocean is installed.
    pub namespace: String,
    /// The domain of the computing cluster's DNS.
    pub domain: String,
    /// Whether the process leads.
    pub leadership: Leadership,
    /// The ports that are taken in the process.
    pub ports: Ports,
    /// Where the process answers for virtual nodes, if it does.
    pub address: Option<Arc<str>>,
    /// The zone of windows that name none.
    pub zone: Zone,
    /// What virtual nodes are like.
    pub nodes: NodeArgs,
}

/// Works for one binding inside of another process, until told to stop. `tell` hears whether it does its work.
pub async fn run_inline(
    inline: Inline,
    stop: CancellationToken,
    tell: impl Fn(Result<(), String>) + Send,
) -> Result<(), BoxError> {
    let Inline { virt, phys, binding, uid, namespace, domain, leadership, ports, address, zone, nodes } =
        inline;
    let virtual_cluster = virtual_cluster_uid(&virt).await?;
    let object = virt.get(&kinds::BINDING, &Key::cluster_scoped(binding.as_str())).await?;
    let object = object.filter(|object| *object.meta.uid == *uid).ok_or("its ClusterBinding is gone")?;
    let object = BindingObject::read(&object);
    let binding = object.followed().map_err(|faults| faults[0].to_string())?;
    let subject = subject(binding, &namespace, &virtual_cluster, &nodes.pods);
    let (metrics, taken) = (virt.metrics().clone(), ports.clone());
    let (syncer, background) = Syncer::new(Parts {
        subject: subject.clone(),
        settings: settings(&nodes),
        virt,
        phys,
        leadership,
        clock: Clock::system(),
        metrics: metrics.clone(),
        zone,
        renew_every: nodes.lease_renew_interval,
        holder: SYNCER.into(),
        ports,
        proxier_here: Some(address),
        endpoints: ComputingEndpoints { given: nodes.pods.intranet(), domain: domain.into() },
        seed: None,
    })?;
    let report = async {
        loop {
            tell(readiness(&syncer));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = Box::pin(syncer.run_until(background, stop.clone())) => {}
        () = report => {}
    }
    forget_queues(&metrics, &subject);
    taken.forget(&subject.uid);
    Ok(())
}

/// Whether it does its work: the stores of V are complete, and the worker cluster answers or its loss is said.
fn readiness(syncer: &Syncer) -> Result<(), String> {
    for (name, progress) in syncer.world.virtual_progress() {
        progress.is_well().map_err(|why| format!("{name}: {why}"))?;
    }
    match syncer.pulse.worker() {
        Worker::Known | Worker::Lost { .. } => Ok(()),
        Worker::NotKnown => {
            let trouble = syncer.pulse.trouble();
            Err(trouble.unwrap_or_else(|| "the worker cluster is being listed".to_owned()))
        }
    }
}

impl Syncer {
    /// Waits until another binding has the name of the one that this syncer works for.
    async fn until_made_anew(&self) -> SyncerError {
        let key = Key::cluster_scoped(&*self.subject.binding);
        loop {
            tokio::time::sleep(LOOK_FOR_IT).await;
            if self.world.bindings.get(&key).is_some_and(|seen| *seen.uid != *self.subject.uid) {
                return SyncerError::MadeAnew(self.subject.binding.to_string());
            }
        }
    }
}

fn subject(binding: &Binding, namespace: &str, virtual_cluster: &str, pods: &PodArgs) -> Subject {
    Subject {
        binding: binding.name.as_str().into(),
        uid: binding.uid.as_str().into(),
        cluster_id: binding.cluster_id.clone(),
        mount_namespace: binding.mount_namespace.as_str().into(),
        install_namespace: namespace.into(),
        virtual_cluster: virtual_cluster.into(),
        namespaces: pods.namespaces.iter().map(|name| name.as_str().into()).collect(),
    }
}

/// What virtual nodes are like. The version of the worker cluster is found out.
fn settings(nodes: &NodeArgs) -> Settings {
    let NodeArgs { closing_notice, node_annotations, lease_renew_interval: _, pods: _ } = nodes.clone();
    Settings { closing_notice, node_annotations, physical_minor: None, unkept: Unkept::default() }
}

/// Runs a syncer until it is told to stop by a signal.
pub async fn run(args: SyncerArgs) -> Result<(), SyncerError> {
    let SyncerArgs {
        cluster_binding_name,
        kubeconfig,
        namespace,
        nodes,
        election,
        virtual_client_qps,
        virtual_client_burst,
        physical_client_qps,
        physical_client_burst,
        admin: addresses,
        log,
    } = args;
    let environment = Environment::of_process();
    let telemetry = Telemetry::init(SYNCER, &log, &environment)?;
    let metrics = Metrics::new("syncer");
    process::export(&metrics)?;
    let admin = Admin::new(metrics.clone(), telemetry.log());
    let server = admin.bind(&addresses).await?;
    let (metrics_at, probes_at) = (server.metrics_address(), server.probe_address());
    let mut signals = Signals::listen()?;
    let clock = Clock::system();
    let zone = zone(&environment)?;
    let credentials = Credentials::infer(kubeconfig.as_deref()).await?;
    let address = credentials.server();
    let limits = |name: &str, qps, burst| Connection::new(name, SYNCER, &metrics).limited(qps, burst);
    tracing::info!(
        server = address,
        binding = cluster_binding_name,
        namespace,
        metrics = metrics_at.map(tracing::field::display),
        probes = probes_at.map(tracing::field::display),
        "starting"
    );
    let virt = Cluster::connect(credentials, limits("virtual", virtual_client_qps, virtual_client_burst))?;
    let phys = Cluster::over(nowhere(), limits("physical", physical_client_qps, physical_client_burst));
    let stop_serving = CancellationToken::new();
    let mut serving = Box::pin(server.serve(stop_serving.clone()));
    let introduction = Introduction { admin: &admin, server: &address };
    let known = tokio::select! {
        known = introduction.who_are(&virt, &cluster_binding_name) => known?,
        () = &mut serving => return Ok(()),
        signal = signals.next() => {
            tracing::info!(signal, "stopping");
            telemetry.shutdown().await;
            return Ok(());
        }
    };
    let (virtual_cluster, binding) = known;
    let subject = subject(&binding, &namespace, &virtual_cluster, &nodes.pods);
    let hold = subject.cluster_id.syncer();
    let (elector, leadership) = election.elect(SYNCER, &hold, &namespace, &environment, &virt, &clock)?;
    let holder = environment.get("POD_NAME").unwrap_or(SYNCER);
    let (syncer, background) = Syncer::new(Parts {
        subject,
        settings: settings(&nodes),
        virt: virt.clone(),
        phys: phys.clone(),
        leadership: leadership.clone(),
        clock,
        metrics: metrics.clone(),
        zone,
        renew_every: nodes.lease_renew_interval,
        holder: holder.into(),
        ports: Ports::default(),
        proxier_here: None,
        endpoints: ComputingEndpoints {
            given: nodes.pods.intranet(),
            domain: environment.get("KUBERNETES_CLUSTER_DOMAIN").unwrap_or(DOMAIN).into(),
        },
        seed: None,
    })?;
    let connector = connector(&syncer, virt, phys, metrics);
    introduction.over();
    show(&admin, &syncer);
    let serving = async move |stop: CancellationToken| {
        let told = async {
            stop.cancelled().await;
            stop_serving.cancel();
        };
        tokio::join!(serving, told);
    };
    let supervisor = Supervisor::new(&admin.health).leadership(leadership.changes());
    let mut supervisor = supervisor.always("admin", serving);
    if let Some(elector) = elector {
        supervisor = supervisor.always("election", move |stop| elector.run(stop));
    }
    let supervisor = loops(supervisor, background, &syncer, connector);
    let supervisor = supervisor.after("traces", move || telemetry.shutdown());
    let ended = supervisor.until_signal_of(signals).await;
    if let Err(error) = &ended {
        tracing::error!(error = error as &dyn Error, "stopped");
    }
    Ok(ended?)
}

/// What people can ask it.
fn show(admin: &Admin, syncer: &Syncer) {
    let shown = syncer.clone();
    admin.ready.check("syncer", move || readiness(&shown));
    let shown = syncer.clone();
    admin.state("queues", move || shown.queue_sizes());
    let shown = syncer.world.clone();
    admin.state("stores", move || shown.sizes());
}

fn loops(
    mut supervisor: Supervisor,
    background: Background,
    syncer: &Syncer,
    connector: Connector,
) -> Supervisor {
    let Background { watching, reporter } = background;
    for (name, watching) in watching {
        supervisor = supervisor.always(&name, move |stop| async move {
            stop.run_until_cancelled_owned(watching).await;
        });
    }
    let (pulse, renewals, duties) = (syncer.pulse.clone(), syncer.clone(), syncer.clone());
    let identity = syncer.clone();
    supervisor
        .always("events", move |stop| reporter.run_until(stop))
        .always("connection", move |stop| async move { connector.run_until(stop).await })
        .always("identity", move |stop| async move {
            stop.run_until_cancelled(identity.until_made_anew()).await.map_or(Ok(()), Err)
        })
        .always("pulse", move |stop| async move { pulse.run_until(stop).await })
        .leading("leases", move |stop| {
            let syncer = renewals.clone();
            async move { syncer.lead_renewals(stop).await }
        })
        .leading("duties", move |stop| {
            let syncer = duties.clone();
            async move { syncer.lead_duties(stop).await }
        })
}

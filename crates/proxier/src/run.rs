//! The proxier as a process, and as a task of another one.

use std::error::Error;
use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kubeocean_api::keys::names::{CLIENT_CA_CONFIG_MAP, PROXIER_ROLE as PROXIER};
use kubeocean_cluster::admin::{Admin, AdminError};
use kubeocean_cluster::apply::Applier;
use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::connector::{Connector, nowhere};
use kubeocean_cluster::credentials::{CredentialError, Credentials};
use kubeocean_cluster::informer::Informer;
use kubeocean_cluster::introduction::{Introduction, WhoIsIt, virtual_cluster_uid};
use kubeocean_cluster::kubelet::Trust;
use kubeocean_cluster::metrics::{Metrics, MetricsError, Observation, Observed};
use kubeocean_cluster::process;
use kubeocean_cluster::shutdown::{BoxError, Signals, Supervisor, SupervisorError};
use kubeocean_cluster::telemetry::{Environment, Telemetry, TelemetryError};
use kubeocean_model::action::kinds;
use kubeocean_model::bind::BindingObject;
use kubeocean_model::key::{Key, Physical, Virtual};
use kubeocean_model::naming::Port;
use kubeocean_model::object::Object;
use prometheus_client::encoding::EncodeLabelSet;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::args::{AnswerArgs, ProxierArgs};
use crate::callers::Callers;
use crate::certificate::{self, Asker, Keeper, Serving, Source};
use crate::conflicts::Conflicts;
use crate::desk::{Desk, House};
use crate::listeners::{Listeners, Trouble};
use crate::metering::{Limits, Metering};
use crate::pulse::Pulse;
use crate::rights::Rights;
use crate::tls::{self, Authorities};
use crate::world::{Measured, Subject, World};

/// In the names of metrics.
const PART: &str = "proxier";

/// A binding that is not there yet is looked for so often.
const LOOK_FOR_IT: Duration = Duration::from_secs(2);

/// A file may be replaced at any time.
const LOOK_AT_FILE: Duration = Duration::from_secs(5);

/// Kubernetes grants 30 s from SIGTERM to SIGKILL; five are for the rest.
const DRAIN: Duration = Duration::from_secs(25);

/// Inside of a manager there are four seconds for all.
const DRAIN_INLINE: Duration = Duration::from_secs(3);

/// Of that, the first fifth is for those who have not heard yet that others should be asked: the endpoint is withdrawn, and a syncer names another
/// address, within a few seconds.
const LEAVES_IN: u32 = 5;

/// What is told to end has a moment to do so.
const END_WITHIN: Duration = Duration::from_millis(500);

/// Why a proxier does not run.
#[derive(Debug, thiserror::Error)]
pub enum ProxierError {
    /// Logs or traces.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// Who we are.
    #[error(transparent)]
    Credentials(#[from] CredentialError),
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
    /// Handshakes.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// Whom to believe of kubelets.
    #[error("--physical-kubelet-ca {file}: {cause}")]
    KubeletAuthorities {
        /// What was given.
        file: String,
        /// What is wrong with it, and what to do.
        cause: String,
    },
    /// Another binding has its name now.
    #[error(
        "ClusterBinding {0} was deleted and made anew: this proxier answered for the former one; start it again for the new one"
    )]
    MadeAnew(String),
    /// Where others reach us.
    #[error("nobody knows at which address this process is reached: name it with --advertise-address ({0})")]
    NoAddress(String),
}

/// The address from which this process reaches a server: others on that way reach it there.
pub fn source_address(server: &str) -> Result<IpAddr, ProxierError> {
    let no_address = |cause: &dyn std::fmt::Display| ProxierError::NoAddress(cause.to_string());
    let uri: http::Uri = server.parse().map_err(|error: http::uri::InvalidUri| no_address(&error))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    // Nothing is sent: the kernel only chooses a way.
    let chosen = ["0.0.0.0:0", "[::]:0"].into_iter().find_map(|any| {
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect((host, uri.port_u16().unwrap_or(443))).ok()?;
        socket.local_addr().ok()
    });
    chosen.map(|address| address.ip()).ok_or_else(|| no_address(&format!("no way to {host}")))
}

/// What a proxier is made of.
pub struct Parts {
    /// For whom.
    pub subject: Subject,
    /// The computing cluster.
    pub virt: Cluster<Virtual>,
    /// The worker cluster.
    pub phys: Cluster<Physical>,
    /// All that answer in this process.
    pub house: House,
    /// What is shown to callers.
    pub serving: Serving,
    /// How it is found out what pods use, if it is.
    pub measuring: Option<Measuring>,
    /// Where this process is reached.
    pub address: IpAddr,
    /// The port of all virtual nodes; 0 is none.
    pub listen_port: u16,
    /// The authorities of callers; `None`: those of the computing cluster.
    pub client_ca_file: Option<PathBuf>,
    /// Where it is counted.
    pub metrics: Metrics,
    /// What is told at `/metrics` of virtual nodes. Where others are counted beside it, that is not the same.
    pub told: Metrics,
    /// Who is told of a port that is taken; `None`: the syncer, through the Service.
    pub on_conflict: Option<Arc<dyn Fn(Port) + Send + Sync>>,
    /// How long streams may go on after the end was asked for.
    pub drain: Duration,
}

/// How kubelets of the worker cluster are asked what pods use.
#[derive(Clone, Debug, Default)]
pub struct Measuring {
    /// By whom their certificates have to be signed.
    pub trust: Trust,
    /// How long and how much.
    pub limits: Limits,
    /// The one namespace of the computing cluster whose pods are measured; `None`: all.
    pub only: Option<String>,
}

impl Measuring {
    /// As the flags have it.
    fn of(answers: &AnswerArgs) -> Result<Option<Self>, ProxierError> {
        if !answers.metrics_enabled {
            return Ok(None);
        }
        let trust = match &answers.physical_kubelet_ca {
            _ if answers.physical_kubelet_insecure => Trust::Anybody,
            None => Trust::Kubeconfig,
            Some(file) => {
                let wrong =
                    |cause| ProxierError::KubeletAuthorities { file: file.display().to_string(), cause };
                let pem = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
                Trust::authorities(&pem).map_err(|error| wrong(error.to_string()))?
            }
        };
        let limits = Limits { kept: answers.metrics_collect_interval, ..Limits::default() };
        Ok(Some(Self { trust, limits, only: answers.metrics_target_namespace.clone() }))
    }
}

/// Answers for the virtual nodes of one binding.
pub struct Proxier {
    desk: Arc<Desk>,
    serving: Serving,
    trouble: Trouble,
    listen_port: u16,
    drain: Duration,
    /// Ends with it.
    _shown: [Observation; 2],
}

/// What has to run for it, by name.
pub type Loop = (&'static str, Start);

impl Proxier {
    /// Puts it together. Nothing runs yet.
    pub fn new(parts: Parts) -> Result<(Arc<Self>, Vec<Loop>), ProxierError> {
        let Parts {
            subject,
            virt,
            phys,
            house,
            serving,
            measuring,
            address,
            listen_port,
            client_ca_file,
            metrics,
            told,
            on_conflict,
            drain,
        } = parts;
        let (world, watching) = World::new(&virt, &phys, &subject);
        let metering = measuring.map(|Measuring { trust, limits, only }| {
            let (ground, mount) = (Measured { world: world.clone(), only }, &subject.binding.mount_namespace);
            Metering::new(ground, &phys, trust, mount, Clock::system(), limits)
        });
        let (authorities, ends) = (Authorities::default(), CancellationToken::new());
        let pulse = Pulse::new(&phys, &world, &ends);
        let conflicts = on_conflict.map_or_else(|| published(&virt, &subject), Conflicts::Told);
        let desk = Arc::new(Desk {
            callers: Callers::new(&virt, authorities.clone(), &house.reviews),
            house,
            world,
            rights: Rights::new(&virt),
            virt: virt.clone(),
            phys,
            pulse: pulse.clone(),
            metering,
            metrics: told.clone(),
            tasks: TaskTracker::new(),
            leaves: CancellationToken::new(),
            closes: CancellationToken::new(),
            ends,
            over: CancellationToken::new(),
        });
        let shown = [show_streams(&metrics, &desk)?, show_streams(&told, &desk)?];
        let trouble = Trouble::default();
        let listeners = Listeners {
            desk: Arc::clone(&desk),
            config: tls::server(&serving)?,
            address,
            shared_port: (listen_port != 0).then_some(listen_port),
            conflicts,
            trouble: trouble.clone(),
        };
        let proxier = Arc::new(Self { desk, serving, trouble, listen_port, drain, _shown: shown });
        // What is known is kept current until nobody asks any more, which is later than the end was asked for.
        let over = &proxier.desk.over;
        let mut loops: Vec<Loop> =
            watching.into_iter().map(|(name, watching)| (name, until(over, watching))).collect();
        loops.push(("authorities of callers", follow_authorities(virt, authorities, client_ca_file, over)));
        let asked_until = over.clone();
        loops.push(("pulse", Box::new(move |_| async move { pulse.run_until(asked_until).await }.boxed())));
        let answering = Arc::clone(&proxier);
        loops.push((
            "listeners",
            Box::new(move |stop| async move { answering.answer_until(stop, listeners).await }.boxed()),
        ));
        Ok((proxier, loops))
    }

    /// Answers until told to stop, and ends.
    async fn answer_until(&self, stop: CancellationToken, listeners: Listeners) {
        let desk = &self.desk;
        let _joined = desk.house.join(desk);
        let (no_more, leaving) = (CancellationToken::new(), self.drain / LEAVES_IN);
        let leave = async {
            stop.cancelled().await;
            desk.leaves.cancel();
            tokio::time::sleep(leaving).await;
            no_more.cancel();
        };
        tokio::join!(listeners.run_until(no_more.clone()), leave);
        self.end(self.drain.saturating_sub(leaving)).await;
    }

    /// Ends: nothing new is begun, what is under way may go on for a while.
    async fn end(&self, drain: Duration) {
        let desk = &self.desk;
        desk.house.leave(desk);
        desk.closes.cancel();
        desk.tasks.close();
        let under_way = desk.house.streams.count();
        let through = async { tokio::join!(desk.tasks.wait(), desk.house.emptied()) };
        if tokio::time::timeout(drain, through).await.is_err() {
            tracing::info!(under_way, "streams are cut: they did not end in time");
        }
        desk.ends.cancel();
        let through = async { tokio::join!(desk.tasks.wait(), desk.house.emptied()) };
        drop(tokio::time::timeout(END_WITHIN, through).await);
        desk.over.cancel();
    }

    /// Whether it answers as it should; if not, why.
    pub fn readiness(&self) -> Result<(), String> {
        let desk = &self.desk;
        if desk.leaves.is_cancelled() {
            return Err("it ends: others should be asked".to_owned());
        }
        for (name, progress) in desk.world.virtual_progress() {
            progress.is_well().map_err(|why| format!("{name}: {why}"))?;
        }
        self.serving.is_ready()?;
        if !desk.callers.authorities.are_known() {
            return Err("the authorities of callers are not known yet".to_owned());
        }
        desk.pulse.is_known()?;
        self.trouble.of(self.listen_port)
    }

    /// What people can ask it.
    pub fn state(&self) -> serde_json::Value {
        let world = &self.desk.world;
        serde_json::json!({
            "virtualNodes": world.vnodes.len(), "pods": world.pods.len(), "twins": world.twins.len(),
            "streams": self.desk.house.streams.count(), "worker": self.desk.pulse.trouble(),
        })
    }

    /// Waits until another binding has the name of the one that this proxier answers for.
    async fn until_made_anew(&self) -> ProxierError {
        let binding = &self.desk.world.subject.binding;
        let key = Key::cluster_scoped(binding.name.as_str());
        loop {
            tokio::time::sleep(LOOK_FOR_IT).await;
            if self.desk.world.bindings.get(&key).is_some_and(|seen| *seen.uid != *binding.uid) {
                return ProxierError::MadeAnew(binding.name.clone());
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct OfBinding {
    clusterbinding: String,
}

/// Prometheus sees how many streams there are.
fn show_streams(metrics: &Metrics, desk: &Arc<Desk>) -> Result<Observation, MetricsError> {
    let help = "Logs that are followed, commands, and ports that are forwarded, at this moment";
    let shown = metrics.part(PART).shared("streams", help, Observed::<OfBinding>::default)?;
    let labels = OfBinding { clusterbinding: desk.world.subject.binding.name.clone() };
    let (streams, world) = (desk.house.streams.clone(), desk.world.clone());
    Ok(shown.observe(labels, move || {
        let count = streams.count_of(|vnode| world.has(vnode));
        Some(f64::from(u32::try_from(count).unwrap_or(u32::MAX)))
    }))
}

type Start = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// Runs something until it is over, and not only until the end is asked for.
fn until(over: &CancellationToken, running: impl Future<Output = ()> + Send + 'static) -> Start {
    let over = over.clone();
    Box::new(move |_| {
        async move {
            over.run_until_cancelled_owned(running).await;
        }
        .boxed()
    })
}

/// The syncer hands out ports, and reads on the Service which of them are taken.
fn published(virt: &Cluster<Virtual>, subject: &Subject) -> Conflicts {
    let service = Key::new(&*subject.install_namespace, subject.binding.cluster_id.proxier_service());
    Conflicts::Published { virt: virt.clone(), applier: Applier::new(PROXIER).virtually(virt), service }
}

/// Keeps the authorities of callers current.
fn follow_authorities(
    virt: Cluster<Virtual>,
    authorities: Authorities,
    file: Option<PathBuf>,
    over: &CancellationToken,
) -> Start {
    until(over, async move {
        match file {
            Some(file) => follow_file(&authorities, file).await,
            None => follow_config_map(&virt, &authorities).await,
        }
    })
}

async fn follow_file(authorities: &Authorities, file: PathBuf) {
    loop {
        let path = file.clone();
        let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
        let read = read.map_err(std::io::Error::other).and_then(|read| read);
        match read {
            Ok(pem) => authorities.replace(&pem),
            // What was read before stays: a file that is being replaced is away for a moment.
            Err(error) => tracing::warn!(file = %file.display(), %error, "--client-ca-file cannot be read"),
        }
        tokio::time::sleep(LOOK_AT_FILE).await;
    }
}

async fn follow_config_map(virt: &Cluster<Virtual>, authorities: &Authorities) {
    let (namespace, name) = CLIENT_CA_CONFIG_MAP;
    let news = Arc::new(Notify::new());
    let told = Arc::clone(&news);
    let (informer, _switch) = Informer::<Virtual, Object>::of(virt, kinds::CONFIG_MAP)
        .namespace(namespace)
        .fields(format!("metadata.name={name}"))
        .on_change(move |_| told.notify_one())
        .build();
    let store = informer.store();
    let follow = async {
        loop {
            let found = store.get(&Key::new(namespace, name));
            if let Some(pem) = found.and_then(|found| found.text("data", &["client-ca-file"])) {
                authorities.replace(pem.as_bytes());
            }
            news.notified().await;
        }
    };
    tokio::join!(informer.run(), follow);
}

/// What a proxier inside of another process is given.
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
    /// All that answer in this process.
    pub house: House,
    /// Where this process is reached.
    pub address: IpAddr,
    /// How it answers.
    pub answers: AnswerArgs,
    /// Is told of a port that is taken.
    pub on_conflict: Arc<dyn Fn(Port) + Send + Sync>,
}

/// Answers for one binding inside of another process, until told to stop. `tell` hears whether it does its work.
pub async fn run_inline(
    inline: Inline,
    stop: CancellationToken,
    tell: impl Fn(Result<(), String>) + Send,
) -> Result<(), BoxError> {
    let Inline { virt, phys, binding, uid, namespace, house, address, answers, on_conflict } = inline;
    let virtual_cluster = virtual_cluster_uid(&virt).await?;
    let object = virt.get(&kinds::BINDING, &Key::cluster_scoped(binding.as_str())).await?;
    let object = object.filter(|object| *object.meta.uid == *uid).ok_or("its ClusterBinding is gone")?;
    let parsed = BindingObject::read(&object).parsed.map_err(|faults| faults[0].to_string())?;
    let metrics = virt.metrics().clone();
    let (_told, address_told) = watch::channel(address);
    let (serving, keeper) =
        certificate(&virt, Asker::Manager, &virtual_cluster, address_told, &answers, &namespace);
    let (proxier, loops) = Proxier::new(Parts {
        subject: Subject {
            binding: Arc::new(parsed),
            virtual_cluster: virtual_cluster.into(),
            install_namespace: namespace.into(),
        },
        measuring: Measuring::of(&answers)?,
        virt,
        phys,
        house,
        serving,
        address,
        listen_port: answers.listen_port,
        client_ca_file: answers.client_ca_file,
        metrics,
        // The process counts much that is nobody's business here, and other bindings'.
        told: Metrics::new(PART),
        on_conflict: Some(on_conflict),
        drain: DRAIN_INLINE,
    })?;
    let report = async {
        loop {
            tell(proxier.readiness());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let running = loops.into_iter().map(|(_, start)| start(stop.clone()));
    let running = running.chain([keeper.run_until(stop.clone()).boxed()]);
    tokio::select! {
        _ = futures::future::join_all(running) => {}
        () = report => {}
    }
    Ok(())
}

/// The certificate that is shown to callers.
fn certificate(
    virt: &Cluster<Virtual>,
    asker: Asker,
    virtual_cluster: &str,
    address: watch::Receiver<IpAddr>,
    answers: &AnswerArgs,
    namespace: &str,
) -> (Serving, Keeper) {
    let source = match &answers.tls_secret_name {
        Some(name) => Source::Secret {
            namespace: answers.tls_secret_namespace.clone().unwrap_or_else(|| namespace.to_owned()),
            name: name.clone(),
        },
        None => Source::Signed,
    };
    certificate::keep(certificate::Parts {
        virt: virt.clone(),
        applier: Applier::new(PROXIER).virtually(virt),
        clock: Clock::system(),
        asker,
        virtual_cluster_uid: virtual_cluster.to_owned(),
        address,
        source,
        life: certificate::LIFE,
    })
}

/// Runs a proxier until it is told to stop by a signal.
pub async fn run(args: ProxierArgs) -> Result<(), ProxierError> {
    let ProxierArgs { cluster_binding_name, kubeconfig, namespace, answers, admin: addresses, log } = args;
    let environment = Environment::of_process();
    let telemetry = Telemetry::init(PROXIER, &log, &environment)?;
    let metrics = Metrics::new(PART);
    process::export(&metrics)?;
    let admin = Admin::new(metrics.clone(), telemetry.log());
    let server = admin.bind(&addresses).await?;
    let mut signals = Signals::listen()?;
    let credentials = Credentials::infer(kubeconfig.as_deref()).await?;
    let computing = credentials.server();
    let address = match answers.advertise_address {
        Some(address) => address,
        None => source_address(&computing)?,
    };
    tracing::info!(server = computing, binding = cluster_binding_name, namespace, %address, "starting");
    let virt = Cluster::connect(credentials, Settings::new("virtual", PROXIER, &metrics))?;
    let phys = Cluster::over(nowhere(), Settings::new("physical", PROXIER, &metrics));
    let stop_serving = CancellationToken::new();
    let mut serving = Box::pin(server.serve(stop_serving.clone()));
    let introduction = Introduction { admin: &admin, server: &computing };
    let (virtual_cluster, binding) = tokio::select! {
        known = introduction.who_are(&virt, &cluster_binding_name) => known?,
        () = &mut serving => return Ok(()),
        signal = signals.next() => {
            tracing::info!(signal, "stopping");
            telemetry.shutdown().await;
            return Ok(());
        }
    };
    let asker =
        Asker::Proxier { cluster_id: binding.cluster_id.to_string(), binding_uid: binding.uid.clone() };
    let (_told, address_told) = watch::channel(address);
    let (shown, keeper) = certificate(&virt, asker, &virtual_cluster, address_told, &answers, &namespace);
    let (proxier, loops) = Proxier::new(Parts {
        subject: Subject {
            binding: Arc::new(binding),
            virtual_cluster: virtual_cluster.into(),
            install_namespace: namespace.into(),
        },
        virt: virt.clone(),
        phys: phys.clone(),
        house: House::default(),
        serving: shown,
        measuring: Measuring::of(&answers)?,
        address,
        listen_port: answers.listen_port,
        client_ca_file: answers.client_ca_file,
        told: metrics.clone(),
        metrics: metrics.clone(),
        on_conflict: None,
        drain: DRAIN,
    })?;
    introduction.over();
    show(&admin, &proxier);
    let connector = connector(&proxier, virt, phys, metrics);
    let admin_loop = async move |stop: CancellationToken| {
        let told = async {
            stop.cancelled().await;
            stop_serving.cancel();
        };
        tokio::join!(serving, told);
    };
    let mut supervisor = Supervisor::new(&admin.health)
        .stage_within(DRAIN + 4 * END_WITHIN)
        .always("admin", admin_loop)
        .always("certificate", move |stop| keeper.run_until(stop))
        .always("connection", move |stop| async move { connector.run_until(stop).await });
    for (name, start) in loops {
        supervisor = supervisor.always(name, start);
    }
    let identity = proxier;
    supervisor = supervisor.always("identity", move |stop| async move {
        stop.run_until_cancelled(identity.until_made_anew()).await.map_or(Ok(()), Err)
    });
    let supervisor = supervisor.after("traces", move || telemetry.shutdown());
    let ended = supervisor.until_signal_of(signals).await;
    if let Err(error) = &ended {
        tracing::error!(error = error as &dyn Error, "stopped");
    }
    Ok(ended?)
}

/// What people can ask it.
fn show(admin: &Admin, proxier: &Arc<Proxier>) {
    let shown = Arc::clone(proxier);
    admin.ready.check("proxier", move || shown.readiness());
    let shown = Arc::clone(proxier);
    admin.state("proxier", move || shown.state());
}

fn connector(
    proxier: &Proxier,
    virt: Cluster<Virtual>,
    phys: Cluster<Physical>,
    metrics: Metrics,
) -> Connector {
    let world = proxier.desk.world.clone();
    let binding = &world.subject.binding;
    Connector {
        virt,
        phys,
        component: PROXIER,
        binding: binding.name.as_str().into(),
        mount_namespace: binding.mount_namespace.as_str().into(),
        bindings: world.bindings.progress().clone(),
        worker: Arc::new({
            let world = world.clone();
            move || world.worker()
        }),
        metrics,
    }
}

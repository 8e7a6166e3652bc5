//! The manager as a process.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kubeocean_api::keys::names::MANAGER_LEADER;
use kubeocean_cluster::admin::{Admin, AdminError};
use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::credentials::{CredentialError, Credentials};
use kubeocean_cluster::error::CallError;
use kubeocean_cluster::introduction::{Introduction, WhoIsIt};
use kubeocean_cluster::leader::ElectionError;
use kubeocean_cluster::metrics::{Metrics, MetricsError};
use kubeocean_cluster::process;
use kubeocean_cluster::shutdown::{Signals, Supervisor, SupervisorError};
use kubeocean_cluster::telemetry::{Environment, Telemetry, TelemetryError};
use kubeocean_model::action::kinds;
use kubeocean_model::bind::{MANAGER, Role, TemplateFault};
use kubeocean_model::key::{Key, Virtual};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use crate::args::{ManagerArgs, WorkerMode};
use crate::bindings::CurrentTemplates;
use crate::inline::Workload;
use crate::manager::{Background, Manager, Parts, Workers};
use crate::probe::connect;
use crate::template::{Installation, SourceError, Templates};

/// How soon templates that changed on disk are noticed. A kubelet takes a minute to bring them there.
const READ_TEMPLATES_EVERY: Duration = Duration::from_secs(5);

/// What is ready to be worked on is, in milliseconds on a good day.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// The container of the manager in its own pod, as `config/manager` has it.
const CONTAINER: &str = "manager";

/// Why the manager does not run.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
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
}

/// The templates of these directories, read now; and a loop that reads them again when they change.
pub fn follow_templates(
    syncer: Option<PathBuf>,
    proxier: Option<PathBuf>,
) -> (CurrentTemplates, impl Fn() -> bool + Send + Sync + 'static) {
    let read = move || {
        Templates::load(syncer.as_deref(), proxier.as_deref())
            .map_err(|(role, error): (Role, SourceError)| TemplateFault { role, message: error.to_string() })
    };
    let current: CurrentTemplates = Arc::new(RwLock::new(Arc::new(read())));
    let shown = Arc::clone(&current);
    let look = move || {
        let now = read();
        let changed = **shown.read() != now;
        if changed {
            *shown.write() = Arc::new(now);
        }
        changed
    };
    (current, look)
}

/// Runs a manager until it is told to stop by a signal. `reached_at` is where workloads of its own are reached, for which it approves their certificate.
pub async fn run(
    args: ManagerArgs,
    workloads: BTreeMap<Role, Arc<dyn Workload>>,
    reached_at: Option<IpAddr>,
) -> Result<(), ManagerError> {
    let ManagerArgs {
        worker_mode,
        worker_image,
        kubeconfig,
        namespace,
        cluster_domain,
        syncer_template_dir,
        proxier_template_dir,
        election,
        kube_client_qps,
        kube_client_burst,
        webhook_bind_address,
        admin: addresses,
        log,
    } = args;
    let environment = Environment::of_process();
    let telemetry = Telemetry::init(MANAGER, &log, &environment)?;
    let metrics = Metrics::new("manager");
    process::export(&metrics)?;
    let admin = Admin::new(metrics.clone(), telemetry.log());
    let server = admin.bind(&addresses).await?;
    let (metrics_at, probes_at) = (server.metrics_address(), server.probe_address());
    // None that comes while the computing cluster is waited for is missed.
    let mut signals = Signals::listen()?;
    let clock = Clock::system();
    if !matches!(webhook_bind_address.as_str(), "" | "0") {
        tracing::warn!(
            webhook_bind_address,
            "no webhook is served: the rules are part of the CRDs; remove the flag and the webhook configuration"
        );
    }

    let credentials = Credentials::infer(kubeconfig.as_deref()).await?;
    let settings = Settings::new("virtual", MANAGER, &metrics).limited(kube_client_qps, kube_client_burst);
    let address = credentials.server();
    tracing::info!(
        server = address,
        namespace,
        mode = ?worker_mode,
        metrics = metrics_at.map(tracing::field::display),
        probes = probes_at.map(tracing::field::display),
        "starting"
    );
    let virt = Cluster::<Virtual>::connect(credentials, settings)?;
    let stop_serving = CancellationToken::new();
    // It answers from now on, also while the computing cluster does not.
    let mut serving = Box::pin(server.serve(stop_serving.clone()));
    let introduction = Introduction { admin: &admin, server: &address };
    let (virtual_cluster_uid, image) = tokio::select! {
        known = introduce(&introduction, &virt, worker_image, &namespace, &environment) => known?,
        // It does not end before it is told to.
        () = &mut serving => return Ok(()),
        signal = signals.next() => {
            tracing::info!(signal, "stopping");
            telemetry.shutdown().await;
            return Ok(());
        }
    };
    let installation =
        Installation { namespace: namespace.clone(), virtual_cluster_uid, image, cluster_domain };
    let (elector, leadership) =
        election.elect(MANAGER, MANAGER_LEADER, &namespace, &environment, &virt, &clock)?;
    let (templates, read_templates) = follow_templates(syncer_template_dir, proxier_template_dir);
    let workers = match worker_mode {
        WorkerMode::Deployment => Workers::Deployed(templates),
        WorkerMode::Inline => Workers::Inline(workloads),
    };
    let (manager, background) = Manager::new(Parts {
        virt: virt.clone(),
        connect: connect(worker_mode == WorkerMode::Deployment),
        installation,
        workers,
        leadership: leadership.clone(),
        clock,
        metrics,
        seed: None,
    })?;
    let manager = manager.advertising(reached_at.filter(|_| worker_mode == WorkerMode::Inline));
    tell_readiness(&admin, &manager);
    introduction.over();
    let manager = Arc::new(manager);

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
    let supervisor = in_background(supervisor, background, &manager, read_templates);
    let supervisor = leading(supervisor, &manager).after("traces", move || telemetry.shutdown());
    let ended = supervisor.until_signal_of(signals).await;
    if let Err(error) = &ended {
        tracing::error!(error = error as &dyn Error, "stopped");
    }
    Ok(ended?)
}

/// The uid that stands for the computing cluster, and the image of syncers and proxiers.
async fn introduce(
    introduction: &Introduction<'_>,
    virt: &Cluster<Virtual>,
    image: Option<String>,
    namespace: &str,
    environment: &Environment,
) -> Result<(String, String), WhoIsIt> {
    let uid = introduction.who_is(virt).await?;
    let own = introduction.patiently(async || match &image {
        Some(image) => Ok(image.clone()),
        None => own_image(virt, namespace, environment).await,
    });
    Ok((uid, own.await.map_err(WhoIsIt::Unknown)?))
}

/// The image that this process runs in, where it runs in a pod. An answer that does not come is not taken for another one: all
/// syncers and proxiers would be started anew with an image that may not exist.
async fn own_image(
    virt: &Cluster<Virtual>,
    namespace: &str,
    environment: &Environment,
) -> Result<String, CallError> {
    let usual = concat!("kubeocean:", env!("CARGO_PKG_VERSION")).to_owned();
    let Some(pod) = environment.get("POD_NAME") else { return Ok(usual) };
    let spec = match virt.get(&kinds::POD, &Key::new(namespace, pod)).await {
        Ok(Some(pod)) => pod.field::<serde_json::Value>("spec").ok().flatten(),
        Ok(None) => None,
        Err(CallError::Refused(status)) if status.code == 403 => {
            tracing::warn!(error = %status, image = usual, "the manager's own pod may not be read; its image is not known");
            None
        }
        Err(error) => return Err(error),
    };
    let containers = spec.as_ref().and_then(|spec| spec["containers"].as_array());
    let containers = containers.map(Vec::as_slice).unwrap_or_default();
    // Someone's sidecar may stand first.
    let own = containers.iter().find(|one| one["name"] == CONTAINER).or(containers.first());
    Ok(own.and_then(|own| own["image"].as_str()).map_or(usual, str::to_owned))
}

/// `/readyz`: the stores are complete, and can be kept so; `/debug/state`: how full everything is.
fn tell_readiness(admin: &Admin, manager: &Manager) {
    for (name, progress) in manager.world.progress() {
        admin.ready.check(&name, move || progress.is_well());
    }
    let queues = manager.queues.clone();
    admin.ready.check("queues", move || {
        let oldest = [
            ("bindings", queues.bindings.oldest()),
            ("probes", queues.probes.oldest()),
            ("secrets", queues.secrets.oldest()),
            ("policies", queues.policies.oldest()),
            ("suspects", queues.suspects.oldest()),
            ("requests", queues.requests.oldest()),
        ];
        match oldest.into_iter().find(|(_, age)| *age > LONGEST_WAIT) {
            Some((queue, age)) => Err(format!("{queue}: one has been waiting for {} s", age.as_secs())),
            None => Ok(()),
        }
    });
    let queues = manager.queues.clone();
    admin.state("queues", move || {
        serde_json::json!({
            "bindings": queues.bindings.sizes(),
            "probes": queues.probes.sizes(),
            "secrets": queues.secrets.sizes(),
            "policies": queues.policies.sizes(),
            "suspects": queues.suspects.sizes(),
            "requests": queues.requests.sizes(),
        })
    });
    let world = manager.world.clone();
    admin.state("stores", move || {
        let mut sizes = serde_json::Map::new();
        sizes.insert("clusterbindings".to_owned(), world.bindings.len().into());
        sizes.insert("resourceleasingpolicies".to_owned(), world.policies.len().into());
        sizes.insert("secrets".to_owned(), world.secrets.len().into());
        sizes.insert("requests".to_owned(), world.asked.requests.len().into());
        sizes.insert("proxier pods".to_owned(), world.asked.pods.len().into());
        for (kind, store) in world.children.iter() {
            sizes.insert(kind.plural.to_string(), store.len().into());
        }
        for (kind, store) in world.leftovers.iter() {
            sizes.insert(kind.plural.to_string(), store.len().into());
        }
        sizes.into()
    });
}

/// What runs whether this process leads or not.
fn in_background(
    mut supervisor: Supervisor,
    background: Background,
    manager: &Arc<Manager>,
    read_templates: impl Fn() -> bool + Send + Sync + 'static,
) -> Supervisor {
    let Background { watching, reporter } = background;
    for (name, watching) in watching {
        supervisor = supervisor.always(&name, move |stop| async move {
            stop.run_until_cancelled_owned(watching).await;
        });
    }
    let manager = Arc::clone(manager);
    supervisor.always("events", move |stop| reporter.run_until(stop)).always(
        "templates",
        move |stop| async move {
            while stop.run_until_cancelled(tokio::time::sleep(READ_TEMPLATES_EVERY)).await.is_some() {
                if read_templates() {
                    tracing::info!("the templates have changed");
                    for (key, _) in manager.world.bindings.all() {
                        manager.queues.bindings.reset(key);
                    }
                }
            }
        },
    )
}

/// What runs while this process leads.
fn leading(supervisor: Supervisor, manager: &Arc<Manager>) -> Supervisor {
    macro_rules! leading {
        ($supervisor:expr, $($name:literal => $method:ident),+ $(,)?) => {{
            let supervisor = $supervisor;
            $(
                let manager_of_it = Arc::clone(manager);
                let supervisor = supervisor.leading($name, move |stop| {
                    let manager = Arc::clone(&manager_of_it);
                    async move { manager.$method(stop).await }
                });
            )+
            supervisor
        }};
    }
    leading!(
        supervisor,
        "inline workers" => lead_host,
        "bindings" => lead_bindings,
        "probes" => lead_probes,
        "secrets" => lead_secrets,
        "policies" => lead_policies,
        "sweep" => lead_sweep,
        "certificates" => lead_certificates,
    )
}

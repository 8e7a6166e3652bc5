//! Handles to a running sandbox: what tests and the command line hold.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use rustix::process::Signal;
use tokio::sync::mpsc::{UnboundedSender, WeakUnboundedSender};
use tokio::sync::{Mutex, OnceCell, mpsc, oneshot};

use crate::error::Error;
use crate::kubeconfig::{self, Access};
use crate::link::Link;
use crate::progress::Report;
use crate::spec::Spec;
use crate::supervisor::{self, ClusterFacts, Order};
use crate::{lab, ready};

/// A running sandbox. Dropping it ends it in the background; [`Sandbox::stop`] also waits for the end.
#[derive(Debug)]
pub struct Sandbox {
    name: String,
    directory: PathBuf,
    clusters: Vec<Cluster>,
    orders: UnboundedSender<Order>,
}

/// One cluster of a running sandbox.
#[derive(Debug, Clone)]
pub struct Cluster {
    access: Access,
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    real_nodes: Vec<String>,
    sim_nodes: Vec<String>,
    // Weak: only the sandbox itself keeps the sandbox alive.
    orders: WeakUnboundedSender<Order>,
}

/// One program of a cluster.
#[derive(Debug, Clone)]
pub struct ProgramHandle {
    cluster: String,
    program: String,
    orders: WeakUnboundedSender<Order>,
}

impl Sandbox {
    /// Starts a sandbox, and returns when every cluster in it is ready.
    pub async fn start(spec: Spec) -> Result<Self, Error> {
        Self::start_with(spec, Box::new(|_| ()), std::future::pending()).await
    }

    /// Starts a sandbox, tells `report` what happens, and gives up when `cancel` completes: then
    /// everything is ended and removed before this returns [`Error::GivenUp`].
    pub async fn start_with(
        spec: Spec,
        report: Report,
        cancel: impl Future<Output = ()>,
    ) -> Result<Self, Error> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        spec.check()?;
        lab::release(spec.kubernetes.as_deref())?;
        let unique = || format!("t{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let name = spec.name.clone().unwrap_or_else(unique);
        let (orders, receive_orders) = mpsc::unbounded_channel();
        let (ready, mut is_ready) = oneshot::channel();
        let (give_up, cancelled) = oneshot::channel();
        let thread_name = name.clone();
        std::thread::Builder::new()
            .name(format!("sandbox-{name}"))
            .spawn(move || supervisor::run(&thread_name, spec, report, cancelled, ready, receive_orders))
            .map_err(|source| Error::Io { doing: "starting a thread for", path: name.clone(), source })?;
        let mut unwanted = false;
        let outcome = tokio::select! {
            outcome = &mut is_ready => outcome,
            () = cancel => {
                unwanted = true;
                // If it became ready in this very moment, nobody reads this.
                let _ = give_up.send(());
                is_ready.await
            }
        };
        let facts = outcome.map_err(|_| Error::Ended)??;
        let clusters =
            facts.clusters.into_iter().map(|facts| Cluster::new(facts, orders.downgrade())).collect();
        let sandbox = Self { name, directory: facts.directory, clusters, orders };
        if unwanted {
            sandbox.stop().await?;
            return Err(Error::GivenUp);
        }
        Ok(sandbox)
    }

    /// A sandbox that all tests of one process share: the first to ask for `key` starts it. It ends
    /// with the process. Tests that stop programs or cut links want one of their own.
    pub async fn shared(key: &str, spec: impl FnOnce() -> Spec) -> Result<Arc<Self>, Error> {
        type Cell = Arc<OnceCell<Arc<Sandbox>>>;
        static SHARED: LazyLock<Mutex<HashMap<String, Cell>>> = LazyLock::new(Mutex::default);
        let cell = SHARED.lock().await.entry(key.to_owned()).or_default().clone();
        let sandbox = cell.get_or_try_init(|| async { Self::start(spec()).await.map(Arc::new) }).await?;
        Ok(sandbox.clone())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its directory, which goes when it ends.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its clusters, the computing cluster first.
    pub fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// The cluster of that name: `computing`, `worker-1`, …
    pub fn cluster(&self, name: &str) -> Result<&Cluster, Error> {
        let found = self.clusters.iter().find(|cluster| cluster.name() == name);
        found.ok_or_else(|| Error::unknown_cluster(&self.name, name, self.clusters.iter().map(Cluster::name)))
    }

    /// Drops every packet between two clusters: nodes, pods and API servers. For what runs on the host,
    /// use [`Cluster::link`].
    pub async fn cut(&self, one: &str, other: &str) -> Result<(), Error> {
        let clusters = [one.to_owned(), other.to_owned()];
        order(&self.orders, |reply| Order::Separate { clusters, heal: false, reply }).await
    }

    /// Undoes [`Self::cut`].
    pub async fn heal(&self, one: &str, other: &str) -> Result<(), Error> {
        let clusters = [one.to_owned(), other.to_owned()];
        order(&self.orders, |reply| Order::Separate { clusters, heal: true, reply }).await
    }

    /// Programs that ended without being asked to, each told with the end of its log.
    pub async fn died(&self) -> Result<Vec<String>, Error> {
        order(&self.orders, |reply| Order::Died { reply }).await
    }

    /// Ends the sandbox, and returns when nothing of it is left.
    pub async fn stop(self) -> Result<(), Error> {
        order(&self.orders, |reply| Order::Stop { reply }).await
    }
}

impl Cluster {
    fn new(facts: ClusterFacts, orders: WeakUnboundedSender<Order>) -> Self {
        let ClusterFacts { access, kubeconfig, kubectl, real_nodes, sim_nodes } = facts;
        Self { access, kubeconfig, kubectl, real_nodes, sim_nodes, orders }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.access.name
    }

    /// A client with full access, on the runtime that calls.
    pub async fn client(&self) -> Result<kube::Client, Error> {
        ready::client(&self.access).await
    }

    /// A kubeconfig with full access.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::render(std::slice::from_ref(&self.access))
    }

    /// The file that holds it.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig
    }

    /// `kubectl` of the cluster's own version, with full access.
    pub fn kubectl(&self) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(&self.kubeconfig).kill_on_drop(true);
        command
    }

    /// Names of its real nodes.
    pub fn real_nodes(&self) -> &[String] {
        &self.real_nodes
    }

    /// Names of its simulated nodes.
    pub fn sim_nodes(&self) -> &[String] {
        &self.sim_nodes
    }

    /// A program: [`crate::lab::Program::KubeApiserver`], or by name those of a real node:
    /// `real-1.kubelet`, `real-1.containerd`, `real-1.kube-proxy`, and `real-1.machine` for all of it.
    pub fn program(&self, program: impl Display) -> ProgramHandle {
        let (cluster, orders) = (self.name().to_owned(), self.orders.clone());
        ProgramHandle { cluster, program: program.to_string(), orders }
    }

    /// A way to its API server that can be cut.
    pub async fn link(&self) -> Result<Link, Error> {
        let cluster = self.name().to_owned();
        weak_order(&self.orders, |reply| Order::Link { cluster, reply }).await
    }
}

impl ProgramHandle {
    /// Asks it to end (SIGTERM), waits, and insists after 10 s.
    pub async fn stop(&self) -> Result<(), Error> {
        self.halt(true).await
    }

    /// Kills it (SIGKILL), and waits until it is gone.
    pub async fn kill(&self) -> Result<(), Error> {
        self.halt(false).await
    }

    /// Starts it again as it was. One that runs is left alone. A machine comes back with its node.
    pub async fn start(&self) -> Result<(), Error> {
        let (cluster, program) = (self.cluster.clone(), self.program.clone());
        weak_order(&self.orders, |reply| Order::Start { cluster, program, reply }).await
    }

    /// Freezes it (SIGSTOP): alive, and silent.
    pub async fn pause(&self) -> Result<(), Error> {
        self.signal(Signal::STOP).await
    }

    /// Lets it go on (SIGCONT).
    pub async fn resume(&self) -> Result<(), Error> {
        self.signal(Signal::CONT).await
    }

    async fn halt(&self, asked: bool) -> Result<(), Error> {
        let (cluster, program) = (self.cluster.clone(), self.program.clone());
        weak_order(&self.orders, |reply| Order::Halt { cluster, program, asked, reply }).await
    }

    async fn signal(&self, signal: Signal) -> Result<(), Error> {
        let (cluster, program) = (self.cluster.clone(), self.program.clone());
        weak_order(&self.orders, |reply| Order::Signal { cluster, program, signal, reply }).await
    }
}

async fn weak_order<T>(
    orders: &WeakUnboundedSender<Order>,
    make: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Order,
) -> Result<T, Error> {
    let orders = orders.upgrade().ok_or(Error::Ended)?;
    order(&orders, make).await
}

async fn order<T>(
    orders: &UnboundedSender<Order>,
    make: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Order,
) -> Result<T, Error> {
    let (reply, answer) = oneshot::channel();
    orders.send(make(reply)).map_err(|_| Error::Ended)?;
    answer.await.map_err(|_| Error::Ended)?
}

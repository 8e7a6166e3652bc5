//! The state of a running sandbox, and what can be done to its programs.
//!
//! Lives on its supervisor's thread. How it comes to life is in `bring_up`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use futures::future::select_all;
use rustix::process::Signal;

use crate::control_plane::ControlPlane;
use crate::error::Error;
use crate::identity::{Identity, MARK};
use crate::lab::{self, Program, Release, Toolset};
use crate::net::Plan;
use crate::node::Node;
use crate::process::{Launch, Process, State};
use crate::progress::{Progress, Report};
use crate::sim;
use crate::spec::Spec;
use crate::state::{ClusterState, Phase, ProcessRef, ProgramState, SandboxState};

/// What a program gets to end by itself before it is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A cluster, and everything of it that runs.
pub(crate) struct Running {
    pub(crate) plane: RefCell<ControlPlane>,
    pub(crate) nodes: Vec<Node>,
}

/// The state of one sandbox. Lives on its supervisor's thread.
pub(crate) struct World {
    pub(crate) name: String,
    pub(crate) identity: Identity,
    pub(crate) directory: PathBuf,
    started_at: String,
    pub(crate) release: &'static Release,
    pub(crate) spec: Spec,
    report: RefCell<Report>,
    pub(crate) tools: Option<Toolset>,
    /// Where real nodes are connected.
    pub(crate) network: Option<Plan>,
    /// Packets for simulated nodes are answered by a route of ours.
    pub(crate) sim_nodes_routed: bool,
    pub(crate) clusters: Vec<Running>,
    processes: RefCell<BTreeMap<(String, String), Process>>,
    pub(crate) phase: Cell<Phase>,
}

impl World {
    pub(crate) fn new(
        name: String,
        identity: Identity,
        directory: PathBuf,
        spec: Spec,
        report: Report,
    ) -> Result<Self, Error> {
        Ok(Self {
            release: lab::release(spec.kubernetes.as_deref())?,
            started_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            name,
            identity,
            directory,
            spec,
            report: RefCell::new(report),
            tools: None,
            network: None,
            sim_nodes_routed: false,
            clusters: Vec::new(),
            processes: RefCell::default(),
            phase: Cell::new(Phase::Starting),
        })
    }

    pub(crate) fn say(&self, progress: Progress<'_>) {
        (self.report.borrow_mut())(progress);
    }

    pub(crate) fn tools(&self) -> Result<&Toolset, Error> {
        self.tools.as_ref().ok_or(Error::Ended)
    }

    pub(crate) fn start(&self, mut launch: Launch) -> Result<(), Error> {
        launch.env.retain(|(key, _)| key != MARK);
        launch.env.push((MARK.into(), self.identity.as_str().into()));
        let key = (launch.cluster.clone(), launch.name.clone());
        let process = Process::start(launch)?;
        self.processes.borrow_mut().insert(key, process);
        Ok(())
    }

    /// Waits for `work` as long as every program of the cluster lives that was started so far.
    pub(crate) async fn alive<T>(
        &self,
        cluster: &str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let exits: Vec<_> = {
            let processes = self.processes.borrow();
            let of_cluster = processes
                .iter()
                .filter(|((of, _), process)| of == cluster && process.state() == State::Running);
            of_cluster.map(|((_, name), process)| (name.clone(), process.exited())).collect()
        };
        let any_exit = select_all(exits.into_iter().map(|(name, exited)| {
            Box::pin(async move {
                exited.await;
                name
            })
        }));
        tokio::select! {
            result = work => result,
            (program, ..) = any_exit => Err(self.with(cluster, &program, Process::death)?),
        }
    }

    pub(crate) fn with<T>(
        &self,
        cluster: &str,
        program: &str,
        act: impl FnOnce(&Process) -> T,
    ) -> Result<T, Error> {
        let processes = self.processes.borrow();
        let key = (cluster.to_owned(), program.to_owned());
        processes.get(&key).map(act).ok_or_else(|| {
            let known = processes.keys().filter(|(of, _)| of == cluster).map(|(_, name)| name.as_str());
            Error::unknown_program(cluster, program, known)
        })
    }

    pub(crate) fn kubectl(&self) -> Result<PathBuf, Error> {
        Ok(self.tools()?.path(Program::Kubectl)?.to_owned())
    }

    pub(crate) fn program_pid(&self, cluster: &str, program: &str) -> Result<u32, Error> {
        self.with(cluster, program, Process::program_pid)
    }

    pub(crate) fn cluster(&self, name: &str) -> Result<&Running, Error> {
        let found = self.clusters.iter().find(|cluster| cluster.plane.borrow().spec.name == name);
        found.ok_or_else(|| {
            let known = self.spec.clusters.iter().map(|cluster| cluster.name.as_str());
            Error::unknown_cluster(&self.name, name, known)
        })
    }

    /// Sends a signal to a program.
    pub(crate) fn signal(&self, cluster: &str, program: &str, signal: Signal) -> Result<(), Error> {
        self.with(cluster, program, |process| process.signal(signal))
    }

    /// Ends a program: asked to, or killed.
    pub(crate) async fn halt(&self, cluster: &str, program: &str, asked: bool) -> Result<(), Error> {
        let key = (cluster.to_owned(), program.to_owned());
        self.with(cluster, program, |_| ())?;
        let Some(mut process) = self.processes.borrow_mut().remove(&key) else { return Ok(()) };
        process.expected_down = true;
        let along = self.taken_along(cluster, program);
        if asked {
            process.stop(PATIENCE).await;
        } else {
            process.kill().await;
        }
        futures::future::join_all(along).await;
        self.processes.borrow_mut().insert(key, process);
        self.write_state()
    }

    /// A machine takes the programs of its node along: none of them dies by accident then. Returns their ends.
    fn taken_along(
        &self,
        cluster: &str,
        program: &str,
    ) -> Vec<impl Future<Output = Option<ExitStatus>> + use<>> {
        let Some(node) = program.strip_suffix(".machine") else { return Vec::new() };
        let prefix = format!("{node}.");
        let mut processes = self.processes.borrow_mut();
        let of_node =
            processes.iter_mut().filter(|((of, name), _)| of == cluster && name.starts_with(&prefix));
        of_node
            .map(|(_, process)| {
                process.expected_down = true;
                process.exited()
            })
            .collect()
    }

    /// Programs that ended without being asked to.
    pub(crate) fn died(&self) -> Vec<Error> {
        let processes = self.processes.borrow();
        let dead =
            processes.values().filter(|process| !process.expected_down && process.state() != State::Running);
        dead.map(Process::death).collect()
    }

    /// Kills every process. Data is thrown away, so nobody needs to say goodbye.
    pub(crate) async fn end(&self) {
        let processes = std::mem::take(&mut *self.processes.borrow_mut());
        // Machines first: the kernel then ends all of a node at once.
        let (machines, others): (Vec<_>, Vec<_>) =
            processes.into_values().partition(|process| process.launch().name.ends_with(".machine"));
        for process in machines.iter().chain(&others) {
            process.signal(Signal::KILL);
        }
        for process in machines.iter().chain(&others) {
            process.kill().await;
        }
    }

    pub(crate) fn write_state(&self) -> Result<(), Error> {
        let processes = self.processes.borrow();
        let clusters = self.clusters.iter().map(|cluster| {
            let plane = cluster.plane.borrow();
            ClusterState {
                name: plane.spec.name.clone(),
                server: plane.server(),
                sim_nodes: sim::names(plane.spec.sim_nodes),
                real_nodes: cluster.nodes.iter().map(|node| node.name.clone()).collect(),
                programs: processes
                    .values()
                    .filter(|process| process.launch().cluster == plane.spec.name)
                    .map(|process| ProgramState {
                        name: process.launch().name.clone(),
                        process: ProcessRef::of(process.pid()),
                        log: process.launch().log.clone(),
                    })
                    .collect(),
            }
        });
        let state = SandboxState {
            name: self.name.clone(),
            phase: self.phase.get(),
            kubernetes: self.release.version().to_owned(),
            kubectl: self.kubectl().ok(),
            supervisor: ProcessRef::current(),
            started_at: self.started_at.clone(),
            kubeconfigs: self.directory.join("kubeconfig"),
            clusters: clusters.collect(),
        };
        state.write(&self.directory)
    }
}

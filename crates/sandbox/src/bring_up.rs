//! Starting a sandbox, step by step, as much at a time as the steps allow.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use futures::future::try_join_all;

use crate::control_plane::{ControlPlane, Setting};
use crate::error::{Error, io_error};
use crate::lab::{self, Program};
use crate::net;
use crate::node::Node;
use crate::process::{Process, State};
use crate::progress::Progress;
use crate::spec::{ClusterSpec, Spec};
use crate::state::Phase;
use crate::world::{Running, World};
use crate::{doctor, home, image, kubeconfig, metrics_server, ready, sim};

/// Logs, etcd's files and container layers of three clusters in a day of use.
const SANDBOX_NEEDS_MIB: u64 = 500;

/// How often another port is tried when someone took the chosen one.
const PORT_TRIES: u32 = 5;

impl World {
    /// From nothing to ready. What it has started when it fails is ended by [`Self::end`].
    pub(crate) async fn bring_up(&mut self) -> Result<(), Error> {
        self.write_state()?;
        self.check_machine()?;
        self.find_programs().await?;
        let began = Instant::now();
        self.lay_out()?;
        self.write_state()?;
        let started =
            try_join_all(self.clusters.iter().map(|cluster| self.start_cluster(cluster, began))).await;
        if let Err(Error::ProgramDied { .. }) = &started {
            self.blame_the_cache()?;
        }
        started?;
        let access: Vec<_> =
            self.clusters.iter().map(|cluster| cluster.plane.borrow().admin_access()).collect();
        crate::pki::write_private(&self.directory.join("kubeconfig/all.yaml"), &kubeconfig::render(&access))?;
        self.phase.set(Phase::Ready);
        self.write_state()
    }

    /// A program that dies at start may be one whose file was damaged. Reading them all takes a second,
    /// which is well spent before anyone wonders.
    fn blame_the_cache(&self) -> Result<(), Error> {
        match lab::remove_corrupt(self.release, &programs_for(&self.spec))? {
            Some(why) => Err(Error::CorruptProgram { why }),
            None => Ok(()),
        }
    }

    fn check_machine(&self) -> Result<(), Error> {
        let free = home::free_mib(&self.directory);
        if free < SANDBOX_NEEDS_MIB {
            let path = self.directory.display().to_string();
            return Err(Error::DiskFull { free, needed: SANDBOX_NEEDS_MIB, path });
        }
        if self.spec.real_nodes() > 0 {
            doctor::require_real_nodes(self.spec.clusters.len(), self.spec.real_nodes())?;
        }
        Ok(())
    }

    async fn find_programs(&mut self) -> Result<(), Error> {
        let programs = programs_for(&self.spec);
        let world = &*self;
        let tools =
            lab::ensure(world.release, &programs, &mut |event| world.say(Progress::Lab(event))).await?;
        self.tools = Some(tools);
        Ok(())
    }

    fn lay_out(&mut self) -> Result<(), Error> {
        let made = self.directory.join("kubeconfig");
        fs::create_dir_all(&made).map_err(io_error("creating", &made))?;
        self.connect()?;
        if self.network.is_some() {
            image::write_base_images(&self.base_images())?;
        }
        let mut clusters = Vec::new();
        let mut node_index = 0;
        for (index, spec) in self.spec.clusters.clone().into_iter().enumerate() {
            let tools = self.tools()?;
            let setting =
                Setting { directory: &self.directory, tools, network: self.network, audit: self.spec.audit };
            let mut plane = ControlPlane::lay_out(&setting, index, spec)?;
            if self.network.is_none() {
                plane.port = self.choose_port(index, 0)?;
            }
            plane.write_kubeconfig()?;
            let mut nodes = Vec::new();
            for number in 1..=plane.spec.real_nodes {
                if let Some(plan) = self.network {
                    let name = format!("real-{number}");
                    nodes.push(Node::lay_out(
                        &plane,
                        plan,
                        &name,
                        node_index,
                        self.identity.as_str(),
                        tools,
                    )?);
                    node_index += 1;
                }
            }
            clusters.push(Running { plane: RefCell::new(plane), nodes });
        }
        self.clusters = clusters;
        Ok(())
    }

    /// Real nodes need a network. Simulated ones only want addresses that lead nowhere: where we may not
    /// set routes, loopback serves for those that are ever dialled.
    fn connect(&mut self) -> Result<(), Error> {
        let real = self.spec.real_nodes() > 0;
        if real {
            self.network = Some(net::create(&self.identity, self.spec.clusters.len())?);
        }
        if self.spec.sim_nodes() > 0 && rustix::process::geteuid().is_root() {
            self.sim_nodes_routed = net::block(&self.identity, &sim::RANGES).is_ok();
        }
        Ok(())
    }

    fn base_images(&self) -> PathBuf {
        self.directory.join("base-images.tar")
    }

    fn choose_port(&self, cluster: usize, attempt: u32) -> Result<u16, Error> {
        let offset = u16::try_from(cluster).unwrap_or_default();
        let preferred =
            self.spec.first_api_port.filter(|_| attempt == 0).map(|port| port.saturating_add(offset));
        ready::free_port(preferred)
    }

    async fn start_cluster(&self, cluster: &Running, began: Instant) -> Result<(), Error> {
        let (name, spec) = {
            let plane = cluster.plane.borrow();
            (plane.spec.name.clone(), plane.spec.clone())
        };
        // Machines and container runtimes need no API server: they start beside it.
        let machines = try_join_all(cluster.nodes.iter().map(|node| self.start_machine(cluster, node)));
        let (client, machines) =
            futures::future::try_join(self.start_control_plane(cluster, &name, &spec), machines).await?;
        self.say(Progress::ControlPlaneReady { cluster: &name, after: began.elapsed() });
        let name = name.as_str();
        try_join_all(cluster.nodes.iter().zip(machines).map(|(node, machine)| async move {
            let from = Instant::now();
            self.start_node(cluster, node, machine).await?;
            self.say(Progress::NodeReady { cluster: name, node: &node.name, after: from.elapsed() });
            Ok::<_, Error>(())
        }))
        .await?;
        self.alive(name, async {
            for node in sim::names(spec.sim_nodes) {
                ready::node(&client, name, &node).await?;
            }
            Ok(())
        })
        .await?;
        self.write_state()
    }

    async fn start_control_plane(
        &self,
        cluster: &Running,
        name: &str,
        spec: &ClusterSpec,
    ) -> Result<kube::Client, Error> {
        let (etcd, socket) = {
            let plane = cluster.plane.borrow();
            (plane.etcd()?, plane.directory.join("etcd.sock"))
        };
        self.start(etcd)?;
        self.alive(name, appears(&socket, "the socket of etcd")).await?;
        let client = self.start_api_server(cluster, name).await?;
        let (manager, scheduler) = {
            let plane = cluster.plane.borrow();
            (plane.controller_manager()?, plane.scheduler()?)
        };
        self.start(manager)?;
        self.start(scheduler)?;
        let index = cluster.plane.borrow().index;
        if spec.sim_nodes > 0 {
            let failed = ready::api_error(name, "creating simulated nodes");
            let nodes = sim::Nodes {
                count: spec.sim_nodes,
                first_address: sim::first_node(index, self.sim_nodes_routed),
                size: &self.spec.sim_node_size,
                version: self.release.version(),
            };
            nodes.create(client.clone()).await.map_err(failed)?;
            let kwok = cluster.plane.borrow().kwok(&sim::pods(index))?;
            self.start(kwok)?;
        }
        // Also where all nodes are simulated: pods of other clusters may ask for its names.
        if let Some(plan) = self.network {
            let core_dns = cluster.plane.borrow().core_dns(plan)?;
            self.start(core_dns)?;
            let failed = ready::api_error(name, "publishing the cluster DNS");
            crate::dns::publish(&client, plan, index).await.map_err(failed)?;
        }
        if spec.metrics_server {
            self.start_metrics_server(cluster, name, &client).await?;
        }
        self.alive(name, ready::accepts_pods(&client, name)).await?;
        Ok(client)
    }

    /// It ends at once where it may not read what it needs, so its rights come first. When it has figures, whoever wants them sees.
    async fn start_metrics_server(
        &self,
        cluster: &Running,
        name: &str,
        client: &kube::Client,
    ) -> Result<(), Error> {
        let (address, authority, launch) = {
            let plane = cluster.plane.borrow();
            (plane.address, plane.authority.pem(), plane.metrics_server()?)
        };
        let failed = ready::api_error(name, "publishing metrics-server");
        metrics_server::publish(client, address, &authority).await.map_err(failed)?;
        self.alive(name, metrics_server::may_start(client, name)).await?;
        self.start(launch)
    }

    /// Starts the API server; on another port where someone took the chosen one in between.
    async fn start_api_server(&self, cluster: &Running, name: &str) -> Result<kube::Client, Error> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let (launch, access) = {
                let plane = cluster.plane.borrow();
                (plane.api_server()?, plane.admin_access())
            };
            self.start(launch)?;
            let client = ready::client(&access).await?;
            match self.alive(name, ready::api_server(&client, name)).await {
                Err(Error::ProgramDied { log, .. })
                    if attempt < PORT_TRIES && self.network.is_none() && port_was_taken(Path::new(&log)) =>
                {
                    let mut plane = cluster.plane.borrow_mut();
                    self.say(Progress::PortTaken { cluster: name, port: plane.port });
                    plane.port = self.choose_port(plane.index, attempt)?;
                    plane.write_kubeconfig()?;
                }
                Err(error) => return Err(error),
                Ok(()) => return Ok(client),
            }
        }
    }

    /// Starts the machine of a node, its container runtime, and fills it with images.
    async fn start_machine(&self, cluster: &Running, node: &Node) -> Result<u32, Error> {
        let plan = self.network.ok_or(Error::Ended)?;
        let (launch, name) = {
            let plane = cluster.plane.borrow();
            (node.machine(&plane), plane.spec.name.clone())
        };
        let _ = fs::remove_file(node.ready_file());
        self.start(launch)?;
        let machine = node.program("machine");
        self.alive(&name, appears(&node.ready_file(), "the machine")).await?;
        let pid = self.program_pid(&name, &machine)?;
        net::connect(plan, node.index, pid, self.spec.real_nodes())?;
        let launch = node.containerd(&cluster.plane.borrow(), pid);
        self.start(launch)?;
        self.alive(&name, ready::until("containerd", async || ctr(pid, &["version"]).await)).await?;
        let base = self.base_images();
        for archive in std::iter::once(&base).chain(&self.spec.images) {
            let inside = node.directory.join("image.tar");
            fs::copy(archive, &inside).map_err(io_error("copying", archive))?;
            ctr(pid, &["--namespace", "k8s.io", "images", "import", "/run/node/image.tar"]).await.map_err(
                |error| Error::Image { archive: archive.display().to_string(), message: error.to_string() },
            )?;
            fs::remove_file(&inside).map_err(io_error("removing", &inside))?;
        }
        Ok(pid)
    }

    async fn start_node(&self, cluster: &Running, node: &Node, machine: u32) -> Result<(), Error> {
        let plan = self.network.ok_or(Error::Ended)?;
        let (kubelet, proxy, name, access) = {
            let plane = cluster.plane.borrow();
            let (kubelet, proxy) = (node.kubelet(&plane, plan, machine)?, node.kube_proxy(&plane, machine)?);
            (kubelet, proxy, plane.spec.name.clone(), plane.admin_access())
        };
        self.start(kubelet)?;
        self.start(proxy)?;
        let client = ready::client(&access).await?;
        self.alive(&name, ready::node(&client, &name, &node.name)).await
    }

    /// Starts a program that was stopped, killed or died. A machine comes back with all of its node.
    pub(crate) async fn restart(&self, cluster: &str, program: &str) -> Result<(), Error> {
        if self.with(cluster, program, Process::state)? == State::Running {
            return Ok(());
        }
        let running = self.cluster(cluster)?;
        match running.nodes.iter().find(|node| node.program("machine") == program) {
            Some(node) => {
                let machine = self.start_machine(running, node).await?;
                self.start_node(running, node, machine).await?;
            }
            None => self.start(self.with(cluster, program, |process| process.launch().clone())?)?,
        }
        self.write_state()
    }
}

/// The programs that a sandbox needs: no kubelet is built for simulated nodes.
pub(crate) fn programs_for(spec: &Spec) -> Vec<Program> {
    let mut programs = BTreeSet::from([
        Program::Etcd,
        Program::KubeApiserver,
        Program::KubeControllerManager,
        Program::KubeScheduler,
        Program::Kubectl,
    ]);
    if spec.sim_nodes() > 0 {
        programs.insert(Program::Kwok);
    }
    if spec.real_nodes() > 0 {
        programs.extend([Program::Kubelet, Program::KubeProxy, Program::Coredns]);
    }
    if spec.metrics_servers() > 0 {
        programs.insert(Program::MetricsServer);
    }
    programs.into_iter().collect()
}

async fn appears(path: &Path, what: &str) -> Result<(), Error> {
    ready::until(
        what,
        async || if path.exists() { Ok(()) } else { Err(format!("{} does not exist", path.display())) },
    )
    .await
}

fn port_was_taken(log: &Path) -> bool {
    crate::process::last_lines(log, 200).contains("address already in use")
}

/// Runs `ctr` inside of a machine.
async fn ctr(machine: u32, args: &[&str]) -> Result<(), Error> {
    let enter = crate::node::enter(machine);
    let output = tokio::process::Command::new(&enter[0])
        .args(&enter[1..])
        .arg("ctr")
        .args(args)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(io_error("starting", Path::new("ctr (Debian package containerd)")))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Command { command: format!("ctr {}", args.join(" ")), message })
}

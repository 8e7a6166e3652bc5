//! Real nodes: kubelet, containerd, runc and kube-proxy in namespaces of their own.
//!
//! Deliberately absent: when a node is started, and who waits for it (see `bring_up`).

mod cgroup;
mod config;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::control_plane::ControlPlane;
use crate::error::{Error, io_error};
use crate::lab::{Program, Toolset};
use crate::net::Plan;
use crate::process::Launch;

const MACHINE: &str = include_str!("machine.sh");

/// Joins the control groups given before `--`, then becomes the command after it.
const JOIN_AND_RUN: &str =
    r#"while [ "$1" != -- ]; do echo $$ >"$1" || exit 1; shift; done; shift; exec "$@""#;

/// A real node, laid out on disk.
pub(crate) struct Node {
    pub(crate) name: String,
    /// Number of the node in its sandbox.
    pub(crate) index: usize,
    pub(crate) directory: PathBuf,
    groups: cgroup::Groups,
    tools: Toolset,
}

impl Node {
    /// Makes the directory, certificates and configuration of a node. Nothing is started.
    pub(crate) fn lay_out(
        cluster: &ControlPlane,
        plan: Plan,
        name: &str,
        index: usize,
        identity: &str,
        tools: &Toolset,
    ) -> Result<Self, Error> {
        let directory = cluster.directory.join("nodes").join(name);
        for part in ["lib/kubelet", "log", "cni", "pki"] {
            let made = directory.join(part);
            fs::create_dir_all(&made).map_err(io_error("creating", &made))?;
        }
        let address = plan.node(index);
        let file = |kind: &str| format!("{kind}-{name}");
        let user = format!("system:node:{name}");
        let serving = cluster.authority.server(
            &file("kubelet"),
            &user,
            Some("system:nodes"),
            &[address.into()],
            &[name],
        )?;
        let kubelet = cluster.component_kubeconfig(&file("kubelet-client"), &user, Some("system:nodes"))?;
        let proxy = cluster.component_kubeconfig(&file("kube-proxy"), "system:kube-proxy", None)?;
        for (from, to) in [
            (cluster.authority.certificate(), "pki/ca.crt"),
            (&serving.certificate, "pki/kubelet.crt"),
            (&serving.key, "pki/kubelet.key"),
            (&kubelet, "kubelet.kubeconfig"),
            (&proxy, "kube-proxy.kubeconfig"),
        ] {
            fs::copy(from, directory.join(to)).map_err(io_error("copying", from))?;
        }
        let facts = config::Facts {
            address,
            pods: plan.pods(index),
            dns: plan.dns_service(cluster.index),
            snapshotter: snapshotter_for(&directory),
        };
        for (file, text) in [
            ("containerd.toml", config::containerd(&facts)),
            ("cni/10-sandbox.conflist", config::cni(&facts)),
            ("kubelet.yaml", config::kubelet(&facts)),
            ("kube-proxy.yaml", config::kube_proxy(&facts)),
            ("resolv.conf", "# The world outside of the sandbox is not reachable.\n".to_owned()),
        ] {
            let path = directory.join(file);
            fs::write(&path, text).map_err(io_error("writing", &path))?;
        }
        let groups = cgroup::create(identity, &format!("{}.{name}", cluster.spec.name))?;
        Ok(Self { name: name.to_owned(), index, directory, groups, tools: tools.clone() })
    }

    /// The name of one of its programs in messages and files.
    pub(crate) fn program(&self, program: &str) -> String {
        format!("{}.{program}", self.name)
    }

    /// Appears when the machine stands.
    pub(crate) fn ready_file(&self) -> PathBuf {
        self.directory.join("ready")
    }

    /// The machine: namespaces, and a first process that holds them.
    pub(crate) fn machine(&self, cluster: &ControlPlane) -> Launch {
        // The control group becomes the root of what the machine sees; then its processes move below it.
        let mut command = join_and_run(&self.groups.join_machine);
        command.extend(["unshare", "--cgroup"].map(OsString::from));
        command.extend(join_and_run(&self.groups.join_program));
        command.extend(
            ["unshare", "--mount", "--propagation", "private", "--net", "--uts", "--ipc"].map(OsString::from),
        );
        command.extend(["--pid", "--mount-proc", "--fork", "--kill-child=KILL"].map(OsString::from));
        command.extend(["sh", "-c", MACHINE, "machine"].map(OsString::from));
        command.push(self.directory.clone().into());
        command.extend([&self.name, self.groups.hierarchy].map(OsString::from));
        command.extend(self.groups.controllers.iter().map(OsString::from));
        let mut launch = cluster.launch(&self.program("machine"), command);
        launch.wrapped = true;
        launch
    }

    pub(crate) fn containerd(&self, cluster: &ControlPlane, machine: u32) -> Launch {
        self.inside(
            cluster,
            machine,
            "containerd",
            ["containerd", "--config", "/run/node/containerd.toml"].map(OsString::from),
        )
    }

    pub(crate) fn kubelet(&self, cluster: &ControlPlane, plan: Plan, machine: u32) -> Result<Launch, Error> {
        let command = [
            self.tools.path(Program::Kubelet)?.into(),
            OsString::from("--config=/run/node/kubelet.yaml"),
            "--kubeconfig=/run/node/kubelet.kubeconfig".into(),
            format!("--hostname-override={}", self.name).into(),
            format!("--node-ip={}", plan.node(self.index)).into(),
        ];
        Ok(self.inside(cluster, machine, "kubelet", command))
    }

    pub(crate) fn kube_proxy(&self, cluster: &ControlPlane, machine: u32) -> Result<Launch, Error> {
        let command = [
            self.tools.path(Program::KubeProxy)?.into(),
            OsString::from("--config=/run/node/kube-proxy.yaml"),
            format!("--hostname-override={}", self.name).into(),
        ];
        Ok(self.inside(cluster, machine, "kube-proxy", command))
    }

    fn inside<const N: usize>(
        &self,
        cluster: &ControlPlane,
        machine: u32,
        name: &str,
        program: [OsString; N],
    ) -> Launch {
        let mut command = join_and_run(&self.groups.join_program);
        command.extend(enter(machine));
        command.extend(program);
        let mut launch = cluster.launch(&self.program(name), command);
        launch.env =
            vec![("PATH".into(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into())];
        launch.wrapped = true;
        launch
    }
}

/// The command that enters all namespaces of a machine.
pub(crate) fn enter(machine: u32) -> Vec<OsString> {
    let target = machine.to_string();
    ["nsenter", "--target", &target, "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--"]
        .map(OsString::from)
        .into()
}

fn join_and_run(groups: &[PathBuf]) -> Vec<OsString> {
    let mut command: Vec<OsString> = ["sh", "-c", JOIN_AND_RUN, "join"].map(OsString::from).into();
    command.extend(groups.iter().map(OsString::from));
    command.push("--".into());
    command
}

/// An overlay cannot lie on an overlay, which is what the root of a container is.
fn snapshotter_for(directory: &Path) -> &'static str {
    /// `OVERLAYFS_SUPER_MAGIC` of the kernel's `linux/magic.h`.
    const OVERLAYFS: i64 = 0x794c_7630;
    match rustix::fs::statfs(directory) {
        #[allow(clippy::useless_conversion, reason = "the type differs between architectures")]
        Ok(disk) if i64::from(disk.f_type) == OVERLAYFS => "native",
        _ => "overlayfs",
    }
}

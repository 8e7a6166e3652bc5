//! What a sandbox says of itself: the file `sandbox.json` in its directory, for `status`, `list` and
//! `kubeconfig`, which are other processes.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, io_error};
use crate::process::{child_of, is_alive, resident_kib};

/// A sandbox, as others see it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxState {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub phase: Phase,
    /// Version of Kubernetes, as in `v1.36.4`.
    pub kubernetes: String,
    /// `kubectl` of that version, once it is there.
    pub kubectl: Option<PathBuf>,
    /// The process that runs it.
    pub supervisor: ProcessRef,
    /// When it was started (RFC 3339).
    pub started_at: String,
    /// The directory with one kubeconfig per cluster and `all.yaml`.
    pub kubeconfigs: PathBuf,
    /// Its clusters, the computing cluster first.
    pub clusters: Vec<ClusterState>,
}

/// Where a sandbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Programs are being started.
    Starting,
    /// Every cluster was ready once.
    Ready,
}

/// A process, named so that a later one of the same number is not mistaken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessRef {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start_time: u64,
}

/// One cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterState {
    /// Its name.
    pub name: String,
    /// Address of its API server.
    pub server: String,
    /// Names of simulated nodes.
    pub sim_nodes: Vec<String>,
    /// Names of real nodes.
    pub real_nodes: Vec<String>,
    /// Its programs.
    pub programs: Vec<ProgramState>,
}

/// One program of a cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgramState {
    /// As in `kube-apiserver` or `real-1.kubelet`.
    pub name: String,
    /// Its process; for programs of a real node, that of the wrapper which entered the node.
    #[serde(flatten)]
    pub process: ProcessRef,
    /// Its log file.
    pub log: PathBuf,
}

impl ProcessRef {
    /// This process.
    pub(crate) fn current() -> Self {
        Self::of(std::process::id())
    }

    pub(crate) fn of(pid: u32) -> Self {
        Self { pid, start_time: crate::process::start_time(pid).unwrap_or_default() }
    }

    /// Whether it still runs.
    pub fn is_alive(self) -> bool {
        is_alive(self.pid, self.start_time)
    }
}

impl ProgramState {
    /// Memory in use, in KiB.
    pub fn resident_kib(&self) -> u64 {
        resident_kib(self.process.pid) + child_of(self.process.pid).map_or(0, resident_kib)
    }
}

impl SandboxState {
    /// The cluster of that name.
    pub fn cluster(&self, name: &str) -> Result<&ClusterState, Error> {
        let found = self.clusters.iter().find(|cluster| cluster.name == name);
        let known = || self.clusters.iter().map(|cluster| cluster.name.as_str());
        found.ok_or_else(|| Error::unknown_cluster(&self.name, name, known()))
    }

    /// A client of a cluster, with full access.
    pub async fn client(&self, cluster: &str) -> Result<kube::Client, Error> {
        let path = self.kubeconfig(Some(cluster))?;
        let text = fs::read_to_string(&path).map_err(io_error("reading", &path))?;
        crate::ready::client_from(&text, cluster).await
    }

    /// The kubeconfig of a cluster, or of all of them.
    pub fn kubeconfig(&self, cluster: Option<&str>) -> Result<PathBuf, Error> {
        let file = match cluster {
            Some(name) => format!("{}.yaml", self.cluster(name)?.name),
            None => "all.yaml".to_owned(),
        };
        Ok(self.kubeconfigs.join(file))
    }

    pub(crate) fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(directory.join("sandbox.json")).ok()?).ok()
    }

    /// Replaces the file in one step: readers see the old state or the new one.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), Error> {
        let (new, path) = (directory.join(".sandbox.json"), directory.join("sandbox.json"));
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        fs::write(&new, text).map_err(io_error("writing", &new))?;
        fs::rename(&new, &path).map_err(io_error("writing", &path))
    }
}

impl ClusterState {
    /// The program of that name.
    pub fn program(&self, name: &str) -> Result<&ProgramState, Error> {
        let found = self.programs.iter().find(|program| program.name == name);
        let known = || self.programs.iter().map(|program| program.name.as_str());
        found.ok_or_else(|| Error::unknown_program(&self.name, name, known()))
    }
}

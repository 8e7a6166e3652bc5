//! What a sandbox should be: clusters, nodes, sizes. Checked before anything is started.

use std::path::PathBuf;

use crate::error::Error;

/// The name of the cluster that borrows.
pub const COMPUTING: &str = "computing";

/// A `/22` of service addresses per cluster is carved from one half of the sandbox's `/16`: 32 clusters
/// fit; 17 keep the list readable and are more than 2 cores carry.
const MAX_WORKERS: usize = 16;

/// Each real node has a `/24` of pod addresses in the range 10.x.16.0 to 10.x.115.0.
const MAX_REAL_NODES: usize = 100;

/// 2048 addresses per cluster, and a few to spare (see `sim`).
const MAX_SIM_NODES: usize = 2000;

/// A sandbox to be: built by its methods, started by [`crate::Sandbox::start`].
#[derive(Debug, Clone)]
pub struct Spec {
    pub(crate) name: Option<String>,
    pub(crate) kubernetes: Option<String>,
    pub(crate) clusters: Vec<ClusterSpec>,
    pub(crate) sim_node_size: NodeSize,
    pub(crate) images: Vec<PathBuf>,
    pub(crate) audit: bool,
    pub(crate) first_api_port: Option<u16>,
}

/// One cluster to be.
#[derive(Debug, Clone)]
pub struct ClusterSpec {
    pub(crate) name: String,
    pub(crate) sim_nodes: usize,
    pub(crate) real_nodes: usize,
    pub(crate) metrics_server: bool,
    pub(crate) extra_args: Vec<(String, String)>,
}

/// The size that a simulated node claims.
#[derive(Debug, Clone)]
pub struct NodeSize {
    /// Processors, as a Kubernetes quantity.
    pub cpu: String,
    /// Memory, as a Kubernetes quantity.
    pub memory: String,
    /// How many pods.
    pub pods: String,
}

impl Default for NodeSize {
    fn default() -> Self {
        Self { cpu: "8".into(), memory: "32Gi".into(), pods: "110".into() }
    }
}

impl Default for Spec {
    fn default() -> Self {
        Self::new()
    }
}

impl Spec {
    /// The computing cluster alone, without nodes, under a name of its own.
    pub fn new() -> Self {
        Self {
            name: None,
            kubernetes: None,
            clusters: vec![ClusterSpec::new(COMPUTING)],
            sim_node_size: NodeSize::default(),
            images: Vec::new(),
            audit: false,
            first_api_port: None,
        }
    }

    /// Under this name instead of a unique one.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// With this Kubernetes minor instead of the lab's default.
    #[must_use]
    pub fn kubernetes(mut self, minor: Option<String>) -> Self {
        self.kubernetes = minor;
        self
    }

    /// Adds worker clusters `worker-1` … `worker-<count>`, all alike.
    #[must_use]
    pub fn workers(mut self, count: usize, sim_nodes: usize, real_nodes: usize) -> Self {
        let before = self.clusters.len() - 1;
        self.clusters.extend((1..=count).map(|number| ClusterSpec {
            sim_nodes,
            real_nodes,
            ..ClusterSpec::new(format!("worker-{}", before + number))
        }));
        self
    }

    /// Gives the computing cluster nodes of its own.
    #[must_use]
    pub fn computing_nodes(mut self, sim_nodes: usize, real_nodes: usize) -> Self {
        if let Some(computing) = self.clusters.first_mut() {
            (computing.sim_nodes, computing.real_nodes) = (sim_nodes, real_nodes);
        }
        self
    }

    /// The size of simulated nodes.
    #[must_use]
    pub fn sim_node_size(mut self, size: NodeSize) -> Self {
        self.sim_node_size = size;
        self
    }

    /// Imports an image archive (OCI or docker) into every real node.
    #[must_use]
    pub fn image(mut self, archive: impl Into<PathBuf>) -> Self {
        self.images.push(archive.into());
        self
    }

    /// Lets each API server write an audit log.
    #[must_use]
    pub fn audit(mut self, on: bool) -> Self {
        self.audit = on;
        self
    }

    /// API servers try this port first (and the following ones), and another one where it is taken.
    /// Without effect where there are real nodes: there each API server has an address of its own.
    #[must_use]
    pub fn first_api_port(mut self, port: Option<u16>) -> Self {
        self.first_api_port = port;
        self
    }

    /// Gives a cluster a metrics-server, for `kubectl top` and autoscalers. An API server finds it by an address of its own, and those
    /// are there where there are real nodes, in whichever cluster.
    #[must_use]
    pub fn metrics_server(mut self, cluster: &str) -> Self {
        for spec in self.clusters.iter_mut().filter(|spec| spec.name == cluster) {
            spec.metrics_server = true;
        }
        self
    }

    /// Adds a flag to a program of a cluster, as in `("kube-apiserver", "--v=4")`.
    #[must_use]
    pub fn extra_arg(mut self, cluster: &str, program: &str, flag: &str) -> Self {
        for spec in self.clusters.iter_mut().filter(|spec| spec.name == cluster) {
            spec.extra_args.push((program.to_owned(), flag.to_owned()));
        }
        self
    }

    pub(crate) fn real_nodes(&self) -> usize {
        self.clusters.iter().map(|cluster| cluster.real_nodes).sum()
    }

    pub(crate) fn sim_nodes(&self) -> usize {
        self.clusters.iter().map(|cluster| cluster.sim_nodes).sum()
    }

    pub(crate) fn metrics_servers(&self) -> usize {
        self.clusters.iter().filter(|cluster| cluster.metrics_server).count()
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(name) = &self.name {
            check_name(name)?;
        }
        let invalid = |what: String| Err(Error::InvalidSpec { what });
        if self.clusters.len() > MAX_WORKERS + 1 {
            return invalid(format!(
                "{} workers are too many: at most {MAX_WORKERS}",
                self.clusters.len() - 1
            ));
        }
        if self.real_nodes() > MAX_REAL_NODES {
            return invalid(format!(
                "{} real nodes are too many: at most {MAX_REAL_NODES}",
                self.real_nodes()
            ));
        }
        if let Some(cluster) = self.clusters.iter().find(|cluster| cluster.sim_nodes > MAX_SIM_NODES) {
            let (count, name) = (cluster.sim_nodes, &cluster.name);
            return invalid(format!(
                "{count} simulated nodes in {name} are too many: at most {MAX_SIM_NODES}"
            ));
        }
        for image in &self.images {
            if !image.is_file() {
                return invalid(format!(
                    "the image archive {} is not a file: check the path",
                    image.display()
                ));
            }
        }
        if !self.images.is_empty() && self.real_nodes() == 0 {
            return invalid("images are for real nodes: ask for at least one, or leave the image out".into());
        }
        if self.metrics_servers() > 0 && self.real_nodes() == 0 {
            return invalid(
                "metrics-server needs a network: ask for at least one real node, or leave it out".into(),
            );
        }
        Ok(())
    }
}

impl ClusterSpec {
    fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), sim_nodes: 0, real_nodes: 0, metrics_server: false, extra_args: Vec::new() }
    }

    pub(crate) fn extra_args<'a>(&'a self, program: &'a str) -> impl Iterator<Item = &'a str> {
        self.extra_args.iter().filter(move |(of, _)| of == program).map(|(_, flag)| flag.as_str())
    }
}

/// The name becomes part of directories, cgroups and messages; 20 characters keep socket paths short.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let valid = (1..=20).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if valid { Ok(()) } else { Err(Error::InvalidName { name: name.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for good in ["dev", "a", "t-1-2", "x234567890123456789a"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "Dev", "1st", "a/b", "..", "a-", "x2345678901234567890a", "ä"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn workers_are_numbered_from_one() {
        let spec = Spec::new().workers(2, 3, 0).workers(1, 0, 1);
        let names: Vec<_> = spec.clusters.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["computing", "worker-1", "worker-2", "worker-3"]);
        assert_eq!((spec.sim_nodes(), spec.real_nodes()), (6, 1));
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_limit() {
        let error = Spec::new().workers(17, 0, 0).check().expect_err("too many");
        assert!(error.to_string().contains("at most 16"), "{error}");
        let error = Spec::new().workers(1, 1, 0).image("/nowhere.tar").check().expect_err("no file");
        assert!(error.to_string().contains("/nowhere.tar is not a file"), "{error}");
        let spec = Spec::new().workers(1, 1, 0).metrics_server("worker-1");
        let error = spec.check().expect_err("no network");
        assert!(error.to_string().contains("ask for at least one real node"), "{error}");
    }
}

//! The flags of the manager.

use std::path::PathBuf;

use kubeocean_cluster::admin::AdminArgs;
use kubeocean_cluster::election::ElectionArgs;
use kubeocean_cluster::telemetry::LogArgs;

/// How syncers and proxiers are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum WorkerMode {
    /// One Deployment each per binding
    Deployment,
    /// As tasks of the manager's own process
    Inline,
}

/// What the manager is told.
#[derive(Clone, Debug, clap::Args)]
pub struct ManagerArgs {
    /// How syncers and proxiers are run
    #[arg(long, value_enum, default_value = "deployment")]
    pub worker_mode: WorkerMode,

    /// The image of syncers and proxiers; by default that of the manager's own pod
    #[arg(long, value_name = "IMAGE", env = "KUBEOCEAN_IMAGE")]
    pub worker_image: Option<String>,

    /// The kubeconfig of the computing cluster; without it, the service account of the pod
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,

    /// The namespace that the manager is installed in, and makes everything in
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE", default_value = kubeocean_api::keys::names::INSTALL_NAMESPACE, value_parser = kubeocean_cluster::election::namespace)]
    pub namespace: String,

    /// The DNS domain of the computing cluster
    #[arg(long, value_name = "DOMAIN", env = "KUBERNETES_CLUSTER_DOMAIN", default_value = "cluster.local")]
    pub cluster_domain: String,

    /// Templates of the syncer's objects; built in by default
    #[arg(long, value_name = "DIRECTORY", env = "KUBEOCEAN_SYNCER_TEMPLATE_DIR")]
    pub syncer_template_dir: Option<PathBuf>,

    /// Templates of the proxier's objects; built in by default
    #[arg(long, value_name = "DIRECTORY", env = "KUBEOCEAN_PROXIER_TEMPLATE_DIR")]
    pub proxier_template_dir: Option<PathBuf>,

    /// Elections.
    #[command(flatten)]
    pub election: ElectionArgs,

    /// Most requests per second to the computing cluster; 0 is no limit but the server's own
    #[arg(long, value_name = "RATE", default_value_t = 0.0)]
    pub kube_client_qps: f32,

    /// Most requests to the computing cluster at a time
    #[arg(long, value_name = "REQUESTS", default_value_t = 32)]
    pub kube_client_burst: u32,

    /// Accepted for older manifests: no webhook is served, the rules are part of the CRDs
    #[arg(long, value_name = "ADDRESS", default_value = "0")]
    pub webhook_bind_address: String,

    /// Administration.
    #[command(flatten)]
    pub admin: AdminArgs,

    /// Logs.
    #[command(flatten)]
    pub log: LogArgs,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        manager: ManagerArgs,
    }

    #[test]
    fn the_flags_of_existing_installations_are_understood() {
        let flags = "manager --leader-elect --leader-election-lease-duration 15s --leader-election-renew-deadline=10s \
                     --leader-election-retry-period=2s --metrics-bind-address=:8080 --health-probe-bind-address=:8081 \
                     --kube-client-qps=50 --kube-client-burst=100 --zap-devel --zap-log-level=debug --webhook-bind-address=:9443";
        let args =
            Cli::try_parse_from(flags.split_whitespace()).map_err(|error| error.to_string()).unwrap().manager;
        assert!(args.election.leader_elect);
        assert_eq!(args.election.leader_election_lease_duration, Duration::from_secs(15));
        assert_eq!(args.worker_mode, WorkerMode::Deployment);
        let off = Cli::try_parse_from(["manager", "--leader-elect=false"])
            .map_err(|error| error.to_string())
            .unwrap();
        assert!(!off.manager.election.leader_elect);
    }
}

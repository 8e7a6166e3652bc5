//! The flags of the manager.

use std::path::PathBuf;
use std::time::Duration;

use kubeocean_api::keys::names::MANAGER_LEADER;
use kubeocean_cluster::admin::AdminArgs;
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
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE", default_value = kubeocean_api::keys::names::INSTALL_NAMESPACE, value_parser = namespace)]
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

/// Who of several managers writes.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Leader election")]
pub struct ElectionArgs {
    /// Let several managers agree on one that writes
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub leader_elect: bool,

    /// Name of the Lease that they agree on
    #[arg(long, value_name = "NAME", default_value = MANAGER_LEADER)]
    pub leader_election_id: String,

    /// Namespace of that Lease; the manager's own by default
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_election_namespace: Option<String>,

    /// How long others wait before they take over
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub leader_election_lease_duration: Duration,

    /// How long a leader leads without renewing
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub leader_election_renew_deadline: Duration,

    /// How often it is tried
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub leader_election_retry_period: Duration,
}

/// An empty one would mean all of them.
fn namespace(text: &str) -> Result<String, String> {
    if kubeocean_model::naming::is_dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is not the name of a namespace, such as kubeocean-system"))
    }
}

/// As Go writes them: `15s`, `1m30s`, `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err("a duration such as 15s or 1m30s".to_owned());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 =
            rest[..digits].parse().map_err(|_| format!("`{text}` is not a duration such as 15s"))?;
        rest = &rest[digits..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let seconds = match &rest[..unit_end] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return Err(format!("`{text}` is not a duration such as 15s: units are h, m, s, ms")),
        };
        rest = &rest[unit_end..];
        let part =
            Duration::try_from_secs_f64(number * seconds).map_err(|_| format!("`{text}` is too long"))?;
        total = total.checked_add(part).ok_or_else(|| format!("`{text}` is too long"))?;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (text, expected) in
            [("15s", 15_000), ("1m30s", 90_000), ("500ms", 500), ("1h", 3_600_000), ("1.5s", 1500)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(expected)), "{text}");
        }
        for text in ["", "15", "s", "1x", "-1s", "99999999999999999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}

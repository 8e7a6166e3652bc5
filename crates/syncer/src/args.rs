//! The flags of a syncer.

use std::path::PathBuf;
use std::time::Duration;

use kubeocean_api::keys::names::INSTALL_NAMESPACE;
use kubeocean_cluster::admin::AdminArgs;
use kubeocean_cluster::election::{ElectionArgs, duration, namespace};
use kubeocean_cluster::telemetry::LogArgs;
use kubeocean_model::intranet::{self, Intranet, Place};

/// What virtual nodes are like, for whoever runs a syncer.
#[derive(Clone, Debug, clap::Args)]
pub struct NodeArgs {
    /// How often the Leases of virtual nodes are renewed, 1s to 15s; the computing cluster takes a node for lost after 50 s
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = renew_interval)]
    pub lease_renew_interval: Duration,

    /// How long before the forced end of a window nothing new is let in; at most half of the window
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub closing_notice: Duration,

    /// Annotations of the worker's nodes that virtual nodes get, separated by commas; none by default
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    pub node_annotations: Vec<String>,

    /// Pods.
    #[command(flatten)]
    pub pods: PodArgs,
}

/// What pods in worker clusters are told of the computing cluster.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PodArgs {
    /// Where pods in worker clusters reach the API server of the computing cluster, HOST[:PORT]; without it, the address of the `LoadBalancer`
    /// Service default/kubernetes-intranet
    #[arg(long, value_name = "PLACE", value_parser = intranet::api_server)]
    pub computing_apiserver: Option<Place>,

    /// Addresses at which pods in worker clusters reach the DNS of the computing cluster, separated by commas; without it, that of the
    /// `LoadBalancer` Service kube-system/kube-dns-intranet
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', value_parser = intranet::dns_server)]
    pub computing_dns: Vec<String>,

    /// Only pods of these namespaces run in worker clusters, separated by commas; what others have is not read. All by default
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = namespace)]
    pub namespaces: Vec<String>,
}

impl PodArgs {
    /// What was given by hand.
    pub fn intranet(&self) -> Intranet {
        Intranet { api_server: self.computing_apiserver.clone(), dns: self.computing_dns.clone() }
    }
}

/// The computing cluster takes a node for lost after fifty seconds. A leader that dies leaves Leases that are up to 1.1 intervals old; the next one
/// leads some 17 s later, and is through with all of them within one interval more: 15 s leave it a second and a half.
const LONGEST_INTERVAL: Duration = Duration::from_secs(15);

/// Who renews all the time does nothing else.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

fn renew_interval(text: &str) -> Result<Duration, String> {
    let every = duration(text)?;
    if every < SHORTEST_INTERVAL || every > LONGEST_INTERVAL {
        let longest = LONGEST_INTERVAL.as_secs();
        return Err(format!(
            "choose an interval from 1s to {longest}s: nodes that wait longer are lost when a leader dies"
        ));
    }
    Ok(every)
}

/// How a syncer is run.
#[derive(Clone, Debug, clap::Args)]
pub struct SyncerArgs {
    /// The `ClusterBinding` that it works for
    #[arg(long, value_name = "NAME", env = "CLUSTER_BINDING_NAME")]
    pub cluster_binding_name: String,

    /// The kubeconfig of the computing cluster; without it, the service account of the pod
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,

    /// The namespace that Kubeocean is installed in
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE", default_value = INSTALL_NAMESPACE, value_parser = namespace)]
    pub namespace: String,

    /// Virtual nodes.
    #[command(flatten)]
    pub nodes: NodeArgs,

    /// Elections.
    #[command(flatten)]
    pub election: ElectionArgs,

    /// Most requests per second to the computing cluster; 0 is no limit but the server's own
    #[arg(long, value_name = "RATE", default_value_t = 0.0)]
    pub virtual_client_qps: f32,

    /// Most requests to the computing cluster at a time
    #[arg(long, value_name = "REQUESTS", default_value_t = 64)]
    pub virtual_client_burst: u32,

    /// Most requests per second to the worker cluster; 0 is no limit but the server's own
    #[arg(long, value_name = "RATE", default_value_t = 0.0)]
    pub physical_client_qps: f32,

    /// Most requests to the worker cluster at a time
    #[arg(long, value_name = "REQUESTS", default_value_t = 64)]
    pub physical_client_burst: u32,

    /// Administration.
    #[command(flatten)]
    pub admin: AdminArgs,

    /// Logs.
    #[command(flatten)]
    pub log: LogArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_in_which_every_node_would_be_lost_is_refused_with_the_bounds() {
        for (text, is_fine) in [
            ("1s", true),
            ("10s", true),
            ("15s", true),
            ("0s", false),
            ("500ms", false),
            ("16s", false),
            ("1h", false),
        ] {
            let read = renew_interval(text);
            assert_eq!(read.is_ok(), is_fine, "{text}");
            assert!(read.is_ok() || read.is_err_and(|why| why.contains("from 1s to 15s")));
        }
    }
}

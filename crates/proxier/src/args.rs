//! The flags of a proxier.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use kubeocean_api::keys::names::INSTALL_NAMESPACE;
use kubeocean_cluster::admin::AdminArgs;
use kubeocean_cluster::election::{duration, namespace};
use kubeocean_cluster::telemetry::LogArgs;

/// How virtual nodes are answered for, by whoever does it.
#[derive(Clone, Debug, clap::Args)]
pub struct AnswerArgs {
    /// The port on which calls to pods of all virtual nodes are taken, beside one port per virtual node; 0 is none
    #[arg(long, value_name = "PORT", default_value_t = 10250)]
    pub listen_port: u16,

    /// The address at which the computing cluster's API server reaches this process; without it, the one from which this process reaches it
    #[arg(long, value_name = "ADDRESS", env = "POD_IP", value_parser = address)]
    pub advertise_address: Option<IpAddr>,

    /// The authorities of callers' certificates, as PEM; without it, those of `ConfigMap` kube-system/extension-apiserver-authentication
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// The authorities of the certificates of the worker cluster's kubelets, as PEM; without it, that of its kubeconfig
    #[arg(long, value_name = "FILE")]
    pub physical_kubelet_ca: Option<PathBuf>,

    /// A Secret of type kubernetes.io/tls with the certificate to show; without it, one is asked for from the computing cluster
    #[arg(long, value_name = "NAME")]
    pub tls_secret_name: Option<String>,

    /// The namespace of that Secret; without it, the one that Kubeocean is installed in
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace)]
    pub tls_secret_namespace: Option<String>,

    /// Ask kubelets of the worker cluster although nobody has signed their certificates; a token is not shown to such a one
    #[arg(long, conflicts_with = "physical_kubelet_ca")]
    pub physical_kubelet_insecure: bool,

    /// Whether it is told what pods use
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub metrics_enabled: bool,

    /// How long what a node of the worker cluster said of its pods is told to others who ask, up to 10s
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = collect_interval)]
    pub metrics_collect_interval: Duration,

    /// It is told of pods of this namespace of the computing cluster only; of all by default
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace)]
    pub metrics_target_namespace: Option<String>,
}

/// metrics-server looks every ten seconds at the most, and takes rates between two looks: it must not see one twice.
const LONGEST_INTERVAL: Duration = Duration::from_secs(10);

fn collect_interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        interval if interval > LONGEST_INTERVAL => {
            Err("choose 10s or less: metrics-server would take the same figures for new ones".to_owned())
        }
        interval => Ok(interval),
    }
}

fn address(text: &str) -> Result<IpAddr, String> {
    match text.parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() || address.is_multicast() => {
            Err(format!("{text} is nobody's address: name the one that others reach this process at"))
        }
        Ok(address) => Ok(address),
        Err(_) => Err(format!("{text:?} is no address: use 10.0.0.1 or fd00::1, without a port")),
    }
}

/// How a proxier is run.
#[derive(Clone, Debug, clap::Args)]
pub struct ProxierArgs {
    /// The `ClusterBinding` that it answers for
    #[arg(long, value_name = "NAME", env = "CLUSTER_BINDING_NAME")]
    pub cluster_binding_name: String,

    /// The kubeconfig of the computing cluster; without it, the service account of the pod
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,

    /// The namespace that Kubeocean is installed in
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE", default_value = INSTALL_NAMESPACE, value_parser = namespace)]
    pub namespace: String,

    /// Answers.
    #[command(flatten)]
    pub answers: AnswerArgs,

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
    fn an_address_that_nobody_can_call_is_refused() {
        for (text, is_fine) in [
            ("10.0.0.1", true),
            ("fd00::1", true),
            ("127.0.0.1", true),
            ("0.0.0.0", false),
            ("::", false),
            ("224.0.0.1", false),
            ("10.0.0.1:10250", false),
            ("node-1", false),
        ] {
            assert_eq!(address(text).is_ok(), is_fine, "{text}");
        }
    }
}

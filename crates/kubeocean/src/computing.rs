//! The computing cluster, as commands reach it: with the operator's own kubeconfig, as kubectl does.

use std::path::PathBuf;
use std::time::Duration;

use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::credentials::{CredentialError, Credentials};
use kubeocean_cluster::metrics::Metrics;
use kubeocean_model::key::Virtual;

/// Who is asking and writing: in user agents, field managers and the audit log.
pub(crate) const CLI: &str = "kubeocean-cli";

/// Someone waits for the answer. A server that takes longer than this for a small question is in trouble.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "The computing cluster")]
pub(crate) struct ComputingArgs {
    /// Its kubeconfig; found as kubectl finds it where none is given
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context; the current one where none is given
    #[arg(long)]
    context: Option<String>,
}

/// The computing cluster, and its address for people.
pub(crate) struct Computing {
    pub(crate) virt: Cluster<Virtual>,
    pub(crate) server: String,
}

impl ComputingArgs {
    /// Nothing is dialled yet.
    pub(crate) async fn connect(&self) -> Result<Computing, CredentialError> {
        let credentials =
            Credentials::of_operator(self.kubeconfig.as_deref(), self.context.as_deref()).await?;
        let server = credentials.server();
        let virt = Cluster::connect(credentials, settings("computing", ANSWER_WITHIN))?;
        Ok(Computing { virt, server })
    }
}

/// How a command speaks to a cluster.
pub(crate) fn settings(name: &str, deadline: Duration) -> Settings {
    Settings { deadline, ..Settings::new(name, CLI, &Metrics::new("cli")) }
}

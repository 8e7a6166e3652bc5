//! `kubeocean sandbox`: real clusters on this machine.

mod build;
mod doctor;
mod down;
mod show;
pub(crate) mod up;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;

use crate::cli::Output;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a sandbox: a computing cluster and worker clusters
    Up(up::Args),
    /// Show one sandbox: clusters, nodes, programs, memory
    Status {
        /// The sandbox
        #[arg(default_value = "dev")]
        name: String,
        /// Machine-readable output
        #[arg(short, long)]
        output: Option<Output>,
    },
    /// End a sandbox and remove all of it
    Down {
        /// The sandbox
        #[arg(default_value = "dev")]
        name: String,
    },
    /// List the sandboxes that are up; remove what dead ones left
    List {
        /// Only this one
        name: Option<String>,
        /// Machine-readable output
        #[arg(short, long)]
        output: Option<Output>,
    },
    /// Print a kubeconfig of a sandbox
    #[command(after_help = "Examples:
  export KUBECONFIG=$(kubeocean sandbox kubeconfig dev --merge --path)
  kubectl --kubeconfig <(kubeocean sandbox kubeconfig dev worker-1) get nodes")]
    Kubeconfig {
        /// The sandbox
        name: String,
        /// The cluster: computing, worker-1, …
        #[arg(default_value = kubeocean_sandbox::COMPUTING)]
        cluster: String,
        /// Print the file's path instead of its content
        #[arg(long)]
        path: bool,
        /// One file with one context per cluster
        #[arg(long, conflicts_with = "cluster")]
        merge: bool,
    },
    /// Run kubectl, of the clusters' own version, on a cluster of a sandbox
    #[command(after_help = "Example:\n  kubeocean sandbox kubectl dev worker-1 get pods -A")]
    Kubectl {
        /// The sandbox
        name: String,
        /// The cluster: computing, worker-1, …
        cluster: String,
        /// What kubectl is to do
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },
    /// Print the log of a program
    Logs {
        /// The sandbox
        name: String,
        /// The cluster
        cluster: String,
        /// The program: kube-apiserver, real-1.kubelet, …; without it, their names are printed
        program: Option<String>,
        /// Print the file's path instead of its content
        #[arg(long)]
        path: bool,
    },
    /// Say what this machine can do, and what it lacks
    Doctor {
        /// Machine-readable output
        #[arg(short, long)]
        output: Option<Output>,
    },
    /// Build the Kubernetes programs that sandboxes run, once
    Build(build::Args),
}

pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Up(args) => up::run(args).await,
        Command::Status { name, output } => show::status(&name, output).await,
        Command::Down { name } => down::run(&name).await,
        Command::List { name, output } => show::list(name.as_deref(), output),
        Command::Kubeconfig { name, cluster, path, merge } => {
            show::kubeconfig(&name, (!merge).then_some(cluster.as_str()), path)
        }
        Command::Kubectl { name, cluster, arguments } => show::kubectl(&name, &cluster, &arguments),
        Command::Logs { name, cluster, program, path } => {
            show::logs(&name, &cluster, program.as_deref(), path)
        }
        Command::Doctor { output } => doctor::run(output),
        Command::Build(args) => build::run(args).await,
    }
}

/// Prints a file, or where it is.
fn print_file(file: &PathBuf, path_only: bool) -> anyhow::Result<()> {
    use anyhow::Context as _;
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    if path_only {
        writeln!(out, "{}", file.display())?;
    } else {
        let mut source = std::fs::File::open(file).with_context(|| format!("opening {}", file.display()))?;
        std::io::copy(&mut source, &mut out)?;
    }
    Ok(())
}

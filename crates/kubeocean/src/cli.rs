//! The command line, and who answers it.

use std::io::Write as _;
use std::time::Duration;

use clap::{CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::{bind, crds, demo, exit, inline, sandbox, unbind, worker_kubeconfig, worker_manifest};

/// One computing cluster from the idle capacity of many.
#[derive(Debug, Parser)]
#[command(name = "kubeocean", version = VERSION, after_help = exit::TABLE, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("KUBEOCEAN_COMMIT"), ")");

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the custom resource definitions, as `kubectl apply -f -` takes them
    Crds(crds::Args),
    /// Print what a worker cluster's owner applies to lend its nodes
    WorkerManifest(worker_manifest::Args),
    /// Print the kubeconfig by which a borrower reaches a worker cluster
    WorkerKubeconfig(worker_kubeconfig::Args),
    /// Bring worker clusters in: runs in the computing cluster, one at a time leads
    Manager(Box<inline::Managing>),
    /// Make the leased nodes of one worker cluster virtual nodes: runs in the computing cluster, one per worker cluster
    Syncer(Box<kubeocean_syncer::args::SyncerArgs>),
    /// Answer as the kubelets of one worker cluster's virtual nodes: runs in the computing cluster, one or more per worker cluster
    Proxier(Box<kubeocean_proxier::args::ProxierArgs>),
    /// Bring a worker cluster into the computing cluster
    Bind(Box<bind::Args>),
    /// Let a worker cluster go
    Unbind(unbind::Args),
    /// Run real Kubernetes clusters on this machine, without containers around them
    #[command(subcommand)]
    Sandbox(sandbox::Command),
    /// Show what Kubeocean does, on real clusters on this machine
    Demo(demo::Args),
    /// Print a completion script for your shell
    #[command(after_help = "Example:\n  source <(kubeocean completions bash)")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// How a list is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// Names only, one per line
    Name,
}

pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Crds(args) => crds::run(&args),
        Command::WorkerManifest(args) => worker_manifest::run(args),
        Command::WorkerKubeconfig(args) => runtime()?.block_on(worker_kubeconfig::run(args)),
        Command::Manager(args) => workers()?.block_on(inline::run(*args)),
        Command::Syncer(args) => Ok(workers()?.block_on(kubeocean_syncer::run::run(*args))?),
        Command::Proxier(args) => Ok(workers()?.block_on(kubeocean_proxier::run::run(*args))?),
        Command::Bind(args) => runtime()?.block_on(bind::run(&args)),
        Command::Unbind(args) => runtime()?.block_on(unbind::run(&args)),
        Command::Sandbox(command) => runtime()?.block_on(sandbox::run(command)),
        Command::Demo(args) => runtime()?.block_on(demo::run(args)),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "kubeocean", &mut script);
            Ok(std::io::stdout().write_all(&script)?)
        }
    }
}

/// For components that serve many at once.
fn workers() -> std::io::Result<tokio::runtime::Runtime> {
    kubeocean_cluster::process::may_open_all();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

/// A whole number of seconds, minutes or hours.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let unit = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3600,
        _ => 0,
    };
    let number = text.get(..text.len().saturating_sub(1)).and_then(|number| number.parse::<u32>().ok());
    match number {
        Some(number) if unit > 0 && number > 0 => Ok(Duration::from_secs(u64::from(number) * unit)),
        _ => Err("use a duration such as 90s, 30m or 8h".to_owned()),
    }
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_are_plain_durations() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("8h"), Ok(Duration::from_secs(8 * 3600)));
        for bad in ["", "s", "0m", "5", "-1s", "1.5h", "10ä"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_version_names_the_commit() {
        assert!(VERSION.contains("(commit "), "{VERSION}");
    }
}

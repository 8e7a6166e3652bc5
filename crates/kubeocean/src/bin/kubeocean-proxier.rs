//! `kubeocean-proxier`: the same as `kubeocean proxier`, for images and scripts that know it by this name.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

/// Answers as the kubelets of one worker cluster's virtual nodes: logs, exec, port-forward, metrics
#[derive(Debug, Parser)]
#[command(name = "kubeocean-proxier", version)]
struct Cli {
    #[command(flatten)]
    args: kubeocean_proxier::args::ProxierArgs,
}

fn run(args: kubeocean_proxier::args::ProxierArgs) -> anyhow::Result<()> {
    kubeocean_cluster::process::may_open_all();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    Ok(runtime.block_on(kubeocean_proxier::run::run(args))?)
}

fn main() -> ExitCode {
    let Cli { args } = Cli::parse();
    let Err(error) = run(args) else { return ExitCode::SUCCESS };
    drop(writeln!(std::io::stderr(), "error: {error:#}"));
    ExitCode::FAILURE
}

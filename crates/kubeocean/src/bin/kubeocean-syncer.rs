//! `kubeocean-syncer`: the same as `kubeocean syncer`, for images and scripts that know it by this name.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

/// Makes the leased nodes of one worker cluster virtual nodes of the computing cluster
#[derive(Debug, Parser)]
#[command(name = "kubeocean-syncer", version)]
struct Cli {
    #[command(flatten)]
    args: kubeocean_syncer::args::SyncerArgs,
}

fn run(args: kubeocean_syncer::args::SyncerArgs) -> anyhow::Result<()> {
    kubeocean_cluster::process::may_open_all();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    Ok(runtime.block_on(kubeocean_syncer::run::run(args))?)
}

fn main() -> ExitCode {
    let Cli { args } = Cli::parse();
    let Err(error) = run(args) else { return ExitCode::SUCCESS };
    drop(writeln!(std::io::stderr(), "error: {error:#}"));
    ExitCode::FAILURE
}

//! `kubeocean-manager`: the same as `kubeocean manager`, for images and scripts that know it by this name.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

#[path = "../inline.rs"]
mod inline;

/// Brings worker clusters in, keeps them healthy, and lets them go
#[derive(Debug, Parser)]
#[command(name = "kubeocean-manager", version)]
struct Cli {
    #[command(flatten)]
    args: inline::Managing,
}

fn run(args: inline::Managing) -> anyhow::Result<()> {
    kubeocean_cluster::process::may_open_all();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(inline::run(args))
}

fn main() -> ExitCode {
    let Cli { args } = Cli::parse();
    let Err(error) = run(args) else { return ExitCode::SUCCESS };
    drop(writeln!(std::io::stderr(), "error: {error:#}"));
    ExitCode::FAILURE
}

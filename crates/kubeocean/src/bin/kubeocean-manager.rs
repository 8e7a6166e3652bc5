//! `kubeocean-manager`: the same as `kubeocean manager`, for images and scripts that know it by this name.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

/// Brings worker clusters in, keeps them healthy, and lets them go
#[derive(Debug, Parser)]
#[command(name = "kubeocean-manager", version)]
struct Cli {
    #[command(flatten)]
    args: kubeocean_manager::args::ManagerArgs,
}

fn run(args: kubeocean_manager::args::ManagerArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    Ok(runtime.block_on(kubeocean_manager::run::run(args, BTreeMap::new()))?)
}

fn main() -> ExitCode {
    let Cli { args } = Cli::parse();
    let Err(error) = run(args) else { return ExitCode::SUCCESS };
    drop(writeln!(std::io::stderr(), "error: {error:#}"));
    ExitCode::FAILURE
}

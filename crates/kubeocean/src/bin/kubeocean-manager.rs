//! `kubeocean-manager`: the same as `kubeocean manager`, for images and scripts that know it by this name.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Parser;

/// Brings worker clusters in, keeps them healthy, and lets them go
#[derive(Debug, Parser)]
#[command(name = "kubeocean-manager", version)]
struct Cli {
    #[command(flatten)]
    args: kubeocean_manager::args::ManagerArgs,
}

fn main() -> ExitCode {
    let Cli { args } = Cli::parse();
    let run = || -> Result<(), Box<dyn std::error::Error>> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        Ok(runtime.block_on(kubeocean_manager::run::run(args, BTreeMap::new()))?)
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write as _;
            let mut message = error.to_string();
            let mut cause = error.source();
            while let Some(inner) = cause {
                message = format!("{message}: {inner}");
                cause = inner.source();
            }
            drop(writeln!(std::io::stderr(), "error: {message}"));
            ExitCode::FAILURE
        }
    }
}

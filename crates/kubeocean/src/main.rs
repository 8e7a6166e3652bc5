//! `kubeocean`: one computing cluster from the idle capacity of many.

mod bind;
mod cli;
mod computing;
mod crds;
mod demo;
mod exit;
mod inline;
mod interrupt;
mod sandbox;
mod terminal;
mod unbind;
mod worker_kubeconfig;
mod worker_manifest;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let command = match cli::Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return exit::usage(&error),
    };
    exit::report(cli::run(command))
}

//! `kubeocean sandbox build`.

use std::io::Write as _;

use kubeocean_sandbox::Error;
use kubeocean_sandbox::lab::{self, Program};

use crate::exit::Interrupted;
use crate::interrupt::Interrupt;
use crate::terminal::ProgressLines;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which programs; all of them if none is named
    #[arg(value_parser = program, value_name = "PROGRAM")]
    programs: Vec<Program>,
    /// Kubernetes minor, as in 1.36
    #[arg(long, value_name = "MINOR")]
    kubernetes: Option<String>,
    /// Only say what would be built
    #[arg(long)]
    dry_run: bool,
}

fn program(name: &str) -> Result<Program, String> {
    Program::from_name(name).ok_or_else(|| {
        let known: Vec<_> = Program::ALL.iter().map(|program| program.name()).collect();
        format!("the lab knows {}", known.join(", "))
    })
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let Args { programs, kubernetes, dry_run } = args;
    let programs = if programs.is_empty() { Program::ALL.to_vec() } else { programs };
    let release = lab::release(kubernetes.as_deref()).map_err(Error::from)?;
    if dry_run {
        return print_plan(&lab::plan(release, &programs, true).map_err(Error::from)?);
    }
    let mut lines = ProgressLines::new();
    if let Some(why) = lab::remove_corrupt(release, &programs).map_err(Error::from)? {
        lines.line(&format!("  {why}: it was removed and is built anew"));
    }
    let mut show = |event: lab::BuildEvent<'_>| lines.build(&event);
    tokio::select! {
        built = lab::ensure(release, &programs, &mut show) => built.map_err(Error::from)?,
        () = interrupt.wait() => return Err(Interrupted.into()),
    };
    print_plan(&lab::plan(release, &programs, false).map_err(Error::from)?)
}

fn print_plan(plan: &lab::BuildPlan) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for (program, found) in &plan.present {
        writeln!(out, "{:<24} {} ({})", program.name(), found.path.display(), found.origin)?;
    }
    for rejected in &plan.rejected {
        writeln!(out, "{:<24} {} {}", "not used:", rejected.path.display(), rejected.why)?;
    }
    for (program, version) in &plan.missing {
        writeln!(out, "{:<24} would be built: {version}", program.name())?;
    }
    Ok(())
}

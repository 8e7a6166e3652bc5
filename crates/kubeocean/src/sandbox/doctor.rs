//! `kubeocean sandbox doctor`.

use std::io::Write as _;

use kubeocean_sandbox::doctor::{Check, Need, PACKAGES, examine};

use crate::cli::Output;
use crate::exit::Silent;

pub(crate) fn run(output: Option<Output>) -> anyhow::Result<()> {
    let checks = examine()?;
    let lacks = |need: Need| checks.iter().any(|check| check.needed_for == need && check.problem.is_some());
    let mut out = std::io::stdout().lock();
    match output {
        Some(Output::Json) => writeln!(out, "{}", serde_json::to_string_pretty(&checks)?)?,
        Some(Output::Yaml) => write!(out, "{}", serde_saphyr::to_string(&checks)?)?,
        Some(Output::Name) => {
            for check in checks.iter().filter(|check| check.problem.is_some()) {
                writeln!(out, "{}", check.what)?;
            }
        }
        None => {
            for check in &checks {
                writeln!(out, "{}", line(check))?;
            }
            writeln!(out)?;
            writeln!(out, "{} sandboxes with simulated nodes", mark(!lacks(Need::Sandbox)))?;
            let real = !lacks(Need::Sandbox) && !lacks(Need::RealNodes);
            writeln!(out, "{} sandboxes with real nodes", mark(real))?;
            if !real {
                writeln!(out, "  As root: apt-get install -y --no-install-recommends {PACKAGES}")?;
            }
        }
    }
    // Real nodes are a luxury; a machine without them is well.
    if lacks(Need::Sandbox) { Err(Silent(5).into()) } else { Ok(()) }
}

fn line(check: &Check) -> String {
    match &check.problem {
        None => format!("✓ {:<28} {}", check.what, check.found),
        Some(problem) => format!("✗ {:<28} {problem}", check.what),
    }
}

fn mark(good: bool) -> char {
    if good { '✓' } else { '✗' }
}

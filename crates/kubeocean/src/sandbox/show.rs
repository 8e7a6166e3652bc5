//! What is up: `status`, `list`, `kubeconfig`, `logs`.

use std::ffi::OsString;
use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use kubeocean_sandbox::registry;
use kubeocean_sandbox::state::{ClusterState, Phase, SandboxState};
use serde::Serialize;

use crate::cli::Output;
use crate::terminal::{mebibytes, note, table};

/// A paused API server answers nothing: status must not wait for it.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// What `status` and `list` print for scripts.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    #[serde(flatten)]
    state: SandboxState,
    resident_ki_b: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    health: Vec<Health>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Health {
    cluster: String,
    ready: bool,
    message: String,
    dead_programs: Vec<String>,
}

fn find(name: &str) -> anyhow::Result<SandboxState> {
    let entry = registry::find(name)?;
    entry.state.with_context(|| format!("sandbox {name} is only just starting: try again in a moment"))
}

fn resident(cluster: &ClusterState) -> u64 {
    cluster.programs.iter().map(kubeocean_sandbox::state::ProgramState::resident_kib).sum()
}

async fn health(state: &SandboxState, cluster: &ClusterState) -> Health {
    let dead = cluster.programs.iter().filter(|program| !program.process.is_alive());
    let answer = tokio::time::timeout(ANSWER_WITHIN, readyz(state, cluster)).await;
    let (ready, message) = match answer {
        Ok(Ok(())) => (true, "ok".to_owned()),
        Ok(Err(error)) => (false, format!("{error:#}")),
        Err(_) => (false, format!("no answer within {} s", ANSWER_WITHIN.as_secs())),
    };
    Health {
        cluster: cluster.name.clone(),
        ready,
        message,
        dead_programs: dead.map(|p| p.name.clone()).collect(),
    }
}

async fn readyz(state: &SandboxState, cluster: &ClusterState) -> anyhow::Result<()> {
    let client = state.client(&cluster.name).await?;
    client.request_text(http::Request::get("/readyz").body(Vec::new())?).await?;
    Ok(())
}

pub(crate) async fn status(name: &str, output: Option<Output>) -> anyhow::Result<()> {
    let state = find(name)?;
    let health =
        futures::future::join_all(state.clusters.iter().map(|cluster| health(&state, cluster))).await;
    let total = state.clusters.iter().map(resident).sum();
    let well = health.iter().all(|cluster| cluster.ready && cluster.dead_programs.is_empty());
    let verdict = if well { Ok(()) } else { Err(crate::exit::Silent(1).into()) };
    if let Some(output) = output {
        print(output, &[Report { resident_ki_b: total, health, state }], true)?;
        return verdict;
    }
    let rows: Vec<_> = state
        .clusters
        .iter()
        .zip(&health)
        .map(|(cluster, health)| {
            vec![
                cluster.name.clone(),
                cluster.server.clone(),
                if health.ready { "yes".into() } else { format!("no: {}", health.message) },
                cluster.real_nodes.len().to_string(),
                cluster.sim_nodes.len().to_string(),
                cluster.programs.len().to_string(),
                mebibytes(resident(cluster)),
            ]
        })
        .collect();
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "Sandbox {name}: {}, Kubernetes {}, since {}, {} resident\n",
        phase(state.phase),
        state.kubernetes,
        state.started_at,
        mebibytes(total)
    )?;
    writeln!(
        out,
        "{}",
        table(&["CLUSTER", "SERVER", "READY", "REAL NODES", "SIM NODES", "PROGRAMS", "MEMORY"], &rows)
    )?;
    for health in health.iter().filter(|health| !health.dead_programs.is_empty()) {
        writeln!(out, "\n{}: not running: {}", health.cluster, health.dead_programs.join(", "))?;
        for program in &health.dead_programs {
            writeln!(out, "  kubeocean sandbox logs {name} {} {program}", health.cluster)?;
        }
    }
    verdict
}

pub(crate) fn list(only: Option<&str>, output: Option<Output>) -> anyhow::Result<()> {
    let mut entries = match only {
        Some(name) => vec![registry::find(name)?],
        None => registry::list()?,
    };
    for entry in &entries {
        if let Some(problem) = &entry.problem {
            note(&format!("{}: dead, and what it left cannot be removed: {problem}", entry.name));
        }
    }
    entries.retain(|entry| entry.problem.is_none());
    let states: Vec<_> = entries.into_iter().filter_map(|entry| entry.state).collect();
    if let Some(output) = output {
        let reports: Vec<_> = states
            .into_iter()
            .map(|state| Report {
                resident_ki_b: state.clusters.iter().map(resident).sum(),
                health: Vec::new(),
                state,
            })
            .collect();
        return print(output, &reports, false);
    }
    if states.is_empty() {
        note("No sandbox is up. `kubeocean sandbox up` starts one.");
        return Ok(());
    }
    let rows: Vec<_> = states
        .iter()
        .map(|state| {
            vec![
                state.name.clone(),
                phase(state.phase).to_owned(),
                state.kubernetes.clone(),
                state.clusters.iter().map(|cluster| cluster.name.as_str()).collect::<Vec<_>>().join(","),
                mebibytes(state.clusters.iter().map(resident).sum()),
                state.started_at.clone(),
            ]
        })
        .collect();
    let header = ["NAME", "PHASE", "KUBERNETES", "CLUSTERS", "MEMORY", "SINCE"];
    writeln!(std::io::stdout(), "{}", table(&header, &rows))?;
    Ok(())
}

pub(crate) fn kubeconfig(name: &str, cluster: Option<&str>, path_only: bool) -> anyhow::Result<()> {
    let state = find(name)?;
    let file = state.kubeconfig(cluster)?;
    if !file.exists() {
        anyhow::bail!("sandbox {name} is still starting: its kubeconfigs are complete when it is ready");
    }
    super::print_file(&file, path_only)
}

/// Becomes kubectl: its output, its input and its exit code are the caller's.
pub(crate) fn kubectl(name: &str, cluster: &str, arguments: &[OsString]) -> anyhow::Result<()> {
    use std::os::unix::process::CommandExt as _;
    let state = find(name)?;
    let kubeconfig = state.kubeconfig(Some(cluster))?;
    let program = state.kubectl.context("the sandbox is still starting: try again in a moment")?;
    let failure =
        std::process::Command::new(&program).arg("--kubeconfig").arg(kubeconfig).args(arguments).exec();
    Err(failure).with_context(|| format!("starting {}", program.display()))
}

pub(crate) fn logs(name: &str, cluster: &str, program: Option<&str>, path_only: bool) -> anyhow::Result<()> {
    let state = find(name)?;
    let cluster = state.cluster(cluster)?;
    if let Some(program) = program {
        return super::print_file(&cluster.program(program)?.log, path_only);
    }
    let mut out = std::io::stdout().lock();
    for program in &cluster.programs {
        writeln!(out, "{}", program.name)?;
    }
    Ok(())
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Ready => "ready",
    }
}

/// `single`: the thing itself instead of a list of one.
fn print(output: Output, reports: &[Report], single: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let value = match reports {
        [one] if single => serde_json::to_value(one)?,
        many => serde_json::to_value(many)?,
    };
    match output {
        Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(&value)?)?,
        Output::Yaml => write!(out, "{}", serde_saphyr::to_string(&value)?)?,
        Output::Name => {
            for report in reports {
                writeln!(out, "{}", report.state.name)?;
            }
        }
    }
    Ok(())
}

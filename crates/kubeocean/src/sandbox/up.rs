//! `kubeocean sandbox up`, in the foreground or left behind.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use kubeocean_sandbox::{Error, NodeSize, Sandbox, Spec, registry};

use crate::exit::Interrupted;
use crate::interrupt::Interrupt;
use crate::terminal::{ProgressLines, note};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  kubeocean sandbox up                           2 workers with 3 simulated nodes each
  kubeocean sandbox up --real-nodes 1 --detach   and a real node in each worker (root)
  kubeocean sandbox up big --workers 1 --sim-nodes 500")]
pub(crate) struct Args {
    /// The name of the sandbox
    #[arg(default_value = "dev")]
    name: String,
    /// How many worker clusters
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Simulated nodes per worker cluster
    #[arg(long, default_value_t = 3)]
    sim_nodes: usize,
    /// Real nodes per worker cluster: kubelet, containerd, runc; needs root
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=8))]
    real_nodes: u8,
    /// Simulated nodes in the computing cluster
    #[arg(long, default_value_t = 0)]
    computing_sim_nodes: usize,
    /// Real nodes in the computing cluster
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=8))]
    computing_real_nodes: u8,
    /// Processors of a simulated node
    #[arg(long, default_value = "8", value_parser = quantity)]
    node_cpu: String,
    /// Memory of a simulated node
    #[arg(long, default_value = "32Gi", value_parser = quantity)]
    node_memory: String,
    /// Pods of a simulated node
    #[arg(long, default_value = "110", value_parser = quantity)]
    node_pods: String,
    /// Import an image archive (OCI or docker) into every real node; may be repeated
    #[arg(long, value_name = "FILE")]
    image: Vec<PathBuf>,
    /// Kubernetes minor, as in 1.36
    #[arg(long, value_name = "MINOR")]
    kubernetes: Option<String>,
    /// Let each API server write an audit log: audit.log beside its other logs (`kubeocean sandbox logs --path`)
    #[arg(long)]
    audit: bool,
    /// API servers try this port and the following ones first; without real nodes only
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..=65000))]
    api_port: Option<u16>,
    /// Return when it is ready, and leave it running
    #[arg(long)]
    detach: bool,
    /// End by itself after this long, as in 90s, 30m or 8h
    #[arg(long, value_name = "DURATION", value_parser = crate::cli::duration)]
    ttl: Option<Duration>,
    /// We are the process that stays behind
    #[arg(long, hide = true, conflicts_with = "detach")]
    stay_behind: bool,
}

/// A plain quantity, as far as a command line needs it: digits, maybe a point, maybe a suffix.
fn quantity(text: &str) -> Result<String, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = &text[number.len()..];
    let valid_number = !number.is_empty() && number.parse::<f64>().is_ok_and(|value| value >= 0.0);
    let valid_suffix = ["", "m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi"].contains(&suffix);
    if valid_number && valid_suffix {
        Ok(text.to_owned())
    } else {
        Err("use a quantity such as 8, 500m or 32Gi".to_owned())
    }
}

impl Args {
    fn spec(&self) -> Spec {
        let mut spec = Spec::new()
            .named(&self.name)
            .kubernetes(self.kubernetes.clone())
            .workers(self.workers, self.sim_nodes, self.real_nodes.into())
            .computing_nodes(self.computing_sim_nodes, self.computing_real_nodes.into())
            .sim_node_size(NodeSize {
                cpu: self.node_cpu.clone(),
                memory: self.node_memory.clone(),
                pods: self.node_pods.clone(),
            })
            .audit(self.audit)
            .first_api_port(self.api_port);
        for image in &self.image {
            spec = spec.image(image);
        }
        spec
    }
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    if args.detach {
        return detach(&args, &interrupt).await;
    }
    let sandbox = start(args.spec(), &interrupt).await?;
    let outcome = stay(&args, &sandbox, &interrupt).await;
    if !args.stay_behind {
        note(&format!("\nEnding {} …", args.name));
    }
    sandbox.stop().await?;
    outcome
}

/// Says that it is up, and waits until it is not wanted any more.
async fn stay(args: &Args, sandbox: &Sandbox, interrupt: &Interrupt) -> anyhow::Result<()> {
    if args.stay_behind {
        // Whoever started us waits for this word, and for the end of our standard output.
        writeln!(std::io::stdout(), "{READY}")?;
        become_silent(sandbox.directory())?;
    } else {
        summary(&args.name)?;
        note("\nRunning. Ctrl-C ends it and removes everything.");
    }
    until_end(sandbox, args.ttl, interrupt).await
}

/// Starts a sandbox with progress on standard error. An interrupt meanwhile ends it again.
pub(crate) async fn start(spec: Spec, interrupt: &Interrupt) -> anyhow::Result<Sandbox> {
    let mut lines = ProgressLines::new();
    let report = Box::new(move |progress: kubeocean_sandbox::Progress<'_>| lines.show(&progress));
    match Sandbox::start_with(spec, report, interrupt.wait()).await {
        Err(Error::GivenUp) => Err(Interrupted.into()),
        other => Ok(other?),
    }
}

/// Waits for a signal or the end of its time, and says so when a program dies meanwhile.
async fn until_end(sandbox: &Sandbox, ttl: Option<Duration>, interrupt: &Interrupt) -> anyhow::Result<()> {
    let time_is_up = async {
        match ttl {
            Some(ttl) => tokio::time::sleep(ttl).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(time_is_up);
    let mut told = Vec::new();
    loop {
        tokio::select! {
            () = interrupt.wait() => return Ok(()),
            () = &mut time_is_up => return Ok(()),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
        for death in sandbox.died().await? {
            if !told.contains(&death) {
                note(&death);
                told.push(death);
            }
        }
    }
}

fn summary(name: &str) -> anyhow::Result<()> {
    let entry = registry::find(name)?;
    let state = entry.state.context("the sandbox has not written its state")?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nSandbox {name} is up (Kubernetes {}):", state.kubernetes)?;
    for cluster in &state.clusters {
        let nodes: Vec<_> = cluster.real_nodes.iter().chain(&cluster.sim_nodes).map(String::as_str).collect();
        let nodes = match nodes.as_slice() {
            [] => "no nodes".to_owned(),
            some if some.len() > 6 => format!("{} nodes", some.len()),
            some => some.join(", "),
        };
        writeln!(out, "  {:<10} {}   {nodes}", cluster.name, cluster.server)?;
    }
    writeln!(out, "\nTry:\n  export KUBECONFIG={}", state.kubeconfig(None)?.display())?;
    writeln!(out, "  kubectl config get-contexts")?;
    if let Some(worker) = state.clusters.get(1) {
        writeln!(out, "  kubectl --context {} get nodes", worker.name)?;
    }
    writeln!(out, "  kubeocean sandbox status {name}")?;
    Ok(())
}

/// What the process that stays behind says to the one that started it.
const READY: &str = "ready";

/// Starts ourselves again in a session of our own, and returns when that one is ready.
async fn detach(args: &Args, interrupt: &Interrupt) -> anyhow::Result<()> {
    let myself = std::env::current_exe().context("finding our own executable")?;
    let arguments = std::env::args_os().skip(1).filter(|argument| argument != "--detach");
    let mut child = Command::new("setsid")
        .arg(myself)
        .args(arguments)
        .arg("--stay-behind")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting setsid (Debian package util-linux)")?;
    let mut output = child.stdout.take().context("reading from the detached process")?;
    let said = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        // What cannot be read is not the word that we wait for.
        let _ = output.read_to_string(&mut text);
        text
    });
    let interrupted = tokio::select! {
        said = said => {
            if said?.contains(READY) {
                summary(&args.name)?;
                writeln!(std::io::stdout(), "  kubeocean sandbox down {}", args.name)?;
                return Ok(());
            }
            false
        }
        () = interrupt.wait() => true,
    };
    // It failed and has said why; or it is not wanted any more.
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    match status.code() {
        Some(_) if interrupted => Err(crate::exit::Silent(130).into()),
        Some(code) => Err(crate::exit::Silent(u8::try_from(code).unwrap_or(1)).into()),
        None => bail!("the detached process was killed while it started {}", args.name),
    }
}

/// From now on we write to a file in the sandbox's directory.
fn become_silent(directory: &Path) -> anyhow::Result<()> {
    let path = directory.join("supervisor.log");
    let log = std::fs::File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    rustix::stdio::dup2_stderr(&log)?;
    rustix::stdio::dup2_stdout(&log)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_plain_quantities() {
        for good in ["8", "500m", "32Gi", "1.5", "0"] {
            assert!(quantity(good).is_ok(), "{good}");
        }
        for bad in ["", "Gi", "8x", "-1", "8 Gi", "inf"] {
            assert!(quantity(bad).is_err(), "{bad}");
        }
    }
}

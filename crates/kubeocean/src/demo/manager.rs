//! The demo's manager: this very program, as a child that ends with the demo.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use kubeocean_api::keys::names::INSTALL_NAMESPACE;
use kubeocean_sandbox::Cluster;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// A manager ends within seconds; a demo does not wait longer.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Of its log, when something went wrong.
const LAST_LINES: usize = 5;

pub(super) struct Manager {
    child: Child,
    log: PathBuf,
}

impl Manager {
    /// Starts it. It writes its log beside those of the sandbox, and goes when this thread does, however that ends.
    pub(super) fn start(computing: &Cluster, directory: &Path) -> anyhow::Result<Self> {
        let log = directory.join("manager.log");
        let file = std::fs::File::create(&log).with_context(|| format!("writing {}", log.display()))?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "TERM"])
            .arg(std::env::current_exe().context("finding our own executable")?)
            .args(["manager", "--worker-mode=inline", "--leader-elect", "--log-format=pretty"])
            .args(["--metrics-bind-address=0", "--health-probe-bind-address=0"])
            .args(["--namespace", INSTALL_NAMESPACE, "--kubeconfig"])
            .arg(computing.kubeconfig_path())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .kill_on_drop(true);
        let child =
            command.spawn().context("starting setpriv (Debian package util-linux) for the manager")?;
        Ok(Self { child, log })
    }

    /// What it said last.
    pub(super) fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }

    /// Asks it to end, and insists if it does not.
    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        let pid = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(pid) = pid {
            kill_process(pid, Signal::TERM).context("ending the manager")?;
        }
        if tokio::time::timeout(ENDS_WITHIN, self.child.wait()).await.is_err() {
            self.child.kill().await.context("killing the manager")?;
        }
        Ok(())
    }
}

//! `kubeocean sandbox down`.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::bail;
use kubeocean_sandbox::registry;
use rustix::process::{Pid, Signal, kill_process};

use crate::terminal::seconds;

/// It takes about a second. After this long the supervisor is killed, and its janitor does the rest.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn run(name: &str) -> anyhow::Result<()> {
    let started = Instant::now();
    let entry = registry::find(name)?;
    let supervisor = entry.supervisor;
    for (signal, patience) in [(Signal::TERM, PATIENCE), (Signal::KILL, PATIENCE)] {
        if let Some(supervisor) = supervisor.filter(|supervisor| supervisor.is_alive())
            && let Some(pid) = i32::try_from(supervisor.pid).ok().and_then(Pid::from_raw)
        {
            // Gone between the look and the signal: just what we want.
            let _ = kill_process(pid, signal);
            // One that is stopped would not hear it.
            let _ = kill_process(pid, Signal::CONT);
        }
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if supervisor.is_none_or(|supervisor| !supervisor.is_alive()) {
                // Its janitor is at work, or is gone too: then we are the one who finds it stale.
                registry::list()?;
            }
            if registry::has_ended(&entry.directory) {
                writeln!(std::io::stdout(), "Sandbox {name} is down ({}).", seconds(started.elapsed()))?;
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    bail!("{} is still there: see which of its processes do not end", entry.directory.display())
}

//! Child processes that can be stopped, killed, paused and started again, and that die with us.
//!
//! `setpriv --pdeathsig KILL` makes the kernel kill a child when the *thread* that forked it ends. So
//! everything here must run on the one thread that lives as long as its sandbox (see `supervisor`).
//!
//! Deliberately absent: what the programs are. A [`Launch`] is a command line and a log file.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::process::Command;
use tokio::sync::watch;

use crate::error::{Error, io_error};

/// What is needed to start a program, and to start it again.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    /// The cluster it belongs to.
    pub(crate) cluster: String,
    /// Its name in messages and files: `kube-apiserver`, `real-1.kubelet`.
    pub(crate) name: String,
    pub(crate) command: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) log: PathBuf,
    /// The command is a wrapper that forks the program proper, which is the one to signal.
    pub(crate) wrapped: bool,
}

/// What a program is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Exited(ExitStatus),
}

/// A program that was started at least once.
#[derive(Debug)]
pub(crate) struct Process {
    launch: Launch,
    pid: Pid,
    pidfd: OwnedFd,
    state: watch::Receiver<State>,
    /// Stopped or killed on request: its exit is no accident.
    pub(crate) expected_down: bool,
}

impl Process {
    pub(crate) fn start(launch: Launch) -> Result<Self, Error> {
        let log = open_log(&launch.log)?;
        let errors = log.try_clone().map_err(io_error("opening", &launch.log))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).args(&launch.command);
        let mut child = command
            .envs(launch.env.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            // Ctrl-C on our terminal is for us: we end them, in our order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(io_error("starting setpriv (Debian package util-linux) for", Path::new(&launch.name)))?;
        let pid = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
            .ok_or_else(|| Error::Vanished { program: launch.name.clone() })?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())
            .map_err(|errno| io_error("watching", Path::new(&launch.name))(errno.into()))?;
        let (sender, state) = watch::channel(State::Running);
        tokio::spawn(async move {
            if let Ok(status) = child.wait().await {
                // Nobody listens any more: the sandbox is gone, and so is the reason to tell.
                let _ = sender.send(State::Exited(status));
            }
        });
        Ok(Self { launch, pid, pidfd, state, expected_down: false })
    }

    pub(crate) fn launch(&self) -> &Launch {
        &self.launch
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    pub(crate) fn state(&self) -> State {
        *self.state.borrow()
    }

    /// The process id of the program proper.
    pub(crate) fn program_pid(&self) -> u32 {
        if self.launch.wrapped { child_of(self.pid()).unwrap_or(self.pid()) } else { self.pid() }
    }

    /// Completes when the process has ended.
    pub(crate) fn exited(&self) -> impl Future<Output = Option<ExitStatus>> + use<> {
        let mut state = self.state.clone();
        async move {
            loop {
                if let State::Exited(status) = *state.borrow_and_update() {
                    return Some(status);
                }
                if state.changed().await.is_err() {
                    return None;
                }
            }
        }
    }

    /// Sends `signal` to the program. One that has ended already takes no harm from it.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.launch.wrapped
            && let Some(inner) = child_of(self.pid())
            && let Some(pid) = i32::try_from(inner).ok().and_then(Pid::from_raw)
            && let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty())
        {
            let _ = pidfd_send_signal(&pidfd, signal);
            return;
        }
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    /// Asks the program to end, and insists after `patience`.
    pub(crate) async fn stop(&self, patience: Duration) {
        self.signal(Signal::TERM);
        // A paused program would not hear the request.
        self.signal(Signal::CONT);
        if tokio::time::timeout(patience, self.exited()).await.is_err() {
            self.kill().await;
        }
    }

    pub(crate) async fn kill(&self) {
        self.signal(Signal::KILL);
        if self.launch.wrapped {
            // The wrapper outlives its child by a moment; one that lost it must not stay.
            let _ = tokio::time::timeout(Duration::from_secs(1), self.exited()).await;
            let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        }
        self.exited().await;
    }

    /// The error that tells someone why this program is not running.
    pub(crate) fn death(&self) -> Error {
        let status = match self.state() {
            State::Exited(status) => status.to_string(),
            State::Running => "it still runs".to_owned(),
        };
        Error::ProgramDied {
            cluster: self.launch.cluster.clone(),
            program: self.launch.name.clone(),
            status,
            log: self.launch.log.display().to_string(),
            tail: last_lines(&self.launch.log, 8),
        }
    }
}

fn open_log(path: &Path) -> Result<File, Error> {
    OpenOptions::new().create(true).append(true).open(path).map_err(io_error("opening", path))
}

/// When a process was started, in clock ticks since boot: with it, a process id is unique.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    stat_field(pid, 22)?.parse().ok()
}

/// Whether `pid`, started at `start`, still runs.
pub(crate) fn is_alive(pid: u32, start: u64) -> bool {
    start_time(pid) == Some(start) && stat_field(pid, 3).is_some_and(|state| state != "Z")
}

/// Field `number` of `/proc/<pid>/stat`, counted from 1 as in proc(5). The second, the name, may hold
/// spaces and parentheses: fields are counted from the last closing one.
fn stat_field(pid: u32, number: usize) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = &text[text.rfind(')')? + 1..];
    after_name.split_ascii_whitespace().nth(number.checked_sub(3)?).map(str::to_owned)
}

/// The first child of a process. `/proc/<pid>/task/*/children` needs a kernel option that not all have.
pub(crate) fn child_of(parent: u32) -> Option<u32> {
    let parent = parent.to_string();
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        (stat_field(pid, 4)? == parent).then_some(pid)
    })
}

/// Memory in use by a process, in KiB.
pub(crate) fn resident_kib(pid: u32) -> u64 {
    let read = || -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
        line.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    read().unwrap_or(0)
}

/// The last `count` lines of a file; what cannot be read is told instead.
pub(crate) fn last_lines(path: &Path, count: usize) -> String {
    // Kubernetes programs print their usage after an error: long lines, many of them.
    const WINDOW: u64 = 64 * 1024;
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(WINDOW)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    match read() {
        Ok(text) => {
            let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            if lines.is_empty() {
                return "  | (it wrote nothing)".to_owned();
            }
            let shown = lines[lines.len().saturating_sub(count)..].iter();
            shown
                .map(|line| format!("  | {}", line.chars().take(400).collect::<String>()))
                .collect::<Vec<_>>()
                .join("\n")
        }
        Err(error) => format!("  | (no log: {error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_process_is_alive_and_started_once() {
        let pid = std::process::id();
        let start = start_time(pid).expect("we run");
        assert!(is_alive(pid, start));
        assert!(!is_alive(pid, start + 1), "another process of the same number is not us");
    }

    #[test]
    fn the_end_of_a_log_is_shown_without_empty_lines() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = dir.path().join("log");
        fs::write(&log, "one\ntwo\n\nthree\n").expect("writable");
        assert_eq!(last_lines(&log, 2), "  | two\n  | three");
        assert!(last_lines(&dir.path().join("none"), 2).contains("no log"));
    }
}

//! `kubeocean manager`, or another component, as a process of its own: started, hurt, and listened to.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{eventually, read};

/// The target of the lines that tell of writes.
const AUDIT: &str = "audit";

pub(crate) struct Manager {
    child: Child,
    log: PathBuf,
}

impl Manager {
    /// Starts one. The kernel ends it with the thread that calls; `name` is what it is called in its hold and by its log.
    pub(crate) fn start(directory: &Path, kubeconfig: &Path, name: &str, flags: &[&str]) -> Self {
        Self::start_as("manager", directory, kubeconfig, name, flags)
    }

    /// The same, of another component.
    pub(crate) fn start_as(
        component: &str,
        directory: &Path,
        kubeconfig: &Path,
        name: &str,
        flags: &[&str],
    ) -> Self {
        let log = directory.join(format!("{name}.log"));
        let file = File::create(&log).unwrap();
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_kubeocean"), component])
            // The same address for both is one listener.
            .args(["--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(flags)
            .env("HOSTNAME", name)
            .env_remove("POD_NAME")
            .env_remove("POD_NAMESPACE")
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file);
        Self { child: command.spawn().unwrap(), log }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Asks it to end (SIGTERM), and waits until it has.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        eventually("the end of the manager", || self.child.try_wait().unwrap().ok_or("it runs"))
    }

    /// Everything that it has said.
    pub(crate) fn said(&self) -> String {
        read(&self.log)
    }

    /// The lines of its log that are whole.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.said().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// What it wrote to API servers, or tried to.
    pub(crate) fn writes(&self) -> Vec<Value> {
        self.lines().into_iter().filter(|line| line["target"] == AUDIT).collect()
    }

    /// Whether its own words say that it leads.
    pub(crate) fn leads(&self) -> bool {
        let mut changes = self.lines().into_iter().filter(|line| line["message"] == "leadership changed");
        changes.next_back().is_some_and(|line| line["leads"] == true)
    }

    /// What it answers to who asks it over HTTP.
    pub(crate) fn ask(&self, path: &str) -> Result<(u16, String), String> {
        let started = self.lines().into_iter().find(|line| line["message"] == "starting");
        let address = started.ok_or("it has not started")?["metrics"].as_str().unwrap_or_default().to_owned();
        let address: SocketAddr = address.parse().map_err(|_| format!("{address:?} is no address"))?;
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            write!(stream, "GET {path} HTTP/1.1\r\nhost: manager\r\nconnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = ask().map_err(|error| error.to_string())?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("half an answer")?;
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or("no code")?;
        Ok((code, body.to_owned()))
    }

    /// The sum of all series of a metric whose labels contain these words.
    pub(crate) fn metric(&self, name: &str, words: &str) -> f64 {
        let (_, text) = eventually("metrics", || self.ask("/metrics"));
        let of = |line: &&str| line.starts_with(name) && line.contains(words);
        let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
        text.lines().filter(of).filter_map(value).sum()
    }

    /// A line of `/proc/PID/status` that counts kilobytes.
    pub(crate) fn memory(&self, line: &str) -> u64 {
        let status = read(Path::new(&format!("/proc/{}/status", self.child.id())));
        let found = status.lines().find_map(|known| known.strip_prefix(line)?.strip_prefix(':'));
        found.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or_default()
    }
}

impl Drop for Manager {
    /// SIGKILL, at once.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

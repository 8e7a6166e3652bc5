//! A component as a process of its own: what it costs, and what it asked of API servers.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::BINDING;

/// Verbs that change nothing.
const READS: [&str; 3] = ["get", "list", "watch"];

pub(crate) struct Component {
    child: Child,
    metrics: SocketAddr,
}

impl Component {
    /// As it is deployed. The kernel ends it with the thread that calls.
    pub(crate) fn start(name: &str, directory: &Path, kubeconfig: &Path, flags: &[&str]) -> Self {
        let file = File::create(directory.join(format!("{name}.log"))).unwrap();
        // Free a moment ago, and nobody else is asked for it.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let metrics = free.local_addr().unwrap();
        drop(free);
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_kubeocean"), name])
            .args([format!("--metrics-bind-address={metrics}"), "--health-probe-bind-address=0".to_owned()])
            .arg(format!("--cluster-binding-name={BINDING}"))
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(flags)
            .env_remove("POD_IP")
            .env_remove("POD_NAME")
            .env_remove("POD_NAMESPACE")
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, metrics }
    }

    /// Asks it to end, and waits until it has: its hold is given back then.
    pub(crate) async fn stop(mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        while self.child.try_wait().unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).unwrap()
    }

    /// CPU time so far, of user and system, in ticks of ten milliseconds.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = self.file("stat");
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: u32 = fields[11].parse::<u32>().unwrap() + fields[12].parse::<u32>().unwrap();
        f64::from(ticks) / 100.0
    }

    /// A line of its status that counts kilobytes, in MiB.
    pub(crate) fn memory(&self, line: &str) -> f64 {
        let status = self.file("status");
        let found = status.lines().find_map(|known| known.strip_prefix(line)?.strip_prefix(':')).unwrap();
        f64::from(found.split_whitespace().next().unwrap().parse::<u32>().unwrap()) / 1024.0
    }

    /// Requests so far that change something, other than renewals: of Leases, the leader's hold among them.
    pub(crate) async fn writes(&self) -> f64 {
        let text = self.metrics().await;
        let is_read = |line: &str| READS.iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")));
        let written = text.lines().filter(|line| {
            line.starts_with("kubeocean_requests_total")
                && !is_read(line)
                && !line.contains("resource=\"leases\"")
        });
        written.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    async fn metrics(&self) -> String {
        let mut stream = tokio::net::TcpStream::connect(self.metrics).await.unwrap();
        let question = b"GET /metrics HTTP/1.1\r\nhost: component\r\nconnection: close\r\n\r\n";
        stream.write_all(question).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

impl Drop for Component {
    /// SIGKILL, at once, if it still runs.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

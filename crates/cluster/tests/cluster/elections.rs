//! Two processes, one hold.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use kubeocean_cluster::apply::Applier;
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::leader::{Election, Elector};
use kubeocean_model::action::kinds;
use kubeocean_sandbox::COMPUTING;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::support::{computing, connect, eventually, key, settings, shared};

const KUBECONFIG: &str = "KUBEOCEAN_TEST_ELECTION_KUBECONFIG";
const IDENTITY: &str = "KUBEOCEAN_TEST_ELECTION_IDENTITY";

fn election(identity: &str) -> Election {
    Election {
        lease_duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry_period: Duration::from_millis(500),
        ..Election::new("default", "test-hold", identity)
    }
}

/// The same for all processes of this machine.
fn monotonic() -> i128 {
    let now = clock_gettime(ClockId::Monotonic);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

/// Not a test of its own: [`a_stopped_leader_never_leads_beside_its_successor`] runs it as other processes.
/// It prints the time whenever it would write.
#[tokio::test]
#[ignore = "is a process of another test"]
async fn candidate() {
    let kubeconfig = std::fs::read_to_string(std::env::var(KUBECONFIG).unwrap()).unwrap();
    let cluster = connect(&kubeconfig, settings()).await;
    let applier = Applier::new("candidate").virtually(&cluster);
    let election = election(&std::env::var(IDENTITY).unwrap());
    let (elector, leadership) = Elector::new(&cluster, applier, election, &Clock::system()).unwrap();
    let stop = CancellationToken::new();
    let watch = async {
        // Ends when the parent closes our standard input.
        let mut input = BufReader::new(tokio::io::stdin()).lines();
        loop {
            tokio::select! {
                line = input.next_line() => if line.ok().flatten().is_none() { break },
                () = tokio::time::sleep(Duration::from_millis(2)) => {
                    let at = monotonic();
                    if leadership.holds() {
                        println!("lead {at}");
                    }
                }
            }
        }
        stop.cancel();
    };
    tokio::join!(elector.run(stop.clone()), watch);
}

struct Candidate {
    child: Child,
    times: tokio::task::JoinHandle<Vec<i128>>,
    latest: tokio::sync::watch::Receiver<i128>,
}

impl Candidate {
    fn start(kubeconfig: &Path, identity: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "elections::candidate", "--ignored", "--nocapture"])
            .env(KUBECONFIG, kubeconfig)
            .env(IDENTITY, identity)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, latest) = tokio::sync::watch::channel(0);
        let times = tokio::spawn(async move {
            let mut times = Vec::new();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(time) = line.strip_prefix("lead ") {
                    times.push(time.parse().unwrap());
                    sender.send_replace(times[times.len() - 1]);
                }
            }
            times
        });
        Self { child, times, latest }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    async fn leads(&self, since: i128) {
        eventually("a leader", async || (*self.latest.borrow() > since).then_some(())).await;
    }

    /// Lets it end well, and returns when it led.
    async fn end(mut self) -> Vec<i128> {
        drop(self.child.stdin.take());
        assert!(self.child.wait().await.unwrap().success());
        self.times.await.unwrap()
    }
}

#[tokio::test]
async fn a_stopped_leader_never_leads_beside_its_successor() {
    let sandbox = shared().await;
    let kubeconfig = sandbox.cluster(COMPUTING).unwrap().kubeconfig_path().to_owned();
    let first = Candidate::start(&kubeconfig, "first");
    first.leads(0).await;
    let second = Candidate::start(&kubeconfig, "second");
    first.signal(Signal::STOP);
    let stopped = monotonic();
    second.leads(stopped).await;
    first.signal(Signal::CONT);
    let resumed = monotonic();
    // The first one has had its chance to do wrong when it tried twice and the second one still leads.
    second.leads(resumed + 1_500_000_000).await;
    let led_second = second.end().await;
    let (cluster, _) = computing(&sandbox).await;
    let holder = async || {
        let hold = cluster.get(&kinds::LEASE, &key("default", "test-hold")).await.unwrap().unwrap();
        hold.text("spec", &["holderIdentity"])
    };
    assert_ne!(holder().await.as_deref(), Some("second"), "it let go");
    first.leads(monotonic()).await;
    let led_first = first.end().await;
    let (begin, end) = (led_second[0], led_second[led_second.len() - 1]);
    let both = led_first.iter().filter(|time| (begin..=end).contains(time)).count();
    assert_eq!(both, 0, "both led");
    assert!(begin > stopped && led_first.iter().any(|time| *time < begin), "it was handed over");
    assert_eq!(holder().await.as_deref(), Some(""), "the last one let go");
}

//! Elections and Events in front of a simulated API server, where hours take no time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Request;
use jiff::SignedDuration;
use kube::client::Body;
use kubeocean_cluster::apply::Applier;
use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::events::{Recorder, Severity, Subject};
use kubeocean_cluster::leader::{Election, ElectionError, Elector, Leadership};
use kubeocean_cluster::metrics::Metrics;
use kubeocean_model::action::kinds;
use kubeocean_model::key::Virtual;
use kubeocean_testkit::{ApiServer, Options};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use crate::support::config_map;

/// A candidate with its own clock and its own way to the server.
struct Candidate {
    cluster: Cluster<Virtual>,
    leadership: Leadership,
    clock: Clock,
    cut: Arc<AtomicBool>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Candidate {
    fn start(server: &ApiServer, identity: &str) -> Self {
        let cut = Arc::new(AtomicBool::new(false));
        let (service, is_cut) = (server.service(identity), Arc::clone(&cut));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (mut service, is_cut) = (service.clone(), Arc::clone(&is_cut));
            async move {
                if is_cut.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                service.call(request).await
            }
        });
        let metrics = Metrics::new("test");
        let cluster = Cluster::over(
            kube::Client::new(service, "default"),
            Settings::new("virtual", identity, &metrics),
        );
        let clock = Clock::simulated(server.now());
        let applier = Applier::new(identity.to_owned()).virtually(&cluster);
        let election = Election::new("default", "hold", identity);
        let (elector, leadership) = Elector::new(&cluster, applier, election, &clock).unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(elector.run(stop.clone()));
        Self { cluster, leadership, clock, cut, stop, task }
    }

    /// Whether a write of this candidate would go out.
    async fn writes(&self, name: &str) -> &'static str {
        let applier = Applier::new("test").virtually(&self.cluster).while_leading(&self.leadership);
        applier.apply(&config_map("default", name, &serde_json::json!({}))).await.word()
    }
}

async fn after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_before_another_begins() {
    let server = ApiServer::new(Options::default());
    let first = Candidate::start(&server, "first");
    after(1).await;
    let second = Candidate::start(&server, "second");
    after(5).await;
    assert!(first.leadership.holds() && !second.leadership.holds());
    assert_eq!((first.writes("a").await, second.writes("b").await), ("done", "not-leading"));
    first.cut.store(true, Ordering::Relaxed);
    let mut stopped = None;
    for tenth in 0..400_u32 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!(first.leadership.holds() && second.leadership.holds()), "both lead");
        if !first.leadership.holds() && stopped.is_none() {
            stopped = Some(tenth);
        }
        if second.leadership.holds() {
            assert!((80..=105).contains(&stopped.unwrap()), "it stopped {stopped:?} tenths after the cut");
            assert!((130..=200).contains(&tenth), "taken over {tenth} tenths after the cut");
            break;
        }
    }
    assert_eq!(second.writes("c").await, "done");
    first.cut.store(false, Ordering::Relaxed);
    after(60).await;
    assert!(!first.leadership.holds() && second.leadership.holds(), "who comes back does not take over");
    second.stop.cancel();
    second.task.await.unwrap();
    after(3).await;
    assert!(first.leadership.holds(), "a hold that was let go is taken at the next try");
    let hold = server.get("leases", "default", "hold").unwrap();
    assert_eq!(hold["spec"]["leaseTransitions"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_slept_finds_that_it_is_late() {
    let server = ApiServer::new(Options::default());
    let candidate = Candidate::start(&server, "sleeper");
    after(5).await;
    assert!(candidate.leadership.holds());
    // Suspended: the wall clock went on, the monotonic one did not.
    candidate.clock.jump(SignedDuration::from_hours(1));
    assert!(!candidate.leadership.holds());
    assert_eq!(candidate.writes("a").await, "not-leading");
    after(5).await;
    assert!(candidate.leadership.holds(), "nobody else took it");
    candidate.clock.jump(SignedDuration::from_hours(-5));
    after(30).await;
    assert!(candidate.leadership.holds(), "a clock that is set back costs nothing");
}

#[tokio::test(start_paused = true)]
async fn another_clock_on_another_machine_changes_nothing() {
    let server = ApiServer::new(Options::default());
    let first = Candidate::start(&server, "first");
    after(3).await;
    let second = Candidate::start(&server, "second");
    second.clock.jump(SignedDuration::from_hours(24));
    after(300).await;
    assert!(first.leadership.holds() && !second.leadership.holds(), "expiry is judged by observation");
}

#[test]
fn durations_that_do_not_fit_are_refused_with_the_flag() {
    let election = Election::new("default", "hold", "me");
    let cases = [
        (
            Election { renew_deadline: Duration::from_secs(15), ..election.clone() },
            ElectionError::DeadlineTooLong,
        ),
        (Election { retry_period: Duration::from_secs(6), ..election.clone() }, ElectionError::RetryTooSlow),
        (Election { identity: String::new(), ..election.clone() }, ElectionError::NoIdentity),
    ];
    assert_eq!(election.check(), Ok(()));
    for (election, error) in cases {
        assert_eq!(election.check(), Err(error));
    }
}

fn subject(name: &str) -> Subject {
    Subject {
        kind: kinds::POD,
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
    }
}

struct Told {
    server: ApiServer,
    recorder: Recorder,
    task: tokio::task::JoinHandle<()>,
    metrics: Metrics,
}

impl Told {
    fn start() -> Self {
        let server = ApiServer::new(Options::default());
        let metrics = Metrics::new("test");
        let cluster =
            Cluster::<Virtual>::over(server.client("test"), Settings::new("virtual", "test", &metrics));
        let applier = Applier::new("test").virtually(&cluster);
        let clock = Clock::simulated(server.now());
        let (recorder, reporter) = Recorder::new::<Virtual>("kubeocean-test", applier, &clock, &metrics);
        Self { server, recorder, task: tokio::spawn(reporter.run()), metrics }
    }

    async fn events(self) -> (Vec<Arc<Value>>, String) {
        drop(self.recorder);
        self.task.await.unwrap();
        (self.server.list("events", None), self.metrics.encode())
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_sentence_is_one_event_that_counts() {
    let told = Told::start();
    for _ in 0..5 {
        told.recorder.tell(&subject("a"), Severity::Warning, "NotMapped", "it is a DaemonSet pod");
        after(1).await;
    }
    told.recorder.tell(&subject("b"), Severity::Normal, "Mapped", "it runs");
    after(1200).await;
    told.recorder.tell(&subject("a"), Severity::Warning, "NotMapped", "it is a DaemonSet pod");
    let (events, metrics) = told.events().await;
    let counts: Vec<_> = events
        .iter()
        .map(|event| (event["involvedObject"]["name"].as_str().unwrap(), event["count"].as_i64().unwrap()))
        .collect();
    assert_eq!(counts, [("a", 5), ("a", 1), ("b", 1)], "after a long silence it is news again");
    assert_eq!(events[0]["type"], "Warning");
    assert_eq!(events[0]["source"]["component"], "kubeocean-test");
    assert!(metrics.contains(r#"kubeocean_events_total{result="merged"} 4"#), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_talked_about_all_the_time_does_not_flood() {
    let told = Told::start();
    for number in 0..200 {
        told.recorder.tell(&subject("a"), Severity::Warning, "Failed", format!("attempt {number}"));
        after(1).await;
    }
    let (events, metrics) = told.events().await;
    assert_eq!(events.len(), 11, "ten different sentences, and one for all others");
    assert!(
        events
            .iter()
            .any(|event| event["message"].as_str().unwrap().starts_with("(combined from similar events)"))
    );
    assert!(metrics.contains(r#"kubeocean_events_total{result="dropped"} 175"#), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn events_about_nodes_live_in_default_and_long_ones_are_cut() {
    let told = Told::start();
    let node =
        Subject { kind: kinds::NODE, namespace: String::new(), name: "n".repeat(250), uid: "u".to_owned() };
    told.recorder.tell(&node, Severity::Normal, "Leased", "ü".repeat(2000));
    let (events, _) = told.events().await;
    assert_eq!(events[0]["metadata"]["namespace"], "default");
    let message = events[0]["message"].as_str().unwrap();
    assert!(message.len() <= 1024 && message.ends_with("..."));
}

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
use kubeocean_cluster::informer::Informer;
use kubeocean_cluster::leader::{Election, ElectionError, Elector, Leadership};
use kubeocean_cluster::metrics::Metrics;
use kubeocean_cluster::queue::{Queue, QueueKey, Retry};
use kubeocean_cluster::reconcile::{Plan, Reconciler};
use kubeocean_cluster::store::{Index, Store};
use kubeocean_model::action::{Action, Dependents, Verb, kinds};
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::object::Object;
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
    /// The next request gets no answer.
    swallow: Arc<AtomicBool>,
    /// The next write is done, and gets no answer.
    forget: Arc<AtomicBool>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Candidate {
    fn start(server: &ApiServer, identity: &str) -> Self {
        let [cut, swallow, forget] = [false; 3].map(|so| Arc::new(AtomicBool::new(so)));
        let (service, is_cut, swallows) = (server.service(identity), Arc::clone(&cut), Arc::clone(&swallow));
        let forgets = Arc::clone(&forget);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (mut service, is_cut) = (service.clone(), Arc::clone(&is_cut));
            let is_swallowed = swallows.swap(false, Ordering::Relaxed);
            let is_forgotten = request.method() != "GET" && forgets.swap(false, Ordering::Relaxed);
            async move {
                if is_swallowed || is_cut.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                let answer = service.call(request).await;
                if is_forgotten {
                    std::future::pending::<()>().await;
                }
                answer
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
        Self { cluster, leadership, clock, cut, swallow, forget, stop, task }
    }

    /// One that leads.
    async fn leading(server: &ApiServer, identity: &str) -> Self {
        let candidate = Self::start(server, identity);
        candidate.leadership.changes().wait_for(|leads| *leads).await.unwrap();
        candidate
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
    let first = Candidate::leading(&server, "first").await;
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
    let candidate = Candidate::leading(&server, "sleeper").await;
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
    let first = Candidate::leading(&server, "first").await;
    after(3).await;
    let second = Candidate::start(&server, "second");
    second.clock.jump(SignedDuration::from_hours(24));
    after(300).await;
    assert!(first.leadership.holds() && !second.leadership.holds(), "expiry is judged by observation");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_deleted_does_not_make_two_leaders() {
    let server = ApiServer::new(Options::default());
    let first = Candidate::leading(&server, "first").await;
    after(3).await;
    let second = Candidate::start(&server, "second");
    after(4).await;
    for _ in 0..3 {
        delete_hold(&server);
        for _ in 0..300 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(
                first.leadership.holds() && !second.leadership.holds(),
                "it makes its hold again and goes on"
            );
        }
    }
}

fn delete_hold(server: &ApiServer) {
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/hold";
    server.call("someone", "DELETE", path, None, None);
}

#[tokio::test(start_paused = true)]
async fn who_starts_when_the_hold_is_deleted_waits_for_a_leader_that_does_not_know() {
    // From a renewal to the deletion; the next renewal comes after two seconds.
    for moment in [0, 500, 1000, 1500, 1900] {
        for (is_cut, is_slow) in [(true, false), (false, true), (false, false)] {
            let server = ApiServer::new(Options::default());
            let first = Candidate::leading(&server, "first").await;
            first.cut.store(is_cut, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(moment)).await;
            delete_hold(&server);
            first.swallow.store(is_slow, Ordering::Relaxed);
            let fresh = Candidate::start(&server, "fresh");
            for _ in 0..300 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                assert!(!(first.leadership.holds() && fresh.leadership.holds()), "both lead");
            }
            assert!(fresh.leadership.holds(), "the first one is not waited for longer than it may believe");
            first.cut.store(false, Ordering::Relaxed);
            after(30).await;
            assert!(!first.leadership.holds() && fresh.leadership.holds());
            for candidate in [first, fresh] {
                candidate.stop.cancel();
                candidate.task.await.unwrap();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_was_lost_or_that_was_deleted_is_no_lead() {
    let server = ApiServer::new(Options::default());
    let first = Candidate::leading(&server, "first").await;
    first.cut.store(true, Ordering::Relaxed);
    delete_hold(&server);
    let fresh = Candidate::start(&server, "fresh");
    after(9).await;
    // The claim begins anew.
    delete_hold(&server);
    let begun = tokio::time::Instant::now();
    fresh.leadership.changes().wait_for(|leads| *leads).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(10), "{:?}", begun.elapsed());

    let server = ApiServer::new(Options::default());
    let begun = tokio::time::Instant::now();
    let deaf = Candidate::start(&server, "deaf");
    deaf.forget.store(true, Ordering::Relaxed);
    deaf.leadership.changes().wait_for(|leads| *leads).await.unwrap();
    assert!(!deaf.forget.load(Ordering::Relaxed), "an answer was lost");
    assert!(begun.elapsed() >= Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn one_answer_that_never_comes_does_not_cost_the_lead() {
    let server = ApiServer::new(Options::default());
    let candidate = Candidate::leading(&server, "only").await;
    after(3).await;
    for _ in 0..3 {
        candidate.swallow.store(true, Ordering::Relaxed);
        for _ in 0..300 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(candidate.leadership.holds());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_of_long_ago_that_comes_back_with_a_restored_etcd_makes_no_second_leader() {
    let server = ApiServer::new(Options::default());
    let first = Candidate::leading(&server, "first").await;
    after(5).await;
    let then = server.revision();
    let second = Candidate::start(&server, "second");
    first.cut.store(true, Ordering::Relaxed);
    after(60).await;
    first.cut.store(false, Ordering::Relaxed);
    after(5).await;
    assert!(!first.leadership.holds() && second.leadership.holds());
    server.restore(then);
    // It says that the first one leads, who does not; the second one has not heard of that yet.
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!(first.leadership.holds() && second.leadership.holds()), "both lead");
    }
    assert!(first.leadership.holds() || second.leadership.holds(), "someone leads in the end");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waited_too_long_for_its_turn_is_not_sent() {
    let server = ApiServer::new(Options::default());
    let candidate = Candidate::leading(&server, "leader").await;
    after(3).await;
    let mut settings = Settings::new("virtual", "test", &Metrics::new("test"));
    settings.calls_at_a_time = 1;
    let (service, slow) = (server.service("test"), Arc::new(AtomicBool::new(true)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (mut service, slow) = (service.clone(), Arc::clone(&slow));
        async move {
            if slow.swap(false, Ordering::Relaxed) {
                after(25).await;
            }
            service.call(request).await
        }
    });
    let cluster = Cluster::<Virtual>::over(kube::Client::new(service, "default"), settings);
    let applier = Applier::new("test").virtually(&cluster).while_leading(&candidate.leadership);
    let (first, second) = (
        config_map("default", "first", &serde_json::json!({})),
        config_map("default", "second", &serde_json::json!({})),
    );
    let lost = async {
        after(1).await;
        candidate.cut.store(true, Ordering::Relaxed);
    };
    let (first, second, ()) = tokio::join!(applier.apply(&first), applier.apply(&second), lost);
    assert_eq!((first.word(), second.word()), ("done", "not-leading"), "the lead was lost while it waited");
    assert!(server.get("configmaps", "default", "second").is_none());
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
        (Election { retry_period: Duration::ZERO, ..election.clone() }, ElectionError::TooShort),
        (Election { identity: String::new(), ..election.clone() }, ElectionError::NoIdentity),
        (
            Election { lease_duration: Duration::from_secs(3601), ..election.clone() },
            ElectionError::TooLong { flag: "--leader-election-lease-duration" },
        ),
        (
            Election { renew_deadline: Duration::MAX, ..election.clone() },
            ElectionError::TooLong { flag: "--leader-election-renew-deadline" },
        ),
        (
            Election { retry_period: Duration::MAX, ..election.clone() },
            ElectionError::TooLong { flag: "--leader-election-retry-period" },
        ),
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
async fn what_has_to_be_told_for_certain_is_written_before_one_goes_on() {
    let told = Told::start();
    for number in 0..40 {
        told.recorder.tell(&subject("a"), Severity::Warning, "Failed", format!("attempt {number}"));
    }
    let about = subject("a");
    let certain = |message: &'static str| {
        told.recorder.tell_for_certain(&about, Severity::Warning, "ForceUnbound", message)
    };
    assert!(certain("two pods stay").await, "whatever was said before");
    let written = |server: &ApiServer| {
        server.list("events", None).iter().any(|event| event["message"] == "two pods stay")
    };
    assert!(written(&told.server));
    told.server.forbid("test", "create", "", "events");
    assert!(certain("three pods stay").await, "nobody is held up by a server that will never take it");
    told.task.abort();
    assert!(!certain("four pods stay").await, "nobody writes any more");
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

static ALL: Index<Object> = Index::new("all", |_| vec![String::new()]);

fn names(store: &Store<Virtual, Object>) -> Vec<String> {
    store.by(&ALL, "").iter().map(|object| object.meta.name.to_string()).collect()
}

/// Two servers that count differently: what one holds must never be taken for the other's.
fn two_servers() -> (ApiServer, ApiServer) {
    let (old, new) = (ApiServer::new(Options::default()), ApiServer::new(Options::default()));
    let make = |server: &ApiServer, name: &str| {
        let body = serde_json::json!({"metadata": {"name": name, "labels": {"app": "x"}}});
        server.call(
            "test",
            "POST",
            "/api/v1/namespaces/default/configmaps",
            Some("application/json"),
            Some(body),
        );
    };
    make(&old, "old");
    for number in 0..20 {
        make(&new, &format!("new-{number:02}"));
    }
    (old, new)
}

#[tokio::test(start_paused = true)]
async fn whenever_a_connection_is_replaced_the_store_is_compared_with_a_list() {
    for moment in ["watching", "resting", "paused", "asking"] {
        let (old, new) = two_servers();
        let broken = Arc::new(AtomicBool::new(false));
        let (service, is_broken) = (old.service("test"), Arc::clone(&broken));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (mut service, is_broken) = (service.clone(), Arc::clone(&is_broken));
            async move {
                if is_broken.load(Ordering::Relaxed) {
                    if moment == "asking" {
                        // Nothing is heard of it any more.
                        std::future::pending::<()>().await;
                    }
                    Err("broken".into())
                } else {
                    service.call(request).await
                }
            }
        });
        let cluster = Cluster::<Virtual>::over(
            kube::Client::new(service, "default"),
            Settings::new("virtual", "test", &Metrics::new("test")),
        );
        let (informer, switch) =
            Informer::of(&cluster, kinds::CONFIG_MAP).labels("app").indexed_by(&ALL).build();
        let store = informer.store();
        let task = tokio::spawn(informer.run());
        after(1).await;
        assert_eq!(names(&store), ["old"], "{moment}");
        match moment {
            "resting" => {
                broken.store(true, Ordering::Relaxed);
                old.drop_watches();
                after(60).await;
            }
            "asking" => {
                broken.store(true, Ordering::Relaxed);
                old.drop_watches();
                after(2).await;
            }
            "paused" => switch.pause(),
            _ => {}
        }
        after(1).await;
        cluster.replace_over(&new.client("test"));
        after(1).await;
        switch.resume();
        after(2).await;
        assert_eq!(names(&store).len(), 20, "{moment}: {:?}", names(&store));
        task.abort();
    }
}

/// The value of a series.
fn shown(metrics: &Metrics, series: &str) -> Option<f64> {
    let all = metrics.encode();
    let line = all.lines().find(|line| line.starts_with(series))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[tokio::test(start_paused = true)]
async fn what_waits_and_what_is_silent_is_shown_with_its_age() {
    let server = ApiServer::new(Options::default());
    let metrics = Metrics::new("test");
    let cluster = Cluster::<Virtual>::over(server.client("test"), Settings::new("virtual", "test", &metrics));
    let (informer, _switch) = Informer::<Virtual, Object>::of(&cluster, kinds::CONFIG_MAP).build();
    let watching = tokio::spawn(informer.run());
    let queue = Queue::<String>::new("q", Retry::default(), &metrics);
    for key in ["a", "b", "c"] {
        queue.add(key.to_owned());
    }
    let working = queue.clone();
    let working = tokio::spawn(async move { working.run(1, |_| std::future::pending()).await });
    after(30).await;
    assert_eq!(shown(&metrics, r#"kubeocean_queue_depth{queue="q""#), Some(2.0), "one is being worked on");
    assert_eq!(shown(&metrics, r#"kubeocean_queue_oldest_seconds{queue="q"}"#), Some(30.0));
    let age = shown(&metrics, r#"kubeocean_watch_age_seconds{cluster="virtual",resource="configmaps"}"#);
    assert!(age.is_some_and(|age| age <= 30.0), "{age:?}");
    server.drop_watches();
    working.abort();
    watching.abort();
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_that_a_proxy_ends_is_no_trouble() {
    let server = ApiServer::new(Options { bookmark_every: Duration::from_secs(3600), ..Options::default() });
    let cluster = Cluster::<Virtual>::over(
        server.client("test"),
        Settings::new("virtual", "test", &Metrics::new("test")),
    );
    let (informer, _switch) =
        Informer::of(&cluster, kinds::CONFIG_MAP).labels("app").indexed_by(&ALL).build();
    let store = informer.store();
    let task = tokio::spawn(informer.run());
    let mut blind = 0;
    for _ in 0..600 {
        after(1).await;
        blind += u32::from(store.progress().trouble().is_some());
    }
    assert_eq!(blind, 0);
    for _ in 0..20 {
        after(30).await;
        server.drop_watches();
        after(1).await;
        blind += u32::from(store.progress().trouble().is_some());
    }
    assert!(
        blind <= 2,
        "without an event in all that time, {blind} of 20 times it was still in trouble a second later"
    );
    task.abort();
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Only;

impl QueueKey for Only {}

#[tokio::test(start_paused = true)]
async fn an_evicted_pod_is_looked_at_again_when_it_is_seen_to_end() {
    let server = ApiServer::new(Options::default());
    let metrics = Metrics::new("test");
    let cluster = Cluster::<Virtual>::over(server.client("test"), Settings::new("virtual", "test", &metrics));
    let pod = serde_json::json!({"metadata": {"name": "a", "finalizers": ["example.com/ours"]},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    let (code, _) =
        server.call("test", "POST", "/api/v1/namespaces/default/pods", Some("application/json"), Some(pod));
    assert_eq!(code, 201);
    let (informer, _switch) = Informer::<Virtual, Object>::of(&cluster, kinds::POD).build();
    let store = informer.store();
    let task = tokio::spawn(informer.run());
    store.progress().synced().await;
    let queue = Queue::new("test", Retry::default(), &metrics);
    let clock = Clock::simulated(server.now());
    let reconciler = Reconciler::new(queue.clone(), Applier::new("test").virtually(&cluster), &clock)
        .following(kinds::POD, &store);
    let looks = parking_lot::Mutex::new(Vec::new());
    queue.add(Only);
    let plan = |_: &Only, _| {
        let pod = store.get(&Key::new("default", "a"));
        let deleting = pod.as_ref().is_some_and(|pod| pod.meta.is_deleting());
        looks.lock().push(deleting);
        let evict = Action::new(
            kinds::POD,
            &Key::<Virtual>::new("default", "a"),
            Verb::Evict { grace: Some(30) },
            "the test",
        );
        if deleting { Plan::rest() } else { Plan::of(vec![evict]) }
    };
    drop(tokio::time::timeout(Duration::from_secs(5), reconciler.run(1, plan)).await);
    assert_eq!(*looks.lock(), [false, true], "not again before it was seen, and not only when it is gone");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_restored_etcd_that_caught_up_is_noticed_by_what_a_write_is_told() {
    let server = ApiServer::new(Options::default());
    let metrics = Metrics::new("test");
    let cluster = Cluster::<Virtual>::over(server.client("test"), Settings::new("virtual", "test", &metrics));
    let make = |name: &str| {
        let body = serde_json::json!({"metadata": {"name": name}});
        let path = "/api/v1/namespaces/default/configmaps";
        assert_eq!(server.call("test", "POST", path, Some("application/json"), Some(body)).0, 201);
    };
    make("kept");
    let backup = server.revision();
    make("lost");
    let (informer, switch) =
        Informer::<Virtual, Object>::of(&cluster, kinds::CONFIG_MAP).indexed_by(&ALL).build();
    let store = informer.store();
    let task = tokio::spawn(informer.run());
    store.progress().synced().await;
    after(90).await;
    // Nobody watches while it happens, and when they do again, the server counts as high as before.
    switch.pause();
    after(1).await;
    server.restore(backup);
    for n in 0..5 {
        make(&format!("new-{n}"));
    }
    switch.resume();
    after(90).await;
    assert!(names(&store).contains(&"lost".to_owned()), "no watch can tell: {:?}", names(&store));
    let applier = Applier::new("test").virtually(&cluster).following(kinds::CONFIG_MAP, &store);
    let verb = Verb::Delete { grace: None, dependents: Dependents::default() };
    let delete = Action::new(kinds::CONFIG_MAP, &Key::<Virtual>::new("default", "lost"), verb, "the test");
    assert_eq!(applier.apply(&delete).await.word(), "gone");
    after(30).await;
    assert!(!names(&store).contains(&"lost".to_owned()), "{:?}", names(&store));
    task.abort();
}

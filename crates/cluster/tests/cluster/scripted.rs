//! What no real server does on demand: answers from a script, under paused time.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use kubeocean_cluster::apply::Applier;
use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::informer::Informer;
use kubeocean_cluster::metrics::Metrics;
use kubeocean_cluster::telemetry::{Environment, LogArgs, Telemetry};
use kubeocean_model::action::kinds;
use kubeocean_model::key::Virtual;
use kubeocean_model::object::Object;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{config_map, delete, key};

/// Answers in order; the last one is repeated. Remembers what it was asked.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    asked: Arc<Mutex<Vec<(Instant, String, String)>>>,
}

#[derive(Clone)]
enum Answer {
    Say(u16, &'static [(&'static str, &'static str)], Value),
    Lines(Vec<Value>),
    Page(&'static str),
    Nothing,
}

impl Script {
    fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.into_iter().collect())), ..Self::default() }
    }

    fn cluster(&self, metrics: &Metrics) -> Cluster<Virtual> {
        let script = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let agent = request.headers()["user-agent"].to_str().unwrap().to_owned();
            script.asked.lock().push((Instant::now(), request.uri().to_string(), agent));
            let mut answers = script.answers.lock();
            let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
            async move {
                let (code, headers, body): (u16, &[(&str, &str)], Body) =
                    match answer.unwrap_or(Answer::Nothing) {
                        Answer::Say(code, headers, body) => {
                            (code, headers, Body::from(body.to_string().into_bytes()))
                        }
                        Answer::Lines(lines) => {
                            let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
                            let text = lines.join("\n") + "\n";
                            (200, &[], Body::from(text.into_bytes()))
                        }
                        Answer::Page(text) => (200, &[], Body::from(text.as_bytes().to_vec())),
                        Answer::Nothing => std::future::pending().await,
                    };
                let mut response = Response::new(body);
                *response.status_mut() = StatusCode::from_u16(code).unwrap();
                for (name, value) in headers {
                    response.headers_mut().insert(*name, value.parse().unwrap());
                }
                Ok::<_, Infallible>(response)
            }
        });
        let mut settings = Settings::new("w1", "kubeocean-test", metrics);
        settings.seed = 1;
        Cluster::over(kube::Client::new(service, "default"), settings)
    }

    fn paths(&self) -> Vec<String> {
        self.asked.lock().iter().map(|(_, path, _)| path.clone()).collect()
    }
}

fn throttled() -> Answer {
    let body = json!({"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "slow down"});
    Answer::Say(429, &[("retry-after", "7")], body)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_us_to_wait_is_obeyed_and_measured() {
    let script = Script::new([
        throttled(),
        Answer::Say(201, &[], json!({"metadata": {"uid": "u", "resourceVersion": "5"}})),
    ]);
    let metrics = Metrics::new("test");
    let cluster = script.cluster(&metrics);
    let applier = Applier::new("test").virtually(&cluster);
    let outcome = applier.apply(&config_map("a", "b", &json!({}))).await;
    assert_eq!(outcome.to_string(), "throttled: slow down");
    assert_eq!(applier.apply(&config_map("a", "b", &json!({}))).await.to_string(), "done (version 5)");
    let asked = script.asked.lock().clone();
    assert_eq!(
        (asked[1].0 - asked[0].0).as_secs(),
        7,
        "the second call waited as long as the server asked for"
    );
    assert!(asked[0].2.starts_with("kubeocean-test/"), "{}", asked[0].2);
    let text = metrics.encode();
    for line in [
        r#"kubeocean_requests_total{cluster="w1",verb="create",resource="configmaps",code="429"} 1"#,
        r#"kubeocean_requests_total{cluster="w1",verb="create",resource="configmaps",code="201"} 1"#,
        r#"kubeocean_writes_total{cluster="w1",verb="create",resource="configmaps",outcome="throttled"} 1"#,
        r#"kubeocean_writes_total{cluster="w1",verb="create",resource="configmaps",outcome="done"} 1"#,
        r#"kubeocean_request_limit{cluster="w1"} 16"#,
        r#"kubeocean_requests_in_flight{cluster="w1"} 0"#,
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_proxy_answers_in_a_servers_place_is_no_answer() {
    let script = Script::new([
        Answer::Page("<html>Please log in</html>"),
        Answer::Say(201, &[], json!({"metadata": {"uid": "u", "resourceVersion": "5"}})),
    ]);
    let cluster = script.cluster(&Metrics::new("test"));
    let applier = Applier::new("test").virtually(&cluster);
    let outcome = applier.apply(&config_map("a", "b", &json!({}))).await;
    assert_eq!(outcome.word(), "unreachable", "{outcome}");
    assert_eq!(applier.apply(&config_map("a", "b", &json!({}))).await.to_string(), "done (version 5)");
}

#[tokio::test(start_paused = true)]
async fn no_call_outlives_its_deadline() {
    let script = Script::new([Answer::Nothing]);
    let cluster = script.cluster(&Metrics::new("test"));
    let asked = Instant::now();
    let error = cluster.get(&kinds::POD, &key("a", "b")).await.unwrap_err();
    assert_eq!((error.to_string().as_str(), asked.elapsed().as_secs()), ("no answer within 30 s", 30));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_longer_than_anyone_asked_for_is_not_read_to_its_end() {
    let node = json!({"metadata": {"name": "n", "annotations": {"a": "x".repeat(2_000)}}});
    let page = json!({"metadata": {"resourceVersion": "7"}, "items": [node]});
    let script = Script::new([Answer::Say(200, &[], page)]);
    let cluster = script.cluster(&Metrics::new("test"));
    let brief = cluster.with_longest_answer(1_000);
    let error = brief.how_many(&kinds::NODE).await.unwrap_err().to_string();
    assert!(error.contains("length limit"), "{error}");
    assert_eq!(cluster.how_many(&kinds::NODE).await.unwrap(), 1, "who may read more does");
}

#[tokio::test(start_paused = true)]
async fn any_number_that_a_server_says_can_be_counted_with() {
    let page = |more: &str| {
        let meta = json!({"resourceVersion": "7", "continue": more, "remainingItemCount": usize::MAX});
        Answer::Say(
            200,
            &[],
            json!({"metadata": meta, "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}),
        )
    };
    let script = Script::new([page("")]);
    assert_eq!(script.cluster(&Metrics::new("test")).how_many(&kinds::NODE).await.unwrap(), usize::MAX);
    let script = Script::new([page("x"), page("y"), page("")]);
    let cluster = script.cluster(&Metrics::new("test"));
    assert_eq!(cluster.how_many_labelled(&kinds::POD, Some("n"), "a=b").await.unwrap(), 6);
    let paths = script.paths();
    assert!(
        paths.iter().all(|path| path.contains("limit=50")) && paths[2].contains("continue=y"),
        "{paths:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_informer_survives_every_way_in_which_a_watch_can_end() {
    let pod = |name: &str, version: &str| json!({"metadata": {"name": name, "namespace": "a", "uid": name, "resourceVersion": version}});
    let list = |version: &str, items: Vec<Value>| {
        Answer::Say(200, &[], json!({"metadata": {"resourceVersion": version}, "items": items}))
    };
    let event = |kind: &str, object: Value| json!({"type": kind, "object": object});
    let bookmark = |version: &str| event("BOOKMARK", json!({"metadata": {"resourceVersion": version}}));
    let script = Script::new([
        // It does not stream lists.
        Answer::Say(422, &[], json!({"kind": "Status", "code": 422, "reason": "Invalid"})),
        list("10", vec![pod("a", "9"), pod("b", "10")]),
        // Ends early: it is asked where it stands, and the watch goes on.
        Answer::Lines(vec![event("MODIFIED", pod("a", "11")), bookmark("12")]),
        list("12", vec![]),
        // Gone in an event: everything is listed.
        Answer::Lines(vec![event("ERROR", json!({"kind": "Status", "code": 410, "reason": "Expired"}))]),
        list("20", vec![pod("a", "11")]),
        // Gone as an answer.
        Answer::Say(410, &[], json!({"kind": "Status", "code": 410, "reason": "Expired"})),
        list("21", vec![pod("a", "11")]),
        // A line that is no event.
        Answer::Lines(vec![json!({"nonsense": true})]),
        // etcd was restored: the server counts lower than what was seen.
        list("15", vec![]),
        list("15", vec![pod("z", "14")]),
        Answer::Nothing,
    ]);
    let cluster = script.cluster(&Metrics::new("test"));
    let (informer, _switch) = Informer::<Virtual, Object>::of(&cluster, kinds::POD)
        .labels("app=x")
        .fields("spec.nodeName=n")
        .streamed()
        .build();
    let store = informer.store();
    drop(tokio::time::timeout(Duration::from_secs(60), informer.run()).await);
    let known: Vec<_> = store.all().into_iter().map(|(key, _)| key.name.to_string()).collect();
    assert_eq!(known, ["z"]);
    assert_eq!(store.progress().seen(), Some(15));
    let paths = script.paths();
    let watched_from: Vec<_> = paths
        .iter()
        .filter(|path| path.contains("watch=true"))
        .map(|path| path.split_once("&resourceVersion=").map_or("a list", |(_, version)| version))
        .collect();
    assert_eq!(watched_from, ["a list", "10", "12", "20", "21", "15"], "{paths:#?}");
    // Rights may be given for these alone: also for the question where the server stands.
    assert!(paths.iter().any(|path| path.contains("limit=1")));
    for path in &paths {
        assert!(path.contains("labelSelector=app%3Dx&fieldSelector=spec.nodeName%3Dn"), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_always_fails_is_asked_less_and_less() {
    for answer in [
        Answer::Say(500, &[], json!({"kind": "Status", "code": 500})),
        Answer::Say(403, &[], json!({"kind": "Status", "code": 403, "reason": "Forbidden"})),
        Answer::Say(410, &[], json!({"kind": "Status", "code": 410, "reason": "Expired"})),
        Answer::Lines(vec![]),
        Answer::Lines(vec![json!({"type": "ERROR", "object": {"kind": "Status", "code": 410}})]),
    ] {
        let script = Script::new([answer]);
        let cluster = script.cluster(&Metrics::new("test"));
        let (informer, _switch) = Informer::<Virtual, Object>::of(&cluster, kinds::POD).build();
        drop(tokio::time::timeout(Duration::from_secs(600), informer.run()).await);
        let calls = script.paths().len();
        assert!((20..150).contains(&calls), "{calls} calls in ten minutes");
    }
}

/// A place to log to.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn audit_log(lines: &Lines) -> Telemetry {
    let writer = lines.clone();
    // Even where hardly anything is logged.
    let flags = Flags::parse_from(["test", "--log-level=error"]);
    Telemetry::prepare("test", &flags.log, &Environment::default(), move || writer.clone(), false).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_write_that_nobody_waits_for_is_in_the_audit_log_too() {
    let taken = Answer::Say(409, &[], json!({"kind": "Status", "code": 409, "reason": "AlreadyExists"}));
    // Without an answer, and while it is asked whose the name is.
    for answers in [vec![Answer::Nothing], vec![taken, Answer::Nothing]] {
        let lines = Lines::default();
        let telemetry = audit_log(&lines);
        let (script, asked) = (Script::new(answers.clone()), answers.len());
        let cluster = script.cluster(&Metrics::new("test"));
        let applier = Applier::new("kubeocean-syncer").virtually(&cluster);
        let _logging = tracing::dispatcher::set_default(&telemetry.dispatch);
        let write = config_map("web", "a", &json!({}));
        tokio::time::timeout(Duration::from_secs(1), applier.apply(&write)).await.unwrap_err();
        assert_eq!(script.paths().len(), asked);
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        assert!(text.contains("web/a") && text.contains("nobody waited for the answer"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_becomes_unreadable_is_not_taken_for_gone() {
    let list = |label: Value| {
        let object = |name: &str, labels: Value| json!({"metadata": {"name": name, "namespace": "web", "uid": name, "resourceVersion": "1", "labels": labels}});
        Answer::Say(
            200,
            &[],
            json!({"metadata": {"resourceVersion": "7"}, "items": [object("a", label), object("b", json!({}))]}),
        )
    };
    let gone = Answer::Say(410, &[], json!({"kind": "Status", "reason": "Expired", "code": 410}));
    let script = Script::new([list(json!({})), gone, list(json!([])), Answer::Nothing]);
    let (informer, _switch) =
        Informer::<Virtual, Object>::of(&script.cluster(&Metrics::new("test")), kinds::CONFIG_MAP).build();
    let store = informer.store();
    drop(tokio::time::timeout(Duration::from_secs(20), informer.run()).await);
    assert!(script.paths().len() >= 4, "{:?}", script.paths());
    assert_eq!(store.len(), 2, "it is there, only not to be read");
}

#[derive(clap::Parser)]
struct Flags {
    #[command(flatten)]
    log: LogArgs,
}

#[tokio::test(start_paused = true)]
async fn every_write_is_one_line_of_the_audit_log() {
    let lines = Lines::default();
    let telemetry = audit_log(&lines);
    let script = Script::new([
        Answer::Say(201, &[], json!({"metadata": {"uid": "u", "resourceVersion": "5"}})),
        Answer::Say(409, &[], json!({"kind": "Status", "reason": "Conflict", "message": "another uid"})),
        Answer::Say(200, &[], json!({"metadata": {"resourceVersion": "6"}})),
    ]);
    let cluster = script.cluster(&Metrics::new("test"));
    let applier = Applier::new("kubeocean-syncer").virtually(&cluster);
    let _logging = tracing::dispatcher::set_default(&telemetry.dispatch);
    applier.apply(&config_map("web", "a", &json!({}))).await;
    applier.apply(&delete(kinds::CONFIG_MAP, &key("web", "a")).if_uid("u-1").if_version("7")).await;
    cluster.get(&kinds::POD, &key("web", "a")).await.unwrap();
    let text = String::from_utf8(lines.0.lock().clone()).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "reads are not written down: {text}");
    for (field, values) in [
        ("target", ["audit", "audit"]),
        ("component", ["kubeocean-syncer", "kubeocean-syncer"]),
        ("cluster", ["w1", "w1"]),
        ("verb", ["create", "delete"]),
        ("resource", ["configmaps", "configmaps"]),
        ("object", ["web/a", "web/a"]),
        ("uid", ["", "u-1"]),
        ("version", ["", "7"]),
        ("why", ["the test wants it", "the test is done with it"]),
        ("outcome", ["done (version 5)", "conflict: another uid"]),
    ] {
        let found: Vec<_> =
            lines.iter().map(|line| line[field].as_str().or(line["fields"][field].as_str())).collect();
        assert_eq!(found, values.map(Some), "{field} in {text}");
    }
}

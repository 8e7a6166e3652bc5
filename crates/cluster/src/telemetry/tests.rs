use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;

/// What was logged.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }

    fn json(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(super) fn messages(&self) -> Vec<String> {
        self.json().iter().map(|line| line["message"].as_str().unwrap().to_owned()).collect()
    }
}

/// Runs `log` with these flags.
pub(super) fn logged(args: &LogArgs, log: impl FnOnce(&LogControl)) -> Lines {
    let lines = Lines::default();
    let writer = lines.clone();
    let telemetry =
        Telemetry::prepare("test", args, &Environment::default(), move || writer.clone(), false).unwrap();
    let control = telemetry.guard.log();
    tracing::dispatcher::with_default(&telemetry.dispatch, || log(&control));
    lines
}

#[test]
fn a_line_is_one_json_object_with_everything_on_one_level() {
    let lines = logged(&LogArgs::default(), |_| {
        let binding = tracing::info_span!("binding", binding = "w1", attempt = 1);
        let _binding = binding.enter();
        let pod = tracing::info_span!("pod", pod = "web/a", attempt = 2);
        let _pod = pod.enter();
        let cause = io::Error::other("\"quoted\"\nand broken");
        let error = TelemetryError::Roots(cause);
        tracing::warn!(
            count = 3,
            level = "mine",
            error = &error as &dyn std::error::Error,
            "the twin is {}",
            "late"
        );
    });

    let line = &lines.json()[0];
    assert_eq!(lines.text().lines().count(), 1);
    assert!(lines.text().starts_with(r#"{"time":"20"#), "{}", lines.text());
    assert_eq!(line["level"], "warn");
    assert_eq!(line["target"], "kubeocean_cluster::telemetry::tests");
    assert_eq!(line["message"], "the twin is late");
    assert_eq!(line["binding"], "w1");
    assert_eq!(line["pod"], "web/a");
    assert_eq!(line["attempt"], 2);
    assert_eq!(line["count"], 3);
    assert_eq!(line["level_"], "mine");
    assert!(line["error"].as_str().unwrap().ends_with(": \"quoted\"\nand broken"));
    line["time"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
}

#[test]
fn the_level_changes_while_the_process_runs() {
    let lines = logged(&LogArgs::default(), |control| {
        tracing::debug!("too quiet");
        control.set("debug").unwrap();
        tracing::debug!("heard");
        tracing::debug!(target: "hyper::client", "a library's chatter");
        control.set("warn,hyper=debug").unwrap();
        tracing::info!("too quiet again");
        tracing::debug!(target: "hyper::client", "asked for");

        let error = control.set("loud").unwrap_err().to_string();
        assert!(error.contains("error, warn, info, debug, trace"), "{error}");
        assert_eq!(control.get(), "warn,hyper=debug");
        for wrong in ["", "info,", "3", "info,what=ever=else"] {
            control.set(wrong).unwrap_err();
        }
    });
    assert_eq!(lines.messages(), ["heard", "asked for"]);
}

#[test]
fn the_audit_log_is_silent_only_if_told_so() {
    let lines = logged(&LogArgs { log_level: Some("error".to_owned()), ..LogArgs::default() }, |control| {
        tracing::info!("no");
        tracing::info!(target: AUDIT, "first");
        control.set("off").unwrap();
        tracing::info!(target: AUDIT, "second");
        control.set("info,audit=off").unwrap();
        tracing::info!(target: AUDIT, "third");
        tracing::info!("yes");
    });
    assert_eq!(lines.messages(), ["first", "second", "yes"]);
}

#[test]
fn zap_devel_writes_for_people() {
    let lines = logged(&LogArgs { zap_devel: true, ..LogArgs::default() }, |_| {
        tracing::debug!(pod = "web/a", "planned");
        tracing::warn!("odd");
    });
    let text = lines.text();
    let first = text.lines().next().unwrap();
    assert!(first.contains("DEBUG") && first.contains("planned pod=\"web/a\""), "{text}");
    assert!(text.contains("zap_devel_writes_for_people"), "a warning comes with its stack: {text}");
}

/// A collector: each request's path and body.
async fn collector() -> (std::net::SocketAddr, mpsc::UnboundedReceiver<(String, Bytes)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (send, receive) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let send = send.clone();
            let serve = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let send = send.clone();
                async move {
                    let path = request.uri().path().to_owned();
                    let body = request.into_body().collect().await?.to_bytes();
                    let _ = send.send((path, body));
                    Ok::<_, hyper::Error>(http::Response::new(Full::new(Bytes::new())))
                }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), serve),
            );
        }
    });
    (address, receive)
}

fn has(body: &[u8], word: &str) -> bool {
    body.windows(word.len()).any(|window| window == word.as_bytes())
}

#[tokio::test]
async fn a_collector_gets_the_span_and_who_sent_it() {
    let (address, mut received) = collector().await;
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}")),
        ("OTEL_SERVICE_NAME", "syncer-of-w1".to_owned()),
        ("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=syncer-0".to_owned()),
    ]
    .into_iter()
    .collect();
    let telemetry = Telemetry::prepare("syncer", &LogArgs::default(), &environment, io::sink, false).unwrap();
    assert!(telemetry.guard.traces());
    tracing::dispatcher::with_default(&telemetry.dispatch, || {
        let span = tracing::info_span!("bind pod", pod = "web/a");
        span.in_scope(|| tracing::info!("created"));
        let foreign = tracing::info_span!(target: "hyper", "not ours");
        foreign.in_scope(|| {});
    });

    telemetry.guard().shutdown().await;

    let (path, body) = received.recv().await.unwrap();
    assert_eq!(path, "/v1/traces");
    for word in ["syncer-of-w1", "syncer-0", "bind pod", "web/a", "created"] {
        assert!(has(&body, word), "{word} is missing");
    }
    assert!(!has(&body, "not ours"));
}

#[tokio::test]
async fn a_collector_that_is_away_delays_nobody() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let environment =
        [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("http://{gone}/v1/traces"))].into_iter().collect();
    let telemetry = Telemetry::prepare("syncer", &LogArgs::default(), &environment, io::sink, false).unwrap();
    tracing::dispatcher::with_default(&telemetry.dispatch, || {
        for _ in 0..10_000 {
            tracing::info_span!("bind pod").in_scope(|| {});
        }
    });
    let started = std::time::Instant::now();
    telemetry.guard().shutdown().await;
    assert!(started.elapsed() < 2 * FLUSH_WITHIN, "{:?}", started.elapsed());
}

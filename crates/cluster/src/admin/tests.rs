use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::*;
use crate::telemetry::{Environment, LogArgs, Telemetry};

#[derive(Parser)]
struct Component {
    #[command(flatten)]
    admin: AdminArgs,
}

fn args(metrics: &str, probes: &str) -> AdminArgs {
    let words = ["c", "--metrics-bind-address", metrics, "--health-probe-bind-address", probes];
    Component::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).admin
}

struct Running {
    admin: Admin,
    log: LogControl,
    metrics: Option<SocketAddr>,
    probes: Option<SocketAddr>,
    stop: CancellationToken,
    served: JoinHandle<()>,
    // Keeps the log level changeable.
    _telemetry: Telemetry,
}

async fn start(args: &AdminArgs) -> Running {
    let telemetry =
        Telemetry::prepare("test", &LogArgs::default(), &Environment::default(), io::sink, false).unwrap();
    let log = telemetry.log();
    let admin = Admin::new(Metrics::new("test"), log.clone());
    let bound = admin.bind(args).await.unwrap();
    let (metrics, probes) = (bound.metrics_address(), bound.probe_address());
    let stop = CancellationToken::new();
    let served = tokio::spawn(bound.serve(stop.clone()));
    Running { admin, log, metrics, probes, stop, served, _telemetry: telemetry }
}

/// Status and everything behind it.
async fn ask(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap_or_else(|| panic!("no answer: {answer:?}")).parse().unwrap();
    (status, answer)
}

async fn fetch(address: SocketAddr, path: &str) -> (u16, String) {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await
}

async fn put(address: SocketAddr, path: &str, body: &str) -> (u16, String) {
    let length = body.len();
    ask(
        address,
        &format!(
            "PUT {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        ),
    )
    .await
}

const ANYWHERE: &str = "127.0.0.1:0";

#[test]
fn the_contract_names_the_default_ports() {
    let args = Component::try_parse_from(["c"]).unwrap_or_else(|error| panic!("{error}")).admin;
    assert_eq!(args.metrics_bind_address, BindAddress::Everywhere(8080));
    assert_eq!(args.health_probe_bind_address, BindAddress::Everywhere(8081));
}

#[tokio::test]
async fn a_failing_check_is_named_with_its_reason() {
    let running = start(&args("0", ANYWHERE)).await;
    let probes = running.probes.unwrap();
    let alive = Arc::new(AtomicBool::new(true));
    let check = alive.clone();
    running.admin.health.check("ping", || Ok(()));
    running.admin.health.check("informer", move || {
        if check.load(Ordering::Relaxed) { Ok(()) } else { Err("no event for 4 min".to_owned()) }
    });
    running.admin.health.note("binding-w1", || "restarting".to_owned());

    let (status, body) = fetch(probes, "/healthz").await;
    assert_eq!(status, 200);
    assert!(body.ends_with("\r\n\r\nok"), "{body}");
    let (_, body) = fetch(probes, "/healthz?verbose").await;
    assert!(
        body.ends_with(
            "\r\n\r\n[+]ping ok\n[+]informer ok\n[.]binding-w1: restarting\nhealthz check passed\n"
        ),
        "{body}"
    );

    alive.store(false, Ordering::Relaxed);
    let (status, body) = fetch(probes, "/healthz").await;
    assert_eq!(status, 500);
    assert!(body.contains("[+]ping ok\n[-]informer failed: no event for 4 min\n"), "{body}");
    assert!(body.ends_with("healthz check failed\n"), "{body}");
    assert_eq!(fetch(probes, "/healthz?exclude=informer").await.0, 200);
    assert_eq!(fetch(probes, "/healthz/ping").await.0, 200);
    assert_eq!(fetch(probes, "/healthz/informer").await.0, 500);
    assert_eq!(fetch(probes, "/healthz/unknown").await.0, 404);
    assert_eq!(fetch(probes, "/readyz").await.0, 200, "readiness is another question");
    assert_eq!(running.admin.health.failures(), [("informer".to_owned(), "no event for 4 min".to_owned())]);
}

#[tokio::test]
async fn probes_and_metrics_are_apart_or_together() {
    let apart = start(&args(ANYWHERE, "127.0.0.1:00")).await;
    let (metrics, probes) = (apart.metrics.unwrap(), apart.probes.unwrap());
    assert_ne!(metrics, probes);
    assert_eq!(fetch(metrics, "/healthz").await.0, 404);
    assert_eq!(fetch(probes, "/metrics").await.0, 404);
    assert_eq!(fetch(probes, "/readyz").await.0, 200);

    let together = start(&args(ANYWHERE, ANYWHERE)).await;
    assert_eq!(together.metrics, together.probes);
    let address = together.metrics.unwrap();
    for path in ["/metrics", "/healthz", "/readyz", "/debug/state", "/debug/log-level"] {
        assert_eq!(fetch(address, path).await.0, 200, "{path}");
    }

    let nowhere = start(&args("0", "0")).await;
    assert_eq!((nowhere.metrics, nowhere.probes), (None, None));
    tokio::task::yield_now().await;
    assert!(!nowhere.served.is_finished(), "a component without addresses runs on");
}

#[tokio::test]
async fn a_scraper_gets_the_format_that_it_asks_for() {
    let running = start(&args(ANYWHERE, "0")).await;
    let metrics = running.metrics.unwrap();
    let prometheus = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept: \
        application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.4\r\n\r\n";
    let (_, body) = ask(metrics, prometheus).await;
    assert!(
        body.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"),
        "{body}"
    );
    assert!(body.contains(r#"kubeocean_build_info{component="test""#), "{body}");
    assert!(body.ends_with("# EOF\n"));
    let (_, body) = fetch(metrics, "/metrics").await;
    assert!(body.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{body}");
}

#[tokio::test]
async fn the_log_level_is_changed_from_the_machine_itself() {
    let running = start(&args(ANYWHERE, "0")).await;
    let address = running.metrics.unwrap();
    assert!(fetch(address, "/debug/log-level").await.1.ends_with("\r\n\r\ninfo\n"));

    assert_eq!(put(address, "/debug/log-level", "debug").await.0, 200);
    assert_eq!(running.log.get(), "debug");

    let (status, body) = put(address, "/debug/log-level", "loud").await;
    assert_eq!(status, 400);
    assert!(body.contains("\"loud\" is no log level: use off, error, warn"), "{body}");
    assert_eq!(put(address, "/debug/log-level", &"x".repeat(5000)).await.0, 413);
    assert_eq!(running.log.get(), "debug");
}

/// An address of this machine that is not loopback; without any there is no one to be refused.
fn own_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Sends nothing: asks the kernel which address it would use.
    socket.connect(("192.0.2.1", 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

#[tokio::test]
async fn others_may_probe_and_may_not_debug() {
    let running = start(&args(":0", "0")).await;
    let port = running.metrics.unwrap().port();
    assert_eq!(fetch((Ipv4Addr::LOCALHOST, port).into(), "/debug/state").await.0, 200);
    let Some(own) = own_address() else { return };
    let address = SocketAddr::new(own, port);
    assert_eq!(fetch(address, "/metrics").await.0, 200);
    for (status, body) in [
        fetch(address, "/debug/state").await,
        fetch(address, "/debug/log-level").await,
        put(address, "/debug/log-level", "trace").await,
    ] {
        assert_eq!(status, 403);
        assert!(body.contains("kubectl port-forward"), "{body}");
    }
    assert_eq!(running.log.get(), "info");
}

#[tokio::test]
async fn the_state_is_told_as_json() {
    let running = start(&args(ANYWHERE, "0")).await;
    running.admin.state("queue.pods", || json!({"due": 3, "waiting": 1}));
    running.admin.state("gone", || json!(null));
    running.admin.forget_state("gone");
    let (_, answer) = fetch(running.metrics.unwrap(), "/debug/state").await;
    let body: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body, json!({"queue.pods": {"due": 3, "waiting": 1}}));
}

#[tokio::test]
async fn a_taken_port_is_told_with_its_flag() {
    let first = start(&args("0", ANYWHERE)).await;
    let taken = first.probes.unwrap().to_string();
    let error = first.admin.bind(&args("0", &taken)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "--health-probe-bind-address={taken} cannot be listened on: choose another address, or 0 for none"
        )
    );
    let error = first.admin.bind(&args(&taken, "0")).await.unwrap_err();
    assert!(error.to_string().starts_with("--metrics-bind-address="));
}

#[tokio::test]
async fn silent_and_endless_clients_are_cut_off_and_others_served() {
    let running = start(&args("0", ANYWHERE)).await;
    let probes = running.probes.unwrap();
    let mut endless = TcpStream::connect(probes).await.unwrap();
    endless.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    // An endless head is refused once it is too long; the server then may close while we write.
    for _ in 0..100 {
        if endless.write_all(format!("x: {}\r\n", "y".repeat(1000)).as_bytes()).await.is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    let _ = endless.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");

    let _silent = TcpStream::connect(probes).await.unwrap();
    assert_eq!(fetch(probes, "/healthz").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_ends_by_itself() {
    let running = start(&args("0", ANYWHERE)).await;
    let mut silent = TcpStream::connect(running.probes.unwrap()).await.unwrap();
    silent.write_all(b"GET /healthz HTT").await.unwrap();
    let started = tokio::time::Instant::now();
    let mut answer = Vec::new();
    let _ = silent.read_to_end(&mut answer).await;
    assert!(started.elapsed() <= Duration::from_secs(40), "{:?}", started.elapsed());
}

#[tokio::test]
async fn stopping_waits_for_no_idle_connection() {
    let running = start(&args("0", ANYWHERE)).await;
    let probes = running.probes.unwrap();
    let mut idle = TcpStream::connect(probes).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    idle.read_exact(&mut answer).await.unwrap();

    running.stop.cancel();
    tokio::time::timeout(Duration::from_secs(5), running.served).await.unwrap().unwrap();
    TcpStream::connect(probes).await.unwrap_err();
}

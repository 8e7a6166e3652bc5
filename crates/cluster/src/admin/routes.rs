//! What is answered at which path.

use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequestParts, Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, StatusCode, Uri};
use serde_json::{Map, Value};

use super::{Admin, Health};
use crate::metrics::{OPENMETRICS, PROMETHEUS_TEXT};

/// A filter that names every crate of ours is some 300 bytes.
const LONGEST_FILTER: usize = 4 << 10;

const LOOPBACK_ONLY: &str = "this is answered on the machine itself only: use kubectl exec or \
     kubectl port-forward, and 127.0.0.1\n";

/// Who asks; put into each request by the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

impl Peer {
    fn is_local(self) -> bool {
        // On a socket for both families an IPv4 peer looks like ::ffff:127.0.0.1.
        self.0.ip().to_canonical().is_loopback()
    }
}

/// A request from this machine. Others are refused before anything is read.
struct Local;

impl<S: Sync> FromRequestParts<S> for Local {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        match parts.extensions.get::<Peer>() {
            Some(peer) if peer.is_local() => Ok(Self),
            _ => Err((StatusCode::FORBIDDEN, LOOPBACK_ONLY)),
        }
    }
}

/// `/healthz` and `/readyz`.
pub(super) fn probes() -> Router<Admin> {
    Router::new()
        .route(
            "/healthz",
            get(async |State(admin): State<Admin>, uri: Uri| all("healthz", &admin.health, &uri)),
        )
        .route("/readyz", get(async |State(admin): State<Admin>, uri: Uri| all("readyz", &admin.ready, &uri)))
        .route(
            "/healthz/{name}",
            get(async |State(admin): State<Admin>, Path(name): Path<String>| {
                one("healthz", &admin.health, &name)
            }),
        )
        .route(
            "/readyz/{name}",
            get(async |State(admin): State<Admin>, Path(name): Path<String>| {
                one("readyz", &admin.ready, &name)
            }),
        )
}

/// `/metrics`.
pub(super) fn metrics() -> Router<Admin> {
    Router::new().route("/metrics", get(scrape))
}

/// `/debug/…`.
pub(super) fn debug() -> Router<Admin> {
    Router::new()
        .route("/debug/log-level", get(log_level).put(set_log_level))
        .route("/debug/state", get(state))
}

/// As the API server: `ok`, or every check with `?verbose` and on failure; `?exclude=name` leaves one out.
fn all(question: &str, health: &Health, uri: &Uri) -> Response {
    let query: Vec<(&str, &str)> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    let report = health.report(|name| !query.contains(&("exclude", name)));
    let verbose = query.iter().any(|(key, _)| *key == "verbose");
    answer(question, &report, verbose)
}

fn one(question: &str, health: &Health, name: &str) -> Response {
    let report = health.report(|existing| existing == name);
    if report.is_empty() {
        return (StatusCode::NOT_FOUND, format!("no check is called {name:?}: see /{question}?verbose\n"))
            .into_response();
    }
    answer(question, &report, false)
}

fn answer(question: &str, report: &super::Report, verbose: bool) -> Response {
    let body = if verbose || !report.passed() { report.text(question) } else { "ok".to_owned() };
    let status = if report.passed() { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    (status, [(CACHE_CONTROL, "no-cache, no-store")], body).into_response()
}

async fn scrape(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    let open = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|accepted| accepted.contains("application/openmetrics-text"));
    let kind = if open { OPENMETRICS } else { PROMETHEUS_TEXT };
    ([(CONTENT_TYPE, kind)], admin.metrics.encode()).into_response()
}

async fn log_level(_: Local, State(admin): State<Admin>) -> String {
    format!("{}\n", admin.log.get())
}

async fn set_log_level(_: Local, State(admin): State<Admin>, body: Body) -> (StatusCode, String) {
    let Ok(body) = to_bytes(body, LONGEST_FILTER).await else {
        return (StatusCode::PAYLOAD_TOO_LARGE, format!("a filter has at most {LONGEST_FILTER} bytes\n"));
    };
    let filter = String::from_utf8_lossy(&body);
    let before = admin.log.get();
    match admin.log.set(&filter) {
        Ok(()) => {
            let now = admin.log.get();
            tracing::info!(before, now, "the log level was changed");
            (StatusCode::OK, format!("{now}\n"))
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
    }
}

async fn state(_: Local, State(admin): State<Admin>) -> Response {
    let providers = admin.state.read().clone();
    let state: Map<String, Value> = providers.into_iter().map(|(name, provide)| (name, provide())).collect();
    ([(CONTENT_TYPE, "application/json")], format!("{:#}\n", Value::Object(state))).into_response()
}

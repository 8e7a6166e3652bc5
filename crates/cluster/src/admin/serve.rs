//! Connections: accepted, limited, and ended in order.
//!
//! `axum::serve` has no time limits, and these ports may be reachable by everyone in the cluster.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::routes::Peer;

/// From the connection, or from the answer before, to the last header. Kubelets open a connection per
/// probe; a scraper's is idle for as long as its interval, mostly 15 or 30 s, and is opened again beyond.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);

/// A GET with the longest `Accept` of a scraper is below 1 KiB.
const LONGEST_HEAD: usize = 16 << 10;

/// A kubelet, a few scrapers, somebody with curl. More wait in the backlog.
const MOST_CONNECTIONS: usize = 64;

/// Whoever reads an answer slower than this is not waited for; who is idle connects again.
const LONGEST_CONNECTION: Duration = Duration::from_secs(300);

/// For an accept that fails: for want of file descriptors, which other connections will give back.
const AFTER_ACCEPT_ERROR: Duration = Duration::from_millis(100);

/// Answers under way when we stop are finished within this time.
const FINISH_WITHIN: Duration = Duration::from_secs(2);

/// Serves until `stop`.
pub(super) async fn serve(listener: TcpListener, routes: Router, stop: CancellationToken) {
    let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        // What has ended is taken out, so that the set does not grow.
        while connections.try_join_next().is_some() {}
        let accepted = async {
            let slot = slots.clone().acquire_owned().await;
            (listener.accept().await, slot)
        };
        let (accepted, slot) = tokio::select! {
            accepted = accepted => accepted,
            () = stop.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                tokio::time::sleep(AFTER_ACCEPT_ERROR).await;
                continue;
            }
        };
        let routes = routes.clone();
        let service = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(Peer(peer));
            routes.clone().oneshot(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS_WITHIN)
            .max_buf_size(LONGEST_HEAD)
            .serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        connections.spawn(async move {
            let _slot = slot;
            if let Ok(Err(error)) = tokio::time::timeout(LONGEST_CONNECTION, connection).await {
                tracing::debug!(%error, %peer, "a connection broke");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(FINISH_WITHIN, graceful.shutdown()).await.is_err() {
        tracing::debug!("an answer was cut short: its reader is too slow");
    }
    connections.shutdown().await;
}

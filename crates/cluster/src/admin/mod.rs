//! What operators and kubelets ask a component over HTTP: health, metrics, log level, state.
//!
//! Probes and metrics have an address each, so that a network policy can open one without the other; the
//! same address for both is one listener. `/debug` is on both, and answers the machine itself only.
//!
//! Deliberately absent: TLS and authentication. Nothing here is secret, and what changes anything is for
//! loopback peers only.

mod address;
mod health;
mod routes;
mod serve;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use parking_lot::RwLock;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use address::BindAddress;
pub use health::{Health, Report};

use crate::metrics::Metrics;
use crate::telemetry::LogControl;

const METRICS_FLAG: &str = "--metrics-bind-address";
const PROBES_FLAG: &str = "--health-probe-bind-address";

/// Where a component answers.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Administration")]
pub struct AdminArgs {
    /// Where metrics are served: `:8080` is every interface, `0` is nowhere
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    pub metrics_bind_address: BindAddress,

    /// Where /healthz and /readyz are served; may be the same as that of the metrics
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    pub health_probe_bind_address: BindAddress,
}

/// Why a component cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The port is taken, the name unknown, the right missing.
    #[error("{flag}={address} cannot be listened on: choose another address, or 0 for none")]
    Bind {
        /// Which flag says so.
        flag: &'static str,
        /// What it says.
        address: BindAddress,
        /// What the system says.
        #[source]
        cause: io::Error,
    },
}

type Provide = Arc<dyn Fn() -> Value + Send + Sync>;

/// What is answered. Clones answer the same.
#[derive(Clone)]
pub struct Admin {
    /// `/healthz`: is the process alive, do its loops run? Failure gets it restarted.
    pub health: Health,
    /// `/readyz`: can it do its work now? Failure gets nothing restarted.
    pub ready: Health,
    metrics: Metrics,
    log: LogControl,
    state: Arc<RwLock<BTreeMap<String, Provide>>>,
}

impl Admin {
    /// Nothing is served before [`Admin::bind`].
    pub fn new(metrics: Metrics, log: LogControl) -> Self {
        Self { health: Health::new(), ready: Health::new(), metrics, log, state: Arc::default() }
    }

    /// Adds something to `/debug/state`: sizes and ages, no contents, since whoever may exec reads them.
    pub fn state(&self, name: &str, provide: impl Fn() -> Value + Send + Sync + 'static) {
        self.state.write().insert(name.to_owned(), Arc::new(provide));
    }

    /// Removes it again.
    pub fn forget_state(&self, name: &str) {
        self.state.write().remove(name);
    }

    /// Takes the addresses. A component that cannot be probed should not start.
    pub async fn bind(&self, args: &AdminArgs) -> Result<AdminServer, AdminError> {
        let AdminArgs { metrics_bind_address: metrics, health_probe_bind_address: probes } = args;
        let bind = async |flag, address: &BindAddress| {
            address.bind().await.map_err(|cause| AdminError::Bind { flag, address: address.clone(), cause })
        };
        let mut server = AdminServer { listeners: Vec::new(), metrics: None, probes: None };
        if let Some(listener) = bind(METRICS_FLAG, metrics).await? {
            let address = listener.local_addr().ok();
            let mut routes = routes::metrics().merge(routes::debug());
            if metrics == probes {
                routes = routes.merge(routes::probes());
                server.probes = address;
            }
            server.metrics = address;
            server.listeners.push((listener, routes.with_state(self.clone())));
        }
        if metrics != probes
            && let Some(listener) = bind(PROBES_FLAG, probes).await?
        {
            server.probes = listener.local_addr().ok();
            let routes = routes::probes().merge(routes::debug());
            server.listeners.push((listener, routes.with_state(self.clone())));
        }
        Ok(server)
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("health", &self.health)
            .field("ready", &self.ready)
            .finish_non_exhaustive()
    }
}

/// Bound addresses, not served yet.
#[derive(Debug)]
pub struct AdminServer {
    listeners: Vec<(TcpListener, Router)>,
    metrics: Option<SocketAddr>,
    probes: Option<SocketAddr>,
}

impl AdminServer {
    /// Where `/metrics` is.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Where `/healthz` and `/readyz` are.
    pub fn probe_address(&self) -> Option<SocketAddr> {
        self.probes
    }

    /// Answers until `stop`, then finishes what it is answering. For the supervisor's first loop, which ends
    /// last: the component is probed while it drains.
    pub async fn serve(self, stop: CancellationToken) {
        let served =
            self.listeners.into_iter().map(|(listener, routes)| serve::serve(listener, routes, stop.clone()));
        futures::future::join_all(served).await;
        // With every address disabled there is nothing to serve, which is no reason to end.
        stop.cancelled().await;
    }
}

#[cfg(test)]
mod tests;

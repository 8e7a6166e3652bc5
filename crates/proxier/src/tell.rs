//! The audit log: every call, who made it, and what came of it, in one line.

use std::sync::Arc;

use kubeocean_cluster::telemetry::AUDIT;
use kubeocean_model::kubelet::{PodRoute, Route};

use crate::callers::Caller;

/// A call, as far as it is known.
pub(crate) struct Line {
    pub(crate) binding: Arc<str>,
    pub(crate) method: String,
    /// What was asked for, without its query: a command may have a password in it.
    pub(crate) path: String,
    pub(crate) peer: String,
    pub(crate) caller: Option<Arc<Caller>>,
    pub(crate) vnode: Option<Arc<str>>,
    pub(crate) route: Option<Route>,
    /// What the connection was to become: `spdy` or `websocket`.
    pub(crate) protocol: Option<&'static str>,
}

/// Longer paths are those of no route.
const LONGEST_PATH: usize = 512;

impl Line {
    /// Writes it. Scrapers and probes that are answered are many; refusals and calls to pods are told to everyone.
    pub(crate) fn tell(&self, code: u16, why: Option<&str>) {
        let user = self.caller.as_ref().map(|caller| caller.user.as_str());
        let pod = match &self.route {
            Some(Route::Pod(PodRoute { pod, .. })) => Some(pod.to_string()),
            _ => None,
        };
        let container = match &self.route {
            Some(Route::Pod(route)) => route.container.as_deref(),
            _ => None,
        };
        let path: String = self.path.chars().take(LONGEST_PATH).flat_map(char::escape_default).collect();
        let outcome = match code {
            401 => "unknown-caller",
            403 => "forbidden",
            code if code >= 400 => "refused",
            _ => "allowed",
        };
        let Self { binding, method, peer, protocol, .. } = self;
        let vnode = self.vnode.as_deref();
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    target: AUDIT, component = "proxier", %binding, user, peer, method, path, protocol, vnode, pod, container, code, outcome, why,
                    "call"
                )
            };
        }
        if code < 400 && pod.is_none() {
            line!(debug);
        } else {
            line!(info);
        }
    }
}

//! What is asked of a virtual node's kubelet API, and what becomes of it in the worker cluster.
//!
//! ```text
//!   /exec/web/a/c1?command=ls&output=1  ──▶ Route ──▶ Needs: create nodes/proxy
//!                                             │
//!                                             ├─▶ twin: which P pod answers for web/a
//!                                             ▼
//!                  Errand ──▶ /api/v1/namespaces/<mount>/pods/<twin>/exec?container=c1&stdout=true&command=ls
//! ```
//!
//! A call is taken apart into names and options, each of which is looked at, and written anew from those. Nothing of its path or query is
//! ever a part of ours.
//!
//! Deliberately absent: who calls, connections, and anything that a tenant wrote on a pod.

mod errand;
mod needs;
mod twin;

pub use errand::{Errand, LogOptions, LogStream, Streams};
pub use needs::{Needs, Subresource};
pub use twin::{BoundPod, PhysicalTwin, TwinQuestion};

use crate::key::{Key, Virtual};
use crate::naming::{is_dns_label, is_dns_subdomain};

/// Uids have 36 characters. Those of others are no longer than this.
const LONGEST_UID: usize = 64;

/// The status of a call to a pod that cannot be answered now. API servers tell people the words of such a one; of a 503 they tell only that it was one.
pub const NOT_NOW: u16 = 500;

/// Why a call is not answered: as a kubelet says it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The HTTP status.
    pub code: u16,
    /// For people.
    pub message: String,
}

impl Refusal {
    /// With this status and these words.
    pub fn new(code: u16, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    fn bad_query(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }
}

/// What is done with a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// `containerLogs`.
    Logs,
    /// `exec`.
    Exec,
    /// `attach`.
    Attach,
    /// `portForward`.
    PortForward,
}

impl Service {
    /// Its name in paths of kubelets.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Logs => "containerLogs",
            Self::Exec => "exec",
            Self::Attach => "attach",
            Self::PortForward => "portForward",
        }
    }

    /// Its name in paths of API servers.
    const fn subresource(self) -> &'static str {
        match self {
            Self::Logs => "log",
            Self::Exec => "exec",
            Self::Attach => "attach",
            Self::PortForward => "portforward",
        }
    }

    /// Whether the connection becomes another one, on which bytes go both ways.
    pub const fn is_upgrade(self) -> bool {
        !matches!(self, Self::Logs)
    }
}

/// What a node tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Telling {
    /// `/pods`: the pods that are bound to it.
    Pods,
    /// `/metrics`: how the proxier itself is.
    Metrics,
    /// `/metrics/resource`: what its pods use.
    ResourceMetrics,
    /// `/metrics/cadvisor`: the same, in more detail.
    CadvisorMetrics,
    /// `/healthz`.
    Health,
}

/// A path that kubelets have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Something is done with a pod.
    Pod(PodRoute),
    /// A node tells something.
    Node(Telling),
}

/// Which pod, and what is done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRoute {
    /// What.
    pub service: Service,
    /// With which pod.
    pub pod: Key<Virtual>,
    /// With no other of that name.
    pub uid: Option<String>,
    /// With which of its containers; ports are forwarded to the pod.
    pub container: Option<String>,
}

impl Route {
    /// Reads a path as it came, without the query. `None`: kubelets have no such path, or we do not serve it.
    ///
    /// Names are written plainly: none has a character that would have to be escaped.
    pub fn read(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix('/')?.split('/');
        let first = parts.next()?;
        let rest: Vec<&str> = parts.collect();
        let telling = match (first, &*rest) {
            ("pods", []) => Telling::Pods,
            ("metrics", []) => Telling::Metrics,
            ("metrics", ["resource"]) => Telling::ResourceMetrics,
            ("metrics", ["cadvisor"]) => Telling::CadvisorMetrics,
            ("healthz", []) => Telling::Health,
            _ => return PodRoute::read(first, &rest).map(Self::Pod),
        };
        Some(Self::Node(telling))
    }

    /// Whether it takes calls of this method.
    pub fn takes(&self, method: &str) -> bool {
        match self {
            Self::Pod(route) if route.service.is_upgrade() => matches!(method, "GET" | "POST"),
            Self::Pod(_) | Self::Node(_) => method == "GET",
        }
    }
}

impl PodRoute {
    fn read(service: &str, rest: &[&str]) -> Option<Self> {
        let service = match service {
            "containerLogs" => Service::Logs,
            "exec" => Service::Exec,
            "attach" => Service::Attach,
            "portForward" => Service::PortForward,
            _ => return None,
        };
        let (namespace, pod, uid, container) = match (service, rest) {
            (Service::PortForward, [namespace, pod]) => (namespace, pod, None, None),
            (Service::PortForward, [namespace, pod, uid]) => (namespace, pod, Some(uid), None),
            (Service::PortForward, _) => return None,
            (_, [namespace, pod, container]) => (namespace, pod, None, Some(container)),
            (Service::Exec | Service::Attach, [namespace, pod, uid, container]) => {
                (namespace, pod, Some(uid), Some(container))
            }
            _ => return None,
        };
        let is_named = is_dns_label(namespace) && is_dns_subdomain(pod);
        let is_meant = container.is_none_or(|name| is_dns_label(name)) && uid.is_none_or(|uid| is_uid(uid));
        (is_named && is_meant).then(|| Self {
            service,
            pod: Key::new(*namespace, *pod),
            uid: uid.map(|uid| (*uid).to_owned()),
            container: container.map(|name| (*name).to_owned()),
        })
    }
}

fn is_uid(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !text.is_empty() && text.len() <= LONGEST_UID && text.bytes().all(allowed)
}

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;

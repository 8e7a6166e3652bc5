//! Which right a call needs: that of kubelets, on the virtual node.
//!
//! Where the answer is more narrow than "everything that this node can do", the narrow right is enough. `nodes/proxy` is enough for all.

use super::{Route, Telling};

/// A subresource of `nodes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subresource {
    /// Everything.
    Proxy,
    /// `/metrics` and all below.
    Metrics,
    /// `/stats` and all below.
    Stats,
    /// `/logs` and all below.
    Log,
    /// `/pods`.
    Pods,
    /// `/healthz`.
    Health,
    /// `/configz`.
    Config,
    /// `/checkpoint` and all below.
    Checkpoint,
}

impl Subresource {
    /// As roles have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Metrics => "metrics",
            Self::Stats => "stats",
            Self::Log => "log",
            Self::Pods => "pods",
            Self::Health => "healthz",
            Self::Config => "configz",
            Self::Checkpoint => "checkpoint",
        }
    }
}

/// What a caller has to be allowed, on `nodes` of the virtual node's name: one of these is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The verb.
    pub verb: &'static str,
    /// The narrow right, if there is one.
    pub narrow: Option<Subresource>,
}

impl Needs {
    /// What a call needs. `is_upgrade`: it asks for another protocol. `None`: nobody may do that.
    ///
    /// Whoever changes the protocol may send whatever he likes from then on, so that a GET is no reading any more.
    pub fn of(method: &str, path: &str, is_upgrade: bool) -> Option<Self> {
        let route = Route::read(path);
        let becomes_another = match &route {
            Some(Route::Pod(route)) => route.service.is_upgrade(),
            _ => false,
        };
        let verb = match method {
            "GET" | "HEAD" | "POST" if is_upgrade || becomes_another => "create",
            "GET" | "HEAD" => "get",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" => "delete",
            _ => return None,
        };
        let narrow = match route {
            Some(Route::Pod(_)) => None,
            Some(Route::Node(telling)) => Some(of_telling(telling)),
            None => of_path(path),
        };
        Some(Self { verb, narrow })
    }

    /// The rights, in the order in which they are asked for.
    pub fn subresources(&self) -> impl Iterator<Item = Subresource> {
        self.narrow.into_iter().chain([Subresource::Proxy])
    }
}

const fn of_telling(telling: Telling) -> Subresource {
    match telling {
        Telling::Pods => Subresource::Pods,
        Telling::Metrics | Telling::ResourceMetrics | Telling::CadvisorMetrics => Subresource::Metrics,
        Telling::Health => Subresource::Health,
    }
}

/// Of paths that kubelets have, and we do not: who may call them learns that.
fn of_path(path: &str) -> Option<Subresource> {
    Some(match path.strip_prefix('/')?.split('/').next()? {
        "metrics" => Subresource::Metrics,
        "stats" => Subresource::Stats,
        "logs" => Subresource::Log,
        "configz" => Subresource::Config,
        "checkpoint" => Subresource::Checkpoint,
        _ => return None,
    })
}

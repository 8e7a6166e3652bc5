//! Taints of virtual nodes: ours, and those of others that we never touch.
//!
//! Deliberately absent: when a node gets which one.

use k8s_openapi::api::core::v1::Taint;

super::constants! {
    /// See [`VNODE`].
    VNODE_KEY = "kubeocean.io/vnode";
    /// See [`PHYSICAL_NODE_UNSCHEDULABLE`].
    PHYSICAL_NODE_UNSCHEDULABLE_KEY = "kubeocean.io/physical-node-unschedulable";
    /// See [`OUT_OF_TIME_WINDOWS`] and [`RECLAIMED`].
    OUT_OF_TIME_WINDOWS_KEY = "kubeocean.io/out-of-time-windows";
    /// See [`CLOSING`].
    CLOSING_KEY = "kubeocean.io/closing";
    /// See [`VNODE_DELETING`].
    VNODE_DELETING_KEY = "kubeocean.io/vnode-deleting";
    /// See [`WORKER_UNREACHABLE`].
    WORKER_UNREACHABLE_KEY = "kubeocean.io/worker-unreachable";
}

super::words! {
    /// What a taint does to pods that do not tolerate it.
    Effect {
        /// New ones are not scheduled.
        NoSchedule = "NoSchedule",
        /// Running ones are removed.
        NoExecute = "NoExecute",
    }
}

/// A taint that the syncer puts on virtual nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Its key.
    pub key: &'static str,
    /// Its value; most have none.
    pub value: Option<&'static str>,
    /// What it does.
    pub effect: Effect,
}

impl Mark {
    const fn plain(key: &'static str) -> Self {
        Self { key, value: None, effect: Effect::NoSchedule }
    }

    const fn on(key: &'static str, effect: Effect) -> Self {
        Self { key, value: Some(super::TRUE), effect }
    }

    /// The taint as a node carries it. The time is for the API server to add, where it does.
    pub fn taint(self) -> Taint {
        Taint {
            key: self.key.to_owned(),
            value: self.value.map(str::to_owned),
            effect: self.effect.into(),
            time_added: None,
        }
    }
}

impl From<Mark> for Taint {
    fn from(mark: Mark) -> Self {
        mark.taint()
    }
}

/// On every virtual node, unless the binding says `disableNodeDefaultTaint`: only pods that ask for
/// virtual nodes get there.
pub const VNODE: Mark = Mark::plain(VNODE_KEY);

/// The P node is cordoned.
pub const PHYSICAL_NODE_UNSCHEDULABLE: Mark = Mark::plain(PHYSICAL_NODE_UNSCHEDULABLE_KEY);

/// No window is open: nothing new.
pub const OUT_OF_TIME_WINDOWS: Mark = Mark::on(OUT_OF_TIME_WINDOWS_KEY, Effect::NoSchedule);

/// No window is open, `forceReclaim` is set and the grace period is over: everything goes.
pub const RECLAIMED: Mark = Mark::on(OUT_OF_TIME_WINDOWS_KEY, Effect::NoExecute);

/// The window ends soon and `forceReclaim` is set: nothing new.
pub const CLOSING: Mark = Mark::plain(CLOSING_KEY);

/// The virtual node is about to go.
pub const VNODE_DELETING: Mark = Mark::on(VNODE_DELETING_KEY, Effect::NoSchedule);

/// P's API server does not answer.
pub const WORKER_UNREACHABLE: Mark = Mark::plain(WORKER_UNREACHABLE_KEY);

/// Every taint of ours.
pub const MARKS: &[Mark] = &[
    VNODE,
    PHYSICAL_NODE_UNSCHEDULABLE,
    OUT_OF_TIME_WINDOWS,
    RECLAIMED,
    CLOSING,
    VNODE_DELETING,
    WORKER_UNREACHABLE,
];

/// Kubernetes' own: every new node gets it by admission, and is schedulable when V's node controller lifts it.
pub const NODE_NOT_READY_KEY: &str = "node.kubernetes.io/not-ready";

/// Keys of the taints that V's node controller puts and lifts: never copied from P, never repaired.
pub const NODE_CONTROLLER_KEYS: &[&str] = &[
    NODE_NOT_READY_KEY,
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/unschedulable",
];

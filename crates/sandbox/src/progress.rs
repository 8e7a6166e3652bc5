//! What a sandbox tells while it starts. How it looks is up to the one who listens.

use std::time::Duration;

use crate::lab::BuildEvent;

/// One thing that happened.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A program is being built, or was.
    Lab(BuildEvent<'a>),
    /// Someone took the port between choice and bind; another one is tried.
    PortTaken {
        /// The cluster.
        cluster: &'a str,
        /// The port.
        port: u16,
    },
    /// A control plane accepts pods.
    ControlPlaneReady {
        /// The cluster.
        cluster: &'a str,
        /// Since the programs were there.
        after: Duration,
    },
    /// A real node is Ready.
    NodeReady {
        /// The cluster.
        cluster: &'a str,
        /// The node.
        node: &'a str,
        /// Since its control plane was ready.
        after: Duration,
    },
}

/// A listener.
pub type Report = Box<dyn FnMut(Progress<'_>) + Send>;

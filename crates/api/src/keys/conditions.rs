//! Types of conditions.
//!
//! Deliberately absent: their reasons, which are in [`reasons`](super::reasons), and their messages.

super::words! {
    /// Conditions of a `ClusterBinding`. The manager writes all of them but `Leasing`.
    Binding {
        /// The binding is set up and its workers are available.
        Ready = "Ready",
        /// P's API server answers, and is the one we were bound to. Probed all the time.
        Connected = "Connected",
        /// The syncer (its Deployment, or the task in the manager) is available.
        SyncerReady = "SyncerReady",
        /// The proxier (its Deployment, or the task in the manager) is available.
        ProxierReady = "ProxierReady",
        /// Nodes are leased, or the reason why none is. Written by the syncer.
        Leasing = "Leasing",
    }
}

super::words! {
    /// Conditions of a `ResourceLeasingPolicy`, written by the syncer of the binding that it names; where it
    /// names none, the manager says that it is not valid.
    Policy {
        /// The policy can be followed. An invalid policy leases nothing.
        Valid = "Valid",
        /// A window is open.
        Active = "Active",
        /// An older policy counts instead; the message names it.
        Shadowed = "Shadowed",
    }
}

super::words! {
    /// Conditions of V pods that we write or read.
    Pod {
        /// Ours, by the syncer before a pod that must not run twice is first created in P.
        Mapped = "kubeocean.io/Mapped",
        /// Kubernetes' own; written by the syncer on pods that a lease's end or a lost worker removes.
        DisruptionTarget = "DisruptionTarget",
        /// Kubernetes' own; in V it is P's [`Pod::ContainersReady`] and V's readiness gates.
        Ready = "Ready",
        /// Kubernetes' own; taken over from P.
        ContainersReady = "ContainersReady",
        /// Kubernetes' own; V's scheduler writes it, we never do.
        PodScheduled = "PodScheduled",
        /// Kubernetes' own; taken over from P: all init containers are done.
        Initialized = "Initialized",
        /// Kubernetes' own; taken over from P: the sandbox and its network are there.
        PodReadyToStartContainers = "PodReadyToStartContainers",
        /// Kubernetes' own; taken over from P, and away when it goes there: a resize waits.
        PodResizePending = "PodResizePending",
        /// Kubernetes' own; taken over from P, and away when it goes there: a resize is under way.
        PodResizeInProgress = "PodResizeInProgress",
        /// Kubernetes' own; taken over from P: a rule restarts all containers.
        AllContainersRestarting = "AllContainersRestarting",
    }
}

super::words! {
    /// Conditions of virtual nodes that we judge ourselves; the others are taken over from P.
    Node {
        /// Kubernetes' own: P's word, or Unknown when P does not answer.
        Ready = "Ready",
    }
}

//! Reasons: why, in one word that programs may rely on.
//!
//! Deliberately absent: messages. A reason says which case it is, the message says what to do about it.

super::words! {
    /// Reasons of a `ClusterBinding`'s conditions, and of the Events about it.
    Binding {
        /// Not looked at yet.
        Initializing = "Initializing",
        /// The spec is in order.
        ValidationPassed = "ValidationPassed",
        /// The spec, the Secret or the kubeconfig in it is not in order.
        ValidationFailed = "ValidationFailed",
        /// An older binding has this `clusterID`.
        DuplicateClusterId = "DuplicateClusterID",
        /// P's API server answers.
        ConnectivityPassed = "ConnectivityPassed",
        /// P's API server does not answer.
        ConnectivityFailed = "ConnectivityFailed",
        /// The kubeconfig leads to another cluster than before; the last good connection is kept.
        WorkerChanged = "WorkerChanged",
        /// The mount namespace does not exist in P.
        MountNamespaceMissing = "MountNamespaceMissing",
        /// Rights are missing; the message lists them.
        PermissionDenied = "PermissionDenied",
        /// The syncer was created and is not available yet.
        SyncerCreated = "SyncerCreated",
        /// The syncer is available.
        SyncerReady = "SyncerReady",
        /// The syncer cannot be created or does not become available.
        SyncerFailed = "SyncerFailed",
        /// The proxier was created and is not available yet.
        ProxierCreated = "ProxierCreated",
        /// The proxier is available.
        ProxierReady = "ProxierReady",
        /// The proxier cannot be created or does not become available.
        ProxierFailed = "ProxierFailed",
        /// No policy allows anything to be leased; the message says what to create and where.
        NoPolicy = "NoPolicy",
        /// Nodes are leased.
        Leasing = "Leasing",
        /// The binding is being taken apart.
        Deleting = "Deleting",
    }
}

super::words! {
    /// Reasons of a `ResourceLeasingPolicy`'s conditions.
    Policy {
        /// No `ClusterBinding` has the name in `spec.cluster`. The manager says so.
        NoSuchBinding = "NoSuchBinding",
        /// It can be followed.
        Accepted = "Accepted",
        /// It cannot be followed, and leases nothing.
        Invalid = "Invalid",
        /// A window is open, or there are none.
        WindowOpen = "WindowOpen",
        /// No window is open.
        WindowClosed = "WindowClosed",
        /// An older policy counts for nodes that this one means.
        OlderPolicy = "OlderPolicy",
        /// It counts for all nodes that it means.
        Counts = "Counts",
    }
}

super::words! {
    /// Reasons of a virtual node's conditions that do not come from P.
    Node {
        /// P's API server does not answer; nobody knows how the node is.
        WorkerUnreachable = "WorkerUnreachable",
    }
}

super::words! {
    /// Reasons for which a V pod is Failed without its containers having failed. A node that is full gives
    /// [`out_of`].
    Pod {
        /// The node is not leased now: no window is open, or it is departing.
        NodeNotLeased = "NodeNotLeased",
        /// The namespace does not allow its pods to run in this worker cluster.
        NodeNotAllowed = "NodeNotAllowed",
        /// The P pod was deleted behind our back while it was running.
        PhysicalPodLost = "PhysicalPodLost",
        /// P's scheduler did not place the P pod in time.
        PhysicalUnschedulable = "PhysicalUnschedulable",
    }
}

super::words! {
    /// Reasons of the condition `DisruptionTarget` that we write.
    Disruption {
        /// The lease of the node ends, and with it the pod.
        LeaseEnds = "LeaseEnds",
    }
}

super::words! {
    /// Reasons of the conditions `Ready` and `ContainersReady` of V pods, as kubelets spell them.
    Readiness {
        /// The containers are ready, and a readiness gate is not.
        ReadinessGatesNotReady = "ReadinessGatesNotReady",
        /// The pod has ended well.
        PodCompleted = "PodCompleted",
        /// The pod has failed.
        PodFailed = "PodFailed",
    }
}

super::words! {
    /// Reasons of Events that are not the reason of a condition too.
    Event {
        /// On a V pod: it is on a virtual node and will not run there; the message says why.
        NotMapped = "NotMapped",
        /// On a `ClusterBinding`: everything of it is gone from V.
        Unbound = "Unbound",
        /// On a `ClusterBinding`: it was taken apart without its worker cluster; the message says what is left there.
        ForceUnbound = "ForceUnbound",
        /// On a `ClusterBinding`: the identity that it uses in P lives in the mount namespace, whose pods could use it.
        IdentityInMountNamespace = "IdentityInMountNamespace",
        /// On a `ClusterBinding`: another binding uses the same mount namespace in P, and each can read all of it.
        SharedMountNamespace = "SharedMountNamespace",
        /// On a `ClusterBinding`: its annotation asks for a size that is none.
        UnknownSizeClass = "UnknownSizeClass",
        /// On a `ClusterBinding`: someone else writes an object of its syncer or proxier as often as it is mended.
        Contested = "Contested",
        /// On a virtual node: it is leased, or leased again.
        NodeLeased = "NodeLeased",
        /// On a virtual node: it goes; the message says why, and when its pods are removed.
        NodeLeaving = "NodeLeaving",
        /// On a virtual node: what the worker cluster says of it makes no sense.
        NodeUnreadable = "NodeUnreadable",
        /// On a virtual node: not all labels of its node could be taken over.
        LabelsOmitted = "LabelsOmitted",
        /// On a virtual node: a window has opened.
        LeaseOpened = "LeaseOpened",
        /// On a virtual node: no window is open any more.
        LeaseClosed = "LeaseClosed",
        /// On a `ClusterBinding`: an API server refuses what has to be written for it; the message says what.
        WriteRefused = "WriteRefused",
        /// On a `ClusterBinding`: the name of a virtual node is taken by a Node of someone else; the message says what it is called now.
        NameTaken = "NameTaken",
        /// On a `ClusterBinding`: something of the worker cluster may not be read; the message says what that costs.
        NotReadable = "NotReadable",
        /// On a `ClusterBinding`: pods in the worker cluster are not told where the computing cluster is; the message says how to.
        ComputingClusterUnknown = "ComputingClusterUnknown",
        /// On a V Service: pods of its namespace were started before it, and do not have its name; the message says what to do.
        ServiceAfterPods = "ServiceAfterPods",
        /// On a V pod: the node that it runs on is taken back; the message says when.
        Reclaiming = "Reclaiming",
        /// On a V claim and the pods that use it: it cannot be brought to the worker cluster yet; the message says why.
        VolumePending = "VolumePending",
        /// On a V claim and the pods that use it: the worker cluster does not take its volume; the message says why.
        VolumeRefused = "VolumeRefused",
        /// On a V Service: it is not brought to the worker cluster; the message says why.
        ServiceSkipped = "ServiceSkipped",
        /// On a V pod: its node is not taken back after all.
        ReclaimCancelled = "ReclaimCancelled",
        /// On a V pod: something that it refers to does not exist; the pod waits for it.
        DependencyMissing = "DependencyMissing",
        /// On a V pod: the worker cluster does not let it be made; the message has its words. A reason of the condition `Mapped`, too.
        FailedCreate = "FailedCreate",
        /// On a V pod: the worker cluster does not take a change of it; the message has its words.
        FailedUpdate = "FailedUpdate",
        /// On a V pod: it asks for what cannot be had in a worker cluster; the message names the field and the fix.
        NotSupported = "NotSupported",
        /// On a V pod: it cannot be read, or cannot be written down for a worker cluster.
        PodUnreadable = "PodUnreadable",
        /// On a V pod: the worker cluster gives it addresses that no pod can have; they are not taken over.
        AddressDropped = "AddressDropped",
        /// On a `CertificateSigningRequest`: a proxier's serving certificate is approved.
        CertificateApproved = "CertificateApproved",
        /// On a `CertificateSigningRequest`: a proxier may not have what it asks for; the message says why.
        CertificateDenied = "CertificateDenied",
        /// On a `CertificateSigningRequest`: something about who asks is not known; the message says what.
        CertificatePending = "CertificatePending",
    }
}

/// Reason for which a V pod is Failed when the node has too little of a resource, spelled as kubelets
/// spell it: `OutOfcpu`.
pub fn out_of(resource: &str) -> String {
    format!("OutOf{resource}")
}

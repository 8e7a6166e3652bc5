//! Annotations: what is said about an object, and the few things that people say to us through one.
//!
//! What we write on V pods is output. It is never read back as truth, because tenants may write it too.
//!
//! Deliberately absent: the formats of the values that are JSON or time; their writers own them.

super::constants! {
    /// On V pods, by the syncer with the first status: namespace of the P pod.
    PHYSICAL_POD_NAMESPACE = "kubeocean.io/physical-pod-namespace";

    /// On V pods, by the syncer with the first status: name of the P pod.
    PHYSICAL_POD_NAME = "kubeocean.io/physical-pod-name";

    /// On V pods, by the syncer with the first status: uid of the P pod.
    PHYSICAL_POD_UID = "kubeocean.io/physical-pod-uid";

    /// On V pods and virtual nodes, by the syncer: when it last wrote there. Moves only together with
    /// another change.
    LAST_SYNC_TIME = "kubeocean.io/last-sync-time";

    /// On P pods, by the syncer: namespace of the V pod.
    VIRTUAL_POD_NAMESPACE = "kubeocean.io/virtual-pod-namespace";

    /// On P pods, by the syncer: name of the V pod.
    VIRTUAL_POD_NAME = "kubeocean.io/virtual-pod-name";

    /// On P pods, by the syncer: uid of the V pod.
    VIRTUAL_POD_UID = "kubeocean.io/virtual-pod-uid";

    /// On P pods, by the syncer: name of the virtual node that the V pod is bound to.
    VIRTUAL_NODE_NAME = "kubeocean.io/virtual-node-name";

    /// On P pods, by the syncer: name of the V pod's `ServiceAccount`, for files of the downward API.
    VIRTUAL_SERVICE_ACCOUNT = "kubeocean.io/virtual-service-account";

    /// On P pods, by the syncer: `metadata.generation` of the V pod that its spec was made from.
    VIRTUAL_GENERATION = "kubeocean.io/virtual-generation";

    /// On P pods and virtual nodes, by the syncer: the keys of the labels and annotations that it put
    /// there, so that it can take back its own and leave other people's.
    EXPECTED_METADATA = "kubeocean.io/expected-metadata";

    /// On virtual nodes, by the syncer: name of the `ClusterBinding`. A label too.
    CLUSTER_BINDING = "kubeocean.io/cluster-binding";

    /// On virtual nodes and their `CSINodes`, by the syncer: name of the P node, whole, whatever its length.
    PHYSICAL_NODE_NAME = "kubeocean.io/physical-node-name";

    /// On virtual nodes, by the syncer: uid of the P node.
    PHYSICAL_NODE_UID = "kubeocean.io/physical-node-uid";

    /// On virtual nodes, by the syncer: names of the policies that its offer follows.
    POLICIES_APPLIED = "kubeocean.io/policies-applied";

    /// On virtual nodes, by the syncer: what those policies said, so that a grace period outlives the
    /// policy that granted it.
    POLICY_DETAILS = "kubeocean.io/policy-details";

    /// On virtual nodes, by the syncer: the caps on resources that its offer follows.
    RESOURCE_POLICY = "kubeocean.io/resource-policy";

    /// On virtual nodes, by the syncer: where the node's metrics are scraped.
    PROMETHEUS_URL = "kubeocean.io/prometheus-url";

    /// On virtual nodes, by the syncer: when the current window ends.
    LEASE_CLOSES_AT = "kubeocean.io/lease-closes-at";

    /// On V pods, by the syncer when a window ends under `forceReclaim`: when the pod will be removed.
    /// Taken back if the window opens again before that.
    RECLAIM_AT = "kubeocean.io/reclaim-at";

    /// On copies in P (`ConfigMap`, Secret, claim, volume, Service), by the syncer: name of the V object.
    VIRTUAL_NAME = "kubeocean.io/virtual-name";

    /// On copies in P, by the syncer: namespace of the V object.
    VIRTUAL_NAMESPACE = "kubeocean.io/virtual-namespace";

    /// On copies in P, by the syncer: uid of the V object.
    VIRTUAL_UID = "kubeocean.io/virtual-uid";

    /// On P Secrets with tokens, by the syncer: when they have to be renewed. The Secret also has the annotations of its P pod that name the
    /// V pod.
    TOKENS_RENEW_AT = "kubeocean.io/tokens-renew-at";

    /// On the proxier's Service, by the proxier: the ports that a replica could not bind; the syncer
    /// takes others.
    PORT_CONFLICT = "kubeocean.io/port-conflict";

    /// On V pods of `DaemonSets`, by users; value [`super::TRUE`]: run this pod on virtual nodes.
    RUNNING_DAEMONSET = "kubeocean.io/running-daemonset";

    /// On a `ClusterBinding`, by operators: uid of P's mount namespace. Accepts that the kubeconfig now
    /// leads to that worker cluster.
    ACCEPT_WORKER = "kubeocean.io/accept-worker";

    /// On a `ClusterBinding`, by operators: the reason. Unbinds without the worker cluster's help, and
    /// says in an Event what is left there.
    FORCE_UNBIND = "kubeocean.io/force-unbind";

    /// On a `ClusterBinding`, by operators: the size of its syncer and proxier, one of [`SIZE_CLASSES`]. Absent: by the
    /// number of nodes. On their Deployments, by the manager: the size they have.
    SIZE_CLASS = "kubeocean.io/size-class";
    /// On the objects of a syncer or proxier, by the manager: what they were made from. Another value is another wish.
    TEMPLATE_HASH = "kubeocean.io/template-hash";
    /// On V namespaces, by administrators: the bindings whose worker clusters its pods may run in.
    /// Absent: all.
    ALLOWED_CLUSTERS = "kubeocean.io/allowed-clusters";

    /// On P's mount namespace, by the lender: the kinds of volumes that pods may bring, separated by
    /// commas. Absent: [`DEFAULT_VOLUME_SOURCES`].
    ALLOWED_VOLUME_SOURCES = "kubeocean.io/allowed-volume-sources";
}

/// Values of [`SIZE_CLASS`], the smallest first.
pub const SIZE_CLASSES: &[&str] = &["small", "medium", "large"];

/// What [`ALLOWED_VOLUME_SOURCES`] is taken to be where it is absent: nothing that reaches into the node.
pub const DEFAULT_VOLUME_SOURCES: &str = "csi,nfs";

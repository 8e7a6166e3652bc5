//! Labels: what objects are selected by.
//!
//! Deliberately absent: whether a value is valid. A value that comes from a name is checked by
//! whoever derives it.

super::constants! {
    /// On everything we make, in V and P; value [`MANAGED_BY_VALUE`]. Written by its maker.
    MANAGED_BY = "kubeocean.io/managed-by";

    /// On everything we make: uid of the `ClusterBinding` it was made for. Every read and write in P is
    /// scoped by it; what carries another value is another binding's, and is left alone.
    BINDING_UID = "kubeocean.io/binding-uid";

    /// On everything we make: uid of V's namespace `kube-system`, which stands for the computing
    /// cluster. Several of them may share one P.
    VIRTUAL_CLUSTER_UID = "kubeocean.io/virtual-cluster-uid";

    /// On the objects of a syncer or proxier, by the manager: `syncer` or `proxier`.
    COMPONENT = "kubeocean.io/component";
    /// On virtual nodes and their `CSINodes`, by the syncer: name of the `ClusterBinding`. An annotation too. On the
    /// objects of a syncer or proxier, by the manager. On the Secret that `kubeocean bind` makes: with
    /// [`MANAGED_BY`] it says that the Secret goes with that binding.
    CLUSTER_BINDING = "kubeocean.io/cluster-binding";

    /// On virtual nodes and their `CSINodes`, by the syncer: the binding's `clusterID`.
    PHYSICAL_CLUSTER_ID = "kubeocean.io/physical-cluster-id";

    /// On virtual nodes and their `CSINodes`, by the syncer: name of the P node, if it is a valid label
    /// value. The annotation of the same key is always there.
    PHYSICAL_NODE_NAME = "kubeocean.io/physical-node-name";

    /// On virtual nodes, by the syncer: uid of the P node.
    PHYSICAL_NODE_UID = "kubeocean.io/physical-node-uid";

    /// On virtual nodes, by the syncer: internal IP of the P node.
    PHYSICAL_NODE_INNER_IP = "kubeocean.io/physical-node-innerip";

    /// On virtual nodes, by the syncer: the port on which the proxier serves this node's kubelet API.
    PROXIER_PORT = "kubeocean.io/proxier_port";

    /// On virtual nodes, by the syncer; value [`NODE_TYPE_VIRTUAL`].
    NODE_TYPE = "kubeocean.io/node-type";

    /// On virtual nodes, by the syncer: the binding's `clusterID`, like
    /// [`PHYSICAL_CLUSTER_ID`]; kept for those who select by it.
    CLUSTER_ID = "kubeocean.io/cluster-id";

    /// On virtual nodes, by the syncer: name of the P node, if it is a valid label value, like
    /// [`PHYSICAL_NODE_NAME`]; kept for those who select by it.
    PHYSICAL_NODE = "kubeocean.io/physical-node";

    /// On P pods, by the syncer: namespace of the V pod.
    VIRTUAL_NAMESPACE = "kubeocean.io/virtual-namespace";

    /// On P pods, by the syncer: kind of the workload that owns the V pod.
    WORKLOAD_TYPE = "kubeocean.io/workload-type";

    /// On P pods, by the syncer: name of the workload that owns the V pod.
    WORKLOAD_NAME = "kubeocean.io/workload-name";

    /// On P Secrets, by the syncer; value [`super::TRUE`]: holds service account tokens of one pod.
    SERVICE_ACCOUNT_TOKEN = "kubeocean.io/service-account-token";

    /// On P Secrets, by the syncer; value [`super::TRUE`]: a persistent volume's CSI driver refers to it.
    USED_BY_PV = "kubeocean.io/used-by-pv";

    /// On V pods in `kubeocean-fake`, by the syncer; value [`super::TRUE`]: holds host ports that are
    /// taken on the P node, and runs nothing.
    HOSTPORT_FAKE_POD = "kubeocean.io/hostport-fake-pod";
}

/// Value of [`MANAGED_BY`].
pub const MANAGED_BY_VALUE: &str = "kubeocean";

/// Value of [`NODE_TYPE`].
pub const NODE_TYPE_VIRTUAL: &str = "virtual";

/// Not ours; on virtual nodes, value [`TYPE_VIRTUAL_KUBELET`]. A P node that carries it is itself
/// virtual, and never leased.
pub const TYPE: &str = "type";

/// Value of [`TYPE`] on virtual nodes, of any maker.
pub const TYPE_VIRTUAL_KUBELET: &str = "virtual-kubelet";

/// Kubernetes' own; on virtual nodes, value [`INSTANCE_TYPE_VNODE`]; not copied from P.
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// Value of [`INSTANCE_TYPE`] on virtual nodes.
pub const INSTANCE_TYPE_VNODE: &str = "vnode";

/// Values of [`INSTANCE_TYPE`] on P nodes that are never leased: there is no machine behind them.
pub const EXCLUDED_INSTANCE_TYPES: &[&str] = &["external", INSTANCE_TYPE_VNODE, "eklet"];

/// Kubernetes' own; on virtual nodes it is the virtual node's name; not copied from P.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// Kubernetes' own; on virtual nodes: V's load balancers do not send traffic to them.
pub const EXCLUDE_FROM_LOAD_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Kubernetes' own; on virtual nodes: V's node controller does not count them when it judges whether
/// a whole zone is disrupted.
pub const EXCLUDE_DISRUPTION: &str = "node.kubernetes.io/exclude-disruption";

/// Kubernetes' own prefix of node roles; labels under it are not copied from P.
pub const NODE_ROLE_PREFIX: &str = "node-role.kubernetes.io/";

/// Kubernetes' own prefix of labels that kubelets must not set; labels under it are not copied from P.
pub const NODE_RESTRICTION_PREFIX: &str = "node-restriction.kubernetes.io/";

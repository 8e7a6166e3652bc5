//! Finalizers: who has to be asked before an object goes.
//!
//! No finalizer may outlive the binding it belongs to.

super::constants! {
    /// On a `ClusterBinding`, by the manager: its Deployments and Services are not gone yet.
    CLUSTER_BINDING_MANAGER = "kubeocean.io/clusterbinding-manager";

    /// On a `ClusterBinding`, by the syncer before its first write anywhere: what it made in V and P is not
    /// gone yet.
    CLUSTER_BINDING_SYNCER = "kubeocean.io/clusterbinding-syncer";

    /// On virtual nodes, by the syncer: pods still name the node.
    VNODE = "kubeocean.io/vnode";
}

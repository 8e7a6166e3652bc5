//! Fixed names of objects, and the fixed parts of derived ones.
//!
//! Deliberately absent: the derivation itself, with its lengths, hashes and collisions.

/// The namespace that components are installed in, unless they are told another one.
pub const INSTALL_NAMESPACE: &str = "kubeocean-system";

/// The V namespace of the placeholder pods that hold host ports.
pub const FAKE_NAMESPACE: &str = "kubeocean-fake";

/// The V namespace of the Leases of nodes.
pub const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";

/// The V namespace whose uid stands for the cluster; see
/// [`VIRTUAL_CLUSTER_UID`](super::labels::VIRTUAL_CLUSTER_UID).
pub const KUBE_SYSTEM: &str = "kube-system";

/// The namespace of Events about objects that have none.
pub const EVENT_NAMESPACE: &str = "default";

/// V namespaces whose pods are never mapped and whose Services `*` does not mean. The namespace that we
/// are installed in counts too, whatever its name.
pub const SYSTEM_NAMESPACES: &[&str] = &[
    KUBE_SYSTEM,
    "kube-public",
    NODE_LEASE_NAMESPACE,
    INSTALL_NAMESPACE,
    FAKE_NAMESPACE,
    "kidp-system",
    "flux-system",
];

/// The Lease by which managers agree on their leader.
pub const MANAGER_LEADER: &str = "kubeocean-manager-leader";

/// The manager's Deployment, `ServiceAccount` and roles.
pub const MANAGER: &str = "kubeocean-manager";

/// The `ClusterRole` of every syncer. The manager may bind it, and only it and [`PROXIER_ROLE`].
pub const SYNCER_ROLE: &str = "kubeocean-syncer";

/// The `ClusterRole` of every proxier.
pub const PROXIER_ROLE: &str = "kubeocean-proxier";

/// Name of a syncer's objects, before the `clusterID`.
pub const SYNCER_PREFIX: &str = "kubeocean-syncer-";

/// Name of a proxier's objects, before the `clusterID`.
pub const PROXIER_PREFIX: &str = "kubeocean-proxier-";

/// What follows the `clusterID` in the name of a proxier's Service.
pub const PROXIER_SERVICE_SUFFIX: &str = "-svc";

/// Name of a virtual node, before the `clusterID`.
pub const VNODE_PREFIX: &str = "vnode-";

/// `spec.providerID` of a virtual node, before `<clusterID>/<node>`.
pub const PROVIDER_ID_PREFIX: &str = "kubeocean://";

/// Key of the Secret that `secretRef` names.
pub const KUBECONFIG_KEY: &str = "kubeconfig";

/// What follows the binding's name in the name of the Secret that `kubeocean bind` makes.
pub const KUBECONFIG_SECRET_SUFFIX: &str = "-kubeconfig";

/// The P namespace that the shipped manifest makes for borrowed pods, unless told another one.
pub const WORKER_NAMESPACE: &str = "kubeocean-worker";

/// The P namespace of [`BORROWER`]. Not the one of the pods: whoever may read Secrets there would read its token.
pub const IDENTITY_NAMESPACE: &str = "kubeocean-identity";

/// The P `ServiceAccount` that we are to a worker cluster, its Role and its `RoleBinding`.
pub const BORROWER: &str = "kubeocean-borrower";

/// `ClusterRole` and `ClusterRoleBinding` of [`BORROWER`], before the mount namespace: several borrowers may
/// share a worker cluster.
pub const BORROWER_PREFIX: &str = "kubeocean-borrower-";

/// `PriorityClass` of P pods where the binding names none. Created on demand, with
/// [`DEFAULT_PRIORITY`] and [`DEFAULT_PREEMPTION_POLICY`].
pub const DEFAULT_PRIORITY_CLASS: &str = "kubeocean-default";

/// Value of [`DEFAULT_PRIORITY_CLASS`]: far below 0, which pods without a class have, so that the
/// lender's own work always comes first.
pub const DEFAULT_PRIORITY: i32 = -10_000;

/// Preemption policy of [`DEFAULT_PRIORITY_CLASS`]: borrowers push nobody out.
pub const DEFAULT_PREEMPTION_POLICY: &str = "Never";

/// P `ServiceAccount` of mapped pods: shipped, without secrets or tokens. Never `default`, which the lender
/// may have given rights.
pub const WORKLOAD_SERVICE_ACCOUNT: &str = "kubeocean-workload";

/// V Service (namespace, name) through which P pods reach V's API server.
pub const INTRANET_API_SERVER: (&str, &str) = ("default", "kubernetes-intranet");

/// V Service (namespace, name) through which P pods reach V's DNS.
pub const INTRANET_DNS: (&str, &str) = (KUBE_SYSTEM, "kube-dns-intranet");

/// V `ConfigMap` (namespace, name) that holds the CA of V's API clients.
pub const CLIENT_CA_CONFIG_MAP: (&str, &str) = (KUBE_SYSTEM, "extension-apiserver-authentication");

/// Signer of the proxier's serving certificate.
pub const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

/// Common name of the proxier's serving certificate, before the proxier's name: that signer only
/// serves nodes.
pub const SERVING_USER_PREFIX: &str = "system:node:";

/// Organization of the proxier's serving certificate, exactly.
pub const SERVING_ORGANIZATION: &str = "system:nodes";

/// Entry of a node's `status.declaredFeatures` without which API servers speak SPDY to it.
pub const EXTEND_WEBSOCKETS_FEATURE: &str = "ExtendWebSocketsToKubelet";

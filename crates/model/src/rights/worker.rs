//! Rights in a worker cluster, of the one identity that syncer and proxier share there.
//!
//! What is deliberately not asked for: any write on nodes; a Secret outside of the mount namespace; `nodes/proxy`,
//! which is exec into every pod of the lender.

use kubeocean_api::keys::names::DEFAULT_PRIORITY_CLASS;

use super::Scope::{Cluster, MountNamespace};
use super::groups::{CORE, DISCOVERY, OURS, SCHEDULING, STORAGE};
use super::{CREATE, KEEP, PATCH, READ, Right, TELL};

/// Newer API servers ask for `create` where a connection is upgraded, whatever the method; older ones ask for
/// `get` where it was GET.
const UPGRADE: &[&str] = &["get", "create"];
const GET: &[&str] = &["get"];

/// What a worker cluster is wanted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerWishes {
    /// Volumes are brought along.
    pub storage: bool,
    /// The worker cluster serves the definition of `ResourceLeasingPolicy`.
    pub policies: bool,
}

/// What the identity in a kubeconfig has to be allowed in a worker cluster.
pub fn in_worker(wishes: &WorkerWishes) -> Vec<Right> {
    let WorkerWishes { storage, policies } = *wishes;
    let mut rights = ALWAYS.to_vec();
    if storage {
        rights.extend(WITH_STORAGE);
    }
    if policies {
        rights.extend(WITH_POLICIES);
    }
    rights
}

const ALWAYS: &[Right] = &[
    // What is lent.
    Right::new(Cluster, CORE, "nodes", READ, "see which nodes there are, how they are, and mirror them"),
    Right::new(
        Cluster,
        CORE,
        "pods",
        READ,
        "count what the lender's own pods use, which is not ours to offer",
    ),
    Right::new(
        Cluster,
        STORAGE,
        "csinodes",
        READ,
        "mirror which volume drivers a node has, and how many volumes",
    ),
    Right::new(
        Cluster,
        "node.k8s.io",
        "runtimeclasses",
        READ,
        "keep a pod's runtime class where the worker has it",
    ),
    Right::new(Cluster, CORE, "nodes/metrics", GET, "show what our pods use, in `kubectl top`"),
    Right::new(Cluster, CORE, "nodes/stats", GET, "show what our pods use, in `kubectl top`"),
    Right::new(
        Cluster,
        SCHEDULING,
        "priorityclasses",
        CREATE,
        "make the class of borrowed pods once, where the lender did not; RBAC cannot say which, so a quota on the \
         mount namespace refuses pods of any other class",
    ),
    Right::new(
        Cluster,
        SCHEDULING,
        "priorityclasses",
        GET,
        "know the class of borrowed pods when it is there",
    )
    .named(&[DEFAULT_PRIORITY_CLASS]),
    // Where everything happens.
    Right::new(
        MountNamespace,
        CORE,
        "namespaces",
        GET,
        "know the worker by its uid, and what the lender wrote on it",
    ),
    Right::new(MountNamespace, CORE, "pods", KEEP, "run the pods of virtual nodes"),
    Right::new(MountNamespace, CORE, "pods/ephemeralcontainers", PATCH, "pass on `kubectl debug`"),
    Right::new(MountNamespace, CORE, "pods/resize", PATCH, "pass on a change of resources while a pod runs"),
    Right::new(MountNamespace, CORE, "pods/log", GET, "pass on `kubectl logs`"),
    Right::new(MountNamespace, CORE, "pods/exec", UPGRADE, "pass on `kubectl exec` and `kubectl cp`"),
    Right::new(MountNamespace, CORE, "pods/attach", UPGRADE, "pass on `kubectl attach`"),
    Right::new(MountNamespace, CORE, "pods/portforward", UPGRADE, "pass on `kubectl port-forward`"),
    Right::new(
        MountNamespace,
        "metrics.k8s.io",
        "pods",
        &["get", "list"],
        "show usage where kubelets cannot be asked",
    ),
    Right::new(MountNamespace, CORE, "configmaps", KEEP, "bring along what pods refer to"),
    Right::new(MountNamespace, CORE, "secrets", KEEP, "bring along what pods refer to, and their tokens"),
    Right::new(
        MountNamespace,
        CORE,
        "persistentvolumeclaims",
        KEEP,
        "bring along what pods refer to; without storage a quota allows none",
    ),
    Right::new(MountNamespace, CORE, "services", KEEP, "mirror Services of the computing cluster"),
    Right::new(
        MountNamespace,
        DISCOVERY,
        "endpointslices",
        KEEP,
        "say which pods are behind mirrored Services",
    ),
    Right::new(MountNamespace, CORE, "events", TELL, "tell the lender what happens to borrowed pods"),
];

const WITH_STORAGE: &[Right] =
    &[Right::new(Cluster, CORE, "persistentvolumes", KEEP, "bring along the volumes that pods use")];

const WITH_POLICIES: &[Right] = &[
    Right::new(Cluster, OURS, "resourceleasingpolicies", READ, "follow the lender's word"),
    Right::new(
        Cluster,
        OURS,
        "resourceleasingpolicies/status",
        PATCH,
        "say what was made of the lender's word",
    ),
];

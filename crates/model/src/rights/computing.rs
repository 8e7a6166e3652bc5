//! Rights in the computing cluster, of each component.
//!
//! The manager hands out what syncers and proxiers get. An API server lets it hand out only what it has itself, or
//! may `bind` by name: that is the reason for some of its lines, and a test holds it to that.

use kubeocean_api::keys::names::{
    CLIENT_CA_CONFIG_MAP, EVENT_NAMESPACE, FAKE_NAMESPACE, KUBE_SYSTEM, NODE_LEASE_NAMESPACE, PROXIER_PREFIX,
    PROXIER_ROLE, PROXIER_SERVICE_SUFFIX, SERVING_SIGNER, SYNCER_PREFIX, SYNCER_ROLE,
};
use serde_json::Value;

use super::Scope::{Cluster, InstallNamespace, Namespace};
use super::groups::{CERTIFICATES, COORDINATION, CORE, DISCOVERY, OURS, RBAC, STORAGE};
use super::{CREATE, KEEP, PATCH, READ, Right, TELL, rule};

/// To remove what nobody claims any more.
const SWEEP: &[&str] = &["get", "list", "watch", "delete"];

/// A component with an identity of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Component {
    /// Brings worker clusters in, and lets them go.
    Manager,
    /// Mirrors the nodes of one worker cluster, and runs pods there.
    Syncer,
    /// Answers as the kubelets of one worker cluster's virtual nodes.
    Proxier,
}

/// What a component has to be allowed in the computing cluster, whatever the binding. What one syncer or proxier
/// gets for its own binding is [`own_role`].
pub fn in_computing(component: Component) -> Vec<Right> {
    match component {
        Component::Manager => MANAGER,
        Component::Syncer => SYNCER,
        Component::Proxier => PROXIER,
    }
    .to_vec()
}

/// The rules of the Role that the manager makes in the install namespace for one syncer or proxier: only objects
/// that are its own. `secrets` are the names of the Secrets that it reads. The manager's own Role is shipped.
pub fn own_role(component: Component, cluster_id: &str, secrets: &[&str]) -> Vec<Value> {
    let mut rules = rules_of_own(component, cluster_id);
    // Without a name, all of them would be meant.
    if !secrets.is_empty() {
        rules.insert(0, rule(CORE, &["secrets"], secrets, READ));
    }
    rules
}

fn rules_of_own(component: Component, cluster_id: &str) -> Vec<Value> {
    match component {
        Component::Manager => Vec::new(),
        Component::Syncer => {
            let hold = format!("{SYNCER_PREFIX}{cluster_id}");
            let service = format!("{PROXIER_PREFIX}{cluster_id}{PROXIER_SERVICE_SUFFIX}");
            vec![
                rule(COORDINATION, &["leases"], &[&hold], &["get", "patch"]),
                // A name cannot be asked about before there is an object.
                rule(COORDINATION, &["leases"], &[], CREATE),
                rule(CORE, &["services"], &[&service], READ),
                // Their names are not known beforehand.
                rule(DISCOVERY, &["endpointslices"], &[], READ),
            ]
        }
        Component::Proxier => {
            let service = format!("{PROXIER_PREFIX}{cluster_id}{PROXIER_SERVICE_SUFFIX}");
            vec![rule(CORE, &["services"], &[&service], &["get", "patch"])]
        }
    }
}

const MANAGER: &[Right] = &[
    // Bindings and policies.
    Right::new(
        Cluster,
        OURS,
        "clusterbindings",
        &["get", "list", "watch", "patch"],
        "follow bindings, and put and take its finalizer",
    ),
    Right::new(Cluster, OURS, "clusterbindings/status", PATCH, "say how a binding is"),
    Right::new(
        Cluster,
        OURS,
        "clusterbindings/finalizers",
        &["update"],
        "make a binding the owner of its objects, where the API server checks that",
    ),
    Right::new(Cluster, OURS, "resourceleasingpolicies", READ, "find policies that name no binding"),
    Right::new(Cluster, OURS, "resourceleasingpolicies/status", PATCH, "say so on them"),
    Right::new(
        Namespace(EVENT_NAMESPACE),
        CORE,
        "events",
        TELL,
        "tell what happens to bindings: Events about objects without a namespace are there",
    ),
    Right::new(
        Cluster,
        CORE,
        "namespaces",
        &["get"],
        "know the computing cluster by a uid, and a kubeconfig that leads to it",
    ),
    // What it makes for each binding.
    Right::new(
        InstallNamespace,
        CORE,
        "secrets",
        READ,
        "read kubeconfigs, and let a syncer and a proxier read their own",
    ),
    Right::new(InstallNamespace, CORE, "serviceaccounts", KEEP, "give each syncer and proxier an identity"),
    Right::new(InstallNamespace, CORE, "services", KEEP, "make proxiers known"),
    Right::new(InstallNamespace, "apps", "deployments", KEEP, "run syncers and proxiers"),
    Right::new(InstallNamespace, "policy", "poddisruptionbudgets", KEEP, "keep one of two replicas running"),
    Right::new(InstallNamespace, "autoscaling", "horizontalpodautoscalers", KEEP, "let proxiers grow"),
    Right::new(
        InstallNamespace,
        RBAC,
        "roles",
        KEEP,
        "let a syncer and a proxier read what is their own, and nothing else",
    ),
    Right::new(
        InstallNamespace,
        RBAC,
        "rolebindings",
        KEEP,
        "let a syncer and a proxier read what is their own, and nothing else",
    ),
    Right::new(Cluster, RBAC, "clusterrolebindings", KEEP, "give each syncer and proxier its shipped role"),
    Right::new(Cluster, RBAC, "clusterroles", &["bind"], "give out these two roles, and no other")
        .named(&[SYNCER_ROLE, PROXIER_ROLE]),
    Right::new(InstallNamespace, DISCOVERY, "endpointslices", READ, "let a syncer see which proxiers answer"),
    Right::new(
        InstallNamespace,
        CORE,
        "pods",
        READ,
        "check that a certificate is asked for by the pod it is for",
    ),
    Right::new(
        InstallNamespace,
        COORDINATION,
        "leases",
        &["get", "list", "create", "patch", "delete"],
        "hold the lead, let syncers hold theirs, and remove theirs when they are gone",
    ),
    // What bindings that are gone left behind.
    Right::new(
        Cluster,
        CORE,
        "nodes",
        &["get", "list", "watch", "patch", "delete"],
        "remove virtual nodes of bindings that are gone, with their finalizer",
    ),
    Right::new(Cluster, STORAGE, "csinodes", SWEEP, "remove what bindings that are gone left"),
    Right::new(
        Namespace(NODE_LEASE_NAMESPACE),
        COORDINATION,
        "leases",
        SWEEP,
        "remove what bindings that are gone left",
    ),
    Right::new(Namespace(FAKE_NAMESPACE), CORE, "pods", SWEEP, "remove what bindings that are gone left"),
    // Certificates of proxiers.
    Right::new(
        Cluster,
        CERTIFICATES,
        "certificatesigningrequests",
        SWEEP,
        "see what proxiers ask for, and remove what is left",
    ),
    Right::new(
        Cluster,
        CERTIFICATES,
        "certificatesigningrequests/approval",
        &["patch", "update"],
        "approve the serving certificates of proxiers, after checking who asks",
    ),
    Right::new(Cluster, CERTIFICATES, "signers", &["approve"], "approve certificates of this signer only")
        .named(&[SERVING_SIGNER]),
];

const SYNCER: &[Right] = &[
    // The binding and its policies.
    Right::new(
        Cluster,
        OURS,
        "clusterbindings",
        &["get", "list", "watch", "patch"],
        "follow its binding, and put and take its finalizer",
    ),
    Right::new(Cluster, OURS, "clusterbindings/status", PATCH, "say what is leased"),
    Right::new(Cluster, OURS, "resourceleasingpolicies", READ, "follow the borrower's word"),
    Right::new(Cluster, OURS, "resourceleasingpolicies/status", PATCH, "say what was made of it"),
    // Virtual nodes.
    Right::new(Cluster, CORE, "nodes", KEEP, "make virtual nodes; admission refuses it other nodes"),
    Right::new(Cluster, CORE, "nodes/status", PATCH, "say how virtual nodes are"),
    Right::new(Cluster, STORAGE, "csinodes", KEEP, "mirror the volume drivers of virtual nodes"),
    Right::new(Namespace(NODE_LEASE_NAMESPACE), COORDINATION, "leases", KEEP, "keep virtual nodes alive"),
    Right::new(Namespace(FAKE_NAMESPACE), CORE, "pods", CREATE, "reserve host ports that others use"),
    // Pods that are bound to them.
    Right::new(
        Cluster,
        CORE,
        "pods",
        SWEEP,
        "see which pods are bound to virtual nodes, and remove them when they ended",
    ),
    Right::new(Cluster, CORE, "pods/status", PATCH, "say how pods are"),
    Right::new(Cluster, CORE, "pods/eviction", CREATE, "reclaim as disruption budgets allow"),
    Right::new(
        Cluster,
        "policy",
        "poddisruptionbudgets",
        READ,
        "know which pods to evict rather than delete",
    ),
    Right::new(Cluster, CORE, "events", TELL, "tell what happens to pods, claims and nodes"),
    // What those pods need. RBAC cannot say "of pods on our nodes".
    Right::new(Cluster, CORE, "configmaps", READ, "bring along what pods refer to"),
    Right::new(Cluster, CORE, "secrets", READ, "bring along what pods refer to"),
    Right::new(
        Cluster,
        CORE,
        "serviceaccounts/token",
        CREATE,
        "bring along the tokens of pods; admission refuses it other tokens",
    ),
    Right::new(Cluster, CORE, "persistentvolumeclaims", READ, "bring along what pods refer to"),
    Right::new(Cluster, CORE, "persistentvolumes", READ, "bring along what pods refer to"),
    Right::new(Cluster, CORE, "services", READ, "mirror Services, and tell pods of them"),
    Right::new(Cluster, DISCOVERY, "endpointslices", READ, "say which pods are behind mirrored Services"),
    Right::new(Cluster, CORE, "namespaces", READ, "know which worker clusters a namespace allows"),
];

const PROXIER: &[Right] = &[
    Right::new(Cluster, OURS, "clusterbindings", READ, "follow its binding"),
    Right::new(Cluster, CORE, "namespaces", &["get"], "know the computing cluster by a uid")
        .named(&[KUBE_SYSTEM]),
    Right::new(Cluster, CORE, "nodes", READ, "know for which virtual nodes it answers, and on which ports"),
    Right::new(Cluster, CORE, "pods", READ, "know which pod in the worker cluster a call is about"),
    Right::new(Cluster, "authentication.k8s.io", "tokenreviews", CREATE, "know who calls"),
    Right::new(Cluster, "authorization.k8s.io", "subjectaccessreviews", CREATE, "know what a caller may do"),
    Right::new(
        Namespace(CLIENT_CA_CONFIG_MAP.0),
        CORE,
        "configmaps",
        READ,
        "know which certificates of callers to trust",
    )
    .named(&[CLIENT_CA_CONFIG_MAP.1]),
    Right::new(
        Cluster,
        CERTIFICATES,
        "certificatesigningrequests",
        &["get", "list", "watch", "create"],
        "ask for its serving certificate",
    ),
];

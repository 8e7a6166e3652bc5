//! What a lender applies: an identity for the borrower, a namespace for its pods, and the limits of both.

use kubeocean_api::crd::{self, Group};
use kubeocean_api::keys::names::{
    BORROWER, BORROWER_PREFIX, DEFAULT_PREEMPTION_POLICY, DEFAULT_PRIORITY, DEFAULT_PRIORITY_CLASS,
    IDENTITY_NAMESPACE, WORKER_NAMESPACE, WORKLOAD_SERVICE_ACCOUNT,
};
use kubeocean_api::yaml::RenderError;
use kubeocean_api::{GROUP, VERSION};
use serde_json::{Value, json};

use super::{
    account, cluster_role, cluster_role_binding, described, namespace, namespaced, object, role,
    role_binding, with,
};
use crate::action::kinds;
use crate::rights::{Scope, WorkerWishes, in_worker};

/// Where clouds answer a machine's question who it is, in each family of addresses: link-local ones, and those that
/// two clouds chose outside of that range.
const METADATA: [&[&str]; 2] =
    [&["169.254.0.0/16", "100.100.100.200/32"], &["fe80::/10", "fd00:ec2::254/128"]];

/// What a lender wants to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerManifest {
    /// The namespace of borrowed pods: `mountNamespace` of the binding.
    pub namespace: String,
    /// The namespace of the identity that the borrower gets. Not the same one.
    pub identity_namespace: String,
    /// Volumes may be brought along.
    pub storage: bool,
    /// A first policy, which lends to the `ClusterBinding` of this name.
    pub with_policy: Option<String>,
    /// The definition of `ResourceLeasingPolicy`: from then on, nothing is lent without a policy here.
    pub crd: bool,
    /// Networks, as CIDRs, that borrowed pods must not reach: the API server's, for example.
    pub unreachable: Vec<String>,
}

impl Default for WorkerManifest {
    fn default() -> Self {
        Self {
            namespace: WORKER_NAMESPACE.to_owned(),
            identity_namespace: IDENTITY_NAMESPACE.to_owned(),
            storage: false,
            with_policy: None,
            crd: false,
            unreachable: Vec::new(),
        }
    }
}

/// What a lender types to grant (again) what a borrower needs in a mount namespace, for people: with the identity that the borrower has there.
/// The roles of one lender's namespace name one identity, so that the command for another one would take everything from it. `None`: that user
/// is not of the manifest's making, and no command of ours grants it anything.
pub fn how_to_grant(user: &str, mount: &str) -> Option<String> {
    let of_ours = user.strip_prefix("system:serviceaccount:")?.strip_suffix(BORROWER)?;
    let identity_namespace = of_ours.strip_suffix(':')?;
    let other = if identity_namespace == IDENTITY_NAMESPACE {
        String::new()
    } else {
        format!(" --identity-namespace {identity_namespace}")
    };
    Some(format!(
        "`kubeocean worker-manifest --namespace {mount}{other} | kubectl apply --server-side -f -` {FLAGS_AS_BEFORE}"
    ))
}

/// What is left out is taken back: volumes, and networks that are out of reach.
pub const FLAGS_AS_BEFORE: &str = "(with --storage and --unreachable as at first)";

/// The objects that a lender applies.
pub fn worker(manifest: &WorkerManifest) -> Result<Vec<Value>, RenderError> {
    let WorkerManifest { namespace: mount, identity_namespace, storage, with_policy, crd, unreachable } =
        manifest;
    // Granted where the definition is not there yet, too: it may come later, and harms nobody.
    let rights = in_worker(&WorkerWishes { storage: *storage, policies: true });
    let (everywhere, in_namespace): (Vec<_>, Vec<_>) =
        rights.into_iter().partition(|right| right.scope == Scope::Cluster);
    let cluster_wide = format!("{BORROWER_PREFIX}{mount}");
    let borrower = account(identity_namespace, BORROWER);
    let mut objects = vec![
        described(
            namespace(identity_namespace, "restricted"),
            "The identity of a borrower. Nothing runs here: who may read Secrets here may be the borrower.",
        ),
        described(
            namespace(mount, "baseline"),
            "Borrowed pods. No privileges, no host paths, no host network: PodSecurity baseline.",
        ),
        with(
            described(
                namespaced("v1", "ServiceAccount", identity_namespace, BORROWER),
                "Who the borrower is to this cluster. `kubeocean worker-kubeconfig` makes a kubeconfig of it.",
            ),
            "automountServiceAccountToken",
            false.into(),
        ),
        with(
            described(
                namespaced("v1", "ServiceAccount", mount, WORKLOAD_SERVICE_ACCOUNT),
                "Who borrowed pods are to this cluster: nobody.",
            ),
            "automountServiceAccountToken",
            false.into(),
        ),
        // Every namespace has one. No borrowed pod uses it; if one did, it would get nothing.
        with(
            namespaced("v1", "ServiceAccount", mount, "default"),
            "automountServiceAccountToken",
            false.into(),
        ),
        quota(mount, *storage),
        priority_quota(mount),
        egress(mount, unreachable),
        priority_class(),
        role(mount, BORROWER, &in_namespace),
        role_binding(mount, BORROWER, &borrower),
        cluster_role(&cluster_wide, &everywhere),
        cluster_role_binding(&cluster_wide, &borrower),
    ];
    if *crd {
        for definition in Group::Ocean.crds() {
            if definition.spec.names.plural == kinds::POLICY.plural {
                objects.push(crd::object(&definition)?);
            }
        }
    }
    objects.extend(with_policy.as_deref().map(first_policy));
    Ok(objects)
}

/// Counts that protect the lender's control plane, and none that would refuse a pod without requests. What pods use
/// is the policy's affair.
fn quota(mount: &str, storage: bool) -> Value {
    // 110 pods on each of 45 nodes; a pod brings a token and, as a rule, fewer than three other objects. All of it
    // is some 100 MB in etcd, of the 2 GB that it has by default.
    let hard = json!({
        "pods": "5000",
        "secrets": "10000",
        "configmaps": "10000",
        "services": "2000",
        "services.loadbalancers": "0",
        "services.nodeports": "0",
        "persistentvolumeclaims": if storage { "5000" } else { "0" },
    });
    let quota = described(
        namespaced("v1", "ResourceQuota", mount, "kubeocean-objects"),
        "How many objects a borrower may make here. It opens no ports of nodes and no load balancers.",
    );
    with(quota, "spec", json!({ "hard": hard }))
}

/// The borrower may create priority classes, because RBAC cannot say which. This makes any other class useless to it.
fn priority_quota(mount: &str) -> Value {
    let quota = described(
        namespaced("v1", "ResourceQuota", mount, "kubeocean-priority"),
        "No borrowed pod is more important than the lender's own: another priority class than the one below is \
         refused. To allow one, add it to the values.",
    );
    let others = json!({
        "scopeName": "PriorityClass",
        "operator": "NotIn",
        "values": [DEFAULT_PRIORITY_CLASS],
    });
    let spec = json!({ "hard": { "pods": "0" }, "scopeSelector": { "matchExpressions": [others] } });
    with(quota, "spec", spec)
}

fn egress(mount: &str, unreachable: &[String]) -> Value {
    let rule = |cidr: &str, metadata: &[&str], six: bool| {
        let more = unreachable.iter().map(String::as_str).filter(|network| network.contains(':') == six);
        let except: Vec<_> = metadata.iter().copied().chain(more).collect();
        json!({ "ipBlock": { "cidr": cidr, "except": except } })
    };
    let to = [
        // Some networks do not count pods among addresses.
        json!({ "podSelector": {} }),
        rule("0.0.0.0/0", METADATA[0], false),
        rule("::/0", METADATA[1], true),
    ];
    let policy = described(
        namespaced("networking.k8s.io/v1", "NetworkPolicy", mount, "kubeocean-egress"),
        "Keeps borrowed pods from the metadata addresses of clouds, where a machine's own credentials are, and from \
         the networks that the lender lists (`kubeocean worker-manifest --unreachable`): list the addresses of this \
         cluster's API server there, behind its Service, since most networks judge the address that a packet ends \
         up at. It does nothing where the network plugin ignores NetworkPolicies, and does not hold what pods reach \
         through an address that is not listed. The computing cluster has to stay reachable: its pods, API server \
         and DNS.",
    );
    let spec = json!({ "podSelector": {}, "policyTypes": ["Egress"], "egress": [{ "to": to }] });
    with(policy, "spec", spec)
}

fn priority_class() -> Value {
    let mut class = object("scheduling.k8s.io/v1", "PriorityClass", DEFAULT_PRIORITY_CLASS);
    class["value"] = DEFAULT_PRIORITY.into();
    class["preemptionPolicy"] = DEFAULT_PREEMPTION_POLICY.into();
    class["globalDefault"] = false.into();
    class["description"] = "Borrowed pods: they push nobody out, and go first.".into();
    class
}

/// Half of what is left, at all times, and back within five minutes: a start that hurts nobody.
fn first_policy(binding: &str) -> Value {
    let policy = object(&format!("{GROUP}/{VERSION}"), &kinds::POLICY.kind, binding);
    let half = |resource| json!({ "resource": resource, "percent": 50 });
    let spec = json!({
        "cluster": binding,
        "resourceLimits": [half("cpu"), half("memory")],
        "forceReclaim": true,
        "gracefulReclaimPeriodSeconds": 300,
    });
    with(policy, "spec", spec)
}

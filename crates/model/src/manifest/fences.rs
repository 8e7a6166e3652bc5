//! What RBAC cannot say about our own identities, said by admission: a syncer touches what belongs to its worker
//! cluster and nothing else, the manager only virtual nodes and bindings of its two roles.
//!
//! Whose a request is follows from the name of the `ServiceAccount`, `kubeocean-syncer-<clusterID>`, which only the
//! manager gives out. The policies ask for that name in any namespace: an identity that is called so is fenced
//! wherever we are installed. Only [`others`] are those of the namespace that the shipped roles name.
//!
//! Known to be open: `pods/eviction`. An API server shows an eviction to admission without its pod, so only the
//! namespace is checked. And where one `clusterID` is the beginning of another (`a` and `a-b`), the names of their
//! virtual nodes cannot be told apart; their labels can, and are, wherever an object has some.

use kubeocean_api::keys::labels::PHYSICAL_CLUSTER_ID;
use kubeocean_api::keys::names::{
    FAKE_NAMESPACE, INSTALL_NAMESPACE, NODE_LEASE_NAMESPACE, PROXIER_PREFIX, PROXIER_ROLE, SERVING_SIGNER,
    SYNCER_PREFIX, SYNCER_ROLE, SYSTEM_NAMESPACES, VNODE_PREFIX,
};
use kubeocean_api::{GROUP, VERSION};
use serde_json::{Value, json};

use super::{object, with};

const ADMISSION: &str = "admissionregistration.k8s.io/v1";

/// What a policy looks at: group, version, resources and operations.
type Rule<'a> = (&'a str, &'a str, &'a [&'a str], &'a [&'a str]);

/// How the name of the manager's account ends, in a pattern.
const MANAGER_END: &str = "kubeocean-manager$";

const WRITES: &[&str] = &["CREATE", "UPDATE", "DELETE"];

/// The admission policies that fence our own identities, each with its binding.
pub fn fences() -> Vec<Value> {
    [
        tokens(),
        nodes(),
        leases(),
        pods(),
        bindings(),
        proxiers(),
        others(),
        proxier_certificates(),
        manager_nodes(),
        manager_roles(),
        manager_certificates(),
    ]
    .concat()
}

/// A token of a service account is a pod's, and only the pod's.
fn tokens() -> Vec<Value> {
    syncer_fence(
        "tokens",
        &[("", "v1", &["serviceaccounts/token"], &["CREATE"])],
        &[
            (
                "has(object.spec.boundObjectRef) && object.spec.boundObjectRef.kind == 'Pod' && \
                 has(object.spec.boundObjectRef.name) && object.spec.boundObjectRef.name != '' && \
                 has(object.spec.boundObjectRef.uid) && object.spec.boundObjectRef.uid != ''",
                "a syncer may ask only for tokens that are bound to a pod, by name and uid",
            ),
            (
                "!(request.namespace in variables.systemNamespaces)",
                "a syncer may not ask for tokens of system namespaces",
            ),
            (
                "!has(object.spec.expirationSeconds) || object.spec.expirationSeconds <= 3600",
                "a syncer may not ask for tokens that live longer than an hour",
            ),
        ],
    )
}

/// Nodes and `CSINodes` are told apart by their label, and their names begin alike.
fn nodes() -> Vec<Value> {
    let labelled = |object: &str| {
        format!(
            "has({object}.metadata.labels) && '{PHYSICAL_CLUSTER_ID}' in {object}.metadata.labels && \
             {object}.metadata.labels['{PHYSICAL_CLUSTER_ID}'] == variables.clusterID"
        )
    };
    let before = format!("request.operation == 'CREATE' || ({})", labelled("oldObject"));
    let after = format!("request.operation == 'DELETE' || ({})", labelled("object"));
    syncer_fence(
        "nodes",
        &[("", "v1", &["nodes", "nodes/status"], WRITES), ("storage.k8s.io", "v1", &["csinodes"], WRITES)],
        &[
            (
                "request.operation != 'CREATE' || object.metadata.name.startsWith(variables.vnodePrefix)",
                "a syncer may make only virtual nodes of its own worker cluster",
            ),
            (
                &before,
                "a syncer may not touch a node that is not one of its own worker cluster's virtual nodes",
            ),
            (&after, "a syncer may not give a virtual node to another worker cluster"),
        ],
    )
}

fn leases() -> Vec<Value> {
    let ours = format!(
        "request.namespace != '{NODE_LEASE_NAMESPACE}' || \
         (request.operation == 'DELETE' ? oldObject : object).metadata.name.startsWith(variables.vnodePrefix)"
    );
    syncer_fence(
        "leases",
        &[("coordination.k8s.io", "v1", &["leases"], WRITES)],
        &[(&ours, "a syncer may write only the Leases of its own worker cluster's virtual nodes")],
    )
}

fn pods() -> Vec<Value> {
    let placeholder = format!(
        "!(request.operation == 'CREATE' && variables.subresource == '') || \
         (request.namespace == '{FAKE_NAMESPACE}' && has(object.spec.nodeName) && \
          object.spec.nodeName.startsWith(variables.vnodePrefix))"
    );
    syncer_fence(
        "pods",
        &[("", "v1", &["pods", "pods/status"], WRITES), ("", "v1", &["pods/eviction"], &["CREATE"])],
        &[
            (
                &placeholder,
                "a syncer may make only placeholder pods, on its own worker cluster's virtual nodes",
            ),
            (
                "request.operation == 'CREATE' || (has(oldObject.spec.nodeName) && \
                 oldObject.spec.nodeName.startsWith(variables.vnodePrefix))",
                "a syncer may touch only pods on its own worker cluster's virtual nodes",
            ),
            (
                "variables.subresource != 'eviction' || !(request.namespace in variables.systemNamespaces)",
                "a syncer may not evict pods of system namespaces",
            ),
        ],
    )
}

fn bindings() -> Vec<Value> {
    syncer_fence(
        "bindings",
        &[(GROUP, VERSION, &["clusterbindings", "clusterbindings/status"], &["UPDATE"])],
        &[
            (
                "oldObject.spec.clusterID == variables.clusterID",
                "a syncer may write only on the binding of its own worker cluster",
            ),
            ("object.spec == oldObject.spec", "a syncer may not change what a binding says"),
        ],
    )
}

/// Proxiers share the bindings of syncers in fixed namespaces, and need none of it.
fn proxiers() -> Vec<Value> {
    fence(
        "kubeocean-proxier",
        PROXIER_PREFIX,
        &[("coordination.k8s.io", "v1", &["leases"], WRITES), ("", "v1", &["pods"], WRITES)],
        &json!([]),
        &[("false", "a proxier writes no Leases and no pods")],
    )
}

/// Whoever else lives in our namespace, an account of somebody's sidecar or `default`, shares the bindings of syncers in fixed namespaces as well:
/// they name all accounts of that namespace, so that the manager need not give out rights there.
fn others() -> Vec<Value> {
    let whose = format!(
        "request.userInfo.username.startsWith('system:serviceaccount:{INSTALL_NAMESPACE}:') && \
         !request.userInfo.username.matches('^[^:]+:[^:]+:[^:]+:({SYNCER_PREFIX}|{PROXIER_PREFIX}|{MANAGER_END})')"
    );
    let elsewhere = format!("!(request.namespace in ['{NODE_LEASE_NAMESPACE}', '{FAKE_NAMESPACE}'])");
    fence_of(
        "kubeocean-others",
        &whose,
        &[("coordination.k8s.io", "v1", &["leases"], WRITES), ("", "v1", &["pods"], WRITES)],
        &json!([]),
        &[(&elsewhere, "only syncers and the manager write Leases of nodes and placeholder pods")],
    )
}

/// A certificate of another signer would be worth something only if somebody approved it. Nobody should be asked to. What is in a
/// request cannot be looked into here: the manager does that before it approves.
fn proxier_certificates() -> Vec<Value> {
    let signer = format!("object.spec.signerName == '{SERVING_SIGNER}'");
    fence(
        "kubeocean-proxier-certificates",
        PROXIER_PREFIX,
        &[("certificates.k8s.io", "v1", &["certificatesigningrequests"], &["CREATE"])],
        &json!([]),
        &[
            (&signer, "a proxier may ask only for certificates to serve with"),
            (
                "object.spec.usages.all(usage, usage in ['digital signature', 'key encipherment', 'server auth'])",
                "a proxier may ask only for certificates to serve with, not to call with",
            ),
            (
                "object.metadata.name.startsWith(request.userInfo.username.split(':')[3] + '-')",
                "a proxier may ask only in its own name",
            ),
        ],
    )
}

/// It may approve for one signer, and RBAC cannot say for whom.
fn manager_certificates() -> Vec<Value> {
    // Its own, where it runs proxiers itself.
    let ours = format!(
        "oldObject.spec.username == request.userInfo.username || oldObject.spec.username.startsWith('system:serviceaccount:' + \
         request.userInfo.username.split(':')[2] + ':{PROXIER_PREFIX}')"
    );
    fence(
        "kubeocean-manager-certificates",
        MANAGER_END,
        &[("certificates.k8s.io", "v1", &["certificatesigningrequests/approval"], &["UPDATE"])],
        &json!([]),
        &[(&ours, "the manager may approve only what proxiers ask for")],
    )
}

/// The manager removes what bindings that are gone left. All of it is named like this.
fn manager_nodes() -> Vec<Value> {
    // Its hold, and those of syncers, are in its own namespace.
    let virtual_only = format!(
        "(has(request.namespace) && request.namespace == request.userInfo.username.split(':')[2]) || \
         request.name.startsWith('{VNODE_PREFIX}')"
    );
    fence(
        "kubeocean-manager-nodes",
        MANAGER_END,
        &[
            ("", "v1", &["nodes", "nodes/status"], WRITES),
            ("storage.k8s.io", "v1", &["csinodes"], WRITES),
            ("coordination.k8s.io", "v1", &["leases"], WRITES),
        ],
        &json!([]),
        &[(&virtual_only, "the manager may touch only virtual nodes, and what belongs to them")],
    )
}

/// To give out two roles it may write `ClusterRoleBindings`, of which RBAC cannot say which.
fn manager_roles() -> Vec<Value> {
    let given_out = |object: &str| format!("{object}.roleRef.name in ['{SYNCER_ROLE}', '{PROXIER_ROLE}']");
    let before = format!("request.operation == 'CREATE' || {}", given_out("oldObject"));
    let after = format!("request.operation == 'DELETE' || {}", given_out("object"));
    fence(
        "kubeocean-manager-roles",
        MANAGER_END,
        &[("rbac.authorization.k8s.io", "v1", &["clusterrolebindings"], WRITES)],
        &json!([]),
        &[
            (&before, "the manager may not touch who has other roles than those it gives out"),
            (&after, "the manager may give out only the roles of syncers and proxiers"),
        ],
    )
}

fn syncer_fence(name: &str, rules: &[Rule<'_>], validations: &[(&str, &str)]) -> Vec<Value> {
    let variable = |name: &str, expression: String| json!({ "name": name, "expression": expression });
    let system: Vec<_> = SYSTEM_NAMESPACES.iter().map(|namespace| format!("'{namespace}'")).collect();
    let variables = json!([
        // system:serviceaccount:<namespace>:<name>
        variable(
            "clusterID",
            format!("request.userInfo.username.split(':')[3].substring({})", SYNCER_PREFIX.len())
        ),
        variable("vnodePrefix", format!("'{VNODE_PREFIX}' + variables.clusterID + '-'")),
        // The field is not there where it would be empty.
        variable("subresource", "has(request.subResource) ? request.subResource : ''".to_owned()),
        // The namespace that we are installed in counts too, whatever its name.
        variable(
            "systemNamespaces",
            format!("[{}, request.userInfo.username.split(':')[2]]", system.join(", "))
        ),
    ]);
    fence(&format!("{SYNCER_ROLE}-{name}"), SYNCER_PREFIX, rules, &variables, validations)
}

/// Around accounts of ours, by how their names begin.
fn fence(
    name: &str,
    account: &str,
    rules: &[Rule<'_>],
    variables: &Value,
    validations: &[(&str, &str)],
) -> Vec<Value> {
    let whose = format!("request.userInfo.username.matches('^system:serviceaccount:[^:]+:{account}')");
    fence_of(name, &whose, rules, variables, validations)
}

fn fence_of(
    name: &str,
    whose: &str,
    rules: &[Rule<'_>],
    variables: &Value,
    validations: &[(&str, &str)],
) -> Vec<Value> {
    let rules: Vec<_> = rules
        .iter()
        .map(|(group, version, resources, operations)| {
            json!({
                "apiGroups": [group],
                "apiVersions": [version],
                "resources": resources,
                "operations": operations,
            })
        })
        .collect();
    let validations: Vec<_> = validations
        .iter()
        .map(|(expression, message)| json!({ "expression": expression, "message": message, "reason": "Forbidden" }))
        .collect();
    let mut spec = json!({
        // A fence that cannot be asked is closed. It stands only around our own identities.
        "failurePolicy": "Fail",
        "matchConstraints": { "resourceRules": rules },
        "matchConditions": [{ "name": "ours", "expression": whose }],
        "validations": validations,
    });
    if variables.as_array().is_some_and(|variables| !variables.is_empty()) {
        spec["variables"] = variables.clone();
    }
    let policy = with(object(ADMISSION, "ValidatingAdmissionPolicy", name), "spec", spec);
    let binding = json!({ "policyName": name, "validationActions": ["Deny"] });
    vec![policy, with(object(ADMISSION, "ValidatingAdmissionPolicyBinding", name), "spec", binding)]
}

//! Identities and roles in the computing cluster.

use kubeocean_api::keys::names::{FAKE_NAMESPACE, INSTALL_NAMESPACE, MANAGER, PROXIER_ROLE, SYNCER_ROLE};
use serde_json::{Value, json};

use super::{
    account, cluster_role, cluster_role_binding, described, namespace, namespaced, role, role_binding,
};
use crate::rights::{Component, Right, Scope, in_computing};

/// Namespaces, the manager's identity, and the roles of all components. Syncers and proxiers get their identities
/// from the manager, one for each binding.
pub fn rbac() -> Vec<Value> {
    let mut objects = vec![
        namespace(INSTALL_NAMESPACE, "restricted"),
        described(
            // A placeholder has host ports, which the stricter levels refuse.
            namespace(FAKE_NAMESPACE, "privileged"),
            "Placeholder pods on virtual nodes: they hold host ports that others use, and run nowhere.",
        ),
        namespaced("v1", "ServiceAccount", INSTALL_NAMESPACE, MANAGER),
    ];
    let manager = account(INSTALL_NAMESPACE, MANAGER);
    let rights = in_computing(Component::Manager);
    objects.push(cluster_role(MANAGER, &within(&rights, Scope::Cluster)));
    objects.push(cluster_role_binding(MANAGER, &manager));
    objects.extend(roles(MANAGER, &rights, &manager));

    // The manager binds the cluster-wide half to each identity. The few rights in fixed namespaces are bound here,
    // to all identities of the install namespace: else the manager would have to give out rights in `kube-system`.
    // Admission refuses each of them what is another's.
    let every_account = json!({
        "apiGroup": super::RBAC,
        "kind": "Group",
        "name": format!("system:serviceaccounts:{INSTALL_NAMESPACE}"),
    });
    for (name, component) in [(SYNCER_ROLE, Component::Syncer), (PROXIER_ROLE, Component::Proxier)] {
        let rights = in_computing(component);
        objects.push(cluster_role(name, &within(&rights, Scope::Cluster)));
        objects.extend(roles(name, &rights, &every_account));
    }
    objects
}

/// A Role and its binding in each namespace that there are rights for.
fn roles(name: &str, rights: &[Right], subject: &Value) -> Vec<Value> {
    let mut scopes: Vec<_> = Vec::new();
    for scope in rights.iter().map(|right| right.scope).filter(|scope| *scope != Scope::Cluster) {
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    scopes
        .into_iter()
        .flat_map(|scope| {
            let namespace = match scope {
                Scope::Namespace(fixed) => fixed,
                Scope::Cluster | Scope::MountNamespace | Scope::InstallNamespace => INSTALL_NAMESPACE,
            };
            [role(namespace, name, &within(rights, scope)), role_binding(namespace, name, subject)]
        })
        .collect()
}

fn within(rights: &[Right], scope: Scope) -> Vec<Right> {
    rights.iter().copied().filter(|right| right.scope == scope).collect()
}

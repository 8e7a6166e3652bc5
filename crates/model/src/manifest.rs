//! Objects that people apply: what a lender lets into its cluster, and what we need in the computing cluster.
//!
//! Roles come from [`rights`](crate::rights). The same arguments give the same objects in the same order:
//! namespaces first, so that they can be applied as they come.
//!
//! Deliberately absent: applying them, and what the manager makes for each binding.

mod computing;
mod fences;
mod worker;

use serde_json::{Value, json};

use crate::rights::{Right, rules};

pub use computing::rbac;
pub use fences::fences;
pub use worker::{FLAGS_AS_BEFORE, WorkerManifest, how_to_grant, worker};

const RBAC: &str = "rbac.authorization.k8s.io";
const RBAC_V1: &str = "rbac.authorization.k8s.io/v1";

/// Says what an object is for, to whoever looks at it.
const DESCRIPTION: &str = "kubernetes.io/description";

/// An object without a namespace, marked as part of this product.
fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": kind,
        // Not our own `managed-by`: that is on what components make, and may remove.
        "metadata": { "name": name, "labels": { "app.kubernetes.io/part-of": "kubeocean" } },
    })
}

fn namespaced(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    let mut object = object(api_version, kind, name);
    object["metadata"]["namespace"] = namespace.into();
    object
}

fn described(mut object: Value, description: &str) -> Value {
    object["metadata"]["annotations"][DESCRIPTION] = description.into();
    object
}

fn with(mut object: Value, field: &str, value: Value) -> Value {
    object[field] = value;
    object
}

/// A namespace at this level of `PodSecurity`.
fn namespace(name: &str, pod_security: &str) -> Value {
    let mut object = object("v1", "Namespace", name);
    object["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = pod_security.into();
    object
}

fn cluster_role(name: &str, rights: &[Right]) -> Value {
    with(object(RBAC_V1, "ClusterRole", name), "rules", rules(rights).into())
}

fn cluster_role_binding(name: &str, subject: &Value) -> Value {
    bound(object(RBAC_V1, "ClusterRoleBinding", name), "ClusterRole", name, subject)
}

fn role(namespace: &str, name: &str, rights: &[Right]) -> Value {
    with(namespaced(RBAC_V1, "Role", namespace, name), "rules", rules(rights).into())
}

fn role_binding(namespace: &str, name: &str, subject: &Value) -> Value {
    bound(namespaced(RBAC_V1, "RoleBinding", namespace, name), "Role", name, subject)
}

fn bound(mut binding: Value, kind: &str, role: &str, subject: &Value) -> Value {
    binding["roleRef"] = json!({ "apiGroup": RBAC, "kind": kind, "name": role });
    binding["subjects"] = json!([subject]);
    binding
}

fn account(namespace: &str, name: &str) -> Value {
    json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name })
}

#[cfg(test)]
mod tests;

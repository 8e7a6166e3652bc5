//! Virtual nodes as people see them, and what they do to have them.

use std::path::Path;

use kubeocean_api::keys::labels;
use kubeocean_api::keys::taints::NODE_NOT_READY_KEY;
use kubeocean_api::{GROUP, VERSION};
use serde_json::{Value, json};

use super::place::{Place, get, text};
use crate::access::until;
use crate::manager::Manager;

/// A policy for this binding; it has the binding's name.
pub(super) fn policy(binding: &str, spec: &Value) -> Value {
    let mut policy = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ResourceLeasingPolicy",
        "metadata": {"name": binding}, "spec": spec,
    });
    policy["spec"]["cluster"] = binding.into();
    policy
}

/// Where policies are.
pub(super) fn policies() -> String {
    format!("/apis/{GROUP}/{VERSION}/resourceleasingpolicies")
}

/// A syncer of this binding, under a name of its own.
pub(super) fn syncer(place: &Place, binding: &str, name: &str) -> Manager {
    syncer_as(place, &place.kubeconfig, binding, name)
}

/// The same, as someone else.
pub(super) fn syncer_as(place: &Place, kubeconfig: &Path, binding: &str, name: &str) -> Manager {
    syncer_with(place, kubeconfig, binding, name, &["--leader-elect"])
}

/// The same, with these flags.
pub(super) fn syncer_with(
    place: &Place,
    kubeconfig: &Path,
    binding: &str,
    name: &str,
    flags: &[&str],
) -> Manager {
    let binding = format!("--cluster-binding-name={binding}");
    let flags = [&[&*binding, "--log-level=info,audit=debug"], flags].concat();
    Manager::start_as("syncer", place.sandbox.directory(), kubeconfig, name, &flags)
}

/// The virtual nodes of a binding.
pub(super) async fn vnodes(place: &Place, binding: &str) -> Result<Vec<Value>, String> {
    let path = format!("/api/v1/nodes?labelSelector={}%3D{binding}", labels::CLUSTER_BINDING);
    let list = get(&place.virt, &path).await?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// What a node says of itself.
pub(super) fn ready(node: &Value) -> Value {
    let all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|one| one["type"] == "Ready").unwrap_or_default()
}

/// The keys of its taints.
pub(super) fn taints(node: &Value) -> Vec<String> {
    let all = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    all.iter().map(|taint| text(&taint["key"])).collect()
}

/// Ready, and nobody says otherwise.
pub(super) fn usable(node: &Value) -> bool {
    ready(node)["status"] == "True" && !taints(node).iter().any(|key| key == NODE_NOT_READY_KEY)
}

/// Waits until a binding has so many virtual nodes, and each of them is so.
pub(super) async fn all_are(
    place: &Place,
    (binding, count): (&str, usize),
    what: &str,
    is_so: impl Fn(&Value) -> bool,
) -> Vec<Value> {
    until(what, async || {
        let nodes = vnodes(place, binding).await?;
        let bad = nodes.iter().find(|node| !is_so(node));
        match bad {
            Some(node) => Err(format!("{:#} {:#}", node["spec"], node["status"])),
            None if nodes.len() != count => Err(format!("{} nodes", nodes.len())),
            None => Ok(nodes),
        }
    })
    .await
}

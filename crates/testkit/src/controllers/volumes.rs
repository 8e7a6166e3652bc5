//! Volumes and claims that name each other find together; neither goes while it is used.
//!
//! Deliberately absent: choosing a volume for a claim, provisioning, recycling and attaching. Who leaves the choice to others waits for ever.

use serde_json::{Value, json};

use super::{Action, Node, is_held_by};
use crate::kinds::metadata;

const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// What the volume controllers would do.
pub(super) fn volumes(nodes: &[Node]) -> Vec<Action> {
    let mut actions = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        if node.kind.is("PersistentVolume") {
            actions.extend(volume(nodes, index));
        } else if node.kind.is("PersistentVolumeClaim")
            && is_held_by(&node.object, CLAIM_PROTECTION)
            && !is_used(nodes, node)
        {
            actions.push(without(node, index, CLAIM_PROTECTION));
        }
    }
    actions
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn without(node: &Node, index: usize, finalizer: &str) -> Action {
    let rest: Vec<_> =
        metadata::finalizers(&node.object).into_iter().filter(|one| *one != finalizer).collect();
    let patch = json!({"metadata": {"uid": node.object["metadata"]["uid"], "finalizers": rest}});
    Action::Patch { node: index, patch }
}

/// Whether a pod that has a node, and has not ended, refers to a claim.
fn is_used(nodes: &[Node], claim: &Node) -> bool {
    let pods = nodes.iter().filter(|node| node.kind.is("Pod") && node.key.namespace == claim.key.namespace);
    pods.filter(|pod| !text(&pod.object, "/spec/nodeName").is_empty())
        .filter(|pod| !matches!(text(&pod.object, "/status/phase"), "Succeeded" | "Failed"))
        .any(|pod| {
            let volumes = pod.object["spec"]["volumes"].as_array().into_iter().flatten();
            volumes.into_iter().any(|volume| {
                let ephemeral = format!("{}-{}", pod.key.name, text(volume, "/name"));
                text(volume, "/persistentVolumeClaim/claimName") == &*claim.key.name
                    || (volume.get("ephemeral").is_some() && ephemeral == *claim.key.name)
            })
        })
}

/// One step at a time: a volume remembers its claim, then says so, then the claim does.
fn volume(nodes: &[Node], index: usize) -> Option<Action> {
    let node = &nodes[index];
    let object = &node.object;
    let phase = text(object, "/status/phase");
    if is_held_by(object, VOLUME_PROTECTION) && phase != "Bound" {
        return Some(without(node, index, VOLUME_PROTECTION));
    }
    let becomes = |wanted: &str| {
        let patch = json!({"status": {"phase": wanted}});
        (phase != wanted).then_some(Action::Status { node: index, patch })
    };
    let (namespace, name) = (text(object, "/spec/claimRef/namespace"), text(object, "/spec/claimRef/name"));
    if name.is_empty() {
        return becomes("Available");
    }
    let known = text(object, "/spec/claimRef/uid");
    let claim = nodes.iter().enumerate().find(|(_, claim)| {
        claim.kind.is("PersistentVolumeClaim")
            && *claim.key.namespace == *namespace
            && *claim.key.name == *name
    });
    let claim = claim.filter(|(_, claim)| known.is_empty() || text(&claim.object, "/metadata/uid") == known);
    let Some((at, claim)) = claim else {
        return becomes(if known.is_empty() { "Available" } else { "Released" });
    };
    if text(&claim.object, "/spec/volumeName") != &*node.key.name {
        return becomes(if known.is_empty() { "Available" } else { "Released" });
    }
    let meta = &claim.object["metadata"];
    if known.is_empty() {
        let patch = json!({"spec": {"claimRef": {
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "uid": meta["uid"], "resourceVersion": meta["resourceVersion"],
        }}});
        return Some(Action::Patch { node: index, patch });
    }
    if let Some(action) = becomes("Bound") {
        return Some(action);
    }
    if text(meta, "/annotations/pv.kubernetes.io~1bind-completed").is_empty() {
        let patch = json!({"metadata": {"annotations": {BIND_COMPLETED: "yes"}}});
        return Some(Action::Patch { node: at, patch });
    }
    let status = json!({
        "phase": "Bound", "accessModes": object["spec"]["accessModes"], "capacity": object["spec"]["capacity"],
    });
    let is = &claim.object["status"];
    let differs = ["phase", "accessModes", "capacity"].iter().any(|field| is[*field] != status[*field]);
    differs.then_some(Action::Status { node: at, patch: json!({"status": status}) })
}

//! What runs next to every API server and decides what is left: the garbage collector and the end of
//! namespaces.
//!
//! Both look at the whole state after every change, a moment later: at a few hundred objects that is
//! cheaper than being clever, and it cannot forget anything.
//!
//! Deliberately absent: schedulers, kubelets, replica sets. Tests that need them bring them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::kinds::{Kind, metadata};
use crate::server::{ApiServer, State};
use crate::store::Key;

/// Who these changes are said to be by.
pub(crate) const ACTOR: &str = "kube-controller-manager";

/// A real controller needs a few milliseconds to notice; never none, so that others may come first.
const REACTION: Duration = Duration::from_millis(20);

/// Runs until dropped.
pub(crate) async fn run(server: &ApiServer) {
    let mut changes = server.changes();
    loop {
        changes.mark_unchanged();
        if !step(server) && changes.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(REACTION).await;
    }
}

/// One object as the collector sees it.
struct Node {
    key: Key,
    kind: Arc<Kind>,
    object: Arc<Value>,
}

enum Action {
    Delete { node: usize, policy: &'static str },
    Patch { node: usize, patch: Value },
    Finalize { namespace: String, object: Value },
}

/// Does what is to be done now; whether there was anything.
pub(crate) fn step(server: &ApiServer) -> bool {
    let nodes = server.with(|state| snapshot(state));
    let mut actions = collect(&nodes);
    actions.extend(namespaces(&nodes));
    let any = !actions.is_empty();
    for action in actions {
        match action {
            Action::Delete { node, policy } => {
                let node = &nodes[node];
                let body = json!({
                    "preconditions": {"uid": node.object["metadata"]["uid"]}, "propagationPolicy": policy,
                });
                server.call(ACTOR, "DELETE", &path(node), None, Some(body));
            }
            Action::Patch { node, patch } => {
                let node = &nodes[node];
                server.call(ACTOR, "PATCH", &path(node), Some("application/merge-patch+json"), Some(patch));
            }
            Action::Finalize { namespace, object } => {
                server.call(ACTOR, "PUT", &format!("/api/v1/namespaces/{namespace}/finalize"), None, Some(object));
            }
        }
    }
    any
}

fn snapshot(state: &mut State) -> Vec<Node> {
    let kinds: Vec<_> = state.kinds.all().cloned().collect();
    let mut nodes = Vec::new();
    for kind in kinds {
        for (key, object) in state.store.live(kind.id, None) {
            nodes.push(Node { key: key.clone(), kind: kind.clone(), object: object.value.clone() });
        }
    }
    nodes
}

fn path(node: &Node) -> String {
    let root = if node.kind.group.is_empty() { format!("/api/{}", node.kind.version) } else { format!("/apis/{}/{}", node.kind.group, node.kind.version) };
    if node.key.namespace.is_empty() {
        format!("{root}/{}/{}", node.kind.plural, node.key.name)
    } else {
        format!("{root}/namespaces/{}/{}/{}", node.key.namespace, node.kind.plural, node.key.name)
    }
}

fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map_or(&[], Vec::as_slice)
}

/// What the garbage collector would do.
fn collect(nodes: &[Node]) -> Vec<Action> {
    let mut by_uid: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        by_uid.insert(metadata::text(&node.object, "uid"), index);
    }
    // An owner counts if it is there: same uid, and in the same namespace or in none.
    let found = |node: &Node, owner: &Value| {
        let index = *by_uid.get(owner["uid"].as_str()?)?;
        let there = &nodes[index];
        let version = there.kind.api_version();
        let same = owner["kind"] == there.kind.kind.as_str() && owner["apiVersion"].as_str().is_some_and(|one| one.split('/').next() == version.split('/').next() || !version.contains('/'));
        (same && *there.key.name == *owner["name"].as_str()? && (there.key.namespace.is_empty() || there.key.namespace == node.key.namespace)).then_some(index)
    };
    let has = |object: &Value, finalizer: &str| metadata::is_deleting(object) && metadata::finalizers(object).contains(&finalizer);
    let mut actions = Vec::new();
    let mut dependents: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        for owner in owners(&node.object) {
            if let Some(owner) = found(node, owner) {
                dependents.entry(owner).or_default().push(index);
            }
        }
    }
    for (index, node) in nodes.iter().enumerate() {
        let references = owners(&node.object);
        if references.is_empty() || metadata::is_deleting(&node.object) && !has(&node.object, "foregroundDeletion") {
            continue;
        }
        let mut solid = Vec::new();
        let mut waiting = false;
        let mut orphaning = false;
        for owner in references {
            match found(node, owner) {
                None => {}
                Some(at) if has(&nodes[at].object, "foregroundDeletion") => waiting = true,
                Some(at) => {
                    orphaning |= has(&nodes[at].object, "orphan");
                    solid.push(owner.clone());
                }
            }
        }
        let absent = solid.len() + usize::from(waiting) < references.len();
        if orphaning {
            // Its owner lets it go; see below.
        } else if solid.is_empty() && !metadata::is_deleting(&node.object) {
            let policy = if metadata::finalizers(&node.object).contains(&"orphan") {
                "Orphan"
            } else if waiting && dependents.contains_key(&index) || metadata::finalizers(&node.object).contains(&"foregroundDeletion") {
                "Foreground"
            } else {
                "Background"
            };
            actions.push(Action::Delete { node: index, policy });
        } else if !solid.is_empty() && (absent || waiting) && !metadata::is_deleting(&node.object) {
            let uid = node.object["metadata"]["uid"].clone();
            actions.push(Action::Patch { node: index, patch: json!({"metadata": {"uid": uid, "ownerReferences": solid}}) });
        }
    }
    for (index, node) in nodes.iter().enumerate() {
        let without = |finalizer: &str| {
            let rest: Vec<_> = metadata::finalizers(&node.object).into_iter().filter(|one| *one != finalizer).collect();
            json!({"metadata": {"uid": node.object["metadata"]["uid"], "finalizers": rest}})
        };
        let uid = metadata::text(&node.object, "uid");
        let mine = dependents.get(&index).map_or(&[][..], Vec::as_slice);
        if has(&node.object, "orphan") {
            for dependent in mine {
                let rest: Vec<_> = owners(&nodes[*dependent].object).iter().filter(|owner| owner["uid"] != uid).cloned().collect();
                let patch = json!({"metadata": {"uid": nodes[*dependent].object["metadata"]["uid"], "ownerReferences": rest}});
                actions.push(Action::Patch { node: *dependent, patch });
            }
            actions.push(Action::Patch { node: index, patch: without("orphan") });
        } else if has(&node.object, "foregroundDeletion") {
            let blocked = mine.iter().any(|dependent| {
                owners(&nodes[*dependent].object).iter().any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true)
            });
            if !blocked {
                actions.push(Action::Patch { node: index, patch: without("foregroundDeletion") });
            }
        }
    }
    actions
}

/// What the namespace controller would do.
fn namespaces(nodes: &[Node]) -> Vec<Action> {
    let going: BTreeSet<&str> = nodes
        .iter()
        .filter(|node| node.kind.is("Namespace") && metadata::is_deleting(&node.object))
        .map(|node| &*node.key.name)
        .collect();
    if going.is_empty() {
        return Vec::new();
    }
    let mut full: BTreeSet<&str> = BTreeSet::new();
    let mut actions = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        if let Some(namespace) = going.get(&*node.key.namespace) {
            full.insert(namespace);
            if !metadata::is_deleting(&node.object) {
                actions.push(Action::Delete { node: index, policy: "Background" });
            }
        }
    }
    for node in nodes.iter().filter(|node| node.kind.is("Namespace") && going.contains(&*node.key.name)) {
        let finalizing = node.object["spec"]["finalizers"].as_array().is_some_and(|list| list.iter().any(|one| one == "kubernetes"));
        if !full.contains(&*node.key.name) && finalizing {
            let mut object = (*node.object).clone();
            if let Some(list) = object["spec"]["finalizers"].as_array_mut() {
                list.retain(|one| one != "kubernetes");
            }
            actions.push(Action::Finalize { namespace: node.key.name.to_string(), object });
        }
    }
    actions
}

//! What runs next to every API server and decides what is left: the garbage collector, the end of
//! namespaces, and the binding and protection of volumes.
//!
//! All look at the whole state after every change, a moment later: at a few hundred objects that is
//! cheaper than being clever, and it cannot forget anything.
//!
//! Deliberately absent: schedulers, kubelets, replica sets. Tests that need them bring them.

mod volumes;

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
    let mut seen = None;
    loop {
        changes.look();
        let (concerned, now) = server.with(|state| (concerns(state, seen), position(state)));
        seen = Some(now);
        if !concerned || !step(server) {
            changes.changed().await;
        }
        tokio::time::sleep(REACTION).await;
    }
}

/// How far a history was read, and of which history: a restored etcd has another one.
fn position(state: &State) -> (u64, u64) {
    (state.epoch, state.store.revision)
}

/// Whether any of these controllers could care for what has changed since. Most of what changes in a cluster are Leases and Nodes.
fn concerns(state: &State, seen: Option<(u64, u64)>) -> bool {
    let Some((_, revision)) = seen.filter(|(epoch, _)| *epoch == state.epoch) else { return true };
    state.store.since(revision).iter().any(|entry| {
        let (Some(old), Some(new)) = (&entry.old, &entry.new) else { return true };
        let looked_into = state.kinds.id(entry.key.kind).is_none_or(|kind| {
            ["Namespace", "Pod", "PersistentVolume", "PersistentVolumeClaim", "CustomResourceDefinition"]
                .iter()
                .any(|one| kind.is(one))
        });
        let moved = |field: &str| old.value["metadata"].get(field) != new.value["metadata"].get(field);
        looked_into || ["ownerReferences", "finalizers", "deletionTimestamp"].into_iter().any(moved)
    })
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
    Status { node: usize, patch: Value },
    Finalize { namespace: String, object: Value },
}

/// Does what is to be done now; whether there was anything.
pub(crate) fn step(server: &ApiServer) -> bool {
    let (kinds, nodes) = server.with(snapshot);
    let graph = Graph::new(&nodes, &kinds);
    let mut actions = graph.abandoned();
    actions.extend(graph.waiting());
    actions.extend(namespaces(&nodes));
    actions.extend(volumes::volumes(&nodes));
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
            Action::Status { node, patch } => {
                let path = format!("{}/status", path(&nodes[node]));
                server.call(ACTOR, "PATCH", &path, Some("application/merge-patch+json"), Some(patch));
            }
            Action::Finalize { namespace, object } => {
                server.call(
                    ACTOR,
                    "PUT",
                    &format!("/api/v1/namespaces/{namespace}/finalize"),
                    None,
                    Some(object),
                );
            }
        }
    }
    any
}

fn snapshot(state: &mut State) -> (Vec<Arc<Kind>>, Vec<Node>) {
    let kinds: Vec<_> = state.kinds.all().cloned().collect();
    let mut nodes = Vec::new();
    for kind in &kinds {
        for (key, object) in state.store.live(kind.id, None) {
            nodes.push(Node { key: key.clone(), kind: kind.clone(), object: object.value.clone() });
        }
    }
    (kinds, nodes)
}

fn path(node: &Node) -> String {
    let root = if node.kind.group.is_empty() {
        format!("/api/{}", node.kind.version)
    } else {
        format!("/apis/{}/{}", node.kind.group, node.kind.version)
    };
    if node.key.namespace.is_empty() {
        format!("{root}/{}/{}", node.kind.plural, node.key.name)
    } else {
        format!("{root}/namespaces/{}/{}/{}", node.key.namespace, node.kind.plural, node.key.name)
    }
}

fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map_or(&[], Vec::as_slice)
}

/// Who owns whom, among the objects that there are.
struct Graph<'a> {
    nodes: &'a [Node],
    served: &'a [Arc<Kind>],
    by_name: BTreeMap<&'a Key, usize>,
    /// By the uid that they name, wherever they are.
    dependents: BTreeMap<&'a str, Vec<usize>>,
}

/// What became of an owner.
enum Owner {
    There(usize),
    Gone,
    /// Nobody can tell: its kind is not served, or it would have to be in a namespace and the dependent
    /// is in none. Then nothing happens to the dependent, whatever its other owners do.
    Unknown,
}

impl<'a> Graph<'a> {
    fn new(nodes: &'a [Node], served: &'a [Arc<Kind>]) -> Self {
        let by_name = nodes.iter().enumerate().map(|(index, node)| (&node.key, index)).collect();
        let mut dependents: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (index, node) in nodes.iter().enumerate() {
            for uid in owners(&node.object).iter().filter_map(|owner| owner["uid"].as_str()) {
                dependents.entry(uid).or_default().push(index);
            }
        }
        Self { nodes, served, by_name, dependents }
    }

    /// Looks an owner up as the collector does: by kind and name, in the dependent's namespace.
    fn owner(&self, node: &Node, reference: &Value) -> Owner {
        let text = |key: &str| reference[key].as_str().unwrap_or_default();
        let kind = self
            .served
            .iter()
            .find(|one| one.kind == text("kind") && one.api_version() == text("apiVersion"));
        let Some(kind) = kind else { return Owner::Unknown };
        let namespace = match (kind.namespaced, &*node.key.namespace) {
            (true, "") => return Owner::Unknown,
            (true, own) => own,
            (false, _) => "",
        };
        match self.by_name.get(&Key::new(kind.id, namespace, text("name"))) {
            Some(index) if metadata::text(&self.nodes[*index].object, "uid") == text("uid") => {
                Owner::There(*index)
            }
            _ => Owner::Gone,
        }
    }

    fn dependents(&self, index: usize) -> &[usize] {
        let uid = metadata::text(&self.nodes[index].object, "uid");
        self.dependents.get(uid).map_or(&[], Vec::as_slice)
    }

    /// Objects whose owners are gone, or going and waiting for them.
    fn abandoned(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let references = owners(&node.object);
            if references.is_empty() || metadata::is_deleting(&node.object) {
                continue;
            }
            let mut solid = Vec::new();
            let (mut waiting, mut orphaning, mut unknown) = (false, false, false);
            for reference in references {
                let owner = match self.owner(node, reference) {
                    Owner::There(owner) => &self.nodes[owner].object,
                    Owner::Gone => continue,
                    Owner::Unknown => {
                        unknown = true;
                        continue;
                    }
                };
                if is_held_by(owner, "foregroundDeletion") {
                    waiting = true;
                } else {
                    orphaning |= is_held_by(owner, "orphan");
                    solid.push(reference.clone());
                }
            }
            let uid = &node.object["metadata"]["uid"];
            if orphaning || unknown {
                // Its owner lets it go first, or it stays.
            } else if solid.is_empty() {
                let finalizers = metadata::finalizers(&node.object);
                let policy = if finalizers.contains(&"orphan") {
                    "Orphan"
                } else if waiting && !self.dependents(index).is_empty()
                    || finalizers.contains(&"foregroundDeletion")
                {
                    "Foreground"
                } else {
                    "Background"
                };
                actions.push(Action::Delete { node: index, policy });
            } else if solid.len() < references.len() {
                actions.push(Action::Patch {
                    node: index,
                    patch: json!({"metadata": {"uid": uid, "ownerReferences": solid}}),
                });
            }
        }
        actions
    }

    /// Owners that wait for the collector: to orphan what they own, or to see it gone.
    fn waiting(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let uid = &node.object["metadata"]["uid"];
            let without = |finalizer: &str| {
                let rest: Vec<_> =
                    metadata::finalizers(&node.object).into_iter().filter(|one| *one != finalizer).collect();
                Action::Patch { node: index, patch: json!({"metadata": {"uid": uid, "finalizers": rest}}) }
            };
            if is_held_by(&node.object, "orphan") {
                for dependent in self.dependents(index) {
                    let object = &self.nodes[*dependent].object;
                    let rest: Vec<_> = owners(object).iter().filter(|owner| owner["uid"] != *uid).collect();
                    let patch =
                        json!({"metadata": {"uid": object["metadata"]["uid"], "ownerReferences": rest}});
                    actions.push(Action::Patch { node: *dependent, patch });
                }
                actions.push(without("orphan"));
            } else if is_held_by(&node.object, "foregroundDeletion") {
                let blocks = |owner: &Value| owner["uid"] == *uid && owner["blockOwnerDeletion"] == true;
                let blocked = self
                    .dependents(index)
                    .iter()
                    .any(|one| owners(&self.nodes[*one].object).iter().any(blocks));
                if !blocked {
                    actions.push(without("foregroundDeletion"));
                }
            }
        }
        actions
    }
}

/// Whether a deleted object is there only because of a finalizer of the collector.
fn is_held_by(object: &Value, finalizer: &str) -> bool {
    metadata::is_deleting(object) && metadata::finalizers(object).contains(&finalizer)
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
        let finalizing = node.object["spec"]["finalizers"]
            .as_array()
            .is_some_and(|list| list.iter().any(|one| one == "kubernetes"));
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

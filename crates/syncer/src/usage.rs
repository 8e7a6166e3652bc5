//! Who uses how much of each node of the worker cluster, and which of its ports.
//!
//! Kept from one pod event to the next: a pod that changes costs what one pod costs, however many there are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kubeocean_api::keys::{annotations, labels};
use kubeocean_cluster::store::{Change, Entry, Shape};
use kubeocean_model::hostports::{self, HostPort};
use kubeocean_model::key::{Key, Physical, Virtual};
use kubeocean_model::lease::{Ledger, User};
use kubeocean_model::object::Object;
use kubeocean_model::quantity::Quantity;
use kubeocean_model::requests;
use kubeocean_model::resources::{PODS, Resources};
use parking_lot::Mutex;

use crate::world::Subject;

/// What is kept of a pod of the worker cluster.
#[derive(Debug)]
pub struct SeenPod {
    namespace: Box<str>,
    node: Option<Arc<str>>,
    binding_uid: Option<Box<str>>,
    /// Of which V pod it is the twin, if it says so.
    pub(crate) virtual_uid: Option<Box<str>>,
    pub(crate) virtual_key: Option<Key<Virtual>>,
    /// All of it, if it is a twin of anyone's.
    pub(crate) twin: Option<Box<Object>>,
    /// Nothing once it has ended.
    requests: Resources,
    ports: Box<[HostPort]>,
}

impl Shape for SeenPod {
    fn of(object: Object) -> Self {
        let spec = object.raw("spec").map_or("{}", serde_json::value::RawValue::get);
        let status = object.raw("status").map(serde_json::value::RawValue::get);
        let meta = &object.meta;
        // A pod that cannot be read is a pod all the same.
        let one_pod = || [(PODS, Quantity::whole(1))].into_iter().collect();
        let requests = requests::of_pod(spec, status).unwrap_or_else(|_| one_pod());
        let annotation = |key: &str| meta.annotations.get(key);
        let virtual_key = annotation(annotations::VIRTUAL_POD_NAMESPACE)
            .zip(annotation(annotations::VIRTUAL_POD_NAME))
            .map(|(namespace, name)| Key::new(namespace, name));
        let virtual_uid: Option<Box<str>> = annotation(annotations::VIRTUAL_POD_UID).map(Into::into);
        let binding_uid: Option<Box<str>> = meta.labels.get(labels::BINDING_UID).map(Into::into);
        let ports = if requests.is_empty() { Vec::new() } else { hostports::of_pod(spec) };
        Self {
            node: object.text("spec", &["nodeName"]).filter(|node| !node.is_empty()).map(Into::into),
            namespace: meta.namespace.clone(),
            twin: (binding_uid.is_some() && virtual_uid.is_some()).then(|| Box::new(object)),
            binding_uid,
            virtual_uid,
            virtual_key,
            requests,
            ports: ports.into_boxed_slice(),
        }
    }
}

impl SeenPod {
    /// Whether it is one that this binding made.
    pub(crate) fn is_ours(&self, subject: &Subject) -> bool {
        self.user(subject) == User::Ours
    }

    fn user(&self, subject: &Subject) -> User {
        User::stamped(&self.namespace, self.binding_uid.as_deref(), &subject.uid, &subject.mount_namespace)
    }
}

/// One node's pods.
#[derive(Debug, Default)]
struct OfNode {
    ledger: Ledger,
    /// Host ports of others, by pod.
    ports: BTreeMap<Box<str>, Box<[HostPort]>>,
}

/// The ledgers of all nodes. Clones are the same.
#[derive(Clone)]
pub struct Usage {
    nodes: Arc<Mutex<HashMap<Arc<str>, OfNode>>>,
    /// How many pods are ours and have not ended, wherever they are.
    ours: Arc<AtomicUsize>,
    subject: Subject,
}

impl Usage {
    pub(crate) fn new(subject: &Subject) -> Self {
        Self { nodes: Arc::default(), ours: Arc::default(), subject: subject.clone() }
    }

    /// Enters a change. Says which nodes it matters to.
    pub(crate) fn follow(&self, change: &Change<'_, Physical, SeenPod>) -> Vec<Arc<str>> {
        // What has ended is history, and counts no more.
        let is_ours = |seen: &Arc<Entry<SeenPod>>| seen.is_ours(&self.subject) && !seen.requests.is_empty();
        match (change.old.is_some_and(is_ours), change.new.is_some_and(is_ours)) {
            (false, true) => _ = self.ours.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.ours.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
        let mut nodes = self.nodes.lock();
        let mut changed = Vec::new();
        let node = |seen: &Arc<Entry<SeenPod>>| seen.node.clone();
        let (before, after) = (change.old.and_then(node), change.new.and_then(node));
        if let (Some(node), Some(old)) = (&before, change.old)
            && (before != after || change.new.is_none_or(|new| new.uid != old.uid))
            && let Some(known) = nodes.get_mut(node)
        {
            let ports = known.ports.remove(&old.uid).is_some();
            if known.ledger.remove(&old.uid) || ports {
                changed.push(Arc::clone(node));
            }
            if known.ledger.is_empty() && known.ports.is_empty() {
                nodes.remove(node);
            }
        }
        if let (Some(node), Some(new)) = (after, change.new) {
            let known = nodes.entry(Arc::clone(&node)).or_default();
            let user = new.user(&self.subject);
            let ports = if user == User::Ours { &[][..] } else { &new.ports };
            let same_ports = known.ports.get(&new.uid).map_or(ports.is_empty(), |known| **known == *ports);
            if ports.is_empty() {
                known.ports.remove(&new.uid);
            } else if !same_ports {
                known.ports.insert(new.uid.clone(), ports.into());
            }
            if known.ledger.put(&new.uid, user, new.requests.clone()) || !same_ports {
                changed.push(Arc::clone(&node));
            }
        }
        changed.dedup();
        changed
    }

    /// How many pods this binding made that have not ended.
    pub(crate) fn ours(&self) -> usize {
        self.ours.load(Ordering::Relaxed)
    }

    /// Looks at the ledger of a node.
    pub(crate) fn with<R>(&self, node: &str, look: impl FnOnce(&Ledger) -> R) -> R {
        match self.nodes.lock().get(node) {
            Some(known) => look(&known.ledger),
            None => look(&Ledger::default()),
        }
    }

    /// Host ports that others have on a node.
    pub(crate) fn ports(&self, node: &str) -> BTreeSet<HostPort> {
        let nodes = self.nodes.lock();
        nodes.get(node).into_iter().flat_map(|known| known.ports.values().flatten().cloned()).collect()
    }
}

//! Noticing that a kubeconfig Secret changed that cannot be watched.
//!
//! Secrets of the manager's own namespace are watched. One of another namespace is read by name, which is the only right that
//! the manager has there, every few seconds; when it is not what it was, its worker cluster is looked at again at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::error::CallError;
use kubeocean_cluster::queue::Verdict;
use kubeocean_model::action::kinds;
use kubeocean_model::key::{Key, Virtual};
use parking_lot::Mutex;

use crate::world::{Queues, World};

/// A change has to be noticed, and the new connection tried and used, within five seconds.
const READ_EVERY: Duration = Duration::from_secs(2);

/// How a Secret was found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Version(String),
    Absent,
    Forbidden,
}

/// Reads the Secrets of other namespaces. Clones are the same.
#[derive(Clone)]
pub(crate) struct Secrets {
    virt: Cluster<Virtual>,
    world: World,
    queues: Queues,
    namespace: Arc<str>,
    /// By the binding's uid.
    seen: Arc<Mutex<BTreeMap<String, Seen>>>,
}

impl Secrets {
    /// `namespace`: the one whose Secrets are watched.
    pub(crate) fn new(virt: &Cluster<Virtual>, world: &World, queues: &Queues, namespace: &str) -> Self {
        Self {
            virt: virt.clone(),
            world: world.clone(),
            queues: queues.clone(),
            namespace: namespace.into(),
            seen: Arc::default(),
        }
    }

    /// One look at the Secret of a binding.
    pub(crate) async fn look(&self, key: &Key<Virtual>) -> Verdict {
        let Some(binding) = self.world.bindings.get(key) else {
            self.seen.lock().retain(|uid, _| self.world.by_uid(uid).is_some());
            return Verdict::Done;
        };
        let Ok(wish) = &binding.0.parsed else { return Verdict::Done };
        if *wish.secret_namespace == *self.namespace {
            return Verdict::Done;
        }
        let secret = Key::new(wish.secret_namespace.as_str(), wish.secret_name.as_str());
        let now = match self.virt.get(&kinds::SECRET, &secret).await {
            Ok(Some(found)) => Seen::Version(found.meta.resource_version.to_string()),
            Ok(None) => Seen::Absent,
            Err(CallError::Refused(status)) if status.code == 403 => Seen::Forbidden,
            // V is in trouble, which says nothing about the Secret.
            Err(_) => return Verdict::Again(READ_EVERY),
        };
        let before = self.seen.lock().insert(binding.0.meta.uid.to_string(), now.clone());
        if before.is_some_and(|before| before != now) {
            self.queues.probes.reset(key.clone());
        }
        Verdict::Again(READ_EVERY)
    }
}

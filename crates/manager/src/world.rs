//! What the manager knows of V.
//!
//! A standby keeps all of it current, so that it can lead at once.

use std::sync::Arc;

use futures::future::BoxFuture;
use kubeocean_api::keys::annotations::{ACCEPT_WORKER, FORCE_UNBIND, SIZE_CLASS};
use kubeocean_api::keys::labels;
use kubeocean_api::keys::names::{FAKE_NAMESPACE, NODE_LEASE_NAMESPACE};
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::informer::{Builder, Informer};
use kubeocean_cluster::progress::Progress;
use kubeocean_cluster::queue::{Queue, QueueKey};
use kubeocean_cluster::store::{Change, Entry, Index, Shape, Store};
use kubeocean_model::action::{Kind, kinds};
use kubeocean_model::bind::{BindingObject, CHILD_KINDS, Existing, Leftover, Served, served};
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::nameless::PolicyObject;
use kubeocean_model::naming::ClusterId;
use kubeocean_model::object::{Meta, Object};

use crate::certificates::Asked;

/// A binding, as it is kept.
#[derive(Debug)]
pub struct SeenBinding(pub BindingObject);

impl Shape for SeenBinding {
    fn of(object: Object) -> Self {
        Self(BindingObject::read(&object))
    }
}

/// A policy, as it is kept.
#[derive(Debug)]
pub struct SeenPolicy(pub PolicyObject);

impl Shape for SeenPolicy {
    fn of(object: Object) -> Self {
        Self(PolicyObject::read(&object))
    }
}

/// Of everything else, who it is.
#[derive(Debug)]
pub struct SeenMeta(pub Meta);

impl Shape for SeenMeta {
    fn of(object: Object) -> Self {
        Self(object.meta)
    }
}

static BY_UID: Index<SeenBinding> = Index::new("uid", |seen| vec![seen.0.meta.uid.to_string()]);

static BY_SECRET: Index<SeenBinding> = Index::new("secret", |seen| {
    let secret = |binding: &kubeocean_model::binding::Binding| {
        format!("{}/{}", binding.secret_namespace, binding.secret_name)
    };
    seen.0.parsed.iter().map(secret).collect()
});

static BY_CLUSTER_ID: Index<SeenBinding> =
    Index::new("clusterID", |seen| seen.0.claims().map(str::to_owned).into_iter().collect());

static CHILD_OF: Index<Object> =
    Index::new("binding", |object| served(&object.meta).map(word).into_iter().collect());

static LEFT_BY: Index<SeenMeta> =
    Index::new("binding", |seen| served(&seen.0).map(word).into_iter().collect());

/// What the objects of a binding are found under.
fn words(binding: &BindingObject) -> [String; 2] {
    [Served::Uid(&binding.meta.uid), Served::Name(&binding.meta.name)].map(word)
}

fn word(served: Served<'_>) -> String {
    match served {
        Served::Uid(uid) => uid.to_owned(),
        // No uid has a slash.
        Served::Name(name) => format!("name/{name}"),
    }
}

/// One object that may be nobody's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Suspect {
    /// Which of the kinds that are swept.
    pub kind: Kind,
    /// Which object.
    pub key: Key<Virtual>,
}

impl QueueKey for Suspect {
    fn class(&self) -> &'static str {
        "suspects"
    }
}

/// Who is told what changed.
#[derive(Clone)]
pub struct Queues {
    /// Bindings to be planned for.
    pub bindings: Queue<Key<Virtual>>,
    /// Bindings whose worker clusters are to be looked at.
    pub probes: Queue<Key<Virtual>>,
    /// Bindings whose Secrets are to be read.
    pub secrets: Queue<Key<Virtual>>,
    /// Policies to be judged.
    pub policies: Queue<Key<Virtual>>,
    /// Objects that may be nobody's.
    pub suspects: Queue<Suspect>,
    /// Certificates that are asked for.
    pub requests: Queue<Key<Virtual>>,
}

/// The stores. Clones are the same.
#[derive(Clone)]
pub struct World {
    /// All bindings.
    pub bindings: Store<Virtual, SeenBinding>,
    /// All policies of V.
    pub policies: Store<Virtual, SeenPolicy>,
    /// Secrets of the manager's own namespace, without content.
    pub secrets: Store<Virtual, SeenMeta>,
    /// What runs syncers and proxiers, by kind.
    pub children: Arc<Vec<(Kind, Store<Virtual, Object>)>>,
    /// What syncers make in V, by kind.
    pub leftovers: Arc<Vec<(Kind, Store<Virtual, SeenMeta>)>>,
    /// Certificates that are asked for, and who may ask.
    pub asked: Asked,
    /// The manager's own namespace.
    namespace: Arc<str>,
}

/// A loop that keeps a store current.
pub type Watching = (String, BoxFuture<'static, ()>);

impl World {
    /// The stores, and the loops that keep them current.
    pub fn watch(virt: &Cluster<Virtual>, namespace: &str, queues: &Queues) -> (Self, Vec<Watching>) {
        let mut loops = Vec::new();
        let secrets =
            Informer::<Virtual, SeenMeta>::of(virt, kinds::SECRET).namespace(namespace).metadata_only();
        let policies = Informer::<Virtual, SeenPolicy>::of(virt, kinds::POLICY);
        let news = queues.policies.clone();
        let (informer, _switch) = policies.on_change(move |change| news.add(change.key.clone())).build();
        let policies = informer.store();
        loops.push(("policies".to_owned(), Box::pin(informer.run()) as BoxFuture<'static, ()>));

        let bindings = Informer::<Virtual, SeenBinding>::of(virt, kinds::BINDING)
            .indexed_by(&BY_UID)
            .indexed_by(&BY_SECRET)
            .indexed_by(&BY_CLUSTER_ID);
        // The handlers need the very stores that they are the handlers of.
        let known: Arc<parking_lot::RwLock<Option<World>>> = Arc::default();
        let (world, told) = (Arc::clone(&known), queues.clone());
        let (informer, _switch) = bindings
            .on_change(move |change| {
                if let Some(world) = &*world.read() {
                    world.binding_changed(&told, change);
                }
            })
            .build();
        let bindings = informer.store();
        loops.push(("bindings".to_owned(), Box::pin(informer.run())));

        let (of, told) = (bindings.clone(), queues.probes.clone());
        let (informer, _switch) = secrets
            .on_change(move |change| {
                // A list repeats what is known.
                let version = |seen: &Arc<Entry<SeenMeta>>| seen.resource_version.clone();
                if change.old.map(version) == change.new.map(version) {
                    return;
                }
                for key in of.keys_by(&BY_SECRET, &change.key.to_string()) {
                    told.reset(key);
                }
            })
            .build();
        let secrets = informer.store();
        loops.push(("secrets".to_owned(), Box::pin(informer.run())));

        let mut children = Vec::new();
        for kind in CHILD_KINDS {
            let mut informer = Informer::<Virtual, Object>::of(virt, kind.clone())
                .keep(|object| served(&object.meta).is_some());
            // Of cluster-scoped kinds there may be thousands that are not ours.
            informer = if kind.namespaced { informer.namespace(namespace) } else { ours(informer) };
            let (of, told, which) = (bindings.clone(), queues.clone(), kind.clone());
            let (informer, _switch) = informer
                .indexed_by(&CHILD_OF)
                .on_change(move |change| {
                    let seen = change.old.into_iter().chain(change.new);
                    tell_owners(&of, &told, &which, change.key, seen.map(|child| served(&child.meta)));
                })
                .build();
            children.push((kind.clone(), informer.store()));
            loops.push((kind.plural.to_string(), Box::pin(informer.run())));
        }

        let mut leftovers = Vec::new();
        let swept = [
            (kinds::NODE, None),
            (kinds::CSI_NODE, None),
            (kinds::LEASE, Some(NODE_LEASE_NAMESPACE)),
            (kinds::POD, Some(FAKE_NAMESPACE)),
            (kinds::SIGNING_REQUEST, None),
        ];
        for (kind, namespace) in swept {
            let mut informer = ours(Informer::<Virtual, SeenMeta>::of(virt, kind.clone())).metadata_only();
            if let Some(namespace) = namespace {
                informer = informer.namespace(namespace);
            }
            let (of, told, which) = (bindings.clone(), queues.clone(), kind.clone());
            let (informer, _switch) = informer
                .indexed_by(&LEFT_BY)
                .on_change(move |change| {
                    let seen = change.old.into_iter().chain(change.new);
                    tell_owners(&of, &told, &which, change.key, seen.map(|seen| served(&seen.0)));
                })
                .build();
            leftovers.push((kind.clone(), informer.store()));
            loops.push((kind.plural.to_string(), Box::pin(informer.run())));
        }
        let (asked, more) = Asked::watch(virt, namespace, &queues.requests);
        loops.extend(more);
        let world = Self {
            bindings,
            policies,
            secrets,
            children: Arc::new(children),
            leftovers: Arc::new(leftovers),
            asked,
            namespace: namespace.into(),
        };
        *known.write() = Some(world.clone());
        (world, loops)
    }

    /// How far each store has come, by name.
    pub fn progress(&self) -> Vec<(String, Progress)> {
        let mut all = vec![
            ("clusterbindings".to_owned(), self.bindings.progress().clone()),
            ("policies".to_owned(), self.policies.progress().clone()),
            ("secrets".to_owned(), self.secrets.progress().clone()),
            ("requests".to_owned(), self.asked.requests.progress().clone()),
            ("proxier pods".to_owned(), self.asked.pods.progress().clone()),
        ];
        all.extend(
            self.children.iter().map(|(kind, store)| (kind.plural.to_string(), store.progress().clone())),
        );
        all.extend(
            self.leftovers.iter().map(|(kind, store)| (kind.plural.to_string(), store.progress().clone())),
        );
        all
    }

    /// Waits until every store was complete once.
    pub async fn synced(&self) {
        for (_, progress) in self.progress() {
            progress.synced().await;
        }
    }

    /// The binding with this uid.
    pub fn by_uid(&self, uid: &str) -> Option<Arc<Entry<SeenBinding>>> {
        self.bindings.by(&BY_UID, uid).into_iter().next()
    }

    /// Whether a binding has this `clusterID`.
    pub fn is_bound(&self, cluster_id: &str) -> bool {
        !self.bound_as(cluster_id).is_empty()
    }

    /// The bindings that have this `clusterID`.
    pub fn bound_as(&self, cluster_id: &str) -> Vec<Key<Virtual>> {
        self.bindings.keys_by(&BY_CLUSTER_ID, cluster_id)
    }

    /// The older binding that has the `clusterID` of this one.
    pub fn rival(&self, object: &BindingObject) -> Option<String> {
        let same = self.bindings.by(&BY_CLUSTER_ID, object.claims()?);
        let rival =
            same.iter().find(|other| other.0.meta.uid != object.meta.uid && other.0.precedes(object))?;
        Some(rival.0.meta.name.to_string())
    }

    /// Others that are bound to the same mount namespace.
    pub fn neighbours(&self, object: &BindingObject, worker_uid: Option<&str>) -> Vec<String> {
        let Some(worker_uid) = worker_uid else { return Vec::new() };
        let all = self.bindings.all();
        let others = all.iter().map(|(_, other)| &other.0).filter(|other| other.meta.uid != object.meta.uid);
        others
            .filter(|other| other.bound_to() == Some(worker_uid))
            .map(|other| other.meta.name.to_string())
            .collect()
    }

    /// The objects of a binding's syncer and proxier.
    pub fn children_of(&self, binding: &BindingObject) -> Vec<Existing> {
        let words = words(binding);
        let of = |(kind, store): &(Kind, Store<Virtual, Object>)| -> Vec<Existing> {
            let found = words.iter().flat_map(|word| store.by(&CHILD_OF, word));
            found.map(|entry| Existing { kind: kind.clone(), object: Object::clone(&entry) }).collect()
        };
        self.children.iter().flat_map(of).collect()
    }

    /// What a binding's syncer left in V.
    pub fn leftovers_of(&self, binding: &BindingObject) -> Vec<Leftover> {
        let words = words(binding);
        let of = |(kind, store): &(Kind, Store<Virtual, SeenMeta>)| -> Vec<Leftover> {
            let found = words.iter().flat_map(|word| store.by(&LEFT_BY, word));
            found.map(|entry| Leftover { kind: kind.clone(), meta: entry.0.clone() }).collect()
        };
        self.leftovers.iter().flat_map(of).collect()
    }

    /// A suspect, as it is now.
    pub fn find(&self, suspect: &Suspect) -> Option<Leftover> {
        let Suspect { kind, key } = suspect;
        let left = self.leftovers.iter().find(|(known, _)| known == kind);
        let meta = match left {
            Some((_, store)) => store.get(key)?.0.clone(),
            None => self.children.iter().find(|(known, _)| known == kind)?.1.get(key)?.meta.clone(),
        };
        Some(Leftover { kind: kind.clone(), meta })
    }

    /// Whom it concerns when a binding changes.
    fn binding_changed(&self, queues: &Queues, change: &Change<'_, Virtual, SeenBinding>) {
        let Change { key, old, new } = change;
        let asks = |seen: &Arc<Entry<SeenBinding>>| {
            let meta = &seen.0.meta;
            let wishes = [ACCEPT_WORKER, FORCE_UNBIND, SIZE_CLASS]
                .map(|wish| meta.annotations.get(wish).map(str::to_owned));
            (meta.generation, meta.is_deleting(), wishes)
        };
        // What failed may succeed now; but not for each word that we say about it ourselves.
        if old.map(asks) == new.map(asks) {
            queues.bindings.add((*key).clone());
        } else {
            queues.secrets.add((*key).clone());
            queues.probes.reset((*key).clone());
            queues.bindings.reset((*key).clone());
        }
        let right = |seen: &Arc<Entry<SeenBinding>>| {
            (seen.0.claims().map(str::to_owned), seen.0.bound_to().map(str::to_owned))
        };
        if old.map(right) != new.map(right) {
            self.asked.wake(&queues.requests);
            // Its clusterID may be another's now.
            for id in old.iter().chain(new).filter_map(|seen| seen.0.claims()) {
                for other in
                    self.bindings.keys_by(&BY_CLUSTER_ID, id).into_iter().filter(|other| other != *key)
                {
                    queues.probes.reset(other.clone());
                    queues.bindings.reset(other);
                }
            }
        }
        // Of a name that was given to another one while nobody listened, only the uid tells.
        let uid = |seen: &Arc<Entry<SeenBinding>>| seen.0.meta.uid.clone();
        if old.map(uid) == new.map(uid) {
            return;
        }
        for (other, _) in self.bindings.all() {
            queues.bindings.add(other);
        }
        for (policy, _) in self.policies.all() {
            queues.policies.add(policy);
        }
        self.asked.wake(&queues.requests);
        if let Some(gone) = old {
            for child in self.children_of(&gone.0) {
                queues.suspects.add(Suspect { kind: child.kind, key: child.object.key() });
            }
            for (kind, store) in self.leftovers.iter() {
                for (key, _) in store.all() {
                    queues.suspects.add(Suspect { kind: kind.clone(), key });
                }
            }
            if let Some(id) = gone.0.claims().and_then(|id| ClusterId::parse(id).ok()) {
                let hold = Key::new(&*self.namespace, id.syncer().as_str());
                queues.suspects.add(Suspect { kind: kinds::LEASE, key: hold });
            }
        }
    }
}

fn ours<T: Shape>(informer: Builder<Virtual, T>) -> Builder<Virtual, T> {
    informer.labels(format!("{}={}", labels::MANAGED_BY, labels::MANAGED_BY_VALUE))
}

fn tell_owners<'a>(
    bindings: &Store<Virtual, SeenBinding>,
    queues: &Queues,
    kind: &Kind,
    key: &Key<Virtual>,
    whose: impl Iterator<Item = Option<Served<'a>>>,
) {
    for served in whose {
        let mut owners = match served {
            Some(Served::Uid(uid)) => bindings.keys_by(&BY_UID, uid),
            Some(Served::Name(name)) => vec![Key::cluster_scoped(name)],
            None => Vec::new(),
        };
        owners.retain(|owner| bindings.get(owner).is_some());
        if owners.is_empty() {
            queues.suspects.add(Suspect { kind: kind.clone(), key: key.clone() });
        }
        for owner in owners {
            queues.bindings.add(owner);
        }
    }
}

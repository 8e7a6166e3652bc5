//! What a syncer knows of both sides.
//!
//! A standby keeps all of it current, so that it can lead at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use kubeocean_api::keys::names::VNODE_PREFIX;
use kubeocean_api::keys::{annotations, labels};
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::informer::Informer;
use kubeocean_cluster::progress::{Progress, Step};
use kubeocean_cluster::queue::{Queue, QueueKey};
use kubeocean_cluster::store::{Change, Entry, Index, Shape, Store};
use kubeocean_model::action::{Kind, kinds};
use kubeocean_model::bind::BindingObject;
use kubeocean_model::csinode::CsiNode;
use kubeocean_model::key::{Key, Physical, Side, Virtual};
use kubeocean_model::object::Object;
use kubeocean_model::reclaim::VirtualPod;
use kubeocean_model::selector::LabelSelector;
use kubeocean_model::vnode::{PhysicalNode, Tenure, VirtualNode};
use parking_lot::Mutex;

use crate::usage::{SeenPod, Usage};

/// Pods of others come in crowds. A node whose pods change is looked at a second later, once for all of them.
const CROWD: std::time::Duration = std::time::Duration::from_secs(1);

/// The binding, as it is kept.
#[derive(Debug)]
pub struct SeenBinding(pub BindingObject);

impl Shape for SeenBinding {
    fn of(object: Object) -> Self {
        Self(BindingObject::read(&object))
    }
}

/// A virtual node, as it is kept.
#[derive(Debug)]
pub struct SeenVnode(pub VirtualNode);

impl Shape for SeenVnode {
    fn of(object: Object) -> Self {
        Self(VirtualNode::read(&object))
    }
}

/// A worker cluster's node, as it is kept; or what cannot be read of it.
#[derive(Debug)]
pub struct SeenNode(pub Result<PhysicalNode, String>);

impl Shape for SeenNode {
    fn of(object: Object) -> Self {
        Self(PhysicalNode::read(&object))
    }
}

/// A pod on a virtual node, as it is kept.
#[derive(Debug)]
pub struct SeenVirtualPod(pub VirtualPod);

impl Shape for SeenVirtualPod {
    fn of(object: Object) -> Self {
        Self(VirtualPod::read(&object))
    }
}

/// A `CSINode`, as it is kept.
#[derive(Debug)]
pub struct SeenCsiNode(pub CsiNode);

impl Shape for SeenCsiNode {
    fn of(object: Object) -> Self {
        Self(CsiNode::read(&object))
    }
}

/// A disruption budget: which pods it means.
#[derive(Debug)]
pub struct SeenBudget {
    namespace: String,
    selector: Option<LabelSelector>,
}

impl Shape for SeenBudget {
    fn of(object: Object) -> Self {
        let spec = object.field::<serde_json::Value>("spec").ok().flatten().unwrap_or_default();
        let selector = serde_json::from_value(spec["selector"].clone()).ok();
        Self {
            namespace: object.meta.namespace.to_string(),
            // One that cannot be read means none: an eviction is refused by the server where it knows better.
            selector: selector.and_then(|selector| LabelSelector::parse(Some(&selector)).ok()),
        }
    }
}

static OF_NODE: Index<SeenVnode> = Index::new("node", |seen| vec![seen.0.physical_name.clone()]);
static ON_NODE: Index<SeenVirtualPod> = Index::new("node", |seen| vec![seen.0.node.clone()]);
static IN_NAMESPACE: Index<SeenBudget> = Index::new("namespace", |seen| vec![seen.namespace.clone()]);
pub(crate) static TWIN_OF: Index<SeenPod> =
    Index::new("virtual", |seen| seen.virtual_uid.iter().map(ToString::to_string).collect());

/// What there is to look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Duty {
    /// The binding: finalizer, condition, counts.
    Binding,
    /// A policy of either side.
    Policy(Side, Arc<str>),
    /// A node of the worker cluster, and all that V has of it.
    Node(Arc<str>),
    /// A pod on a virtual node.
    Pod(Key<Virtual>),
}

impl QueueKey for Duty {
    fn class(&self) -> &'static str {
        match self {
            Self::Binding => "binding",
            Self::Policy(..) => "policies",
            Self::Node(_) => "nodes",
            Self::Pod(_) => "pods",
        }
    }
}

/// For whom a syncer works.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The binding's name.
    pub binding: Arc<str>,
    /// The binding's uid: another one of that name is another's job.
    pub uid: Arc<str>,
    /// Its `clusterID`, which never changes.
    pub cluster_id: kubeocean_model::naming::ClusterId,
    /// P namespace of what we make there, which never changes either.
    pub mount_namespace: Arc<str>,
    /// Where we are installed.
    pub install_namespace: Arc<str>,
    /// Uid that stands for the computing cluster.
    pub virtual_cluster: Arc<str>,
}

/// The stores. Clones are the same.
#[derive(Clone)]
pub struct World {
    /// The binding.
    pub bindings: Store<Virtual, SeenBinding>,
    /// Its virtual nodes.
    pub vnodes: Store<Virtual, SeenVnode>,
    /// Their `CSINodes`.
    pub virtual_csi: Store<Virtual, SeenCsiNode>,
    /// Pods on virtual nodes, of any binding.
    pub pods: Store<Virtual, SeenVirtualPod>,
    /// Disruption budgets.
    pub budgets: Store<Virtual, SeenBudget>,
    /// The borrower's policies.
    pub virtual_policies: Store<Virtual, Object>,
    /// The worker cluster's nodes.
    pub nodes: Store<Physical, SeenNode>,
    /// Their `CSINodes`.
    pub physical_csi: Store<Physical, SeenCsiNode>,
    /// Its pods, as far as they count.
    pub physical_pods: Store<Physical, SeenPod>,
    /// The lender's policies.
    pub physical_policies: Store<Physical, Object>,
    /// What virtual nodes remembered last, by name: for those from which someone takes it away.
    tenures: Tenures,
    /// How often policies have changed.
    pub(crate) policy_edits: Arc<AtomicU64>,
    /// Who uses how much of each node.
    pub usage: Usage,
    /// Endpoints of the proxier.
    pub endpoints: Store<Virtual, Object>,
}

/// A loop that keeps a store current.
pub type Watching = (String, BoxFuture<'static, ()>);

impl World {
    /// The stores, and the loops that keep them current.
    pub fn watch(
        virt: &Cluster<Virtual>,
        phys: &Cluster<Physical>,
        subject: &Subject,
        queue: &Queue<Duty>,
        leases: &Queue<String>,
    ) -> (Self, Vec<Watching>) {
        let mut loops = Vec::new();
        let physical_nodes = Informer::<Physical, SeenNode>::of(phys, kinds::NODE);
        let told = queue.clone();
        let (informer, _switch) = physical_nodes
            .on_change(move |change| told.add(Duty::Node(Arc::clone(&change.key.name))))
            .build();
        let nodes = informer.store();
        loops.push(("worker nodes".to_owned(), Box::pin(informer.run()) as BoxFuture<'static, ()>));

        let known: Known = Arc::default();
        let tenures = Tenures::default();
        let (vnodes, watching) = virtual_nodes(virt, subject, &known, &tenures, queue, leases);
        loops.push(("virtual nodes".to_owned(), watching));
        let (pods, watching) = virtual_pods(virt, &vnodes, queue);
        loops.push(("pods".to_owned(), watching));
        let (bindings, watching) = the_binding(virt, subject, &known, queue);
        loops.push(("binding".to_owned(), watching));

        let (virtual_csi, watching) = csi_nodes(virt, Some(&subject.uid), queue, |seen| {
            let on = seen.0.meta.annotations.get(annotations::PHYSICAL_NODE_NAME);
            on.unwrap_or_default().to_owned()
        });
        loops.push(("virtual CSINodes".to_owned(), watching));
        let (physical_csi, watching) = csi_nodes(phys, None, queue, |seen| seen.0.meta.name.to_string());
        loops.push(("worker CSINodes".to_owned(), watching));

        let budgets =
            Informer::<Virtual, SeenBudget>::of(virt, kinds::DISRUPTION_BUDGET).indexed_by(&IN_NAMESPACE);
        let (informer, _switch) = budgets.build();
        let budgets = informer.store();
        loops.push(("disruption budgets".to_owned(), Box::pin(informer.run())));

        let policy_edits = Arc::default();
        let (virtual_policies, watching) = policies(virt, &known, queue, &policy_edits);
        loops.push(("policies".to_owned(), watching));
        let (physical_policies, watching) = policies(phys, &known, queue, &policy_edits);
        loops.push(("worker policies".to_owned(), watching));

        let usage = Usage::new(subject);
        let (kept, told) = (usage.clone(), queue.clone());
        let (informer, _switch) = Informer::<Physical, SeenPod>::of(phys, kinds::POD)
            .indexed_by(&TWIN_OF)
            .on_change(move |change| {
                for node in kept.follow(change) {
                    told.add_after(Duty::Node(node), CROWD);
                }
                let twins = change.old.into_iter().chain(change.new);
                for key in twins.filter_map(|pod| pod.virtual_key.clone()) {
                    told.add(Duty::Pod(key));
                }
            })
            .build();
        let physical_pods = informer.store();
        loops.push(("worker pods".to_owned(), Box::pin(informer.run())));

        let service = subject.cluster_id.proxier_service();
        let (world, told) = (Arc::clone(&known), queue.clone());
        let (informer, _switch) = Informer::<Virtual, Object>::of(virt, kinds::ENDPOINT_SLICE)
            .namespace(&*subject.install_namespace)
            .labels(format!("kubernetes.io/service-name={service}"))
            .on_change(move |_| {
                if let Some(world) = &*world.read() {
                    world.look_at_nodes(&told);
                }
            })
            .build();
        let endpoints = informer.store();
        loops.push(("endpoints of the proxier".to_owned(), Box::pin(informer.run())));

        let world = Self {
            bindings,
            vnodes,
            virtual_csi,
            pods,
            budgets,
            virtual_policies,
            nodes,
            physical_csi,
            physical_pods,
            physical_policies,
            tenures,
            policy_edits,
            usage,
            endpoints,
        };
        *known.write() = Some(world.clone());
        (world, loops)
    }

    /// How far the stores of V have come, by name.
    pub fn virtual_progress(&self) -> Vec<(&'static str, Progress)> {
        vec![
            ("clusterbindings", self.bindings.progress().clone()),
            ("nodes", self.vnodes.progress().clone()),
            ("csinodes", self.virtual_csi.progress().clone()),
            ("pods", self.pods.progress().clone()),
            ("poddisruptionbudgets", self.budgets.progress().clone()),
            ("resourceleasingpolicies", self.virtual_policies.progress().clone()),
            ("endpointslices", self.endpoints.progress().clone()),
        ]
    }

    /// How far the stores of P have come, by name. Without these nothing is known of its nodes.
    pub fn physical_progress(&self) -> Vec<(&'static str, Progress)> {
        vec![
            ("worker nodes", self.nodes.progress().clone()),
            ("worker pods", self.physical_pods.progress().clone()),
        ]
    }

    /// Waits until every store of V was complete once.
    pub async fn virtually_synced(&self) {
        for (_, progress) in self.virtual_progress() {
            progress.synced().await;
        }
    }

    /// Everything is to be looked at.
    pub fn look_at_everything(&self, queue: &Queue<Duty>) {
        queue.reset(Duty::Binding);
        self.look_at_nodes(queue);
        for (key, _) in self.pods.all() {
            queue.add(Duty::Pod(key));
        }
        self.look_at_policies(queue);
    }

    /// All policies are to be looked at.
    pub fn look_at_policies(&self, queue: &Queue<Duty>) {
        for (key, _) in self.virtual_policies.all() {
            queue.add(Duty::Policy(Side::Virtual, key.name));
        }
        for (key, _) in self.physical_policies.all() {
            queue.add(Duty::Policy(Side::Physical, key.name));
        }
    }

    /// All nodes are to be looked at, those of which only a virtual node is left included.
    pub fn look_at_nodes(&self, queue: &Queue<Duty>) {
        for (key, _) in self.nodes.all() {
            queue.add(Duty::Node(key.name));
        }
        for (_, vnode) in self.vnodes.all() {
            queue.add(Duty::Node(vnode.0.physical_name.as_str().into()));
        }
    }

    /// The virtual node of a P node.
    pub fn vnode_of(&self, node: &str) -> Option<Arc<Entry<SeenVnode>>> {
        self.vnodes.by(&OF_NODE, node).into_iter().next()
    }

    /// What a virtual node remembers of its lease: as it was written last, also if no watch has told of that yet, and as it was before
    /// someone took it away. `None`: nobody knows.
    pub fn tenure_of(&self, vnode: &VirtualNode) -> Option<Tenure> {
        let tenures = self.tenures.0.lock();
        let known = tenures.get(vnode.name()).filter(|known| *known.uid == *vnode.meta.uid);
        let newer = known.filter(|known| known.written.is_some() || vnode.tenure.is_forgotten());
        newer
            .map(|known| known.tenure.clone())
            .or_else(|| (!vnode.tenure.is_forgotten()).then(|| vnode.tenure.clone()))
    }

    /// We wrote what a virtual node remembers. Its pods are judged by that from now on, and not when a watch tells of it: what was called
    /// off must not be done.
    pub(crate) fn note_tenure(&self, vnode: &str, uid: &str, tenure: Tenure, version: Option<u64>) {
        let seen = self.vnodes.get(&Key::cluster_scoped(vnode));
        let seen = seen.and_then(|seen| seen.0.meta.resource_version.parse::<u64>().ok());
        let written = version.filter(|version| seen.is_none_or(|seen| seen < *version));
        if written.is_some() {
            self.tenures.0.lock().insert(vnode.to_owned(), Remembered { uid: uid.into(), tenure, written });
        }
    }

    /// The pods on a virtual node.
    pub fn pods_on(&self, vnode: &str) -> Vec<Arc<Entry<SeenVirtualPod>>> {
        self.pods.by(&ON_NODE, vnode)
    }

    /// Whether a disruption budget means a pod.
    pub fn has_budget(&self, pod: &VirtualPod) -> bool {
        let labels = pod.meta.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let budgets = self.budgets.by(&IN_NAMESPACE, &pod.meta.namespace);
        budgets
            .iter()
            .any(|budget| budget.selector.as_ref().is_some_and(|selector| selector.matches(&labels)))
    }
}

/// The last tenure of each virtual node. Clones are the same.
#[derive(Clone, Default)]
struct Tenures(Arc<Mutex<BTreeMap<String, Remembered>>>);

struct Remembered {
    uid: Box<str>,
    tenure: Tenure,
    /// The version that has it, where we wrote that and no watch has told of it yet.
    written: Option<u64>,
}

impl Tenures {
    fn follow(&self, change: &Change<'_, Virtual, SeenVnode>) {
        let mut all = self.0.lock();
        let Some(seen) = change.new else {
            all.remove(&*change.key.name);
            return;
        };
        let meta = &seen.0.meta;
        let written = all.get(&*change.key.name).filter(|known| *known.uid == *meta.uid);
        let is_old = written
            .and_then(|known| known.written)
            .is_some_and(|version| meta.resource_version.parse::<u64>().is_ok_and(|seen| seen < version));
        if !is_old && !seen.0.tenure.is_forgotten() {
            let (uid, tenure) = (meta.uid.clone(), seen.0.tenure.clone());
            all.insert(change.key.name.to_string(), Remembered { uid, tenure, written: None });
        }
    }

    /// What a list says counts: etcd may have been restored, and its versions be those of another history.
    fn trust_the_list(&self) {
        for known in self.0.lock().values_mut() {
            known.written = None;
        }
    }
}

type Known = Arc<parking_lot::RwLock<Option<World>>>;

/// The virtual nodes, with what they remember of their leases.
fn virtual_nodes(
    cluster: &Cluster<Virtual>,
    subject: &Subject,
    known: &Known,
    tenures: &Tenures,
    queue: &Queue<Duty>,
    leases: &Queue<String>,
) -> (Store<Virtual, SeenVnode>, BoxFuture<'static, ()>) {
    let uid = Arc::clone(&subject.uid);
    let (world, told, renewed) = (Arc::clone(known), queue.clone(), leases.clone());
    let remembered = tenures.clone();
    let (informer, _switch) = Informer::<Virtual, SeenVnode>::of(cluster, kinds::NODE)
        .labels(format!("{}={}", labels::CLUSTER_BINDING, subject.binding))
        // Those of older installations have no uid.
        .keep(move |object| object.meta.labels.get(labels::BINDING_UID).is_none_or(|of| *of == *uid))
        .indexed_by(&OF_NODE)
        .on_change(move |change| {
            remembered.follow(change);
            if change.old.is_none() {
                renewed.add(change.key.name.to_string());
            }
            for vnode in change.old.into_iter().chain(change.new) {
                told.add(Duty::Node(vnode.0.physical_name.as_str().into()));
            }
            told.add_after(Duty::Binding, CROWD);
            // What it remembers is what becomes of its pods.
            let tenure = |seen: &Arc<Entry<SeenVnode>>| seen.0.tenure.clone();
            if change.old.map(tenure) != change.new.map(tenure)
                && let Some(world) = &*world.read()
            {
                for pod in world.pods.keys_by(&ON_NODE, &change.key.name) {
                    told.add(Duty::Pod(pod));
                }
            }
        })
        .build();
    let listed = tenures.clone();
    informer.store().progress().listen(move |step| {
        if matches!(step, Step::List) {
            listed.trust_the_list();
        }
        true
    });
    (informer.store(), Box::pin(informer.run()))
}

/// Pods on virtual nodes.
fn virtual_pods(
    cluster: &Cluster<Virtual>,
    vnodes: &Store<Virtual, SeenVnode>,
    queue: &Queue<Duty>,
) -> (Store<Virtual, SeenVirtualPod>, BoxFuture<'static, ()>) {
    let (of, told) = (vnodes.clone(), queue.clone());
    let (informer, _switch) = Informer::<Virtual, SeenVirtualPod>::of(cluster, kinds::POD)
        .keep(|object| object.text("spec", &["nodeName"]).is_some_and(|node| node.starts_with(VNODE_PREFIX)))
        .indexed_by(&ON_NODE)
        .on_change(move |change| {
            told.add(Duty::Pod(change.key.clone()));
            let seen = change.old.into_iter().chain(change.new);
            for vnode in seen.filter_map(|pod| of.get(&Key::cluster_scoped(pod.0.node.as_str()))) {
                // A node that leaves waits for it; placeholders are part of it.
                told.add(Duty::Node(vnode.0.physical_name.as_str().into()));
            }
        })
        .build();
    (informer.store(), Box::pin(informer.run()))
}

/// The binding: what it asks for concerns everything.
fn the_binding(
    cluster: &Cluster<Virtual>,
    subject: &Subject,
    known: &Known,
    queue: &Queue<Duty>,
) -> (Store<Virtual, SeenBinding>, BoxFuture<'static, ()>) {
    let (world, told, of) = (Arc::clone(known), queue.clone(), subject.clone());
    let (informer, _switch) = Informer::<Virtual, SeenBinding>::of(cluster, kinds::BINDING)
        .fields(format!("metadata.name={}", subject.binding))
        .on_change(move |change| {
            told.reset(Duty::Binding);
            let asks = |seen: &Arc<Entry<SeenBinding>>| {
                (seen.0.meta.generation, seen.0.meta.is_deleting(), seen.0.meta.finalizers.clone())
            };
            let concerns = change.new.is_some_and(|seen| *seen.0.meta.uid == *of.uid);
            if concerns
                && change.old.map(asks) != change.new.map(asks)
                && let Some(world) = &*world.read()
            {
                world.look_at_everything(&told);
            }
        })
        .build();
    (informer.store(), Box::pin(informer.run()))
}

/// Policies of one side: whatever changes about one of them may concern every node.
fn policies<S: kubeocean_model::key::OnSide>(
    cluster: &Cluster<S>,
    known: &Known,
    queue: &Queue<Duty>,
    edits: &Arc<AtomicU64>,
) -> (Store<S, Object>, BoxFuture<'static, ()>) {
    let (world, told, edits) = (Arc::clone(known), queue.clone(), Arc::clone(edits));
    let informer = Informer::<S, Object>::of(cluster, kinds::POLICY);
    let (informer, _switch) = informer
        .on_change(move |change: &Change<'_, S, Object>| {
            edits.fetch_add(1, Ordering::Relaxed);
            told.add(Duty::Policy(S::SIDE, Arc::clone(&change.key.name)));
            let asks = |seen: &Arc<Entry<Object>>| (seen.uid.clone(), seen.meta.generation);
            if change.old.map(asks) != change.new.map(asks)
                && let Some(world) = &*world.read()
            {
                world.look_at_nodes(&told);
                told.add(Duty::Binding);
            }
        })
        .build();
    (informer.store(), Box::pin(informer.run()))
}

fn csi_nodes<S: kubeocean_model::key::OnSide>(
    cluster: &Cluster<S>,
    binding_uid: Option<&str>,
    queue: &Queue<Duty>,
    node: fn(&Entry<SeenCsiNode>) -> String,
) -> (Store<S, SeenCsiNode>, BoxFuture<'static, ()>) {
    let kind: Kind = kinds::CSI_NODE;
    let mut informer = Informer::<S, SeenCsiNode>::of(cluster, kind);
    if let Some(uid) = binding_uid {
        informer = informer.labels(format!("{}={uid}", labels::BINDING_UID));
    }
    let told = queue.clone();
    let (informer, _switch) = informer
        .on_change(move |change| {
            for seen in change.old.into_iter().chain(change.new) {
                told.add(Duty::Node(node(seen).into()));
            }
        })
        .build();
    (informer.store(), Box::pin(informer.run()))
}

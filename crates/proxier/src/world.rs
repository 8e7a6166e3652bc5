//! What a proxier knows: the binding, its virtual nodes, the pods on them, and their twins.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kubeocean_api::keys::names::VNODE_PREFIX;
use kubeocean_api::keys::{annotations, labels};
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::connector::Worker;
use kubeocean_cluster::informer::Informer;
use kubeocean_cluster::progress::Progress;
use kubeocean_cluster::store::{Index, Shape, Store};
use kubeocean_model::action::kinds;
use kubeocean_model::bind::BindingObject;
use kubeocean_model::binding::Binding;
use kubeocean_model::key::{Key, Physical, Virtual};
use kubeocean_model::kubelet::{BoundPod, NOT_NOW, PhysicalTwin, PodRoute, Refusal, TwinQuestion};
use kubeocean_model::naming::{Origin, Port};
use kubeocean_model::object::Object;
use kubeocean_model::stamp::Stamp;
use kubeocean_model::usage_series::{Tenant, Tenants};
use kubeocean_model::vnode::VirtualNode;
use tokio::sync::Notify;

use crate::metering::{Ground, Machine, kubelet_address};

/// For whom a proxier answers.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The binding. What of it may change is read from the store.
    pub binding: Arc<Binding>,
    /// Uid of the computing cluster.
    pub virtual_cluster: Arc<str>,
    /// Where Kubeocean is installed.
    pub install_namespace: Arc<str>,
}

impl Subject {
    fn stamp(&self) -> Stamp<'_> {
        Stamp { binding: &self.binding, virtual_cluster: &self.virtual_cluster }
    }

    /// What an object of the worker cluster is to us: the twin of a V pod, or nothing.
    fn twin(&self, object: &Object) -> Option<PhysicalTwin> {
        let meta = &object.meta;
        let is_ours = self.stamp().is_ours(meta) && *meta.namespace == *self.binding.mount_namespace;
        let uid =
            meta.annotations.get(annotations::VIRTUAL_POD_UID).filter(|uid| is_ours && !uid.is_empty())?;
        Some(PhysicalTwin { key: object.key(), virtual_uid: uid.into() })
    }
}

/// What is kept of a virtual node.
#[derive(Debug)]
pub struct SeenVnode {
    /// The port that it is served on.
    pub port: Option<Port>,
    /// The P node that it is of.
    pub physical_name: Box<str>,
}

impl Shape for SeenVnode {
    fn of(object: Object) -> Self {
        let vnode = VirtualNode::read(&object);
        Self { port: vnode.port(), physical_name: vnode.physical_name.into() }
    }
}

/// What is kept of a pod on a virtual node.
#[derive(Debug)]
pub struct SeenPod(pub BoundPod);

impl Shape for SeenPod {
    fn of(object: Object) -> Self {
        Self(BoundPod::read(&object))
    }
}

/// What is kept of a pod that was made for the binding. Only those are kept that were.
#[derive(Debug)]
pub struct SeenTwin {
    /// Whose it is.
    pub twin: PhysicalTwin,
    /// The V pod that it was made for.
    pub of: Key<Virtual>,
    /// The node that it is on; empty: none yet.
    pub node: Box<str>,
    /// Whether it uses the network of that machine.
    pub host_network: bool,
}

#[derive(serde::Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct TwinSpec {
    node_name: Box<str>,
    host_network: bool,
}

impl Shape for SeenTwin {
    fn of(object: Object) -> Self {
        let said = |key| object.meta.annotations.get(key).unwrap_or_default();
        let spec = object.field::<TwinSpec>("spec").ok().flatten().unwrap_or_default();
        Self {
            of: Key::new(said(annotations::VIRTUAL_POD_NAMESPACE), said(annotations::VIRTUAL_POD_NAME)),
            twin: PhysicalTwin { key: object.key(), virtual_uid: said(annotations::VIRTUAL_POD_UID).into() },
            node: spec.node_name,
            host_network: spec.host_network,
        }
    }
}

static OF_VIRTUAL: Index<SeenTwin> =
    Index::new("virtual uid", |seen| vec![seen.twin.virtual_uid.to_string()]);
static ON_NODE: Index<SeenTwin> = Index::new("node", |seen| vec![seen.node.to_string()]);

/// What is kept of a node of the worker cluster: where its kubelet is.
#[derive(Debug)]
pub struct SeenMachine(Option<SocketAddr>);

impl Shape for SeenMachine {
    fn of(object: Object) -> Self {
        Self(kubelet_address(&object))
    }
}

/// The stores. Clones are the same.
#[derive(Clone)]
pub struct World {
    /// For whom.
    pub subject: Subject,
    /// The binding.
    pub bindings: Store<Virtual, BindingObject>,
    /// Its virtual nodes.
    pub vnodes: Store<Virtual, SeenVnode>,
    /// Pods on virtual nodes of whatever binding.
    pub pods: Store<Virtual, SeenPod>,
    /// Their twins.
    pub twins: Store<Physical, SeenTwin>,
    /// The nodes of the worker cluster.
    pub machines: Store<Physical, SeenMachine>,
    virt: Cluster<Virtual>,
    phys: Cluster<Physical>,
    /// A virtual node came, went, or has another port.
    pub(crate) moved: Arc<Notify>,
}

/// Keeps one store current, for as long as it is polled.
pub(crate) type Watching = (&'static str, BoxFuture<'static, ()>);

impl World {
    /// The stores, empty yet, and what keeps them current.
    pub(crate) fn new(
        virt: &Cluster<Virtual>,
        phys: &Cluster<Physical>,
        subject: &Subject,
    ) -> (Self, Vec<Watching>) {
        let binding = &subject.binding;
        let moved = Arc::new(Notify::new());
        let told = Arc::clone(&moved);
        let (bindings, _) = Informer::<Virtual, BindingObject>::of(virt, kinds::BINDING)
            .fields(format!("metadata.name={}", binding.name))
            .build();
        let (vnodes, _) = Informer::<Virtual, SeenVnode>::of(virt, kinds::NODE)
            .labels(format!("{}={}", labels::BINDING_UID, binding.uid))
            .on_change(move |_| told.notify_one())
            .build();
        let is_on_one = |object: &Object| {
            object.text("spec", &["nodeName"]).is_some_and(|node| node.starts_with(VNODE_PREFIX))
        };
        let (pods, _) = Informer::<Virtual, SeenPod>::of(virt, kinds::POD).keep(is_on_one).build();
        let owner = subject.clone();
        let stamp = format!(
            "{}={},{}={}",
            labels::BINDING_UID,
            binding.uid,
            labels::VIRTUAL_CLUSTER_UID,
            subject.virtual_cluster
        );
        let (twins, _) = Informer::<Physical, SeenTwin>::of(phys, kinds::POD)
            .namespace(binding.mount_namespace.as_str())
            .labels(stamp)
            .keep(move |object| owner.twin(object).is_some())
            .indexed_by(&OF_VIRTUAL)
            .indexed_by(&ON_NODE)
            .build();
        let (machines, _) = Informer::<Physical, SeenMachine>::of(phys, kinds::NODE).build();
        let world = Self {
            subject: subject.clone(),
            bindings: bindings.store(),
            vnodes: vnodes.store(),
            pods: pods.store(),
            twins: twins.store(),
            machines: machines.store(),
            virt: virt.clone(),
            phys: phys.clone(),
            moved,
        };
        let watching: Vec<Watching> = vec![
            ("binding", bindings.run().boxed()),
            ("virtual nodes", vnodes.run().boxed()),
            ("pods", pods.run().boxed()),
            ("twins", twins.run().boxed()),
            ("machines", machines.run().boxed()),
        ];
        (world, watching)
    }

    /// What the binding says of its worker cluster.
    pub(crate) fn worker(&self) -> Worker {
        let key = Key::cluster_scoped(self.subject.binding.name.as_str());
        let seen = self.bindings.get(&key).filter(|seen| *seen.uid == *self.subject.binding.uid);
        Worker::of(seen.as_ref().map(|seen| &***seen))
    }

    /// How far the stores of the computing cluster have come.
    pub(crate) fn virtual_progress(&self) -> [(&'static str, &Progress); 3] {
        [
            ("binding", self.bindings.progress()),
            ("virtual nodes", self.vnodes.progress()),
            ("pods", self.pods.progress()),
        ]
    }

    /// Whether a virtual node is this binding's.
    pub(crate) fn has(&self, vnode: &str) -> bool {
        self.vnodes.get(&Key::cluster_scoped(vnode)).is_some()
    }

    /// The virtual node of this binding that a pod is bound to.
    pub(crate) fn vnode_of(&self, pod: &Key<Virtual>) -> Option<Arc<str>> {
        let node = Arc::from(&*self.pods.get(pod)?.0.node);
        self.has(&node).then_some(node)
    }

    /// The pods of a virtual node that run on the machine behind it. Both sides say that they belong together: the twin by its stamp, which no
    /// tenant can write, and the pod by its uid and its node.
    fn tenants(&self, vnode: &str, machine: &str, only: Option<&str>) -> Tenants {
        let mut tenants = Tenants::new(&self.subject.binding.mount_namespace);
        for seen in self.twins.by(&ON_NODE, machine) {
            let pod = self.pods.get(&seen.of).filter(|_| only.is_none_or(|only| *seen.of.namespace == *only));
            let is_its = |pod: &SeenPod| pod.0.uid == seen.twin.virtual_uid && *pod.0.node == *vnode;
            if let Some(pod) = pod.filter(|pod| is_its(pod)) {
                let tenant = Tenant {
                    key: seen.of.clone(),
                    uid: (&*pod.0.uid).into(),
                    containers: pod.0.containers.clone(),
                    host_network: seen.host_network,
                };
                tenants.insert(&seen.twin.key.name, tenant);
            }
        }
        tenants
    }

    /// Which pod of the worker cluster answers. What the stores do not know yet, the servers are asked for: a pod may run before all
    /// who watch it have heard.
    pub(crate) async fn twin(&self, route: &PodRoute, vnode: &str) -> Result<Key<Physical>, Refusal> {
        let cluster_id = self.subject.binding.cluster_id.to_string();
        let question = TwinQuestion { route, vnode, cluster_id: &cluster_id };
        let pod = self.pod(&question).await?;
        let known = self.twins.by(&OF_VIRTUAL, &pod.uid);
        let known: Vec<&PhysicalTwin> = known.iter().map(|seen| &seen.twin).collect();
        // Without a watch, another pod may have come to the name meanwhile.
        let is_current = self.twins.progress().is_well().is_ok();
        if let Ok(twin) = question.twin(&pod, known.into_iter().filter(|_| is_current)) {
            return Ok(twin.key.clone());
        }
        let asked = self.ask_for_twin(route, &pod).await?;
        question.twin(&pod, &asked).map(|twin| twin.key.clone())
    }

    async fn pod(&self, question: &TwinQuestion<'_>) -> Result<BoundPod, Refusal> {
        let key = &question.route.pod;
        if let Some(pod) = self.pods.get(key).map(|seen| seen.0.clone())
            && question.check(Some(&pod)).is_ok()
        {
            return Ok(pod);
        }
        let found = self.virt.get(&kinds::POD, key).await.map_err(|error| {
            Refusal::new(NOT_NOW, format!("the computing cluster cannot be asked for pod {key}: {error}"))
        })?;
        let pod = found.as_ref().map(BoundPod::read);
        question.check(pod.as_ref())?;
        pod.ok_or_else(|| Refusal::new(404, "pod does not exist"))
    }

    /// Those that may be it, by the names that the syncer gives.
    async fn ask_for_twin(&self, route: &PodRoute, pod: &BoundPod) -> Result<Vec<PhysicalTwin>, Refusal> {
        let binding = &self.subject.binding;
        let origin = Origin::Object { namespace: &route.pod.namespace, name: &route.pod.name };
        for name in [origin.physical_name(), origin.fallback_name(&binding.uid)] {
            let key = Key::new(binding.mount_namespace.as_str(), name.as_str());
            let found = self.phys.get(&kinds::POD, &key).await.map_err(|error| {
                Refusal::new(
                    NOT_NOW,
                    format!("worker cluster {} cannot be asked: {error}", binding.cluster_id),
                )
            })?;
            let twin = found.and_then(|object| self.subject.twin(&object));
            if let Some(twin) = twin.filter(|twin| twin.virtual_uid == pod.uid) {
                return Ok(vec![twin]);
            }
        }
        Ok(Vec::new())
    }
}

/// What is measured: of all namespaces, or of one.
pub(crate) struct Measured {
    pub(crate) world: World,
    pub(crate) only: Option<String>,
}

impl Ground for Measured {
    fn serves(&self, vnode: &str) -> bool {
        self.world.has(vnode)
    }

    fn machine(&self, vnode: &str) -> Option<Machine> {
        let node = self.world.vnodes.get(&Key::cluster_scoped(vnode))?.physical_name.clone();
        let kubelet = self.world.machines.get(&Key::cluster_scoped(&*node)).and_then(|seen| seen.0);
        let tenants = self.world.tenants(vnode, &node, self.only.as_deref());
        Some(Machine { node, kubelet, tenants })
    }
}

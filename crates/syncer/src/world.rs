//! What a syncer knows of both sides.
//!
//! A standby keeps all of it current, so that it can lead at once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use futures::future::BoxFuture;
use kubeocean_api::keys::annotations;
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::error::CallError;
use kubeocean_cluster::informer::Switch;
use kubeocean_cluster::progress::Progress;
use kubeocean_cluster::queue::{Queue, QueueKey};
use kubeocean_cluster::store::{Change, Entry, Store};
use kubeocean_model::action::{Kind, kinds};
use kubeocean_model::bind::BindingObject;
use kubeocean_model::binding::Binding;
use kubeocean_model::copy::Copied;
use kubeocean_model::key::{Key, Physical, Side, Virtual};
use kubeocean_model::naming::{Port, conflicts};
use kubeocean_model::object::Object;
use kubeocean_model::reclaim::VirtualPod;
use kubeocean_model::services;
use kubeocean_model::vnode::{Tenure, VirtualNode};
use parking_lot::Mutex;

use crate::belongings::{Belongings, SeenMeta, concerned, original_of};
use crate::binding::Search;
use crate::claims::{claim_copied_by, claim_named_by};
use crate::references::References;
use crate::seen::{
    IN_NAMESPACE, OF_NODE, OF_SERVICE, ON_NODE, PODS_IN, SeenBinding, SeenBudget, SeenCsiNode, SeenNode,
    SeenService, SeenVirtualPod, SeenVnode, TWINS_NAMED,
};
use crate::several::Several;
use crate::usage::{SeenPod, Usage};
use crate::watch::Watch;

/// What there is to look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Duty {
    /// The binding: finalizer, condition, counts.
    Binding,
    /// A policy of either side.
    Policy(Side, Arc<str>),
    /// A node of the worker cluster, and all that V has of it.
    Node(Arc<str>),
    /// A pod on a virtual node, and its twin.
    Pod(Key<Virtual>),
    /// A `ConfigMap` or Secret that pods use, and its copy.
    Copy(Copied, Key<Virtual>),
    /// A claim that pods use, and its volume.
    Claim(Key<Virtual>),
    /// A Service that is brought along.
    Service(Key<Virtual>),
    /// Endpoints of one.
    Slice(Key<Virtual>),
    /// What bindings that are gone have left.
    Leftovers,
}

impl QueueKey for Duty {
    fn class(&self) -> &'static str {
        match self {
            Self::Binding => "binding",
            Self::Policy(..) => "policies",
            Self::Node(_) => "nodes",
            Self::Pod(_) => "pods",
            Self::Copy(..) => "copies",
            Self::Claim(_) => "claims",
            Self::Service(_) => "services",
            Self::Slice(_) => "endpoints",
            Self::Leftovers => "leftovers",
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
    /// The only namespaces whose pods run in the worker cluster; none: all.
    pub namespaces: Arc<[Arc<str>]>,
}

impl Subject {
    /// Whether pods of a namespace are followed.
    fn follows(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.iter().any(|one| **one == *namespace)
    }

    /// Whether a pod runs in the worker cluster, if it runs.
    pub(crate) fn maps(&self, pod: &VirtualPod, binding: &Binding) -> bool {
        self.follows(&pod.meta.namespace) && pod.is_mapped(binding, &self.install_namespace)
    }

    /// Why it does not, for people.
    pub(crate) fn why_unmapped(&self, pod: &VirtualPod, binding: &Binding) -> String {
        let namespace = &pod.meta.namespace;
        if self.follows(namespace) {
            return pod.why_unmapped(binding, &self.install_namespace);
        }
        format!(
            "pods of namespace {namespace} do not run in worker cluster {}: its syncer is kept to {} by --namespaces",
            self.binding,
            self.namespaces.join(", ")
        )
    }
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
    /// What the binding said when it could last be read.
    pub(crate) good: LastGood,
    /// When virtual nodes were last looked for that someone has hidden.
    pub(crate) hidden: Search,
    /// How often policies have changed.
    pub(crate) policy_edits: Arc<AtomicU64>,
    /// Who uses how much of each node.
    pub usage: Usage,
    /// Endpoints of the proxier.
    pub endpoints: Store<Virtual, Object>,
    /// Their Service.
    pub proxier_service: Store<Virtual, SeenMeta>,
    /// V's namespaces: what administrators wrote on them.
    pub namespaces: Store<Virtual, SeenMeta>,
    /// V's Services, as far as pods are told of them.
    pub services: Several<SeenService>,
    /// `ConfigMaps` of V that pods use.
    pub config_maps: Several<SeenMeta>,
    /// Secrets of V that pods use.
    pub secrets: Several<SeenMeta>,
    /// V's claims.
    pub claims: Several<Object>,
    /// V's volumes.
    pub volumes: Store<Virtual, Object>,
    /// Endpoints of V's Services, as far as those are brought along.
    pub slices: Several<Object>,
    /// For when others are brought along.
    pub(crate) slices_switches: Arc<[Switch]>,
    /// What pods of ours have in P.
    pub belongings: Belongings,
    /// Pods whose twin was seen to go.
    pub(crate) ended: Ended,
}

/// V pods whose twin was seen to go, by uid, and the twin as it was last. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Ended(Arc<Mutex<LastSeen>>);

type LastSeen = HashMap<Box<str>, Arc<Entry<SeenPod>>>;

impl Ended {
    /// Enters what became of a twin, if its pod is still there to be told.
    pub(crate) fn follow(
        &self,
        change: &Change<'_, Physical, SeenPod>,
        subject: &Subject,
        is_there: impl Fn(&SeenPod) -> bool,
    ) {
        let uid = |seen: &&Arc<Entry<SeenPod>>| seen.virtual_uid.clone().filter(|_| seen.is_ours(subject));
        let mut ended = self.0.lock();
        if let Some((uid, old)) = change.old.and_then(|old| uid(&old).zip(Some(old)))
            && is_there(old)
        {
            ended.insert(uid, Arc::clone(old));
        }
        if let Some(uid) = change.new.and_then(|new| uid(&new)) {
            ended.remove(&uid);
        }
    }

    /// The twin as it was last, if it was seen to go.
    pub(crate) fn last(&self, pod: &str) -> Option<Arc<Entry<SeenPod>>> {
        self.0.lock().get(pod).cloned()
    }

    /// No pod of this name is there any more, and no twin of one.
    pub(crate) fn forget_all_of(&self, pod: &Key<Virtual>) {
        self.0.lock().retain(|_, seen| seen.virtual_key.as_ref() != Some(pod));
    }

    /// The pod itself is gone.
    pub(crate) fn forget(&self, pod: &str) {
        self.0.lock().remove(pod);
    }
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
        references: &References,
    ) -> (Self, Vec<Watching>) {
        let mut watch = Watch::new(virt, phys, subject, queue, leases);
        let ended = Ended::default();
        let tenures = Tenures::default();
        let good = LastGood::default();
        let hidden = Search::default();
        let vnodes = watch.vnodes(&tenures, &hidden);
        let usage = Usage::new(subject);
        let policy_edits = Arc::default();
        let (slices, slices_switches) = watch.slices();
        let world = Self {
            nodes: watch.nodes(),
            pods: watch.pods(&vnodes, &ended),
            bindings: watch.bindings(&good),
            virtual_csi: watch.virtual_csi(),
            physical_csi: watch.physical_csi(),
            budgets: watch.budgets(),
            virtual_policies: watch.policies(virt, &policy_edits),
            physical_policies: watch.policies(phys, &policy_edits),
            physical_pods: watch.physical_pods(&usage, &ended),
            namespaces: watch.namespaces(),
            services: watch.services(),
            config_maps: watch.originals(Copied::ConfigMap, references),
            secrets: watch.originals(Copied::Secret, references),
            belongings: Belongings {
                config_maps: watch.belongings(Copied::ConfigMap, references),
                secrets: watch.belongings(Copied::Secret, references),
                claims: watch.made_claims(references),
                volumes: watch.made_volumes(),
                services: watch.made_services(),
                slices: watch.made_slices(),
            },
            claims: watch.claims(),
            volumes: watch.volumes(),
            slices,
            slices_switches,
            ended,
            endpoints: watch.endpoints(),
            proxier_service: watch.proxier_service(),
            vnodes,
            tenures,
            good,
            hidden,
            policy_edits,
            usage,
        };
        let loops = watch.know(&world);
        (world, loops)
    }

    /// How far the stores of V have come, by name.
    pub fn virtual_progress(&self) -> Vec<(&'static str, Progress)> {
        let mut all = vec![
            ("clusterbindings", self.bindings.progress().clone()),
            ("nodes", self.vnodes.progress().clone()),
            ("csinodes", self.virtual_csi.progress().clone()),
            ("pods", self.pods.progress().clone()),
            ("poddisruptionbudgets", self.budgets.progress().clone()),
            ("resourceleasingpolicies", self.virtual_policies.progress().clone()),
            ("endpointslices", self.endpoints.progress().clone()),
            ("namespaces", self.namespaces.progress().clone()),
            ("persistentvolumes", self.volumes.progress().clone()),
        ];
        all.extend(self.services.progress().map(|progress| ("services", progress.clone())));
        all.extend(self.config_maps.progress().map(|progress| ("configmaps", progress.clone())));
        all.extend(self.secrets.progress().map(|progress| ("secrets", progress.clone())));
        all.extend(self.claims.progress().map(|progress| ("persistentvolumeclaims", progress.clone())));
        all.extend(self.slices.progress().map(|progress| ("endpointslices of services", progress.clone())));
        all
    }

    /// The ports that proxiers cannot bind.
    pub(crate) fn port_conflicts(&self) -> Vec<Port> {
        let said = |seen: &SeenMeta| conflicts(seen.0.annotations.get(annotations::PORT_CONFLICT));
        self.proxier_service.all().iter().flat_map(|(_, seen)| said(seen)).collect()
    }

    /// How far the stores of P have come, by name. Without these nothing is known of its nodes.
    pub fn physical_progress(&self) -> Vec<(&'static str, Progress)> {
        vec![
            ("worker nodes", self.nodes.progress().clone()),
            ("worker pods", self.physical_pods.progress().clone()),
        ]
    }

    /// Kinds of P that may not be read, by the server's last word.
    pub fn physically_forbidden(&self) -> BTreeSet<Kind> {
        let mut all = vec![
            (kinds::NODE, self.nodes.progress()),
            (kinds::POD, self.physical_pods.progress()),
            (kinds::CSI_NODE, self.physical_csi.progress()),
            (kinds::POLICY, self.physical_policies.progress()),
        ];
        all.extend(self.belongings.kinds());
        let is_forbidden = |progress: &Progress| {
            let trouble = progress.trouble();
            trouble.as_ref().and_then(CallError::status).is_some_and(|status| status.code == 403)
        };
        all.into_iter().filter(|(_, progress)| is_forbidden(progress)).map(|(kind, _)| kind).collect()
    }

    /// How many objects each store holds, for `/debug/state`.
    pub(crate) fn sizes(&self) -> serde_json::Value {
        serde_json::json!({
            "virtual": {
                "nodes": self.vnodes.len(), "csinodes": self.virtual_csi.len(), "pods": self.pods.len(),
                "poddisruptionbudgets": self.budgets.len(), "resourceleasingpolicies": self.virtual_policies.len(),
                "endpointslices": self.endpoints.len(), "services": self.services.len(),
                "configmaps": self.config_maps.len(), "secrets": self.secrets.len(),
                "persistentvolumeclaims": self.claims.len(), "persistentvolumes": self.volumes.len(),
                "mirrored endpointslices": self.slices.len(),
            },
            "physical": {
                "nodes": self.nodes.len(), "csinodes": self.physical_csi.len(), "pods": self.physical_pods.len(),
                "resourceleasingpolicies": self.physical_policies.len(),
                "configmaps": self.belongings.config_maps.len(), "secrets": self.belongings.secrets.len(),
                "persistentvolumeclaims": self.belongings.claims.len(),
                "persistentvolumes": self.belongings.volumes.len(),
                "services": self.belongings.services.len(), "endpointslices": self.belongings.slices.len(),
            },
        })
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
        self.look_at_what_we_made(queue);
        for (key, _) in self.services.all() {
            queue.add(Duty::Service(key));
        }
        for (key, _) in self.slices.all() {
            queue.add(Duty::Slice(key));
        }
        queue.add(Duty::Leftovers);
        self.look_at_policies(queue);
    }

    /// Twins and copies are to be looked at, also those of which V knows nothing any more.
    pub fn look_at_what_we_made(&self, queue: &Queue<Duty>) {
        for pod in self.physical_pods.words(&TWINS_NAMED) {
            if let Some((namespace, name)) = pod.split_once('/') {
                queue.add(Duty::Pod(Key::new(namespace, name)));
            }
        }
        for what in [Copied::ConfigMap, Copied::Secret] {
            for (_, one) in self.belongings.store(what).all() {
                if let Some(duty) = concerned(what, &one.0) {
                    queue.add(duty);
                }
            }
        }
        for (_, claim) in self.belongings.claims.all() {
            if let Some(key) = claim_copied_by(&claim) {
                queue.add(Duty::Claim(key));
            }
        }
        for (_, volume) in self.belongings.volumes.all() {
            if let Some(key) = self.claim_of_volume(&volume) {
                queue.add(Duty::Claim(key));
            }
        }
        for (_, service) in self.belongings.services.all() {
            if let Some(key) = original_of(&service.meta) {
                queue.add(Duty::Service(key));
            }
        }
        for (_, slice) in self.belongings.slices.all() {
            if let Some(key) = original_of(&slice.meta) {
                queue.add(Duty::Slice(key));
            }
        }
    }

    /// The endpoints of a Service of V are to be looked at.
    pub(crate) fn look_at_slices_of(&self, service: &Key<Virtual>, queue: &Queue<Duty>) {
        for slice in self.slices.keys_by(&OF_SERVICE, &service.to_string()) {
            queue.add(Duty::Slice(slice));
        }
    }

    /// Whether Services of a namespace are brought along; as long as nobody knows, they may be.
    pub(crate) fn mirrors(&self, namespace: &str, subject: &Subject) -> bool {
        let seen = self.bindings.get(&Key::cluster_scoped(&*subject.binding));
        let binding = seen.as_ref().and_then(|seen| self.good.follow(&seen.0));
        binding.is_none_or(|binding| services::is_mirrored(&binding, namespace, &subject.install_namespace))
    }

    /// The V claim that a volume of P serves: by its claim there, or by the V volume that it is.
    pub(crate) fn claim_of_volume(&self, volume: &Object) -> Option<Key<Virtual>> {
        let said = |field: &str| volume.text("spec", &["claimRef", field]);
        let claim = said("namespace").zip(said("name")).map(|(namespace, name)| Key::new(namespace, name));
        let claim = claim.and_then(|claim| self.belongings.claims.get(&claim));
        claim.and_then(|claim| claim_copied_by(&claim)).or_else(|| {
            let name = volume.meta.annotations.get(annotations::VIRTUAL_NAME)?;
            claim_named_by(&*self.volumes.get(&Key::cluster_scoped(name))?)
        })
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

    /// The pods of a namespace that are on virtual nodes.
    pub fn pods_in(&self, namespace: &str) -> Vec<Arc<Entry<SeenVirtualPod>>> {
        self.pods.by(&PODS_IN, namespace)
    }

    /// What this binding runs in P for a pod of that name.
    pub(crate) fn twins_of(&self, pod: &Key<Virtual>, subject: &Subject) -> Vec<Arc<Entry<SeenPod>>> {
        let all = self.physical_pods.by(&TWINS_NAMED, &pod.to_string());
        all.into_iter().filter(|twin| twin.twin.is_some() && twin.is_ours(subject)).collect()
    }

    /// Originals of V that pods use.
    pub(crate) fn originals(&self, what: Copied) -> &Several<SeenMeta> {
        match what {
            Copied::ConfigMap => &self.config_maps,
            Copied::Secret => &self.secrets,
        }
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

/// What the binding said when it could last be read. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct LastGood(Arc<Mutex<Option<Binding>>>);

impl LastGood {
    /// Remembers what it says, if it can be read; whether other Services are brought along now.
    pub(crate) fn note(&self, object: &BindingObject) -> bool {
        let Ok(now) = &object.parsed else { return false };
        let before = self.0.lock().replace(now.clone());
        before.is_none_or(|before| before.service_namespaces != now.service_namespaces)
    }

    /// Whether it could be read once.
    pub(crate) fn knows(&self, object: &BindingObject) -> bool {
        self.0.lock().as_ref().is_some_and(|good| *good.uid == *object.meta.uid)
    }

    /// What is followed of it: what it says, or what it said before someone misspelt it.
    pub(crate) fn follow(&self, object: &BindingObject) -> Option<Binding> {
        if let Ok(binding) = &object.parsed {
            return Some(binding.clone());
        }
        let before = self.0.lock().clone().filter(|before| *before.uid == *object.meta.uid);
        let before = before.or_else(|| object.followed().ok().cloned());
        before.map(|before| Binding { is_deleting: object.meta.is_deleting(), ..before })
    }
}

/// The last tenure of each virtual node. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Tenures(Arc<Mutex<BTreeMap<String, Remembered>>>);

struct Remembered {
    uid: Box<str>,
    tenure: Tenure,
    /// The version that has it, where we wrote that and no watch has told of it yet.
    written: Option<u64>,
}

impl Tenures {
    pub(crate) fn follow(&self, change: &Change<'_, Virtual, SeenVnode>) {
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
    pub(crate) fn trust_the_list(&self) {
        for known in self.0.lock().values_mut() {
            known.written = None;
        }
    }
}

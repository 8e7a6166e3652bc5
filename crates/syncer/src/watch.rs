//! The informers of a syncer: which objects, and whom a change concerns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kubeocean_api::keys::names::VNODE_PREFIX;
use kubeocean_api::keys::{annotations, labels};
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::informer::{Builder, Informer, Switch};
use kubeocean_cluster::progress::Step;
use kubeocean_cluster::queue::Queue;
use kubeocean_cluster::store::{Entry, Shape, Store};
use kubeocean_model::action::{Kind, kinds};
use kubeocean_model::copy::Copied;
use kubeocean_model::key::{Key, OnSide, Physical, Virtual};
use kubeocean_model::object::{Meta, Object};
use kubeocean_model::project::Referent;
use parking_lot::RwLock;

use crate::belongings::{
    COPY_OF, FOR_CLAIM, OF_ORIGINAL, OF_POD, SeenMeta, VOLUME_OF, concerned, original_of,
};
use crate::binding::Search;
use crate::claims::{claim_copied_by, claim_named_by};
use crate::references::References;
use crate::seen::{
    IN_NAMESPACE, OF_NODE, OF_SERVICE, ON_NODE, PODS_IN, SERVICES_IN, SeenBinding, SeenBudget, SeenCsiNode,
    SeenNode, SeenService, SeenVirtualPod, SeenVnode, TWINS_NAMED,
};
use crate::several::Several;
use crate::usage::{SeenPod, Usage};
use crate::world::{Duty, Ended, LastGood, Subject, Tenures, Watching, World};

/// Pods of others come in crowds. A node whose pods change is looked at a second later, once for all of them.
const CROWD: Duration = Duration::from_secs(1);

/// Whether a node that names the binding is a virtual node of it. Those of older installations have no uid; their names tell them from a machine
/// on which someone wrote that label.
fn is_vnode_of(uid: &str, meta: &Meta) -> bool {
    meta.labels.get(labels::BINDING_UID).map_or_else(|| meta.name.starts_with(VNODE_PREFIX), |of| of == uid)
}

/// Makes the informers, one store after the other.
pub(crate) struct Watch<'a> {
    virt: &'a Cluster<Virtual>,
    phys: &'a Cluster<Physical>,
    subject: &'a Subject,
    queue: &'a Queue<Duty>,
    leases: &'a Queue<String>,
    /// The handlers need the very stores that they are the handlers of.
    known: Arc<RwLock<Option<World>>>,
    loops: Vec<Watching>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(
        virt: &'a Cluster<Virtual>,
        phys: &'a Cluster<Physical>,
        subject: &'a Subject,
        queue: &'a Queue<Duty>,
        leases: &'a Queue<String>,
    ) -> Self {
        Self { virt, phys, subject, queue, leases, known: Arc::default(), loops: Vec::new() }
    }

    /// All stores are made: what changes in them is told from now on. Gives the loops that keep them current.
    pub(crate) fn know(self, world: &World) -> Vec<Watching> {
        *self.known.write() = Some(world.clone());
        self.loops
    }

    fn keep<S: OnSide, T: Shape>(&mut self, name: &str, informer: Builder<S, T>) -> Store<S, T> {
        let (informer, _switch) = informer.build();
        let store = informer.store();
        self.loops.push((name.to_owned(), Box::pin(informer.run())));
        store
    }

    pub(crate) fn bindings(&mut self, good: &LastGood) -> Store<Virtual, SeenBinding> {
        let good = good.clone();
        let (told, world, uid) = (self.queue.clone(), Arc::clone(&self.known), Arc::clone(&self.subject.uid));
        let informer = Informer::<Virtual, SeenBinding>::of(self.virt, kinds::BINDING)
            .fields(format!("metadata.name={}", self.subject.binding))
            .on_change(move |change| {
                told.reset(Duty::Binding);
                let asks = |seen: &Arc<Entry<SeenBinding>>| {
                    (seen.0.meta.generation, seen.0.meta.is_deleting(), seen.0.meta.finalizers.clone())
                };
                let concerns = change.new.is_some_and(|seen| *seen.0.meta.uid == *uid);
                let brings_others = concerns && change.new.is_some_and(|seen| good.note(&seen.0));
                if brings_others && let Some(world) = &*world.read() {
                    world.slices_switches.iter().for_each(Switch::relist);
                }
                if concerns
                    && change.old.map(asks) != change.new.map(asks)
                    && let Some(world) = &*world.read()
                {
                    world.look_at_everything(&told);
                }
            });
        self.keep("binding", informer)
    }

    pub(crate) fn vnodes(&mut self, tenures: &Tenures, hidden: &Search) -> Store<Virtual, SeenVnode> {
        let hidden = hidden.clone();
        let (world, told, renewed) = (Arc::clone(&self.known), self.queue.clone(), self.leases.clone());
        let (remembered, uid) = (tenures.clone(), Arc::clone(&self.subject.uid));
        let informer = Informer::<Virtual, SeenVnode>::of(self.virt, kinds::NODE)
            .labels(format!("{}={}", labels::CLUSTER_BINDING, self.subject.binding))
            .keep(move |object| is_vnode_of(&uid, &object.meta))
            .indexed_by(&OF_NODE)
            .on_change(move |change| {
                remembered.follow(change);
                if change.old.is_none() {
                    renewed.add(change.key.name.to_string());
                }
                // It is gone, or someone took away what it is found by: a watch says the same of both.
                if change.new.is_none() {
                    hidden.suspect();
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
            });
        let vnodes = self.keep("virtual nodes", informer);
        let listed = tenures.clone();
        vnodes.progress().listen(move |step| {
            if matches!(step, Step::List) {
                listed.trust_the_list();
            }
            true
        });
        vnodes
    }

    pub(crate) fn pods(
        &mut self,
        vnodes: &Store<Virtual, SeenVnode>,
        ended: &Ended,
    ) -> Store<Virtual, SeenVirtualPod> {
        let (of, told, ended) = (vnodes.clone(), self.queue.clone(), ended.clone());
        let on_ours = |object: &Object| {
            object.text("spec", &["nodeName"]).is_some_and(|node| node.starts_with(VNODE_PREFIX))
        };
        let informer = Informer::<Virtual, SeenVirtualPod>::of(self.virt, kinds::POD)
            .keep(on_ours)
            .indexed_by(&ON_NODE)
            .indexed_by(&PODS_IN)
            .on_change(move |change| {
                told.add(Duty::Pod(change.key.clone()));
                if let Some(old) = change.old.filter(|old| change.new.is_none_or(|new| new.uid != old.uid)) {
                    ended.forget(&old.uid);
                }
                let seen = change.old.into_iter().chain(change.new);
                for vnode in seen.filter_map(|pod| of.get(&Key::cluster_scoped(pod.0.node.as_str()))) {
                    // A node that leaves waits for it; placeholders are part of it.
                    told.add(Duty::Node(vnode.0.physical_name.as_str().into()));
                }
            });
        self.keep("pods", informer)
    }

    pub(crate) fn budgets(&mut self) -> Store<Virtual, SeenBudget> {
        let informer = Informer::<Virtual, SeenBudget>::of(self.virt, kinds::DISRUPTION_BUDGET);
        self.keep("disruption budgets", informer.indexed_by(&IN_NAMESPACE))
    }

    pub(crate) fn endpoints(&mut self) -> Store<Virtual, Object> {
        let service = self.subject.cluster_id.proxier_service();
        let (world, told) = (Arc::clone(&self.known), self.queue.clone());
        let informer = Informer::<Virtual, Object>::of(self.virt, kinds::ENDPOINT_SLICE)
            .namespace(&*self.subject.install_namespace)
            .labels(format!("kubernetes.io/service-name={service}"))
            .on_change(move |_| {
                if let Some(world) = &*world.read() {
                    world.look_at_nodes(&told);
                }
            });
        self.keep("endpoints of the proxier", informer)
    }

    /// The Service of the proxiers, on which they say which ports they cannot bind.
    pub(crate) fn proxier_service(&mut self) -> Store<Virtual, SeenMeta> {
        let service = self.subject.cluster_id.proxier_service();
        let (world, told) = (Arc::clone(&self.known), self.queue.clone());
        let conflicts =
            |seen: &SeenMeta| seen.0.annotations.get(annotations::PORT_CONFLICT).map(str::to_owned);
        let informer = Informer::<Virtual, SeenMeta>::of(self.virt, kinds::SERVICE)
            .namespace(&*self.subject.install_namespace)
            .fields(format!("metadata.name={service}"))
            .metadata_only()
            .on_change(move |change| {
                let [old, new] = [change.old, change.new].map(|seen| seen.and_then(|seen| conflicts(seen)));
                if old != new
                    && let Some(world) = &*world.read()
                {
                    world.look_at_nodes(&told);
                }
            });
        self.keep("service of the proxier", informer)
    }

    pub(crate) fn nodes(&mut self) -> Store<Physical, SeenNode> {
        let told = self.queue.clone();
        let informer = Informer::<Physical, SeenNode>::of(self.phys, kinds::NODE)
            .on_change(move |change| told.add(Duty::Node(Arc::clone(&change.key.name))));
        self.keep("worker nodes", informer)
    }

    pub(crate) fn physical_pods(&mut self, usage: &Usage, ended: &Ended) -> Store<Physical, SeenPod> {
        let (kept, told) = (usage.clone(), self.queue.clone());
        let (ended, subject, world) = (ended.clone(), self.subject.clone(), Arc::clone(&self.known));
        // As long as nobody knows V's pods, any may be there.
        let is_there = move |twin: &SeenPod| {
            let known = world.read();
            let Some(world) = known.as_ref().filter(|world| world.pods.progress().is_synced()) else {
                return true;
            };
            let pod = twin.virtual_key.as_ref().and_then(|key| world.pods.get(key));
            pod.is_some_and(|pod| twin.virtual_uid.as_deref() == Some(&*pod.0.meta.uid))
        };
        let informer = Informer::<Physical, SeenPod>::of(self.phys, kinds::POD)
            .indexed_by(&TWINS_NAMED)
            .on_change(move |change| {
                ended.follow(change, &subject, &is_there);
                let ours = kept.ours();
                for node in kept.follow(change) {
                    told.add_after(Duty::Node(node), CROWD);
                }
                if kept.ours() != ours || change.new.is_none() {
                    told.add_after(Duty::Binding, CROWD);
                }
                let twins = change.old.into_iter().chain(change.new);
                for key in twins.filter_map(|pod| pod.virtual_key.clone()) {
                    told.add(Duty::Pod(key));
                }
            });
        self.keep("worker pods", informer)
    }

    pub(crate) fn namespaces(&mut self) -> Store<Virtual, SeenMeta> {
        let informer = Informer::<Virtual, SeenMeta>::of(self.virt, kinds::NAMESPACE).metadata_only();
        self.keep("namespaces", informer)
    }

    /// One store for all namespaces, or one for each that is followed.
    fn several<T: Shape>(
        &mut self,
        name: &str,
        informer: impl Fn() -> Builder<Virtual, T>,
    ) -> (Several<T>, Vec<Switch>) {
        let followed = self.subject.namespaces.iter().cloned().map(Some);
        let followed: Vec<Option<Arc<str>>> =
            if self.subject.namespaces.is_empty() { vec![None] } else { followed.collect() };
        let (mut stores, mut switches) = (Vec::new(), Vec::new());
        for namespace in followed {
            let (informer, switch) = match &namespace {
                Some(namespace) => informer().namespace(&**namespace).build(),
                None => informer().build(),
            };
            let of = namespace.as_ref().map(|namespace| format!(" in {namespace}")).unwrap_or_default();
            stores.push((namespace, informer.store()));
            switches.push(switch);
            self.loops.push((format!("{name}{of}"), Box::pin(informer.run())));
        }
        (Several::of(stores), switches)
    }

    pub(crate) fn services(&mut self) -> Several<SeenService> {
        let (virt, known, queue) = (self.virt, Arc::clone(&self.known), self.queue.clone());
        let informer = || {
            let (world, told) = (Arc::clone(&known), queue.clone());
            Informer::<Virtual, SeenService>::of(virt, kinds::SERVICE).indexed_by(&SERVICES_IN).on_change(
                move |change| {
                    told.reset(Duty::Service(change.key.clone()));
                    if change.old.is_some() != change.new.is_some()
                        && let Some(world) = &*world.read()
                    {
                        world.look_at_slices_of(change.key, &told);
                    }
                },
            )
        };
        self.several("services", informer).0
    }

    /// Endpoints of V's Services, of the namespaces whose Services are brought along.
    pub(crate) fn slices(&mut self) -> (Several<Object>, Arc<[Switch]>) {
        let (virt, known, queue) = (self.virt, Arc::clone(&self.known), self.queue.clone());
        let subject = self.subject.clone();
        let informer = || {
            let (world, told, subject) = (Arc::clone(&known), queue.clone(), subject.clone());
            let is_wanted = move |object: &Object| {
                world.read().as_ref().is_some_and(|world| world.mirrors(&object.meta.namespace, &subject))
            };
            Informer::<Virtual, Object>::of(virt, kinds::ENDPOINT_SLICE)
                .keep(is_wanted)
                .indexed_by(&OF_SERVICE)
                .on_change(move |change| told.reset(Duty::Slice(change.key.clone())))
        };
        let (slices, switches) = self.several("endpoints of services", informer);
        (slices, switches.into())
    }

    /// V's claims.
    pub(crate) fn claims(&mut self) -> Several<Object> {
        let (virt, queue) = (self.virt, self.queue.clone());
        let informer = || {
            let told = queue.clone();
            Informer::<Virtual, Object>::of(virt, kinds::CLAIM)
                .on_change(move |change| told.reset(Duty::Claim(change.key.clone())))
        };
        self.several("claims", informer).0
    }

    /// V's volumes: each concerns the claim that it serves.
    pub(crate) fn volumes(&mut self) -> Store<Virtual, Object> {
        let told = self.queue.clone();
        let informer = Informer::<Virtual, Object>::of(self.virt, kinds::VOLUME).on_change(move |change| {
            let seen = change.old.into_iter().chain(change.new);
            for claim in seen.filter_map(|volume| claim_named_by(volume)) {
                told.reset(Duty::Claim(claim));
            }
        });
        self.keep("volumes", informer)
    }

    /// What we made of a kind and keep whole.
    fn made<S: OnSide>(&self, cluster: &Cluster<S>, kind: Kind) -> Builder<S, Object> {
        let namespace = kind.namespaced.then(|| self.subject.mount_namespace.to_string());
        let informer = Informer::<S, Object>::of(cluster, kind).labels(format!(
            "{}={}",
            labels::VIRTUAL_CLUSTER_UID,
            self.subject.virtual_cluster
        ));
        match namespace {
            Some(namespace) => informer.namespace(namespace),
            None => informer,
        }
    }

    pub(crate) fn made_claims(&mut self, references: &References) -> Store<Physical, Object> {
        let (told, used) = (self.queue.clone(), references.clone());
        let informer = self.made(self.phys, kinds::CLAIM).indexed_by(&COPY_OF).on_change(move |change| {
            let seen = change.old.into_iter().chain(change.new);
            for claim in seen.filter_map(|claim| claim_copied_by(claim)) {
                // Those who wait for it may have it now.
                for user in used.users(&(Referent::Claim, claim.clone())) {
                    told.reset(user.duty());
                }
                told.reset(Duty::Claim(claim));
            }
            if change.new.is_none() {
                told.add_after(Duty::Binding, CROWD);
            }
        });
        self.keep("worker claims", informer)
    }

    pub(crate) fn made_volumes(&mut self) -> Store<Physical, Object> {
        let (told, world) = (self.queue.clone(), Arc::clone(&self.known));
        let informer =
            self.made(self.phys, kinds::VOLUME).indexed_by(&VOLUME_OF).indexed_by(&FOR_CLAIM).on_change(
                move |change| {
                    let world = world.read();
                    let of = |volume: &Arc<Entry<Object>>| world.as_ref()?.claim_of_volume(volume);
                    for volume in change.old.into_iter().chain(change.new) {
                        // One that serves nobody is a leftover.
                        told.reset(of(volume).map_or(Duty::Leftovers, Duty::Claim));
                    }
                    if change.new.is_none() {
                        told.add_after(Duty::Binding, CROWD);
                    }
                },
            );
        self.keep("worker volumes", informer)
    }

    pub(crate) fn made_services(&mut self) -> Store<Physical, Object> {
        let (told, world) = (self.queue.clone(), Arc::clone(&self.known));
        let informer = self.made(self.phys, kinds::SERVICE).indexed_by(&COPY_OF).on_change(move |change| {
            let comes_or_goes = change.old.is_some() != change.new.is_some();
            let seen = change.old.into_iter().chain(change.new);
            for service in seen.filter_map(|service| original_of(&service.meta)) {
                if let Some(world) = world.read().as_ref().filter(|_| comes_or_goes) {
                    world.look_at_slices_of(&service, &told);
                    // Pods that wait to be told of it.
                    for pod in world.pods_in(&service.namespace) {
                        told.add(Duty::Pod(pod.0.key()));
                    }
                }
                told.add(Duty::Service(service));
            }
            if change.new.is_none() {
                told.add_after(Duty::Binding, CROWD);
            }
        });
        self.keep("worker services", informer)
    }

    pub(crate) fn made_slices(&mut self) -> Store<Physical, Object> {
        let told = self.queue.clone();
        let informer =
            self.made(self.phys, kinds::ENDPOINT_SLICE).indexed_by(&COPY_OF).on_change(move |change| {
                let seen = change.old.into_iter().chain(change.new);
                for slice in seen.filter_map(|slice| original_of(&slice.meta)) {
                    told.add(Duty::Slice(slice));
                }
                if change.new.is_none() {
                    told.add_after(Duty::Binding, CROWD);
                }
            });
        self.keep("worker endpoints", informer)
    }

    /// `ConfigMaps` or Secrets of V: those that pods use, and of those only that they have changed.
    pub(crate) fn originals(&mut self, what: Copied, references: &References) -> Several<SeenMeta> {
        let (virt, queue) = (self.virt, self.queue.clone());
        let informer = || {
            let (told, used) = (queue.clone(), references.clone());
            Informer::<Virtual, SeenMeta>::of(virt, what.kind())
                .metadata_only()
                .keep(move |object| used.is_used(&(what.into(), object.key())))
                .on_change(move |change| told.reset(Duty::Copy(what, change.key.clone())))
        };
        self.several(&format!("{} of pods", what.kind().plural), informer).0
    }

    /// What we made of a kind in the mount namespace.
    pub(crate) fn belongings(&mut self, what: Copied, references: &References) -> Store<Physical, SeenMeta> {
        let (told, used) = (self.queue.clone(), references.clone());
        let informer = Informer::<Physical, SeenMeta>::of(self.phys, what.kind())
            .namespace(&*self.subject.mount_namespace)
            .labels(format!("{}={}", labels::VIRTUAL_CLUSTER_UID, self.subject.virtual_cluster))
            .metadata_only()
            .indexed_by(&OF_ORIGINAL)
            .indexed_by(&OF_POD)
            .on_change(move |change| {
                let seen = change.old.into_iter().chain(change.new);
                for duty in seen.filter_map(|one| concerned(what, &one.0)) {
                    // Those who wait for it may have it now.
                    if let Duty::Copy(what, original) = &duty
                        && change.old.is_none()
                    {
                        for user in used.users(&((*what).into(), original.clone())) {
                            told.reset(user.duty());
                        }
                    }
                    told.add(duty);
                }
                // A binding that goes waits for it.
                if change.new.is_none() {
                    told.add_after(Duty::Binding, CROWD);
                }
            });
        self.keep(&format!("worker {}", what.kind().plural), informer)
    }

    /// Policies of one side: whatever changes about one of them may concern every node.
    pub(crate) fn policies<S: OnSide>(
        &mut self,
        cluster: &Cluster<S>,
        edits: &Arc<AtomicU64>,
    ) -> Store<S, Object> {
        let (world, told, edits) = (Arc::clone(&self.known), self.queue.clone(), Arc::clone(edits));
        let informer = Informer::<S, Object>::of(cluster, kinds::POLICY).on_change(move |change| {
            edits.fetch_add(1, Ordering::Relaxed);
            told.add(Duty::Policy(S::SIDE, Arc::clone(&change.key.name)));
            let asks = |seen: &Arc<Entry<Object>>| (seen.uid.clone(), seen.meta.generation);
            if change.old.map(asks) != change.new.map(asks)
                && let Some(world) = &*world.read()
            {
                world.look_at_nodes(&told);
                told.add(Duty::Binding);
            }
        });
        self.keep(&format!("{} policies", S::SIDE), informer)
    }

    pub(crate) fn virtual_csi(&mut self) -> Store<Virtual, SeenCsiNode> {
        let informer = Informer::<Virtual, SeenCsiNode>::of(self.virt, kinds::CSI_NODE).labels(format!(
            "{}={}",
            labels::BINDING_UID,
            self.subject.uid
        ));
        self.csi_nodes("virtual CSINodes", informer, |seen| {
            let on = seen.0.meta.annotations.get(annotations::PHYSICAL_NODE_NAME);
            on.unwrap_or_default().to_owned()
        })
    }

    pub(crate) fn physical_csi(&mut self) -> Store<Physical, SeenCsiNode> {
        let informer = Informer::<Physical, SeenCsiNode>::of(self.phys, kinds::CSI_NODE);
        self.csi_nodes("worker CSINodes", informer, |seen| seen.0.meta.name.to_string())
    }

    fn csi_nodes<S: OnSide>(
        &mut self,
        name: &str,
        informer: Builder<S, SeenCsiNode>,
        node: fn(&Entry<SeenCsiNode>) -> String,
    ) -> Store<S, SeenCsiNode> {
        let told = self.queue.clone();
        let informer = informer.on_change(move |change| {
            for seen in change.old.into_iter().chain(change.new) {
                told.add(Duty::Node(node(seen).into()));
            }
        });
        self.keep(name, informer)
    }
}

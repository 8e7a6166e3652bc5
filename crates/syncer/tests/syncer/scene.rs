//! The world of a syncer: a computing cluster, a worker cluster, another one to be led astray to, and the rules.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubeocean_api::keys::{finalizers, labels};
use kubeocean_cluster::client::{Cluster, Settings as Connection};
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::leader::Leadership;
use kubeocean_cluster::metrics::Metrics;
use kubeocean_model::action::kinds;
use kubeocean_model::bind::BindingObject;
use kubeocean_model::binding::Binding;
use kubeocean_model::key::Physical;
use kubeocean_model::lease::{Explanation, Ledger, Policies, User, WorkerPolicies};
use kubeocean_model::leasing::SYNCER;
use kubeocean_model::naming::ClusterId;
use kubeocean_model::object::Object;
use kubeocean_model::policies::SeenPolicy;
use kubeocean_model::requests;
use kubeocean_model::resources::Resources;
use kubeocean_model::vnode::{PhysicalNode, Settings, Tenure, VirtualNode};
use kubeocean_model::window::Zone;
use kubeocean_syncer::syncer::{Parts, Ports, Syncer};
use kubeocean_syncer::world::Subject;
use kubeocean_testkit::chaos::Profile;
use kubeocean_testkit::crash::CrashLayer;
use kubeocean_testkit::simulation::{Site, World};
use kubeocean_testkit::traffic::Traffic;
use kubeocean_testkit::{ApiServer, Commit, Options, Verb};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub(crate) const MOUNT: &str = "mount";
pub(crate) const NAMESPACE: &str = "kubeocean-system";
pub(crate) const BINDING: &str = "w1";
pub(crate) const MERGE: Option<&str> = Some("application/merge-patch+json");

const ONLY_OURS: &str = "nothing of others is touched";
const NODE_LAST: &str = "a virtual node goes after its pods, its Lease and its CSINode";
const NOT_EARLY: &str = "no pod is removed before its time";
const NOT_LATE: &str = "no pod is removed after its time";
const HONEST: &str = "no node is not ready without a cause in the worker";
const WITHIN_BASE: &str = "no node offers more than it has";

pub(crate) const REST_WITHIN: Duration = Duration::from_secs(15 * 60);

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["labels"][key].as_str().unwrap_or_default()
}

pub(crate) fn collection(plural: &str, namespace: &str) -> String {
    let all = [
        kinds::BINDING,
        kinds::POLICY,
        kinds::DISRUPTION_BUDGET,
        kinds::NODE,
        kinds::LEASE,
        kinds::CSI_NODE,
        kinds::POD,
        kinds::NAMESPACE,
    ];
    let kind = all.iter().find(|kind| kind.plural == plural).expect("a kind of this test");
    kind.collection_path(kind.namespaced.then_some(namespace))
}

/// Who serves which certificate: nobody here. All clusters, and the syncer's end of the wire. Clones are the same.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) virt: Site,
    pub(crate) phys: Site,
    pub(crate) stranger: Site,
    pub(crate) traffic: Traffic,
    pub(crate) clock: Clock,
    pub(crate) restored: Arc<AtomicBool>,
    /// Whether the connection leads to the stranger.
    pub(crate) astray: Arc<AtomicBool>,
    connected: Arc<Mutex<Option<Cluster<Physical>>>>,
    /// When the worker cluster was last cut off or healed.
    pub(crate) cut_at: Arc<Mutex<Option<Timestamp>>>,
    /// Clocks that jump make everything early and late.
    pub(crate) jumped: Arc<AtomicBool>,
}

pub(crate) fn object(value: &Value) -> Object {
    Object::from_value(value.clone()).unwrap()
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

impl Scene {
    pub(crate) fn new(world: &World, profile: impl Fn(&str) -> Profile, lender_has_policies: bool) -> Self {
        let virt = world.site_with("V", profile("V"), &Options::default());
        let worker = Options { with_crds: lender_has_policies, ..Options::default() };
        let phys = world.site_with("P", profile("P"), &worker);
        let stranger = world.site_with("stranger", profile("stranger"), &worker);
        let scene = Self {
            traffic: Traffic::of(SYNCER, &world.oracle),
            clock: Clock::simulated(virt.server.now()),
            world: world.clone(),
            virt,
            phys,
            stranger,
            restored: Arc::default(),
            astray: Arc::default(),
            connected: Arc::default(),
            cut_at: Arc::default(),
            jumped: Arc::default(),
        };
        for namespace in [NAMESPACE, "kubeocean-fake", "web"] {
            scene.make(&scene.virt, "namespaces", "", json!({"metadata": {"name": namespace}}));
        }
        for site in [&scene.phys, &scene.stranger] {
            scene.make(site, "namespaces", "", json!({"metadata": {"name": MOUNT}}));
            scene.make(site, "namespaces", "", json!({"metadata": {"name": "theirs"}}));
        }
        for node in ["n1", "n2", "n3"] {
            scene.add_node(node);
        }
        scene.bind();
        scene.rules();
        scene
    }

    pub(crate) fn make(&self, site: &Site, plural: &str, namespace: &str, body: Value) -> u16 {
        let mut body = body;
        if plural == "clusterbindings" || plural == "resourceleasingpolicies" {
            body["apiVersion"] = kinds::BINDING.api_version().into();
            body["kind"] =
                if plural == "clusterbindings" { "ClusterBinding" } else { "ResourceLeasingPolicy" }.into();
        }
        site.server.call("user", "POST", &collection(plural, namespace), None, Some(body)).0
    }

    pub(crate) fn patch(&self, site: &Site, plural: &str, namespace: &str, name: &str, body: Value) {
        let place = format!("{}/{name}", collection(plural, namespace));
        site.server.call("user", "PATCH", &place, MERGE, Some(body));
    }

    pub(crate) fn remove(&self, site: &Site, plural: &str, namespace: &str, name: &str) {
        let place = format!("{}/{name}", collection(plural, namespace));
        let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        let body = (plural != "pods" || site.name != "V").then_some(body);
        site.server.call("user", "DELETE", &place, None, body);
    }

    pub(crate) fn add_node(&self, name: &str) {
        let node = json!({
            "metadata": {"name": name, "labels": {"zone": "a", "kubernetes.io/hostname": name}},
            "status": {
                "capacity": {"cpu": "8", "memory": "16Gi", "pods": "110"},
                "allocatable": {"cpu": "7500m", "memory": "15Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fine",
                    "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "nodeInfo": {
                    "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "",
                    "containerRuntimeVersion": "", "kubeletVersion": "v1.36.0", "kubeProxyVersion": "",
                    "operatingSystem": "linux", "architecture": "amd64",
                },
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            },
        });
        self.make(&self.phys, "nodes", "", node);
        // Not one of V's taints: the worker's node controller lifts it.
        self.patch(&self.phys, "nodes", "", name, json!({"spec": {"taints": null}}));
    }

    pub(crate) fn bind(&self) {
        let body = json!({
            "metadata": {"name": BINDING},
            "spec": {"clusterID": "c1", "mountNamespace": MOUNT, "secretRef": {"name": "s", "namespace": NAMESPACE}},
        });
        if self.make(&self.virt, "clusterbindings", "", body) == 201 {
            let namespace = self.phys.server.get("namespaces", "", MOUNT).unwrap();
            let status =
                json!({"status": {"workerUID": text(&namespace, "/metadata/uid"), "phase": "Ready"}});
            let place = format!("{}/{BINDING}/status", collection("clusterbindings", ""));
            self.virt.server.call("user", "PATCH", &place, MERGE, Some(status));
        }
    }

    pub(crate) fn policy(&self, site: &Site, name: &str, spec: Value) {
        let mut spec = spec;
        spec["cluster"] = BINDING.into();
        if self.make(site, "resourceleasingpolicies", "", json!({"metadata": {"name": name}, "spec": spec}))
            == 409
        {
            self.patch(site, "resourceleasingpolicies", "", name, json!({"spec": spec}));
        }
    }

    /// A pod of the lender's.
    pub(crate) fn their_pod(&self, name: &str, node: &str, cpu: &str, port: Option<u16>) {
        let mut container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
        if let Some(port) = port {
            container["ports"] = json!([{"containerPort": port, "hostPort": port}]);
        }
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [container], "automountServiceAccountToken": false},
        });
        self.make(&self.phys, "pods", "theirs", pod);
    }

    /// A pod of V, on this virtual node.
    pub(crate) fn pod(&self, name: &str, vnode: &str, extra: Value) {
        let mut spec = json!({
            "nodeName": vnode, "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}],
            "terminationGracePeriodSeconds": 300,
        });
        for (key, value) in extra.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let labels = if name.starts_with("guarded") { json!({"guarded": "yes"}) } else { json!({}) };
        self.make(
            &self.virt,
            "pods",
            "web",
            json!({"metadata": {"name": name, "labels": labels}, "spec": spec}),
        );
    }

    fn uid(&self) -> Option<(String, String)> {
        let binding = self.virt.server.get("clusterbindings", "", BINDING)?;
        let kube_system = self.virt.server.get("namespaces", "", "kube-system")?;
        Some((text(&binding, "/metadata/uid").to_owned(), text(&kube_system, "/metadata/uid").to_owned()))
    }

    /// One life of a syncer, for the binding that is there.
    pub(crate) async fn sync(&self, life: Option<&CrashLayer>) {
        let (uid, virtual_cluster) = loop {
            match self.uid() {
                Some(uid) => break uid,
                None => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        };
        let metrics = Metrics::new("syncer");
        let settings =
            |name: &str| Connection { seed: self.world.seed, ..Connection::new(name, SYNCER, &metrics) };
        let virt = Cluster::over(self.virt.client(&self.traffic, life), settings("virtual"));
        let phys = Cluster::over(self.phys.client(&self.traffic, life), settings("physical"));
        if self.astray.load(Ordering::Relaxed) {
            phys.replace_over(&self.stranger.client(&self.traffic, life));
        }
        *self.connected.lock() = Some(phys.clone());
        let parts = Parts {
            subject: Subject {
                binding: BINDING.into(),
                uid: uid.as_str().into(),
                cluster_id: ClusterId::parse("c1").unwrap(),
                mount_namespace: MOUNT.into(),
                install_namespace: NAMESPACE.into(),
                virtual_cluster: virtual_cluster.into(),
            },
            virt,
            phys,
            leadership: Leadership::always(),
            clock: self.clock.clone(),
            metrics,
            settings: Settings {
                closing_notice: Duration::from_secs(600),
                node_annotations: vec!["note".to_owned()],
                physical_minor: Some(36),
            },
            zone: Zone::utc(),
            renew_every: Duration::from_secs(10),
            holder: "test".into(),
            ports: Ports::default(),
            proxier_here: Some(Some("10.9.9.9".into())),
            seed: Some(self.world.seed),
        };
        let (syncer, background) = Syncer::new(parts);
        let replaced = async {
            // Another binding of that name is another's job.
            while self.uid().is_none_or(|(now, _)| now == uid) {
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        };
        tokio::select! {
            biased;
            () = syncer.run_until(background, CancellationToken::new()) => {}
            () = replaced => {}
        }
    }

    /// Where the kubeconfig leads.
    pub(crate) fn lead_astray(&self, astray: bool) {
        if self.astray.swap(astray, Ordering::Relaxed) == astray {
            return;
        }
        let site = if astray { &self.stranger } else { &self.phys };
        if let Some(connected) = &*self.connected.lock() {
            connected.replace_over(&site.client(&self.traffic, None));
        }
    }

    /// Everyone else, for ever.
    pub(crate) async fn others(&self) {
        let residents = async {
            loop {
                self.node_controller();
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        };
        tokio::join!(self.virt.server.controllers(), self.phys.server.controllers(), residents);
    }

    /// Lifts the taint of new nodes, and takes those for lost whose Lease is old.
    fn node_controller(&self) {
        let server = &self.virt.server;
        for node in server.list("nodes", None) {
            let name = text(&node, "/metadata/name");
            let lease = server.get("leases", "kube-node-lease", name);
            let renewed =
                lease.as_ref().and_then(|lease| text(lease, "/spec/renewTime").parse::<Timestamp>().ok());
            let age = renewed.map(|at| server.now().duration_since(at));
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.iter().find(|one| one["type"] == "Ready");
            let is_ready = ready.is_some_and(|ready| ready["status"] == "True");
            let place = format!("{}/{name}", collection("nodes", ""));
            let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            let rest: Vec<&Value> =
                taints.iter().filter(|taint| taint["key"] != "node.kubernetes.io/not-ready").collect();
            if is_ready && rest.len() < taints.len() {
                let body = json!({"spec": {"taints": rest}});
                server.call("node-controller", "PATCH", &place, MERGE, Some(body));
            }
            if is_ready && age.is_some_and(|age| age > SignedDuration::from_secs(50)) {
                let lost: Vec<Value> = conditions
                    .into_iter()
                    .map(|mut one| {
                        if one["type"] == "Ready" {
                            one["status"] = "Unknown".into();
                            one["reason"] = "NodeStatusUnknown".into();
                        }
                        one
                    })
                    .collect();
                let body = json!({"status": {"conditions": lost}});
                let place = format!("{place}/status");
                server.call("node-controller", "PATCH", &place, MERGE, Some(body));
            }
        }
    }

    fn rules(&self) {
        let oracle = &self.world.oracle;
        let uids: Arc<Mutex<BTreeMap<String, ()>>> = Arc::default();
        let known = Arc::clone(&uids);
        oracle.always("V", &self.virt.server, ONLY_OURS, move |commit| {
            if commit.plural == "clusterbindings" {
                let uid = commit.new.as_deref().map(|new| text(new, "/metadata/uid").to_owned());
                known.lock().extend(uid.map(|uid| (uid, ())));
            }
            let Some(one) =
                commit.old.as_deref().or(commit.new.as_deref()).filter(|_| commit.actor == SYNCER)
            else {
                return Ok(());
            };
            let is_ours = known.lock().contains_key(label(one, labels::BINDING_UID));
            let fine = match &*commit.plural {
                "nodes" | "csinodes" | "leases" => is_ours,
                "pods" => text(one, "/spec/nodeName").starts_with("vnode-c1-"),
                "clusterbindings" | "resourceleasingpolicies" | "events" => true,
                _ => false,
            };
            if fine { Ok(()) } else { Err(format!("{} {}", commit.plural, commit.name)) }
        });
        for (name, site) in [("P", &self.phys), ("stranger", &self.stranger)] {
            oracle.always(name, &site.server, ONLY_OURS, move |commit| {
                let wrote = commit.actor == SYNCER;
                let fine = commit.plural == "resourceleasingpolicies" && name == "P";
                if wrote && !fine { Err(format!("{} {}", commit.plural, commit.name)) } else { Ok(()) }
            });
        }
        let server = self.virt.server.clone();
        oracle.always("V", &self.virt.server, NODE_LAST, move |commit| {
            if commit.plural != "nodes" || commit.actor != SYNCER || commit.verb != Verb::Delete {
                return Ok(());
            }
            let on = |plural: &str| {
                let all = server.list_at(commit.revision, plural, None);
                all.into_iter().find(|one| {
                    let named = text(one, "/metadata/name") == &*commit.name && plural != "pods";
                    named || (plural == "pods" && text(one, "/spec/nodeName") == &*commit.name)
                })
            };
            for plural in ["pods", "csinodes", "leases"] {
                if let Some(left) = on(plural) {
                    return Err(format!("{plural} {} is still there", text(&left, "/metadata/name")));
                }
            }
            Ok(())
        });
        self.rules_of_reclaim();
        let base = Resources::parse(
            &serde_json::from_value(json!({"cpu": "7500m", "memory": "15Gi", "pods": "110"})).unwrap(),
        )
        .unwrap();
        oracle.always("V", &self.virt.server, WITHIN_BASE, move |commit| {
            let Some(new) =
                commit.new.as_deref().filter(|_| commit.plural == "nodes" && commit.actor == SYNCER)
            else {
                return Ok(());
            };
            for (resource, amount) in new["status"]["allocatable"].as_object().into_iter().flatten() {
                let amount = amount.as_str().unwrap_or_default().parse().unwrap();
                if base.get(resource) < amount {
                    return Err(format!("{}: {resource} {amount}", commit.name));
                }
            }
            Ok(())
        });
        let (phys, cut_at, astray) = (self.phys.clone(), Arc::clone(&self.cut_at), Arc::clone(&self.astray));
        let _ = astray;
        oracle.always("V", &self.virt.server, HONEST, move |commit| {
            let status = |object: Option<&Value>| {
                let conditions = object.and_then(|object| object["status"]["conditions"].as_array());
                let ready = conditions.into_iter().flatten().find(|one| one["type"] == "Ready");
                ready.map(|ready| ready["status"].as_str().unwrap_or_default().to_owned())
            };
            let falls = commit.plural == "nodes"
                && commit.actor == SYNCER
                && status(commit.new.as_deref()).is_some_and(|now| now != "True")
                && status(commit.old.as_deref()).is_some_and(|before| before == "True");
            let Some(new) = commit.new.as_deref().filter(|_| falls) else { return Ok(()) };
            let node = VirtualNode::read(&object(new)).physical_name;
            let long_ago = commit.at.checked_sub(SignedDuration::from_secs(30)).unwrap();
            if cut_at.lock().is_some_and(|at| at <= long_ago) {
                return Ok(());
            }
            // It was so at some time that the syncer may have heard of.
            let history = phys.server.history(0);
            let told =
                history.iter().rev().take(400).filter(|one| one.plural == "nodes" && *one.name == *node);
            let said = told.flat_map(|one| [one.old.clone(), one.new.clone()]).flatten();
            let mut said = said.filter_map(|object| status(Some(&object)));
            if said.any(|status| status != "True") {
                Ok(())
            } else {
                Err(format!("{}: nobody said so", commit.name))
            }
        });
    }

    /// Pods go when their node's lease says so, and then they do.
    fn rules_of_reclaim(&self) {
        let oracle = &self.world.oracle;
        let (server, jumped) = (self.virt.server.clone(), Arc::clone(&self.jumped));
        oracle.always("V", &self.virt.server, NOT_EARLY, move |commit| {
            let begins = commit.plural == "pods"
                && commit.actor == SYNCER
                && commit.old.as_deref().is_some_and(|old| !is_deleting(old))
                && (commit.verb == Verb::Delete || commit.new.as_deref().is_some_and(is_deleting));
            let Some(old) = commit.old.as_deref().filter(|_| begins) else { return Ok(()) };
            if jumped.load(Ordering::Relaxed) || label(old, labels::HOSTPORT_FAKE_POD) == "true" {
                return Ok(());
            }
            let vnode = text(old, "/spec/nodeName");
            let nodes = server.list_at(commit.revision, "nodes", None);
            let Some(node) = nodes.iter().find(|one| text(one, "/metadata/name") == vnode) else {
                return Err(format!("{}: its node is gone", commit.name));
            };
            let tenure: Tenure = VirtualNode::read(&object(node)).tenure;
            let evicted = label(old, "guarded") == "yes" && tenure.demands().next().is_some();
            let due = tenure.demands().any(|demand| demand.deadline <= commit.at);
            if evicted || due { Ok(()) } else { Err(format!("{}: {tenure:?}", commit.name)) }
        });
    }

    /// What every node should offer, from the servers' own truth.
    fn truth(&self, binding: &Binding, node: &PhysicalNode) -> Explanation {
        let read = |site: &Site| -> Vec<_> {
            let all = site.server.list("resourceleasingpolicies", None);
            all.iter().map(|one| SeenPolicy::read(&object(one), &Zone::utc()).candidate).collect()
        };
        let served = self.phys.server.list("customresourcedefinitions", None).len() > 1;
        let worker =
            if served { WorkerPolicies::Served(read(&self.phys)) } else { WorkerPolicies::NotServed };
        let policies = Policies { worker, computing: read(&self.virt) };
        let mut ledger = Ledger::default();
        for pod in self.phys.server.list("pods", None) {
            if text(&pod, "/spec/nodeName") == node.node.name {
                let requests =
                    requests::of_pod(&pod["spec"].to_string(), Some(&pod["status"].to_string())).unwrap();
                ledger.put(text(&pod, "/metadata/uid"), User::Namespace("theirs".to_owned()), requests);
            }
        }
        Explanation::of(binding, &policies, &node.node, &ledger, self.clock.now())
    }

    /// What is wrong at rest.
    pub(crate) fn at_rest(&self) -> Result<(), String> {
        let server = &self.virt.server;
        let vnodes = server.list("nodes", None);
        let Some(binding) = server.get("clusterbindings", "", BINDING) else {
            let left = ["nodes", "leases", "csinodes"].map(|plural| server.list(plural, None).len());
            return if left == [0, 0, 0] { Ok(()) } else { Err(format!("left: {left:?}")) };
        };
        if is_deleting(&binding) {
            return Err(format!("the binding is still being deleted: {}", binding["metadata"]["finalizers"]));
        }
        let parsed = BindingObject::read(&object(&binding)).parsed.map_err(|faults| format!("{faults:?}"))?;
        let mut expected = 0;
        for physical in self.phys.server.list("nodes", None) {
            let physical = PhysicalNode::read(&object(&physical))?;
            let explanation = self.truth(&parsed, &physical);
            let vnode = vnodes.iter().map(|one| (one, VirtualNode::read(&object(one))));
            let vnode = vnode.into_iter().find(|(_, vnode)| vnode.physical_name == physical.node.name);
            match (explanation.lease(), vnode) {
                (None, None) => {}
                (None, Some((_, vnode))) => return Err(format!("{} should not be there", vnode.name())),
                (Some(_), None) => return Err(format!("{} has no virtual node", physical.node.name)),
                (Some(lease), Some((raw, vnode))) => {
                    expected += 1;
                    let offered: BTreeMap<String, String> = lease
                        .offered()
                        .iter()
                        .map(|(resource, amount)| (resource.to_owned(), amount.to_string()))
                        .collect();
                    if vnode.allocatable != offered || vnode.capacity != offered {
                        return Err(format!(
                            "{} offers {:?} instead of {offered:?}",
                            vnode.name(),
                            vnode.allocatable
                        ));
                    }
                    self.vnode_at_rest(raw, &vnode, &physical, lease.active)?;
                }
            }
        }
        if vnodes.len() != expected {
            return Err(format!("{} virtual nodes instead of {expected}", vnodes.len()));
        }
        if binding["status"]["nodes"] != json!(expected) {
            return Err(format!("{} nodes are counted, {expected} are there", binding["status"]["nodes"]));
        }
        if !text(&binding, "/metadata/finalizers/0").contains(finalizers::CLUSTER_BINDING_SYNCER) {
            return Err("the finalizer is missing".to_owned());
        }
        Ok(())
    }

    fn vnode_at_rest(
        &self,
        raw: &Value,
        vnode: &VirtualNode,
        physical: &PhysicalNode,
        is_open: bool,
    ) -> Result<(), String> {
        let name = vnode.name();
        let has = |key: &str| vnode.taints.iter().any(|taint| taint["key"] == key);
        if vnode.tenure.leaving.is_some() || has("kubeocean.io/vnode-deleting") || is_deleting(raw) {
            return Err(format!("{name} is leaving"));
        }
        if has("kubeocean.io/out-of-time-windows") == is_open {
            return Err(format!("{name}: open is {is_open}, and its taints are {:?}", vnode.taints));
        }
        if has("kubeocean.io/worker-unreachable") {
            return Err(format!("{name} is said to be unreachable"));
        }
        if has("kubeocean.io/physical-node-unschedulable") != physical.unschedulable {
            return Err(format!("{name}: cordoned is {}", physical.unschedulable));
        }
        let ready = |conditions: &[Value]| {
            let ready = conditions.iter().find(|one| one["type"] == "Ready");
            ready.map(|one| [one["status"].clone(), one["reason"].clone()])
        };
        if ready(&vnode.conditions) != ready(&physical.conditions) {
            return Err(format!("{name}: {:?} instead of {:?}", vnode.conditions, physical.conditions));
        }
        for (key, value) in physical.node.labels.iter().filter(|(key, _)| !key.contains('/')) {
            if label(raw, key) != value {
                return Err(format!("{name}: label {key} is {}", label(raw, key)));
            }
        }
        let lease = self.virt.server.get("leases", "kube-node-lease", name);
        let renewed = lease.and_then(|lease| text(&lease, "/spec/renewTime").parse::<Timestamp>().ok());
        let age = renewed.map(|at| self.clock.now().duration_since(at));
        if age.is_none_or(|age| age.abs() > SignedDuration::from_secs(20)) {
            return Err(format!("{name} was renewed {age:?} ago"));
        }
        Ok(())
    }

    /// Calms everything, and waits for rest; then nothing but renewals is written.
    pub(crate) async fn comes_to_rest(&self) {
        self.virt.chaos.calm();
        self.phys.chaos.calm();
        self.stranger.chaos.calm();
        *self.cut_at.lock() = None;
        self.lead_astray(false);
        let within = if self.restored.load(Ordering::Relaxed) { REST_WITHIN * 3 } else { REST_WITHIN };
        let oracle = &self.world.oracle;
        if !oracle.rest(within, || self.at_rest()).await {
            return;
        }
        tokio::time::sleep(Duration::from_secs(330)).await;
        let edges = || {
            let policies =
                [&self.virt, &self.phys].map(|site| site.server.list("resourceleasingpolicies", None));
            let all = policies.concat();
            let windows = all.iter().any(|policy| !policy["spec"]["timeWindows"].is_null());
            // What has windows changes with the time.
            windows
        };
        let before: Vec<u64> = [&self.virt, &self.phys].map(|site| site.server.revision()).to_vec();
        tokio::time::sleep(Duration::from_secs(180)).await;
        let wrote = |site: &Site, since: u64| -> Vec<String> {
            let all = site.server.history(since);
            let ours = all.iter().filter(|one: &&Commit| one.actor == SYNCER && one.plural != "leases");
            ours.map(|one| format!("{} {}", one.plural, one.name)).collect()
        };
        let written = [wrote(&self.virt, before[0]), wrote(&self.phys, before[1])].concat();
        if !written.is_empty() && !edges() {
            oracle.report(kubeocean_testkit::oracle::QUIET, format!("written at rest: {written:?}"));
        }
        if let Err(what) = self.at_rest() {
            oracle.report(kubeocean_testkit::oracle::LIVENESS, format!("was at rest, and no more: {what}"));
        }
    }

    pub(crate) fn vnodes(&self) -> Vec<String> {
        let all = self.virt.server.list("nodes", None);
        all.iter().map(|one| text(one, "/metadata/name").to_owned()).collect()
    }

    pub(crate) fn server(&self) -> &ApiServer {
        &self.virt.server
    }

    /// One pod, as it is.
    pub(crate) fn get_pod(&self, name: &str) -> Option<Arc<Value>> {
        self.virt.server.get("pods", "web", name)
    }

    /// Says that a rule which has to do with time was broken.
    pub(crate) fn late(&self, what: String) {
        self.world.oracle.report(NOT_LATE, what);
    }
}

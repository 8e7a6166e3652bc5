//! The world of a syncer: a computing cluster, a worker cluster, and another one to be led astray to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubeocean_api::keys::names::{FAKE_NAMESPACE, WORKLOAD_SERVICE_ACCOUNT};
use kubeocean_api::keys::{annotations, labels};
use kubeocean_cluster::client::{Cluster, Settings as Connection};
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::leader::Leadership;
use kubeocean_cluster::metrics::Metrics;
use kubeocean_model::action::kinds;
use kubeocean_model::key::Physical;
use kubeocean_model::leasing::SYNCER;
use kubeocean_model::naming::ClusterId;
use kubeocean_model::object::Object;
use kubeocean_model::vnode::{Settings, Unkept};
use kubeocean_model::window::Zone;
use kubeocean_syncer::syncer::{ComputingEndpoints, Parts, Ports, Syncer};
use kubeocean_syncer::world::Subject;
use kubeocean_testkit::chaos::Profile;
use kubeocean_testkit::crash::CrashLayer;
use kubeocean_testkit::simulation::{Answered, Site, World};
use kubeocean_testkit::traffic::Traffic;
use kubeocean_testkit::{ApiServer, Options};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::rules::NOT_LATE;

pub(crate) const MOUNT: &str = "mount";
pub(crate) const NAMESPACE: &str = "kubeocean-system";
pub(crate) const BINDING: &str = "w1";
pub(crate) const MERGE: Option<&str> = Some("application/merge-patch+json");

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
        kinds::CONFIG_MAP,
        kinds::SECRET,
        kinds::SERVICE_ACCOUNT,
        kinds::SERVICE,
        kinds::ENDPOINT_SLICE,
        kinds::CLAIM,
        kinds::VOLUME,
    ];
    let kind = all.iter().find(|kind| kind.plural == plural).expect("a kind of this test");
    kind.collection_path(kind.namespaced.then_some(namespace))
}

fn note_reads(asked: &Mutex<Vec<String>>, answered: &Answered<'_>) {
    let is_one = ["/pods/", "/secrets/", "/configmaps/"].iter().any(|kind| answered.path.contains(kind));
    if is_one && answered.method == http::Method::GET {
        asked.lock().push(answered.path.to_owned());
    }
}

/// How a scene is set up.
#[derive(Clone)]
pub(crate) struct Setting {
    /// Whether the worker cluster serves policies.
    pub(crate) lender_has_policies: bool,
    /// What time it is when it begins.
    pub(crate) start: Timestamp,
    /// The binding's `clusterID`.
    pub(crate) cluster_id: String,
    /// The worker cluster's nodes from the start.
    pub(crate) nodes: &'static [&'static str],
    /// Its API server is 1.this.
    pub(crate) physical_minor: u32,
    /// What the computing cluster's API server does not know of nodes.
    pub(crate) virtual_unknown: &'static [&'static str],
    /// How late news may reach the syncer.
    pub(crate) lag: Duration,
    /// The only namespaces that the syncer is to follow; none: all.
    pub(crate) namespaces: &'static [&'static str],
    /// Whether proxiers are found by their Service; else one is in the same process.
    pub(crate) has_published_proxiers: bool,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            lender_has_policies: true,
            start: Options::default().start,
            cluster_id: "c1".to_owned(),
            nodes: &["n1", "n2", "n3"],
            physical_minor: 36,
            virtual_unknown: &[],
            lag: Duration::from_secs(10),
            namespaces: &[],
            has_published_proxiers: false,
        }
    }
}

/// All clusters, and the syncer's end of the wire. Clones are the same.
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
    /// When the worker cluster last said who it is.
    pub(crate) heard: Arc<Mutex<Heard>>,
    /// How often Leases are renewed.
    pub(crate) renew_every: Duration,
    /// Every request that had to do with a Lease: when, how, and what came of it.
    pub(crate) renewals: Arc<Mutex<Vec<(Instant, http::Method, http::StatusCode)>>>,
    /// Single objects that were read, of kinds of which there are many.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    /// What was asked for when nodes were listed.
    pub(crate) node_lists: Arc<Mutex<Vec<String>>>,
    /// Clocks that jump make everything early and late.
    pub(crate) jumped: Arc<AtomicBool>,
    /// What all lives together show to Prometheus.
    pub(crate) metrics: Metrics,
    cluster_id: String,
    namespaces: &'static [&'static str],
    has_published_proxiers: bool,
}

/// When the worker cluster last said who it is, as it reached the syncer in time.
pub(crate) struct Heard {
    at: Instant,
    /// When the last silence of half a minute ended.
    silent_until: Option<Instant>,
}

impl Heard {
    /// A blip that is shorter changes nothing.
    const BLIP: Duration = Duration::from_secs(30);
    /// What was decided in a silence may be written so much later: by a slow network.
    const AFTERMATH: Duration = Duration::from_secs(60);

    fn now() -> Self {
        Self { at: Instant::now(), silent_until: None }
    }

    fn again(&mut self) {
        if self.at.elapsed() >= Self::BLIP {
            self.silent_until = Some(Instant::now());
        }
        self.at = Instant::now();
    }

    /// Whether there is or was a silence to speak of.
    pub(crate) fn was_silent(&self) -> bool {
        self.at.elapsed() >= Self::BLIP
            || self.silent_until.is_some_and(|until| until.elapsed() <= Self::AFTERMATH)
    }
}

pub(crate) fn minute(at: Timestamp, minutes: i64) -> String {
    let at = at.checked_add(SignedDuration::from_mins(minutes)).unwrap();
    at.strftime("%H:%M").to_string()
}

pub(crate) fn object(value: &Value) -> Object {
    Object::from_value(value.clone()).unwrap()
}

/// A condition of an object; null if it has none of that type.
pub(crate) fn condition(object: &Value, about: &str) -> Value {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|one| one["type"] == about).unwrap_or_default()
}

pub(crate) fn has_taint(node: &Value, key: &str) -> bool {
    node["spec"]["taints"].as_array().is_some_and(|all| all.iter().any(|taint| taint["key"] == key))
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

impl Scene {
    pub(crate) fn set(world: &World, profile: impl Fn(&str) -> Profile, setting: Setting) -> Self {
        let Setting {
            lender_has_policies,
            start,
            cluster_id,
            nodes,
            physical_minor,
            virtual_unknown,
            lag,
            namespaces,
            has_published_proxiers,
        } = setting;
        let unknown_fields = virtual_unknown.iter().map(|field| ("nodes", *field)).collect();
        let virt =
            world.site_with("V", profile("V"), &Options { start, unknown_fields, ..Options::default() });
        let worker = Options {
            with_crds: lender_has_policies,
            start,
            minor: Some(physical_minor),
            ..Options::default()
        };
        let phys = world.site_with("P", profile("P"), &worker);
        let stranger = world.site_with("stranger", profile("stranger"), &worker);
        let jumped: Arc<AtomicBool> = Arc::default();
        // A clock that is set back by just the time since the last renewal makes the same renewal once more.
        let has_jumped = Arc::clone(&jumped);
        let is_the_clocks =
            move |asked: &str| asked.contains("/leases/") && has_jumped.load(Ordering::Relaxed);
        let scene = Self {
            traffic: Traffic::of(SYNCER, &world.oracle).excusing(is_the_clocks),
            clock: Clock::simulated(virt.server.now()),
            world: world.clone(),
            virt,
            phys,
            stranger,
            restored: Arc::default(),
            astray: Arc::default(),
            connected: Arc::default(),
            heard: Arc::new(Mutex::new(Heard::now())),
            jumped,
            metrics: Metrics::new("syncer"),
            renew_every: Duration::from_secs(10),
            renewals: Arc::default(),
            asked: Arc::default(),
            node_lists: Arc::default(),
            cluster_id,
            namespaces,
            has_published_proxiers,
        };
        scene.rules();
        scene.rules_of_offers(lag);
        for namespace in [NAMESPACE, FAKE_NAMESPACE, "web"] {
            scene.make(&scene.virt, "namespaces", "", json!({"metadata": {"name": namespace}}));
        }
        scene.make(&scene.virt, "serviceaccounts", "web", json!({"metadata": {"name": "default"}}));
        // A controller puts it into every namespace; every token volume refers to it.
        let root = json!({"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "…"}});
        scene.make(&scene.virt, "configmaps", "web", root);
        for site in [&scene.phys, &scene.stranger] {
            scene.make(site, "namespaces", "", json!({"metadata": {"name": MOUNT}}));
            scene.make(site, "namespaces", "", json!({"metadata": {"name": "theirs"}}));
            let account = json!({"metadata": {"name": WORKLOAD_SERVICE_ACCOUNT}, "automountServiceAccountToken": false});
            scene.make(site, "serviceaccounts", MOUNT, account);
        }
        for node in nodes {
            scene.add_node(node);
        }
        scene.bind();
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
        let capacity = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
        let allocatable = json!({"cpu": "7500m", "memory": "15Gi", "pods": "110"});
        let labels = json!({"zone": "a", labels::HOSTNAME: name});
        self.add_node_with(name, labels, json!({"capacity": capacity, "allocatable": allocatable}));
    }

    /// A node with these labels, and whatever else its status says.
    pub(crate) fn add_node_with(&self, name: &str, labels: Value, status: Value) {
        let mut node = json!({
            "metadata": {"name": name, "labels": labels},
            "status": {
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
        for (field, value) in status.as_object().into_iter().flatten() {
            node["status"][field] = value.clone();
        }
        self.make(&self.phys, "nodes", "", node);
        // Not one of V's taints: the worker's node controller lifts it.
        self.patch(&self.phys, "nodes", "", name, json!({"spec": {"taints": null}}));
    }

    pub(crate) fn bind(&self) {
        let body = json!({
            "metadata": {"name": BINDING},
            "spec": {
                "clusterID": self.cluster_id, "mountNamespace": MOUNT, "secretRef": {"name": "s", "namespace": NAMESPACE},
                "serviceNamespaces": ["web"],
            },
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

    /// A policy for one node; the server has to take it.
    pub(crate) fn lend(&self, site: &Site, name: &str, node: &str, spec: Value) {
        let mut spec = spec;
        spec["nodeSelector"] = json!({"nodeSelectorTerms": [
            {"matchExpressions": [{"key": labels::HOSTNAME, "operator": "In", "values": [node]}]},
        ]});
        if spec["cluster"].is_null() {
            spec["cluster"] = BINDING.into();
        }
        let body = json!({"metadata": {"name": name}, "spec": spec});
        assert_eq!(self.make(site, "resourceleasingpolicies", "", body), 201, "{name}");
    }

    /// Replaces the schema of policies: as older installations may have it.
    pub(crate) fn define_policies(&self, site: &Site, schema: Value) {
        let name = format!("{}.{}", kinds::POLICY.plural, kinds::POLICY.group);
        let definition = site.server.get("customresourcedefinitions", "", &name).unwrap();
        let mut definition = (*definition).clone();
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
        let place = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        let (code, answer) = site.server.call("user", "PUT", &place, None, Some(definition));
        assert_eq!(code, 200, "{answer}");
    }

    /// Policies are taken as they come.
    pub(crate) fn without_validation(&self, site: &Site) {
        self.define_policies(site, json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    }

    /// What is said about one policy of the lender's.
    pub(crate) fn lenders_policy(&self, name: &str) -> Arc<Value> {
        self.phys.server.get("resourceleasingpolicies", "", name).expect(name)
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

    /// A pod that another borrower runs where this one would run its own.
    pub(crate) fn pod_of_another_binding(&self, name: &str, node: &str, cpu: &str) {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
        let pod = json!({
            "metadata": {"name": name, "labels": {labels::BINDING_UID: "another"}},
            "spec": {"nodeName": node, "containers": [container], "automountServiceAccountToken": false},
        });
        self.make(&self.phys, "pods", MOUNT, pod);
    }

    /// Another computing cluster that has bound the same worker cluster under the same name.
    pub(crate) fn another_borrower(&self, cluster_id: &str) -> Self {
        let virt = self.world.site_with("another V", Profile::calm(), &Options::default());
        let scene = Self {
            traffic: Traffic::of(SYNCER, &self.world.oracle),
            virt,
            connected: Arc::default(),
            renewals: Arc::default(),
            node_lists: Arc::default(),
            metrics: Metrics::new("syncer"),
            cluster_id: cluster_id.to_owned(),
            ..self.clone()
        };
        for namespace in [NAMESPACE, FAKE_NAMESPACE] {
            scene.make(&scene.virt, "namespaces", "", json!({"metadata": {"name": namespace}}));
        }
        scene.bind();
        scene
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

    /// A disruption budget of the pods whose name says that they have one; so many of them may be evicted now.
    pub(crate) fn budget(&self, allowed: u32) {
        let budget = json!({
            "metadata": {"name": "b"}, "spec": {"minAvailable": 0, "selector": {"matchLabels": {"guarded": "yes"}}},
        });
        self.make(&self.virt, "poddisruptionbudgets", "web", budget);
        let status = json!({"status": {
            "disruptionsAllowed": allowed, "currentHealthy": 5, "desiredHealthy": 0, "expectedPods": 5, "observedGeneration": 1,
        }});
        let place = format!("{}/b/status", collection("poddisruptionbudgets", "web"));
        self.virt.server.call("user", "PATCH", &place, MERGE, Some(status));
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
        let metrics = self.metrics.clone();
        let settings =
            |name: &str| Connection { seed: self.world.seed, ..Connection::new(name, SYNCER, &metrics) };
        let virt = Cluster::over(self.virtual_client(life), settings("virtual"));
        // A life that begins has heard no silence yet.
        self.heard.lock().again();
        let phys = Cluster::over(self.physical_client(life), settings("physical"));
        if self.astray.load(Ordering::Relaxed) {
            phys.replace_over(&self.stranger.client(&self.traffic, life));
        }
        *self.connected.lock() = Some(phys.clone());
        let parts = Parts {
            subject: Subject {
                binding: BINDING.into(),
                uid: uid.as_str().into(),
                cluster_id: ClusterId::parse(&self.cluster_id).unwrap(),
                mount_namespace: MOUNT.into(),
                install_namespace: NAMESPACE.into(),
                virtual_cluster: virtual_cluster.into(),
                namespaces: self.namespaces.iter().map(|name| (*name).into()).collect(),
            },
            virt,
            phys,
            leadership: Leadership::always(),
            clock: self.clock.clone(),
            metrics,
            settings: Settings {
                closing_notice: Duration::from_secs(600),
                node_annotations: vec!["note".to_owned()],
                physical_minor: None,
                unkept: Unkept::default(),
            },
            zone: Zone::utc(),
            renew_every: self.renew_every,
            holder: "test".into(),
            ports: Ports::default(),
            proxier_here: (!self.has_published_proxiers).then(|| Some("10.9.9.9".into())),
            endpoints: ComputingEndpoints { domain: "cluster.local".into(), ..ComputingEndpoints::default() },
            seed: Some(self.world.seed),
        };
        let (syncer, background) = Syncer::new(parts).unwrap();
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

    /// A client of the computing cluster, by which each renewal is known.
    fn virtual_client(&self, life: Option<&CrashLayer>) -> kube::Client {
        let (renewals, asked, node_lists) =
            (Arc::clone(&self.renewals), Arc::clone(&self.asked), Arc::clone(&self.node_lists));
        self.virt.client_telling(&self.traffic, life, move |answered| {
            note_reads(&asked, answered);
            if answered.path.contains("/leases") {
                renewals.lock().push((answered.asked_at, answered.method.clone(), answered.status));
            }
            if answered.path == "/api/v1/nodes"
                && answered.method == http::Method::GET
                && !answered.query.contains("watch=")
            {
                node_lists.lock().push(answered.query.to_owned());
            }
        })
    }

    /// A client of the worker cluster, by which it is known when that was last heard of.
    fn physical_client(&self, life: Option<&CrashLayer>) -> kube::Client {
        let (heard, proof) = (Arc::clone(&self.heard), format!("/api/v1/namespaces/{MOUNT}"));
        let asked = Arc::clone(&self.asked);
        self.phys.client_telling(&self.traffic, life, move |answered| {
            note_reads(&asked, answered);
            if answered.path == proof && answered.status.is_success() {
                heard.lock().again();
            }
        })
    }

    /// Where the kubeconfig leads.
    pub(crate) fn lead_astray(&self, astray: bool) {
        if self.astray.swap(astray, Ordering::Relaxed) == astray {
            return;
        }
        let client =
            if astray { self.stranger.client(&self.traffic, None) } else { self.physical_client(None) };
        if let Some(connected) = &*self.connected.lock() {
            connected.replace_over(&client);
        }
    }

    /// How long it is until then.
    pub(crate) fn until(&self, at: Timestamp) -> Duration {
        Duration::try_from(at.duration_since(self.clock.now())).unwrap_or_default()
    }

    pub(crate) fn vnodes(&self) -> Vec<String> {
        let all = self.virt.server.list("nodes", None);
        all.iter().map(|one| text(one, "/metadata/name").to_owned()).collect()
    }

    /// The virtual node of a node.
    pub(crate) fn vnode_of(&self, node: &str) -> Value {
        let all = self.virt.server.list("nodes", None);
        let is_it =
            |one: &&Arc<Value>| one["metadata"]["annotations"][annotations::PHYSICAL_NODE_NAME] == node;
        Value::clone(all.iter().find(is_it).expect(node))
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

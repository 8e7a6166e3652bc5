//! The world of the manager: a computing cluster, two worker clusters, and the rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use kubeocean_api::keys::names::{PROXIER_PREFIX, SYNCER_PREFIX};
use kubeocean_api::keys::{annotations, labels};
use kubeocean_cluster::apply::Applier;
use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::credentials::CredentialError;
use kubeocean_cluster::leader::{Election, Elector, Leadership};
use kubeocean_cluster::metrics::Metrics;
use kubeocean_cluster::together::until_one_ends;
use kubeocean_manager::inline::Workload;
use kubeocean_manager::manager::{Manager, Parts, Workers};
use kubeocean_manager::probe::{Connect, Route};
use kubeocean_manager::template::{Installation, Templates};
use kubeocean_model::bind::{MANAGER, Role};
use kubeocean_model::key::{Physical, Virtual};
use kubeocean_testkit::chaos::Profile;
use kubeocean_testkit::crash::CrashLayer;
use kubeocean_testkit::oracle::Oracle;
use kubeocean_testkit::simulation::{Site, World};
use kubeocean_testkit::story::Story;
use kubeocean_testkit::traffic::Traffic;
use kubeocean_testkit::{ApiServer, Options};
use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::certificates::{FORGED, is_approved};
use crate::residents::{MOMENT, Resident, collection, is_deleting, label, live, path, text};
use crate::rules::SWEPT;

pub(crate) const NAMESPACE: &str = "kubeocean-system";
pub(crate) const MOUNT: &str = "mount";

pub(crate) const REST_WITHIN: Duration = Duration::from_secs(10 * 60);
const REST_AFTER_RESTORE: Duration = Duration::from_secs(45 * 60);

/// Eighteen watches are renewed each minute or two; each of three worker clusters is asked every ten seconds, and wholly,
/// some ninety questions, every five minutes.
const REQUESTS_A_MINUTE: u64 = 18 + 3 * (6 + 20);

pub(crate) const MERGE: Option<&str> = Some("application/merge-patch+json");

pub(crate) const CHILDREN: [&str; 8] = [
    "deployments",
    "services",
    "serviceaccounts",
    "roles",
    "rolebindings",
    "clusterrolebindings",
    "poddisruptionbudgets",
    "horizontalpodautoscalers",
];

/// All clusters, and the manager's end of the wire. Clones are the same.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) virt: Site,
    pub(crate) workers: [Site; 2],
    pub(crate) traffic: Traffic,
    pub(crate) clock: Clock,
    pub(crate) restored: Arc<RwLock<bool>>,
    /// How workers are run by the manager that starts next.
    pub(crate) inline: Arc<AtomicBool>,
    /// Whether they ever were run by the manager itself.
    pub(crate) was_inline: Arc<AtomicBool>,
    /// What the last inline worker that was started reaches its worker cluster by.
    pub(crate) phys: Arc<Mutex<Option<Cluster<Physical>>>>,
    /// What is asked with kubeconfigs whose second word is `far`.
    pub(crate) far: Traffic,
    /// How many managers there are; of several, one leads.
    pub(crate) managers: u64,
    /// What the manager that was started last counts by.
    pub(crate) metrics: Arc<Mutex<Option<Metrics>>>,
    starts: Arc<AtomicU64>,
}

impl Scene {
    pub(crate) fn new(world: &World, profile: impl Fn(&str) -> Profile) -> Self {
        let virt = world.site_with("V", profile("V"), &Options::default());
        let workers = [world.site("p1", profile("p1")), world.site("p2", profile("p2"))];
        let setup = |server: &ApiServer, plural: &str, namespace: &str, body: Value| {
            let (code, answer) =
                server.call("setup", "POST", &collection(plural, namespace), None, Some(body));
            assert_eq!(code, 201, "{answer}");
        };
        for namespace in [NAMESPACE, "kubeocean-fake"] {
            setup(&virt.server, "namespaces", "", json!({"metadata": {"name": namespace}}));
        }
        for worker in &workers {
            setup(&worker.server, "namespaces", "", json!({"metadata": {"name": MOUNT}}));
            for node in ["n1", "n2"] {
                setup(&worker.server, "nodes", "", json!({"metadata": {"name": node}}));
            }
        }
        let scene = Self {
            traffic: Traffic::of(MANAGER, &world.oracle),
            clock: Clock::simulated(virt.server.now()),
            world: world.clone(),
            virt,
            workers,
            restored: Arc::default(),
            inline: Arc::default(),
            was_inline: Arc::default(),
            phys: Arc::default(),
            far: Traffic::of("far", &world.oracle),
            managers: 1,
            metrics: Arc::default(),
            starts: Arc::default(),
        };
        for (name, content) in [("s1", "p1"), ("s2", "p2"), ("s3", "p1")] {
            scene.write_secret(name, content);
        }
        scene.rules();
        scene
    }

    /// A kubeconfig is the name of the cluster that it leads to; after a blank anything may follow.
    pub(crate) fn write_secret(&self, name: &str, content: &str) {
        self.write_secret_of(NAMESPACE, name, content);
    }

    /// The same, in another namespace.
    pub(crate) fn write_secret_of(&self, namespace: &str, name: &str, content: &str) {
        let server = &self.virt.server;
        let data = json!({"kubeconfig": encode(content)});
        let place = format!("{}/{name}", collection("secrets", namespace));
        let (code, _) = server.call("user", "PATCH", &place, MERGE, Some(json!({"data": data})));
        if code == 404 {
            let body = json!({"metadata": {"name": name}, "data": data});
            server.call("user", "POST", &collection("secrets", namespace), None, Some(body));
        }
    }

    pub(crate) fn bind(&self, name: &str, cluster_id: &str, secret: &str) {
        self.bind_by(name, cluster_id, NAMESPACE, secret);
    }

    /// The same, with a Secret of another namespace.
    pub(crate) fn bind_by(&self, name: &str, cluster_id: &str, namespace: &str, secret: &str) {
        let body = json!({
            "metadata": {"name": name},
            "spec": {
                "clusterID": cluster_id, "mountNamespace": MOUNT,
                "secretRef": {"name": secret, "namespace": namespace},
            },
        });
        let mut body = body;
        body["apiVersion"] = kubeocean_model::action::kinds::BINDING.api_version().into();
        body["kind"] = "ClusterBinding".into();
        self.virt.server.call("user", "POST", &collection("clusterbindings", ""), None, Some(body));
    }

    pub(crate) fn patch_binding(&self, name: &str, body: Value) {
        let place = format!("{}/{name}", collection("clusterbindings", ""));
        self.virt.server.call("user", "PATCH", &place, MERGE, Some(body));
    }

    /// As the definition lets through, and nobody can follow.
    pub(crate) fn misspell(&self, name: &str) {
        let expression = json!({"key": "zone", "operator": "In", "values": ["not a label!"]});
        let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
        self.patch_binding(name, json!({"spec": {"nodeSelector": selector}}));
    }

    pub(crate) fn unbind(&self, name: &str, foreground: bool) {
        let place = format!("{}/{name}", collection("clusterbindings", ""));
        let policy = if foreground { "Foreground" } else { "Background" };
        let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
        self.virt.server.call("user", "DELETE", &place, None, Some(body));
    }

    /// Someone takes everyone's finalizers away, and the binding with them.
    pub(crate) fn vanish(&self, name: &str) {
        self.patch_binding(name, json!({"metadata": {"finalizers": null}}));
        self.unbind(name, false);
    }

    /// One life of a manager that is alone.
    pub(crate) async fn manage(&self, life: Option<&CrashLayer>) {
        self.live(life, Leadership::always()).await;
    }

    /// One life of a manager among others.
    pub(crate) async fn stand_by(&self, identity: &str) {
        // Elections are not what its traffic is measured by.
        let traffic = Traffic::of("elector", &Oracle::new(&Story::new()));
        let metrics = Metrics::new("elector");
        let settings = Settings { seed: self.world.seed, ..Settings::new("virtual", MANAGER, &metrics) };
        let virt = Cluster::<Virtual>::over(self.virt.client(&traffic, None), settings);
        let applier = Applier::new(MANAGER).virtually(&virt);
        let lives = self.starts.fetch_add(1, Ordering::Relaxed);
        let election = Election::new(NAMESPACE, "leader", format!("{identity}-{lives}"));
        let (elector, leadership) = Elector::new(&virt, applier, election, &self.clock).unwrap();
        tokio::join!(elector.run(CancellationToken::new()), self.live(None, leadership));
    }

    fn workers(&self) -> Workers {
        if !self.inline.load(Ordering::Relaxed) {
            return Workers::Deployed(Arc::new(RwLock::new(Arc::new(Ok(Templates::built_in())))));
        }
        self.was_inline.store(true, Ordering::Relaxed);
        let resident = |role| -> (Role, Arc<dyn Workload>) {
            let (server, starts) = (self.virt.server.clone(), Arc::clone(&self.starts));
            let (workers, phys) =
                (self.workers.each_ref().map(|site| site.server.clone()), Arc::clone(&self.phys));
            (role, Arc::new(Resident { server, workers, phys, role, starts }))
        };
        Workers::Inline(Role::ALL.map(resident).into())
    }

    async fn live(&self, life: Option<&CrashLayer>, leadership: Leadership) {
        let metrics = Metrics::new("manager");
        *self.metrics.lock() = Some(metrics.clone());
        let settings = Settings { seed: self.world.seed, ..Settings::new("virtual", MANAGER, &metrics) };
        let virt = Cluster::over(self.virt.client(&self.traffic, life), settings);
        let namespace = self.virt.server.get("namespaces", "", "kube-system").unwrap();
        let (scene, life) = (self.clone(), life.cloned());
        let connect: Connect = Arc::new(move |kubeconfig| {
            let (scene, life) = (scene.clone(), life.clone());
            Box::pin(async move {
                let content = String::from_utf8_lossy(&kubeconfig).into_owned();
                let mut words = content.split_whitespace();
                let name = words.next().unwrap_or_default();
                let traffic = if words.next() == Some("far") { &scene.far } else { &scene.traffic };
                let site = scene.workers.iter().find(|site| site.name == name);
                let site = site.ok_or(CredentialError::NotKubeconfig)?;
                let client = site.client(traffic, life.as_ref());
                Ok(Route { client, credentials: None, server: format!("https://{name}") })
            })
        });
        let parts = Parts {
            virt,
            connect,
            installation: Installation {
                namespace: NAMESPACE.to_owned(),
                virtual_cluster_uid: text(&namespace, "/metadata/uid").to_owned(),
                image: "kubeocean:test".to_owned(),
                cluster_domain: "cluster.local".to_owned(),
            },
            workers: self.workers(),
            leadership,
            clock: self.clock.clone(),
            metrics,
            seed: Some(self.world.seed),
        };
        let (manager, background) = Manager::new(parts).unwrap();
        Box::pin(manager.run(background)).await;
    }

    /// Everyone else, for ever.
    pub(crate) async fn others(&self) {
        let residents = async {
            loop {
                live(&self.virt.server);
                tokio::time::sleep(MOMENT).await;
            }
        };
        until_one_ends([self.virt.server.controllers().boxed_local(), residents.boxed_local()]).await;
    }

    /// What is wrong at rest.
    pub(crate) fn at_rest(&self) -> Result<(), String> {
        let server = &self.virt.server;
        let bindings = server.list("clusterbindings", None);
        let living = |uid: &str| bindings.iter().any(|one| text(one, "/metadata/uid") == uid);
        for hold in server.list("leases", Some(NAMESPACE)) {
            let name = text(&hold, "/metadata/name");
            let of = |id: &str| bindings.iter().any(|one| text(one, "/spec/clusterID") == id);
            if name.strip_prefix(SYNCER_PREFIX).is_some_and(|id| !of(id)) {
                return Err(format!("Lease {name} is nobody's"));
            }
        }
        for request in server.list("certificatesigningrequests", None) {
            let (name, uid) = (text(&request, "/metadata/name"), label(&request, labels::BINDING_UID));
            // Where the manager is the proxier, there are no pods of it.
            let has_pod =
                |id: &str| server.get("pods", NAMESPACE, &format!("{PROXIER_PREFIX}{id}-1")).is_some();
            let asks = |one: &Arc<Value>| {
                text(one, "/metadata/uid") == uid
                    && !is_deleting(one)
                    && has_pod(text(one, "/spec/clusterID"))
            };
            if !name.starts_with(FORGED) && bindings.iter().any(asks) && !is_approved(&request) {
                return Err(format!("request {name} is not approved"));
            }
        }
        for plural in CHILDREN.into_iter().chain(SWEPT) {
            for object in server.list(plural, None) {
                let uid = label(&object, labels::BINDING_UID);
                if is_ours(&object) && !living(uid) {
                    return Err(format!("{plural} {} is nobody's", text(&object, "/metadata/name")));
                }
            }
        }
        for binding in &bindings {
            self.binding_at_rest(&bindings, binding)?;
        }
        Ok(())
    }

    fn binding_at_rest(&self, all: &[Arc<Value>], binding: &Value) -> Result<(), String> {
        let (name, uid) = (text(binding, "/metadata/name"), text(binding, "/metadata/uid"));
        if is_deleting(binding) {
            return Err(format!("{name} is still being deleted: {}", binding["metadata"]["finalizers"]));
        }
        let age = |one: &Value| {
            let unbound = text(one, "/status/workerUID").is_empty();
            let made = text(one, "/metadata/creationTimestamp").to_owned();
            (unbound, made, text(one, "/metadata/name").to_owned())
        };
        let has_rival = all
            .iter()
            .any(|one| one["spec"]["clusterID"] == binding["spec"]["clusterID"] && age(one) < age(binding));
        let phase = text(binding, "/status/phase");
        let wanted = if has_rival { "Failed" } else { "Ready" };
        if phase != wanted {
            return Err(format!(
                "{name} is {phase} and should be {wanted}: {}",
                binding["status"]["conditions"]
            ));
        }
        if binding["status"]["observedGeneration"] != binding["metadata"]["generation"] {
            return Err(format!("{name}: what is said is of an older generation"));
        }
        let mine: usize = CHILDREN
            .iter()
            .map(|plural| {
                let objects = self.virt.server.list(plural, None);
                objects
                    .iter()
                    .filter(|one| label(one, labels::BINDING_UID) == uid && !is_deleting(one))
                    .count()
            })
            .sum();
        // A service account, a role, two bindings, a Deployment and a budget each, and a Service.
        let expected = if has_rival || self.inline.load(Ordering::Relaxed) { 0 } else { 13 };
        if mine != expected {
            return Err(format!("{name} has {mine} objects instead of {expected}"));
        }
        Ok(())
    }

    /// Puts every binding in order, leads every kubeconfig to the cluster that its bindings are bound to, calms everything, and waits
    /// for rest.
    pub(crate) async fn comes_to_rest(&self) {
        self.virt.chaos.calm();
        for worker in &self.workers {
            worker.chaos.calm();
        }
        for binding in self.virt.server.list("clusterbindings", None) {
            self.patch_binding(text(&binding, "/metadata/name"), json!({"spec": {"nodeSelector": null}}));
        }
        // Whoever is being bound at this moment is bound then.
        tokio::time::sleep(Duration::from_secs(120)).await;
        let uid_of = |site: &Site| {
            let namespace = site.server.get("namespaces", "", MOUNT).unwrap();
            text(&namespace, "/metadata/uid").to_owned()
        };
        for binding in self.virt.server.list("clusterbindings", None) {
            let bound = text(&binding, "/status/workerUID");
            let leads_to = if bound == uid_of(&self.workers[1]) { "p2" } else { "p1" };
            self.write_secret(text(&binding, "/spec/secretRef/name"), leads_to);
        }
        let within = if *self.restored.read() { REST_AFTER_RESTORE } else { REST_WITHIN };
        let oracle = &self.world.oracle;
        if oracle.rest(within, || self.at_rest()).await {
            // The manager may not know it yet: a key waits for five minutes at most, a dead watch for three.
            tokio::time::sleep(if *self.restored.read() { within } else { Duration::from_secs(330) }).await;
            let time = Duration::from_secs(180);
            let requests = REQUESTS_A_MINUTE * self.managers;
            oracle.stays_at_rest(time, &self.traffic, requests, || self.at_rest()).await;
        }
    }

    /// Deletes an object of the manager's, picked by a number.
    pub(crate) fn vandalise(&self, draw: usize) {
        let plural = CHILDREN[draw % CHILDREN.len()];
        let objects = self.virt.server.list(plural, None);
        let mine: Vec<_> = objects.iter().filter(|one| is_ours(one)).collect();
        if let Some(object) = mine.get((draw / 8) % mine.len().max(1)) {
            let place = path(plural, object);
            match (draw / 64) % 3 {
                0 => drop(self.virt.server.call("someone", "DELETE", &place, None, None)),
                1 => {
                    let body =
                        json!({"metadata": {"annotations": {annotations::TEMPLATE_HASH: "scribbled"}}});
                    self.virt.server.call("someone", "PATCH", &place, MERGE, Some(body));
                }
                _ if plural == "deployments" => {
                    let body = json!({"spec": {"replicas": draw % 7}});
                    self.virt.server.call("someone", "PATCH", &place, MERGE, Some(body));
                }
                _ => {}
            }
        }
    }
}

pub(crate) fn is_ours(object: &Value) -> bool {
    let owned = object["metadata"]["ownerReferences"].as_array();
    label(object, labels::MANAGED_BY) == labels::MANAGED_BY_VALUE
        // As older installations said so.
        || label(object, "app.kubernetes.io/managed-by") == MANAGER
        || owned.is_some_and(|owners| owners.iter().any(|owner| owner["kind"] == "ClusterBinding"))
}

pub(crate) fn encode(content: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(content)
}

//! A computing cluster, a worker cluster, and a proxier between them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use kubeocean_api::keys::{annotations, labels};
use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::metrics::Metrics;
use kubeocean_model::action::kinds;
use kubeocean_model::bind::BindingObject;
use kubeocean_model::key::{Physical, Virtual};
use kubeocean_model::naming::Port;
use kubeocean_model::object::Object;
use kubeocean_proxier::certificate::Serving;
use kubeocean_proxier::desk::House;
use kubeocean_proxier::run::{Measuring, Parts, Proxier};
use kubeocean_proxier::world::Subject;
use kubeocean_testkit::{ApiServer, Options};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::audit::Audit;
use crate::caller::{Authority, Caller};
use crate::worker::Worker;

pub(crate) const MOUNT: &str = "mount";
pub(crate) const NODE: &str = "vnode-w1-n1";
pub(crate) const OTHER_NODE: &str = "vnode-w1-n2";
pub(crate) const MERGE: Option<&str> = Some("application/merge-patch+json");

/// How a scene is set.
#[derive(Clone)]
pub(crate) struct Setting {
    /// The name of the binding.
    pub(crate) name: &'static str,
    pub(crate) house: House,
    /// The port of all virtual nodes; without it, one that is free.
    pub(crate) shared_port: Option<u16>,
    /// What is shown to callers; without it, a certificate of the scene's own authority.
    pub(crate) serving: Option<Serving>,
}

impl Default for Setting {
    fn default() -> Self {
        Self { name: "w1", house: House::default(), shared_port: None, serving: None }
    }
}

/// The questions who calls, and what they may.
#[derive(Clone, Default)]
pub(crate) struct Reviews {
    /// They are not answered at all.
    pub(crate) fail: Arc<AtomicBool>,
    /// They are answered when this is taken away.
    pub(crate) wait: Arc<AtomicBool>,
    pub(crate) go_on: Arc<Notify>,
    pub(crate) of_tokens: Arc<AtomicUsize>,
}

/// Everything there is.
pub(crate) struct Scene {
    pub(crate) virt: ApiServer,
    pub(crate) phys: ApiServer,
    pub(crate) authority: Authority,
    pub(crate) audit: Audit,
    pub(crate) port: u16,
    pub(crate) other_port: u16,
    pub(crate) shared_port: u16,
    pub(crate) uid: String,
    pub(crate) worker: Worker,
    /// Reviews that the computing cluster was asked for, and whether it answers them.
    pub(crate) reviews: Reviews,
    pub(crate) house: House,
    pub(crate) proxier: Arc<Proxier>,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: JoinSet<()>,
}

pub(crate) fn post(server: &ApiServer, path: &str, body: Value) -> Value {
    let (code, made) = server.call("user", "POST", path, None, Some(body));
    assert_eq!(code, 201, "{path}: {made}");
    made
}

pub(crate) async fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        if Port::new(port).is_some() {
            return port;
        }
    }
}

impl Scene {
    pub(crate) async fn set() -> Self {
        Self::set_as(Setting::default()).await
    }

    pub(crate) async fn set_as(setting: Setting) -> Self {
        let Setting { name, house, shared_port, serving } = setting;
        let (virt, phys) = (ApiServer::new(Options::default()), ApiServer::new(Options::default()));
        let authority = Authority::new("clients of V");
        post(&virt, "/api/v1/namespaces", json!({"metadata": {"name": "web"}}));
        let authorities = json!({"metadata": {"name": "extension-apiserver-authentication"}, "data": {"client-ca-file": authority.pem()}});
        post(&virt, "/api/v1/namespaces/kube-system/configmaps", authorities);
        let mount = post(&phys, "/api/v1/namespaces", json!({"metadata": {"name": MOUNT}}));
        let binding = json!({
            "apiVersion": kinds::BINDING.api_version(), "kind": "ClusterBinding", "metadata": {"name": name},
            "spec": {"clusterID": "w1", "mountNamespace": MOUNT, "secretRef": {"name": "s", "namespace": "default"}},
        });
        let path = kinds::BINDING.collection_path(None);
        let made = post(&virt, &path, binding);
        let status = json!({"status": {"workerUID": mount["metadata"]["uid"], "phase": "Ready"}});
        let (_, bound) = virt.call("user", "PATCH", &format!("{path}/{name}/status"), MERGE, Some(status));
        let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
        let binding = BindingObject::read(&Object::from_value(bound).unwrap()).parsed.unwrap();
        let virtual_cluster = virt.get("namespaces", "", "kube-system").unwrap()["metadata"]["uid"].clone();

        let reviews = Reviews::default();
        let mut tasks = JoinSet::new();
        let worker = Worker::start(&phys, &mut tasks).await;
        let metrics = Metrics::new("proxier");
        let settings = |name: &str| Settings::new(name, "kubeocean-proxier", &metrics);
        let virtual_cluster_client =
            Cluster::<Virtual>::over(client_of_computing(&virt, &reviews), settings("virtual"));
        let physical = Cluster::<Physical>::over(worker.client(), settings("physical"));
        let serving = serving.unwrap_or_else(|| Serving::given(authority.server("node").certified()));
        let (port, other_port, free) = (free_port().await, free_port().await, free_port().await);
        let shared_port = shared_port.unwrap_or(free);
        let (proxier, loops) = Proxier::new(Parts {
            subject: Subject {
                binding: Arc::new(binding),
                virtual_cluster: virtual_cluster.as_str().unwrap().into(),
                install_namespace: "kubeocean-system".into(),
            },
            virt: virtual_cluster_client,
            phys: physical,
            house: house.clone(),
            serving,
            measuring: Some(Measuring::default()),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            listen_port: shared_port,
            client_ca_file: None,
            told: Metrics::new("proxier"),
            metrics,
            on_conflict: None,
            drain: Duration::from_secs(2),
        })
        .unwrap();
        let stop = CancellationToken::new();
        for (_, start) in loops {
            tasks.spawn(start(stop.clone()));
        }
        let audit = Audit::of_process();
        let scene = Self {
            virt,
            phys,
            authority,
            audit,
            port,
            other_port,
            shared_port,
            uid,
            worker,
            reviews,
            house,
            proxier,
            stop,
            tasks,
        };
        scene.populate();
        scene.until_ready().await;
        scene
    }

    fn populate(&self) {
        self.add_node(NODE, self.port);
        self.add_node(OTHER_NODE, self.other_port);
        let uid = self.add_pod("a", NODE, &json!({}));
        self.add_twin("a-twin", &self.uid, &uid);
        let uid = self.add_pod("b", OTHER_NODE, &json!({}));
        self.add_twin("b-twin", &self.uid, &uid);
        // Nobody runs it; and someone says that it is another's.
        let says = json!({
            annotations::PHYSICAL_POD_NAME: "a-twin", annotations::PHYSICAL_POD_NAMESPACE: MOUNT,
            annotations::VIRTUAL_POD_UID: uid, annotations::VIRTUAL_POD_NAME: "b",
        });
        self.add_pod("forged", NODE, &says);
        // Its twin is another binding's.
        let uid = self.add_pod("stolen", NODE, &json!({}));
        self.add_twin("stolen-twin", "another-binding", &uid);
        self.add_pod("elsewhere", "vnode-w2-n1", &json!({}));
        self.add_pod("real", "a-real-node", &json!({}));
    }

    pub(crate) fn add_node(&self, name: &str, port: u16) {
        let labels = json!({labels::BINDING_UID: self.uid, labels::PROXIER_PORT: port.to_string()});
        post(&self.virt, "/api/v1/nodes", json!({"metadata": {"name": name, "labels": labels}}));
    }

    pub(crate) fn add_pod(&self, name: &str, node: &str, annotations: &Value) -> String {
        let pod = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": node, "containers": [{"name": "c1", "image": "i"}], "initContainers": [{"name": "i1", "image": "i"}]},
        });
        let made = post(&self.virt, "/api/v1/namespaces/web/pods", pod);
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    pub(crate) fn add_twin(&self, name: &str, binding_uid: &str, virtual_uid: &str) {
        let cluster = self.virt.get("namespaces", "", "kube-system").unwrap()["metadata"]["uid"].clone();
        let pod = json!({
            "metadata": {
                "name": name,
                "labels": {labels::BINDING_UID: binding_uid, labels::VIRTUAL_CLUSTER_UID: cluster},
                "annotations": {annotations::VIRTUAL_POD_UID: virtual_uid},
            },
            "spec": {"containers": [{"name": "c1", "image": "i"}]},
        });
        post(&self.phys, &format!("/api/v1/namespaces/{MOUNT}/pods"), pod);
    }

    async fn until_ready(&self) {
        let ready = async {
            loop {
                match self.proxier.readiness() {
                    Ok(()) if self.is_open(self.port).await && self.is_open(self.other_port).await => return,
                    _ => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        };
        let within = tokio::time::timeout(Duration::from_secs(30), ready).await;
        assert!(within.is_ok(), "not ready: {:?}", self.proxier.readiness());
    }

    /// Until calls to pods are answered: watches that were cut are begun again, and connections that ended are noticed, in their own time.
    pub(crate) async fn until_answered(&self, caller: &Caller) {
        let answered = async {
            while caller.call(self.port, "GET", "/containerLogs/web/a/c1", &[]).await.code != 200 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(20), answered).await.is_ok(), "nothing is answered");
    }

    pub(crate) async fn is_open(&self, port: u16) -> bool {
        tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()
    }

    /// Someone with this certificate.
    pub(crate) fn caller(&self, name: &str) -> Caller {
        Caller::new(&self.authority, Some(self.authority.client(name, None)))
    }

    /// Someone without any.
    pub(crate) fn nobody(&self) -> Caller {
        Caller::new(&self.authority, None)
    }

    pub(crate) fn uid_of(&self, pod: &str) -> String {
        self.virt.get("pods", "web", pod).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
    }
}

/// A client of the computing cluster, which may fall silent about callers.
pub(crate) fn client_of_computing(virt: &ApiServer, reviews: &Reviews) -> kube::Client {
    let (service, reviews) = (virt.service("proxier"), reviews.clone());
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let path = request.uri().path().to_owned();
        let (service, reviews) = (service.clone(), reviews.clone());
        async move {
            let is_review = path.ends_with("reviews");
            if is_review && reviews.fail.load(Ordering::Relaxed) {
                return Err("the line is dead".into());
            }
            if path.ends_with("tokenreviews") {
                reviews.of_tokens.fetch_add(1, Ordering::Relaxed);
            }
            while is_review && reviews.wait.load(Ordering::Relaxed) {
                reviews.go_on.notified().await;
            }
            service.oneshot(request).await
        }
    });
    kube::Client::new(service, "default")
}

/// Time passes for everyone at once, and nothing else happens meanwhile.
pub(crate) async fn leap(by: Duration) {
    tokio::time::pause();
    tokio::time::advance(by).await;
    tokio::time::resume();
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(20), wait).await.is_ok(), "{what}");
}

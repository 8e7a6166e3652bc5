//! A computing cluster, a worker cluster, and a proxier between them.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioIo};
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
use parking_lot::Mutex;
use rustls::sign::CertifiedKey;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::audit::Audit;
use crate::caller::{Authority, Caller};

pub(crate) const MOUNT: &str = "mount";
pub(crate) const NODE: &str = "vnode-w1-n1";
pub(crate) const OTHER_NODE: &str = "vnode-w1-n2";
const MERGE: Option<&str> = Some("application/merge-patch+json");

type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

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
    /// What the worker cluster was asked beside its API: the request line and the headers.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    /// Whether the computing cluster answers no reviews.
    pub(crate) is_silent: Arc<AtomicBool>,
    pub(crate) proxier: Arc<Proxier>,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: JoinSet<()>,
}

fn post(server: &ApiServer, path: &str, body: Value) -> Value {
    let (code, made) = server.call("user", "POST", path, None, Some(body));
    assert_eq!(code, 201, "{path}: {made}");
    made
}

async fn free_port() -> u16 {
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
        let (virt, phys) = (ApiServer::new(Options::default()), ApiServer::new(Options::default()));
        let authority = Authority::new("clients of V");
        post(&virt, "/api/v1/namespaces", json!({"metadata": {"name": "web"}}));
        let authorities = json!({"metadata": {"name": "extension-apiserver-authentication"}, "data": {"client-ca-file": authority.pem()}});
        post(&virt, "/api/v1/namespaces/kube-system/configmaps", authorities);
        let mount = post(&phys, "/api/v1/namespaces", json!({"metadata": {"name": MOUNT}}));
        let binding = json!({
            "apiVersion": kinds::BINDING.api_version(), "kind": "ClusterBinding", "metadata": {"name": "w1"},
            "spec": {"clusterID": "w1", "mountNamespace": MOUNT, "secretRef": {"name": "s", "namespace": "default"}},
        });
        let path = kinds::BINDING.collection_path(None);
        let made = post(&virt, &path, binding);
        let status = json!({"status": {"workerUID": mount["metadata"]["uid"], "phase": "Ready"}});
        let (_, bound) = virt.call("user", "PATCH", &format!("{path}/w1/status"), MERGE, Some(status));
        let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
        let binding = BindingObject::read(&Object::from_value(bound).unwrap()).parsed.unwrap();
        let virtual_cluster = virt.get("namespaces", "", "kube-system").unwrap()["metadata"]["uid"].clone();

        let (asked, is_silent) = (Arc::default(), Arc::default());
        let mut tasks = JoinSet::new();
        let at = serve_worker(&phys, &asked, &mut tasks).await;
        let metrics = Metrics::new("proxier");
        let settings = |name: &str| Settings::new(name, "kubeocean-proxier", &metrics);
        let virtual_cluster_client =
            Cluster::<Virtual>::over(client_of_computing(&virt, &is_silent), settings("virtual"));
        let physical = Cluster::<Physical>::over(client_of(at), settings("physical"));
        let server = authority.server("node");
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&server.key).unwrap();
        let (port, other_port, shared_port) = (free_port().await, free_port().await, free_port().await);
        let (proxier, loops) = Proxier::new(Parts {
            subject: Subject {
                binding: Arc::new(binding),
                virtual_cluster: virtual_cluster.as_str().unwrap().into(),
                install_namespace: "kubeocean-system".into(),
            },
            virt: virtual_cluster_client,
            phys: physical,
            house: House::default(),
            serving: Serving::given(CertifiedKey::new(vec![server.certificate], key)),
            measuring: Some(Measuring::default()),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            listen_port: shared_port,
            client_ca_file: None,
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
            asked,
            is_silent,
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

    fn add_node(&self, name: &str, port: u16) {
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

    async fn is_open(&self, port: u16) -> bool {
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
fn client_of_computing(virt: &ApiServer, is_silent: &Arc<AtomicBool>) -> kube::Client {
    let (service, is_silent) = (virt.service("proxier"), Arc::clone(is_silent));
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let is_asked = request.uri().path().ends_with("reviews") && is_silent.load(Ordering::Relaxed);
        let service = service.clone();
        async move { if is_asked { Err("the line is dead".into()) } else { service.oneshot(request).await } }
    });
    kube::Client::new(service, "default")
}

/// A client of a server that speaks plainly, on this machine.
fn client_of(at: std::net::SocketAddr) -> kube::Client {
    let client = legacy::Client::builder(TokioExecutor::new()).build_http::<kube::client::Body>();
    let service = client.map_request(move |mut request: Request<kube::client::Body>| {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = format!("http://{at}{path}").parse().unwrap();
        request
    });
    kube::Client::new(service, "default")
}

/// The worker cluster's API server: its API is simulated, its pods echo what they are told.
async fn serve_worker(
    phys: &ApiServer,
    asked: &Arc<Mutex<Vec<String>>>,
    tasks: &mut JoinSet<()>,
) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (phys, asked) = (phys.clone(), Arc::clone(asked));
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (phys, asked) = (phys.clone(), Arc::clone(&asked));
            let service = service_fn(move |request| {
                let (phys, asked) = (phys.clone(), Arc::clone(&asked));
                async move { Ok::<_, Infallible>(worker_answers(&phys, &asked, request).await) }
            });
            connections.spawn(async move {
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .with_upgrades();
                drop(connection.await);
            });
        }
    });
    at
}

fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

async fn worker_answers(
    phys: &ApiServer,
    asked: &Mutex<Vec<String>>,
    mut request: Request<Incoming>,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let subresource = path.split('/').nth(7).unwrap_or_default();
    if !["log", "exec", "attach", "portforward"].contains(&subresource) {
        let (parts, body) = request.into_parts();
        let body = kube::client::Body::from(body.collect().await.unwrap().to_bytes().to_vec());
        let answer = phys.service("proxier").oneshot(Request::from_parts(parts, body)).await.unwrap();
        return answer.map(|body| body.map_err(Into::into).boxed_unsync());
    }
    let headers: Vec<String> = request
        .headers()
        .iter()
        .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
        .collect();
    asked.lock().push(format!("{} {}\n{}", request.method(), request.uri(), headers.join("\n")));
    let mut response = Response::new(whole(format!("log of {path}\n")));
    response.headers_mut().insert("set-cookie", "a=b".parse().unwrap());
    if subresource == "log" {
        return response;
    }
    let upgrade = request.headers().get("upgrade").cloned().unwrap();
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.body_mut() = whole("");
    response.headers_mut().insert("connection", "Upgrade".parse().unwrap());
    response.headers_mut().insert("upgrade", upgrade);
    response.headers_mut().insert("x-stream-protocol-version", "v4.channel.k8s.io".parse().unwrap());
    tokio::spawn(async move {
        let Ok(upgraded) = hyper::upgrade::on(&mut request).await else { return };
        let mut stream = TokioIo::new(upgraded);
        let mut buffer = [0; 1024];
        while let Ok(count) = stream.read(&mut buffer).await {
            if count == 0 {
                break;
            }
            drop(stream.write_all(&buffer[..count]).await);
        }
        // Whoever has said all still hears this.
        drop(stream.write_all(b"bye").await);
        drop(stream.shutdown().await);
    });
    response
}

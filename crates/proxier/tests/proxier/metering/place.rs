//! A worker cluster with a real node, a pod of ours and one of the lender's; a computing cluster with a virtual node.

use std::convert::Infallible;
use std::fmt::Debug;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::credentials::Credentials;
use kubeocean_cluster::kubelet::Trust;
use kubeocean_cluster::metrics::Metrics;
use kubeocean_model::key::Key;
use kubeocean_model::object::Object;
use kubeocean_model::usage_series::{Tenant, Tenants};
use kubeocean_proxier::metering::{Ground, Limits, Machine, Metering, kubelet_address};
use kubeocean_sandbox::{BUSYBOX_IMAGE, Cluster as Real, Sandbox, doctor};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

/// A busy machine may be ten times slower than an idle one; what is right is right long before this.
const LIMIT: Duration = Duration::from_secs(180);

pub(crate) fn possible() -> bool {
    if std::env::var_os("KUBEOCEAN_WITHOUT_REAL_NODES").is_some() {
        let _ = writeln!(
            std::io::stderr(),
            "NOT RUN, because KUBEOCEAN_WITHOUT_REAL_NODES is set: a test of real nodes"
        );
        return false;
    }
    if let Err(error) = doctor::require_real_nodes(2, 1) {
        panic!(
            "{error}\n`make test` as root installs all of it; KUBEOCEAN_WITHOUT_REAL_NODES=1 leaves these tests out"
        );
    }
    true
}

pub(crate) async fn eventually<T, E: Debug>(what: &str, mut check: impl AsyncFnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        match check().await {
            Ok(value) => return value,
            Err(error) if Instant::now() > deadline => panic!("{what} did not come true: {error:?}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }
}

pub(crate) async fn kubectl(cluster: &Real, args: &[&str]) -> Result<String, String> {
    kubectl_with(cluster, args, "").await
}

async fn kubectl_with(cluster: &Real, args: &[&str], input: &str) -> Result<String, String> {
    let mut command = cluster.kubectl();
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let write = async move { stdin.write_all(input.as_bytes()).await };
    // It may end without reading all of it; its exit code tells whether that was well.
    let (_, output) = tokio::join!(write, child.wait_with_output());
    let output = output.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

async fn apply(cluster: &Real, object: &Value) {
    kubectl_with(cluster, &["create", "-f", "-"], &object.to_string()).await.unwrap();
}

/// The number in front of a unit, as in `12m`.
pub(crate) fn number(figure: &str) -> u64 {
    figure.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or_default()
}

pub(crate) struct Place<'a> {
    computing: &'a Real,
    worker: &'a Real,
    kubelet: SocketAddr,
    /// One that has signed nothing here.
    pub(crate) foreign_authority: String,
}

struct OneNode(SocketAddr);

impl Ground for OneNode {
    fn serves(&self, vnode: &str) -> bool {
        vnode == "vnode-1"
    }

    fn machine(&self, _: &str) -> Option<Machine> {
        let tenant = Tenant {
            key: Key::new("shop", "web"),
            uid: "v-1".into(),
            containers: ["main".into()].into(),
            host_network: false,
        };
        let mut tenants = Tenants::new("mount");
        tenants.insert("web-3f2c", tenant);
        Some(Machine { node: "real-1".into(), kubelet: Some(self.0), tenants })
    }
}

fn busy(namespace: &str, name: &str, node: &str) -> Value {
    let script = "while :; do :; done";
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": BUSYBOX_IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", script],
                "resources": { "limits": { "cpu": "300m" } },
            }],
        },
    })
}

impl<'a> Place<'a> {
    pub(crate) async fn build(computing: &'a Real, worker: &'a Real) -> Self {
        for namespace in ["mount", "lender"] {
            kubectl(worker, &["create", "namespace", namespace]).await.unwrap();
        }
        for (namespace, name) in [("mount", "web-3f2c"), ("lender", "secret-plans")] {
            eventually("a pod", async || {
                kubectl_with(worker, &["apply", "-f", "-"], &busy(namespace, name, "real-1").to_string())
                    .await
            })
            .await;
        }
        for account in ["meter", "nobody"] {
            kubectl(worker, &["create", "serviceaccount", "--namespace=mount", account]).await.unwrap();
        }
        for arguments in [
            &["create", "clusterrole", "meter", "--verb=get", "--resource=nodes/metrics"][..],
            &["create", "clusterrolebinding", "meter", "--clusterrole=meter", "--serviceaccount=mount:meter"],
            &[
                "create",
                "role",
                "meter",
                "--namespace=mount",
                "--verb=get,list",
                "--resource=pods.metrics.k8s.io",
            ],
            &[
                "create",
                "rolebinding",
                "meter",
                "--namespace=mount",
                "--role=meter",
                "--serviceaccount=mount:meter",
            ],
        ] {
            eventually("a right", async || kubectl(worker, arguments).await).await;
        }
        let node = kubectl(worker, &["get", "node", "real-1", "-o", "json"]).await.unwrap();
        let node: Object = serde_json::from_str(&node).unwrap();
        let foreign = CertificateParams::default().self_signed(&KeyPair::generate().unwrap()).unwrap();
        Self { computing, worker, kubelet: kubelet_address(&node).unwrap(), foreign_authority: foreign.pem() }
    }

    /// As a service account of the worker cluster.
    pub(crate) async fn metering(&self, account: &str, trust: Trust, limits: Limits) -> Metering {
        let token = kubectl(self.worker, &["create", "token", "--namespace=mount", account]).await.unwrap();
        let of_cluster = async |field: &str| {
            let path = format!("-ojsonpath={{.clusters[0].cluster.{field}}}");
            kubectl(self.worker, &["config", "view", "--raw", &path]).await.unwrap()
        };
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
            "clusters": [{ "name": "a", "cluster": {
                "server": of_cluster("server").await,
                "certificate-authority-data": of_cluster("certificate-authority-data").await,
            } }],
            "users": [{ "name": "a", "user": { "token": token.trim() } }],
        });
        let credentials = Credentials::from_kubeconfig(kubeconfig.to_string().as_bytes()).await.unwrap();
        let settings = Settings::new("physical", "kubeocean-test", &Metrics::new("test"));
        let phys = Cluster::connect(credentials, settings).unwrap();
        Metering::new(OneNode(self.kubelet), &phys, trust, "mount", Clock::system(), limits)
    }

    /// Answers as the kubelet of a virtual node of the computing cluster, on which a pod runs.
    pub(crate) async fn serve(&self, sandbox: &Sandbox, metering: Metering) -> AbortOnDropHandle<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let authority = sandbox.directory().join("computing/pki/ca.key");
        let acceptor = acceptor(&std::fs::read_to_string(authority).unwrap());
        let serving = AbortOnDropHandle::new(tokio::spawn(serve(listener, acceptor, metering)));
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": "vnode-1" },
            "status": {
                "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
                "daemonEndpoints": { "kubeletEndpoint": { "Port": port } },
                "allocatable": { "cpu": "2", "memory": "1Gi" }, "capacity": { "cpu": "2", "memory": "1Gi" },
            },
        });
        apply(self.computing, &node).await;
        kubectl(self.computing, &["create", "namespace", "shop"]).await.unwrap();
        eventually("the pod", async || {
            let pod = busy("shop", "web", "vnode-1").to_string();
            kubectl_with(self.computing, &["apply", "-f", "-"], &pod).await
        })
        .await;
        let running = r#"{"status":{"phase":"Running"}}"#;
        let patch = [
            "patch",
            "pod",
            "web",
            "--namespace=shop",
            "--subresource=status",
            "--type=merge",
            "-p",
            running,
        ];
        kubectl(self.computing, &patch).await.unwrap();
        serving
    }
}

/// A certificate of the cluster's own authority, as virtual nodes have one.
fn acceptor(authority_key: &str) -> TlsAcceptor {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, "kubeocean-sandbox-computing");
    let mut authority = CertificateParams::default();
    authority.distinguished_name = name;
    let issuer = Issuer::new(authority, KeyPair::from_pem(authority_key).unwrap());
    let mut params = CertificateParams::default();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
        )
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, metering: Metering) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let (acceptor, metering) = (acceptor.clone(), metering.clone());
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(socket).await else { return };
            let service = service_fn(|request| answer(request, metering.clone()));
            let connection = hyper::server::conn::http1::Builder::new();
            drop(connection.serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

async fn answer(request: Request<Incoming>, metering: Metering) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(request.uri().path(), "/metrics/resource");
    let (code, body) = match metering.resource("vnode-1").await {
        Ok(answer) => (http::StatusCode::OK, answer.body),
        Err(refused) => (refused.code, refused.message.into()),
    };
    Ok(Response::builder().status(code).body(Full::new(body)).unwrap())
}

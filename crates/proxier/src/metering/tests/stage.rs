//! Servers that play a kubelet and an API server, and what stands between them.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use http::header::AUTHORIZATION;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::credentials::Credentials;
use kubeocean_cluster::kubelet::Trust;
use kubeocean_cluster::metrics::Metrics;
use kubeocean_model::key::{Key, Physical};
use kubeocean_model::usage_series::{Tenant, Tenants};
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use crate::metering::{Ground, Limits, Machine, Metering, Refused};

const LOOPBACK: [u8; 4] = [127, 0, 0, 1];

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// What a server does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Behaviour {
    Good,
    /// Answers with numbers of an hour ago.
    Old,
    Refuses(u16),
    /// Takes the question, and says nothing.
    Silent,
    Endless,
    BreaksOff,
    /// Nobody listens.
    Gone,
}

pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    pub(super) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate and its key, in PEM.
    fn issue(&self, usage: ExtendedKeyUsagePurpose, address: [u8; 4]) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![usage];
        params.subject_alt_names = vec![SanType::IpAddress(address.into())];
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// What a server was told.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) path: String,
    pub(super) authorization: Option<String>,
    pub(super) certificate: bool,
}

pub(super) struct Server {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    _task: Option<AbortOnDropHandle<()>>,
}

struct Shared {
    behaviour: Mutex<Behaviour>,
    heard: Mutex<Vec<Heard>>,
}

impl Server {
    pub(super) async fn start(authority: &Authority, behaviour: Behaviour) -> Self {
        Self::start_as(LOOPBACK, authority, behaviour).await
    }

    /// With a certificate for this address.
    pub(super) async fn start_as(address: [u8; 4], authority: &Authority, behaviour: Behaviour) -> Self {
        let acceptor = acceptor(authority, address);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { behaviour: Mutex::new(behaviour), heard: Mutex::default() });
        let serving = (behaviour != Behaviour::Gone)
            .then(|| AbortOnDropHandle::new(tokio::spawn(serve(listener, acceptor, Arc::clone(&shared)))));
        Self { address, shared, _task: serving }
    }

    pub(super) fn behave(&self, behaviour: Behaviour) {
        *self.shared.behaviour.lock() = behaviour;
    }

    pub(super) fn heard(&self) -> Vec<Heard> {
        self.shared.heard.lock().clone()
    }
}

/// As kubelets do it, it asks for a certificate and takes whoever has none. This one looks at none.
fn acceptor(authority: &Authority, address: [u8; 4]) -> TlsAcceptor {
    let (certificate, key) = authority.issue(ExtendedKeyUsagePurpose::ServerAuth, address);
    let mut roots = rustls::RootCertStore::empty();
    // Of clients of any authority: that is what the tests look at.
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let lenient =
        Lenient(WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build().unwrap());
    let config = rustls::ServerConfig::builder()
        .with_client_cert_verifier(Arc::new(lenient))
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Takes any client certificate.
#[derive(Debug)]
struct Lenient(Arc<dyn rustls::server::danger::ClientCertVerifier>);

impl rustls::server::danger::ClientCertVerifier for Lenient {
    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::server::danger::ClientCertVerified, rustls::Error> {
        Ok(rustls::server::danger::ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(socket).await else { return };
            let certificate = stream.get_ref().1.peer_certificates().is_some();
            let service = service_fn(|request| answer(request, certificate, Arc::clone(&shared)));
            let connection = hyper::server::conn::http1::Builder::new();
            drop(connection.serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    certificate: bool,
    shared: Arc<Shared>,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    let authorization = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    shared.heard.lock().push(Heard { path: path.clone(), authorization, certificate });
    let behaviour = *shared.behaviour.lock();
    let now = Timestamp::now().as_millisecond();
    let body = match behaviour {
        Behaviour::Good => whole(page(&path, now)),
        Behaviour::Old => whole(page(&path, now - 3_600_000)),
        Behaviour::Refuses(code) => {
            return Ok(Response::builder().status(code).body(whole("no".to_owned())).unwrap());
        }
        Behaviour::Silent | Behaviour::Gone => std::future::pending().await,
        Behaviour::Endless => {
            let line = Bytes::from(page(&path, now));
            pieces(stream::repeat_with(move || Ok(line.clone())))
        }
        Behaviour::BreaksOff => {
            let begun = Ok(Bytes::from(page(&path, now)));
            pieces(stream::iter([begun, Err(std::io::Error::other("the machine is gone"))]))
        }
    };
    Ok(Response::new(body))
}

fn whole(text: String) -> Body {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}

fn pieces(stream: impl stream::Stream<Item = std::io::Result<Bytes>> + Send + 'static) -> Body {
    StreamBody::new(stream.map(|piece| piece.map(Frame::data))).boxed_unsync()
}

fn page(path: &str, at: i64) -> String {
    let mut text = String::new();
    match path {
        "/metrics/resource" => {
            for (namespace, pod) in [("mount", "web-3f2c"), ("lender", "secret-plans")] {
                let labels = format!(r#"namespace="{namespace}",pod="{pod}""#);
                let _ = write!(
                    text,
                    "container_cpu_usage_seconds_total{{container=\"main\",{labels}}} 12.5 {at}\n\
                     container_memory_working_set_bytes{{container=\"main\",{labels}}} 1048576 {at}\n\
                     pod_cpu_usage_seconds_total{{{labels}}} 13 {at}\n\
                     pod_memory_working_set_bytes{{{labels}}} 1148576 {at}\n"
                );
            }
            let _ = write!(
                text,
                "node_cpu_usage_seconds_total 99999 {at}\nnode_memory_working_set_bytes 9e9 {at}\n"
            );
        }
        "/metrics/cadvisor" => {
            for (namespace, pod) in [("mount", "web-3f2c"), ("lender", "secret-plans")] {
                let _ = writeln!(
                    text,
                    "container_cpu_usage_seconds_total{{container=\"main\",cpu=\"total\",id=\"/kubepods/x\",image=\"busybox\",name=\"abc\",namespace=\"{namespace}\",pod=\"{pod}\"}} 12.5 {at}"
                );
            }
            let _ = writeln!(text, "machine_cpu_cores{{machine_id=\"x\"}} 64");
        }
        "/apis/metrics.k8s.io/v1beta1/namespaces/mount/pods" => {
            let at = Timestamp::from_millisecond(at).unwrap();
            let _ = write!(
                text,
                r#"{{"kind":"PodMetricsList","metadata":{{}},"items":[{{"metadata":{{"name":"web-3f2c","namespace":"mount"}},
                    "timestamp":"{at}","window":"15s","containers":[{{"name":"main","usage":{{"cpu":"250m","memory":"2Mi"}}}}]}}]}}"#
            );
        }
        other => panic!("nobody asks for {other}"),
    }
    text
}

/// Who we are.
#[derive(Clone, Copy, Debug)]
pub(super) enum User {
    Token,
    Certificate,
    Both,
}

pub(super) struct Scene {
    pub(super) kubelet: Server,
    pub(super) api_server: Server,
    pub(super) metering: Metering,
    authority: String,
    pub(super) phys: Cluster<Physical>,
    left: Arc<Mutex<BTreeSet<String>>>,
}

/// All virtual nodes stand on the same machine.
struct OneMachine {
    kubelet: SocketAddr,
    left: Arc<Mutex<BTreeSet<String>>>,
}

impl Ground for OneMachine {
    fn serves(&self, vnode: &str) -> bool {
        vnode.starts_with("vnode-") && !self.left.lock().contains(vnode)
    }

    fn machine(&self, vnode: &str) -> Option<Machine> {
        let mut tenants = Tenants::new("mount");
        let tenant = Tenant {
            key: Key::new("shop", "web"),
            uid: "v-1".into(),
            containers: ["main".into()].into(),
            host_network: false,
        };
        tenants.insert("web-3f2c", tenant);
        self.serves(vnode).then(|| Machine { node: "n1".into(), kubelet: Some(self.kubelet), tenants })
    }
}

impl Scene {
    pub(super) async fn new(
        authority: &Authority,
        kubelet: Server,
        api_server: Server,
        user: User,
        trust: Trust,
        limits: Limits,
    ) -> Self {
        let credentials = credentials(&authority.pem(), api_server.address, user).await;
        let settings = Settings::new("physical", "kubeocean-test", &Metrics::new("test"));
        let phys = Cluster::connect(credentials, settings).unwrap();
        let left = Arc::default();
        let ground = OneMachine { kubelet: kubelet.address, left: Arc::clone(&left) };
        let metering = Metering::new(ground, &phys, trust, "mount", Clock::system(), limits);
        Self { kubelet, api_server, metering, authority: authority.pem(), phys, left }
    }

    pub(super) async fn resource(&self) -> Result<String, Refused> {
        self.metering.resource("vnode-1").await.map(|answer| String::from_utf8(answer.body.to_vec()).unwrap())
    }

    pub(super) async fn cadvisor(&self) -> Result<String, Refused> {
        self.metering.cadvisor("vnode-1").await.map(|answer| String::from_utf8(answer.body.to_vec()).unwrap())
    }

    pub(super) async fn give_credentials(&self, user: User) {
        self.phys.replace(credentials(&self.authority, self.api_server.address, user).await).unwrap();
    }

    pub(super) fn stop_serving(&self, vnode: &str) {
        self.left.lock().insert(vnode.to_owned());
    }
}

async fn credentials(authority: &str, server: SocketAddr, user: User) -> Credentials {
    let encode = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    let (certificate, key) = Authority::new().issue(ExtendedKeyUsagePurpose::ClientAuth, LOOPBACK);
    let token = "token: hunter2".to_owned();
    let certificate =
        format!("client-certificate-data: {}, client-key-data: {}", encode(&certificate), encode(&key));
    let user = match user {
        User::Token => token,
        User::Certificate => certificate,
        User::Both => format!("{token}, {certificate}"),
    };
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
         contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
         clusters: [{{name: a, cluster: {{server: 'https://{server}', certificate-authority-data: {}}}}}]\n\
         users: [{{name: a, user: {{{user}}}}}]\n",
        encode(authority)
    );
    Credentials::from_kubeconfig(kubeconfig.as_bytes()).await.unwrap()
}

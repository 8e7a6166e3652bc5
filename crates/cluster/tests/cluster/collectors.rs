//! Spans on their way to a collector behind TLS, whose authority is among the system's roots, or is not.

use std::net::SocketAddr;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubeocean_cluster::telemetry::{Environment, LogArgs, Telemetry};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_rustls::TlsAcceptor;

const COLLECTOR: &str = "KUBEOCEAN_TEST_COLLECTOR";

/// Longer than spans are waited for at the end.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A collector with a certificate of this authority: each request's path and body.
async fn collector(
    authority: &CertifiedIssuer<'static, KeyPair>,
) -> (SocketAddr, UnboundedReceiver<(String, Bytes)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![address.ip().to_string()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (send, receive) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let send = send.clone();
            let serve = service_fn(move |request: http::Request<Incoming>| {
                let send = send.clone();
                async move {
                    let path = request.uri().path().to_owned();
                    drop(send.send((path, request.into_body().collect().await?.to_bytes())));
                    Ok::<_, hyper::Error>(http::Response::new(Full::new(Bytes::new())))
                }
            });
            let serving = hyper::server::conn::http1::Builder::new();
            tokio::spawn(serving.serve_connection(TokioIo::new(stream), serve));
        }
    });
    (address, receive)
}

/// Not a test of its own: the tests below run it as another process, since roots are read from the environment.
#[tokio::test]
#[ignore = "is a process of another test"]
async fn sender() {
    let collector = std::env::var(COLLECTOR).unwrap();
    let environment: Environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector)].into_iter().collect();
    let telemetry = Telemetry::init("syncer", &LogArgs::default(), &environment).unwrap();
    tracing::info_span!(target: "kubeocean", "bind pod", pod = "web/a").in_scope(|| {});
    telemetry.shutdown().await;
}

/// Sends one span from a process that trusts this authority and no other.
async fn send(collector: SocketAddr, trusted: &CertifiedIssuer<'static, KeyPair>) -> Output {
    let roots = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(roots.path(), trusted.pem()).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "collectors::sender", "--ignored", "--nocapture"])
        .env(COLLECTOR, format!("https://{collector}"))
        .env("SSL_CERT_FILE", roots.path())
        .env_remove("SSL_CERT_DIR")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    tokio::time::timeout(ENDS_WITHIN, child).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_collector_behind_tls_gets_its_spans() {
    let authority = authority();
    let (address, mut received) = collector(&authority).await;
    let sent = send(address, &authority).await;
    let told = String::from_utf8_lossy(&sent.stderr);
    assert!(sent.status.success(), "{told}");
    let (path, body) = received.try_recv().unwrap_or_else(|_| panic!("nothing came: {told}"));
    assert_eq!(path, "/v1/traces");
    assert!(body.windows(8).any(|word| word == b"bind pod"), "{told}");
}

#[tokio::test]
async fn a_collector_that_nobody_vouches_for_gets_nothing_and_that_is_told_with_the_reason() {
    let (address, mut received) = collector(&authority()).await;
    let sent = send(address, &authority()).await;
    let told = String::from_utf8_lossy(&sent.stderr);
    assert!(sent.status.success(), "{told}");
    assert!(received.try_recv().is_err(), "it got a span");
    assert!(told.contains("traces are not delivered") && told.contains("invalid peer certificate"), "{told}");
}

//! Those who call: with certificates, with tokens, and with whatever bytes they like.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Who signs certificates, and where those who show them call from. No two of one process call from the same address: what the audit log says of the one
/// is not said of the other.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>, IpAddr);

static PLACES: AtomicU16 = AtomicU16::new(1);

/// A certificate, and its key.
pub(crate) struct Identity {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self { certificate: self.certificate.clone(), key: self.key.clone_key() }
    }
}

impl Identity {
    /// For whom shows it to callers.
    pub(crate) fn certified(&self) -> CertifiedKey {
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&self.key).unwrap();
        CertifiedKey::new(vec![self.certificate.clone()], key)
    }
}

fn params(name: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    if !name.is_empty() {
        params.distinguished_name.push(DnType::CommonName, name);
    }
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2100, 1, 1);
    params
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = params(name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let [high, low] = PLACES.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self(issuer, [127, 1, high, low].into())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    fn sign(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().der().clone();
        Identity { certificate, key: PrivateKeyDer::try_from(key.serialize_der()).unwrap() }
    }

    pub(crate) fn client(&self, name: &str, group: Option<&str>) -> Identity {
        let mut params = params(name, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    pub(crate) fn expired(&self, name: &str) -> Identity {
        let mut params = params(name, None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_after = date_time_ymd(2021, 1, 1);
        self.sign(&params)
    }

    /// A certificate of a server, which is nobody's to call with.
    pub(crate) fn server(&self, name: &str) -> Identity {
        self.server_from(name, 0)
    }

    /// One that is good from this second on.
    pub(crate) fn server_from(&self, name: &str, second: i64) -> Identity {
        let mut params = params(name, None);
        params.not_before = date_time_ymd(1970, 1, 1) + Duration::from_secs(second.unsigned_abs());
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
        self.sign(&params)
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) code: u16,
    pub(crate) head: String,
    pub(crate) body: String,
    /// From where it was asked.
    pub(crate) peer: String,
}

/// Somebody who calls.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) trusts: CertificateDer<'static>,
    pub(crate) identity: Option<Identity>,
    pub(crate) from: IpAddr,
}

impl Caller {
    pub(crate) fn new(authority: &Authority, identity: Option<Identity>) -> Self {
        Self { trusts: authority.0.der().clone(), identity, from: authority.1 }
    }

    /// Without a word.
    pub(crate) async fn dial(&self, port: u16) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((self.from, 0).into()).unwrap();
        socket.connect(([127, 0, 0, 1], port).into()).await.unwrap()
    }

    pub(crate) async fn connect(&self, port: u16) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.trusts.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match self.identity.clone() {
            Some(Identity { certificate, key }) => {
                config.with_client_auth_cert(vec![certificate], key).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        let stream = self.dial(port).await;
        let name = ServerName::IpAddress(std::net::IpAddr::from([127, 0, 0, 1]).into());
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    }

    /// Sends bytes, and reads the answer.
    pub(crate) async fn say(&self, port: u16, bytes: &[u8]) -> Heard {
        let mut stream = self.connect(port).await;
        let peer = stream.get_ref().0.local_addr().unwrap().to_string();
        // Who has heard enough may hang up before all is said.
        drop(stream.write_all(bytes).await);
        hear(&mut stream, peer).await
    }

    /// A call, and then the connection is over.
    pub(crate) async fn call(&self, port: u16, method: &str, path: &str, headers: &[&str]) -> Heard {
        let more = headers.iter().fold(String::new(), |said, header| said + header + "\r\n");
        let connection =
            if more.to_lowercase().contains("connection:") { "" } else { "Connection: close\r\n" };
        self.say(port, format!("{method} {path} HTTP/1.1\r\nHost: n\r\n{connection}{more}\r\n").as_bytes())
            .await
    }
}

/// Reads an answer: its head, and as much of its body as there is.
pub(crate) async fn hear(stream: &mut (impl tokio::io::AsyncRead + Unpin), peer: String) -> Heard {
    let mut bytes = Vec::new();
    let reading = async {
        let mut buffer = [0; 4096];
        loop {
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
                let length = head.lines().find_map(|line| {
                    line.to_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok()
                });
                let is_whole = length.is_some_and(|length| bytes.len() >= end + 4 + length);
                if is_whole || head.starts_with("HTTP/1.1 101") {
                    return;
                }
            }
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            }
        }
    };
    let within = tokio::time::timeout(Duration::from_secs(20), reading).await;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(within.is_ok(), "nothing came after {text:?}");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Heard { code, head: head.to_owned(), body: body.to_owned(), peer }
}

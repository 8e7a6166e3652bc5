//! Kubelets, asked directly: what pods use is known there, and an API server passes the question on only to those who may run commands in
//! every pod of its cluster (`nodes/proxy`).
//!
//! They know us by the credentials of their cluster. A token is shown to a kubelet only after that has proved who it is: [`Trust`] says to whom. Where that is
//! nobody's matter, no token is shown at all.
//!
//! Deliberately absent: everything else that kubelets answer, and what their answers mean.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, USER_AGENT};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, ConfigExt as _};
use kubeocean_model::key::OnSide;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use thiserror::Error;
use tokio::time::Instant;
use tower::util::{BoxCloneSyncService, option_layer};
use tower::{BoxError, Layer as _, ServiceExt as _};

use crate::client::{Cluster, refusal};
use crate::credentials::{Credentials, one_line};
use crate::dial;
use crate::error::CallError;

/// Each is asked every ten to fifteen seconds, and an open connection costs a hundred kilobytes: a thousand of them would cost a hundred
/// megabytes, opening them seventy handshakes a second. It stays open for those who ask for both pages.
const CLOSED_AFTER: Duration = Duration::from_secs(2);

/// The text format of Prometheus, in which each line can be read by itself.
const TEXT: &str = "text/plain;version=0.0.4";

/// By whom a kubelet's certificate has to be signed.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// By the authority that the kubeconfig names for the API server.
    #[default]
    Kubeconfig,
    /// By one of these, in DER.
    Authorities(Vec<Vec<u8>>),
    /// By anybody: then no token is shown.
    Anybody,
}

/// It is not what a file of certificates looks like.
#[derive(Debug, Error)]
#[error("it has no certificate: give a file with at least one, in PEM (-----BEGIN CERTIFICATE-----)")]
pub struct NoCertificate;

impl Trust {
    /// The authorities of a PEM file.
    pub fn authorities(pem: &[u8]) -> Result<Self, NoCertificate> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let authorities: Vec<_> =
            read.map_err(|_| NoCertificate)?.into_iter().map(|der| der.to_vec()).collect();
        if authorities.is_empty() { Err(NoCertificate) } else { Ok(Self::Authorities(authorities)) }
    }
}

/// What a kubelet is asked for. All of it needs `nodes/metrics`, and nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Page {
    /// CPU and memory of its pods, which is what metrics-server reads.
    Resource,
    /// All that there is to know of its containers.
    Cadvisor,
}

impl Page {
    /// Where it is.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Resource => "/metrics/resource",
            Self::Cadvisor => "/metrics/cadvisor",
        }
    }
}

/// How much of an answer is taken, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// From the question to the last byte.
    pub within: Duration,
    /// In bytes.
    pub longest: usize,
}

/// Why a kubelet did not answer.
#[derive(Clone, Debug, Error)]
pub enum KubeletError {
    /// We do not know who we are.
    #[error("no kubeconfig has led to its cluster yet")]
    Nowhere,
    /// Credentials that do not parse, and the like.
    #[error("the connection cannot be set up: {0}")]
    Setup(String),
    /// It did not prove who it is; nothing was sent.
    #[error("its certificate does not prove who it is: {cause}")]
    Unverified {
        /// What is wrong with it.
        cause: String,
    },
    /// It has not to prove who it is, and we have nothing to show to such a one; nothing was sent.
    #[error(
        "the kubeconfig has a token and no client certificate, and a token is not shown to a server that is not verified"
    )]
    TokenWithheld,
    /// It does not end.
    #[error("its answer has more than {limit} bytes")]
    TooLong {
        /// As much as is taken.
        limit: usize,
    },
    /// As of any server.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// The kubelets of a cluster. Clones share what they know.
pub struct Kubelets<S> {
    cluster: Cluster<S>,
    trust: Trust,
    door: Arc<Mutex<Option<Door>>>,
}

/// A client that was made of the credentials of one connection.
#[derive(Clone)]
struct Door {
    connection: u64,
    client: Client,
}

type Client = BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>;

/// An answer while it comes.
#[derive(Debug)]
pub struct Answer {
    body: Incoming,
    until: Instant,
    bounds: Bounds,
    taken: usize,
}

impl<S: OnSide> Kubelets<S> {
    /// Those of this cluster, whatever connection it has over time.
    pub fn of(cluster: &Cluster<S>, trust: Trust) -> Self {
        Self { cluster: cluster.clone(), trust, door: Arc::default() }
    }

    /// Asks the kubelet at an address.
    pub async fn ask(&self, at: SocketAddr, page: Page, bounds: Bounds) -> Result<Answer, KubeletError> {
        let until = Instant::now() + bounds.within;
        let client = self.client()?;
        let request = Request::get(format!("https://{at}{}", page.path()))
            .header(USER_AGENT, self.cluster.agent())
            .header(ACCEPT, TEXT)
            .header(ACCEPT_ENCODING, "identity")
            .body(Body::empty())
            .map_err(|error| KubeletError::Setup(error.to_string()))?;
        let asked = async {
            let response = client.oneshot(request).await.map_err(|error| failure(&*error))?;
            match response.status() {
                StatusCode::OK => Ok(response),
                _ => Err(refusal(response).await.into()),
            }
        };
        let result = tokio::time::timeout_at(until, asked).await.unwrap_or_else(|_| Err(too_late(bounds)));
        self.count(result.as_ref().map(Response::status));
        Ok(Answer { body: result?.into_body(), until, bounds, taken: 0 })
    }

    fn client(&self) -> Result<Client, KubeletError> {
        let (credentials, connection) = self.cluster.credentials()?;
        let mut door = self.door.lock();
        if let Some(made) = door.as_ref().filter(|made| made.connection == connection) {
            return Ok(made.client.clone());
        }
        let credentials = credentials.ok_or(KubeletError::Nowhere)?;
        let client = client(&credentials, &self.trust)?;
        *door = Some(Door { connection, client: client.clone() });
        Ok(client)
    }

    fn count(&self, result: Result<StatusCode, &KubeletError>) {
        let resource = Arc::from("nodes/metrics");
        match result {
            Ok(code) => self.cluster.count("get", resource, Ok(code)),
            Err(KubeletError::Call(error)) => self.cluster.count("get", resource, Err(error)),
            Err(error) => {
                let error = CallError::Unreachable { cause: error.to_string() };
                self.cluster.count("get", resource, Err(&error));
            }
        }
    }
}

impl Answer {
    /// The next piece; `None` at its end. An answer that breaks off is an error, not an end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, KubeletError> {
        loop {
            let frame = tokio::time::timeout_at(self.until, self.body.frame());
            let Some(frame) = frame.await.map_err(|_| too_late(self.bounds))? else { return Ok(None) };
            let frame = frame.map_err(|error| CallError::unreachable(&error))?;
            let Ok(piece) = frame.into_data() else { continue };
            self.taken = self.taken.saturating_add(piece.len());
            if self.taken > self.bounds.longest {
                return Err(KubeletError::TooLong { limit: self.bounds.longest });
            }
            return Ok(Some(piece));
        }
    }
}

impl<S> Clone for Kubelets<S> {
    fn clone(&self) -> Self {
        Self { cluster: self.cluster.clone(), trust: self.trust.clone(), door: Arc::clone(&self.door) }
    }
}

impl<S> std::fmt::Debug for Kubelets<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kubelets").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

fn client(credentials: &Credentials, trust: &Trust) -> Result<Client, KubeletError> {
    let credentials = credentials.clone();
    let config: Config = match trust {
        Trust::Kubeconfig => credentials.of_verified_kubelets(None),
        Trust::Authorities(authorities) => credentials.of_verified_kubelets(Some(authorities.clone())),
        Trust::Anybody => credentials.of_unverified_kubelets().ok_or(KubeletError::TokenWithheld)?,
    };
    let setup = |error: &kube::Error| KubeletError::Setup(one_line(error));
    let connector = dial::connector(&config).map_err(|error| setup(&error))?;
    let client = legacy::Client::builder(TokioExecutor::new())
        .pool_idle_timeout(CLOSED_AFTER)
        .pool_timer(TokioTimer::new())
        .build::<_, Body>(connector)
        .map_err(BoxError::from);
    let auth = config.auth_layer().map_err(|error| setup(&error))?;
    Ok(BoxCloneSyncService::new(option_layer(auth).layer(client)))
}

fn too_late(bounds: Bounds) -> KubeletError {
    CallError::TimedOut { limit: bounds.within }.into()
}

/// What a certificate lacks lies deep in the chain of causes, and is another trouble than a server that is not there.
fn failure(error: &(dyn std::error::Error + 'static)) -> KubeletError {
    let mut link = Some(error);
    while let Some(cause) = link {
        let wrapped = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        let tls = match wrapped {
            Some(inner) => inner.downcast_ref::<rustls::Error>(),
            None => cause.downcast_ref(),
        };
        if let Some(error @ rustls::Error::InvalidCertificate(_)) = tls {
            return KubeletError::Unverified { cause: one_line(error) };
        }
        link = match wrapped {
            Some(inner) => Some(inner as &(dyn std::error::Error + 'static)),
            None => cause.source(),
        };
    }
    CallError::unreachable(error).into()
}

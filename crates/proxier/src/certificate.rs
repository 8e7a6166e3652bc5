//! The certificate by which callers know a proxier: asked for, renewed, and put in place without stopping anyone.
//!
//! ```text
//!   Keeper ── asks the signer of kubelets, or follows a Secret ──▶ Serving ──▶ every handshake from now on
//! ```
//!
//! [`keep`] takes [`Parts`] and gives a [`Serving`], for listeners, and a [`Keeper`], to be run. One process has one of each:
//!
//! ```ignore
//! let asker = Asker::Proxier { cluster_id, binding_uid };          // inline, for all bindings: Asker::Manager
//! let (_sender, address) = watch::channel(advertised);             // send another one when it changes
//! let applier = Applier::new(PROXIER).virtually(&virt);
//! let (serving, keeper) = certificate::keep(Parts {
//!     virt, applier, clock, asker, virtual_cluster_uid, address, source: Source::Signed, life: certificate::LIFE,
//! });
//! supervisor.always("certificate", move |stop| keeper.run_until(stop));
//! admin.ready.check("certificate", { let serving = serving.clone(); move || serving.is_ready() });
//! config.with_cert_resolver(serving.resolver());
//! ```
//!
//! Streams that are open keep the certificate that they began with; new ones get the current one. Without any, handshakes fail: there is no
//! self-signed one in between. One that has expired is not taken away, since whoever calls says so better than we do.
//!
//! Deliberately absent: listeners, and who may call. A private key is never written anywhere, into no log and no `Debug`.

mod certified;
mod secret;
mod signed;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kubeocean_cluster::apply::Applier;
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::clock::Clock;
use kubeocean_model::key::Virtual;
pub use kubeocean_model::serving::Asker;
use parking_lot::RwLock;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use certified::Certified;

/// How long a certificate is asked for. A month: a stolen key is worth little for long, and a control plane that does not sign for a
/// week is noticed before anything ends.
pub const LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Timers go by the monotonic clock, certificates by the wall. When the one is set, or the machine sleeps, the two part; so the
/// wall is looked at this often.
const LOOK_AT_THE_CLOCK: Duration = Duration::from_secs(30);

/// Where the certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// From the signer `kubernetes.io/kubelet-serving`, approved by the manager.
    Signed,
    /// From a Secret of type `kubernetes.io/tls` that somebody else keeps (`--tls-secret-name`): keys `tls.crt` and `tls.key`.
    Secret {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// What keeping a certificate takes.
pub struct Parts {
    /// The computing cluster.
    pub virt: Cluster<Virtual>,
    /// Who writes there. Not while leading: every replica has a certificate of its own.
    pub applier: Applier,
    /// What time it is.
    pub clock: Clock,
    /// Who asks.
    pub asker: Asker,
    /// The uid that stands for the computing cluster.
    pub virtual_cluster_uid: String,
    /// Where this process is reached. Whenever it is another, another certificate is asked for.
    pub address: watch::Receiver<IpAddr>,
    /// Where it comes from.
    pub source: Source,
    /// How long one is asked for: ten minutes at least, a year at most. [`LIFE`], but for tests.
    pub life: Duration,
}

/// A certificate, and who keeps it current.
pub fn keep(parts: Parts) -> (Serving, Keeper) {
    let serving = Serving::new(&parts.clock);
    (serving.clone(), Keeper { parts, serving })
}

/// Keeps a certificate current.
pub struct Keeper {
    parts: Parts,
    serving: Serving,
}

impl Keeper {
    /// Keeps it current, until told to stop.
    pub async fn run_until(self, stop: CancellationToken) {
        stop.run_until_cancelled_owned(Box::pin(self.run())).await;
    }

    /// Keeps it current, for ever.
    pub async fn run(self) {
        let Self { parts, serving } = self;
        match parts.source.clone() {
            Source::Signed => signed::keep(&parts, &serving).await,
            Source::Secret { namespace, name } => secret::follow(&parts, &serving, &namespace, &name).await,
        }
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("source", &self.parts.source).finish_non_exhaustive()
    }
}

/// The current certificate. Clones are the same.
#[derive(Clone)]
pub struct Serving(Arc<Shared>);

struct Shared {
    clock: Clock,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    current: Option<Certified>,
    /// Why there is none, or no newer one.
    trouble: Option<String>,
}

impl Serving {
    fn new(clock: &Clock) -> Self {
        Self(Arc::new(Shared { clock: clock.clone(), state: RwLock::default() }))
    }

    /// One that is given, and stays: for tests.
    pub fn given(key: CertifiedKey) -> Self {
        let serving = Self::new(&Clock::system());
        serving.0.state.write().current = Some(Certified::given(key));
        serving
    }

    /// For the configuration of listeners.
    pub fn resolver(&self) -> Arc<dyn ResolvesServerCert> {
        Arc::new(Resolver(Arc::clone(&self.0)))
    }

    /// Whether callers will believe us; if not, why, and what to do about it.
    pub fn is_ready(&self) -> Result<(), String> {
        let state = self.0.state.read();
        let trouble = || state.trouble.clone().unwrap_or_else(|| "none was asked for yet".to_owned());
        match &state.current {
            None => Err(format!("there is no serving certificate: {}", trouble())),
            Some(current) if current.has_ended(self.0.clock.now()) => {
                Err(format!("the serving certificate expired at {}: {}", current.ends, trouble()))
            }
            Some(_) => Ok(()),
        }
    }

    /// The current certificate, as handshakes show it.
    pub fn current(&self) -> Option<Arc<CertifiedKey>> {
        self.0.state.read().current.as_ref().map(|current| Arc::clone(&current.key))
    }

    /// When the current certificate ends, for metrics and warnings.
    pub fn ends(&self) -> Option<Timestamp> {
        self.0.state.read().current.as_ref().map(|current| current.ends)
    }

    /// Puts a certificate in place of the one before.
    fn install(&self, certified: Certified) {
        let (ends, renewed_at) = (certified.ends, certified.renew_at);
        *self.0.state.write() = State { current: Some(certified), trouble: None };
        tracing::info!(%ends, %renewed_at, "a serving certificate is in place");
    }

    /// Says why there is no newer certificate. The one that there is stays.
    fn lacks(&self, why: impl Into<String>) {
        let why = why.into();
        let mut state = self.0.state.write();
        if state.trouble.as_ref() == Some(&why) {
            return;
        }
        tracing::warn!(why, "no new serving certificate");
        state.trouble = Some(why);
    }

    /// As [`Serving::lacks`], of what is only a step on the way.
    fn awaits(&self, what: String) {
        tracing::debug!(what, "waiting for a serving certificate");
        self.0.state.write().trouble = Some(what);
    }

    /// When the certificate for this address has to be renewed; `None`: there is none.
    fn renew_at(&self, address: IpAddr) -> Option<Timestamp> {
        let state = self.0.state.read();
        let current = state.current.as_ref().filter(|current| current.is_for(address))?;
        Some(current.renew_at)
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").field("ends", &self.ends()).finish_non_exhaustive()
    }
}

struct Resolver(Arc<Shared>);

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.state.read().current.as_ref().map(|current| Arc::clone(&current.key))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

/// Waits until the wall shows a time.
async fn until(clock: &Clock, at: Timestamp) {
    while let Ok(left) = Duration::try_from(at.duration_since(clock.now())) {
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LOOK_AT_THE_CLOCK)).await;
    }
}

#[cfg(test)]
mod tests;

//! Every loop of a component, under one roof: started in order, watched, and ended in order.
//!
//! ```no_run
//! # use kubeocean_cluster::{admin::Health, shutdown::Supervisor};
//! # use tokio_util::sync::CancellationToken;
//! # async fn serve(stop: CancellationToken) {}
//! # async fn reconcile(stop: CancellationToken) {}
//! # async fn wiring(health: Health, leads: tokio::sync::watch::Receiver<bool>) -> Result<(), kubeocean_cluster::shutdown::SupervisorError> {
//! Supervisor::new(&health)
//!     .leadership(leads)
//!     .always("admin", serve)
//!     .leading("pods", reconcile)
//!     .after("traces", || async { /* flush */ })
//!     .until_signal()
//!     .await
//! # }
//! ```
//!
//! A loop gets a token and ends soon after it is cancelled. A loop that ends before, fails or panics makes the
//! component unhealthy and ends the process with an error that names it: half a component is worse than
//! one that is restarted. Only [`Supervisor::isolated`] loops are restarted in place.
//!
//! The end comes in stages: first what writes (`leading` and `isolated` loops), then the `always` loops, the
//! last registered first, then the `after` hooks in their order. Each stage has a deadline; what is not gone
//! by then is aborted and named.
//!
//! Deliberately absent: detached tasks, `process::exit`, and any knowledge of what the loops do.

mod isolated;
mod running;

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::admin::Health;
use running::{Kind, Running};

pub use crate::telemetry::panic_message;
pub use isolated::{Restarts, isolate};

/// Kubernetes grants 30 s from SIGTERM to SIGKILL. A component has about four stages that could take long
/// at all (writers, admin, hold, traces): 5 s each leaves room.
const STAGE_WITHIN: Duration = Duration::from_secs(5);

/// The name of the check in [`Health`].
const CHECK: &str = "loops";

/// What a loop failed with.
pub type BoxError = Box<dyn Error + Send + Sync>;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Start = Box<dyn FnMut(CancellationToken) -> BoxFuture<Result<(), BoxError>> + Send>;
type Hook = Box<dyn FnOnce() -> BoxFuture<()> + Send>;

/// Why a component ended.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// Loops do not end by themselves.
    #[error("the loop {name} ended by itself; the process ends, to be restarted: report this as a bug")]
    Ended {
        /// Of the loop.
        name: Arc<str>,
    },
    /// With an error.
    #[error("the loop {name} failed; the process ends, to be restarted")]
    Failed {
        /// Of the loop.
        name: Arc<str>,
        /// Its error.
        #[source]
        cause: BoxError,
    },
    /// With a panic.
    #[error("the loop {name} panicked: {message}; the process ends, to be restarted: report this as a bug")]
    Panicked {
        /// Of the loop.
        name: Arc<str>,
        /// What the panic said.
        message: String,
    },
    /// What did not listen to its token.
    #[error("did not stop within {within:?} and was aborted: {}", .names.join(", "))]
    Overdue {
        /// Of loops and hooks.
        names: Vec<String>,
        /// The deadline of each stage.
        within: Duration,
    },
    /// A second signal.
    #[error("a second signal came before everything had stopped: what was left was aborted")]
    Interrupted,
    /// The system refuses handlers.
    #[error("SIGTERM and SIGINT cannot be handled")]
    Signals(#[source] io::Error),
}

/// What a loop may return.
pub trait Ending {
    /// Nothing, or why it failed.
    fn into_result(self) -> Result<(), BoxError>;
}

impl Ending for () {
    fn into_result(self) -> Result<(), BoxError> {
        Ok(())
    }
}

impl<E: Into<BoxError>> Ending for Result<(), E> {
    fn into_result(self) -> Result<(), BoxError> {
        self.map_err(Into::into)
    }
}

/// SIGTERM and SIGINT. None that comes after [`Signals::listen`] is missed, whether someone waits for it or not.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on they no longer end the process by themselves.
    pub fn listen() -> Result<Self, SupervisorError> {
        let listen = |kind| signal(kind).map_err(SupervisorError::Signals);
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Waits for the next one, and tells its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! { _ = self.terminate.recv() => "SIGTERM", _ = self.interrupt.recv() => "SIGINT" }
    }
}

struct Loop {
    name: Arc<str>,
    kind: Kind,
    start: Start,
}

/// See the module.
#[must_use = "nothing runs before until_signal()"]
pub struct Supervisor {
    health: Health,
    leads: Option<watch::Receiver<bool>>,
    loops: Vec<Loop>,
    hooks: Vec<(Arc<str>, Hook)>,
    stage_within: Duration,
}

impl Supervisor {
    /// `health` gets a check `loops`, and a note per isolated loop.
    pub fn new(health: &Health) -> Self {
        Self {
            health: health.clone(),
            leads: None,
            loops: Vec::new(),
            hooks: Vec::new(),
            stage_within: STAGE_WITHIN,
        }
    }

    /// When `leading` loops run. Without it they always do. A sender that is gone leads no more.
    pub fn leadership(mut self, leads: watch::Receiver<bool>) -> Self {
        self.leads = Some(leads);
        self
    }

    /// How long each stage of the end may take.
    pub fn stage_within(mut self, deadline: Duration) -> Self {
        self.stage_within = deadline;
        self
    }

    /// A loop that runs from start to end. Those that others need come first: they are ended last.
    pub fn always<F, Fut>(mut self, name: &str, start: F) -> Self
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output: Ending> + Send,
    {
        let mut start = Some(start);
        self.loops.push(Loop {
            name: name.into(),
            kind: Kind::Always,
            start: Box::new(move |stop| {
                let start = start.take();
                Box::pin(async move {
                    match start {
                        Some(start) => start(stop).await.into_result(),
                        // It is started once.
                        None => Ok(()),
                    }
                })
            }),
        });
        self
    }

    /// A loop that runs while this process leads: started when the lead is gained, cancelled and awaited when
    /// it is lost, started anew when it comes back.
    pub fn leading<F, Fut>(mut self, name: &str, start: F) -> Self
    where
        F: FnMut(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output: Ending> + Send,
    {
        // Called inside of the task, so that a panic of the closure is one of the loop.
        let start = Arc::new(Mutex::new(start));
        self.loops.push(Loop {
            name: name.into(),
            kind: Kind::Leading,
            start: Box::new(move |stop| {
                let start = start.clone();
                Box::pin(async move {
                    let running = {
                        let mut start = start.lock();
                        start(stop)
                    };
                    running.await.into_result()
                })
            }),
        });
        self
    }

    /// A loop whose failures are its own: it is restarted with backoff, and what it last died of is noted
    /// in health. See [`isolate`].
    pub fn isolated<F, Fut>(mut self, name: &str, start: F) -> Self
    where
        F: FnMut(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output: Ending> + Send,
    {
        let named: Arc<str> = name.into();
        let health = self.health.clone();
        let mut start = Some((named.clone(), health, start));
        self.loops.push(Loop {
            name: named,
            kind: Kind::Isolated,
            start: Box::new(move |stop| {
                let start = start.take();
                Box::pin(async move {
                    if let Some((name, health, start)) = start {
                        isolate(&name, &health, stop, start).await;
                    }
                    Ok(())
                })
            }),
        });
        self
    }

    /// Something to do once all loops have ended, such as to release the hold or to flush traces.
    pub fn after<F, Fut>(mut self, name: &str, hook: F) -> Self
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send,
    {
        self.hooks.push((name.into(), Box::new(move || Box::pin(async move { hook().await }))));
        self
    }

    /// Runs until SIGTERM or SIGINT. A second one ends everything at once.
    pub async fn until_signal(self) -> Result<(), SupervisorError> {
        self.until_signal_of(Signals::listen()?).await
    }

    /// As [`Self::until_signal`], for who listened before there were loops.
    pub async fn until_signal_of(self, mut signals: Signals) -> Result<(), SupervisorError> {
        let (first, asked) = tokio::sync::oneshot::channel::<()>();
        let signals = async move {
            let name = signals.next().await;
            tracing::info!(signal = name, "stopping");
            let _ = first.send(());
            signals.next().await;
        };
        self.run(async move { drop(asked.await) }, signals).await
    }

    /// Runs until `stop` is ready.
    pub async fn until(self, stop: impl Future<Output = ()>) -> Result<(), SupervisorError> {
        self.run(stop, std::future::pending()).await
    }

    /// Runs until `stop`, then drains; `hurry` ends that.
    async fn run(
        self,
        stop: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<(), SupervisorError> {
        let Self { health, leads, loops, hooks, stage_within } = self;
        let mut running = Running::new(&health, loops, stage_within);
        let outcome = {
            let work = async {
                let mut outcome = running.work(leads, stop).await;
                if let Err(error) = &outcome {
                    tracing::error!(error = error as &dyn Error, "stopping");
                }
                let mut overdue = running.drain().await;
                for (name, hook) in hooks {
                    tracing::debug!(hook = &*name, "running");
                    // In the set of tasks, so that its panic is its own.
                    if !running.run_hook(&name, hook()).await {
                        overdue.push(name.to_string());
                    }
                }
                if !overdue.is_empty() {
                    let error = SupervisorError::Overdue { names: overdue, within: stage_within };
                    tracing::warn!(%error, "not everything stopped in time");
                    outcome = outcome.and(Err(error));
                }
                outcome
            };
            tokio::select! {
                outcome = work => Some(outcome),
                () = hurry => None,
            }
        };
        if let Some(outcome) = outcome {
            return outcome;
        }
        running.abort_all().await;
        Err(SupervisorError::Interrupted)
    }
}

#[cfg(test)]
mod tests;

//! The tasks of a running supervisor.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{BoxError, BoxFuture, CHECK, Loop, SupervisorError};
use crate::admin::Health;
use crate::telemetry::panic_message;

/// An aborted task is gone at its next await. One that is busy for longer is left to the end of the
/// runtime.
const ABORT_WITHIN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Always,
    Leading,
    Isolated,
}

struct Task {
    name: Arc<str>,
    /// Which of the loops, in the order of registration; none for hooks.
    index: Option<usize>,
    stop: CancellationToken,
    abort: AbortHandle,
}

pub(super) struct Running {
    loops: Vec<Loop>,
    stage_within: Duration,
    set: JoinSet<Result<(), BoxError>>,
    tasks: HashMap<Id, Task>,
    /// Loops that are dead and should not be, with the reason.
    dead: Arc<Mutex<BTreeMap<Arc<str>, String>>>,
    /// The first of them, until it is told.
    death: Option<SupervisorError>,
}

impl Running {
    pub(super) fn new(health: &Health, loops: Vec<Loop>, stage_within: Duration) -> Self {
        let dead: Arc<Mutex<BTreeMap<Arc<str>, String>>> = Arc::default();
        let seen = dead.clone();
        health.check(CHECK, move || {
            let dead = seen.lock();
            if dead.is_empty() {
                return Ok(());
            }
            Err(dead.iter().map(|(name, why)| format!("{name}: {why}")).collect::<Vec<_>>().join("; "))
        });
        Self { loops, stage_within, set: JoinSet::new(), tasks: HashMap::new(), dead, death: None }
    }

    /// Starts everything, and follows the lead until `stop` or a death.
    pub(super) async fn work(
        &mut self,
        mut leads: Option<watch::Receiver<bool>>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), SupervisorError> {
        self.start(|kind| kind != Kind::Leading);
        let mut leading = false;
        // Once who elected is gone, nobody renews the hold.
        let mut elected = true;
        tokio::pin!(stop);
        loop {
            let wanted = elected && leads.as_mut().is_none_or(|leads| *leads.borrow_and_update());
            if wanted && !leading {
                tracing::info!("leading");
                self.start(|kind| kind == Kind::Leading);
            } else if !wanted && leading {
                tracing::info!("no longer leading");
                // Late or not, none of them runs after this.
                let overdue = self.end(|kind, _| kind == Kind::Leading).await;
                if !overdue.is_empty() {
                    tracing::warn!(?overdue, "aborted, since the lead is lost");
                }
                if let Some(error) = self.death.take() {
                    return Err(error);
                }
            }
            leading = wanted;
            let changed = async {
                match &mut leads {
                    Some(leads) if elected => leads.changed().await.is_ok(),
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                // Before deaths: a loop that fails because the lead is lost is no failure.
                alive = changed => elected = alive,
                Some(joined) = self.set.join_next_with_id() => {
                    self.bury(joined);
                    if let Some(error) = self.death.take() {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn start(&mut self, which: impl Fn(Kind) -> bool) {
        for (index, each) in self.loops.iter_mut().enumerate().filter(|(_, each)| which(each.kind)) {
            let stop = CancellationToken::new();
            let abort = self.set.spawn((each.start)(stop.clone()));
            self.tasks.insert(abort.id(), Task { name: each.name.clone(), index: Some(index), stop, abort });
        }
    }

    /// Ends all loops, stage by stage. Tells whom it had to abort.
    pub(super) async fn drain(&mut self) -> Vec<String> {
        let mut overdue = self.end(|kind, _| kind != Kind::Always).await;
        for index in (0..self.loops.len()).rev() {
            overdue.extend(self.end(|_, each| each == index).await);
        }
        overdue
    }

    /// One stage.
    async fn end(&mut self, which: impl Fn(Kind, usize) -> bool) -> Vec<String> {
        let loops = &self.loops;
        let stage: Vec<Id> = self
            .tasks
            .iter()
            .filter(|(_, task)| task.index.is_some_and(|index| which(loops[index].kind, index)))
            .map(|(id, _)| *id)
            .collect();
        for task in stage.iter().filter_map(|id| self.tasks.get(id)) {
            tracing::debug!(name = &*task.name, "stopping");
            task.stop.cancel();
        }
        self.wait_for(&stage).await
    }

    /// Waits until these are gone, and aborts them at the deadline. What else dies meanwhile is a death.
    async fn wait_for(&mut self, stage: &[Id]) -> Vec<String> {
        let deadline = Instant::now() + self.stage_within;
        while stage.iter().any(|id| self.tasks.contains_key(id)) {
            match timeout_at(deadline, self.set.join_next_with_id()).await {
                Ok(Some(joined)) => self.bury(joined),
                Ok(None) => return Vec::new(),
                Err(_) => break,
            }
        }
        let overdue: Vec<Id> = stage.iter().copied().filter(|id| self.tasks.contains_key(id)).collect();
        let names = overdue.iter().filter_map(|id| Some(self.tasks.get(id)?.name.to_string())).collect();
        self.abort(&overdue).await;
        names
    }

    async fn abort(&mut self, ids: &[Id]) {
        for id in ids {
            if let Some(task) = self.tasks.get(id) {
                task.abort.abort();
            }
        }
        let gone = async {
            while ids.iter().any(|id| self.tasks.contains_key(id)) {
                match self.set.join_next_with_id().await {
                    Some(joined) => self.bury(joined),
                    None => break,
                }
            }
        };
        let _ = timeout(ABORT_WITHIN, gone).await;
    }

    /// Ends everything at once.
    pub(super) async fn abort_all(&mut self) {
        let names: Vec<&str> = self.tasks.values().map(|task| &*task.name).collect();
        tracing::warn!(aborted = ?names, "a second signal came");
        let _ = timeout(ABORT_WITHIN, self.set.shutdown()).await;
    }

    /// Whether it ended in time.
    pub(super) async fn run_hook(&mut self, name: &Arc<str>, hook: BoxFuture<()>) -> bool {
        let abort = self.set.spawn(async move {
            hook.await;
            Ok(())
        });
        let (id, stop) = (abort.id(), CancellationToken::new());
        self.tasks.insert(id, Task { name: name.clone(), index: None, stop, abort });
        self.wait_for(&[id]).await.is_empty()
    }

    /// A task is gone. If nobody had asked it to go, that is a death.
    fn bury(&mut self, joined: Result<(Id, Result<(), BoxError>), JoinError>) {
        let Some((task, outcome)) = self.remove(joined) else { return };
        let Task { name, index, stop, .. } = task;
        if index.is_none() || stop.is_cancelled() {
            return tell(&name, outcome);
        }
        let (why, error) = match outcome {
            Outcome::Done if self.is_isolated(index) => return,
            Outcome::Done => ("ended by itself".to_owned(), SupervisorError::Ended { name: name.clone() }),
            Outcome::Failed(cause) => {
                (cause.to_string(), SupervisorError::Failed { name: name.clone(), cause })
            }
            Outcome::Panicked(message) => {
                (format!("panicked: {message}"), SupervisorError::Panicked { name: name.clone(), message })
            }
        };
        tracing::error!(name = &*name, why, "a loop died");
        self.dead.lock().insert(name, why);
        self.death.get_or_insert(error);
    }

    fn is_isolated(&self, index: Option<usize>) -> bool {
        index.and_then(|index| self.loops.get(index)).is_some_and(|each| each.kind == Kind::Isolated)
    }

    fn remove(&mut self, joined: Result<(Id, Result<(), BoxError>), JoinError>) -> Option<(Task, Outcome)> {
        let (id, outcome) = match joined {
            Ok((id, Ok(()))) => (id, Outcome::Done),
            Ok((id, Err(cause))) => (id, Outcome::Failed(cause)),
            Err(error) => {
                let id = error.id();
                match error.try_into_panic() {
                    Ok(payload) => (id, Outcome::Panicked(panic_message(&*payload))),
                    // Aborted, by us.
                    Err(_) => (id, Outcome::Done),
                }
            }
        };
        Some((self.tasks.remove(&id)?, outcome))
    }
}

enum Outcome {
    Done,
    Failed(BoxError),
    Panicked(String),
}

/// How a task ended that was asked to, or a hook.
fn tell(name: &str, outcome: Outcome) {
    match outcome {
        Outcome::Done => tracing::debug!(name, "stopped"),
        Outcome::Failed(cause) => {
            tracing::warn!(name, error = &*cause as &dyn std::error::Error, "failed while stopping");
        }
        Outcome::Panicked(message) => tracing::error!(name, message, "panicked while stopping"),
    }
}

//! Does the worker cluster answer, and is it the one that we are bound to?
//!
//! Until it has shown that over a connection, nothing is sent over it: the calls of people go nowhere else.

use std::sync::Arc;
use std::time::Duration;

use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::error::CallError;
use kubeocean_model::action::kinds;
use kubeocean_model::key::{Key, Physical};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::world::World;

/// As a syncer asks.
const EVERY: Duration = Duration::from_secs(5);

/// Until the first good answer somebody waits.
const AT_FIRST: Duration = Duration::from_millis(200);

/// Who takes longer than this does not answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// So many questions that went unanswered are a loss: calls are refused with the cause, and that is all one can do.
const FAILURES: u32 = 3;

/// What is known of the worker cluster. Clones are the same.
#[derive(Clone)]
pub(crate) struct Pulse {
    phys: Cluster<Physical>,
    world: World,
    /// Ends all streams.
    ends: CancellationToken,
    state: Arc<Mutex<State>>,
}

struct State {
    /// The connection that was last found right.
    proven: Option<u64>,
    failures: u32,
    trouble: Option<String>,
    /// Ends the streams that began since another cluster answered in its place for the last time.
    ends: CancellationToken,
}

impl Pulse {
    pub(crate) fn new(phys: &Cluster<Physical>, world: &World, ends: &CancellationToken) -> Self {
        phys.wants_proof();
        let state = State { proven: None, failures: 0, trouble: None, ends: ends.child_token() };
        Self {
            phys: phys.clone(),
            world: world.clone(),
            ends: ends.clone(),
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// What ends a stream that begins now.
    pub(crate) fn ends(&self) -> CancellationToken {
        self.state.lock().ends.clone()
    }

    /// Asks, for as long as it runs.
    pub(crate) async fn run_until(&self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let over = self.phys.connection_number();
            stop.run_until_cancelled(self.beat(over)).await;
            let is_proven = self.state.lock().proven == Some(self.phys.connection_number());
            let rest = if is_proven { EVERY } else { AT_FIRST };
            // Another connection is asked at once.
            let moved = async {
                let start = tokio::time::Instant::now();
                while start.elapsed() < rest && self.phys.connection_number() == over {
                    tokio::time::sleep(AT_FIRST).await;
                }
            };
            stop.run_until_cancelled(moved).await;
        }
    }

    /// One question.
    async fn beat(&self, over: u64) {
        let namespace = self.world.subject.binding.mount_namespace.as_str();
        let key = Key::cluster_scoped(namespace);
        let asked =
            tokio::time::timeout(ANSWER_WITHIN, self.phys.get_unproven(&kinds::NAMESPACE, &key)).await;
        let answer = asked.unwrap_or(Err(CallError::TimedOut { limit: ANSWER_WITHIN }));
        let expected = self.world.worker().identities;
        let mut state = self.state.lock();
        match answer {
            Ok(Some(found)) if expected.iter().any(|uid| **uid == *found.meta.uid) => {
                if self.phys.connection_number() == over {
                    self.phys.proven(over);
                    (state.proven, state.failures, state.trouble) = (Some(over), 0, None);
                    if state.ends.is_cancelled() {
                        state.ends = self.ends.child_token();
                    }
                }
            }
            Ok(_) if expected.is_empty() => {
                state.fail("the binding does not say yet which cluster it is bound to");
            }
            Ok(found) => {
                let found = found.map_or("none".to_owned(), |namespace| namespace.meta.uid.to_string());
                // Neither can be sure any more with which of the two it speaks: what is asked next, nor what goes on.
                if self.phys.connection_number() == over {
                    self.phys.disproven(over);
                    state.ends.cancel();
                }
                state.proven = None;
                state.fail(&format!(
                    "namespace {namespace} of the worker cluster was {} and is {found}: another cluster answers in its place",
                    expected.join(" or ")
                ));
            }
            Err(error) => state.fail(&error.to_string()),
        }
    }

    /// Whether the worker cluster answers, or its loss is known; if not, why.
    pub(crate) fn is_known(&self) -> Result<(), String> {
        let state = self.state.lock();
        match (&state.trouble, state.failures) {
            (None, _) if state.proven.is_some() => Ok(()),
            (_, FAILURES..) => Ok(()),
            (Some(trouble), _) => Err(trouble.clone()),
            (None, _) => Err("the worker cluster was not asked yet".to_owned()),
        }
    }

    /// Why it does not answer, if it does not.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.state.lock().trouble.clone()
    }
}

impl State {
    fn fail(&mut self, why: &str) {
        self.failures = self.failures.saturating_add(1);
        if self.trouble.as_deref() != Some(why) {
            tracing::warn!(why, "the worker cluster does not answer as it should");
            self.trouble = Some(why.to_owned());
        }
    }
}

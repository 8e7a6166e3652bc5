//! A loop whose death is nobody else's.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::Ending;
use crate::admin::Health;
use crate::telemetry::panic_message;

/// The first restart comes soon, since most causes are passing.
const FIRST_RESTART: Duration = Duration::from_secs(1);

/// As kubelets restart crashing containers: one that never comes up costs twelve starts an hour.
const SLOWEST_RESTART: Duration = Duration::from_secs(300);

/// Who ran for longer than this failed anew, and not again. Twice the slowest restart, as kubelets do it.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);

/// How often something was started again, and how long to wait before the next time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Restarts(u32);

impl Restarts {
    /// It failed after it ran for so long: how often it was restarted before, and how long to wait now.
    pub fn after(&mut self, ran: Duration) -> (u32, Duration) {
        if ran > FORGIVEN_AFTER {
            self.0 = 0;
        }
        let doubled = 2_u32.saturating_pow(self.0);
        (self.0, FIRST_RESTART.saturating_mul(doubled).min(SLOWEST_RESTART))
    }

    /// It is started again: how often that was by now.
    pub fn again(&mut self) -> u32 {
        self.0 = self.0.saturating_add(1);
        self.0
    }
}

#[derive(Clone)]
enum State {
    Running { restarts: u32, last: Option<String> },
    Waiting { restarts: u32, until: Instant, why: String },
    Finished,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running { last: None, .. } => f.write_str("running"),
            Self::Running { restarts, last: Some(why) } => {
                write!(f, "running after {restarts} restarts; last: {why}")
            }
            Self::Waiting { restarts, until, why } => {
                let left = until.saturating_duration_since(Instant::now()).as_secs();
                write!(f, "starts again in {left} s, after {restarts} restarts: {why}")
            }
            Self::Finished => f.write_str("finished"),
        }
    }
}

/// Runs what `start` starts until `stop`, again and again with backoff when it fails or panics, and not
/// again when it returns without an error. How it does is noted in `health` under `name`, which no
/// probe fails for, until `stop`.
///
/// A part of [`Supervisor::isolated`](super::Supervisor::isolated), for who starts and ends loops while running.
pub async fn isolate<F, Fut>(name: &str, health: &Health, stop: CancellationToken, mut start: F)
where
    F: FnMut(CancellationToken) -> Fut,
    Fut: Future<Output: Ending>,
{
    let state = Arc::new(Mutex::new(State::Running { restarts: 0, last: None }));
    let seen = state.clone();
    health.note(name, move || seen.lock().to_string());
    let mut count = Restarts::default();
    while !stop.is_cancelled() {
        let started = Instant::now();
        // What a panic leaves half-done is dropped with the future; the next start makes its own.
        let run = AssertUnwindSafe(async { start(stop.child_token()).await.into_result() }).catch_unwind();
        let why = match run.await {
            Ok(Ok(())) => {
                *state.lock() = State::Finished;
                break;
            }
            Ok(Err(error)) => error.to_string(),
            Err(payload) => format!("panicked: {}", panic_message(&*payload)),
        };
        if stop.is_cancelled() {
            break;
        }
        let (restarts, delay) = count.after(started.elapsed());
        tracing::warn!(name, why, ?delay, "failed by itself and is started again");
        *state.lock() = State::Waiting { restarts, until: Instant::now() + delay, why: why.clone() };
        tokio::select! {
            () = sleep(delay) => {}
            () = stop.cancelled() => break,
        }
        *state.lock() = State::Running { restarts: count.again(), last: Some(why) };
    }
    if stop.is_cancelled() {
        health.forget(name);
    }
}

//! Telling what becomes of a binding, line by line, as its status says it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kubeocean_api::BindingPhase;
use kubeocean_api::keys::conditions::Binding as Condition;
use kubeocean_api::keys::reasons::Binding as Reason;
use kubeocean_cluster::client::Cluster;
use kubeocean_model::action::kinds;
use kubeocean_model::bind::BindingObject;
use kubeocean_model::key::{Key, Virtual};

use crate::terminal::{ProgressLines, seconds};

/// Between two looks: someone is watching, and it is one small read.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long a binding has to be Failed before we believe it: a Secret that was repaired is read within five seconds.
const BELIEVED_AFTER: Duration = Duration::from_secs(6);

/// How long it has to be Failed with the words of before: what was repaired since is seen within five seconds, and a worker cluster
/// that does not answer is waited for thirty.
const STILL_BELIEVED_AFTER: Duration = Duration::from_secs(40);

/// Whether someone waits, and how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Patience {
    /// Wait for the end of it, which is the default
    #[arg(long, conflicts_with = "no_wait")]
    wait: bool,
    /// Return as soon as it is asked for
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// How long to wait, as in 90s or 5m
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = crate::cli::duration)]
    pub(crate) timeout: Duration,
}

/// What a binding is followed after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// It is new, or they did not change.
    AsBefore,
    /// What its status says may be of those before, until the manager has tried these.
    Others,
}

/// How it ended.
#[derive(Debug, PartialEq)]
pub(crate) enum Ended {
    Ready,
    /// Something has to be repaired.
    Failed {
        reason: String,
        message: String,
    },
    /// The time is up; what it waits for, if anyone has said so.
    Late {
        message: Option<String>,
    },
    /// It is not there any more.
    Gone,
}

/// Follows one binding.
pub(crate) struct Follower<'a> {
    virt: &'a Cluster<Virtual>,
    key: Key<Virtual>,
    uid: &'a str,
    started: Instant,
    lines: ProgressLines,
    phase: Option<BindingPhase>,
    /// Status and message of each condition, as they were last told.
    told: BTreeMap<String, (String, String)>,
    /// What had failed before, if anything.
    failure_before: Option<(String, String)>,
}

impl<'a> Follower<'a> {
    pub(crate) fn new(virt: &'a Cluster<Virtual>, name: &str, uid: &'a str) -> Self {
        Self {
            virt,
            key: Key::cluster_scoped(name),
            uid,
            started: Instant::now(),
            lines: ProgressLines::new(),
            phase: None,
            told: BTreeMap::new(),
            failure_before: None,
        }
    }

    /// What is so already need not be told.
    pub(crate) fn knowing(mut self, binding: &BindingObject) -> Self {
        self.phase = binding.status.phase;
        let known = binding.status.conditions.iter();
        self.told = known.map(|one| (one.type_.clone(), (one.status.clone(), one.message.clone()))).collect();
        self
    }

    /// What had failed may have been repaired with what was written since.
    pub(crate) fn after(mut self, before: Option<&BindingObject>) -> Self {
        let failed = before.filter(|before| before.status.phase == Some(BindingPhase::Failed));
        self.failure_before = failed.and_then(why);
        self
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Until it is Ready, or is known not to become so.
    pub(crate) async fn until_ready(&mut self, credentials: Credentials, limit: Duration) -> Ended {
        let mut failed_since: Option<(Instant, Option<(String, String)>)> = None;
        let mut last = None;
        while self.elapsed() < limit {
            match self.look().await {
                Ok(None) => return Ended::Gone,
                Ok(Some(binding)) => {
                    self.tell(&binding);
                    let current = binding.status.observed_generation >= Some(binding.meta.generation);
                    match binding.status.phase.filter(|_| current) {
                        Some(BindingPhase::Ready) if is_connected(&binding) => {
                            failed_since = None;
                            if credentials == Credentials::AsBefore || self.elapsed() >= BELIEVED_AFTER {
                                return Ended::Ready;
                            }
                        }
                        Some(BindingPhase::Failed) => {
                            let failure = why(&binding);
                            // Other words are another failure, and have to last, too.
                            let since = match failed_since.take() {
                                Some((since, before)) if before == failure => since,
                                _ => Instant::now(),
                            };
                            failed_since = Some((since, failure.clone()));
                            if since.elapsed()
                                >= believed_after(failure.as_ref(), self.failure_before.as_ref())
                            {
                                let (reason, message) = failure.unwrap_or_default();
                                return Ended::Failed { reason, message };
                            }
                        }
                        _ => failed_since = None,
                    }
                    last = if is_connected(&binding) {
                        why(&binding)
                    } else {
                        about(&binding, Condition::Connected)
                    }
                    .map(|(_, message)| message);
                }
                Err(trouble) => self.lines.passing(&trouble),
            }
            self.pause("waiting for the manager").await;
        }
        self.lines.close();
        Ended::Late { message: last }
    }

    /// Until it is gone, or the time is up.
    pub(crate) async fn until_gone(&mut self, limit: Duration) -> Ended {
        let mut last = None;
        while self.elapsed() < limit {
            match self.look().await {
                Ok(None) => {
                    self.lines.close();
                    return Ended::Gone;
                }
                Ok(Some(binding)) => {
                    self.tell(&binding);
                    // What was said before its deletion is not why it is still there.
                    last = why(&binding)
                        .filter(|(reason, _)| reason == Reason::Deleting.as_str())
                        .map(|(_, message)| message);
                }
                Err(trouble) => self.lines.passing(&trouble),
            }
            self.pause("waiting until it is gone").await;
        }
        self.lines.close();
        Ended::Late { message: last }
    }

    /// The binding as it is now; `None` once it is gone, even if there is another one of its name.
    async fn look(&self) -> Result<Option<BindingObject>, String> {
        match self.virt.get(&kinds::BINDING, &self.key).await {
            Ok(found) => Ok(found
                .filter(|found| *found.meta.uid == *self.uid)
                .map(|found| BindingObject::read(&found))),
            Err(error) => Err(format!("the computing cluster does not answer: {error}")),
        }
    }

    async fn pause(&mut self, what: &str) {
        self.lines.passing(&format!("{:>8}  {what} …", seconds(self.elapsed())));
        tokio::time::sleep(LOOK_EVERY).await;
    }

    /// What is new.
    fn tell(&mut self, binding: &BindingObject) {
        let at = seconds(self.elapsed());
        for condition in &binding.status.conditions {
            let now = (condition.status.clone(), condition.message.clone());
            if self.told.get(&condition.type_) == Some(&now) {
                continue;
            }
            self.told.insert(condition.type_.clone(), now);
            if is_news(binding, &condition.type_) {
                let what = format!("{}={}", condition.type_, condition.status);
                self.lines.line(&format!("{at:>8}  {what:<18} {}", condition.message));
            }
        }
        if self.phase != binding.status.phase {
            self.phase = binding.status.phase;
            if let Some(phase) = self.phase {
                self.lines.line(&format!("{at:>8}  {phase:?}"));
            }
        }
    }
}

/// A failure in other words than before is news as soon as it lasts. In the same words it may be of what was there before.
fn believed_after(failure: Option<&(String, String)>, before: Option<&(String, String)>) -> Duration {
    if before.is_some() && failure == before { STILL_BELIEVED_AFTER } else { BELIEVED_AFTER }
}

/// While a binding is set up, Ready repeats what another condition says. While it goes, Ready says how far that is, and
/// that its workers are not there is no news.
fn is_news(binding: &BindingObject, condition: &str) -> bool {
    let is = |one: Condition| condition == one.as_str();
    if binding.meta.is_deleting() {
        return is(Condition::Ready) || is(Condition::Connected);
    }
    !is(Condition::Ready) || binding.status.phase == Some(BindingPhase::Failed)
}

/// What the condition Ready says.
fn why(binding: &BindingObject) -> Option<(String, String)> {
    about(binding, Condition::Ready)
}

/// Reason and message of a condition.
fn about(binding: &BindingObject, condition: Condition) -> Option<(String, String)> {
    let said = binding.status.conditions.iter().find(|one| one.type_ == condition.as_str())?;
    Some((said.reason.clone(), said.message.clone()))
}

/// A worker cluster that is lost leaves its binding Ready.
fn is_connected(binding: &BindingObject) -> bool {
    let connected = Condition::Connected.as_str();
    binding.status.conditions.iter().any(|one| one.type_ == connected && one.status == "True")
}

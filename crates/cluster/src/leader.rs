//! Which of several processes writes.
//!
//! The processes agree on a Lease object, the *hold*. Whoever holds it renews it; who does not watches it.
//! A hold is taken over only when its record was seen unchanged for its whole duration, on the watcher's own
//! monotonic clock: no two machines have to agree on what time it is.
//!
//! The holder stops to lead `renew_deadline` after it *began* its last good renewal, which is before anyone
//! else may take over. That is asked before every write ([`Leadership::holds`]), so that a process which
//! was stopped and goes on later does not write once more in between. The wall clock counts too, in one
//! direction only: a machine that was suspended finds that it is late.
//!
//! A hold that is not there says nothing: it was never made, or someone deleted it under a leader who does not know yet. Whoever makes
//! it from nothing therefore claims it first, and leads when the claim stood for `renew_deadline`: by then every earlier leader has
//! found the claim, or has given up without an answer. A leader who finds its own hold deleted makes it again and goes on, since no
//! claim can have become a lead beside its own; those who saw the hold leave it that chance. A hold that was let go has no holder and
//! is taken at once, so that the wait comes once in the life of an installation.
//!
//! A record of ours that is not the last one we wrote came back with a restored etcd, and says nothing about who has led since:
//! it is waited for like anybody's.
//!
//! Deliberately absent: what is done while leading. Who does not lead keeps its informers running.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubeocean_model::action::{Action, Mark, PatchForm, Verb, kinds};
use kubeocean_model::key::{Key, OnSide};
use kubeocean_model::object::Object;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::apply::{Applier, Outcome};
use crate::backoff::process_seed;
use crate::client::Cluster;
use crate::clock::Clock;
use crate::metrics::HoldLabels;

/// A dead leader that nobody follows for longer than this is an outage. Clocks are added to it: years would be more than they count.
const LONGEST: Duration = Duration::from_secs(3600);

/// How an election goes. The defaults are those of Kubernetes' own components.
#[derive(Clone, Debug)]
pub struct Election {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Who we are. Must differ between processes, also between one and its restart: [`Election::unique`].
    pub identity: String,
    /// How long others wait before they take over.
    pub lease_duration: Duration,
    /// How long we lead without a renewal; less than `lease_duration`.
    pub renew_deadline: Duration,
    /// How often it is tried.
    pub retry_period: Duration,
}

impl Election {
    /// With the usual durations: 15 s, 10 s, 2 s.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// An identity that no other process has, with a name that people know.
    pub fn unique(name: &str) -> String {
        format!("{name}_{:016x}", process_seed())
    }

    /// Says what is wrong with the durations.
    pub fn check(&self) -> Result<(), ElectionError> {
        if self.identity.is_empty() {
            return Err(ElectionError::NoIdentity);
        }
        let durations = [
            (self.lease_duration, "--leader-election-lease-duration"),
            (self.renew_deadline, "--leader-election-renew-deadline"),
            (self.retry_period, "--leader-election-retry-period"),
        ];
        if let Some((_, flag)) = durations.into_iter().find(|(duration, _)| *duration > LONGEST) {
            return Err(ElectionError::TooLong { flag });
        }
        if self.lease_duration <= self.renew_deadline {
            return Err(ElectionError::DeadlineTooLong);
        }
        // Two tries have to fit, or one lost answer costs the lead.
        if self.renew_deadline < self.retry_period * 2 {
            return Err(ElectionError::RetryTooSlow);
        }
        if self.lease_duration < Duration::from_secs(1) || self.retry_period < Duration::from_millis(100) {
            return Err(ElectionError::TooShort);
        }
        Ok(())
    }
}

/// Durations that do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElectionError {
    /// Nobody could be told from anybody.
    #[error("leader election needs an identity: set POD_NAME")]
    NoIdentity,
    /// Two could lead at once.
    #[error("--leader-election-renew-deadline must be shorter than --leader-election-lease-duration")]
    DeadlineTooLong,
    /// The lead would be lost without a fault.
    #[error("--leader-election-retry-period must be at most half of --leader-election-renew-deadline")]
    RetryTooSlow,
    /// A Lease counts in seconds, and nobody should be asked more often than ten times in one.
    #[error(
        "--leader-election-lease-duration must be at least 1s, and --leader-election-retry-period at least 100ms"
    )]
    TooShort,
    /// Nobody would take over for hours.
    #[error("{flag} must be at most 1h: so long would nobody take over from a leader that died")]
    TooLong {
        /// Which of them.
        flag: &'static str,
    },
}

/// Whether this process leads. Clones know the same.
#[derive(Clone)]
pub struct Leadership {
    lead: Arc<Mutex<Option<Lead>>>,
    leads: watch::Sender<bool>,
    clock: Clock,
}

#[derive(Clone, Copy)]
struct Lead {
    until: Instant,
    /// For suspended machines, whose monotonic clock stood still.
    wall_until: Timestamp,
}

impl Leadership {
    fn new(clock: &Clock) -> Self {
        Self { lead: Arc::default(), leads: watch::Sender::new(false), clock: clock.clone() }
    }

    /// For components that run alone: leads always.
    pub fn always() -> Self {
        let leadership = Self::new(&Clock::system());
        let far = Duration::from_secs(100 * 365 * 86_400);
        *leadership.lead.lock() = Some(Lead { until: Instant::now() + far, wall_until: Timestamp::MAX });
        leadership.leads.send_replace(true);
        leadership
    }

    /// Whether this process leads at this very moment.
    pub fn holds(&self) -> bool {
        let lead = *self.lead.lock();
        lead.is_some_and(|lead| Instant::now() < lead.until && self.clock.now() < lead.wall_until)
    }

    /// Tells when it begins and ends.
    pub fn changes(&self) -> watch::Receiver<bool> {
        self.leads.subscribe()
    }

    /// Ends it at once.
    #[cfg(test)]
    pub(crate) fn end(&self) {
        self.set(None);
    }

    fn set(&self, lead: Option<Lead>) {
        *self.lead.lock() = lead;
        self.leads.send_if_modified(|leads| std::mem::replace(leads, lead.is_some()) != lead.is_some());
    }
}

impl std::fmt::Debug for Leadership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leadership").field("holds", &self.holds()).finish_non_exhaustive()
    }
}

/// Tries to lead, for as long as it runs.
pub struct Elector<S> {
    cluster: Cluster<S>,
    applier: Applier,
    election: Election,
    leadership: Leadership,
    clock: Clock,
    /// The record as it was last seen to change, and when that was.
    observed: Option<(Record, Instant)>,
    /// The times of the renewal that we sent last, and of the last one that was answered.
    sent: Option<String>,
    answered: Option<String>,
    /// Whether the hold as it is may be one that we made from nothing, and have not led by yet.
    claimed: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    #[serde(default)]
    holder_identity: Option<String>,
    #[serde(default)]
    lease_duration_seconds: Option<u64>,
    #[serde(default)]
    acquire_time: Option<String>,
    #[serde(default)]
    renew_time: Option<String>,
    #[serde(default)]
    lease_transitions: Option<i64>,
}

impl<S: OnSide> Elector<S> {
    /// An elector, not running yet, and the leadership it decides on. `applier` writes the hold and must not
    /// depend on that leadership.
    pub fn new(
        cluster: &Cluster<S>,
        applier: Applier,
        election: Election,
        clock: &Clock,
    ) -> Result<(Self, Leadership), ElectionError> {
        election.check()?;
        let leadership = Leadership::new(clock);
        let elector = Self {
            cluster: cluster.clone(),
            applier,
            election,
            leadership: leadership.clone(),
            clock: clock.clone(),
            observed: None,
            sent: None,
            answered: None,
            claimed: false,
        };
        Ok((elector, leadership))
    }

    /// Tries to lead until told to stop; then lets the hold go, so that the next one need not wait.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let began = (Instant::now(), self.clock.now());
            // A lead that runs out while an answer is awaited ends then, not when the answer comes.
            let lead = *self.leadership.lead.lock();
            let until = lead.map_or(began.0 + self.election.renew_deadline, |lead| lead.until);
            // A connection that died in silence swallows one try. The next one has to fit, on another connection.
            let until = until.min(began.0 + self.election.renew_deadline / 2);
            let attempt = tokio::time::timeout_at(until, self.attempt());
            let leads = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                leads = attempt => leads.unwrap_or(None),
            };
            self.draw_conclusion(leads, began);
            // A lead that runs out is looked at then.
            let lead = *self.leadership.lead.lock();
            let next = began.0 + self.election.retry_period;
            let next = lead.map_or(next, |lead| next.min(lead.until));
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep_until(next) => {}
            }
        }
        self.let_go().await;
    }

    /// `None`: not known, the lead lasts as long as it lasts.
    fn draw_conclusion(&self, leads: Option<bool>, (began, wall_began): (Instant, Timestamp)) {
        match leads {
            // An answer that comes after a long stop is worth nothing: someone else may lead by now.
            Some(true) if began + self.election.renew_deadline <= Instant::now() => self.lead(None),
            Some(true) => {
                let deadline = self.election.renew_deadline;
                let wall = SignedDuration::try_from(deadline).unwrap_or(SignedDuration::MAX);
                let wall_until = wall_began.checked_add(wall).unwrap_or(Timestamp::MAX);
                self.lead(Some(Lead { until: began + deadline, wall_until }));
            }
            Some(false) => self.lead(None),
            None if !self.leadership.holds() => self.lead(None),
            None => {}
        }
    }

    fn lead(&self, lead: Option<Lead>) {
        let before = self.leadership.lead.lock().is_some();
        let Election { name, identity, .. } = &self.election;
        if lead.is_some() != before {
            tracing::info!(hold = %name, identity = %identity, leads = lead.is_some(), "leadership changed");
        }
        self.leadership.set(lead);
        let labels = HoldLabels { name: Arc::from(name.as_str()) };
        self.cluster.metrics().cluster().leader.of(&labels).set(i64::from(lead.is_some()));
    }

    /// One look at the hold, and one write if it is ours to write.
    async fn attempt(&mut self) -> Option<bool> {
        let key = self.key();
        let found = match self.cluster.get_vital(&kinds::LEASE, &key).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(hold = %self.election.name, %error, "the hold cannot be read");
                return None;
            }
        };
        let Some(hold) = found else {
            // Deleted under a living leader, who does not know yet.
            let others =
                self.observed.as_ref().filter(|(record, _)| !self.is_ours(record) && !record.is_free());
            if others.is_some_and(|(record, _)| !self.has_expired(record)) {
                return Some(false);
            }
            return self.claim().await;
        };
        let Some(record) = read(&hold) else {
            tracing::warn!(hold = %self.election.name, "the hold is not understood, and therefore someone else's");
            return None;
        };
        self.observe(&record);
        if !self.is_ours(&record) {
            // Whatever of ours comes back after this, from an etcd that was restored, is of long ago.
            (self.sent, self.answered) = (None, None);
        }
        if !self.is_ours_to_go_on_with(&record) && !record.is_free() && !self.has_expired(&record) {
            return Some(false);
        }
        let body = json!({"spec": self.record(Some(&record))});
        let patch = Verb::Patch { form: PatchForm::Merge, subresource: None, body };
        let leads = self.write(patch, Some(&hold)).await;
        if leads == Some(true) {
            self.claimed = false;
        }
        leads
    }

    /// Makes the hold from nothing. Whoever leads goes on; who does not has to wait until nobody else does.
    async fn claim(&mut self) -> Option<bool> {
        let led = self.leadership.holds();
        let spec = self.record(None);
        // Noted before it is sent: the answer may be lost, and the claim be made all the same.
        self.claimed |= !led;
        let create = Verb::Create { body: json!({"spec": spec}), mark: Mark::default() };
        self.write(create, None).await?;
        if !led {
            let wait = self.election.renew_deadline;
            tracing::info!(hold = %self.election.name, ?wait, "there was no hold: leading begins when ours stood for a while");
        }
        // A lead that ran out while the answer was on its way is over.
        Some(led && self.leadership.holds())
    }

    /// Whether the hold is ours as we left it. One of long ago that is there again, in an etcd that was restored, says nothing about who
    /// has led since.
    fn is_ours_to_go_on_with(&self, record: &Record) -> bool {
        let is_last = || record.renew_time == self.sent || record.renew_time == self.answered;
        let is_good = || !self.claimed || self.stood_for(self.election.renew_deadline);
        self.is_ours(record) && (self.leadership.holds() || is_last() && is_good())
    }

    fn is_ours(&self, record: &Record) -> bool {
        record.holder_identity.as_deref() == Some(&self.election.identity)
    }

    fn observe(&mut self, record: &Record) {
        if self.observed.as_ref().is_none_or(|(known, _)| known != record) {
            self.observed = Some((record.clone(), Instant::now()));
        }
    }

    /// Whether the holder had its whole time, as we saw it, and did nothing.
    fn has_expired(&self, record: &Record) -> bool {
        let theirs = Duration::from_secs(record.lease_duration_seconds.unwrap_or_default());
        self.stood_for(theirs.max(self.election.lease_duration))
    }

    fn stood_for(&self, duration: Duration) -> bool {
        self.observed.as_ref().is_some_and(|(_, since)| since.elapsed() >= duration)
    }

    /// Our own record, following another.
    fn record(&self, before: Option<&Record>) -> Value {
        let now = micro_time(self.clock.now());
        let ours = before.is_some_and(|record| self.is_ours(record));
        let acquired = before.and_then(|record| record.acquire_time.clone()).filter(|_| ours);
        let transitions = before.and_then(|record| record.lease_transitions).unwrap_or_default();
        json!({
            "holderIdentity": self.election.identity,
            "leaseDurationSeconds": self.election.lease_duration.as_secs() + u64::from(self.election.lease_duration.subsec_nanos() > 0),
            "acquireTime": acquired.unwrap_or_else(|| now.clone()),
            "renewTime": now,
            "leaseTransitions": if ours || before.is_none() { transitions } else { transitions + 1 },
        })
    }

    async fn write(&mut self, verb: Verb, hold: Option<&Object>) -> Option<bool> {
        if let Verb::Create { body, .. } | Verb::Patch { body, .. } = &verb {
            self.sent = body.pointer("/spec/renewTime").and_then(Value::as_str).map(str::to_owned);
        }
        let mut action = Action::new(kinds::LEASE, &self.key(), verb, "the leader's hold");
        if let Some(hold) = hold {
            action = action.if_version(&*hold.meta.resource_version).if_uid(&*hold.meta.uid);
        }
        match self.applier.apply_vital(&action).await {
            Outcome::Done(written) => {
                let spec = written.answer.get("spec").cloned().unwrap_or_default();
                self.observe(&serde_json::from_value(spec).unwrap_or_default());
                self.answered.clone_from(&self.sent);
                Some(true)
            }
            Outcome::Gone if hold.is_none() => {
                let namespace = &self.election.namespace;
                tracing::warn!(
                    hold = %self.election.name,
                    "nobody can lead: namespace {namespace} does not exist; kubectl create namespace {namespace}, or name another one"
                );
                None
            }
            // Someone else was faster.
            Outcome::Conflict(_) | Outcome::ExistsForeign | Outcome::ExistsOurs(_) | Outcome::Gone => None,
            outcome => {
                tracing::warn!(hold = %self.election.name, %outcome, "the hold cannot be written");
                None
            }
        }
    }

    async fn let_go(&self) {
        let led = self.leadership.holds();
        self.lead(None);
        if !led {
            return;
        }
        // Only if it is still ours: the version says so.
        let release = async {
            let Ok(Some(hold)) = self.cluster.get_vital(&kinds::LEASE, &self.key()).await else { return };
            if read(&hold).is_none_or(|record| !self.is_ours(&record)) {
                return;
            }
            let body = json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}});
            let patch = Verb::Patch { form: PatchForm::Merge, subresource: None, body };
            let action = Action::new(kinds::LEASE, &self.key(), patch, "the leader lets its hold go")
                .if_version(&*hold.meta.resource_version)
                .if_uid(&*hold.meta.uid);
            self.applier.apply_vital(&action).await;
        };
        drop(tokio::time::timeout(self.election.retry_period, release).await);
    }

    fn key(&self) -> Key<S> {
        Key::new(self.election.namespace.as_str(), self.election.name.as_str())
    }
}

impl<S> std::fmt::Debug for Elector<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elector").field("election", &self.election).finish_non_exhaustive()
    }
}

impl Record {
    fn is_free(&self) -> bool {
        self.holder_identity.as_deref().unwrap_or_default().is_empty()
    }
}

/// `None`: it is not understood.
fn read(hold: &Object) -> Option<Record> {
    hold.field("spec").ok().map(Option::unwrap_or_default)
}

/// As Kubernetes writes them: six digits, always.
pub fn micro_time(time: Timestamp) -> String {
    format!("{time:.6}")
}

//! What can go wrong between us and an API server, sorted by what one does about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use crate::credentials::one_line;

/// Servers ask for a second, rarely for a minute. What is more is a mistake, or malice.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(300);

/// A call that did not do what was asked, as far as we know.
#[derive(Clone, Debug, Error)]
pub enum CallError {
    /// The server answered, and said no.
    #[error("{0}")]
    Refused(Box<Status>),
    /// No answer in time. The server may have done what was asked.
    #[error("no answer within {} s", limit.as_secs())]
    TimedOut {
        /// The deadline.
        limit: Duration,
    },
    /// The connection failed, before or after the server heard us.
    #[error("not reachable: {cause}")]
    Unreachable {
        /// The chain of causes.
        cause: String,
    },
    /// This process does not lead; nothing was sent.
    #[error("this process does not lead")]
    NotLeading,
    /// Nobody knows yet whether the connection leads to the right cluster; nothing was sent.
    #[error("the connection has not shown yet that it leads to the right cluster")]
    Unproven,
    /// An answer (or a question of ours) that cannot be read.
    #[error("not understood: {cause}")]
    Malformed {
        /// What is wrong with it.
        cause: String,
    },
}

impl CallError {
    pub(crate) fn unreachable(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::Unreachable { cause: one_line(error) }
    }

    /// For metrics: the HTTP status, or a word.
    pub(crate) fn code(&self) -> Arc<str> {
        match self {
            Self::Refused(status) => Arc::from(status.code.to_string()),
            Self::TimedOut { .. } => Arc::from("timeout"),
            Self::Unreachable { .. } => Arc::from("unreachable"),
            Self::NotLeading => Arc::from("not-leading"),
            Self::Unproven => Arc::from("unproven"),
            Self::Malformed { .. } => Arc::from("malformed"),
        }
    }

    /// What the server said, if it said anything.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Refused(status) => Some(status),
            _ => None,
        }
    }
}

/// A server's own words about a refusal.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Status {
    /// The HTTP status code.
    #[serde(default)]
    pub code: u16,
    /// One word.
    #[serde(default)]
    pub reason: String,
    /// A sentence.
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    details: Details,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    #[serde(default)]
    retry_after_seconds: Option<u64>,
    #[serde(default)]
    causes: Vec<Cause>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Cause {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    field: String,
}

impl Status {
    /// Reads a body; where it is no status, the code alone speaks.
    pub(crate) fn read(code: u16, retry_after: Option<u64>, body: &[u8]) -> Self {
        let mut status: Self = serde_json::from_slice(body).unwrap_or_default();
        status.code = code;
        status.details.retry_after_seconds = status.details.retry_after_seconds.or(retry_after);
        if status.message.is_empty() {
            // A page of a proxy, at most its beginning.
            let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
            status.message = text.split_whitespace().collect::<Vec<_>>().join(" ");
        }
        status
    }

    /// There is no such object (or kind).
    pub fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// There is an object of that name.
    pub fn already_exists(&self) -> bool {
        self.code == 409 && self.reason == "AlreadyExists"
    }

    /// A precondition did not hold, or a field belongs to another manager.
    ///
    /// A patch that names another uid than the object's is refused as an attempt to change it.
    pub fn is_conflict(&self) -> bool {
        (self.code == 409 && !self.already_exists())
            || (self.code == 422 && self.details.causes.iter().any(|cause| cause.field == "metadata.uid"))
    }

    /// The definition that the server has does not know a field of ours. To the server that is a mistake of its own (500), but
    /// it will make it each time.
    pub fn is_undeclared_field(&self) -> bool {
        self.code == 500 && self.message.contains("field not declared in schema")
    }

    /// Admission says no: a webhook, or the server in place of one that does not answer, or of a quota that was not counted in time. All
    /// of that is asked before anything is written, and a webhook may say it with any code.
    pub fn is_admission(&self) -> bool {
        let fails = |what: &str| self.code == 500 && self.message.contains(what);
        self.message.starts_with("admission webhook \"")
            || fails("failed calling webhook")
            || fails("resource quota evaluation timed out")
    }

    /// The version that a watch or a page wanted is gone.
    pub fn is_expired(&self) -> bool {
        self.code == 410
    }

    /// Too much at a time, or about to restart. (A disruption budget says no with the same code, and means one
    /// pod.)
    pub fn is_throttled(&self) -> bool {
        (self.code == 429 && !self.is_disruption_budget())
            || (self.code == 503 && self.retry_after().is_some())
    }

    /// A pod that may not be evicted now: its disruption budget says so.
    pub fn is_disruption_budget(&self) -> bool {
        self.code == 429 && self.details.causes.iter().any(|cause| cause.reason == "DisruptionBudget")
    }

    /// How long to stay away, if the server said so; not for ever, whatever it said.
    pub fn retry_after(&self) -> Option<Duration> {
        self.details.retry_after_seconds.map(|seconds| Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.reason.as_str(), self.message.as_str()) {
            ("", "") => write!(f, "status {}", self.code),
            ("", message) => write!(f, "status {}: {message}", self.code),
            (_, "") => write!(f, "{} ({})", self.reason, self.code),
            (_, message) => write!(f, "{message} ({} {})", self.code, self.reason),
        }
    }
}

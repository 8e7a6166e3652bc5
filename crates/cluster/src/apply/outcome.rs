//! What came of a write, sorted by what one does about it.

use std::fmt;
use std::time::Duration;

use kubeocean_model::action::{Action, Verb};
use kubeocean_model::object::Object;
use serde_json::Value;

use crate::error::{CallError, Status};
use crate::queue::Verdict;

/// What came of a write.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It is written.
    Done(Box<Written>),
    /// It was so already.
    Unchanged {
        /// The server said so; else we knew, and nothing was sent.
        asked: bool,
    },
    /// A precondition did not hold: what we knew is old. Look again.
    Conflict(String),
    /// There is no such object, or no such namespace.
    Gone,
    /// The name is taken, by what we would have made: an earlier attempt whose answer was lost.
    ExistsOurs(Box<Object>),
    /// The name is taken, by what is not ours. It must not be touched.
    ExistsForeign,
    /// The server does not take this: its rules, or its webhooks. A human has to act.
    Invalid(Box<Status>),
    /// We may not. A human has to act.
    Forbidden(Box<Status>),
    /// Too much at a time, or a disruption budget says not now.
    Throttled {
        /// How long to stay away, if the server said so.
        retry_after: Option<Duration>,
        /// Its words.
        message: String,
    },
    /// No answer, or the server is in trouble. It may have been written.
    Unreachable(CallError),
    /// This process does not lead (any more); nothing was sent.
    NotLeading,
}

/// What a server answered to a write.
#[derive(Clone, Default)]
pub struct Written {
    /// Uid of the object.
    pub uid: Option<String>,
    /// Its new version; deletions that are over at once may have none.
    pub resource_version: Option<String>,
    /// The whole answer.
    pub answer: Value,
}

impl fmt::Debug for Written {
    /// Without the answer: it may be a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, resource_version, answer: _ } = self;
        f.debug_struct("Written").field("uid", uid).field("version", resource_version).finish_non_exhaustive()
    }
}

impl Outcome {
    /// Whether the server does not want it, and will not want it the next time either.
    pub const fn is_refused(&self) -> bool {
        matches!(self, Self::Invalid(_) | Self::Forbidden(_))
    }

    /// Whether the world is now as the action wanted it.
    pub const fn is_done(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Unchanged { .. } | Self::ExistsOurs(_))
    }

    /// Whether the world is now as this action wanted it: what is gone need not be removed.
    pub const fn fulfils(&self, action: &Action) -> bool {
        self.is_done()
            || (matches!(self, Self::Gone) && matches!(action.verb, Verb::Delete { .. } | Verb::Evict { .. }))
    }

    /// The version that the write made, if it made one.
    pub fn version(&self) -> Option<&str> {
        match self {
            Self::Done(written) => written.resource_version.as_deref(),
            _ => None,
        }
    }

    /// One word, for metrics and logs.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::Unchanged { .. } => "unchanged",
            Self::Conflict(_) => "conflict",
            Self::Gone => "gone",
            Self::ExistsOurs(_) => "exists-ours",
            Self::ExistsForeign => "exists-foreign",
            Self::Invalid(_) => "invalid",
            Self::Forbidden(_) => "forbidden",
            Self::Throttled { .. } => "throttled",
            Self::Unreachable(_) => "unreachable",
            Self::NotLeading => "not-leading",
        }
    }

    /// What the queue should do about it, where the planner has no better idea.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Done(_) | Self::Unchanged { .. } | Self::ExistsOurs(_) => Verdict::Done,
            Self::Throttled { retry_after: Some(after), .. } => Verdict::NotBefore(self.word(), *after),
            _ => Verdict::Failed(self.word()),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Self::Done(written) => match &written.resource_version {
                Some(version) => write!(f, " (version {version})"),
                None => Ok(()),
            },
            Self::Conflict(message) | Self::Throttled { message, .. } => write!(f, ": {message}"),
            Self::Invalid(status) | Self::Forbidden(status) => write!(f, ": {status}"),
            Self::Unreachable(error) => write!(f, ": {error}"),
            _ => Ok(()),
        }
    }
}

/// What a failed call means.
pub(super) fn sort(error: CallError) -> Outcome {
    let status = match error {
        CallError::Refused(status) => status,
        CallError::NotLeading => return Outcome::NotLeading,
        error => return Outcome::Unreachable(error),
    };
    match status.code {
        _ if status.is_admission() => Outcome::Invalid(status),
        _ if status.is_conflict() => Outcome::Conflict(status.message),
        404 => Outcome::Gone,
        401 | 403 => Outcome::Forbidden(status),
        429 => Outcome::Throttled { retry_after: status.retry_after(), message: status.message },
        400..=499 => Outcome::Invalid(status),
        _ if status.is_undeclared_field() => Outcome::Invalid(status),
        _ => Outcome::Unreachable(CallError::Refused(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_sorted_by_what_one_does_about_them() {
        let cases = [
            (409, r#"{"reason":"Conflict"}"#, "conflict"),
            (422, r#"{"reason":"Invalid","details":{"causes":[{"field":"metadata.uid"}]}}"#, "conflict"),
            (422, r#"{"reason":"Invalid","details":{"causes":[{"field":"spec.nodeName"}]}}"#, "invalid"),
            (400, "{}", "invalid"),
            (413, "too large", "invalid"),
            (404, "{}", "gone"),
            (401, "{}", "forbidden"),
            (403, "{}", "forbidden"),
            (429, r#"{"details":{"retryAfterSeconds":3}}"#, "throttled"),
            (500, "{}", "unreachable"),
            (
                500,
                r#"{"message":"failed to create typed patch object (…): .status.x: field not declared in schema"}"#,
                "invalid",
            ),
            (
                500,
                r#"{"reason":"InternalError","message":"Internal error occurred: failed calling webhook \"a.b.c\": no route"}"#,
                "invalid",
            ),
            (403, r#"{"message":"admission webhook \"a.b.c\" denied the request: no"}"#, "invalid"),
            (404, r#"{"message":"admission webhook \"a.b.c\" denied the request: no"}"#, "invalid"),
            (409, r#"{"message":"admission webhook \"a.b.c\" denied the request: no"}"#, "invalid"),
            (429, r#"{"message":"admission webhook \"a.b.c\" denied the request: no"}"#, "invalid"),
            (503, r#"{"message":"admission webhook \"a.b.c\" denied the request: no"}"#, "invalid"),
            (500, r#"{"message":"Internal error occurred: resource quota evaluation timed out"}"#, "invalid"),
            (500, r#"{"message":"etcdserver: request timed out"}"#, "unreachable"),
            (503, "<html>no backend</html>", "unreachable"),
            (504, "{}", "unreachable"),
        ];
        for (code, body, word) in cases {
            let outcome = sort(CallError::Refused(Box::new(Status::read(code, None, body.as_bytes()))));
            assert_eq!(outcome.word(), word, "{code} {body}");
        }
        assert_eq!(sort(CallError::TimedOut { limit: Duration::from_secs(1) }).word(), "unreachable");
    }
}

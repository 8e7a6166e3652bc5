//! Requests that a server would take, and that a quota or a webhook does not let through: before anything is written, also where a request
//! only asks what would be.
//!
//! Deliberately absent: counting and calling. A test says what is refused, and when that is over.

use super::Call;
use super::rights::Asked;
use crate::server::State;
use crate::status::{Failure, Result};

/// In whose name something is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A quota that is used up.
    Quota,
    /// A webhook that says no.
    Denied,
    /// A webhook for which nobody answers.
    Broken,
    /// A server that has just started, and lists already what it cannot be watched for yet.
    Starting,
}

impl Refusal {
    fn failure(self, state: &State, call: &Call<'_>, name: &str) -> Failure {
        match self {
            Self::Quota => {
                let used = state.store.live(call.kind.id, Some(&call.place.namespace)).count();
                let what = &call.kind.plural;
                let why = format!(
                    "exceeded quota: lent, requested: {what}=1, used: {what}={used}, limited: {what}={used}"
                );
                Failure::forbidden(&call.kind, name, &why)
            }
            Self::Denied => {
                let why = "admission webhook \"guard.example.com\" denied the request: not here";
                Failure::new(403, "Forbidden", why)
            }
            Self::Starting => Failure::new(429, "TooManyRequests", "storage is (re)initializing"),
            Self::Broken => Failure::internal(
                "failed calling webhook \"guard.example.com\": failed to call webhook: Post \"https://guard.theirs.svc:443/?timeout=10s\": \
                 dial tcp 10.96.0.7:443: connect: connection refused",
            ),
        }
    }
}

/// Refuses what is to be refused.
pub(crate) fn check(state: &State, call: &Call<'_>, verb: &str, name: &str) -> Result<()> {
    let resource = match call.place.subresource.as_str() {
        "" => call.place.plural.clone(),
        subresource => format!("{}/{subresource}", call.place.plural),
    };
    let (group, namespace) = (&call.place.group, &call.place.namespace);
    match state.rights.refusal(&call.actor, &Asked { verb, group, resource: &resource, namespace }) {
        Some(refusal) => Err(refusal.failure(state, call, name)),
        None => Ok(()),
    }
}

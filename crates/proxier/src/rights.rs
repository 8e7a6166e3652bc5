//! May they: the computing cluster is asked, as kubelets ask it.

use std::sync::Arc;
use std::time::Duration;

use kubeocean_cluster::client::Cluster;
use kubeocean_model::action::kinds;
use kubeocean_model::key::Virtual;
use kubeocean_model::kubelet::{Needs, Refusal, Subresource};
use serde_json::{Value, json};

use crate::callers::Caller;
use crate::remembered::Remembered;

/// Kubelets remember for five minutes. Whoever takes a right away waits a minute here.
const ALLOWED_FOR: Duration = Duration::from_secs(60);

/// Whoever gives a right waits not even that.
const DENIED_FOR: Duration = Duration::from_secs(10);

/// Half a kilobyte each: two megabytes.
const MOST_ANSWERS: usize = 4096;

/// Who, what, and on which virtual node.
type Question = (Arc<Caller>, &'static str, Subresource, Arc<str>);

/// Finds out what callers may do.
pub(crate) struct Rights {
    virt: Cluster<Virtual>,
    answers: Remembered<Question, bool>,
}

impl Rights {
    pub(crate) fn new(virt: &Cluster<Virtual>) -> Self {
        Self { virt: virt.clone(), answers: Remembered::new(MOST_ANSWERS) }
    }

    /// Whether a caller may do that on a virtual node; without a name, on all of them.
    pub(crate) async fn allow(
        &self,
        caller: &Arc<Caller>,
        needs: Needs,
        vnode: &Arc<str>,
    ) -> Result<(), Refusal> {
        for subresource in needs.subresources() {
            if self.may(caller, needs.verb, subresource, vnode).await? {
                return Ok(());
            }
        }
        let rights: Vec<&str> = needs.subresources().map(Subresource::as_str).collect();
        Err(Refusal::new(
            403,
            format!(
                "Forbidden (user={}, verb={}, resource=nodes, subresource(s)=[{}])",
                caller.user,
                needs.verb,
                rights.join(" ")
            ),
        ))
    }

    async fn may(
        &self,
        caller: &Arc<Caller>,
        verb: &'static str,
        subresource: Subresource,
        vnode: &Arc<str>,
    ) -> Result<bool, Refusal> {
        let question = (Arc::clone(caller), verb, subresource, Arc::clone(vnode));
        if let Some(answer) = self.answers.get(&question) {
            return Ok(answer);
        }
        let review = review(caller, verb, subresource, vnode);
        let answer = self.virt.review(&kinds::SUBJECT_ACCESS_REVIEW, &review).await.map_err(|error| {
            Refusal::new(
                503,
                format!("the computing cluster cannot be asked what {} may do: {error}", caller.user),
            )
        })?;
        let may = is_allowed(&answer);
        self.answers.put(question, may, if may { ALLOWED_FOR } else { DENIED_FOR });
        Ok(may)
    }
}

fn review(caller: &Caller, verb: &str, subresource: Subresource, vnode: &str) -> Value {
    let kind = &kinds::SUBJECT_ACCESS_REVIEW;
    json!({
        "apiVersion": kind.api_version(),
        "kind": &*kind.kind,
        "spec": {
            "user": caller.user,
            "uid": caller.uid,
            "groups": caller.groups,
            "extra": caller.extra,
            "resourceAttributes": {
                "verb": verb, "group": "", "version": "v1", "resource": "nodes", "subresource": subresource.as_str(), "name": vnode,
            },
        },
    })
}

/// A review that does not say yes says no.
fn is_allowed(answer: &Value) -> bool {
    let status = &answer["status"];
    status["allowed"] == true && status["denied"] != true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        assert!(is_allowed(&json!({"status": {"allowed": true}})));
        assert!(is_allowed(&json!({"status": {"allowed": true, "denied": false}})));
        for no in [
            json!({}),
            json!({"status": {}}),
            json!({"status": {"allowed": "true"}}),
            json!({"status": {"allowed": false}}),
            json!({"status": {"allowed": true, "denied": true}}),
        ] {
            assert!(!is_allowed(&no), "{no}");
        }
    }
}

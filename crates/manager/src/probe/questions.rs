//! The questions that a worker cluster is asked.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::error::CallError;
use kubeocean_model::action::kinds;
use kubeocean_model::bind::{Finding, Worker};
use kubeocean_model::binding::Binding;
use kubeocean_model::key::{Key, Physical};
use kubeocean_model::rights::{WorkerWishes, in_worker};
use serde_json::{Value, json};

/// Where nobody says who we are.
const SOMEBODY: &str = "the identity of the kubeconfig";

/// Without it nobody knows which rights are there.
const MAY_ASK: &str = "create selfsubjectaccessreviews.authorization.k8s.io cluster-wide";

/// Questions at a time to one worker cluster. Each is a connection that stays open for a while and costs some fifty
/// kilobytes; two of them ask for all rights in a tenth of a second.
const QUESTIONS: usize = 2;

/// What a future says, or that it took too long.
pub(super) async fn in_time<T>(
    limit: Duration,
    server: &str,
    asked: impl Future<Output = Result<T, Finding>>,
) -> Result<T, Finding> {
    tokio::time::timeout(limit, asked).await.unwrap_or_else(|_| {
        let cause = format!("no answer within {} s", limit.as_secs());
        Err(Finding::Unreachable { server: server.to_owned(), cause })
    })
}

/// Everything else that has to be true of a worker cluster.
pub(super) async fn ask_all(
    cluster: &Cluster<Physical>,
    server: &str,
    binding: &Binding,
    uid: String,
) -> Result<Finding, Finding> {
    let asked = async {
        let user = who_are_we(cluster).await?;
        let policies = cluster.serves(&kinds::POLICY).await?;
        let missing = match missing(cluster, &binding.mount_namespace, policies).await {
            // Everybody may ask what they may, unless someone has taken that away.
            Err(CallError::Refused(status)) if status.code == 403 => vec![MAY_ASK.to_owned()],
            other => other?,
        };
        if !missing.is_empty() {
            return Ok(Finding::Denied { user, missing });
        }
        let nodes = cluster.how_many(&kinds::NODE).await?;
        Ok(Finding::Good(Worker { uid, user, nodes }))
    };
    asked.await.map_err(|error| trouble(&error, server))
}

async fn who_are_we(cluster: &Cluster<Physical>) -> Result<String, CallError> {
    let review = json!({"apiVersion": kinds::SELF_REVIEW.api_version(), "kind": &*kinds::SELF_REVIEW.kind});
    match cluster.review(&kinds::SELF_REVIEW, &review).await {
        Ok(answer) => Ok(answer["status"]["userInfo"]["username"].as_str().unwrap_or(SOMEBODY).to_owned()),
        // Servers before 1.28 do not know the question, and some do not allow it.
        Err(CallError::Refused(status)) if matches!(status.code, 403 | 404) => Ok(SOMEBODY.to_owned()),
        Err(error) => Err(error),
    }
}

/// The rights that we do not have in a worker cluster, as people say them.
pub async fn missing(
    cluster: &Cluster<Physical>,
    mount_namespace: &str,
    policies: bool,
) -> Result<Vec<String>, CallError> {
    let rights = in_worker(&WorkerWishes { storage: false, policies });
    let questions = rights.iter().flat_map(|right| right.questions(mount_namespace));
    let asked: Vec<BoxFuture<'static, Result<Option<String>, CallError>>> = questions
        .map(|question| {
            let cluster = cluster.clone();
            async move {
                let answer: Value = cluster.review(&kinds::ACCESS_REVIEW, &question.review()).await?;
                Ok((answer["status"]["allowed"] != true).then(|| question.to_string()))
            }
            .boxed()
        })
        .collect();
    let answers: Vec<Option<String>> = futures::stream::iter(asked).buffered(QUESTIONS).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}

/// The uid of the mount namespace.
pub(super) async fn identity(
    cluster: &Cluster<Physical>,
    server: &str,
    binding: &Binding,
) -> Result<String, Finding> {
    let namespace = Key::cluster_scoped(binding.mount_namespace.as_str());
    // Inline, the connection is the syncer's too, who wants it proven before anything is read over it. To ask this is to prove it.
    match cluster.get_unproven(&kinds::NAMESPACE, &namespace).await {
        Ok(Some(namespace)) if namespace.meta.is_deleting() => Err(Finding::MountNamespaceEnds),
        Ok(Some(namespace)) => Ok(namespace.meta.uid.to_string()),
        Ok(None) => Err(Finding::MountNamespaceMissing),
        Err(CallError::Refused(status)) if status.code == 403 => Err(Finding::Denied {
            user: named_in(&status.message).unwrap_or(SOMEBODY).to_owned(),
            missing: vec![format!("get namespaces {0} (or {0} does not exist)", binding.mount_namespace)],
        }),
        Err(error) => Err(trouble(&error, server)),
    }
}

/// Whom an API server has refused, in its own words.
fn named_in(refusal: &str) -> Option<&str> {
    refusal.split_once("User \"")?.1.split_once('"').map(|(user, _)| user)
}

fn trouble(error: &CallError, server: &str) -> Finding {
    let server = server.to_owned();
    match error {
        CallError::Refused(status) if status.code == 401 => {
            Finding::Unauthorized { server, message: status.message.clone() }
        }
        error => Finding::Unreachable { server, cause: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::named_in;

    #[test]
    fn who_is_refused_is_read_from_the_refusal() {
        let refusal = "namespaces \"lent\" is forbidden: User \"system:serviceaccount:ids:kubeocean-borrower\" cannot get resource \"namespaces\"";
        assert_eq!(named_in(refusal), Some("system:serviceaccount:ids:kubeocean-borrower"));
        assert_eq!(named_in("admission webhook \"guard\" denied the request"), None);
    }
}

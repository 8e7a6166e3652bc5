//! What has to be known of the computing cluster before anything can begin: asked until it answers.

use std::sync::Arc;
use std::time::Duration;

use kubeocean_api::keys::names::KUBE_SYSTEM;
use kubeocean_model::action::kinds;
use kubeocean_model::bind::BindingObject;
use kubeocean_model::binding::Binding;
use kubeocean_model::key::{Key, Virtual};
use parking_lot::Mutex;

use crate::admin::Admin;
use crate::client::Cluster;
use crate::error::CallError;

/// A computing cluster that does not answer is asked again so soon, and at last so seldom: an API server that restarts is
/// back within seconds, and somebody waits for it.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// A binding that is not there yet is looked for so often.
const LOOK_FOR_IT: Duration = Duration::from_secs(2);

/// The name of the check in `/readyz` that says so, as long as nothing else can be said.
const COMPUTING_CLUSTER: &str = "computing cluster";

/// Why nobody knows which cluster it is.
#[derive(Debug, thiserror::Error)]
pub enum WhoIsIt {
    /// It does not say.
    #[error(
        "the computing cluster does not say who it is (namespace {KUBE_SYSTEM}): {0}; check --kubeconfig and the rights of this component"
    )]
    Unknown(CallError),
    /// No such namespace.
    #[error("the computing cluster has no namespace {KUBE_SYSTEM}: is it a Kubernetes cluster?")]
    Nameless,
}

/// The uid that stands for the computing cluster, asked for once.
pub async fn virtual_cluster_uid(virt: &Cluster<Virtual>) -> Result<String, WhoIsIt> {
    kube_system(virt).await.map_err(WhoIsIt::Unknown)?.ok_or(WhoIsIt::Nameless)
}

async fn kube_system(virt: &Cluster<Virtual>) -> Result<Option<String>, CallError> {
    let found = virt.get(&kinds::NAMESPACE, &Key::cluster_scoped(KUBE_SYSTEM)).await?;
    Ok(found.map(|namespace| namespace.meta.uid.to_string()))
}

/// Asks the computing cluster, and says in `/readyz` why nothing happens yet.
pub struct Introduction<'a> {
    /// Where that is said.
    pub admin: &'a Admin,
    /// The address of the computing cluster.
    pub server: &'a str,
}

impl Introduction<'_> {
    /// The uid that stands for the computing cluster.
    pub async fn who_is(&self, virt: &Cluster<Virtual>) -> Result<String, WhoIsIt> {
        let found = self.patiently(async || kube_system(virt).await).await;
        found.map_err(WhoIsIt::Unknown)?.ok_or(WhoIsIt::Nameless)
    }

    /// Asks until there is an answer. A process that ended instead would be started again, later and later. A server that is
    /// just starting may also refuse whom it will know in a moment.
    pub async fn patiently<T>(&self, ask: impl AsyncFn() -> Result<T, CallError>) -> Result<T, CallError> {
        let Self { admin, server } = self;
        let trouble = Arc::new(Mutex::new("not asked yet".to_owned()));
        let shown = Arc::clone(&trouble);
        admin.ready.check(COMPUTING_CLUSTER, move || Err(shown.lock().clone()));
        let mut delay = ASK_AGAIN.0;
        loop {
            let error = match ask().await {
                // What cannot be read today cannot be read tomorrow.
                Err(error) if !matches!(error, CallError::Malformed { .. }) => error,
                answer => return answer,
            };
            let said = format!("{server}: {error}");
            // Once for each trouble: whoever looks at the log later finds it at the end.
            if *trouble.lock() != said {
                tracing::warn!(
                    server,
                    %error,
                    "the computing cluster does not answer as it should: waiting for it; if it does not come, check \
                     --kubeconfig, the network and the rights of this component"
                );
                *trouble.lock() = said;
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(ASK_AGAIN.1);
        }
    }

    /// The uid of the computing cluster, and a binding in it: waited for until it is there and can be read.
    pub async fn who_are(
        &self,
        virt: &Cluster<Virtual>,
        binding: &str,
    ) -> Result<(String, Binding), WhoIsIt> {
        let virtual_cluster = self.who_is(virt).await?;
        let mut told = String::new();
        loop {
            let key = Key::cluster_scoped(binding);
            let object = self.patiently(async || virt.get(&kinds::BINDING, &key).await).await;
            let trouble = match object
                .map_err(WhoIsIt::Unknown)?
                .map(|object| BindingObject::read(&object).followed().cloned().map_err(<[_]>::to_vec))
            {
                Some(Ok(binding)) => return Ok((virtual_cluster, binding)),
                Some(Err(faults)) => faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
                None => "it does not exist".to_owned(),
            };
            if told != trouble {
                tracing::warn!(binding, trouble, "waiting for the ClusterBinding");
                let message = format!("ClusterBinding {binding}: {trouble}");
                self.admin.ready.check("binding", move || Err(message.clone()));
                told = trouble;
            }
            tokio::time::sleep(LOOK_FOR_IT).await;
            self.admin.ready.forget("binding");
        }
    }

    /// All is known: other checks say how things are.
    pub fn over(&self) {
        self.admin.ready.forget(COMPUTING_CLUSTER);
    }
}

//! The way to the worker cluster: follows the Secret with its kubeconfig.
//!
//! A kubeconfig that leads to the cluster that we are bound to replaces the connection beneath all stores, within a moment after the Secret
//! changed. One that leads elsewhere, or nowhere, or is none, is told in the log, and the last good connection stays.

use std::sync::Arc;
use std::time::Duration;

use kube::client::Body;
use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::credentials::{Credentials, kubeconfig_of};
use kubeocean_cluster::informer::Informer;
use kubeocean_cluster::metrics::Metrics;
use kubeocean_model::action::kinds;
use kubeocean_model::key::{Key, Physical, Virtual};
use kubeocean_model::leasing::SYNCER;
use kubeocean_model::object::Object;
use kubeocean_model::vnode::Settings as VnodeSettings;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::pulse;
use crate::world::{Subject, World};

/// What did not lead anywhere is tried again: the server may be back, or the rights.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// Who cannot answer a small question in this time is not a connection to move to.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Follows the Secret of a binding.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) virt: Cluster<Virtual>,
    pub(crate) phys: Cluster<Physical>,
    pub(crate) world: World,
    pub(crate) subject: Subject,
    pub(crate) metrics: Metrics,
    /// What depends on the version of the worker cluster.
    pub(crate) settings: Arc<Mutex<VnodeSettings>>,
}

/// The number behind the point of a version such as `v1.36.4`.
pub(crate) fn minor(version: &str) -> Option<u32> {
    version.trim_start_matches('v').split('.').nth(1)?.parse().ok()
}

/// Leads nowhere, until a kubeconfig was found good.
pub(crate) fn nowhere() -> kube::Client {
    let refuse = |_: http::Request<Body>| async {
        let cause = std::io::Error::other("no kubeconfig has led to the worker cluster yet");
        Err::<http::Response<Body>, _>(cause)
    };
    kube::Client::new(tower::service_fn(refuse), "default")
}

impl Connector {
    /// Follows the Secret until told to stop.
    pub(crate) async fn run_until(&self, stop: CancellationToken) {
        self.world.bindings.progress().synced().await;
        while !stop.is_cancelled() {
            let Some(secret) = self.secret() else {
                stop.run_until_cancelled(tokio::time::sleep(TRY_AGAIN)).await;
                continue;
            };
            stop.run_until_cancelled(self.follow(&secret)).await;
        }
    }

    /// The Secret that the binding names.
    fn secret(&self) -> Option<Key<Virtual>> {
        let seen = self.world.bindings.get(&Key::cluster_scoped(&*self.subject.binding))?;
        let binding = seen.0.parsed.as_ref().ok()?;
        Some(Key::new(binding.secret_namespace.as_str(), binding.secret_name.as_str()))
    }

    /// Follows one Secret, until the binding names another one.
    async fn follow(&self, secret: &Key<Virtual>) {
        let news = Arc::new(Notify::new());
        let told = Arc::clone(&news);
        let (informer, _switch) = Informer::<Virtual, Object>::of(&self.virt, kinds::SECRET)
            .namespace(&*secret.namespace)
            .fields(format!("metadata.name={}", secret.name))
            .on_change(move |_| told.notify_one())
            .build();
        let store = informer.store();
        let connect = async {
            let mut made_of = String::new();
            while self.secret().as_ref() == Some(secret) {
                if let Some(found) = store.get(secret).filter(|found| *found.resource_version != *made_of) {
                    match self.connect(&found).await {
                        Ok(server) => {
                            made_of = found.resource_version.to_string();
                            tracing::info!(binding = %self.subject.binding, server, "connected to the worker cluster");
                        }
                        Err(why) => {
                            tracing::warn!(binding = %self.subject.binding, %secret, why, "the kubeconfig is not used");
                        }
                    }
                }
                drop(tokio::time::timeout(TRY_AGAIN, news.notified()).await);
            }
        };
        tokio::select! {
            biased;
            () = informer.run() => {}
            () = connect => {}
        }
    }

    /// Moves over to the connection that a Secret describes, if it is one to the right cluster.
    async fn connect(&self, secret: &Object) -> Result<String, String> {
        let kubeconfig = kubeconfig_of(secret).ok_or("it has no kubeconfig")?;
        let credentials =
            Credentials::from_kubeconfig(&kubeconfig).await.map_err(|error| error.to_string())?;
        let server = credentials.server();
        let client = credentials.client().map_err(|error| error.to_string())?;
        let settings = Settings::new("candidate", SYNCER, &self.metrics);
        let candidate = Cluster::<Physical>::over(client.clone(), settings);
        let namespace = &*self.subject.mount_namespace;
        let key = Key::cluster_scoped(namespace);
        let asked = tokio::time::timeout(ANSWER_WITHIN, candidate.get(&kinds::NAMESPACE, &key)).await;
        let found = asked.map_err(|_| format!("{server} does not answer"))?;
        let found = found.map_err(|error| format!("{server}: {error}"))?;
        let found = found.ok_or_else(|| format!("{server} has no namespace {namespace}"))?;
        let expected = pulse::identities(&self.world, &self.subject);
        if !expected.iter().any(|uid| **uid == *found.meta.uid) {
            return Err(format!(
                "{server} is another cluster: its namespace {namespace} has uid {}, and {} was bound",
                found.meta.uid,
                expected.join(" or ")
            ));
        }
        let version = tokio::time::timeout(ANSWER_WITHIN, candidate.version()).await;
        self.settings.lock().physical_minor =
            version.ok().and_then(Result::ok).and_then(|version| minor(&version));
        self.phys.replace_over(&client);
        Ok(server)
    }
}

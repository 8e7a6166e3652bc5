//! The way to a worker cluster: follows the Secret with its kubeconfig.
//!
//! A kubeconfig that leads to the cluster that we are bound to replaces the connection beneath all stores, within a moment after the Secret
//! changed. One that leads elsewhere, or nowhere, or is none, is told in the log, and the last good connection stays.
//!
//! Deliberately absent: which Secret, and which cluster is the right one. Whoever has the binding says so, each time anew.

use std::sync::Arc;
use std::time::Duration;

use kube::client::Body;
use kubeocean_model::action::kinds;
use kubeocean_model::bind::BindingObject;
use kubeocean_model::key::{Key, Physical, Virtual};
use kubeocean_model::object::Object;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::client::{Cluster, Settings};
use crate::credentials::{Credentials, kubeconfig_of};
use crate::informer::Informer;
use crate::metrics::Metrics;
use crate::progress::Progress;

/// What did not lead anywhere is tried again: the server may be back, or the rights.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// Who cannot answer a small question in this time is not a connection to move to.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// What a binding says of its worker cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// The Secret with the kubeconfig; `None`: the binding cannot be read.
    pub secret: Option<Key<Virtual>>,
    /// The uids by which its mount namespace is known.
    pub identities: Vec<String>,
}

impl Worker {
    /// As a binding says it; one that is gone says nothing.
    pub fn of(binding: Option<&BindingObject>) -> Self {
        let followed = binding.and_then(|object| object.followed().ok());
        let secret =
            followed.map(|binding| Key::new(binding.secret_namespace.as_str(), binding.secret_name.as_str()));
        let known = |object: &BindingObject| {
            object.bound_to().into_iter().chain(object.accepted()).map(str::to_owned).collect()
        };
        Self { secret, identities: binding.map(known).unwrap_or_default() }
    }
}

/// Follows the Secret of a binding.
pub struct Connector {
    /// Where the Secret is.
    pub virt: Cluster<Virtual>,
    /// The cluster whose connection is replaced.
    pub phys: Cluster<Physical>,
    /// Who asks: `kubeocean-syncer`.
    pub component: &'static str,
    /// The binding, for people.
    pub binding: Arc<str>,
    /// The namespace by whose uid the worker cluster is known.
    pub mount_namespace: Arc<str>,
    /// Of the store that the binding is in.
    pub bindings: Progress,
    /// What the binding says now.
    pub worker: Arc<dyn Fn() -> Worker + Send + Sync>,
    /// Where it is counted.
    pub metrics: Metrics,
}

/// Leads nowhere, until a kubeconfig was found good.
pub fn nowhere() -> kube::Client {
    let refuse = |_: http::Request<Body>| async {
        let cause = std::io::Error::other("no kubeconfig has led to the worker cluster yet");
        Err::<http::Response<Body>, _>(cause)
    };
    kube::Client::new(tower::service_fn(refuse), "default")
}

impl Connector {
    /// Follows the Secret until told to stop.
    pub async fn run_until(&self, stop: CancellationToken) {
        stop.run_until_cancelled(self.bindings.synced()).await;
        while !stop.is_cancelled() {
            let Some(secret) = (self.worker)().secret else {
                stop.run_until_cancelled(tokio::time::sleep(TRY_AGAIN)).await;
                continue;
            };
            stop.run_until_cancelled(Box::pin(self.follow(&secret))).await;
        }
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
            while (self.worker)().secret.as_ref() == Some(secret) {
                if let Some(found) = store.get(secret).filter(|found| *found.resource_version != *made_of) {
                    match self.connect(&found).await {
                        Ok(server) => {
                            made_of = found.resource_version.to_string();
                            tracing::info!(binding = %self.binding, server, "connected to the worker cluster");
                        }
                        Err(why) => {
                            tracing::warn!(binding = %self.binding, %secret, why, "the kubeconfig is not used");
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
        let client = credentials.clone().client().map_err(|error| error.to_string())?;
        let settings = Settings::new("candidate", self.component, &self.metrics);
        let candidate = Cluster::<Physical>::over(client.clone(), settings);
        let namespace = &*self.mount_namespace;
        let key = Key::cluster_scoped(namespace);
        let asked = tokio::time::timeout(ANSWER_WITHIN, candidate.get(&kinds::NAMESPACE, &key)).await;
        let found = asked.map_err(|_| format!("{server} does not answer"))?;
        let found = found.map_err(|error| format!("{server}: {error}"))?;
        let found = found.ok_or_else(|| format!("{server} has no namespace {namespace}"))?;
        let expected = (self.worker)().identities;
        if !expected.iter().any(|uid| **uid == *found.meta.uid) {
            return Err(format!(
                "{server} is another cluster: its namespace {namespace} has uid {}, and {} was bound",
                found.meta.uid,
                expected.join(" or ")
            ));
        }
        self.phys.replace_by(&client, Some(&Arc::new(credentials)));
        Ok(server)
    }
}

//! `metrics.k8s.io` of the worker cluster, where kubelets cannot be asked: one list for all nodes.

use std::sync::Arc;

use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::error::CallError;
use kubeocean_model::action::kinds;
use kubeocean_model::key::Physical;
use kubeocean_model::usage_series::PodMetrics;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Limits;

/// The list, while it is good. The one who asks for it holds the lock, and others wait for what comes of it.
pub(super) struct Instead {
    phys: Cluster<Physical>,
    mount_namespace: Box<str>,
    limits: Limits,
    last: Mutex<Option<(Instant, Said)>>,
}

type Said = Result<Arc<PodMetrics>, Arc<str>>;

impl Instead {
    pub(super) fn new(phys: &Cluster<Physical>, mount_namespace: &str, limits: Limits) -> Self {
        Self {
            phys: phys.with_longest_answer(limits.instead.longest),
            mount_namespace: mount_namespace.into(),
            limits,
            last: Mutex::new(None),
        }
    }

    /// What the pods in the mount namespace use, or why nobody says so.
    pub(super) async fn pod_metrics(&self) -> Said {
        let mut last = self.last.lock().await;
        if let Some((since, said)) = &*last
            && since.elapsed() < self.limits.kept
        {
            return said.clone();
        }
        let said = self.ask().await.map(Arc::new).map_err(Arc::from);
        *last = Some((Instant::now(), said.clone()));
        said
    }

    async fn ask(&self) -> Result<PodMetrics, String> {
        let within = self.limits.instead.within;
        let kind = kinds::POD_METRICS;
        let answer = tokio::time::timeout(within, self.phys.list_made(&kind, &self.mount_namespace)).await;
        let answer =
            answer.unwrap_or(Err(CallError::TimedOut { limit: within })).map_err(|error| told(&error))?;
        PodMetrics::parse(&answer).map_err(|error| error.to_string())
    }
}

fn told(error: &CallError) -> String {
    match error.status().map(|status| status.code) {
        Some(404) => "it has none; install metrics-server in the worker cluster".to_owned(),
        Some(401 | 403) => format!(
            "{error}; we need `list` of `pods.metrics.k8s.io` in the mount namespace: apply what `kubeocean worker-manifest` prints to the \
             worker cluster"
        ),
        Some(503) => format!("{error}; look at the APIService v1beta1.metrics.k8s.io of the worker cluster"),
        _ => error.to_string(),
    }
}

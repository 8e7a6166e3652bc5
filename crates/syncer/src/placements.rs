//! What Prometheus sees of pods on their way into the worker cluster.
//!
//! `create_pod` counts what was asked for, `pod_created` what came of it: a pod whose twin is asked for three times before it is there was asked for
//! three times, and created once.

use jiff::Timestamp;
use kubeocean_cluster::apply::Outcome;
use kubeocean_cluster::metrics::{Metrics, MetricsError, Series};
use kubeocean_model::reclaim::VirtualPod;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use crate::observe::{OfBinding, seconds};

/// A pod is bound to the second, and has its twin some milliseconds later; who waits for a `ConfigMap` may wait for an hour.
const START_SECONDS: [f64; 8] = [0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 3600.0];

/// Counts what becomes of pods. Clones count together.
#[derive(Clone)]
pub(crate) struct Placements {
    labels: OfBinding,
    asked: Series<OfBinding, Counter>,
    refused: Series<OfBinding, Counter>,
    created: Series<OfBinding, Counter>,
    failed: Series<OfBinding, Counter>,
    starts: Series<OfBinding, Histogram>,
}

impl Placements {
    pub(crate) fn new(metrics: &Metrics, binding: &str) -> Result<Self, MetricsError> {
        let part = metrics.part("syncer");
        let counter = |name: &str, help: &str| part.shared(name, help, Series::<OfBinding, Counter>::default);
        Ok(Self {
            labels: OfBinding { clusterbinding: binding.to_owned() },
            asked: counter("create_pod", "Pods that the worker cluster was asked to create, every try")?,
            refused: counter("create_pod_errors", "Tries that the worker cluster did not follow")?,
            created: counter("pod_created", "Pods of virtual nodes that were created in the worker cluster")?,
            failed: counter(
                "pod_created_failed",
                "Pods that failed before anything of them was created there",
            )?,
            starts: part.shared(
                "pod_start_seconds",
                "From when a pod was bound to its virtual node to when it was created in the worker cluster",
                || Series::new(|| Histogram::new(START_SECONDS)),
            )?,
        })
    }

    /// The twin of a pod was asked for; this came of it.
    pub(crate) fn asked(&self, pod: &VirtualPod, outcome: &Outcome, is_there: bool, now: Timestamp) {
        self.asked.of(&self.labels).inc();
        if !is_there {
            self.refused.of(&self.labels).inc();
        } else if outcome.is_done() {
            self.created.of(&self.labels).inc();
            if let Some(bound) = pod.bound_at() {
                self.starts.of(&self.labels).observe(seconds(bound, now));
            }
        }
    }

    /// Its node does not take a pod.
    pub(crate) fn rejected(&self) {
        self.failed.of(&self.labels).inc();
    }
}

//! What Prometheus sees of bindings.

use std::time::Duration;

use kubeocean_api::BindingPhase;
use kubeocean_cluster::metrics::{Metrics, MetricsError, Observation, Observed, Series};
use kubeocean_cluster::queue::Verdict;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use crate::world::World;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct ConditionLabels {
    condition: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct BindingLabels {
    clusterbinding: String,
}

/// Most rounds for a binding write nothing; those that do take some writes, which may have to wait.
const SECONDS: [f64; 10] = [0.0001, 0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0];

/// Rounds of planning and writing, by binding: people look for the one that fails. Clones count together.
#[derive(Clone, Debug)]
pub struct Rounds {
    duration: Histogram,
    all: Series<BindingLabels, Counter>,
    failed: Series<BindingLabels, Counter>,
}

impl Rounds {
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let part = metrics.part("manager");
        Ok(Self {
            duration: part
                .shared("sync_duration_seconds", "Rounds for a ClusterBinding", || Histogram::new(SECONDS))?,
            all: part.shared("sync_total", "Rounds, by ClusterBinding", Series::default)?,
            failed: part.shared(
                "sync_errors_total",
                "Rounds that failed, by ClusterBinding",
                Series::default,
            )?,
        })
    }

    pub(crate) fn count(&self, binding: &str, took: Duration, verdict: Verdict) {
        let labels = BindingLabels { clusterbinding: binding.to_owned() };
        self.duration.observe(took.as_secs_f64());
        self.all.of(&labels).inc();
        let failed = self.failed.of(&labels);
        if matches!(verdict, Verdict::Failed(_) | Verdict::NotBefore(..)) {
            failed.inc();
        }
    }

    /// Those of bindings that are gone.
    pub(crate) fn forget(&self, lives: impl Fn(&str) -> bool) {
        self.all.forget(|labels| !lives(&labels.clusterbinding));
        self.failed.forget(|labels| !lives(&labels.clusterbinding));
    }
}

/// Counts bindings by phase and by condition, at each scrape, for as long as the result lives.
pub(crate) fn bindings(metrics: &Metrics, world: &World) -> Result<Vec<Observation>, MetricsError> {
    let phases = metrics.shared(
        "kubeocean_cluster_bindings_total",
        "ClusterBindings, by phase",
        Observed::<PhaseLabels>::default,
    )?;
    let conditions = metrics.shared(
        "kubeocean_manager_bindings_with_condition",
        "ClusterBindings of which a condition is true, by condition",
        Observed::<ConditionLabels>::default,
    )?;
    let mut observations = Vec::new();
    for (word, phase) in
        [("Pending", BindingPhase::Pending), ("Ready", BindingPhase::Ready), ("Failed", BindingPhase::Failed)]
    {
        let bindings = world.bindings.clone();
        observations.push(phases.observe(PhaseLabels { phase: word }, move || {
            let is = bindings
                .all()
                .iter()
                .filter(|(_, seen)| seen.0.status.phase.unwrap_or_default() == phase)
                .count();
            Some(f64::from(u32::try_from(is).unwrap_or(u32::MAX)))
        }));
    }
    for condition in kubeocean_api::keys::conditions::Binding::ALL {
        let (bindings, condition) = (world.bindings.clone(), condition.as_str());
        observations.push(conditions.observe(ConditionLabels { condition }, move || {
            let holds = |conditions: &[_]| {
                conditions.iter().any(|one: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
                    one.type_ == condition && one.status == "True"
                })
            };
            let count = bindings.all().iter().filter(|(_, seen)| holds(&seen.0.status.conditions)).count();
            Some(f64::from(u32::try_from(count).unwrap_or(u32::MAX)))
        }));
    }
    Ok(observations)
}

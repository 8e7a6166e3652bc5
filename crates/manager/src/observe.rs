//! What Prometheus sees of bindings.

use kubeocean_api::BindingPhase;
use kubeocean_cluster::metrics::{Metrics, MetricsError, Observation, Observed};
use prometheus_client::encoding::EncodeLabelSet;

use crate::world::World;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct ConditionLabels {
    condition: &'static str,
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

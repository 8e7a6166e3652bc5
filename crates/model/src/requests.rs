//! What a pod asks of its node, by the rule of Kubernetes' own scheduler (1.36).
//!
//! Init containers run one after the other, beside the sidecars that were started before them; containers
//! run together, beside all sidecars. Requests of the pod as a whole replace the sum of its containers'.
//! While a resize is under way the pod counts with the larger of what it wants and what it has.
//!
//! Deliberately absent: all fields that do not matter for that. Unknown ones are ignored.

use std::collections::HashMap;

use serde::{Deserialize, Deserializer};

use crate::quantity::Quantity;
use crate::resources::{CPU, HUGE_PAGES_PREFIX, MEMORY, PODS, Resources, counted};

/// The part of a pod's `spec` that says what it asks for.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    #[serde(deserialize_with = "or_default")]
    containers: Vec<Container>,
    #[serde(deserialize_with = "or_default")]
    init_containers: Vec<Container>,
    #[serde(deserialize_with = "or_default")]
    overhead: Resources,
    #[serde(deserialize_with = "or_default")]
    resources: Requirements,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    name: String,
    #[serde(deserialize_with = "or_default")]
    resources: Requirements,
    restart_policy: Option<String>,
}

impl Container {
    fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Requirements {
    #[serde(deserialize_with = "or_default")]
    requests: Resources,
}

/// The part of a pod's `status` that says what it has, and whether it still has it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    phase: Option<String>,
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "or_default")]
    container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "or_default")]
    init_container_statuses: Vec<ContainerStatus>,
    resources: Option<Requirements>,
    #[serde(deserialize_with = "or_default")]
    allocated_resources: Resources,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    reason: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    name: String,
    resources: Option<Requirements>,
    #[serde(deserialize_with = "or_default")]
    allocated_resources: Resources,
}

/// Null is what is not there.
fn or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A pod whose requests cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum UnreadablePod {
    /// Its spec cannot be.
    #[error("the pod's spec cannot be read: {0}")]
    Spec(#[source] serde_json::Error),
    /// Its status cannot be.
    #[error("the pod's status cannot be read: {0}")]
    Status(#[source] serde_json::Error),
}

/// What a pod asks of its node: nothing once it has ended.
pub fn of_pod(spec: &str, status: Option<&str>) -> Result<Resources, UnreadablePod> {
    let spec: PodSpec = serde_json::from_str(spec).map_err(UnreadablePod::Spec)?;
    let status = status.map(serde_json::from_str).transpose().map_err(UnreadablePod::Status)?;
    Ok(spec.requests(&status.unwrap_or_default()))
}

impl PodStatus {
    /// Whether the pod has ended for good.
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// Whether its node will never grant the resize that was asked for.
    fn resize_is_infeasible(&self) -> bool {
        let pending = self.conditions.iter().find(|condition| condition.type_ == "PodResizePending");
        pending.is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"))
    }

    /// The larger of what is asked for, given and promised; what is asked for in vain does not count.
    fn effective(&self, asked: &Resources, given: &Resources, promised: &Resources) -> Resources {
        let mut effective = if self.resize_is_infeasible() { Resources::default() } else { asked.clone() };
        effective.raise_to(given);
        effective.raise_to(promised);
        effective
    }
}

impl PodSpec {
    /// What the pod asks of its node, the place for one pod included: nothing once it has ended.
    pub fn requests(&self, status: &PodStatus) -> Resources {
        if status.is_terminal() {
            return Resources::default();
        }
        let mut sum = self.of_containers(status);
        self.replace_by_pod_level(&mut sum, status);
        sum.add(&self.overhead);
        sum.set(PODS, Quantity::whole(1));
        sum.iter()
            .map(|(resource, quantity)| (resource, counted(resource, quantity)))
            .filter(|(_, quantity)| !quantity.is_zero())
            .collect()
    }

    fn of_containers(&self, status: &PodStatus) -> Resources {
        let statuses: HashMap<&str, &ContainerStatus> = status
            .container_statuses
            .iter()
            .chain(&status.init_container_statuses)
            .map(|container| (container.name.as_str(), container))
            .collect();
        let effective = |container: &Container| {
            let asked = &container.resources.requests;
            let known = statuses.get(container.name.as_str());
            match known.and_then(|known| known.resources.as_ref().map(|given| (known, given))) {
                Some((known, given)) => status.effective(asked, &given.requests, &known.allocated_resources),
                None => asked.clone(),
            }
        };

        let mut together = Resources::default();
        for container in &self.containers {
            together.add(&effective(container));
        }
        let mut sidecars = Resources::default();
        let mut while_starting = Resources::default();
        for container in &self.init_containers {
            if container.is_sidecar() {
                let requests = effective(container);
                together.add(&requests);
                sidecars.add(&requests);
                while_starting.raise_to(&sidecars);
            } else {
                let mut beside_sidecars = container.resources.requests.clone();
                beside_sidecars.add(&sidecars);
                while_starting.raise_to(&beside_sidecars);
            }
        }
        together.raise_to(&while_starting);
        together
    }

    fn replace_by_pod_level(&self, sum: &mut Resources, status: &PodStatus) {
        let asked = &self.resources.requests;
        let effective = status
            .resources
            .as_ref()
            .map(|given| status.effective(asked, &given.requests, &status.allocated_resources));
        for (resource, quantity) in asked.iter().filter(|(resource, _)| has_pod_level(resource)) {
            sum.set(resource, effective.as_ref().map_or(quantity, |effective| effective.get(resource)));
        }
    }
}

/// Whether a pod as a whole can ask for the resource; what it asks for of others is ignored.
fn has_pod_level(resource: &str) -> bool {
    resource == CPU || resource == MEMORY || resource.starts_with(HUGE_PAGES_PREFIX)
}

#[cfg(test)]
mod tests;

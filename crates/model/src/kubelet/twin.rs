//! Which pod of the worker cluster answers for a pod of a virtual node.
//!
//! The V pod says which node it is bound to and which containers it has: API servers keep both from tenants. The twin is the P pod that was
//! stamped for this binding and this very V pod. What tenants can write on their pods is not asked.

use super::{NOT_NOW, PodRoute, Refusal, Service};
use crate::key::{Key, Physical};
use crate::object::Object;

/// What has to be known of a V pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundPod {
    /// Which of all pods of that name.
    pub uid: Box<str>,
    /// The node that it is bound to; empty: none.
    pub node: Box<str>,
    /// All of its containers, whatever their kind.
    pub containers: Box<[Box<str>]>,
}

#[derive(serde::Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: Box<str>,
    containers: Vec<Named>,
    init_containers: Vec<Named>,
    ephemeral_containers: Vec<Named>,
}

#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct Named {
    name: Box<str>,
}

impl BoundPod {
    /// Reads an object. One that cannot be read is bound to no node.
    pub fn read(object: &Object) -> Self {
        let spec = object.field::<Spec>("spec").ok().flatten().unwrap_or_default();
        let containers =
            spec.containers.into_iter().chain(spec.init_containers).chain(spec.ephemeral_containers);
        Self {
            uid: object.meta.uid.clone(),
            node: spec.node_name,
            containers: containers.map(|named| named.name).collect(),
        }
    }
}

/// What has to be known of a P pod that was made for this binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhysicalTwin {
    /// Its name there.
    pub key: Key<Physical>,
    /// The uid of the V pod that it was made for.
    pub virtual_uid: Box<str>,
}

/// Which P pod answers?
#[derive(Clone, Copy, Debug)]
pub struct TwinQuestion<'a> {
    /// What is asked for.
    pub route: &'a PodRoute,
    /// Of which virtual node.
    pub vnode: &'a str,
    /// The worker cluster, for people.
    pub cluster_id: &'a str,
}

impl TwinQuestion<'_> {
    /// Whether this virtual node may answer for the pod at all.
    pub fn check(&self, pod: Option<&BoundPod>) -> Result<(), Refusal> {
        let route = self.route;
        let name = &*route.pod.name;
        let unknown = || match route.service {
            Service::Logs => Refusal::new(404, format!("pod \"{name}\" does not exist")),
            _ => Refusal::new(404, "pod does not exist"),
        };
        let is_here = |pod: &&BoundPod| !self.vnode.is_empty() && *pod.node == *self.vnode;
        let pod = pod.filter(is_here).ok_or_else(unknown)?;
        if route.uid.as_ref().is_some_and(|uid| **uid != *pod.uid) {
            return Err(unknown());
        }
        match &route.container {
            Some(container) if !pod.containers.iter().any(|one| **one == **container) => {
                Err(Refusal::new(404, format!("container \"{container}\" not found in pod \"{name}\"")))
            }
            _ => Ok(()),
        }
    }

    /// The pod that answers, among those that were made for this binding.
    pub fn twin<'t>(
        &self,
        pod: &BoundPod,
        twins: impl IntoIterator<Item = &'t PhysicalTwin>,
    ) -> Result<&'t PhysicalTwin, Refusal> {
        let is_its = |twin: &&PhysicalTwin| !pod.uid.is_empty() && twin.virtual_uid == pod.uid;
        twins.into_iter().find(is_its).ok_or_else(|| {
            let message = format!(
                "pod \"{}\" does not run in worker cluster {}: it was not started there yet, or has ended; its Events say why",
                self.route.pod.name, self.cluster_id
            );
            Refusal::new(NOT_NOW, message)
        })
    }
}

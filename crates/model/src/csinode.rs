//! The volume drivers of a node of a worker cluster, as its virtual node has them.

use kubeocean_api::keys::{annotations, labels};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::action::{Action, Mark, PatchForm, Verb, kinds};
use crate::binding::Binding;
use crate::key::{Key, Virtual};
use crate::naming::label_value;
use crate::object::{Meta, Object};
use crate::vnode::VirtualNode;

/// A `CSINode` of either side.
#[derive(Clone, Debug)]
pub struct CsiNode {
    /// Its metadata.
    pub meta: Meta,
    /// Its drivers, as they came.
    pub drivers: Vec<Value>,
}

#[derive(Deserialize, Serialize, Default)]
#[serde(default)]
struct Spec {
    drivers: Vec<Value>,
}

impl CsiNode {
    /// Reads an object.
    pub fn read(object: &Object) -> Self {
        let spec = object.field::<Spec>("spec").ok().flatten().unwrap_or_default();
        Self { meta: object.meta.clone(), drivers: spec.drivers }
    }
}

/// What has to be written so that the virtual node has the drivers of `physical`. A node without drivers needs no object.
pub fn plan(
    binding: &Binding,
    virtual_cluster: &str,
    vnode: &VirtualNode,
    physical: Option<&CsiNode>,
    existing: Option<&CsiNode>,
) -> Option<Action> {
    let wanted = physical.map(|physical| physical.drivers.as_slice()).unwrap_or_default();
    let key = Key::<Virtual>::cluster_scoped(vnode.name());
    let why = "the volume drivers of its node";
    let Some(existing) = existing else {
        if wanted.is_empty() {
            return None;
        }
        let body = json!({
            "metadata": {
                "labels": stamps(binding, virtual_cluster, vnode),
                "annotations": {annotations::PHYSICAL_NODE_NAME: vnode.physical_name},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": vnode.name(), "uid": &*vnode.meta.uid},
                ],
            },
            "spec": {"drivers": wanted},
        });
        let mark = Mark { labels: &[labels::BINDING_UID], annotations: &[] };
        return Some(Action::new(kinds::CSI_NODE, &key, Verb::Create { body, mark }, why));
    };
    // Someone else's: nothing that we should touch.
    if existing.meta.labels.get(labels::BINDING_UID) != Some(&binding.uid) || existing.meta.is_deleting() {
        return None;
    }
    if existing.drivers == wanted {
        return None;
    }
    // A driver cannot be changed. One that is another now goes with this write, and comes with the next.
    let same = |driver: &&Value| {
        existing
            .drivers
            .iter()
            .find(|known| known["name"] == driver["name"])
            .is_none_or(|known| known == *driver)
    };
    let drivers: Vec<&Value> = wanted.iter().filter(same).collect();
    let body = json!({"spec": {"drivers": drivers}});
    let verb = Verb::Patch { form: PatchForm::Merge, subresource: None, body };
    let action = Action::new(kinds::CSI_NODE, &key, verb, why).if_uid(&*existing.meta.uid);
    Some(action.if_version(&*existing.meta.resource_version))
}

fn stamps(binding: &Binding, virtual_cluster: &str, vnode: &VirtualNode) -> Value {
    let mut stamps = json!({
        labels::MANAGED_BY: labels::MANAGED_BY_VALUE, labels::BINDING_UID: binding.uid,
        labels::VIRTUAL_CLUSTER_UID: virtual_cluster, labels::CLUSTER_BINDING: binding.name,
        labels::PHYSICAL_CLUSTER_ID: binding.cluster_id.as_str(),
    });
    if let Some(name) = label_value(&vnode.physical_name) {
        stamps[labels::PHYSICAL_NODE_NAME] = name.as_str().into();
    }
    stamps
}

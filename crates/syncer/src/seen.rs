//! What is kept of objects, and the words under which they are found.

use kubeocean_cluster::store::{Index, Shape};
use kubeocean_model::bind::BindingObject;
use kubeocean_model::csinode::CsiNode;
use kubeocean_model::object::Object;
use kubeocean_model::project::ServiceEntry;
use kubeocean_model::reclaim::VirtualPod;
use kubeocean_model::selector::LabelSelector;
use kubeocean_model::services;
use kubeocean_model::vnode::{PhysicalNode, VirtualNode};

use crate::usage::SeenPod;

/// The binding, as it is kept.
#[derive(Debug)]
pub struct SeenBinding(pub BindingObject);

impl Shape for SeenBinding {
    fn of(object: Object) -> Self {
        Self(BindingObject::read(&object))
    }
}

/// A virtual node, as it is kept.
#[derive(Debug)]
pub struct SeenVnode(pub VirtualNode);

impl Shape for SeenVnode {
    fn of(object: Object) -> Self {
        Self(VirtualNode::read(&object))
    }
}

/// A worker cluster's node, as it is kept; or what cannot be read of it.
#[derive(Debug)]
pub struct SeenNode(pub Result<PhysicalNode, String>);

impl Shape for SeenNode {
    fn of(object: Object) -> Self {
        Self(PhysicalNode::read(&object))
    }
}

/// A pod on a virtual node, as it is kept.
#[derive(Debug)]
pub struct SeenVirtualPod(pub VirtualPod);

impl Shape for SeenVirtualPod {
    fn of(object: Object) -> Self {
        Self(VirtualPod::read(object))
    }
}

/// A `CSINode`, as it is kept.
#[derive(Debug)]
pub struct SeenCsiNode(pub CsiNode);

impl Shape for SeenCsiNode {
    fn of(object: Object) -> Self {
        Self(CsiNode::read(&object))
    }
}

/// A disruption budget: which pods it means.
#[derive(Debug)]
pub struct SeenBudget {
    pub(crate) namespace: String,
    pub(crate) selector: Option<LabelSelector>,
}

impl Shape for SeenBudget {
    fn of(object: Object) -> Self {
        let spec = object.field::<serde_json::Value>("spec").ok().flatten().unwrap_or_default();
        let selector = serde_json::from_value(spec["selector"].clone()).ok();
        Self {
            namespace: object.meta.namespace.to_string(),
            // One that cannot be read means none: an eviction is refused by the server where it knows better.
            selector: selector.and_then(|selector| LabelSelector::parse(Some(&selector)).ok()),
        }
    }
}

/// A Service of V: as pods see it, and as it is.
#[derive(Debug)]
pub struct SeenService {
    pub(crate) entry: ServiceEntry,
    pub(crate) object: Object,
}

impl Shape for SeenService {
    fn of(object: Object) -> Self {
        Self { entry: ServiceEntry::read(&object), object }
    }
}

pub(crate) static OF_NODE: Index<SeenVnode> = Index::new("node", |seen| vec![seen.0.physical_name.clone()]);
pub(crate) static ON_NODE: Index<SeenVirtualPod> = Index::new("node", |seen| vec![seen.0.node.clone()]);
pub(crate) static IN_NAMESPACE: Index<SeenBudget> =
    Index::new("namespace", |seen| vec![seen.namespace.clone()]);
pub(crate) static TWINS_NAMED: Index<SeenPod> =
    Index::new("virtual", |seen| seen.virtual_key.iter().map(ToString::to_string).collect());
pub(crate) static PODS_IN: Index<SeenVirtualPod> =
    Index::new("namespace", |seen| vec![seen.0.meta.namespace.to_string()]);
pub(crate) static SERVICES_IN: Index<SeenService> =
    Index::new("namespace", |seen| vec![seen.entry.namespace.clone()]);

pub(crate) static OF_SERVICE: Index<Object> = Index::new("service", |slice| {
    let service = services::service_of(&slice.meta).map(|name| format!("{}/{name}", slice.meta.namespace));
    service.into_iter().collect()
});

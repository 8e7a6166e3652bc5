//! Which proxier answers for which virtual node, and on which port.
//!
//! Virtual nodes are spread over the replicas that are ready by rendezvous: a replica that comes or goes moves its own share, and no
//! other. Each node keeps its port for as long as it lives.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use kubeocean_api::keys::labels;
use kubeocean_cluster::store::Store;
use kubeocean_model::key::Virtual;
use kubeocean_model::naming::{Port, free_port};
use kubeocean_model::object::Object;
use kubeocean_model::vnode::VirtualNode;
use parking_lot::Mutex;
use serde::Deserialize;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Endpoint {
    addresses: Vec<String>,
    conditions: Conditions,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
}

/// Where proxiers answer.
#[derive(Clone)]
pub(crate) enum Proxiers {
    /// At the endpoints of their Service.
    Published(Store<Virtual, Object>),
    /// In this process, at this address.
    Here(Option<Arc<str>>),
}

impl Proxiers {
    /// Whether virtual nodes of other bindings are answered for at the same address.
    pub(crate) fn are_shared(&self) -> bool {
        matches!(self, Self::Here(_))
    }

    /// The address for a virtual node; `None` where nobody is ready.
    pub(crate) fn address_of(&self, vnode: &str) -> Option<Arc<str>> {
        match self {
            Self::Here(address) => address.clone(),
            Self::Published(slices) => {
                let ready = slices.all().into_iter().flat_map(|(_, slice)| ready(&slice));
                ready.max_by_key(|address| weight(vnode, address)).map(Into::into)
            }
        }
    }
}

fn ready(slice: &Object) -> Vec<String> {
    let endpoints = slice.field::<Vec<Endpoint>>("endpoints").ok().flatten().unwrap_or_default();
    let ready = endpoints.into_iter().filter(|endpoint| endpoint.conditions.ready.unwrap_or(true));
    ready.filter_map(|endpoint| endpoint.addresses.into_iter().next()).collect()
}

fn weight(vnode: &str, address: &str) -> (u64, String) {
    let mut hasher = DefaultHasher::new();
    (vnode, address).hash(&mut hasher);
    (hasher.finish(), address.to_owned())
}

/// The ports of virtual nodes. Clones are the same: bindings whose proxiers share an address share one.
#[derive(Clone, Default)]
pub struct Ports {
    held: Arc<Mutex<BTreeMap<Holder, Port>>>,
    /// Those that a proxier could not bind: whoever has one gets another.
    refused: Arc<Mutex<BTreeSet<Port>>>,
}

/// A binding's uid and the name of a virtual node: two bindings may want one name, until one of them learns that it is taken.
type Holder = (String, String);

impl Ports {
    /// Notes the ports of virtual nodes that exist. No new one gets any of them. Those that say of which binding they are have them
    /// for that one, the others for this one.
    pub(crate) fn know<'a>(&self, binding_uid: &str, vnodes: impl Iterator<Item = &'a VirtualNode>) {
        for (vnode, port) in vnodes.filter_map(|vnode| Some((vnode, vnode.port()?))) {
            let owner = vnode.meta.labels.get(labels::BINDING_UID).unwrap_or(binding_uid);
            self.of(owner, vnode.name(), port, Some(port));
        }
    }

    /// The port of a virtual node: the one that it has, unless another has it, too; else a free one.
    pub(crate) fn of(
        &self,
        binding_uid: &str,
        vnode: &str,
        preferred: Port,
        known: Option<Port>,
    ) -> Option<Port> {
        let holder = (binding_uid.to_owned(), vnode.to_owned());
        let mut ports = self.held.lock();
        let refused = self.refused.lock();
        let is_held = |port: Port| ports.iter().any(|(other, taken)| *taken == port && *other != holder);
        let is_taken = |port: Port| refused.contains(&port) || is_held(port);
        let wanted = known.or_else(|| ports.get(&holder).copied());
        let port = match wanted.filter(|port| !is_taken(*port)) {
            Some(port) => port,
            None => free_port(preferred, is_taken)?,
        };
        ports.insert(holder, port);
        Some(port)
    }

    /// A proxier could not bind these.
    pub fn refuse(&self, ports: impl IntoIterator<Item = Port>) {
        self.refused.lock().extend(ports);
    }

    /// Nothing is known of a binding's virtual nodes any more: it is gone, or another process works for it.
    pub(crate) fn forget(&self, binding_uid: &str) {
        self.held.lock().retain(|(owner, _), _| owner != binding_uid);
    }

    /// The virtual node is gone.
    pub(crate) fn release(&self, binding_uid: &str, vnode: &str) {
        self.held.lock().remove(&(binding_uid.to_owned(), vnode.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use kubeocean_model::naming::{ClusterId, VnodeName};

    use super::*;

    #[test]
    fn a_name_that_two_bindings_want_costs_nobody_its_port() {
        let ports = Ports::default();
        let cluster = ClusterId::parse("a").unwrap();
        let preferred = VnodeName::of(&cluster, "b-c").preferred_port();
        let first = ports.of("u1", "vnode-a-b-c", preferred, None);
        let second = ports.of("u2", "vnode-a-b-c", preferred, None);
        assert_ne!(first, second);
        // It has learnt that the name is not its own.
        ports.release("u2", "vnode-a-b-c");
        assert_ne!(ports.of("u2", "vnode-other", preferred, None), first);
        assert_eq!(ports.of("u1", "vnode-a-b-c", preferred, None), first);
    }

    #[test]
    fn a_port_that_a_proxier_cannot_bind_is_given_up() {
        let ports = Ports::default();
        let preferred = VnodeName::of(&ClusterId::parse("a").unwrap(), "n1").preferred_port();
        let first = ports.of("u1", "vnode-a-n1", preferred, None);
        ports.refuse(first);
        let second = ports.of("u1", "vnode-a-n1", preferred, first);
        assert!(second.is_some() && second != first);
        assert_eq!(ports.of("u1", "vnode-a-n1", preferred, second), second);
    }
}

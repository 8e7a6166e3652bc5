//! Simulated nodes: Node objects that KWOK keeps alive, and on which it lets pods "run".

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeSpec, NodeStatus, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Api, ObjectMeta, PostParams};

use crate::spec::NodeSize;

/// KWOK manages nodes with this annotation, and no others.
pub(crate) const SELECTOR: &str = "kwok.x-k8s.io/node=fake";

/// How nodes and pods live.
pub(crate) const STAGES: &str = include_str!("sim.yaml");

/// The names of `count` simulated nodes.
pub(crate) fn names(count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("sim-{number}")).collect()
}

/// What simulated nodes and pods have for addresses: the range for tests of networks, and one that is
/// reserved and that nobody routes. An `unreachable` route of ours keeps either on this machine.
pub(crate) const RANGES: [&str; 2] = ["198.18.0.0/15", "240.0.0.0/4"];

/// The first address of a cluster's simulated nodes, 2048 per cluster. Nodes are dialled by whoever asks
/// for a log: where we may not set a route, they are at loopback addresses.
pub(crate) fn first_node(cluster: usize, routed: bool) -> Ipv4Addr {
    let third = u8::try_from(8 * cluster).unwrap_or(u8::MAX);
    if routed { Ipv4Addr::new(198, 18, third, 1) } else { Ipv4Addr::new(127, 18, third, 1) }
}

/// The addresses of pods on a cluster's simulated nodes: 65,536. (Loopback would not do: an endpoint may
/// not be there.)
pub(crate) fn pods(cluster: usize) -> String {
    format!("240.{cluster}.0.0/16")
}

/// Simulated nodes to be.
pub(crate) struct Nodes<'a> {
    pub(crate) count: usize,
    pub(crate) first_address: Ipv4Addr,
    pub(crate) size: &'a NodeSize,
    pub(crate) version: &'a str,
}

impl Nodes<'_> {
    pub(crate) async fn create(&self, client: kube::Client) -> Result<(), kube::Error> {
        let api = Api::<Node>::all(client);
        for (index, name) in names(self.count).into_iter().enumerate() {
            let offset = u32::try_from(index).unwrap_or_default();
            let address = Ipv4Addr::from(u32::from(self.first_address).wrapping_add(offset));
            api.create(&PostParams::default(), &node(&name, address, self.size, self.version)).await?;
        }
        Ok(())
    }
}

fn node(name: &str, address: Ipv4Addr, size: &NodeSize, version: &str) -> Node {
    let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let resources: BTreeMap<_, _> = [
        ("cpu", &size.cpu),
        ("memory", &size.memory),
        ("pods", &size.pods),
        ("ephemeral-storage", &"100Gi".to_owned()),
    ]
    .into_iter()
    .map(|(resource, quantity)| (resource.to_owned(), Quantity(quantity.clone())))
    .collect();
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            annotations: Some(pairs(&[
                ("kwok.x-k8s.io/node", "fake"),
                ("node.alpha.kubernetes.io/ttl", "0"),
            ])),
            labels: Some(pairs(&[
                ("kubernetes.io/hostname", name),
                ("kubernetes.io/os", "linux"),
                ("kubernetes.io/arch", architecture),
            ])),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec::default()),
        status: Some(NodeStatus {
            // No Hostname: API servers would ask the DNS of the outside world for it.
            addresses: Some(vec![NodeAddress {
                type_: "InternalIP".to_owned(),
                address: address.to_string(),
            }]),
            capacity: Some(resources.clone()),
            allocatable: Some(resources),
            node_info: Some(NodeSystemInfo {
                architecture: architecture.to_owned(),
                operating_system: "linux".to_owned(),
                kubelet_version: version.to_owned(),
                ..NodeSystemInfo::default()
            }),
            ..NodeStatus::default()
        }),
    }
}

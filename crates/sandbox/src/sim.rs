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

/// Creates the nodes.
pub(crate) async fn create(
    client: kube::Client,
    size: &NodeSize,
    version: &str,
    count: usize,
) -> Result<(), kube::Error> {
    let api = Api::<Node>::all(client);
    for (index, name) in names(count).into_iter().enumerate() {
        let node = node(&name, address(index), size, version);
        match api.create(&PostParams::default(), &node).await {
            // A repeated start finds the nodes of the first.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            other => drop(other?),
        }
    }
    Ok(())
}

/// From 198.18.0.0/15, the range for tests of networks: it is routed nowhere.
fn address(index: usize) -> Ipv4Addr {
    let base = u32::from(Ipv4Addr::new(198, 18, 0, 1));
    Ipv4Addr::from(base + u32::try_from(index).unwrap_or_default())
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
                ("kubernetes.io/role", "agent"),
            ])),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec::default()),
        status: Some(NodeStatus {
            addresses: Some(vec![
                NodeAddress { type_: "InternalIP".to_owned(), address: address.to_string() },
                NodeAddress { type_: "Hostname".to_owned(), address: name.to_owned() },
            ]),
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

//! What stands behind a virtual node: a machine, and those of our pods that run on it.

use std::net::{IpAddr, SocketAddr};

use kubeocean_model::object::Object;
use kubeocean_model::usage_series::Tenants;
use serde::Deserialize;

/// Who knows virtual nodes. Asked for each question, so it answers from memory.
pub trait Ground: Send + Sync + 'static {
    /// Whether this virtual node is one of ours.
    fn serves(&self, vnode: &str) -> bool;

    /// What stands behind it, as of now.
    fn machine(&self, vnode: &str) -> Option<Machine>;
}

/// A node of the worker cluster.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its name there.
    pub node: Box<str>,
    /// Where its kubelet is, if it says so.
    pub kubelet: Option<SocketAddr>,
    /// Our pods on it.
    pub tenants: Tenants,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    addresses: Option<Vec<Address>>,
    #[serde(default)]
    daemon_endpoints: Option<Daemons>,
}

#[derive(Deserialize)]
struct Address {
    #[serde(rename = "type", default)]
    kind: Box<str>,
    #[serde(default)]
    address: Box<str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Daemons {
    #[serde(default)]
    kubelet_endpoint: Option<Endpoint>,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(rename = "Port", default)]
    port: i64,
}

/// Where the kubelet of a P node is: at its first `InternalIP`, on the port that it names. `None`: it does not say, or names what is no address of a
/// machine.
pub fn kubelet_address(node: &Object) -> Option<SocketAddr> {
    let status: Status = node.field("status").ok()??;
    let port =
        u16::try_from(status.daemon_endpoints?.kubelet_endpoint?.port).ok().filter(|port| *port > 0)?;
    let addresses = status.addresses.unwrap_or_default();
    let internal = addresses.iter().filter(|one| &*one.kind == "InternalIP");
    let address = internal.filter_map(|one| one.address.parse().ok()).find(is_of_machine)?;
    Some(SocketAddr::new(address, port))
}

/// A lender's node may name any address. These are not of one machine, or are of a network that only that machine has: on ours, something else would answer.
fn is_of_machine(address: &IpAddr) -> bool {
    // An IPv4 address may be written as one of IPv6, and is dialled all the same.
    let address = &address.to_canonical();
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(link_local || address.is_loopback() || address.is_multicast() || address.is_unspecified())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn address_of(status: &Value) -> Option<String> {
        let node: Object =
            serde_json::from_value(json!({ "metadata": { "name": "n1" }, "status": status })).unwrap();
        kubelet_address(&node).map(|at| at.to_string())
    }

    fn with(addresses: &Value, port: &Value) -> Option<String> {
        address_of(
            &json!({ "addresses": addresses, "daemonEndpoints": { "kubeletEndpoint": { "Port": port } } }),
        )
    }

    #[test]
    fn a_kubelet_is_at_the_first_internal_address_on_the_port_that_its_node_names() {
        let addresses = json!([
            { "type": "Hostname", "address": "10.0.0.9" }, { "type": "ExternalIP", "address": "8.8.8.8" },
            { "type": "InternalIP", "address": "10.0.0.1" }, { "type": "InternalIP", "address": "fd00::1" },
        ]);
        assert_eq!(with(&addresses, &json!(10250)).as_deref(), Some("10.0.0.1:10250"));
        let six = json!([{ "type": "InternalIP", "address": "fd00::1" }]);
        assert_eq!(with(&six, &json!(1234)).as_deref(), Some("[fd00::1]:1234"));
    }

    #[test]
    fn what_is_no_address_of_a_machine_is_not_dialled() {
        for address in [
            "127.0.0.1",
            "169.254.169.254",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "fe80::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0.0.0.0",
            "::",
            "n1",
            "",
        ] {
            let addresses = json!([{ "type": "InternalIP", "address": address }]);
            assert_eq!(with(&addresses, &json!(10250)), None, "{address}");
        }
        let good = json!([{ "type": "InternalIP", "address": "10.0.0.1" }]);
        for port in [json!(0), json!(-1), json!(65536), Value::Null, json!("10250")] {
            assert_eq!(with(&good, &port), None, "{port}");
        }
        for status in
            [json!({}), json!({ "addresses": null, "daemonEndpoints": null }), json!([1]), Value::Null]
        {
            assert_eq!(address_of(&status), None, "{status}");
        }
    }
}

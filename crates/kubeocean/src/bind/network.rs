//! What the network has to do, and as much of it as can be seen from here: little. Each of the four is told all the same, since
//! whoever binds a cluster is who has to know.

use std::fmt::Write as _;
use std::net::IpAddr;

use kubeocean_api::keys::labels::{TYPE, TYPE_VIRTUAL_KUBELET};
use kubeocean_api::keys::names::{INTRANET_API_SERVER, INTRANET_DNS};
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::error::CallError;
use kubeocean_model::action::kinds;
use kubeocean_model::key::{Key, OnSide, Virtual};
use kubeocean_model::object::Object;
use serde_json::Value;

use super::checks::Checks;
use super::computing::Seen;
use super::worker::Reached;

/// Tells all four.
pub(super) async fn look(seen: Option<&Seen>, worker: Option<&Reached>, checks: &mut Checks) {
    pods(seen, worker, checks).await;
    if let Some(seen) = seen {
        services(&seen.virt, checks).await;
    }
    checks.unknown(
        "proxier network",
        "not seen from here: the computing cluster's API server has to reach the pods of the proxier",
    );
    let from_here =
        worker.map_or_else(String::new, |worker| format!("{} answers from here; ", worker.server));
    checks.unknown(
        "manager network",
        format!("not seen from here: {from_here}the manager has to reach the worker's API server too"),
    );
}

/// Pods of both clusters reach each other by their addresses, and so no two may have the same one.
async fn pods(seen: Option<&Seen>, worker: Option<&Reached>, checks: &mut Checks) {
    const SUBJECT: &str = "pod network";
    const UNSEEN: &str = "pods of both clusters have to reach each other by their addresses";
    let (Some(seen), Some(worker)) = (seen, worker) else {
        return checks.unknown(SUBJECT, format!("not seen from here: {UNSEEN}"));
    };
    match (ranges(&seen.virt).await, ranges(&worker.phys).await) {
        (Ok(ours), Ok(theirs)) => match first_overlap(&ours, &theirs) {
            // Networks that hand out addresses themselves leave these ranges unused: then all may be well.
            Some((our, their)) => checks.warn(
                SUBJECT,
                format!(
                    "{} of node {} in the computing cluster and {} of node {} in the worker cluster overlap: where pods have their \
                     addresses from these ranges, they cannot reach each other; give one cluster another --cluster-cidr",
                    our.text, our.node, their.text, their.node
                ),
            ),
            None if ours.is_empty() || theirs.is_empty() => {
                checks.unknown(SUBJECT, format!("not seen from here, no node names its range: {UNSEEN}"));
            }
            None => {
                checks.unknown(SUBJECT, format!("no ranges of nodes overlap; the rest is not seen from here: {UNSEEN}"));
            }
        },
        (Err(error), _) | (_, Err(error)) => {
            checks.unknown(SUBJECT, format!("nodes cannot be read ({error}): {UNSEEN}"));
        }
    }
}

/// Pods of the worker cluster find the computing cluster's API server and DNS by two Services.
async fn services(virt: &Cluster<Virtual>, checks: &mut Checks) {
    const SUBJECT: &str = "intranet services";
    let mut there = String::new();
    let mut absent = Vec::new();
    for (namespace, name) in [INTRANET_API_SERVER, INTRANET_DNS] {
        match virt.get(&kinds::SERVICE, &Key::new(namespace, name)).await {
            Ok(Some(service)) => match address(&service) {
                Some(address) => {
                    let _ = write!(there, "{namespace}/{name} is at {address}; ");
                }
                None => absent.push(format!("{namespace}/{name} has no address yet")),
            },
            Ok(None) => absent.push(format!("{namespace}/{name} is not there")),
            Err(error) => absent.push(format!("{namespace}/{name} cannot be read ({error})")),
        }
    }
    if absent.is_empty() {
        checks.unknown(
            SUBJECT,
            format!("{there}pods of the worker have to reach them, which is not seen from here"),
        );
    } else {
        checks.warn(
            SUBJECT,
            format!(
                "{}: pods of the worker reach this cluster's API server and DNS by these Services; make them of type LoadBalancer, \
                 with addresses that the worker's pods reach",
                absent.join(", ")
            ),
        );
    }
}

/// The first address that a load balancer gave a Service.
fn address(service: &Object) -> Option<String> {
    let status: Value = service.field("status").ok().flatten()?;
    let first = status.pointer("/loadBalancer/ingress/0")?;
    first["ip"].as_str().or(first["hostname"].as_str()).map(str::to_owned)
}

/// Addresses of the pods of one node.
#[derive(Debug, Clone)]
struct Range {
    node: String,
    text: String,
    bits: u128,
    length: u32,
    is_v6: bool,
}

impl Range {
    fn parse(node: &str, text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let length: u32 = length.parse().ok()?;
        let (bits, is_v6) = match address.parse().ok()? {
            IpAddr::V4(address) if length <= 32 => (u128::from(address.to_bits()) << 96, false),
            IpAddr::V6(address) if length <= 128 => (address.to_bits(), true),
            _ => return None,
        };
        Some(Self { node: node.to_owned(), text: text.to_owned(), bits, length, is_v6 })
    }

    /// Two ranges overlap if one contains the other.
    fn overlaps(&self, other: &Self) -> bool {
        let length = self.length.min(other.length);
        let differ = (self.bits ^ other.bits).checked_shr(128 - length).unwrap_or_default();
        self.is_v6 == other.is_v6 && differ == 0
    }
}

fn first_overlap<'a>(ours: &'a [Range], theirs: &'a [Range]) -> Option<(&'a Range, &'a Range)> {
    ours.iter().find_map(|our| Some((our, theirs.iter().find(|their| our.overlaps(their))?)))
}

/// The ranges of all real nodes. Virtual ones have none of their own.
async fn ranges<S: OnSide>(cluster: &Cluster<S>) -> Result<Vec<Range>, CallError> {
    let nodes = cluster.list(&kinds::NODE, None, None).await?;
    let real = nodes.iter().filter(|node| node.meta.labels.get(TYPE) != Some(TYPE_VIRTUAL_KUBELET));
    Ok(real.flat_map(of_node).collect())
}

fn of_node(node: &Object) -> Vec<Range> {
    let spec: Value = node.field("spec").ok().flatten().unwrap_or_default();
    let all = spec["podCIDRs"].as_array().cloned().unwrap_or_else(|| vec![spec["podCIDR"].clone()]);
    all.iter().filter_map(|text| Range::parse(&node.meta.name, text.as_str()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_if_one_contains_the_other() {
        let cases = [
            ("10.244.0.0/24", "10.244.0.0/24", true),
            ("10.244.0.0/16", "10.244.7.0/24", true),
            ("10.244.7.0/24", "10.244.0.0/16", true),
            ("0.0.0.0/0", "10.0.0.0/8", true),
            ("10.244.0.0/24", "10.244.1.0/24", false),
            ("fd00:1::/64", "fd00:1::/80", true),
            ("fd00:1::/64", "fd00:2::/64", false),
            ("::/0", "10.0.0.0/8", false),
        ];
        for (one, other, overlap) in cases {
            let (one, other) = (Range::parse("a", one).unwrap(), Range::parse("b", other).unwrap());
            assert_eq!(one.overlaps(&other), overlap, "{} and {}", one.text, other.text);
            assert_eq!(first_overlap(&[one], &[other]).is_some(), overlap);
        }
        for odd in ["", "10.0.0.0", "10.0.0.0/33", "ten/8"] {
            assert!(Range::parse("a", odd).is_none(), "{odd}");
        }
    }
}

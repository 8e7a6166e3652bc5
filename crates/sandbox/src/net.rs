//! Addresses of a sandbox, and the bridge that joins its real nodes.
//!
//! One `/16` per sandbox, routed to its own bridge. Beneath it lies an `unreachable` route, there is no
//! masquerading, and nodes have no default route: no packet of a sandbox leaves the machine.
//!
//! ```text
//! 10.x.0.0/22        the bridge: .0.1 host, .0.10+c API server of cluster c, .1.k real node k
//! 10.x.(16+k).0/24   pods of real node k
//! 10.x.(128+4c).0/22 services of cluster c
//! ```

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Error, io_error};
use crate::identity::{Identity, metrics_of, registry_tag};

/// The address plan of one sandbox: pure arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    first: u8,
    second: u8,
}

impl Plan {
    /// Where sandboxes look for a range. The upper quarter of 10/8 is the least used by others; where a
    /// VPN has all of 10/8, 172.16/12 may be free. The second octets differ, so they name the bridge.
    fn candidates() -> impl Iterator<Item = Self> {
        let ten = (192..=255).map(|second| Self { first: 10, second });
        ten.chain((16..=31).map(|second| Self { first: 172, second }))
    }

    fn at(self, third: usize, fourth: usize) -> Ipv4Addr {
        // `Spec::check` bounds clusters and nodes so that neither octet overflows.
        let octet = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        Ipv4Addr::new(self.first, self.second, octet(third), octet(fourth))
    }

    pub(crate) fn bridge(self) -> String {
        format!("ko{}", self.second)
    }

    pub(crate) fn range(self) -> String {
        format!("{}/16", self.at(0, 0))
    }

    pub(crate) fn host(self) -> Ipv4Addr {
        self.at(0, 1)
    }

    pub(crate) fn api_server(self, cluster: usize) -> Ipv4Addr {
        self.at(0, 10 + cluster)
    }

    pub(crate) fn node(self, node: usize) -> Ipv4Addr {
        self.at(1, 1 + node)
    }

    pub(crate) fn pods(self, node: usize) -> String {
        format!("{}/24", self.at(16 + node, 0))
    }

    pub(crate) fn services(self, cluster: usize) -> String {
        format!("{}/22", self.at(128 + 4 * cluster, 0))
    }

    pub(crate) fn first_service(self, cluster: usize) -> Ipv4Addr {
        self.at(128 + 4 * cluster, 1)
    }

    pub(crate) fn dns_service(self, cluster: usize) -> Ipv4Addr {
        self.at(128 + 4 * cluster, 10)
    }

    /// The host's end of a node's cable.
    pub(crate) fn cable(self, node: usize) -> String {
        format!("{}n{}", self.bridge(), node + 1)
    }
}

/// Chooses a free range and makes the bridge. Creating the interface is what takes the range: the
/// kernel lets only one succeed. It is born with a hardware address derived from `identity`, so that
/// from its first moment on it can be told whose it is.
///
/// API servers get addresses of their own on it: `api_servers` of them.
pub(crate) fn create(identity: &Identity, api_servers: usize) -> Result<Plan, Error> {
    let routes = ip(&["-4", "-o", "route", "show", "table", "all"])?;
    for plan in Plan::candidates().filter(|plan| !overlaps(&routes, *plan)) {
        let bridge = plan.bridge();
        let hardware = identity.hardware_address();
        match ip(&["link", "add", "name", &bridge, "address", &hardware, "type", "bridge"]) {
            // Another sandbox was faster.
            Err(Error::Command { message, .. }) if message.contains("File exists") => continue,
            other => other?,
        };
        let mut batch = vec![
            format!("link set {bridge} alias {identity}"),
            format!("addr add {}/22 dev {bridge}", plan.host()),
        ];
        batch.extend((0..api_servers).map(|c| format!("addr add {}/22 dev {bridge}", plan.api_server(c))));
        batch.push(format!("link set {bridge} up"));
        block(identity, &[&plan.range()])?;
        ip_batch(None, &batch)?;
        return Ok(plan);
    }
    Err(Error::NoAddressRange)
}

/// Answers for these ranges on this machine, so that no packet for them leaves it. Each sandbox has a
/// route of its own, told apart by its metric: several may block the same range.
pub(crate) fn block(identity: &Identity, ranges: &[&str]) -> Result<(), Error> {
    let metric = identity.metric();
    let routes: Vec<_> =
        ranges.iter().map(|range| format!("route add unreachable {range} metric {metric}")).collect();
    ip_batch(None, &routes)
}

/// Routes of sandboxes that are no longer there: range and metric.
pub(crate) fn orphaned_routes(root: &Path) -> Vec<(String, u32)> {
    let ours = metrics_of(&registry_tag(root));
    let routes = || -> Vec<(String, u32)> {
        let text = ip(&["-4", "-o", "route", "show", "type", "unreachable"]).unwrap_or_default();
        let parse = |line: &str| {
            let mut words = line.split_ascii_whitespace().skip_while(|word| *word == "unreachable");
            let range = words.next()?.to_owned();
            let metric: u32 = words.skip_while(|word| *word != "metric").nth(1)?.parse().ok()?;
            (metric & 0xffff_0000 == ours).then_some((range, metric))
        };
        text.lines().filter_map(parse).collect()
    };
    let before = routes();
    if before.is_empty() {
        return before;
    }
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let known: Vec<_> = entries.filter_map(|entry| Some(Identity::of(&entry.path())?.metric())).collect();
    // One that went with its sandbox while we looked is no orphan: look again.
    let after = routes();
    before.into_iter().filter(|route| !known.contains(&route.1) && after.contains(route)).collect()
}

/// Connects node number `node`, whose init process is `pid`, to the bridge, and routes its pods.
pub(crate) fn connect(plan: Plan, node: usize, pid: u32, nodes: usize) -> Result<(), Error> {
    let (bridge, cable, address) = (plan.bridge(), plan.cable(node), plan.node(node));
    // The cable of a machine that lost power may still hang there: the kernel takes its time.
    let _ = ip(&["link", "delete", &cable]);
    ip_batch(
        None,
        &[
            format!("link add {cable} master {bridge} type veth peer name eth0 netns {pid}"),
            format!("link set {cable} up"),
            format!("route replace {} via {address} dev {bridge}", plan.pods(node)),
        ],
    )?;
    let mut inside = vec![
        "link set lo up".to_owned(),
        format!("addr add {address}/22 dev eth0"),
        "link set eth0 up".to_owned(),
        // Service addresses need a route before kube-proxy's rules see a packet of the node itself.
        // What is not rewritten ends at the host's `unreachable`.
        format!("route add {} via {}", plan.range(), plan.host()),
    ];
    inside.extend((0..nodes).filter(|other| *other != node).map(|other| route_to_pods(plan, other)));
    ip_batch(Some(pid), &inside)
}

fn route_to_pods(plan: Plan, node: usize) -> String {
    format!("route replace {} via {}", plan.pods(node), plan.node(node))
}

/// One side of a cut: where its nodes are, and what the other side must not reach.
#[derive(Debug, Clone)]
pub(crate) struct Side {
    /// Index of the cluster.
    pub(crate) cluster: usize,
    /// Index and init process of each real node.
    pub(crate) nodes: Vec<(usize, u32)>,
}

/// Drops every packet from the nodes and pods of `from` to the nodes, pods and API server of `to`.
pub(crate) fn cut(plan: Plan, from: &Side, to: &Side) -> Result<(), Error> {
    let mut batch = vec![format!("route replace blackhole {}/32", plan.api_server(to.cluster))];
    for (node, _) in &to.nodes {
        batch.push(format!("route replace blackhole {}/32", plan.node(*node)));
        batch.push(format!("route replace blackhole {}", plan.pods(*node)));
    }
    from.nodes.iter().try_for_each(|(_, pid)| ip_batch(Some(*pid), &batch))
}

/// Undoes [`cut`], or what there is of it.
pub(crate) fn heal(plan: Plan, from: &Side, to: &Side) -> Result<(), Error> {
    let addresses = to.nodes.iter().map(|(node, _)| plan.node(*node));
    let holes: Vec<_> = std::iter::once(plan.api_server(to.cluster)).chain(addresses).collect();
    let pods: Vec<_> = to.nodes.iter().map(|(node, _)| route_to_pods(plan, *node)).collect();
    for (_, pid) in &from.nodes {
        for hole in &holes {
            // Not there: it was healed before, or the machine was restarted in between.
            let _ = ip_batch(Some(*pid), &[format!("route delete blackhole {hole}/32")]);
        }
        ip_batch(Some(*pid), &pods)?;
    }
    Ok(())
}

/// Removes bridges and routes whose sandbox is gone: its directory was deleted by hand, and then it was
/// killed together with its janitor. One whose owner lives will remove them itself.
pub(crate) fn remove_orphans(root: &Path) {
    let prefix = format!("{}.", registry_tag(root));
    let interfaces = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    for interface in interfaces {
        let name = interface.file_name().to_string_lossy().into_owned();
        let alias = fs::read_to_string(interface.path().join("ifalias")).unwrap_or_default();
        let ours = Plan::candidates().any(|plan| plan.bridge() == name) && alias.starts_with(&prefix);
        let Some(identity) = Identity::parse(alias.trim()).filter(|_| ours) else { continue };
        if identity.is_orphaned(root) {
            // Someone else may be faster; then there is nothing left to do.
            let _ = ip(&["link", "delete", &name]);
        }
    }
    // A sandbox without its directory ends by itself: its routes go now or a moment later.
    for (range, metric) in orphaned_routes(root) {
        let _ = ip(&["route", "delete", "unreachable", &range, "metric", &metric.to_string()]);
    }
}

/// Whether someone routes a part of the plan's range, or all of it, somewhere already.
fn overlaps(routes: &str, plan: Plan) -> bool {
    let ours = u32::from(plan.at(0, 0));
    routes.lines().filter_map(destination).any(|(network, length)| {
        let shared = length.min(16);
        shared > 0 && (u32::from(network) ^ ours) >> (32 - shared) == 0
    })
}

/// Network and prefix length of a route: `10.0.0.0/8 via …`, `local 10.1.2.3 dev …`. None for a default.
fn destination(route: &str) -> Option<(Ipv4Addr, u32)> {
    route.split_ascii_whitespace().take(2).find_map(|word| {
        let (network, length) = word.split_once('/').unwrap_or((word, "32"));
        Some((network.parse().ok()?, length.parse().ok()?))
    })
}

fn ip(args: &[&str]) -> Result<String, Error> {
    let command = format!("ip {}", args.join(" "));
    let output = Command::new("ip")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(io_error("starting ip (Debian package iproute2) for", Path::new(&command)))?;
    finish(command, &output)
}

/// Runs many `ip` commands in one process, in the network namespace of `pid` if given.
fn ip_batch(pid: Option<u32>, commands: &[String]) -> Result<(), Error> {
    use std::io::Write as _;
    let mut command = match pid {
        // Not `ip netns exec`: that remounts /sys and hides the control groups.
        Some(pid) => {
            let mut nsenter = Command::new("nsenter");
            nsenter.args(["--target", &pid.to_string(), "--net", "ip"]);
            nsenter
        }
        None => Command::new("ip"),
    };
    let what = format!("ip {}", commands.first().map_or("", String::as_str));
    let failed = |error| io_error("running", Path::new(&what))(error);
    let mut child = command
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        let mut script = commands.join("\n");
        script.push('\n');
        stdin.write_all(script.as_bytes()).map_err(failed)?;
    }
    let output = child.wait_with_output().map_err(failed)?;
    finish(what.clone(), &output).map(drop)
}

fn finish(command: String, output: &std::process::Output) -> Result<String, Error> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Command { command, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan { first: 10, second: 200 };

    #[test]
    fn the_largest_sandbox_fits_into_its_range() {
        assert_eq!(PLAN.api_server(16).to_string(), "10.200.0.26");
        assert_eq!(PLAN.node(99).to_string(), "10.200.1.100");
        assert_eq!(PLAN.pods(99), "10.200.115.0/24");
        assert_eq!(PLAN.services(16), "10.200.192.0/22");
        assert_eq!(PLAN.dns_service(1).to_string(), "10.200.132.10");
        assert!(PLAN.cable(99).len() <= 15, "the kernel's limit for interface names");
    }

    #[test]
    fn a_range_that_someone_uses_is_left_alone() {
        let taken = |routes: &str| overlaps(routes, PLAN);
        assert!(taken("10.200.3.0/24 dev vpn0 scope link"));
        assert!(taken("10.0.0.0/8 via 192.0.2.7 dev vpn0"), "a wider route is someone's too");
        assert!(taken("local 10.200.0.1 dev x table local"));
        assert!(!taken("default via 192.0.2.1 dev eth0"));
        assert!(!taken("10.20.0.0/16 dev a\n10.201.0.0/16 dev b\nunreachable 10.199.0.0/16 metric 1"));
    }

    #[test]
    fn every_range_has_a_bridge_of_its_own() {
        let mut names: Vec<_> = Plan::candidates().map(Plan::bridge).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}

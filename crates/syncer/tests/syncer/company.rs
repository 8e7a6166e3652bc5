//! What belongs to a virtual node: the volume drivers of its node, and the ports of its node that others have.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kubeocean_api::keys::names::FAKE_NAMESPACE;
use kubeocean_api::keys::{TRUE, labels};
use kubeocean_model::leasing::SYNCER;
use kubeocean_testkit::Verb;
use serde_json::{Value, json};

use crate::offers::is_ours;
use crate::scene::{BINDING, Scene, Setting, collection, is_deleting, label, text};
use crate::simulated::{calm_in, wait};

/// Address, protocol and number.
type Port = (String, String, u64);

fn has_ended(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Every host port that a pod asks for, as often as it asks.
fn ports_of(pod: &Value) -> Vec<Port> {
    let sidecar = |one: &&Value| one["restartPolicy"] == "Always";
    let sidecars = pod["spec"]["initContainers"].as_array().into_iter().flatten().filter(sidecar);
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten().chain(sidecars);
    let ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
    let read = |port: &Value| {
        let number = port["hostPort"].as_u64().filter(|number| *number > 0)?;
        let (address, protocol) = (text(port, "/hostIP"), text(port, "/protocol"));
        let address = if address == "0.0.0.0" { "" } else { address };
        Some((address.to_owned(), if protocol.is_empty() { "TCP" } else { protocol }.to_owned(), number))
    };
    ports.filter_map(read).collect()
}

fn is_placeholder_of(pod: &Value, vnode: &str) -> bool {
    text(pod, "/spec/nodeName") == vnode && label(pod, labels::HOSTPORT_FAKE_POD) == TRUE
}

impl Scene {
    /// The drivers of a `CSINode`; none where there is none.
    fn drivers(&self, on_p: bool, node: &str) -> Vec<Value> {
        let site = if on_p { &self.phys } else { &self.virt };
        let found = site.server.get("csinodes", "", node);
        found.and_then(|one| one["spec"]["drivers"].as_array().cloned()).unwrap_or_default()
    }

    /// What is wrong with what belongs to a virtual node, at rest.
    pub(crate) fn company_at_rest(&self, vnode: &str, node: &str, uid: &str) -> Result<(), String> {
        let by_name = |mut drivers: Vec<Value>| {
            drivers.sort_by_key(|driver| driver["name"].to_string());
            drivers
        };
        let (is, should) = (by_name(self.drivers(false, vnode)), by_name(self.drivers(true, node)));
        if is != should {
            return Err(format!("{vnode} has drivers {is:?} instead of {should:?}"));
        }
        let others = self.phys.server.list("pods", None).into_iter();
        let others =
            others.filter(|pod| text(pod, "/spec/nodeName") == node && !is_ours(pod, uid) && !has_ended(pod));
        let should: BTreeSet<Port> = others.flat_map(|pod| ports_of(&pod)).collect();
        let held: Vec<Arc<Value>> = self.virt.server.list("pods", Some(FAKE_NAMESPACE));
        let held: Vec<_> =
            held.iter().filter(|pod| is_placeholder_of(pod, vnode) && !is_deleting(pod)).collect();
        if held.len() != usize::from(!should.is_empty()) {
            return Err(format!("{} placeholders on {vnode} for {should:?}", held.len()));
        }
        let is: Vec<Port> = held.iter().flat_map(|pod| ports_of(pod)).collect();
        if is.len() != should.len() || is.iter().cloned().collect::<BTreeSet<_>>() != should {
            return Err(format!("{vnode} reserves {is:?} instead of {should:?}"));
        }
        Ok(())
    }

    /// Someone installs a volume driver on a node, changes it, or removes it.
    pub(crate) fn change_drivers(&self, node: &str, draw: u64) {
        let driver = |name: &str, zone: u64| json!({"name": name, "nodeID": format!("{node}-{zone}"), "topologyKeys": ["zone"]});
        let all = match draw & 7 {
            0 => return self.remove(&self.phys, "csinodes", "", node),
            1 => json!([]),
            2 | 3 => json!([driver("disk.example.com", 0)]),
            4 => json!([driver("disk.example.com", 1)]),
            _ => json!([driver("disk.example.com", 0), driver("files.example.com", draw >> 3 & 1)]),
        };
        self.has_drivers(node, &all);
    }

    /// The drivers of a node are these from now on: what is another one goes first.
    fn has_drivers(&self, node: &str, drivers: &Value) {
        let body = json!({"metadata": {"name": node}, "spec": {"drivers": drivers}});
        if self.make(&self.phys, "csinodes", "", body) == 409 {
            for drivers in [&json!([]), drivers] {
                self.patch(&self.phys, "csinodes", "", node, json!({"spec": {"drivers": drivers}}));
            }
        }
    }
}

fn leased(course: impl AsyncFnOnce(&Scene)) {
    let setting = Setting { nodes: &["n1", "n2"], ..Setting::default() };
    calm_in(
        setting,
        |_| (),
        async |scene| {
            scene.policy(&scene.phys, "all", json!({}));
            wait(scene, "leased", 20, || scene.at_rest()).await;
            course(scene).await;
        },
    );
}

#[test]
fn a_driver_that_comes_changes_or_goes_does_so_on_the_virtual_node() {
    let disk = |id: &str| json!({"name": "disk.example.com", "nodeID": id, "topologyKeys": ["zone"]});
    let files = json!({"name": "files.example.com", "nodeID": "f", "topologyKeys": null, "allocatable": {"count": 9}});
    leased(async |scene| {
        let settled = async || {
            tokio::time::sleep(Duration::from_secs(3)).await;
            scene.at_rest().unwrap();
            scene.drivers(false, "vnode-c1-n1")
        };
        scene.has_drivers("n1", &json!([disk("a")]));
        assert_eq!(settled().await, [disk("a")]);
        // A driver that is registered anew under another number.
        scene.has_drivers("n1", &json!([disk("b"), files]));
        let both = settled().await;
        assert_eq!(both.len(), 2);
        assert_eq!((&both[0]["nodeID"], &both[1]["allocatable"]["count"]), (&json!("b"), &json!(9)));
        scene.has_drivers("n1", &json!([files]));
        assert_eq!(settled().await.len(), 1);
        scene.has_drivers("n1", &json!([]));
        assert_eq!(settled().await, [] as [Value; 0]);
        scene.has_drivers("n1", &json!([disk("c")]));
        scene.remove(&scene.virt, "csinodes", "", "vnode-c1-n1");
        assert_eq!(settled().await, [disk("c")], "taken away by mistake");
        scene.remove(&scene.phys, "csinodes", "", "n1");
        assert_eq!(settled().await, [] as [Value; 0]);
        assert!(scene.drivers(false, "vnode-c1-n2").is_empty());
        scene.has_drivers("n1", &json!([disk("d")]));
        settled().await;
        scene.remove(&scene.virt, "clusterbindings", "", BINDING);
        wait(scene, "unbound", 60, || scene.at_rest()).await;
        assert!(scene.server().list("csinodes", None).is_empty());
    });
}

fn listens(scene: &Scene, name: &str, ports: &[Value]) {
    let containers: Vec<Value> = ports
        .iter()
        .enumerate()
        .map(|(index, port)| json!({"name": format!("c{index}"), "image": "i", "ports": [port]}))
        .collect();
    let spec = json!({"nodeName": "n1", "containers": containers, "automountServiceAccountToken": false});
    let pod = json!({"metadata": {"name": name}, "spec": spec});
    assert_eq!(scene.make(&scene.phys, "pods", "theirs", pod), 201);
}

fn port(number: u16, address: &str) -> Value {
    json!({"containerPort": number, "hostPort": number, "hostIP": address, "protocol": "TCP"})
}

#[test]
fn ports_of_others_are_reserved_once_and_all_the_time() {
    leased(async |scene| {
        let settled = async || {
            // An offer that rises by little, one pod less, may wait for a minute.
            tokio::time::sleep(Duration::from_secs(70)).await;
            scene.at_rest().unwrap();
            let held = scene.server().list("pods", Some(FAKE_NAMESPACE));
            held.iter()
                .flat_map(|pod| ports_of(pod))
                .map(|(address, _, number)| format!("{address}:{number}"))
                .collect::<Vec<_>>()
        };
        let from = scene.server().revision();
        listens(scene, "a", &[port(8080, "")]);
        assert_eq!(settled().await, [":8080"]);
        // Another one has the same, beside one of its own, and everywhere is everywhere.
        listens(scene, "b", &[port(8080, "0.0.0.0"), port(9090, "10.0.0.1")]);
        assert_eq!(settled().await, [":8080", "10.0.0.1:9090"]);
        scene.remove(&scene.phys, "pods", "theirs", "a");
        assert_eq!(settled().await, [":8080", "10.0.0.1:9090"], "one of them still has it");
        listens(scene, "c", &[port(7070, "")]);
        assert_eq!(settled().await, [":7070", ":8080", "10.0.0.1:9090"]);
        let ended = json!({"status": {"phase": "Succeeded"}});
        let place = format!("{}/c/status", collection("pods", "theirs"));
        scene.phys.server.call("kubelet", "PATCH", &place, crate::scene::MERGE, Some(ended));
        assert_eq!(settled().await, [":8080", "10.0.0.1:9090"], "what has ended listens nowhere");
        is_held_from(scene, from, 8080);
        scene.remove(&scene.phys, "pods", "theirs", "b");
        assert_eq!(settled().await, [] as [String; 0]);
    });
}

/// From when it is first reserved, a port is reserved at every moment: ports of a pod cannot be changed, so another one takes its place.
fn is_held_from(scene: &Scene, from: u64, number: u64) {
    let history = scene.server().history(from);
    let mut was_held = false;
    let mut goes = 0;
    for commit in history.iter().filter(|commit| commit.plural == "pods" && commit.actor == SYNCER) {
        let pods = scene.server().list_at(commit.revision, "pods", Some(FAKE_NAMESPACE));
        let has_it = |pod: &Arc<Value>| {
            is_placeholder_of(pod, "vnode-c1-n1")
                && !is_deleting(pod)
                && ports_of(pod).iter().any(|(_, _, port)| *port == number)
        };
        let is_held = pods.iter().any(has_it);
        assert!(is_held || !was_held, "nobody holds {number} after {:?} {}", commit.verb, commit.name);
        was_held |= is_held;
        goes += usize::from(commit.verb == Verb::Delete);
    }
    assert!(was_held && goes >= 3, "each set of ports is a pod of its own");
}

//! Which replica of the proxier answers for which virtual node, as replicas come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kubeocean_api::keys::{annotations, labels};
use rand::RngExt as _;
use serde_json::{Value, json};

use crate::scene::{NAMESPACE, Scene, Setting, label, text};
use crate::simulated::{calm_in, wait};

const SERVICE: &str = "kubeocean-proxier-c1-svc";
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A replica that came or went is known to all of its virtual nodes so many seconds later.
const MOVED_WITHIN: u64 = 10;

const NODES: [&str; 12] = ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10", "n11", "n12"];

fn with_published_proxiers(course: impl AsyncFnOnce(&Scene)) {
    let setting = Setting { nodes: &NODES, has_published_proxiers: true, ..Setting::default() };
    calm_in(setting, |scene| scene.policy(&scene.phys, "all", json!({})), course);
}

/// These replicas are there, and these of them are not ready.
fn replicas(scene: &Scene, there: &[&str], unready: &[&str]) {
    let endpoint =
        |address: &&str| json!({"addresses": [address], "conditions": {"ready": !unready.contains(address)}});
    let endpoints: Vec<Value> = there.iter().map(endpoint).collect();
    let body = json!({
        "metadata": {"name": "proxier-1", "labels": {SERVICE_NAME: SERVICE}}, "addressType": "IPv4",
        "ports": [{"name": "https", "port": 10250, "protocol": "TCP"}], "endpoints": endpoints,
    });
    if scene.make(&scene.virt, "endpointslices", NAMESPACE, body.clone()) == 409 {
        scene.patch(
            &scene.virt,
            "endpointslices",
            NAMESPACE,
            "proxier-1",
            json!({"endpoints": body["endpoints"]}),
        );
    }
}

/// The address of each virtual node; none: nobody answers for it.
fn addresses(scene: &Scene) -> BTreeMap<String, String> {
    let all = scene.server().list("nodes", None);
    let of = |node: &Value| text(node, "/status/addresses/0/address").to_owned();
    all.iter().map(|node| (text(node, "/metadata/name").to_owned(), of(node))).collect()
}

fn served_by(scene: &Scene, wanted: &BTreeSet<&str>) -> Result<(), String> {
    let addresses = addresses(scene);
    let fine = addresses.len() == NODES.len()
        && addresses
            .values()
            .all(|address| wanted.contains(address.as_str()) || (wanted.is_empty() && address.is_empty()));
    if fine { Ok(()) } else { Err(format!("{addresses:?}")) }
}

async fn are_served_by(scene: &Scene, wanted: &[&str]) -> BTreeMap<String, String> {
    let wanted = wanted.iter().copied().collect();
    wait(scene, "moved", MOVED_WITHIN, || served_by(scene, &wanted)).await;
    addresses(scene)
}

/// Who was answered for by one that stays is answered for by the same one.
fn others_stay(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>, gone: &[&str]) {
    for (node, address) in before.iter().filter(|(_, address)| !gone.contains(&address.as_str())) {
        assert_eq!(now[node], *address, "{node} was answered for by one that is still there");
    }
}

#[test]
fn a_replica_that_goes_moves_its_own_nodes_and_one_that_comes_back_gets_them_back() {
    with_published_proxiers(async |scene| {
        wait(scene, "leased", 20, || served_by(scene, &BTreeSet::new())).await;
        let all = ["10.2.0.1", "10.2.0.2", "10.2.0.3"];
        replicas(scene, &all, &[]);
        let first = are_served_by(scene, &all).await;
        let used: BTreeSet<&str> = first.values().map(String::as_str).collect();
        assert_eq!(used.len(), 3, "twelve nodes are spread over all of them: {first:?}");
        // One is not ready; another is gone; and then the last.
        replicas(scene, &all, &["10.2.0.2"]);
        let second = are_served_by(scene, &["10.2.0.1", "10.2.0.3"]).await;
        others_stay(&first, &second, &["10.2.0.2"]);
        replicas(scene, &["10.2.0.3"], &[]);
        let third = are_served_by(scene, &["10.2.0.3"]).await;
        others_stay(&second, &third, &["10.2.0.1"]);
        // Where nobody is ready, nobody else can be named.
        replicas(scene, &[], &[]);
        tokio::time::sleep(Duration::from_secs(MOVED_WITHIN)).await;
        assert_eq!(addresses(scene), third);
        replicas(scene, &all, &[]);
        tokio::time::sleep(Duration::from_secs(MOVED_WITHIN)).await;
        assert_eq!(addresses(scene), first, "who answers is not by chance");
    });
}

#[test]
fn replicas_that_come_and_go_move_no_node_that_is_not_theirs() {
    with_published_proxiers(async |scene| {
        let mut random = scene.world.random("replicas");
        let pool = ["10.2.0.1", "10.2.0.2", "10.2.0.3", "10.2.0.4", "10.2.0.5"];
        let mut ready: Vec<&str> = pool.to_vec();
        replicas(scene, &ready, &[]);
        wait(scene, "leased", 20, || served_by(scene, &ready.iter().copied().collect())).await;
        let mut before = addresses(scene);
        for _ in 0..30 {
            let next: Vec<&str> = pool.into_iter().filter(|_| random.random_bool(0.6)).collect();
            if next.is_empty() {
                continue;
            }
            let gone: Vec<&str> = ready.iter().copied().filter(|one| !next.contains(one)).collect();
            let new: Vec<&str> = next.iter().copied().filter(|one| !ready.contains(one)).collect();
            replicas(scene, &next, &[]);
            tokio::time::sleep(Duration::from_secs(MOVED_WITHIN)).await;
            let now = addresses(scene);
            served_by(scene, &next.iter().copied().collect()).unwrap();
            for (node, address) in before.iter().filter(|(_, address)| !gone.contains(&address.as_str())) {
                let taken = new.contains(&now[node].as_str());
                assert!(taken || now[node] == *address, "{node}: {address} and then {}", now[node]);
            }
            (ready, before) = (next, now);
        }
    });
}

#[test]
fn a_port_that_a_replica_cannot_bind_is_given_up_and_the_others_are_kept() {
    with_published_proxiers(async |scene| {
        let body = json!({
            "metadata": {"name": SERVICE}, "spec": {"selector": {"app": "proxier"}, "ports": [{"name": "https", "port": 10250}]},
        });
        assert_eq!(scene.make(&scene.virt, "services", NAMESPACE, body), 201);
        replicas(scene, &["10.2.0.1"], &[]);
        wait(scene, "leased", 20, || served_by(scene, &["10.2.0.1"].into())).await;
        let ports = || -> BTreeMap<String, [String; 2]> {
            let all = scene.server().list("nodes", None);
            let of = |node: &Value| {
                let port = &node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"];
                [label(node, labels::PROXIER_PORT).to_owned(), port.to_string()]
            };
            all.iter().map(|node| (text(node, "/metadata/name").to_owned(), of(node))).collect()
        };
        let before = ports();
        assert!(before.values().all(|[label, status]| label == status), "{before:?}");
        let taken = before["vnode-c1-n1"][0].clone();
        let say = |ports: &str| {
            let body = json!({"metadata": {"annotations": {annotations::PORT_CONFLICT: ports}}});
            scene.patch(&scene.virt, "services", NAMESPACE, SERVICE, body);
        };
        say(&taken);
        wait(scene, "another port", MOVED_WITHIN, || match &ports()["vnode-c1-n1"] {
            [label, status] if *label != taken && label == status => Ok(()),
            port => Err(format!("{port:?}")),
        })
        .await;
        let second = ports();
        for node in before.keys().filter(|node| *node != "vnode-c1-n1") {
            assert_eq!(second[node], before[node], "{node}");
        }
        let all: BTreeSet<&String> = second.values().map(|[label, _]| label).collect();
        assert_eq!(all.len(), NODES.len(), "each has its own: {second:?}");
        // The next one is taken, too.
        say(&format!("{taken},{}", second["vnode-c1-n1"][0]));
        wait(scene, "yet another port", MOVED_WITHIN, || match &ports()["vnode-c1-n1"] {
            [label, _] if *label != taken && *label != second["vnode-c1-n1"][0] => Ok(()),
            port => Err(format!("{port:?}")),
        })
        .await;
    });
}

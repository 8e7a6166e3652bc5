//! A computing cluster that is older than its workers: what it does not know of a node it drops without a word.

use std::collections::BTreeMap;
use std::time::Duration;

use kubeocean_model::leasing::SYNCER;
use kubeocean_testkit::Verb;
use serde_json::{Value, json};

use crate::scene::{BINDING, MERGE, Scene, Setting};
use crate::simulated::{calm_in, wait};

const DROPPED: [&str; 2] = ["/status/declaredFeatures", "/status/nodeInfo/swap"];

/// How often a syncer may write what is dropped before it knows: each node once.
const AT_MOST: usize = 1;

fn says_more(scene: &Scene, node: &str) {
    let body = json!({"status": {
        "declaredFeatures": ["Something"], "nodeInfo": {"kubeletVersion": "v1.36.4", "swap": {"capacity": 1024}},
    }});
    let path = format!("/api/v1/nodes/{node}/status");
    let (code, answer) = scene.phys.server.call("kubelet", "PATCH", &path, MERGE, Some(body));
    assert_eq!(code, 200, "{answer}");
}

/// How often each virtual node was changed by the syncer.
fn changes(scene: &Scene, since: u64) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for commit in scene.server().history(since) {
        if commit.plural == "nodes" && commit.actor == SYNCER && commit.verb == Verb::Update {
            *all.entry(commit.name).or_default() += 1;
        }
    }
    all
}

#[test]
fn what_an_older_computing_cluster_drops_is_not_written_for_ever_and_keeps_no_node() {
    let setting = Setting { nodes: &["n1", "n2"], virtual_unknown: &DROPPED, ..Setting::default() };
    let prepare = |scene: &Scene| {
        for node in ["n1", "n2"] {
            says_more(scene, node);
        }
        scene.policy(&scene.phys, "all", json!({}));
        assert_eq!(scene.make(&scene.phys, "pods", "theirs", their_pod()), 201);
        scene.make(
            &scene.phys,
            "csinodes",
            "",
            json!({"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "disk.example.com", "nodeID": "n1"}]}}),
        );
    };
    calm_in(setting, prepare, async |scene| {
        wait(scene, "all that is asked of them is so", 60, || scene.at_rest()).await;
        assert_eq!(scene.vnode_of("n1")["status"]["declaredFeatures"], Value::Null, "it is an older one");
        let since = scene.server().revision();
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(changes(scene, since), BTreeMap::new(), "nothing has changed");

        // A kubelet that says still more is a change, once.
        says_more(scene, "n2");
        let body = json!({"status": {"nodeInfo": {"kubeletVersion": "v1.36.5", "swap": {"capacity": 2048}}}});
        scene.phys.server.call("kubelet", "PATCH", "/api/v1/nodes/n2/status", MERGE, Some(body));
        wait(scene, "its version is known", 10, || {
            let version = scene.vnode_of("n2")["status"]["nodeInfo"]["kubeletVersion"].clone();
            if version == "v1.36.5" { Ok(()) } else { Err(version.to_string()) }
        })
        .await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(changes(scene, since).values().all(|count| *count <= AT_MOST), "{:?}", changes(scene, since));

        // And they leave as all others do.
        scene.remove(&scene.virt, "clusterbindings", "", BINDING);
        wait(scene, "nothing is left", 60, || {
            let left = scene.server().list("nodes", None).len() + scene.server().list("csinodes", None).len();
            if left == 0 { Ok(()) } else { Err(format!("{left} are left")) }
        })
        .await;
    });
}

/// Someone else's, with a port of the node.
fn their_pod() -> Value {
    json!({
        "metadata": {"name": "theirs"},
        "spec": {"nodeName": "n1", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 8080}]}]},
    })
}

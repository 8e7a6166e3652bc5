//! A real node: what its kubelet says, and that it has gone silent.

use kubeocean_api::keys::names::WORKER_NAMESPACE;
use kubeocean_sandbox::Spec;
use serde_json::json;

use super::place::{Place, apply, text};
use super::vnodes::{all_are, policies, policy, ready, usable};
use crate::support::real_nodes;

const W1: (&str, usize) = ("w1", 1);

/// The syncer runs inside of the manager here, as `--worker-mode=inline` has it.
#[tokio::test]
async fn a_kubelet_that_stops_is_told_of_with_its_own_reason() {
    if !real_nodes() {
        return;
    }
    let place = Place::of(Spec::new().workers(1, 0, 1)).await;
    let worker = place.worker("worker-1");
    let manager = place.manager("manager", &["--worker-mode=inline"]);
    place.secret("s1", &worker.kubeconfig()).await;
    place.bind(W1.0, "s1", WORKER_NAMESPACE).await;
    apply(&place.virt, &policies(), &policy(W1.0, &json!({}))).await;
    let nodes = all_are(&place, W1, "the real node is a virtual one", usable).await;
    let (said, info) = (ready(&nodes[0]), &nodes[0]["status"]["nodeInfo"]);
    assert_eq!(said["reason"], "KubeletReady", "{said}");
    assert!(text(&info["containerRuntimeVersion"]).starts_with("containerd://"), "{info}");
    assert!(nodes[0]["status"]["allocatable"]["memory"] != "0", "{:#}", nodes[0]["status"]);

    let kubelet = worker.program("real-1.kubelet");
    kubelet.kill().await.unwrap();
    all_are(&place, W1, "its kubelet has gone silent", |node| {
        let said = ready(node);
        said["status"] == "Unknown"
            && said["reason"] == "NodeStatusUnknown"
            && said["message"] == "Kubelet stopped posting node status."
    })
    .await;
    kubelet.start().await.unwrap();
    all_are(&place, W1, "its kubelet is back", |node| {
        usable(node) && ready(node)["reason"] == "KubeletReady"
    })
    .await;
    drop(manager);
    place.stop().await;
}

//! A computing cluster, a worker cluster with a real node, and a proxier that stands between them as a process of its own.

use kubeocean_api::keys::names::{INSTALL_NAMESPACE, WORKER_NAMESPACE};
use kubeocean_api::keys::taints::{NODE_NOT_READY_KEY, VNODE_KEY};
use kubeocean_api::{GROUP, VERSION};
use kubeocean_sandbox::{BUSYBOX_IMAGE, COMPUTING, Spec};
use serde_json::{Value, json};

use super::bound::calls::{JSON, get, items, send, text, until};
use super::bound::process::Component;
use super::bound::{BINDING, Bound, NAMESPACES, NODES, WHERE_NOBODY_IS};
use super::streams::Spot;

const NAMESPACE: &str = "bench";

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

pub(super) struct Place {
    pub(super) bound: Bound,
    pub(super) proxier: Component,
    _syncer: Component,
}

/// One pod, and the two ways to it.
pub(super) struct Ways {
    pub(super) ours: Spot,
    pub(super) direct: Spot,
}

impl Place {
    pub(super) async fn new() -> Self {
        let policy = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ResourceLeasingPolicy", "metadata": {"name": "all"},
            "spec": {"cluster": BINDING},
        });
        let bound = Bound::new(Spec::new().workers(1, 0, 1), &policy).await;
        Bound::namespace(&bound.virt, NAMESPACE).await;
        bound.ready_for_pods().await;
        let server = bound.sandbox.cluster(COMPUTING).unwrap().kubeconfig();
        let server = server.lines().find_map(|line| line.trim().strip_prefix("server: ")).unwrap();
        let address = kubeocean_proxier::run::source_address(server).unwrap().to_string();
        publish(&bound, &address).await;
        let flags = ["--listen-port=0", &format!("--advertise-address={address}")];
        let proxier = bound.component("proxier", &flags);
        approve(&bound).await;
        let syncer = bound.syncer(&WHERE_NOBODY_IS);
        bound.ready(1).await;
        until(async || {
            let all = get(&bound.virt, NODES).await.unwrap();
            let node = &items(&all)[0];
            let is_new = node["spec"]["taints"].to_string().contains(NODE_NOT_READY_KEY);
            (!is_new && node["status"]["addresses"][0]["address"] == *address).then_some(())
        })
        .await;
        Self { bound, proxier, _syncer: syncer }
    }

    /// A pod on the virtual node that does this.
    pub(super) async fn pod(&self, name: &str, script: &str) -> Ways {
        let pods = format!("{NAMESPACES}/{NAMESPACE}/pods");
        let container = json!({
            "name": "c", "image": BUSYBOX_IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", script],
        });
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 0, "containers": [container],
                "tolerations": [{"key": VNODE_KEY, "operator": "Exists"}],
            },
        });
        let Bound { virt, phys, .. } = &self.bound;
        send(virt, "POST", &pods, JSON, &pod).await;
        let ours = Spot { client: virt.clone(), path: format!("{pods}/{name}") };
        until(async || {
            let pod = get(virt, &ours.path).await.ok()?;
            (pod["status"]["phase"] == "Running").then_some(())
        })
        .await;
        let twins = format!("{NAMESPACES}/{WORKER_NAMESPACE}/pods");
        let all = get(phys, &twins).await.unwrap();
        let is_its = |twin: &&Value| text(&twin["metadata"]["name"]).starts_with(&format!("{name}-"));
        let twin = text(&items(&all).iter().find(is_its).unwrap()["metadata"]["name"]);
        let direct = Spot { client: phys.clone(), path: format!("{twins}/{twin}") };
        Ways { ours, direct }
    }
}

/// As the control plane publishes a proxier that runs in a pod.
async fn publish(bound: &Bound, address: &str) {
    let service = format!("kubeocean-proxier-{BINDING}-svc");
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": service, "labels": {"kubernetes.io/service-name": service}},
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
    });
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{INSTALL_NAMESPACE}/endpointslices");
    send(&bound.virt, "POST", &slices, JSON, &slice).await;
}

/// As a manager does.
async fn approve(bound: &Bound) {
    let mut request = until(async || {
        let all = get(&bound.virt, REQUESTS).await.unwrap();
        let serving = |request: &&Value| request["spec"]["signerName"] == "kubernetes.io/kubelet-serving";
        items(&all).iter().find(serving).cloned()
    })
    .await;
    request["status"]["conditions"] =
        json!([{"type": "Approved", "status": "True", "reason": "Bench", "message": "it is ours"}]);
    let path = format!("{REQUESTS}/{}/approval", text(&request["metadata"]["name"]));
    send(&bound.virt, "PUT", &path, JSON, &request).await;
}

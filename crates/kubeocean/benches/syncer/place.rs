//! A computing cluster and one worker, and a bare client in front of each.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use kube::Client;
use kubeocean_api::keys::labels;
use kubeocean_api::keys::names::{INSTALL_NAMESPACE, NODE_LEASE_NAMESPACE, SYNCER_PREFIX, WORKER_NAMESPACE};
use kubeocean_api::keys::taints::NODE_NOT_READY_KEY;
use kubeocean_api::{GROUP, VERSION};
use kubeocean_sandbox::{COMPUTING, Sandbox, Spec};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::objects::{self, BINDING, NAMESPACE};
use super::process::Syncer;

/// As many writes at a time as a syncer has duties at a time.
pub(super) const AT_A_TIME: usize = 32;

const WORKER: &str = "worker-1";
const NODES: &str = "/api/v1/nodes";
const CSI_NODES: &str = "/apis/storage.k8s.io/v1/csinodes";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// Nothing here takes so long.
const LIMIT: Duration = Duration::from_secs(300);

pub(super) struct Place {
    sandbox: Sandbox,
    pub(super) virt: Client,
    pub(super) phys: Client,
}

/// All that V has of one virtual node, as anyone could write it: without what a server puts.
pub(super) struct Copied {
    node: Value,
    lease: Value,
    csi_node: Value,
}

impl Place {
    /// Both clusters, and a binding as a manager leaves it.
    pub(super) async fn new() -> Self {
        // Nobody renews the Leases of the worker's nodes: a thousand of them would be a hundred writes a second beside what is
        // measured.
        let patient = "--node-monitor-grace-period=24h";
        let spec = Spec::new().workers(1, 0, 0).extra_arg(WORKER, "kube-controller-manager", patient);
        let sandbox = Sandbox::start(spec).await.unwrap();
        let virt = sandbox.cluster(COMPUTING).unwrap().client().await.unwrap();
        let phys = sandbox.cluster(WORKER).unwrap().client().await.unwrap();
        let place = Self { sandbox, virt, phys };
        for client in [&place.virt, &place.phys] {
            for crd in kubeocean_api::crd::crds() {
                let mut crd = serde_json::to_value(crd).unwrap();
                crd["apiVersion"] = "apiextensions.k8s.io/v1".into();
                crd["kind"] = "CustomResourceDefinition".into();
                let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
                send(client, "POST", all, JSON, &crd).await;
            }
            until(async || get(client, &custom("resourceleasingpolicies")).await.ok()).await;
            until(async || get(client, &custom("clusterbindings")).await.ok()).await;
        }
        let namespace = |name: &str| json!({"metadata": {"name": name}});
        send(&place.virt, "POST", "/api/v1/namespaces", JSON, &namespace(INSTALL_NAMESPACE)).await;
        send(&place.phys, "POST", "/api/v1/namespaces", JSON, &namespace(NAMESPACE)).await;
        let mount = send(&place.phys, "POST", "/api/v1/namespaces", JSON, &namespace(WORKER_NAMESPACE)).await;
        let account = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default");
        until(async || get(&place.phys, &account).await.ok()).await;
        send(&place.phys, "POST", &custom("resourceleasingpolicies"), JSON, &objects::policy()).await;
        place.bind(&mount["metadata"]["uid"]).await;
        // As a syncer leaves it that ended well: the first start is to cost what the others cost.
        let free = json!({"metadata": {"name": format!("{SYNCER_PREFIX}{BINDING}")}});
        let holds = format!("/apis/coordination.k8s.io/v1/namespaces/{INSTALL_NAMESPACE}/leases");
        send(&place.virt, "POST", &holds, JSON, &free).await;
        place
    }

    async fn bind(&self, worker: &Value) {
        let kubeconfig = self.sandbox.cluster(WORKER).unwrap().kubeconfig();
        let secret = json!({"metadata": {"name": BINDING}, "stringData": {"kubeconfig": kubeconfig}});
        let secrets = format!("/api/v1/namespaces/{INSTALL_NAMESPACE}/secrets");
        send(&self.virt, "POST", &secrets, JSON, &secret).await;
        let binding = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ClusterBinding", "metadata": {"name": BINDING},
            "spec": {
                "clusterID": BINDING, "mountNamespace": WORKER_NAMESPACE,
                "secretRef": {"name": BINDING, "namespace": INSTALL_NAMESPACE},
            },
        });
        send(&self.virt, "POST", &custom("clusterbindings"), JSON, &binding).await;
        let status = json!({"status": {"phase": "Ready", "workerUID": worker}});
        let path = format!("{}/{BINDING}/status", custom("clusterbindings"));
        send(&self.virt, "PATCH", &path, MERGE, &status).await;
    }

    /// More nodes of the worker, each with its pods.
    pub(super) async fn grow(&self, numbers: std::ops::Range<usize>, pods_each: usize) {
        let make = stream::iter(numbers).for_each_concurrent(AT_A_TIME, async |number| {
            let name = objects::node_name(number);
            send(&self.phys, "POST", NODES, JSON, &objects::node(number)).await;
            send(&self.phys, "POST", CSI_NODES, JSON, &objects::csi_node(number)).await;
            for pod in 0..pods_each {
                let pod = number * pods_each + pod;
                let called = format!("application-7c5ddbdf54-{pod:05}");
                start_pod(&self.phys, &called, &name, pod).await;
                let path = format!("{}/{called}/status", pods());
                send(&self.phys, "PATCH", &path, MERGE, &objects::running(pod)).await;
            }
        });
        make.await;
        // The worker's own controller has to believe in them, or their virtual nodes change under our eyes.
        until(async || {
            let all = get(&self.phys, NODES).await.unwrap();
            let is_new = |node: &Value| node["spec"]["taints"].to_string().contains(NODE_NOT_READY_KEY);
            (!items(&all).iter().any(is_new)).then_some(())
        })
        .await;
    }

    /// How long a bare client takes to read what a syncer reads of the worker.
    pub(super) async fn list_worker(&self) -> Duration {
        let started = Instant::now();
        for path in [NODES, CSI_NODES, "/api/v1/pods"] {
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            assert!(!self.phys.request_text(request).await.unwrap().is_empty());
        }
        started.elapsed()
    }

    pub(super) fn syncer(&self) -> Syncer {
        let kubeconfig = self.sandbox.cluster(COMPUTING).unwrap().kubeconfig_path();
        Syncer::start(self.sandbox.directory(), kubeconfig)
    }

    /// Waits until so many virtual nodes are Ready. Counting them costs the server little, reading all of them much.
    pub(super) async fn ready(&self, nodes: usize) {
        self.counted(NODES, nodes).await;
        until(async || {
            let is_ready = |node: &Value| {
                let all = node["status"]["conditions"].as_array().into_iter().flatten();
                all.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
            };
            items(&get(&self.virt, NODES).await.unwrap()).iter().all(is_ready).then_some(())
        })
        .await;
    }

    /// Waits until each of so many nodes has all that belongs to it.
    pub(super) async fn whole(&self, nodes: usize) {
        self.counted(CSI_NODES, nodes).await;
        self.counted(&leases(), nodes).await;
    }

    async fn counted(&self, collection: &str, count: usize) {
        until(async || {
            let page = get(&self.virt, &format!("{collection}?limit=1")).await.unwrap();
            let more = page["metadata"]["remainingItemCount"].as_u64().unwrap_or_default();
            (items(&page).len() + usize::try_from(more).unwrap() == count).then_some(())
        })
        .await;
    }

    /// What the syncer has written, to be written again.
    pub(super) async fn copied(&self) -> Vec<Copied> {
        let by_name = async |path: &str| -> std::collections::BTreeMap<String, Value> {
            let all = get(&self.virt, path).await.unwrap();
            items(&all).iter().map(|one| (text(&one["metadata"]["name"]), plain(one))).collect()
        };
        let mut nodes = by_name(NODES).await;
        let (mut leases, mut csi_nodes) = (by_name(&leases()).await, by_name(CSI_NODES).await);
        let names: Vec<String> = nodes.keys().cloned().collect();
        let mut take = |name: &String| {
            let (node, lease) = (nodes.remove(name).unwrap(), leases.remove(name).unwrap());
            Copied { node, lease, csi_node: csi_nodes.remove(name).unwrap() }
        };
        names.iter().map(&mut take).collect()
    }

    /// Writes the same under other names.
    pub(super) async fn write(&self, copied: &[Copied]) -> Duration {
        let started = Instant::now();
        let leases = leases();
        let write = stream::iter(copied.iter().enumerate()).for_each_concurrent(
            AT_A_TIME,
            async |(number, copied): (usize, &Copied)| {
                let mut node = copied.node.clone();
                node["metadata"]["name"] = format!("bare-{number}").into();
                let written = send(&self.virt, "POST", NODES, JSON, &node).await;
                let metadata = &written["metadata"];
                let owner = json!([{
                    "apiVersion": "v1", "kind": "Node", "name": metadata["name"], "uid": metadata["uid"],
                }]);
                for (path, of) in [(leases.as_str(), &copied.lease), (CSI_NODES, &copied.csi_node)] {
                    let mut of = of.clone();
                    of["metadata"]["name"] = metadata["name"].clone();
                    of["metadata"]["ownerReferences"] = owner.clone();
                    send(&self.virt, "POST", path, JSON, &of).await;
                }
            },
        );
        write.await;
        started.elapsed()
    }

    /// Nothing of any node is left in V, as before the first start.
    pub(super) async fn clear(&self) {
        let all = get(&self.virt, NODES).await.unwrap();
        let remove = stream::iter(items(&all)).for_each_concurrent(AT_A_TIME, async |node: &Value| {
            let path = format!("{NODES}/{}", text(&node["metadata"]["name"]));
            if node["metadata"]["labels"][labels::CLUSTER_BINDING] == BINDING {
                send(&self.virt, "PATCH", &path, MERGE, &json!({"metadata": {"finalizers": null}})).await;
            }
            send(&self.virt, "DELETE", &path, JSON, &Value::Null).await;
        });
        remove.await;
        for collection in [CSI_NODES, &leases()] {
            send(&self.virt, "DELETE", collection, JSON, &Value::Null).await;
            self.counted(collection, 0).await;
        }
        self.counted(NODES, 0).await;
    }

    pub(super) async fn stop(self) {
        self.sandbox.stop().await.unwrap();
    }
}

pub(super) async fn start_pod(phys: &Client, name: &str, node: &str, number: usize) {
    send(phys, "POST", &pods(), JSON, &objects::pod(name, node, number)).await;
}

/// At once: there is no kubelet that could say that it has ended.
pub(super) async fn end_pod(phys: &Client, name: &str) {
    let path = format!("{}/{name}", pods());
    send(phys, "DELETE", &path, JSON, &json!({"gracePeriodSeconds": 0})).await;
}

fn custom(plural: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/{plural}")
}

fn leases() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{NODE_LEASE_NAMESPACE}/leases")
}

fn pods() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Without what a server puts, and without what would keep it from going.
fn plain(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "finalizers"]
    {
        metadata.remove(field);
    }
    object
}

async fn send(client: &Client, method: &str, path: &str, content: &str, body: &Value) -> Value {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path).header("content-type", content);
    let answer = client.request(request.body(body).unwrap()).await;
    answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

async fn get(client: &Client, path: &str) -> Result<Value, kube::Error> {
    client.request(http::Request::get(path).body(Vec::new()).unwrap()).await
}

async fn until<T>(mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "it did not come true");
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

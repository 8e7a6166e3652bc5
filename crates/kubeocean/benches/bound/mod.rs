//! A computing cluster and one worker that is bound to it, as a manager leaves them, and components as processes of their own: what
//! every measurement of one needs.
//!
//! Deliberately absent: nodes and pods. Each benchmark brings its own.

pub(crate) mod calls;
pub(crate) mod process;

use kube::Client;
use kubeocean_api::keys::names::{
    DEFAULT_PREEMPTION_POLICY, DEFAULT_PRIORITY, DEFAULT_PRIORITY_CLASS, INSTALL_NAMESPACE, SYNCER_PREFIX,
    WORKER_NAMESPACE, WORKLOAD_SERVICE_ACCOUNT,
};
use kubeocean_api::{GROUP, VERSION};
use kubeocean_sandbox::{COMPUTING, Sandbox, Spec};
use serde_json::{Value, json};

use calls::{JSON, MERGE, count, get, items, send, until};
use process::Component;

/// The binding, its `clusterID` and its Secret.
pub(crate) const BINDING: &str = "w1";

pub(crate) const WORKER: &str = "worker-1";

pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const NAMESPACES: &str = "/api/v1/namespaces";

/// As many writes at a time as a syncer has duties at a time.
pub(crate) const AT_A_TIME: usize = 32;

/// A controller manager with this believes in nodes whose Leases nobody renews.
pub(crate) const PATIENT: &str = "--node-monitor-grace-period=24h";

/// Pods that call nobody need not know where V is; a syncer that knows no address says so in an Event.
pub(crate) const WHERE_NOBODY_IS: [&str; 2] =
    ["--computing-apiserver=192.0.2.1:6443", "--computing-dns=192.0.2.53"];

pub(crate) struct Bound {
    pub(crate) sandbox: Sandbox,
    pub(crate) virt: Client,
    pub(crate) phys: Client,
}

impl Bound {
    /// Both clusters, with our definitions, this policy of the lender's, and a binding.
    pub(crate) async fn new(spec: Spec, policy: &Value) -> Self {
        let sandbox = Sandbox::start(spec).await.unwrap();
        let virt = sandbox.cluster(COMPUTING).unwrap().client().await.unwrap();
        let phys = sandbox.cluster(WORKER).unwrap().client().await.unwrap();
        let bound = Self { sandbox, virt, phys };
        for client in [&bound.virt, &bound.phys] {
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
        send(&bound.virt, "POST", NAMESPACES, JSON, &named(INSTALL_NAMESPACE)).await;
        let mount = send(&bound.phys, "POST", NAMESPACES, JSON, &named(WORKER_NAMESPACE)).await;
        send(&bound.phys, "POST", &custom("resourceleasingpolicies"), JSON, policy).await;
        bound.bind(&mount["metadata"]["uid"]).await;
        // As a syncer leaves it that ended well: the first start is to cost what the others cost.
        let holds = format!("/apis/coordination.k8s.io/v1/namespaces/{INSTALL_NAMESPACE}/leases");
        send(&bound.virt, "POST", &holds, JSON, &named(&format!("{SYNCER_PREFIX}{BINDING}"))).await;
        bound
    }

    async fn bind(&self, worker: &Value) {
        let kubeconfig = self.sandbox.cluster(WORKER).unwrap().kubeconfig();
        let secret = json!({"metadata": {"name": BINDING}, "stringData": {"kubeconfig": kubeconfig}});
        let secrets = format!("{NAMESPACES}/{INSTALL_NAMESPACE}/secrets");
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

    /// A namespace in which pods may be made.
    pub(crate) async fn namespace(client: &Client, name: &str) {
        send(client, "POST", NAMESPACES, JSON, &named(name)).await;
        let account = format!("{NAMESPACES}/{name}/serviceaccounts/default");
        until(async || get(client, &account).await.ok()).await;
    }

    /// What a lender has applied, as far as pods need it.
    pub(crate) async fn ready_for_pods(&self) {
        let account =
            json!({"metadata": {"name": WORKLOAD_SERVICE_ACCOUNT}, "automountServiceAccountToken": false});
        let accounts = format!("{NAMESPACES}/{WORKER_NAMESPACE}/serviceaccounts");
        send(&self.phys, "POST", &accounts, JSON, &account).await;
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": DEFAULT_PRIORITY_CLASS},
            "value": DEFAULT_PRIORITY, "preemptionPolicy": DEFAULT_PREEMPTION_POLICY,
        });
        send(&self.phys, "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", JSON, &class).await;
    }

    /// A syncer, with more flags than it needs.
    pub(crate) fn syncer(&self, flags: &[&str]) -> Component {
        self.component("syncer", &[&["--leader-elect"], flags].concat())
    }

    pub(crate) fn component(&self, name: &str, flags: &[&str]) -> Component {
        let kubeconfig = self.sandbox.cluster(COMPUTING).unwrap().kubeconfig_path();
        Component::start(name, self.sandbox.directory(), kubeconfig, flags)
    }

    /// Waits until so many virtual nodes are Ready.
    pub(crate) async fn ready(&self, nodes: usize) {
        until(async || (count(&self.virt, NODES).await == nodes).then_some(())).await;
        until(async || {
            let is_ready = |node: &Value| {
                let all = node["status"]["conditions"].as_array().into_iter().flatten();
                all.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
            };
            items(&get(&self.virt, NODES).await.unwrap()).iter().all(is_ready).then_some(())
        })
        .await;
    }

    pub(crate) async fn stop(self) {
        self.sandbox.stop().await.unwrap();
    }
}

pub(crate) fn custom(plural: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/{plural}")
}

/// An object of which nothing but its name is to say.
fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

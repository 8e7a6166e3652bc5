//! The step in which an application runs on borrowed nodes: applied in one cluster, run in two others.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use kubeocean_api::keys::labels::{
    HOSTNAME, MANAGED_BY, MANAGED_BY_VALUE, PHYSICAL_CLUSTER_ID, TYPE, TYPE_VIRTUAL_KUBELET,
};
use kubeocean_api::keys::names::WORKER_NAMESPACE;
use kubeocean_api::keys::taints::VNODE_KEY;
use kubeocean_sandbox::{BUSYBOX_IMAGE, Sandbox};
use serde_json::{Value, json};

use super::{kubectl, say, show};

/// One on each virtual node: both worker clusters have three.
const REPLICAS: usize = 6;

/// metrics-server looks every ten seconds, and needs two looks. A busy machine has other things to do.
const FIGURES_WITHIN: Duration = Duration::from_secs(240);
const LOOK_AGAIN: Duration = Duration::from_secs(1);

const WORKERS: [&str; 2] = ["worker-1", "worker-2"];

/// What the application says, and serves.
const GREETING: &str = "Hello from the ConfigMap of the computing cluster";

pub(super) async fn run(sandbox: &Sandbox, real: bool) -> anyhow::Result<()> {
    let computing = sandbox.cluster("computing")?;
    say(
        "$ kubectl --context computing apply -f application.yaml    # a ConfigMap, and a Deployment that uses it",
    )?;
    let manifest = application().to_string();
    say(kubectl(computing, &["apply", "-f", "-"], Some(&manifest)).await?.trim_end())?;
    show(computing, &["rollout", "status", "deployment/web", "--timeout=120s"]).await?;
    show(computing, &["get", "pods", "-l", "app=web", "-o", "wide"]).await?;
    say("\nThat is the computing cluster's word. They run here:")?;
    for name in WORKERS {
        show(sandbox.cluster(name)?, &["-n", WORKER_NAMESPACE, "get", "pods,configmaps", "-o", "wide"])
            .await?;
    }
    if real {
        heard(sandbox).await?;
    }
    say("\nWhat changes in the computing cluster changes there:")?;
    show(computing, &["scale", "deployment/web", "--replicas=2"]).await?;
    show(computing, &["rollout", "status", "deployment/web", "--timeout=60s"]).await?;
    show(computing, &["delete", "deployment/web", "configmap/greeting", "--timeout=60s"]).await?;
    let ours = format!("{MANAGED_BY}={MANAGED_BY_VALUE}");
    for name in WORKERS {
        let worker = sandbox.cluster(name)?;
        let within = ["-n", WORKER_NAMESPACE];
        let gone = ["wait", "--for=delete", "pods,configmaps", "-l", &ours, "--timeout=60s"];
        kubectl(worker, &[&within[..], &gone].concat(), None).await?;
        show(worker, &[&within[..], &["get", "pods,configmaps"]].concat()).await?;
    }
    say("\nWhat is left there is the worker cluster's own.")
}

/// The pod on the real node of the first worker cluster, as people use pods: they do not notice where it runs.
async fn heard(sandbox: &Sandbox) -> anyhow::Result<()> {
    let computing = sandbox.cluster("computing")?;
    let on_real = ["get", "pods", "--field-selector", "spec.nodeName=vnode-worker-1-real-1", "-o", "json"];
    let found: Value =
        serde_json::from_str(&kubectl(computing, &on_real, None).await?).context("reading pods")?;
    let pod = found["items"][0]["metadata"]["name"].as_str();
    let pod = pod.context("no pod of the application is on the real node")?;
    say("\nThe one on the real node of worker-1, by way of its virtual node:")?;
    show(computing, &["logs", pod]).await?;
    show(computing, &["exec", pod, "--", "sh", "-c", "hostname; wget -q -O- http://localhost:8080/"]).await?;
    // Figures are there after metrics-server has looked twice.
    let deadline = Instant::now() + FIGURES_WITHIN;
    while let Err(error) = kubectl(computing, &["top", "pod", pod], None).await {
        if Instant::now() > deadline {
            return Err(error);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    show(computing, &["top", "pod", pod]).await?;
    show(computing, &["top", "node", "vnode-worker-1-real-1"]).await
}

/// Spread over worker clusters first, and over their nodes.
fn application() -> Value {
    let labels = json!({"app": "web"});
    let spread = |key: &str| {
        json!({
            "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": labels},
        })
    };
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let script =
        "echo \"$GREETING: pod $(hostname) on $NODE\" | tee /tmp/index.html; exec httpd -f -p 8080 -h /tmp";
    let container = json!({
        "name": "web", "image": BUSYBOX_IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", script],
        "env": [
            {"name": "NODE", "valueFrom": field("spec.nodeName")},
            {"name": "GREETING", "valueFrom": {"configMapKeyRef": {"name": "greeting", "key": "words"}}},
        ],
    });
    let pod = json!({
        "nodeSelector": {TYPE: TYPE_VIRTUAL_KUBELET},
        "tolerations": [{"key": VNODE_KEY, "operator": "Exists"}],
        "topologySpreadConstraints": [spread(PHYSICAL_CLUSTER_ID), spread(HOSTNAME)],
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    });
    let greeting = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "greeting"}, "data": {"words": GREETING},
    });
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": REPLICAS, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [greeting, web]})
}

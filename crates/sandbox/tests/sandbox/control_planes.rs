//! What a cluster is made of, seen by its clients.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, ListParams, PostParams};
use kubeocean_sandbox::{NodeSize, Sandbox, Spec};
use serde_json::json;

use crate::support::{eventually, kubectl, kubectl_with};

/// One sandbox for all tests here: none of them disturbs the others.
async fn sandbox() -> Arc<Sandbox> {
    let size = NodeSize { cpu: "4".into(), memory: "16Gi".into(), pods: "20".into() };
    Sandbox::shared("control planes", || Spec::new().workers(2, 3, 0).sim_node_size(size).audit(true))
        .await
        .unwrap()
}

#[tokio::test]
async fn every_cluster_is_another_cluster() {
    let sandbox = sandbox().await;
    let names: Vec<_> = sandbox.clusters().iter().map(kubeocean_sandbox::Cluster::name).collect();
    assert_eq!(names, ["computing", "worker-1", "worker-2"]);
    let mut identities = Vec::new();
    for cluster in sandbox.clusters() {
        let namespaces =
            kubectl(cluster, &["get", "ns", "kube-system", "-o", "jsonpath={.metadata.uid}"]).await.unwrap();
        identities.push(namespaces);
    }
    identities.sort();
    identities.dedup();
    assert_eq!(identities.len(), 3);
}

#[tokio::test]
async fn strangers_are_refused_and_rbac_is_on() {
    let sandbox = sandbox().await;
    let cluster = sandbox.cluster("worker-1").unwrap();
    let refusal = kubectl(cluster, &["get", "secrets", "-A", "--as", "somebody"]).await.unwrap_err();
    assert!(refusal.contains("User \"somebody\" cannot list resource \"secrets\""), "{refusal}");
    // The other cluster's admin is nobody here, even with the right address and authority.
    let (here, other) = (cluster.kubeconfig(), sandbox.cluster("worker-2").unwrap().kubeconfig());
    let line = |text: &str, key: &str| text.lines().find(|line| line.contains(key)).unwrap().to_owned();
    let mut crossed = here.clone();
    for key in ["client-certificate-data", "client-key-data"] {
        crossed = crossed.replace(&line(&here, key), &line(&other, key));
    }
    assert_ne!(crossed, here);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), crossed).unwrap();
    let path = file.path().to_str().unwrap();
    let refusal = kubectl(cluster, &["--kubeconfig", path, "get", "ns"]).await.unwrap_err();
    assert!(refusal.contains("Unauthorized"), "{refusal}");
}

#[tokio::test]
async fn simulated_nodes_have_the_size_that_was_asked_for() {
    let sandbox = sandbox().await;
    let client = sandbox.cluster("worker-1").unwrap().client().await.unwrap();
    let nodes = Api::<Node>::all(client).list(&ListParams::default()).await.unwrap();
    assert_eq!(nodes.items.len(), 3);
    for node in nodes {
        let allocatable = node.status.unwrap().allocatable.unwrap();
        assert_eq!((allocatable["cpu"].0.as_str(), allocatable["memory"].0.as_str()), ("4", "16Gi"));
        assert_eq!(allocatable["pods"].0, "20");
    }
}

#[tokio::test]
async fn a_deployment_is_scheduled_and_runs_and_what_does_not_fit_waits() {
    let sandbox = sandbox().await;
    let client = sandbox.cluster("worker-1").unwrap().client().await.unwrap();
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": { "name": "fits" },
        "spec": {
            "replicas": 4,
            "selector": { "matchLabels": { "app": "fits" } },
            "template": {
                "metadata": { "labels": { "app": "fits" } },
                "spec": { "containers": [{ "name": "c", "image": "x", "resources": { "requests": { "cpu": "3" } } }] },
            },
        },
    }))
    .unwrap();
    let deployments = Api::<Deployment>::namespaced(client.clone(), "default");
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    // Three nodes of 4 CPUs take one pod of 3 CPUs each; the fourth has no room.
    let pods = Api::<Pod>::namespaced(client, "default");
    eventually("three running pods and one pending", async || {
        let pods = pods.list(&ListParams::default().labels("app=fits")).await.unwrap();
        let mut phases: Vec<_> =
            pods.iter().map(|p| p.status.clone().unwrap().phase.unwrap_or_default()).collect();
        phases.sort();
        let unschedulable = pods.iter().any(|pod| {
            let conditions = pod.status.clone().unwrap().conditions.unwrap_or_default();
            conditions
                .iter()
                .any(|c| c.type_ == "PodScheduled" && c.reason.as_deref() == Some("Unschedulable"))
        });
        if phases == ["Pending", "Running", "Running", "Running"] && unschedulable {
            Ok(())
        } else {
            Err(phases)
        }
    })
    .await;
}

#[tokio::test]
async fn a_job_on_simulated_nodes_completes() {
    let sandbox = sandbox().await;
    let client = sandbox.cluster("worker-2").unwrap().client().await.unwrap();
    let job: Job = serde_json::from_value(json!({
        "metadata": { "name": "once" },
        "spec": { "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "x" }] } } },
    }))
    .unwrap();
    let jobs = Api::<Job>::namespaced(client, "default");
    jobs.create(&PostParams::default(), &job).await.unwrap();
    eventually("the job", async || match jobs.get("once").await.unwrap().status.unwrap().succeeded {
        Some(1) => Ok(()),
        other => Err(other),
    })
    .await;
}

#[tokio::test]
async fn asking_a_simulated_pod_for_its_log_stays_on_this_machine() {
    let sandbox = sandbox().await;
    let cluster = sandbox.cluster("worker-2").unwrap();
    kubectl(cluster, &["run", "mute", "--image=x"]).await.unwrap();
    kubectl(cluster, &["wait", "--for=condition=Ready", "--timeout=120s", "pod/mute"]).await.unwrap();
    let refusal = kubectl(cluster, &["logs", "mute"]).await.unwrap_err();
    let here = ["no route to host", "connection refused", "network is unreachable"];
    assert!(here.iter().any(|answer| refusal.contains(answer)), "{refusal}");
    let address = kubectl(cluster, &["get", "pod", "mute", "-o", "jsonpath={.status.podIP}"]).await.unwrap();
    let route = std::process::Command::new("ip").args(["route", "get", &address]).output().unwrap();
    let route = String::from_utf8_lossy(&[route.stdout, route.stderr].concat()).into_owned();
    // Without root there is no route of ours for it; then only its node, which is dialled, is kept here.
    let root = rustix::process::geteuid().is_root();
    assert!(!root || route.contains("No route to host"), "{address}: {route}");
}

#[tokio::test]
async fn components_find_the_authorities_that_vouch_for_callers() {
    let sandbox = sandbox().await;
    let client = sandbox.cluster("computing").unwrap().client().await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(client, "kube-system");
    let data = maps.get("extension-apiserver-authentication").await.unwrap().data.unwrap();
    for key in ["client-ca-file", "requestheader-client-ca-file", "requestheader-allowed-names"] {
        assert!(data.get(key).is_some_and(|value| !value.is_empty()), "{key} is missing");
    }
}

#[tokio::test]
async fn an_approved_signing_request_gets_its_certificate() {
    let sandbox = sandbox().await;
    let cluster = sandbox.cluster("computing").unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "someone");
    let request = params.serialize_request(&key).unwrap().pem().unwrap();
    let request = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(request)
    };
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": { "name": "someone" },
        "spec": { "request": request, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"] },
    });
    kubectl_with(cluster, &["apply", "-f", "-"], &object.to_string()).await.unwrap();
    kubectl(cluster, &["certificate", "approve", "someone"]).await.unwrap();
    eventually("the certificate", async || {
        let issued = kubectl(cluster, &["get", "csr", "someone", "-o", "jsonpath={.status.certificate}"])
            .await
            .unwrap();
        if issued.is_empty() { Err("not issued yet") } else { Ok(()) }
    })
    .await;
}

#[tokio::test]
async fn the_audit_log_tells_who_did_what() {
    let sandbox = sandbox().await;
    let cluster = sandbox.cluster("worker-2").unwrap();
    kubectl(cluster, &["create", "namespace", "audited"]).await.unwrap();
    let log = sandbox.directory().join("worker-2/logs/audit.log");
    eventually("an entry in the audit log", async || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let told = text.lines().any(|line| line.contains("\"audited\"") && line.contains("\"create\""));
        if told { Ok(()) } else { Err("no entry") }
    })
    .await;
}

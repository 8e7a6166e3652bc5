//! What the door costs. `make bench`.
//!
//! Seconds depend on the machine; ratios are taken in one run, side by side, against a bare client that asks
//! the same server for the same. Nothing fails here on a slow day: the budget stands beside what was measured.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark prints, and one that cannot run says so"
)]

use std::time::{Duration, Instant};

use clap::Parser as _;
use futures::{StreamExt as _, TryStreamExt as _};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kubeocean_cluster::apply::Applier;
use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::credentials::Credentials;
use kubeocean_cluster::informer::Informer;
use kubeocean_cluster::leader::Leadership;
use kubeocean_cluster::metrics::Metrics;
use kubeocean_cluster::queue::{Queue, Retry, Verdict};
use kubeocean_cluster::store::Index;
use kubeocean_cluster::telemetry::{Environment, LogArgs, Telemetry};
use kubeocean_model::action::{Action, Dependents, Mark, PatchForm, Verb, kinds};
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::object::Object;
use kubeocean_sandbox::{COMPUTING, Sandbox, Spec};
use serde_json::{Value, json};

#[derive(clap::Parser)]
struct Flags {
    #[command(flatten)]
    log: LogArgs,
}

const PODS: usize = 10_000;
const WRITES: usize = 1500;
const ROUNDS: usize = 4;
const LISTS: usize = 9;
const AT_A_TIME: usize = 16;

static BY_NODE: Index<Object> =
    Index::new("node", |pod| pod.text("spec", &["nodeName"]).into_iter().collect());

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    println!("{:<66} {:>12} {:>10}", "what", "measured", "budget");
    decoding();
    queueing().await;
    let sandbox = Sandbox::start(Spec::new()).await.unwrap();
    let kubeconfig = sandbox.cluster(COMPUTING).unwrap().kubeconfig();
    let bare = sandbox.cluster(COMPUTING).unwrap().client().await.unwrap();
    writing(&kubeconfig, &bare).await;
    catching_up(&kubeconfig, &bare).await;
    sandbox.stop().await.unwrap();
}

fn row(what: &str, measured: impl std::fmt::Display, budget: &str) {
    println!("{what:<66} {:>12} {budget:>10}", measured.to_string());
}

/// A pod as a busy cluster has them: two containers, a token volume, probes, all defaults filled in, a full
/// status and the managed fields of three managers.
fn pod(number: usize) -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": "registry.example.com/team/application:v1.27.3", "imagePullPolicy": "IfNotPresent",
            "args": ["--listen=:8080", "--log-level=info"],
            "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
                    {"name": "MODE", "value": "production"}],
            "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
            "livenessProbe": {"failureThreshold": 3, "httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"},
                "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "volumeMounts": [{"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "kube-api-access-x2x4z", "readOnly": true}],
        })
    };
    let condition = |kind: &str| json!({"lastProbeTime": null, "lastTransitionTime": "2026-11-20T08:00:00Z", "status": "True", "type": kind});
    let state = |name: &str| {
        json!({
            "containerID": format!("containerd://{:064x}", number), "image": "registry.example.com/team/application:v1.27.3",
            "imageID": format!("registry.example.com/team/application@sha256:{:064x}", 7), "lastState": {}, "name": name,
            "ready": true, "restartCount": 0, "started": true, "state": {"running": {"startedAt": "2026-11-20T08:00:03Z"}},
        })
    };
    let managed = |manager: &str| {
        json!({"apiVersion": "v1", "fieldsType": "FieldsV1", "manager": manager, "operation": "Update", "time": "2026-11-20T08:00:00Z",
            "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}, "f:tier": {}, "f:pod-template-hash": {}}, "f:ownerReferences": {}},
                "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:args": {}, "f:env": {}, "f:image": {}, "f:resources": {}}}}}})
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("application-7c5ddbdf54-{number:05}"), "namespace": "bench", "generateName": "application-7c5ddbdf54-",
            "uid": format!("3f0c1d2e-0000-4000-8000-{number:012x}"), "resourceVersion": (100_000 + number).to_string(), "generation": 1,
            "creationTimestamp": "2026-11-20T08:00:00Z",
            "labels": {"app": "application", "tier": "backend", "pod-template-hash": "7c5ddbdf54"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
            "ownerReferences": [{"apiVersion": "apps/v1", "blockOwnerDeletion": true, "controller": true, "kind": "ReplicaSet",
                "name": "application-7c5ddbdf54", "uid": "9d2f0c1d-0000-4000-8000-000000000001"}],
            "managedFields": [managed("kube-controller-manager"), managed("kube-scheduler"), managed("kubelet")],
        },
        "spec": {
            "containers": [container("main"), container("sidecar")], "dnsPolicy": "ClusterFirst", "enableServiceLinks": true,
            "nodeName": format!("node-{:03}", number % 500), "preemptionPolicy": "PreemptLowerPriority", "priority": 0,
            "restartPolicy": "Always", "schedulerName": "nobody", "securityContext": {}, "serviceAccount": "default",
            "serviceAccountName": "default", "terminationGracePeriodSeconds": 30,
            "tolerations": [{"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300},
                {"effect": "NoExecute", "key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300}],
            "volumes": [{"name": "kube-api-access-x2x4z", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
                {"downwardAPI": {"items": [{"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"}]}}]}}],
        },
        "status": {
            "conditions": [condition("PodReadyToStartContainers"), condition("Initialized"), condition("Ready"), condition("ContainersReady"), condition("PodScheduled")],
            "containerStatuses": [state("main"), state("sidecar")], "hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}],
            "phase": "Running", "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}], "qosClass": "Burstable", "startTime": "2026-11-20T08:00:00Z",
        },
    })
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// What this process used so far, in hundredths of a second.
fn used_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// Decoding and storing as an informer does it, without the network.
fn decoding() {
    let texts: Vec<String> = (0..PODS).map(|number| pod(number).to_string()).collect();
    let wire = texts.iter().map(String::len).sum::<usize>() / PODS;
    let before = resident();
    let started = Instant::now();
    let store = kubeocean_cluster::store::bench::fill::<Virtual, Object>(
        &[&BY_NODE],
        texts.iter().map(String::as_str),
    );
    let took = started.elapsed();
    let after = resident();
    let heap: usize = store.all().iter().map(|(_, pod)| pod.heap_size() + size_of::<Object>()).sum();
    row("a pod on the wire", format!("{wire} B"), "");
    row("decode and store a pod", format!("{:.1} µs", took.as_secs_f64() * 1e6 / PODS as f64), "");
    row("memory per stored pod, counted", format!("{} B", heap / PODS), "");
    row(
        "memory per stored pod, resident, with its index",
        format!("{} B", (after - before) / PODS),
        "≤ 6144",
    );
    let typed = Instant::now();
    let count = texts
        .iter()
        .filter(|text| serde_json::from_str::<k8s_openapi::api::core::v1::Pod>(text).is_ok())
        .count();
    row(
        "decoding alone as typed pods, for comparison",
        format!("{:.1} µs", typed.elapsed().as_secs_f64() * 1e6 / count as f64),
        "",
    );
}

async fn queueing() {
    const KEYS: usize = 200_000;
    let queue: Queue<Key<Virtual>> = Queue::new("bench", Retry::default(), &Metrics::new("bench"));
    let started = Instant::now();
    for number in 0..KEYS {
        queue.add(Key::new("bench", format!("pod-{number:06}")));
    }
    let added = started.elapsed();
    let left = std::sync::atomic::AtomicUsize::new(KEYS);
    queue
        .run(AT_A_TIME, |_| {
            if left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 1 {
                queue.close();
            }
            std::future::ready(Verdict::Done)
        })
        .await;
    row("queue: keys added per second", format!("{:.0}", KEYS as f64 / added.as_secs_f64()), "");
    row(
        "queue: keys added and worked on per second",
        format!("{:.0}", KEYS as f64 / started.elapsed().as_secs_f64()),
        "",
    );
}

async fn connect(kubeconfig: &str) -> Cluster<Virtual> {
    let credentials = Credentials::from_kubeconfig(kubeconfig.as_bytes()).await.unwrap();
    Cluster::connect(credentials, Settings::new("virtual", "kubeocean-bench", &Metrics::new("bench")))
        .unwrap()
}

async fn send(bare: &kube::Client, method: &str, path: &str, content_type: &str, body: &Value) -> usize {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(Body::from(body.to_string().into_bytes()))
        .unwrap();
    let response = bare.send(request).await.unwrap();
    assert!(response.status().is_success(), "{method} {path}: {}", response.status());
    response.into_body().collect().await.unwrap().to_bytes().len()
}

/// Each object is made, changed and removed: three writes.
async fn writing(kubeconfig: &str, bare: &kube::Client) {
    let cluster = connect(kubeconfig).await;
    // As components write: with the audit log, as a leader, and in front of a store that is kept current. The bare client
    // has the same store running beside it.
    let flags = Flags::parse_from(["bench"]);
    let telemetry =
        Telemetry::prepare("bench", &flags.log, &Environment::default(), std::io::sink, false).unwrap();
    tracing::dispatcher::set_global_default(telemetry.dispatch.clone()).unwrap();
    let (informer, _switch) = Informer::<Virtual, Object>::of(&cluster, kinds::CONFIG_MAP).build();
    let store = informer.store();
    let following = tokio::spawn(informer.run());
    store.progress().synced().await;
    let applier = Applier::new("kubeocean-bench")
        .virtually(&cluster)
        .while_leading(&Leadership::always())
        .following(kinds::CONFIG_MAP, &store);
    let (mut ours, mut theirs) = (Duration::ZERO, Duration::ZERO);
    let (mut our_cpu, mut their_cpu) = (Duration::ZERO, Duration::ZERO);
    for round in 0..ROUNDS {
        // Who goes first finds the server with less to clean up.
        for turn in 0..2 {
            let (started, cpu) = (Instant::now(), used_cpu());
            if (round + turn).is_multiple_of(2) {
                through_bare(bare, round).await;
                theirs += started.elapsed();
                their_cpu += used_cpu().saturating_sub(cpu);
            } else {
                through_applier(&applier, round).await;
                ours += started.elapsed();
                our_cpu += used_cpu().saturating_sub(cpu);
            }
        }
    }
    let rate = |took: Duration| (WRITES * 3 * ROUNDS) as f64 / took.as_secs_f64();
    let each = |took: Duration| format!("{:.0} µs", took.as_secs_f64() * 1e6 / (WRITES * 3 * ROUNDS) as f64);
    row("our CPU per write, bare client", each(their_cpu), "");
    row("our CPU per write, applier", each(our_cpu), "");
    row("writes per second, bare client", format!("{:.0}", rate(theirs)), "");
    row("writes per second, applier", format!("{:.0}", rate(ours)), "");
    row("applier / bare client", format!("{:.2}", rate(ours) / rate(theirs)), "≥ 0.9");
    following.abort();
}

fn payload(number: usize) -> Value {
    json!({"metadata": {"labels": {"app": "bench"}}, "data": {"number": number.to_string(), "text": "x".repeat(500)}})
}

async fn through_applier(applier: &Applier, round: usize) {
    futures::stream::iter(0..WRITES)
        .for_each_concurrent(AT_A_TIME, |number| async move {
            let key = Key::<Virtual>::new("default", format!("ours-{round}-{number}"));
            let verbs = [
                Verb::Create { body: payload(number), mark: Mark::default() },
                Verb::Patch {
                    form: PatchForm::Merge,
                    subresource: None,
                    body: json!({"data": {"number": "changed"}}),
                },
                Verb::Delete { grace: None, dependents: Dependents::Background },
            ];
            for verb in verbs {
                let outcome = applier.apply(&Action::new(kinds::CONFIG_MAP, &key, verb, "a benchmark")).await;
                assert!(outcome.is_done(), "{outcome}");
            }
        })
        .await;
}

async fn through_bare(bare: &kube::Client, round: usize) {
    futures::stream::iter(0..WRITES)
        .for_each_concurrent(AT_A_TIME, |number| async move {
            let home = "/api/v1/namespaces/default/configmaps";
            let name = format!("bare-{round}-{number}");
            let mut body = payload(number);
            body["metadata"]["name"] = name.as_str().into();
            send(bare, "POST", home, "application/json", &body).await;
            let path = format!("{home}/{name}");
            send(
                bare,
                "PATCH",
                &path,
                "application/merge-patch+json",
                &json!({"data": {"number": "changed"}}),
            )
            .await;
            send(bare, "DELETE", &path, "application/json", &json!({})).await;
        })
        .await;
}

async fn catching_up(kubeconfig: &str, bare: &kube::Client) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench"}});
    send(bare, "POST", "/api/v1/namespaces", "application/json", &namespace).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    drop(
        bare.send(
            http::Request::post("/api/v1/namespaces/bench/serviceaccounts")
                .header("content-type", "application/json")
                .body(Body::from(account.to_string().into_bytes()))
                .unwrap(),
        )
        .await,
    );
    futures::stream::iter(0..PODS)
        .map(|number| async move {
            let mut pod = pod(number);
            for field in [
                "uid",
                "resourceVersion",
                "managedFields",
                "creationTimestamp",
                "generation",
                "ownerReferences",
            ] {
                pod["metadata"].as_object_mut().unwrap().remove(field);
            }
            pod["spec"].as_object_mut().unwrap().remove("nodeName");
            pod["spec"]["volumes"] = json!([{"name": "kube-api-access-x2x4z", "emptyDir": {}}]);
            send(bare, "POST", "/api/v1/namespaces/bench/pods", "application/json", &pod).await;
            Ok::<_, ()>(())
        })
        .buffer_unordered(AT_A_TIME)
        .try_collect::<()>()
        .await
        .unwrap();
    let (mut raw, mut streamed, mut paged) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..LISTS {
        let started = Instant::now();
        let request = http::Request::get("/api/v1/namespaces/bench/pods").body(Body::empty()).unwrap();
        let response = bare.send(request).await.unwrap();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        raw.push(started.elapsed());
        assert!(bytes.len() > PODS * 1000);
        drop(bytes);
        streamed.push(catch_up(kubeconfig, false).await);
        paged.push(catch_up(kubeconfig, true).await);
    }
    let [raw, streamed, paged] = [raw, streamed, paged].map(|times| median(times).as_secs_f64());
    row(&format!("raw list of {PODS} pods"), format!("{raw:.2} s"), "");
    row("informer caught up by a streamed list", format!("{streamed:.2} s"), "");
    row("informer caught up in pages", format!("{paged:.2} s"), "");
    row("  streamed / raw", format!("{:.2}", streamed / raw), "");
    row("  in pages (the default) / raw", format!("{:.2}", paged / raw), "≤ 1.3");
}

/// The one in the middle: a server that collects its garbage once says nothing about us.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

async fn catch_up(kubeconfig: &str, in_pages: bool) -> Duration {
    let cluster = connect(kubeconfig).await;
    cluster.version().await.unwrap();
    let started = Instant::now();
    let builder =
        Informer::<Virtual, Object>::of(&cluster, kinds::POD).namespace("bench").indexed_by(&BY_NODE);
    let (informer, _switch) = if in_pages { builder } else { builder.streamed() }.build();
    let store = informer.store();
    let task = tokio::spawn(informer.run());
    store.progress().synced().await;
    let took = started.elapsed();
    assert_eq!(store.len(), PODS);
    task.abort();
    took
}

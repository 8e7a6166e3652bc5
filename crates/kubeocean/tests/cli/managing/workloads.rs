//! Workloads as people write them for virtual nodes, and both sides of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use kubeocean_api::keys::names::{INSTALL_NAMESPACE, KUBE_SYSTEM, WORKER_NAMESPACE};
use kubeocean_api::keys::taints::VNODE_KEY;
use kubeocean_api::keys::{annotations, labels};
use kubeocean_sandbox::{Cluster, Spec};
use serde_json::{Value, json};

use super::place::{Place, apply, get, namespace, request, text};
use super::rights::{apply_all, kubeconfig, manifest_with, with_borrowers_rights};
use super::vnodes::{all_are, policies, policy, usable};
use crate::access::until;
use crate::manager::Manager;

/// What of ours can be in a mount namespace.
const IN_WORKER: &[&str] = &[
    "/api/v1/namespaces/{}/pods",
    "/api/v1/namespaces/{}/configmaps",
    "/api/v1/namespaces/{}/secrets",
    "/api/v1/namespaces/{}/persistentvolumeclaims",
    "/api/v1/namespaces/{}/services",
    "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
    "/api/v1/persistentvolumes",
];

/// A computing cluster and one worker cluster, both with exactly the rights that are shipped, and bindings for its nodes.
pub(super) struct Pool {
    pub(super) place: Place,
    pub(super) virt: Client,
    pub(super) phys: Client,
    pub(super) twins: Twins,
    /// Those of the syncers, by binding.
    pub(super) accounts: BTreeMap<String, PathBuf>,
    /// By what the computing cluster is known in the worker cluster.
    uid: String,
    watching: tokio::task::JoinHandle<()>,
    manager: Manager,
}

impl Pool {
    /// Each binding has so many simulated nodes, from the first one on. All share one mount namespace.
    pub(super) async fn new(bindings: &[(&str, usize)]) -> Self {
        let nodes = bindings.iter().map(|(_, nodes)| nodes).sum();
        let mut first = 1;
        let specs = bindings.iter().map(|(name, nodes)| {
            let hosts: Vec<String> = (first..first + nodes).map(|number| format!("sim-{number}")).collect();
            first += nodes;
            let own =
                json!({"matchExpressions": [{"key": labels::HOSTNAME, "operator": "In", "values": hosts}]});
            (*name, json!({"nodeSelector": {"nodeSelectorTerms": [own]}}))
        });
        let specs: Vec<_> = specs.collect();
        Self::of(Spec::new().workers(1, nodes, 0), &specs).await
    }

    /// Bindings with more in their specs, to the one worker cluster that there is.
    pub(super) async fn of(spec: Spec, bindings: &[(&str, Value)]) -> Self {
        let place = Place::of(spec).await;
        let worker = place.worker("worker-1").clone();
        Self::beside(place, &worker, bindings).await
    }

    /// The same, where the worker cluster is that of another place.
    pub(super) async fn beside(place: Place, worker: &Cluster, bindings: &[(&str, Value)]) -> Self {
        let (virt, phys) = (place.virt.clone(), worker.client().await.unwrap());
        apply_all(&phys, &manifest_with(WORKER_NAMESPACE, &["--storage"])).await;
        let manager = with_borrowers_rights(&place).await;
        place.secret("worker", &kubeconfig(worker, WORKER_NAMESPACE)).await;
        let system = get(&virt, &format!("/api/v1/namespaces/{KUBE_SYSTEM}")).await.unwrap();
        let uid = text(&system["metadata"]["uid"]);
        let mut accounts = BTreeMap::new();
        for (name, more) in bindings {
            place.bind_with(name, "worker", WORKER_NAMESPACE, more, &json!({})).await;
            place.binding(name, "bound", |binding| !text(&binding["status"]["workerUID"]).is_empty()).await;
            let account = format!("kubeocean-syncer-{name}");
            accounts.insert((*name).to_owned(), place.kubeconfig_of(INSTALL_NAMESPACE, &account).await);
            apply(&virt, &policies(), &policy(name, &json!({}))).await;
        }
        let twins = Twins::default();
        let watching = tokio::spawn(twins.clone().watch(phys.clone()));
        Self { place, virt, phys, twins, accounts, uid, watching, manager }
    }

    pub(super) async fn usable(&self, binding: (&str, usize)) -> Vec<Value> {
        all_are(&self.place, binding, "virtual nodes are usable", usable).await
    }

    pub(super) async fn namespace(&self, name: &str) {
        apply(&self.virt, "/api/v1/namespaces", &namespace(name)).await;
        until(&format!("{name} has its service account"), async || {
            get(&self.virt, &format!("/api/v1/namespaces/{name}/serviceaccounts/default")).await
        })
        .await;
    }

    pub(super) async fn apply(&self, namespace: &str, object: &Value) {
        apply(&self.virt, &collection(namespace, object), object).await;
    }

    pub(super) async fn read(&self, namespace: &str, object: &Value) -> Result<Value, String> {
        let name = text(&object["metadata"]["name"]);
        get(&self.virt, &format!("{}/{name}", collection(namespace, object))).await
    }

    pub(super) async fn delete(&self, namespace: &str, object: &Value) {
        let path = format!("{}/{}", collection(namespace, object), text(&object["metadata"]["name"]));
        // By themselves, API servers leave the pods of a Job behind.
        let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
        let send = async || request(&self.virt, "DELETE", &path, "application/json", &body).await;
        until("it is deleted", send).await;
    }

    /// The pods of a namespace.
    pub(super) async fn pods(&self, namespace: &str) -> Result<Vec<Value>, String> {
        list(&self.virt, &format!("/api/v1/namespaces/{namespace}/pods")).await
    }

    /// What there is in the worker cluster for a namespace of the computing cluster.
    pub(super) async fn copies(&self, kind: &str, namespace: &str) -> Result<Vec<Value>, String> {
        let (ours, of_cluster) = (labels::MANAGED_BY, labels::VIRTUAL_CLUSTER_UID);
        let selector = format!("{ours}%3D{},{of_cluster}%3D{}", labels::MANAGED_BY_VALUE, self.uid);
        let path = format!("{}?labelSelector={selector}", kind.replace("{}", WORKER_NAMESPACE));
        let mut all = list(&self.phys, &path).await?;
        all.retain(|object| {
            let annotations = &object["metadata"]["annotations"];
            let of = [annotations::VIRTUAL_NAMESPACE, annotations::VIRTUAL_POD_NAMESPACE];
            namespace.is_empty() || of.iter().any(|key| annotations[key] == namespace)
        });
        Ok(all)
    }

    pub(super) async fn twins_of(&self, namespace: &str) -> Result<Vec<Value>, String> {
        self.copies(IN_WORKER[0], namespace).await
    }

    /// Waits until both sides say the same of so many pods of a namespace, each has one twin, and no other has one. Pairs of pod and twin.
    pub(super) async fn agree(&self, namespace: &str, count: usize, phase: &str) -> Vec<(Value, Value)> {
        until(&format!("both sides agree that {count} pods of {namespace} are {phase}"), async || {
            let (pods, twins) = (self.pods(namespace).await?, self.twins_of(namespace).await?);
            if (pods.len(), twins.len()) != (count, count) {
                return Err(format!("{} pods and {} twins", pods.len(), twins.len()));
            }
            let of = |pod: &Value| {
                let uid = &pod["metadata"]["uid"];
                twins
                    .iter()
                    .find(|twin| twin["metadata"]["annotations"][annotations::VIRTUAL_POD_UID] == *uid)
            };
            let pairs = pods.iter().map(|pod| Ok((pod.clone(), of(pod).ok_or("no twin")?.clone())));
            let pairs: Vec<(Value, Value)> = pairs.collect::<Result<_, String>>()?;
            match pairs.iter().find(|(pod, twin)| !say_the_same(pod, twin) || pod["status"]["phase"] != phase)
            {
                Some((pod, twin)) => Err(format!("{pod:#}\nbut\n{:#}", twin["status"])),
                None => Ok(pairs),
            }
        })
        .await
    }

    /// Waits until nothing is left of a namespace's workloads, on either side. With `""`: of anything in the worker cluster.
    pub(super) async fn nothing_left(&self, namespace: &str) {
        until(&format!("nothing is left of {namespace:?}"), async || {
            let mut left = if namespace.is_empty() { Vec::new() } else { self.pods(namespace).await? };
            for kind in IN_WORKER {
                left.extend(self.copies(kind, namespace).await?);
            }
            let names: Vec<String> = left.iter().map(|one| one["metadata"].to_string()).collect();
            if names.is_empty() { Ok(()) } else { Err(format!("{} are left: {}", names.len(), names[0])) }
        })
        .await;
    }

    /// Waits for an Event in a namespace, of this reason.
    pub(super) async fn told(&self, namespace: &str, about: &str, reason: &str) -> String {
        until(&format!("{about} is told of {reason}"), async || {
            let all = list(&self.virt, &format!("/api/v1/namespaces/{namespace}/events")).await?;
            let of = |event: &&Value| {
                event["reason"] == reason && text(&event["involvedObject"]["name"]).starts_with(about)
            };
            let found = all.iter().find(of);
            found.map(|event| text(&event["message"])).ok_or_else(|| format!("{all:#?}"))
        })
        .await
    }

    /// No pod had more than one twin, at any time.
    pub(super) async fn stop(self) -> usize {
        let Self { place, twins, watching, manager, .. } = self;
        watching.abort();
        let known = twins.0.lock().unwrap().clone();
        let twice: Vec<_> = known.iter().filter(|(_, twins)| twins.len() > 1).collect();
        assert!(twice.is_empty(), "these ran twice: {twice:?}");
        drop(manager);
        place.stop().await;
        known.len()
    }
}

/// What a user may look at in a pod's status, on both sides.
fn say_the_same(pod: &Value, twin: &Value) -> bool {
    let (virt, phys) = (&pod["status"], &twin["status"]);
    let containers = |status: &Value| -> Vec<Value> {
        let of =
            |one: &Value| json!([one["name"], one["image"], one["ready"], one["restartCount"], one["state"]]);
        status["containerStatuses"].as_array().into_iter().flatten().map(of).collect()
    };
    let uid = &pod["metadata"]["annotations"][annotations::PHYSICAL_POD_UID];
    ["phase", "podIP", "hostIP", "startTime"].iter().all(|field| virt[field] == phys[field])
        && containers(virt) == containers(phys)
        && (uid.is_null() || *uid == twin["metadata"]["uid"])
}

/// Every twin that ever was, by the uid of its pod.
#[derive(Clone, Default)]
pub(super) struct Twins(Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>);

impl Twins {
    async fn watch(self, phys: Client) {
        let api: Api<Pod> = Api::namespaced(phys, WORKER_NAMESPACE);
        loop {
            let Ok(list) = api.list_metadata(&ListParams::default()).await else {
                // Between two looks, while nobody answers.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let version = list.metadata.resource_version.clone().unwrap_or_default();
            list.items.iter().for_each(|pod| self.note(pod.annotations(), pod.uid()));
            let Ok(events) = api.watch_metadata(&WatchParams::default(), &version).await else { continue };
            let mut events = std::pin::pin!(events);
            while let Some(Ok(event)) = events.next().await {
                if let WatchEvent::Added(pod) | WatchEvent::Modified(pod) = event {
                    self.note(pod.annotations(), pod.uid());
                }
            }
        }
    }

    fn note(&self, annotations: &BTreeMap<String, String>, twin: Option<String>) {
        if let (Some(pod), Some(twin)) = (annotations.get(annotations::VIRTUAL_POD_UID), twin) {
            self.0.lock().unwrap().entry(pod.clone()).or_default().insert(twin);
        }
    }

    /// Whether a pod of this uid ever had one.
    pub(super) fn had(&self, uid: &Value) -> bool {
        uid.as_str().is_some_and(|uid| self.0.lock().unwrap().contains_key(uid))
    }
}

async fn list(client: &Client, path: &str) -> Result<Vec<Value>, String> {
    Ok(get(client, path).await?["items"].as_array().cloned().unwrap_or_default())
}

fn collection(namespace: &str, object: &Value) -> String {
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]).to_lowercase());
    let root = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
    let within = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    format!("{root}{within}/{kind}s")
}

/// The spec of a pod that wants to be on a virtual node, with more in it.
pub(super) fn lent(more: &Value) -> Value {
    let mut spec = json!({
        "nodeSelector": {labels::TYPE: labels::TYPE_VIRTUAL_KUBELET},
        "tolerations": [{"key": VNODE_KEY, "operator": "Exists"}],
        "containers": [{"name": "c", "image": "i"}],
    });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    spec
}

pub(super) fn pod(name: &str, more: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": lent(more)})
}

/// A workload of `apps/v1` with this pod template.
pub(super) fn workload(kind: &str, name: &str, replicas: usize, more: &Value) -> Value {
    let labels = json!({"app": name});
    let mut spec = json!({
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": lent(more)},
    });
    if kind != "DaemonSet" {
        spec["replicas"] = replicas.into();
    }
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

pub(super) fn job(name: &str, completions: usize, parallelism: usize) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {
            "completions": completions, "parallelism": parallelism, "backoffLimit": 0, "podReplacementPolicy": "Failed",
            "template": {"spec": lent(&json!({"restartPolicy": "Never"}))},
        },
    })
}

/// A `ConfigMap` or a Secret with one key.
pub(super) fn settings(kind: &str, name: &str, value: &str) -> Value {
    let data = if kind == "Secret" { "stringData" } else { "data" };
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, data: {"key": value}})
}

/// How many of something the test has, unless someone wants more.
pub(super) fn wanted(variable: &str, usually: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usually)
}

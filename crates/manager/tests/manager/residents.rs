//! Who else lives in the simulated computing cluster: the controller of Deployments, and the syncers that they run, or that
//! the manager runs itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use kubeocean_api::keys::names::SYNCER_PREFIX;
use kubeocean_api::keys::{finalizers, labels};
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::shutdown::BoxError;
use kubeocean_manager::inline::{Job, Workload};
use kubeocean_model::action::kinds;
use kubeocean_model::bind::Role;
use kubeocean_model::key::Physical;
use kubeocean_testkit::ApiServer;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::scene::NAMESPACE;

/// How often each of them looks around.
pub(crate) const MOMENT: Duration = Duration::from_millis(1300);

const MERGE: Option<&str> = Some("application/merge-patch+json");

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["labels"][key].as_str().unwrap_or_default()
}

pub(crate) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|one| one == finalizer))
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// The path of an object.
pub(crate) fn path(plural: &str, object: &Value) -> String {
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    format!("{}/{name}", collection(plural, namespace))
}

pub(crate) fn collection(plural: &str, namespace: &str) -> String {
    let all = [
        kinds::BINDING,
        kinds::POLICY,
        kinds::DEPLOYMENT,
        kinds::SERVICE,
        kinds::SERVICE_ACCOUNT,
        kinds::ROLE,
        kinds::ROLE_BINDING,
        kinds::CLUSTER_ROLE_BINDING,
        kinds::DISRUPTION_BUDGET,
        kinds::NODE,
        kinds::LEASE,
        kinds::CSI_NODE,
        kinds::POD,
        kinds::SECRET,
        kinds::NAMESPACE,
        kinds::SIGNING_REQUEST,
        kinds::ENDPOINT_SLICE,
        kinds::VOLUME,
    ];
    let kind = all.iter().find(|kind| kind.plural == plural).expect("a kind of this test");
    kind.collection_path(kind.namespaced.then_some(namespace))
}

/// One moment in the life of all of them.
pub(crate) fn live(server: &ApiServer) {
    roll_out(server);
    for binding in server.list("clusterbindings", None) {
        let uid = text(&binding, "/metadata/uid");
        let alive = server.list("deployments", None).iter().any(|deployment| {
            label(deployment, labels::BINDING_UID) == uid
                && label(deployment, labels::COMPONENT) == "syncer"
                && !is_deleting(deployment)
        });
        if alive {
            hold_the_lead(server, &binding);
            sync(server, &binding);
        }
    }
}

/// Two replicas of a syncer agree on who works by a Lease, which stays when they end.
fn hold_the_lead(server: &ApiServer, binding: &Value) {
    let hold = format!("{SYNCER_PREFIX}{}", text(binding, "/spec/clusterID"));
    if server.get("leases", NAMESPACE, &hold).is_none() {
        let body =
            json!({"metadata": {"name": hold}, "spec": {"holderIdentity": text(binding, "/metadata/name")}});
        server.call("syncer", "POST", &collection("leases", NAMESPACE), None, Some(body));
    }
}

/// So long it takes an inline worker to end.
const ENDS_AFTER: Duration = Duration::from_secs(2);

/// A syncer or proxier that the manager runs itself. Every third one fails as soon as it starts.
pub(crate) struct Resident {
    pub(crate) server: ApiServer,
    pub(crate) workers: [ApiServer; 2],
    /// Where the last one that was started leaves its connection to its worker cluster.
    pub(crate) phys: Arc<Mutex<Option<Cluster<Physical>>>>,
    pub(crate) role: Role,
    pub(crate) starts: Arc<AtomicU64>,
}

impl Workload for Resident {
    fn run(&self, job: Job, stop: CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> {
        let (server, role, workers) = (self.server.clone(), self.role, self.workers.clone());
        *self.phys.lock() = Some(job.phys.clone());
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            if start % 3 == 2 {
                return Err("it does not start today".into());
            }
            job.readiness.ready();
            while !stop.is_cancelled() {
                let bindings = server.list("clusterbindings", None);
                let mine = bindings.iter().find(|one| text(one, "/metadata/uid") == job.uid);
                if let Some(binding) = mine.filter(|_| role == Role::Syncer) {
                    sync(&server, binding);
                }
                stop.run_until_cancelled(tokio::time::sleep(MOMENT)).await;
            }
            // It finishes what it began.
            tokio::time::sleep(ENDS_AFTER).await;
            if role == Role::Syncer {
                clear(&workers, &job.uid);
            }
            Ok(())
        })
    }
}

/// What there is of a binding in worker clusters goes.
fn clear(workers: &[ApiServer], uid: &str) {
    for worker in workers {
        for pod in worker.list("pods", None).iter().filter(|pod| label(pod, labels::BINDING_UID) == uid) {
            let now = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
            worker.call("syncer", "DELETE", &path("pods", pod), None, Some(now));
        }
    }
}

/// Deployments become available.
fn roll_out(server: &ApiServer) {
    for deployment in server.list("deployments", None) {
        let generation = &deployment["metadata"]["generation"];
        if deployment["status"]["observedGeneration"] == *generation || is_deleting(&deployment) {
            continue;
        }
        let condition = json!({"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"});
        let body = json!({"status": {
            "observedGeneration": generation, "replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "conditions": [condition],
        }});
        let path = format!("{}/status", path("deployments", &deployment));
        server.call("deployments", "PATCH", &path, MERGE, Some(body));
    }
}

/// What a syncer does: a finalizer first, then a virtual node; and all of it back when its binding goes.
fn sync(server: &ApiServer, binding: &Value) {
    let (name, uid) = (text(binding, "/metadata/name"), text(binding, "/metadata/uid"));
    let version = text(binding, "/metadata/resourceVersion");
    let place = format!("{}/{name}", collection("clusterbindings", ""));
    let node = format!("vnode-{}-n1", text(binding, "/spec/clusterID"));
    let stamp = json!({labels::MANAGED_BY: labels::MANAGED_BY_VALUE, labels::BINDING_UID: uid});
    let set_finalizers = |all: Vec<Value>| {
        let body = json!({"metadata": {"finalizers": all, "resourceVersion": version}});
        server.call("syncer", "PATCH", &place, MERGE, Some(body));
    };
    let known = binding["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let ours = finalizers::CLUSTER_BINDING_SYNCER;
    match (is_deleting(binding), has_finalizer(binding, ours)) {
        (false, false) => set_finalizers([known, vec![ours.into()]].concat()),
        (false, true) => {
            // A look is a tenth of what a refusal costs, and there are hundreds of them.
            let make = |plural: &str, namespace: &str, body: &dyn Fn() -> Value| {
                if server.get(plural, namespace, &node).is_none() {
                    server.call("syncer", "POST", &collection(plural, namespace), None, Some(body()));
                }
            };
            let meta = json!({"name": node, "labels": stamp});
            make("nodes", "", &|| {
                let finalizers = [finalizers::VNODE];
                json!({"metadata": {"name": node, "labels": stamp, "finalizers": finalizers}})
            });
            make("leases", "kube-node-lease", &|| json!({"metadata": meta, "spec": {}}));
            make("csinodes", "", &|| json!({"metadata": meta, "spec": {"drivers": []}}));
            // A proxier asks for its certificate, and does not take the request away.
            crate::certificates::ask(server, binding, &stamp);
            make("pods", "kubeocean-fake", &|| {
                let containers = json!([{"name": "ports", "image": "none"}]);
                let spec = json!({"nodeName": node, "automountServiceAccountToken": false, "containers": containers});
                json!({"metadata": meta, "spec": spec})
            });
        }
        (true, true) => {
            let nodes = server.list("nodes", None);
            let mine = nodes.iter().find(|one| label(one, labels::BINDING_UID) == uid);
            let Some(mine) = mine else {
                return set_finalizers(known.into_iter().filter(|one| one != ours).collect());
            };
            let body = json!({"metadata": {"finalizers": []}});
            server.call("syncer", "PATCH", &path("nodes", mine), MERGE, Some(body));
            server.call("syncer", "DELETE", &path("nodes", mine), None, None);
            for place in [
                collection("leases", "kube-node-lease"),
                collection("csinodes", ""),
                collection("pods", "kubeocean-fake"),
            ] {
                let now = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
                server.call("syncer", "DELETE", &format!("{place}/{node}"), None, Some(now));
            }
        }
        (true, false) => {}
    }
}

//! Who else lives in the computing cluster: V's node controller, what collects the pods of nodes that are gone, and the manager's sweep.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use kubeocean_api::keys::names::{self, FAKE_NAMESPACE, NODE_LEASE_NAMESPACE};
use kubeocean_api::keys::{finalizers, labels, taints};
use kubeocean_cluster::together::until_one_ends;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::scene::{MERGE, Scene, collection, is_deleting, label, text};

/// Who takes nodes for lost.
pub(crate) const NODE_CONTROLLER: &str = "node-controller";

/// How often each of them looks around.
const MOMENT: Duration = Duration::from_secs(2);

/// What has no binding is not touched before: see `kubeocean_model::sweep`. Here it counts from when that was first seen, since the
/// clocks of these clusters jump.
const SWEPT_AFTER: Duration = Duration::from_secs(150);

/// What kube-controller-manager gives a node to come back.
const COLLECTED_AFTER: Duration = Duration::from_secs(40);

/// Since when something has been without what it belongs to, by uid.
type Orphans = BTreeMap<String, Instant>;

impl Scene {
    /// Everyone else, for ever.
    pub(crate) async fn others(&self) {
        let residents = async {
            let (mut leftovers, mut lost) = (Orphans::new(), Orphans::new());
            loop {
                self.node_controller();
                self.sweep(&mut leftovers);
                self.collect_pods(&mut lost);
                tokio::time::sleep(MOMENT).await;
            }
        };
        until_one_ends([
            self.virt.server.controllers().boxed_local(),
            self.phys.server.controllers().boxed_local(),
            residents.boxed_local(),
            self.kubelets().boxed_local(),
        ])
        .await;
    }

    /// Lifts the taint of new nodes, and takes those for lost whose Lease is old.
    fn node_controller(&self) {
        let server = &self.virt.server;
        for node in server.list("nodes", None) {
            let name = text(&node, "/metadata/name");
            let lease = server.get("leases", NODE_LEASE_NAMESPACE, name);
            let renewed =
                lease.as_ref().and_then(|lease| text(lease, "/spec/renewTime").parse::<Timestamp>().ok());
            let age = renewed.map(|at| server.now().duration_since(at));
            let conditions = node["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
            let ready = conditions.iter().find(|one| one["type"] == "Ready");
            let is_ready = ready.is_some_and(|ready| ready["status"] == "True");
            let place = format!("{}/{name}", collection("nodes", ""));
            let tainted = node["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
            let is_new = |taint: &Value| taint["key"] == taints::NODE_NOT_READY_KEY;
            if is_ready && tainted.iter().any(is_new) {
                let rest: Vec<&Value> = tainted.iter().filter(|taint| !is_new(taint)).collect();
                let body = json!({"spec": {"taints": rest}});
                server.call(NODE_CONTROLLER, "PATCH", &place, MERGE, Some(body));
            }
            if is_ready && age.is_some_and(|age| age > self.lost_after()) {
                let lost: Vec<Value> = conditions
                    .iter()
                    .cloned()
                    .map(|mut one| {
                        if one["type"] == "Ready" {
                            one["status"] = "Unknown".into();
                            one["reason"] = "NodeStatusUnknown".into();
                        }
                        one
                    })
                    .collect();
                let body = json!({"status": {"conditions": lost}});
                let place = format!("{place}/status");
                server.call(NODE_CONTROLLER, "PATCH", &place, MERGE, Some(body));
            }
        }
    }

    /// Five renewals: fifty seconds where each takes ten.
    fn lost_after(&self) -> SignedDuration {
        SignedDuration::try_from(self.renew_every * 5).unwrap()
    }

    /// Removes what bindings that no longer exist have left: a restored etcd has no finalizer that held them.
    fn sweep(&self, orphans: &mut Orphans) {
        let server = &self.virt.server;
        let living: Vec<String> = server
            .list("clusterbindings", None)
            .iter()
            .map(|binding| text(binding, "/metadata/uid").to_owned())
            .collect();
        let mut left = Vec::new();
        for plural in ["nodes", "leases", "csinodes", "pods"] {
            for object in server.list(plural, None) {
                let binding = label(&object, labels::BINDING_UID);
                if !binding.is_empty() && living.iter().all(|uid| uid != binding) {
                    left.push((plural, object));
                }
            }
        }
        orphans.retain(|uid, _| left.iter().any(|(_, object)| text(object, "/metadata/uid") == uid));
        for (plural, object) in left {
            let uid = text(&object, "/metadata/uid").to_owned();
            if orphans.entry(uid).or_insert_with(Instant::now).elapsed() < SWEPT_AFTER {
                continue;
            }
            let namespace = text(&object, "/metadata/namespace");
            let place = format!("{}/{}", collection(plural, namespace), text(&object, "/metadata/name"));
            let kept = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            let rest: Vec<&Value> = kept.iter().filter(|one| **one != finalizers::VNODE).collect();
            if rest.len() < kept.len() {
                let body = json!({"metadata": {"finalizers": rest}});
                server.call(names::MANAGER, "PATCH", &place, MERGE, Some(body));
            }
            if !is_deleting(&object) {
                let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
                let body = (namespace == FAKE_NAMESPACE).then_some(body);
                server.call(names::MANAGER, "DELETE", &place, None, body);
            }
        }
    }

    /// Removes pods whose node is gone.
    fn collect_pods(&self, orphans: &mut Orphans) {
        let server = &self.virt.server;
        let nodes = self.vnodes();
        let mut lost = server.list("pods", None);
        lost.retain(|pod| {
            let node = text(pod, "/spec/nodeName");
            !node.is_empty() && nodes.iter().all(|known| known != node)
        });
        orphans.retain(|uid, _| lost.iter().any(|pod| text(pod, "/metadata/uid") == uid));
        for pod in lost {
            let uid = text(&pod, "/metadata/uid").to_owned();
            if orphans.entry(uid).or_insert_with(Instant::now).elapsed() >= COLLECTED_AFTER {
                let place = collection("pods", text(&pod, "/metadata/namespace"));
                let place = format!("{place}/{}", text(&pod, "/metadata/name"));
                let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
                server.call("pod-garbage-collector", "DELETE", &place, None, Some(body));
            }
        }
    }
}

//! The worker cluster's scheduler and kubelets, as far as twins are concerned.

use std::time::Duration;

use jiff::Timestamp;
use kubeocean_api::keys::annotations;
use serde_json::{Value, json};

use crate::scene::{MOUNT, Scene, collection, is_deleting, text};

/// Pods whose name begins so end well, a moment after they began.
pub(crate) const JOB: &str = "job";

/// Pods whose name begins so fit on no node.
pub(crate) const NOWHERE: &str = "nowhere";

/// Pods whose name begins so take all the time that they have to end.
pub(crate) const SLOW: &str = "slow";

/// Pods whose name begins so are on a machine that has stopped: nobody ends them.
pub(crate) const DEAD: &str = "dead";

/// How often they look around.
const MOMENT: Duration = Duration::from_secs(1);

const STRATEGIC: Option<&str> = Some("application/strategic-merge-patch+json");

impl Scene {
    /// For ever.
    pub(crate) async fn kubelets(&self) {
        let server = &self.phys.server;
        let mut seen = None;
        loop {
            let mark = server.mark(&["pods", "nodes"]);
            // Where nothing has changed since, nothing is to be done; but what was refused may not be so now.
            if seen.replace(mark) != Some(mark) {
                for pod in server.list("pods", Some(MOUNT)) {
                    // Those of others are as whoever made them says.
                    if !virtual_name(&pod).is_empty() && self.look_after(&pod) {
                        seen = None;
                    }
                }
            }
            tokio::time::sleep(MOMENT).await;
        }
    }

    /// Does what is to be done for a pod; whether there was anything.
    fn look_after(&self, pod: &Value) -> bool {
        let server = &self.phys.server;
        let place = format!("{}/{}", collection("pods", MOUNT), text(pod, "/metadata/name"));
        let node = text(pod, "/spec/nodeName");
        let phase = text(pod, "/status/phase");
        if node.is_empty() {
            let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
            let wanted = format!("{required}/nodeSelectorTerms/0/matchFields/0/values/0");
            let wanted = text(pod, &wanted);
            let fits = server.get("nodes", "", wanted).is_some()
                && !is_deleting(pod)
                && !virtual_name(pod).starts_with(NOWHERE);
            if fits {
                let body = json!({"target": {"kind": "Node", "name": wanted}});
                server.call("scheduler", "POST", &format!("{place}/binding"), None, Some(body));
            }
            return fits;
        }
        let ends_at = text(pod, "/metadata/deletionTimestamp").parse::<Timestamp>();
        if virtual_name(pod).starts_with(SLOW) && ends_at.is_ok_and(|at| at > server.now()) {
            return true;
        }
        if virtual_name(pod).starts_with(DEAD) && is_deleting(pod) {
            return false;
        }
        let ended = || json!({"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": server.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()}});
        if is_deleting(pod) || server.get("nodes", "", node).is_none() {
            let body = json!({
                "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
                "preconditions": {"uid": pod["metadata"]["uid"]},
            });
            if !matches!(phase, "Succeeded" | "Failed") {
                self.report(&place, pod, "Succeeded", &ended());
            }
            server.call("kubelet", "DELETE", &place, None, Some(body));
        } else if phase == "Pending" {
            self.report(&place, pod, "Running", &json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}));
        } else if phase == "Running" && virtual_name(pod).starts_with(JOB) {
            self.report(&place, pod, "Succeeded", &ended());
        } else {
            return false;
        }
        true
    }

    fn report(&self, place: &str, pod: &Value, phase: &str, state: &Value) {
        let is_running = phase == "Running";
        let word = if is_running { "True" } else { "False" };
        let condition = |about: &str| json!({"type": about, "status": word, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let containers: Vec<Value> = pod["spec"]["containers"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|container| {
                json!({
                    "name": container["name"], "image": container["image"], "imageID": "", "ready": is_running,
                    "restartCount": 0, "started": is_running, "state": state,
                })
            })
            .collect();
        let body = json!({"status": {
            "phase": phase, "hostIP": "10.0.0.1", "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}],
            "startTime": "2026-01-01T00:00:00Z", "containerStatuses": containers,
            "conditions": [condition("Initialized"), condition("ContainersReady"), condition("Ready")],
        }});
        self.phys.server.call("kubelet", "PATCH", &format!("{place}/status"), STRATEGIC, Some(body));
    }
}

/// The name of the V pod.
pub(crate) fn virtual_name(twin: &Value) -> &str {
    twin["metadata"]["annotations"][annotations::VIRTUAL_POD_NAME].as_str().unwrap_or_default()
}

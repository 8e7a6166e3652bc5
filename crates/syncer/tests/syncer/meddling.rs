//! What strangers and tenants do to pods and their twins.

use std::sync::Arc;

use kubeocean_api::keys::{annotations, labels};
use kubeocean_model::leasing::SYNCER;
use kubeocean_model::naming::Origin;
use kubeocean_testkit::{Refusal, Right};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::kubelet::virtual_name;
use crate::pods::virtual_uid;
use crate::scene::{MOUNT, Scene, collection, text};

const STRATEGIC: Option<&str> = Some("application/strategic-merge-patch+json");

fn one_of(all: &[Arc<Value>], draw: u64) -> Option<&Arc<Value>> {
    all.get(usize::try_from(draw).unwrap_or_default() % all.len().max(1))
}

/// Whether it has the name that twins have by right. Who takes the other one, too, leaves none.
fn has_first_name(twin: &Value) -> bool {
    let origin = Origin::Object { namespace: "web", name: virtual_name(twin) };
    text(twin, "/metadata/name") == origin.physical_name().as_str()
}

impl Scene {
    /// Someone does something to a twin or a pod, or to what twins are made by.
    pub(crate) fn meddle(&self, draw: u64) {
        let (what, draw) = (draw % 12, draw / 12);
        match what {
            0..=6 => self.meddle_with_a_twin(what, draw),
            7 | 8 => self.change_a_pod(draw),
            9 => {
                let force = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
                if let Some(pod) = one_of(&self.virt.server.list("pods", Some("web")), draw) {
                    let place = format!("{}/{}", collection("pods", "web"), text(pod, "/metadata/name"));
                    self.virt.server.call("user", "DELETE", &place, None, Some(force));
                }
            }
            10 => {
                let refusal =
                    [Refusal::Quota, Refusal::Denied, Refusal::Broken][usize::try_from(draw % 3).unwrap()];
                let what = ["pods", "configmaps", "secrets"][usize::try_from(draw / 3 % 3).unwrap()];
                let verb = ["create", "update"][usize::try_from(draw / 9 % 2).unwrap()];
                self.phys.server.refuse(SYNCER, Right::to(verb, what).within(MOUNT), refusal);
            }
            _ => self.phys.server.accept(SYNCER),
        }
    }

    fn meddle_with_a_twin(&self, what: u64, draw: u64) {
        let mut twins = self.ours_in_p("pods");
        twins.retain(|twin| !virtual_uid(twin).is_empty() && has_first_name(twin));
        let Some(twin) = one_of(&twins, draw) else { return };
        let name = text(twin, "/metadata/name");
        let write = |map: &str, key: &str, value: Value| {
            self.patch(&self.phys, "pods", MOUNT, name, json!({"metadata": {map: {key: value}}}));
        };
        match what {
            0..=2 => {
                let uid = text(twin, "/metadata/uid").to_owned();
                self.restamped.lock().insert(uid, Instant::now());
                if what < 2 {
                    write("labels", labels::VIRTUAL_CLUSTER_UID, "another".into());
                }
                let binding = if what == 0 { "another".into() } else { Value::Null };
                // One stamp of two is not ours either.
                if what != 1 {
                    write("labels", labels::BINDING_UID, binding);
                }
            }
            3 => write("annotations", annotations::VIRTUAL_POD_UID, "forged".into()),
            4 => write("annotations", annotations::VIRTUAL_POD_NAME, "forged".into()),
            _ => {
                self.remove(&self.phys, "pods", MOUNT, name);
                let mut again = json!({"metadata": {"name": name}, "spec": twin["spec"]});
                if what == 5 {
                    // As it was, by other hands.
                    again["metadata"]["labels"] = twin["metadata"]["labels"].clone();
                    again["metadata"]["annotations"] = twin["metadata"]["annotations"].clone();
                }
                self.make(&self.phys, "pods", MOUNT, again);
            }
        }
    }

    /// Its owner writes on a pod.
    fn change_a_pod(&self, draw: u64) {
        let pods = self.virt.server.list("pods", Some("web"));
        let Some(pod) = one_of(&pods, draw) else { return };
        let word = (draw >> 8 & 3).to_string();
        let body = match draw >> 10 & 3 {
            0 => json!({"metadata": {"labels": {"tier": word}}}),
            1 => {
                json!({"metadata": {"annotations": {"note": word, annotations::PHYSICAL_POD_UID: "forged"}}})
            }
            2 => json!({"metadata": {"labels": {"tier": null}}}),
            _ => json!({"spec": {"containers": [{"name": "c", "image": format!("i:{word}")}]}}),
        };
        let place = format!("{}/{}", collection("pods", "web"), text(pod, "/metadata/name"));
        self.virt.server.call("user", "PATCH", &place, STRATEGIC, Some(body));
    }
}

//! What a syncer promises of pods and of what it copies for them, held to after every commit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kubeocean_api::keys::{TRUE, annotations, labels};
use kubeocean_model::leasing::SYNCER;
use kubeocean_model::project::{self, Referent};
use kubeocean_model::quantity::Quantity;
use kubeocean_model::reclaim::VirtualPod;
use kubeocean_testkit::{Commit, Verb};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use crate::pods::virtual_uid;
use crate::scene::{MOUNT, Scene, label, object, text};

const USED: &str = "nothing is copied that no pod refers to";
const ONCE: &str = "a pod that may run once has one twin, ever";
const ROOM: &str = "nobody is let in for whom there is no room";

/// What was offered so long ago may be what the syncer knows: it may not hear of V for a while.
const STALE: Duration = Duration::from_secs(300);

/// What a copy is the copy of: kind, namespace, name.
type Original = (&'static str, String, String);

/// What V ever said.
#[derive(Default)]
struct Said {
    /// To what pods referred.
    references: BTreeSet<Original>,
    /// When pods were made, by uid.
    pods: BTreeMap<String, Instant>,
    /// The processors that virtual nodes offered, and since when.
    offers: BTreeMap<String, Vec<(Instant, Quantity)>>,
}

/// To what a pod refers.
pub(crate) fn references(pod: &Value) -> Vec<Original> {
    let read = VirtualPod::read(object(pod));
    let Ok(needs) = project::needs(&read) else { return Vec::new() };
    let original = |(referent, name): &(Referent, String)| {
        let plural = match referent {
            Referent::ConfigMap => "configmaps",
            Referent::Secret => "secrets",
            Referent::Claim => return None,
        };
        Some((plural, read.meta.namespace.to_string(), name.clone()))
    };
    needs.references.keys().filter_map(original).collect()
}

/// What a copy is the copy of, if it is one of those that pods refer to.
pub(crate) fn original_of(plural: &str, copy: &Value) -> Option<Original> {
    let plural = ["configmaps", "secrets"].into_iter().find(|one| *one == plural)?;
    let is_other =
        [labels::USED_BY_PV, labels::SERVICE_ACCOUNT_TOKEN].iter().any(|key| label(copy, key) == TRUE);
    let said = |key: &str| copy["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned();
    (!is_other).then(|| (plural, said(annotations::VIRTUAL_NAMESPACE), said(annotations::VIRTUAL_NAME)))
}

fn cpu(object: &Value) -> Quantity {
    VirtualPod::read(self::object(object)).requests.get("cpu")
}

impl Said {
    fn follow(&mut self, commit: &Commit) {
        let Some(new) = commit.new.as_deref() else { return };
        match commit.plural.as_str() {
            "pods" => {
                self.references.extend(references(new));
                self.pods.entry(text(new, "/metadata/uid").to_owned()).or_insert_with(Instant::now);
            }
            "nodes" => {
                let offer = text(new, "/status/allocatable/cpu").parse().unwrap_or_default();
                let offers = self.offers.entry(commit.name.clone()).or_default();
                if offers.last().is_none_or(|(_, last)| *last != offer) {
                    offers.push((Instant::now(), offer));
                }
            }
            _ => {}
        }
    }

    /// The most that a node offered since then.
    fn most(&self, vnode: &str, since: Instant) -> Quantity {
        let Some(offers) = self.offers.get(vnode) else { return Quantity::default() };
        let ended = |index: usize| offers.get(index + 1).map(|(at, _)| *at);
        let counts =
            |(index, _): &(usize, &(Instant, Quantity))| ended(*index).is_none_or(|at| at + STALE >= since);
        offers.iter().enumerate().filter(counts).map(|(_, (_, offer))| *offer).max().unwrap_or_default()
    }
}

impl Scene {
    /// What must hold of all that the syncer makes in the worker cluster.
    pub(crate) fn promises(&self) {
        let oracle = &self.world.oracle;
        let said: Arc<Mutex<Said>> = Arc::default();
        let heard = Arc::clone(&said);
        oracle.always("V", &self.virt.server, USED, move |commit| {
            heard.lock().follow(commit);
            Ok(())
        });
        let heard = Arc::clone(&said);
        oracle.always("P", &self.phys.server, USED, move |commit| {
            let is_made = commit.verb == Verb::Create && commit.actor == SYNCER;
            let Some(new) = commit.new.as_deref().filter(|_| is_made) else { return Ok(()) };
            match original_of(&commit.plural, new) {
                Some(original) if !heard.lock().references.contains(&original) => {
                    Err(format!("nobody refers to {original:?}"))
                }
                _ => Ok(()),
            }
        });
        let restored = Arc::clone(&self.restored);
        let mut twins: BTreeMap<String, u32> = BTreeMap::new();
        oracle.always("P", &self.phys.server, ONCE, move |commit| {
            let Some(twin) = made_twin(commit) else { return Ok(()) };
            if text(twin, "/spec/restartPolicy") == "Always" {
                return Ok(());
            }
            let count = twins.entry(virtual_uid(twin).to_owned()).or_default();
            *count += 1;
            // A restored etcd may have forgotten that the pod was about to run.
            if *count > 1 && !restored.load(Ordering::Relaxed) {
                return Err(format!("twin {} is the {count}th of its pod", commit.name));
            }
            Ok(())
        });
        let (virt, phys) = (self.virt.server.clone(), self.phys.server.clone());
        oracle.always("P", &self.phys.server, ROOM, move |commit| {
            let Some(twin) = made_twin(commit) else { return Ok(()) };
            let pods = virt.list("pods", None);
            let has_ended = |one: &Value| matches!(text(one, "/status/phase"), "Succeeded" | "Failed");
            let pod_of =
                |twin: &Value| pods.iter().find(|pod| text(pod, "/metadata/uid") == virtual_uid(twin));
            let Some(pod) = pod_of(twin) else { return Ok(()) };
            let vnode = text(pod, "/spec/nodeName");
            let counts = |twin: &&Arc<Value>| {
                !has_ended(twin)
                    && !label(twin, labels::BINDING_UID).is_empty()
                    && pod_of(twin).is_some_and(|pod| text(pod, "/spec/nodeName") == vnode && !has_ended(pod))
            };
            let all = phys.list_at(commit.revision, "pods", Some(MOUNT));
            let used = all.iter().filter(counts).fold(Quantity::default(), |sum, twin| sum + cpu(twin));
            let said = said.lock();
            let Some(since) = said.pods.get(virtual_uid(twin)) else { return Ok(()) };
            let offered = said.most(vnode, *since);
            if used > offered {
                return Err(format!("{used} processors are asked of {vnode}, which offered {offered}"));
            }
            Ok(())
        });
    }

    /// Copies that no pod refers to which runs or may run yet.
    pub(crate) fn unused_copies(&self) -> Result<(), String> {
        let twins = self.ours_in_p("pods");
        let has_ended = |pod: &Value| matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        let has_twin = |pod: &Value| twins.iter().any(|twin| virtual_uid(twin) == text(pod, "/metadata/uid"));
        let mut used = BTreeSet::new();
        for pod in self.virt.server.list("pods", None) {
            if !has_ended(&pod) || has_twin(&pod) {
                used.extend(references(&pod));
            }
        }
        for plural in ["configmaps", "secrets"] {
            for copy in self.ours_in_p(plural) {
                if let Some(original) = original_of(plural, &copy).filter(|original| !used.contains(original))
                {
                    return Err(format!("there is a copy of {original:?}, to which no pod refers"));
                }
            }
        }
        Ok(())
    }
}

/// The twin that the syncer made, if it did.
fn made_twin(commit: &Commit) -> Option<&Value> {
    let is_made = commit.plural == "pods" && commit.verb == Verb::Create && commit.actor == SYNCER;
    commit.new.as_deref().filter(|new| is_made && !virtual_uid(new).is_empty())
}

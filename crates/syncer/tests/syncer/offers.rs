//! No node offers more than its policies allow, nor more than others leave: at every commit.
//!
//! A syncer acts on what it has heard, by several watches that are not of one moment. So each bound by itself is the most generous one
//! that was true lately; in a world where nothing is late, that is the one of now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kubeocean_api::keys::labels;
use kubeocean_model::bind::BindingObject;
use kubeocean_model::binding::Binding;
use kubeocean_model::lease::{Candidate, Explanation, Ledger, Policies, WorkerPolicies};
use kubeocean_model::leasing::SYNCER;
use kubeocean_model::policies::SeenPolicy;
use kubeocean_model::quantity::Quantity;
use kubeocean_model::requests;
use kubeocean_model::resources::Resources;
use kubeocean_model::vnode::{PhysicalNode, VirtualNode};
use kubeocean_model::window::Zone;
use kubeocean_testkit::simulation::Site;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::scene::{BINDING, Scene, label, object, text};

const WITHIN_BOUNDS: &str = "no node offers more than its policies allow and others leave";

/// What was true of one node from a moment on.
struct Bounds {
    since: Instant,
    /// What it has.
    base: Resources,
    /// What others use.
    used: Resources,
    /// What the lender's policies would allow if nobody used anything.
    lender: Resources,
    /// The borrower's.
    borrower: Resources,
}

#[derive(Default)]
struct History {
    of: BTreeMap<String, Vec<Bounds>>,
    binding: Option<Binding>,
}

impl Scene {
    pub(crate) fn rules_of_offers(&self, lag: Duration) {
        let history: Arc<Mutex<History>> = Arc::default();
        for site in [&self.phys, &self.virt] {
            let (virt, phys, history) = (self.virt.clone(), self.phys.clone(), Arc::clone(&history));
            let on_p = site.name == "P";
            self.world.oracle.always(site.name, &site.server, WITHIN_BOUNDS, move |commit| {
                let matters = match &*commit.plural {
                    "resourceleasingpolicies" => commit.actor != SYNCER,
                    "nodes" | "pods" => on_p,
                    "clusterbindings" => commit.actor != SYNCER && !on_p,
                    _ => false,
                };
                if matters {
                    history.lock().note(&virt, &phys);
                }
                Ok(())
            });
        }
        let restored = Arc::clone(&self.restored);
        self.world.oracle.always("V", &self.virt.server, WITHIN_BOUNDS, move |commit| {
            let new = commit.new.as_deref().filter(|_| commit.plural == "nodes" && commit.actor == SYNCER);
            let Some(new) = new.filter(|_| !restored.load(Ordering::Relaxed)) else { return Ok(()) };
            let before = commit.old.as_deref().map(|old| &old["status"]["allocatable"]);
            if before == Some(&new["status"]["allocatable"]) {
                return Ok(());
            }
            let node = VirtualNode::read(&object(new)).physical_name;
            let history = history.lock();
            for (resource, offered) in new["status"]["allocatable"].as_object().into_iter().flatten() {
                let offered: Quantity = offered.as_str().unwrap_or_default().parse().unwrap();
                let (left, lender, borrower) = history.most(&node, resource, lag);
                if offered > left || offered > lender || offered > borrower {
                    return Err(format!(
                        "{node} offers {offered} {resource}: others leave {left}, its lender allows {lender}, its borrower {borrower}"
                    ));
                }
            }
            Ok(())
        });
    }
}

impl History {
    /// Notes what is true now.
    fn note(&mut self, virt: &Site, phys: &Site) {
        if let Some(binding) = virt.server.get("clusterbindings", "", BINDING) {
            self.binding = BindingObject::read(&object(&binding)).parsed.ok();
        }
        let Some(binding) = &self.binding else { return };
        let read = |site: &Site| -> Vec<Candidate> {
            let all = site.server.list("resourceleasingpolicies", None);
            all.iter().map(|one| SeenPolicy::read(&object(one), &Zone::utc()).candidate).collect()
        };
        let served = phys.server.list("customresourcedefinitions", None).len() > 1;
        let lender = if served {
            WorkerPolicies::Served(read(phys))
        } else {
            WorkerPolicies::Served(vec![anything()])
        };
        let lender = Policies { worker: lender, computing: Vec::new() };
        let worker =
            if served { WorkerPolicies::Served(vec![anything()]) } else { WorkerPolicies::NotServed };
        let borrower = Policies { worker, computing: read(virt) };
        let pods = phys.server.list("pods", None);
        for node in phys.server.list("nodes", None) {
            let Ok(node) = PhysicalNode::read(&object(&node)) else { continue };
            let theirs = pods.iter().filter(|pod| {
                text(pod, "/spec/nodeName") == node.node.name && label(pod, labels::BINDING_UID).is_empty()
            });
            let mut used = Resources::default();
            for pod in theirs {
                let status = pod["status"].to_string();
                used.add(&requests::of_pod(&pod["spec"].to_string(), Some(&status)).unwrap());
            }
            let allowed = |policies: &Policies| {
                let explanation =
                    Explanation::of(binding, policies, &node.node, &Ledger::default(), virt.server.now());
                explanation.lease().map(kubeocean_model::lease::Lease::offered).unwrap_or_default()
            };
            let bounds = Bounds {
                since: Instant::now(),
                base: node.node.base().clone(),
                used,
                lender: allowed(&lender),
                borrower: allowed(&borrower),
            };
            self.of.entry(node.node.name.clone()).or_default().push(bounds);
        }
    }

    /// What others left, and what the lender and the borrower allowed, at most, in the time that news may take.
    fn most(&self, node: &str, resource: &str, lag: Duration) -> (Quantity, Quantity, Quantity) {
        let known = self.of.get(node).map(Vec::as_slice).unwrap_or_default();
        // The last before that time was true at its beginning.
        let old = known.partition_point(|bounds| bounds.since.elapsed() > lag);
        let lately = || known[old.saturating_sub(1)..].iter();
        let most = |part: fn(&Bounds) -> &Resources| {
            lately().map(|bounds| part(bounds).get(resource)).max().unwrap_or_default()
        };
        let used = lately().map(|bounds| bounds.used.get(resource)).min().unwrap_or_default();
        let left = (most(|bounds| &bounds.base) - used).at_least_zero();
        (left, most(|bounds| &bounds.lender), most(|bounds| &bounds.borrower))
    }
}

/// A policy that sets no bounds.
fn anything() -> Candidate {
    let policy = json!({
        "metadata": {"name": "anything", "uid": "anything", "creationTimestamp": "2020-01-01T00:00:00Z"},
        "spec": {"cluster": BINDING},
    });
    SeenPolicy::read(&object(&policy), &Zone::utc()).candidate
}

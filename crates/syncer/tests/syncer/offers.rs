//! No node offers more than its policies allow, nor more than others leave: at every commit.
//!
//! A syncer acts on what it has heard, by several watches that are not of one moment. So each bound by itself is the most generous one
//! that was true lately; in a world where nothing is late, that is the one of now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kubeocean_api::keys::labels;
use kubeocean_model::action::kinds;
use kubeocean_model::bind::BindingObject;
use kubeocean_model::binding::Binding;
use kubeocean_model::lease::{Candidate, Explanation, Lease, Ledger, Node, Policies, WorkerPolicies};
use kubeocean_model::leasing::SYNCER;
use kubeocean_model::policies::SeenPolicy;
use kubeocean_model::quantity::Quantity;
use kubeocean_model::requests;
use kubeocean_model::resources::Resources;
use kubeocean_model::vnode::{PhysicalNode, VirtualNode};
use kubeocean_model::window::Zone;
use kubeocean_testkit::simulation::Site;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::scene::{BINDING, MOUNT, Scene, label, object, text};

const WITHIN_BOUNDS: &str = "no node offers more than its policies allow and others leave";

/// What was true from a moment on, the last first to be forgotten.
struct Lately<T>(Vec<(Instant, T)>);

impl<T> Default for Lately<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Lately<T> {
    fn note(&mut self, now: T) {
        self.0.push((Instant::now(), now));
    }

    /// What was true in this time. The last before it was true at its beginning.
    fn within(&self, lag: Duration) -> impl Iterator<Item = &T> {
        let old = self.0.partition_point(|(since, _)| since.elapsed() > lag);
        self.0[old.saturating_sub(1)..].iter().map(|(_, truth)| truth)
    }
}

/// What there is to know of one node.
#[derive(Default)]
struct Known {
    /// As it was last, if it is there.
    last: Option<Node>,
    /// What it has.
    base: Lately<Resources>,
    /// What others use of that.
    used: Lately<Resources>,
    /// What the lender's policies would allow if nobody used anything, and what the borrower's.
    allowed: Lately<(Resources, Resources)>,
}

#[derive(Default)]
struct History {
    lag: Duration,
    of: BTreeMap<String, Known>,
    /// The lender's and the borrower's policies, each as if there were no others.
    policies: Lately<(Policies, Policies)>,
    binding: Option<Binding>,
}

impl Scene {
    pub(crate) fn rules_of_offers(&self, lag: Duration) {
        let history = Arc::new(Mutex::new(History { lag, ..History::default() }));
        for site in [&self.phys, &self.virt] {
            let (virt, phys, history) = (self.virt.clone(), self.phys.clone(), Arc::clone(&history));
            let on_p = site.name == "P";
            self.world.oracle.always(site.name, &site.server, WITHIN_BOUNDS, move |commit| {
                let matters = match &*commit.plural {
                    "resourceleasingpolicies" => commit.actor != SYNCER,
                    "nodes" | "pods" | "customresourcedefinitions" => on_p,
                    "clusterbindings" => commit.actor != SYNCER && !on_p,
                    _ => false,
                };
                if matters {
                    let is_node = on_p && commit.plural == "nodes";
                    history.lock().note(&virt, &phys, is_node.then_some(&commit.name));
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
                let (left, lender, borrower) = history.most(&node, resource);
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
    /// Notes what is true now; where only one node has changed, of that.
    fn note(&mut self, virt: &Site, phys: &Site, only: Option<&String>) {
        let mut is_another = false;
        if let Some(binding) = virt.server.get("clusterbindings", "", BINDING) {
            let asks = |binding: &Binding| (binding.uid.clone(), binding.selector.clone());
            let before = self.binding.as_ref().map(asks);
            // One that someone has misspelt is followed as it was.
            self.binding = BindingObject::read(&object(&binding)).parsed.ok().or(self.binding.take());
            is_another = before != self.binding.as_ref().map(asks);
        }
        let Some(binding) = self.binding.clone() else { return };
        let now = virt.server.now();
        let policies = policies(virt, phys);
        let mut are_new = self.policies.0.last().is_none_or(|(_, last)| *last != policies);
        if are_new {
            self.policies.note(policies);
        }
        are_new |= is_another;
        let nodes = if let Some(name) = only.filter(|_| !are_new) {
            phys.server.get("nodes", "", name).into_iter().collect()
        } else {
            self.note_usage(phys, &binding);
            phys.server.list("nodes", None)
        };
        let mut there = BTreeSet::new();
        for node in nodes {
            let Ok(node) = PhysicalNode::read(&object(&node)) else { continue };
            let node = node.node;
            let known = self.of.entry(node.name.clone()).or_default();
            known.base.note(node.base().clone());
            there.insert(node.name.clone());
            let allowed = |policies: &Policies| {
                let explanation = Explanation::of(&binding, policies, &node, &Ledger::default(), now);
                explanation.lease().map(Lease::offered).unwrap_or_default()
            };
            // Who has heard of a node may not have heard yet which policies are no more.
            let is_new = known.last.as_ref() != Some(&node);
            let lag = if is_new { self.lag } else { Duration::ZERO };
            for (lender, borrower) in self.policies.within(lag).filter(|_| is_new || are_new) {
                known.allowed.note((allowed(lender), allowed(borrower)));
            }
            known.last = Some(node);
        }
        let concerns = |node: &String| only.is_none_or(|only| only == node || are_new);
        for (_, gone) in self.of.iter_mut().filter(|(node, _)| concerns(node) && !there.contains(*node)) {
            gone.last = None;
        }
    }

    /// Notes who uses what: pods may be on nodes that are not there, or not yet.
    fn note_usage(&mut self, phys: &Site, binding: &Binding) {
        let mut used: BTreeMap<String, Resources> = BTreeMap::new();
        let pods = phys.server.list("pods", None);
        for pod in pods.iter().filter(|pod| !is_ours(pod, &binding.uid)) {
            let status = pod["status"].to_string();
            let requests = requests::of_pod(&pod["spec"].to_string(), Some(&status)).unwrap();
            used.entry(text(pod, "/spec/nodeName").to_owned()).or_default().add(&requests);
        }
        let names: BTreeSet<String> = used.keys().chain(self.of.keys()).cloned().collect();
        for name in names {
            let known = self.of.entry(name.clone()).or_default();
            if known.used.0.is_empty() {
                known.used.note(Resources::default());
            }
            known.used.note(used.remove(&name).unwrap_or_default());
        }
    }

    /// What others left, and what the lender and the borrower allowed, at most, in the time that news may take.
    fn most(&self, node: &str, resource: &str) -> (Quantity, Quantity, Quantity) {
        let Some(known) = self.of.get(node) else { return Default::default() };
        let base = known.base.within(self.lag).map(|base| base.get(resource)).max();
        let used = known.used.within(self.lag).map(|used| used.get(resource)).min();
        let left = (base.unwrap_or_default() - used.unwrap_or_default()).at_least_zero();
        let lender = known.allowed.within(self.lag).map(|(lender, _)| lender.get(resource)).max();
        let borrower = known.allowed.within(self.lag).map(|(_, borrower)| borrower.get(resource)).max();
        (left, lender.unwrap_or_default(), borrower.unwrap_or_default())
    }
}

/// Whether a pod of the worker cluster is one of the binding with this uid. All others use what they use, also those of other borrowers.
pub(crate) fn is_ours(pod: &Value, uid: &str) -> bool {
    text(pod, "/metadata/namespace") == MOUNT && label(pod, labels::BINDING_UID) == uid
}

/// The lender's policies as if the borrower had none, and the other way round.
fn policies(virt: &Site, phys: &Site) -> (Policies, Policies) {
    let anyones = WorkerPolicies::Served(vec![anything()]);
    let (lender, worker) = match lenders_policies(phys) {
        Some(policies) => (WorkerPolicies::Served(policies), anyones),
        None => (anyones, WorkerPolicies::NotServed),
    };
    (Policies { worker: lender, computing: Vec::new() }, Policies { worker, computing: candidates(virt) })
}

/// The policies of a cluster, as the model reads them.
pub(crate) fn candidates(site: &Site) -> Vec<Candidate> {
    let all = site.server.list("resourceleasingpolicies", None);
    all.iter().map(|one| SeenPolicy::read(&object(one), &Zone::utc()).candidate).collect()
}

/// The lender's policies; none where the worker cluster does not know what that is.
pub(crate) fn lenders_policies(phys: &Site) -> Option<Vec<Candidate>> {
    let definition = format!("{}.{}", kinds::POLICY.plural, kinds::POLICY.group);
    let served = phys.server.get("customresourcedefinitions", "", &definition).is_some();
    served.then(|| candidates(phys))
}

/// A policy that sets no bounds.
fn anything() -> Candidate {
    let policy = json!({
        "metadata": {"name": "anything", "uid": "anything", "creationTimestamp": "2020-01-01T00:00:00Z"},
        "spec": {"cluster": BINDING},
    });
    SeenPolicy::read(&object(&policy), &Zone::utc()).candidate
}

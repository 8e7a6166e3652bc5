//! What must hold after every commit, and what at rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubeocean_api::keys::names::NODE_LEASE_NAMESPACE;
use kubeocean_api::keys::{TRUE, annotations, finalizers, labels, taints};
use kubeocean_model::bind::BindingObject;
use kubeocean_model::binding::Binding;
use kubeocean_model::key::Side;
use kubeocean_model::lease::{Explanation, Ledger, Policies, User, WorkerPolicies};
use kubeocean_model::leasing::SYNCER;
use kubeocean_model::policies::SeenPolicy;
use kubeocean_model::reclaim::VirtualPod;
use kubeocean_model::requests;
use kubeocean_model::resources::Resources;
use kubeocean_model::vnode::{Demand, PhysicalNode, Tenure, VirtualNode};
use kubeocean_model::window::Zone;
use kubeocean_testkit::simulation::Site;
use kubeocean_testkit::{Commit, Verb};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::offers::{candidates, is_ours, lenders_policies};
use crate::residents::NODE_CONTROLLER;
use crate::scene::{BINDING, REST_WITHIN, Scene, is_deleting, label, minute, object, text};

const ONLY_OURS: &str = "nothing of others is touched";
const NODE_LAST: &str = "a virtual node goes after its pods, its Lease and its CSINode";
const NOT_EARLY: &str = "no pod is removed before its time";
pub(crate) const NOT_LATE: &str = "no pod is removed after its time";
const HONEST: &str = "no node is not ready without a cause in the worker";
const OWN_PORT: &str = "no two virtual nodes share a port";
const WITHIN_BASE: &str = "no node offers more than it has";

/// The syncer may have heard of it so late.
pub(crate) const LATELY: Duration = Duration::from_secs(600);

/// What each node remembered, and since when.
type Tenures = BTreeMap<String, Vec<(Timestamp, Tenure)>>;

/// By when a pod has to go, by each demand that does not spare it. Written here once more, so that a mistake of the planner's shows.
pub(crate) fn concerns(pod: &Value, tenure: &Tenure) -> impl Iterator<Item = Timestamp> {
    let tolerations = pod["spec"]["tolerations"].as_array();
    let is_tolerant = tolerations.into_iter().flatten().any(|one| {
        one["operator"] == "Exists"
            && one["key"].as_str().is_none_or(|key| key == taints::OUT_OF_TIME_WINDOWS_KEY)
            && one["effect"].as_str().is_none_or(|effect| effect == "NoExecute")
    });
    // What has ended stands in nobody's way, but that of a node that goes.
    let has_ended = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
    let spares = |demand: &Demand| {
        (demand.spares_the_tolerant && is_tolerant) || (has_ended && !demand.clears_the_node)
    };
    let demands: Vec<_> = tenure.demands().filter(|demand| !spares(demand)).collect();
    demands.into_iter().map(|demand| demand.deadline)
}

/// What a syncer writes in P that carries no stamp.
fn is_of_no_binding(commit: &Commit) -> bool {
    matches!(&*commit.plural, "resourceleasingpolicies" | "priorityclasses")
}

/// Whether it was made for one of these bindings, and was so before.
fn is_of(commit: &Commit, bindings: &BTreeSet<String>) -> bool {
    let versions = [commit.old.as_deref(), commit.new.as_deref()];
    versions.into_iter().flatten().all(|one| bindings.contains(label(one, labels::BINDING_UID)))
}

impl Scene {
    pub(crate) fn rules(&self) {
        let oracle = &self.world.oracle;
        let uids: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let known = Arc::clone(&uids);
        oracle.always("V", &self.virt.server, ONLY_OURS, move |commit| {
            if commit.plural == "clusterbindings" {
                let uid = commit.new.as_deref().map(|new| text(new, "/metadata/uid").to_owned());
                known.lock().extend(uid);
            }
            let Some(one) =
                commit.old.as_deref().or(commit.new.as_deref()).filter(|_| commit.actor == SYNCER)
            else {
                return Ok(());
            };
            let is_ours = known.lock().contains(label(one, labels::BINDING_UID));
            let fine = match &*commit.plural {
                "nodes" | "csinodes" | "leases" => is_ours,
                "pods" => text(one, "/spec/nodeName").starts_with("vnode-c1-"),
                // An eviction is counted on its budget.
                "clusterbindings" | "resourceleasingpolicies" | "events" | "poddisruptionbudgets" => true,
                _ => false,
            };
            if fine { Ok(()) } else { Err(format!("{} {}", commit.plural, commit.name)) }
        });
        for (name, site) in [("V", &self.virt), ("P", &self.phys)] {
            oracle.not_in_vain(name, &site.server, SYNCER);
        }
        for (name, site) in [("P", &self.phys), ("stranger", &self.stranger)] {
            let known = Arc::clone(&uids);
            oracle.always(name, &site.server, ONLY_OURS, move |commit| {
                let wrote = commit.actor == SYNCER;
                let fine = name == "P" && (is_of_no_binding(commit) || is_of(commit, &known.lock()));
                if wrote && !fine { Err(format!("{} {}", commit.plural, commit.name)) } else { Ok(()) }
            });
        }
        let (server, jumped) = (self.virt.server.clone(), Arc::clone(&self.jumped));
        let restored = Arc::clone(&self.restored);
        oracle.always("V", &self.virt.server, NODE_LAST, move |commit| {
            if commit.plural != "nodes" || commit.actor != SYNCER || commit.verb != Verb::Delete {
                return Ok(());
            }
            for plural in ["csinodes", "leases"] {
                let all = server.list_at(commit.revision, plural, None);
                // A restored etcd may bring it back between our last look and the node's end. It goes with its owner; at rest it is gone.
                let is_there = all.iter().any(|one| text(one, "/metadata/name") == &*commit.name);
                if is_there && !restored.load(Ordering::Relaxed) {
                    return Err(format!("its {plural} is still there"));
                }
            }
            let pods = server.list_at(commit.revision, "pods", None);
            for pod in pods.iter().filter(|pod| text(pod, "/spec/nodeName") == &*commit.name) {
                // Who binds a pod by hand to a node that is going may come between our last look and its end: nobody could prevent that.
                let history = server.history(0);
                let made = history.iter().find(|one| {
                    one.verb == Verb::Create
                        && one
                            .new
                            .as_deref()
                            .is_some_and(|new| new["metadata"]["uid"] == pod["metadata"]["uid"])
                });
                let is_late = made.is_some_and(|made| {
                    let node = server.list_at(made.revision, "nodes", None);
                    let node = node.iter().find(|one| text(one, "/metadata/name") == &*commit.name);
                    let left =
                        node.is_some_and(|node| VirtualNode::read(&object(node)).tenure.leaving.is_some());
                    let recently = commit.at.duration_since(made.at).abs() < SignedDuration::from_secs(60);
                    left && (recently || jumped.load(Ordering::Relaxed))
                });
                if !is_late {
                    return Err(format!("pod {} is still there", text(pod, "/metadata/name")));
                }
            }
            Ok(())
        });
        let (server, restored) = (self.virt.server.clone(), Arc::clone(&self.restored));
        oracle.always("V", &self.virt.server, OWN_PORT, move |commit| {
            let wrote =
                commit.plural == "nodes" && commit.actor == SYNCER && !restored.load(Ordering::Relaxed);
            let Some(port) =
                commit.new.as_deref().filter(|_| wrote).map(|new| label(new, labels::PROXIER_PORT))
            else {
                return Ok(());
            };
            let all = server.list_at(commit.revision, "nodes", None);
            let has_it = |one: &&Arc<Value>| {
                text(one, "/metadata/name") != &*commit.name && label(one, labels::PROXIER_PORT) == port
            };
            match all.iter().find(has_it) {
                Some(other) => Err(format!("{port}: {} and {}", commit.name, text(other, "/metadata/name"))),
                None => Ok(()),
            }
        });
        self.rules_of_reclaim();
        self.rules_of_truth();
        self.rules_of_twins();
    }

    /// Nodes say what is so.
    fn rules_of_truth(&self) {
        let oracle = &self.world.oracle;
        let most: Arc<Mutex<BTreeMap<String, Resources>>> = Arc::default();
        let had = Arc::clone(&most);
        oracle.always("P", &self.phys.server, WITHIN_BASE, move |commit| {
            let node = commit.new.as_deref().filter(|_| commit.plural == "nodes");
            let Some(Ok(node)) = node.map(|node| PhysicalNode::read(&object(node))) else { return Ok(()) };
            // What it once had may be offered until we hear that it has less.
            let mut had = had.lock();
            let had = had.entry(commit.name.clone()).or_default();
            for (resource, amount) in node.node.base().iter() {
                had.set(resource, had.get(resource).max(amount));
            }
            Ok(())
        });
        oracle.always("V", &self.virt.server, WITHIN_BASE, move |commit| {
            let Some(new) =
                commit.new.as_deref().filter(|_| commit.plural == "nodes" && commit.actor == SYNCER)
            else {
                return Ok(());
            };
            let most = most.lock();
            let base = most.get(&VirtualNode::read(&object(new)).physical_name).cloned().unwrap_or_default();
            for (resource, amount) in new["status"]["allocatable"].as_object().into_iter().flatten() {
                let amount = amount.as_str().unwrap_or_default().parse().unwrap();
                if base.get(resource) < amount {
                    return Err(format!("{}: {resource} {amount}", commit.name));
                }
            }
            Ok(())
        });
        // Also what a restored etcd has forgotten since.
        let unready: Arc<Mutex<BTreeMap<String, Instant>>> = Arc::default();
        let said = Arc::clone(&unready);
        oracle.always("P", &self.phys.server, HONEST, move |commit| {
            let states = [commit.old.as_deref(), commit.new.as_deref()];
            if commit.plural == "nodes" && states.into_iter().flatten().any(is_unready) {
                said.lock().insert(commit.name.clone(), Instant::now());
            }
            Ok(())
        });
        let (phys, heard) = (self.phys.clone(), Arc::clone(&self.heard));
        oracle.always("V", &self.virt.server, HONEST, move |commit| {
            let falls = commit.plural == "nodes"
                && commit.actor == SYNCER
                && commit.old.as_deref().is_some_and(is_ready);
            let Some(new) = commit.new.as_deref().filter(|new| falls && is_unready(new)) else {
                return Ok(());
            };
            if heard.lock().was_silent() {
                return Ok(());
            }
            let node = VirtualNode::read(&object(new)).physical_name;
            let lately = unready.lock().get(&node).is_some_and(|at| at.elapsed() <= LATELY);
            let is_so = phys.server.get("nodes", "", &node).is_some_and(|node| is_unready(&node));
            if lately || is_so { Ok(()) } else { Err(format!("{}: nobody said so", commit.name)) }
        });
    }

    /// V never has to say of a node that nobody hears of it: the worker cluster always answers here, and who renews Leases is back at once.
    pub(crate) fn no_node_is_ever_lost(&self) {
        self.world.oracle.always("V", &self.virt.server, HONEST, move |commit| {
            let lost = commit.plural == "nodes"
                && commit.actor == NODE_CONTROLLER
                && commit.old.as_deref().is_some_and(is_ready)
                && commit.new.as_deref().is_some_and(is_unready);
            if lost { Err(format!("{}: its Lease was not renewed in time", commit.name)) } else { Ok(()) }
        });
    }

    /// Pods go when their node's lease says so: when a demand's time was up while it stood. One that was called off before takes nobody.
    fn rules_of_reclaim(&self) {
        let oracle = &self.world.oracle;
        let (jumped, tenures) = (Arc::clone(&self.jumped), Mutex::new(Tenures::new()));
        let (server, restored) = (self.virt.server.clone(), Arc::clone(&self.restored));
        oracle.always("V", &self.virt.server, NOT_EARLY, move |commit| {
            if commit.plural == "nodes" {
                let tenure = commit.new.as_deref().map(|new| VirtualNode::read(&object(new)).tenure);
                let mut tenures = tenures.lock();
                let known = tenures.entry(commit.name.clone()).or_default();
                // Who takes away what a node remembers does not take back what it said.
                if tenure.as_ref().is_none_or(|tenure| !tenure.is_forgotten()) {
                    known.push((commit.at, tenure.unwrap_or_default()));
                }
            }
            let begins = commit.plural == "pods"
                && commit.actor == SYNCER
                && commit.old.as_deref().is_some_and(|old| !is_deleting(old))
                && (commit.verb == Verb::Delete || commit.new.as_deref().is_some_and(is_deleting));
            let Some(old) = commit.old.as_deref().filter(|_| begins) else { return Ok(()) };
            if jumped.load(Ordering::Relaxed) || label(old, labels::HOSTPORT_FAKE_POD) == TRUE {
                return Ok(());
            }
            let mut created: Timestamp = text(old, "/metadata/creationTimestamp").parse().unwrap();
            // What was said before a restore is acted upon until that is noticed.
            if restored.load(Ordering::Relaxed) {
                created = created.checked_sub(SignedDuration::try_from(LATELY).unwrap()).unwrap();
            }
            let tenures = tenures.lock();
            let known = tenures.get(text(old, "/spec/nodeName")).map(Vec::as_slice).unwrap_or_default();
            let ends = known.iter().skip(1).map(|(at, _)| *at).chain([commit.at]);
            let mut stood = known.iter().zip(ends).filter(|(_, end)| *end >= created);
            let is_guarded = label(old, "guarded") == "yes";
            let is_due = |tenure: &Tenure, end: Timestamp| {
                let mut deadlines = concerns(old, tenure);
                deadlines.any(|deadline| deadline <= end || is_guarded)
            };
            // What a restored etcd brought back was never committed.
            let node = server.get("nodes", "", text(old, "/spec/nodeName"));
            let last = node.map(|node| VirtualNode::read(&object(&node)).tenure).unwrap_or_default();
            let fine = stood.any(|((_, tenure), end)| is_due(tenure, end)) || is_due(&last, commit.at);
            if fine { Ok(()) } else { Err(format!("{}: {:?}", commit.name, known.last())) }
        });
    }

    /// Reports every pod that is still there a second after its time, for as long as it runs. A server that takes its time is given it:
    /// from the deadline, or from when that was first written, a notice and a removal are two requests, each with the one that it may
    /// have to wait for.
    pub(crate) async fn watch_the_deadlines(&self, latest: Duration, slow: Duration) {
        let allowed = Duration::from_secs(1) + (latest * 2 + slow) * 4;
        let server = &self.virt.server;
        let (mut seen, mut deadlines) = (None, Vec::new());
        let mut due: BTreeMap<String, Instant> = BTreeMap::new();
        loop {
            let mark = server.mark(&["pods", "nodes"]);
            if seen.replace(mark) != Some(mark) {
                deadlines = self.deadlines();
                due.retain(|uid, _| deadlines.iter().any(|(known, ..)| known == uid));
            }
            let now = self.clock.now();
            for (uid, name, deadline) in &deadlines {
                if *deadline > now {
                    due.remove(uid);
                    continue;
                }
                let since = *due.entry(uid.clone()).or_insert_with(Instant::now);
                if since.elapsed() > allowed {
                    self.late(format!("{name} is still there, {:?} after its time", since.elapsed()));
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The pods that have to go and have not begun to: uid, name, by when.
    fn deadlines(&self) -> Vec<(String, String, Timestamp)> {
        let mut all = Vec::new();
        for pod in self.virt.server.list("pods", None) {
            let node = self.virt.server.get("nodes", "", text(&pod, "/spec/nodeName"));
            // One that someone hid has to be found first.
            let node = node.filter(|node| label(node, labels::CLUSTER_BINDING) == BINDING);
            let tenure = node.map(|node| VirtualNode::read(&object(&node)).tenure).unwrap_or_default();
            let deadline = concerns(&pod, &tenure).min();
            // What has ended waits for its twin to go, which has ended, too.
            let has_ended = matches!(text(&pod, "/status/phase"), "Succeeded" | "Failed");
            let goes = !is_deleting(&pod) && !has_ended && label(&pod, labels::HOSTPORT_FAKE_POD) != TRUE;
            let place = |pointer: &str| text(&pod, pointer).to_owned();
            all.extend(
                deadline
                    .filter(|_| goes)
                    .map(|deadline| (place("/metadata/uid"), place("/metadata/name"), deadline)),
            );
        }
        all
    }

    /// What every node should offer, from the servers' own truth.
    fn truth(&self, binding: &Binding, node: &PhysicalNode) -> Explanation {
        let worker = match lenders_policies(&self.phys) {
            Some(policies) => WorkerPolicies::Served(policies),
            None => WorkerPolicies::NotServed,
        };
        let policies = Policies { worker, computing: candidates(&self.virt) };
        let mut ledger = Ledger::default();
        for pod in self.phys.server.list("pods", None) {
            if text(&pod, "/spec/nodeName") == node.node.name && !is_ours(&pod, &binding.uid) {
                let requests =
                    requests::of_pod(&pod["spec"].to_string(), Some(&pod["status"].to_string())).unwrap();
                ledger.put(text(&pod, "/metadata/uid"), User::Namespace("theirs".to_owned()), requests);
            }
        }
        Explanation::of(binding, &policies, &node.node, &ledger, self.clock.now())
    }

    /// What is wrong at rest.
    pub(crate) fn at_rest(&self) -> Result<(), String> {
        let server = &self.virt.server;
        let vnodes = server.list("nodes", None);
        let Some(binding) = server.get("clusterbindings", "", BINDING) else {
            let left = ["nodes", "leases", "csinodes", "pods"].map(|plural| server.list(plural, None).len());
            return if left == [0; 4] { Ok(()) } else { Err(format!("left: {left:?}")) };
        };
        if is_deleting(&binding) {
            return Err(format!("the binding is still being deleted: {}", binding["metadata"]["finalizers"]));
        }
        let parsed = BindingObject::read(&object(&binding)).parsed.map_err(|faults| format!("{faults:?}"))?;
        let mut expected = 0;
        let mut used: BTreeMap<(Side, String), i64> = BTreeMap::new();
        for physical in self.phys.server.list("nodes", None) {
            let physical = PhysicalNode::read(&object(&physical))?;
            let explanation = self.truth(&parsed, &physical);
            let vnode = vnodes.iter().map(|one| (one, VirtualNode::read(&object(one))));
            let vnode = vnode.into_iter().find(|(_, vnode)| vnode.physical_name == physical.node.name);
            match (explanation.lease(), vnode) {
                (None, None) => {}
                (None, Some((_, vnode))) => return Err(format!("{} should not be there", vnode.name())),
                (Some(_), None) => return Err(format!("{} has no virtual node", physical.node.name)),
                (Some(lease), Some((raw, vnode))) => {
                    expected += 1;
                    for (side, policy) in lease.winners.iter() {
                        *used.entry((side, policy.name.clone())).or_default() += 1;
                    }
                    let offered: BTreeMap<String, String> = lease
                        .offered()
                        .iter()
                        .map(|(resource, amount)| (resource.to_owned(), amount.to_string()))
                        .collect();
                    if vnode.allocatable != offered || vnode.capacity != offered {
                        return Err(format!(
                            "{} offers {:?} instead of {offered:?}",
                            vnode.name(),
                            vnode.allocatable
                        ));
                    }
                    self.vnode_at_rest(raw, &vnode, &physical, lease.active)?;
                    self.company_at_rest(vnode.name(), &physical.node.name, &parsed.uid)?;
                }
            }
        }
        if vnodes.len() != expected {
            return Err(format!("{} virtual nodes instead of {expected}", vnodes.len()));
        }
        self.pods_at_rest()?;
        self.twins_at_rest()?;
        self.claims_at_rest()?;
        self.services_at_rest()?;
        self.policies_at_rest(&parsed, &used)?;
        let pods = self.phys.server.list("pods", None);
        let lives = |pod: &&Arc<Value>| !["Succeeded", "Failed"].contains(&text(pod, "/status/phase"));
        let pods = pods.iter().filter(lives).filter(|pod| is_ours(pod, &parsed.uid)).count();
        if binding["status"]["pods"] != json!(pods) {
            return Err(format!("{} pods are counted, {pods} are there", binding["status"]["pods"]));
        }
        if binding["status"]["nodes"] != json!(expected) {
            return Err(format!("{} nodes are counted, {expected} are there", binding["status"]["nodes"]));
        }
        if !text(&binding, "/metadata/finalizers/0").contains(finalizers::CLUSTER_BINDING_SYNCER) {
            return Err("the finalizer is missing".to_owned());
        }
        Ok(())
    }

    fn vnode_at_rest(
        &self,
        raw: &Value,
        vnode: &VirtualNode,
        physical: &PhysicalNode,
        is_open: bool,
    ) -> Result<(), String> {
        let name = vnode.name();
        let has = |key: &str| vnode.taints.iter().any(|taint| taint["key"] == key);
        if vnode.tenure.leaving.is_some() || has(taints::VNODE_DELETING_KEY) || is_deleting(raw) {
            return Err(format!("{name} is leaving"));
        }
        if has(taints::OUT_OF_TIME_WINDOWS_KEY) == is_open {
            return Err(format!("{name}: open is {is_open}, and its taints are {:?}", vnode.taints));
        }
        if has(taints::WORKER_UNREACHABLE_KEY) {
            return Err(format!("{name} is said to be unreachable"));
        }
        if has(taints::PHYSICAL_NODE_UNSCHEDULABLE_KEY) != physical.unschedulable {
            return Err(format!("{name}: cordoned is {}", physical.unschedulable));
        }
        let ready = |conditions: &[Value]| {
            let ready = conditions.iter().find(|one| one["type"] == "Ready");
            ready.map(|one| [one["status"].clone(), one["reason"].clone()])
        };
        if ready(&vnode.conditions) != ready(&physical.conditions) {
            return Err(format!("{name}: {:?} instead of {:?}", vnode.conditions, physical.conditions));
        }
        for (key, value) in physical.node.labels.iter().filter(|(key, _)| !key.contains('/')) {
            if label(raw, key) != value {
                return Err(format!("{name}: label {key} is {}", label(raw, key)));
            }
        }
        let lease = self.virt.server.get("leases", NODE_LEASE_NAMESPACE, name);
        let renewed = lease.and_then(|lease| text(&lease, "/spec/renewTime").parse::<Timestamp>().ok());
        let age = renewed.map(|at| self.clock.now().duration_since(at));
        if age.is_none_or(|age| age.abs() > SignedDuration::try_from(self.renew_every * 2).unwrap()) {
            return Err(format!("{name} was renewed {age:?} ago"));
        }
        Ok(())
    }

    /// What is said of each policy is what is so: of itself, and of the nodes for which it counts.
    fn policies_at_rest(
        &self,
        binding: &Binding,
        used: &BTreeMap<(Side, String), i64>,
    ) -> Result<(), String> {
        let now = self.clock.now();
        for (site, side) in [(&self.virt, Side::Virtual), (&self.phys, Side::Physical)] {
            for raw in site.server.list("resourceleasingpolicies", None) {
                let policy = SeenPolicy::read(&object(&raw), &Zone::utc());
                if policy.binding() != binding.name {
                    continue;
                }
                let (name, status) = (&*policy.meta.name, &raw["status"]);
                let (phase, next) = match &policy.candidate {
                    Err(_) => ("Failed", None),
                    Ok(policy) if policy.schedule.active(now) => ("Active", policy.schedule.next_edge(now)),
                    Ok(policy) => ("Inactive", policy.schedule.next_edge(now)),
                };
                let next = next.map(|edge| edge.at.to_string());
                let said = (text(status, "/phase"), status["nextTransitionTime"].as_str());
                if said != (phase, next.as_deref()) {
                    return Err(format!(
                        "{side} policy {name} is said to be {said:?} instead of {phase} until {next:?}"
                    ));
                }
                let nodes = used.get(&(side, name.to_owned())).copied().unwrap_or_default();
                let own = policy.status.bindings.iter().find(|one| one.binding_uid == binding.uid);
                if own.map(|one| i64::from(one.nodes)) != Some(nodes) {
                    return Err(format!("{side} policy {name} counts for {nodes} nodes, and says {own:?}"));
                }
            }
        }
        Ok(())
    }

    /// Nobody is left who should be gone, and nobody was told to go who may stay.
    fn pods_at_rest(&self) -> Result<(), String> {
        let now = self.clock.now();
        for raw in self.virt.server.list("pods", None) {
            let pod = VirtualPod::read(object(&raw));
            let name = &pod.meta.name;
            if pod.meta.is_deleting() {
                return Err(format!("pod {name} is ending for ever"));
            }
            let Some(node) = self.virt.server.get("nodes", "", &pod.node) else {
                return Err(format!("pod {name} is on {}, which is gone", pod.node));
            };
            if pod.is_placeholder() {
                continue;
            }
            let tenure = VirtualNode::read(&object(&node)).tenure;
            let demand = concerns(&raw, &tenure).min();
            if demand.is_some_and(|deadline| deadline <= now) {
                return Err(format!("pod {name} should be gone since {demand:?}"));
            }
            let told = raw["metadata"]["annotations"][annotations::RECLAIM_AT].as_str().map(str::to_owned);
            if told != demand.map(|deadline| deadline.to_string()) {
                return Err(format!("pod {name} was told {told:?} instead of {demand:?}"));
            }
        }
        Ok(())
    }

    /// Calms everything, and waits for rest; then nothing but renewals is written.
    pub(crate) async fn comes_to_rest(&self) {
        self.virt.chaos.calm();
        self.phys.chaos.calm();
        self.stranger.chaos.calm();
        self.lead_astray(false);
        crate::misspelt::correct(self);
        self.stop_the_windows();
        let within = if self.restored.load(Ordering::Relaxed) { REST_WITHIN * 3 } else { REST_WITHIN };
        let oracle = &self.world.oracle;
        if !oracle.rest(within, || self.at_rest()).await {
            return;
        }
        tokio::time::sleep(Duration::from_secs(330)).await;
        let before: Vec<u64> = [&self.virt, &self.phys].map(|site| site.server.revision()).to_vec();
        tokio::time::sleep(Duration::from_secs(180)).await;
        let wrote = |site: &Site, since: u64| -> Vec<String> {
            let all = site.server.history(since);
            // Renewals of Leases and of tokens are all that time alone brings about.
            let renews = |one: &Commit| {
                let old = one.old.as_deref().filter(|_| one.plural == "secrets");
                one.plural == "leases"
                    || old.is_some_and(|old| label(old, labels::SERVICE_ACCOUNT_TOKEN) == TRUE)
                        && one.verb == Verb::Update
            };
            let ours = all.iter().filter(|one| one.actor == SYNCER && !renews(one));
            ours.map(|one| format!("{} {}", one.plural, one.name)).collect()
        };
        let written = [wrote(&self.virt, before[0]), wrote(&self.phys, before[1])].concat();
        if !written.is_empty() {
            oracle.report(kubeocean_testkit::oracle::QUIET, format!("written at rest: {written:?}"));
        }
        if let Err(what) = self.at_rest() {
            oracle.report(kubeocean_testkit::oracle::LIVENESS, format!("was at rest, and no more: {what}"));
        }
    }

    /// What has windows changes with the time, and is never at rest for long: they are opened for good, or closed for some hours.
    fn stop_the_windows(&self) {
        let now = self.clock.now();
        for site in [&self.virt, &self.phys] {
            for policy in site.server.list("resourceleasingpolicies", None) {
                if policy["spec"]["timeWindows"].is_null() {
                    continue;
                }
                let name = text(&policy, "/metadata/name");
                let closed = json!([{"start": minute(now, 300), "end": minute(now, 360)}]);
                let windows = if self.world.seed.is_multiple_of(2) { closed } else { Value::Null };
                let body = json!({"spec": {"timeWindows": windows}});
                self.patch(site, "resourceleasingpolicies", "", name, body);
            }
        }
    }
}

/// What a node says of itself, if it says anything.
fn readiness(node: &Value) -> Option<&str> {
    let conditions = node["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|one| one["type"] == "Ready")?["status"].as_str()
}

fn is_ready(node: &Value) -> bool {
    readiness(node) == Some("True")
}

fn is_unready(node: &Value) -> bool {
    readiness(node).is_some_and(|status| status != "True")
}

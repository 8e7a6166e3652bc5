//! When pods have to go, from what both servers were told and what time it is: every policy, node and binding as it was at each moment. What a
//! virtual node says of itself is not asked.
//!
//! A syncer hears late, and may miss what lasted only for a moment. So no pod may go that would not have to even if all of it had been heard in
//! the most eager way; and each has to go that would have to if all of it had been heard in the most patient one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubeocean_api::keys::annotations::{PHYSICAL_NODE_NAME, POLICY_DETAILS};
use kubeocean_api::keys::{TRUE, labels, taints};
use kubeocean_model::bind::BindingObject;
use kubeocean_model::binding::Binding;
use kubeocean_model::lease::{Explanation, Ledger, Policies, Policy, WorkerPolicies};
use kubeocean_model::leasing::SYNCER;
use kubeocean_model::selector::NodeSelector;
use kubeocean_model::vnode::PhysicalNode;
use kubeocean_testkit::simulation::Site;
use kubeocean_testkit::{Commit, Verb};
use parking_lot::Mutex;
use serde_json::Value;

use crate::offers::{candidates, lenders_policies};
use crate::scene::{BINDING, Scene, is_deleting, label, object, text};

const NOT_EARLY: &str = "no pod is removed before the time that its policies give it";

/// What a node that forgot its terms gives: nobody knows them.
const FORGOTTEN: i64 = 300;

/// A change of a node waits so long for more of them.
const CROWD: SignedDuration = SignedDuration::from_secs(1);

/// By whose policies a node is leased; `None`: by nobody's, or it is none.
type Counting = Option<(Option<Arc<Policy>>, Option<Arc<Policy>>)>;

/// What was so from a moment on.
#[derive(Clone, PartialEq)]
struct Truth {
    /// Each way in which it may be read: a binding that someone misspelt meant what it meant before, or the nodes that it has.
    readings: Vec<Counting>,
    /// The worker cluster has no such node.
    is_gone: bool,
    /// Its virtual node is to go, whoever leases it: someone deleted that, or the binding.
    has_to_go: bool,
}

/// One node, from the first moment on.
#[derive(Default)]
struct Course {
    known: Vec<(Timestamp, Truth)>,
    /// When someone last took away what its virtual node remembers.
    stripped: Option<Timestamp>,
}

/// How what may be read in two ways is read.
#[derive(Clone, Copy)]
enum Manner {
    /// In the way in which pods go first; whatever lasted for less than this may have been missed.
    Eager(SignedDuration),
    /// In the way in which they go last.
    Patient,
}

/// All that was ever so. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Courses(Arc<Mutex<History>>);

#[derive(Default)]
struct History {
    of: BTreeMap<String, Course>,
    binding: Option<Binding>,
}

/// By when, and whom that spares.
struct Due {
    at: Timestamp,
    spares_the_tolerant: bool,
    clears_the_node: bool,
}

impl Scene {
    pub(crate) fn rules_of_time(&self, lag: Duration) {
        for site in [&self.phys, &self.virt] {
            let (virt, phys, courses) = (self.virt.clone(), self.phys.clone(), self.courses.clone());
            let on_p = site.name == "P";
            self.world.oracle.always(site.name, &site.server, NOT_EARLY, move |commit| {
                courses.0.lock().hear(&virt, &phys, commit, on_p);
                Ok(())
            });
        }
        let (courses, server) = (self.courses.clone(), self.virt.server.clone());
        let (jumped, restored) = (Arc::clone(&self.jumped), Arc::clone(&self.restored));
        let lag = SignedDuration::try_from(lag).unwrap();
        self.world.oracle.always("V", &self.virt.server, NOT_EARLY, move |commit| {
            let begins = commit.plural == "pods"
                && commit.actor == SYNCER
                && commit.old.as_deref().is_some_and(|old| !is_deleting(old))
                && (commit.verb == Verb::Delete || commit.new.as_deref().is_some_and(is_deleting));
            let Some(pod) = commit.old.as_deref().filter(|_| begins) else { return Ok(()) };
            let is_excused = jumped.load(Ordering::Relaxed) || restored.load(Ordering::Relaxed);
            if is_excused || label(pod, labels::HOSTPORT_FAKE_POD) == TRUE {
                return Ok(());
            }
            let all = server.list_at(commit.revision, "nodes", None);
            let node = all.iter().find(|node| text(node, "/metadata/name") == text(pod, "/spec/nodeName"));
            let Some(node) = node.map(|node| behind(node)) else { return Ok(()) };
            let created: Timestamp = text(pod, "/metadata/creationTimestamp").parse().unwrap();
            let from = created.max(commit.at.checked_sub(lag).unwrap_or(created));
            let due = courses.0.lock().first(&node, pod, from, commit.at, lag);
            let is_guarded = label(pod, "guarded") == "yes";
            match due {
                Some(at) if is_guarded || at <= commit.at => Ok(()),
                Some(at) => Err(format!("{} on {node}, which may stay until {at}", commit.name)),
                None => Err(format!("{} on {node}, which may stay", commit.name)),
            }
        });
    }

    /// By when a pod on a virtual node has to go, at the latest.
    pub(crate) fn has_to_go_by(&self, pod: &Value, vnode: &Value) -> Option<Timestamp> {
        self.courses.0.lock().last(&behind(vnode), pod, self.virt.server.now())
    }
}

fn behind(vnode: &Value) -> String {
    let said = vnode["metadata"]["annotations"][PHYSICAL_NODE_NAME].as_str().map(str::to_owned);
    // Whoever takes that away does not take its name.
    said.unwrap_or_else(|| text(vnode, "/metadata/name").trim_start_matches("vnode-c1-").to_owned())
}

impl History {
    fn hear(&mut self, virt: &Site, phys: &Site, commit: &Commit, on_p: bool) {
        let only = match (&*commit.plural, on_p) {
            ("resourceleasingpolicies", _) | ("clusterbindings", false) if commit.actor != SYNCER => None,
            ("customresourcedefinitions", true) => None,
            ("nodes", true) => Some(commit.name.clone()),
            ("nodes", false) => {
                let node = commit.new.as_deref().or(commit.old.as_deref()).map(behind).unwrap_or_default();
                let forgets = |one: &Value| one["metadata"]["annotations"][POLICY_DETAILS].is_null();
                if commit.new.as_deref().is_some_and(forgets) {
                    self.of.entry(node.clone()).or_default().stripped = Some(virt.server.now());
                }
                let going = |one: Option<&Value>| one.is_some_and(is_deleting);
                if going(commit.old.as_deref()) == going(commit.new.as_deref()) {
                    return;
                }
                Some(node)
            }
            _ => return,
        };
        self.note(virt, phys, only.as_deref());
    }

    fn note(&mut self, virt: &Site, phys: &Site, only: Option<&str>) {
        let now = virt.server.now();
        let object_of_it = virt.server.get("clusterbindings", "", BINDING);
        let read = object_of_it.as_ref().map(|binding| BindingObject::read(&object(binding)));
        let mut is_misspelt = false;
        match read.map(|read| read.parsed) {
            Some(Ok(binding)) => {
                // Another one of that name begins anew.
                if self.binding.as_ref().is_some_and(|before| before.uid != binding.uid) {
                    self.of.clear();
                }
                self.binding = Some(binding);
            }
            Some(Err(_)) => is_misspelt = true,
            None => {}
        }
        let Some(binding) = self.binding.clone() else { return };
        let unbinds = object_of_it.is_none_or(|binding| is_deleting(&binding));
        let worker = match lenders_policies(phys) {
            Some(policies) => WorkerPolicies::Served(policies),
            None => WorkerPolicies::NotServed,
        };
        let policies = Policies { worker, computing: candidates(virt) };
        let mut bindings = vec![binding.clone()];
        if is_misspelt {
            bindings.push(Binding { selector: NodeSelector::default(), ..binding });
        }
        let vnodes = virt.server.list("nodes", None);
        let nodes = phys.server.list("nodes", None);
        let named = nodes.iter().map(|node| text(node, "/metadata/name").to_owned());
        let mut names: BTreeSet<String> = named.chain(self.of.keys().cloned()).collect();
        names.retain(|name| only.is_none_or(|only| only == name));
        for name in names {
            let node = nodes.iter().find(|node| text(node, "/metadata/name") == name);
            let is_gone = node.is_none();
            let has_to_go = unbinds || vnodes.iter().any(|vnode| behind(vnode) == name && is_deleting(vnode));
            let mut readings = Vec::new();
            if let Some(node) = node {
                // One that cannot be read stays what it was.
                let Ok(node) = PhysicalNode::read(&object(node)) else { continue };
                for binding in &bindings {
                    let explained = Explanation::of(binding, &policies, &node.node, &Ledger::default(), now);
                    let winners = explained.lease().map(|lease| &lease.winners);
                    readings.push(winners.map(|all| (all.worker().cloned(), all.computing().cloned())));
                }
            }
            let truth = Truth { readings, is_gone, has_to_go };
            let known = &mut self.of.entry(name).or_default().known;
            if known.last().is_none_or(|(_, last)| *last != truth) {
                known.push((now, truth));
            }
        }
    }

    /// When a pod has to go at the earliest, by anything that was so in this time.
    fn first(
        &self,
        node: &str,
        pod: &Value,
        from: Timestamp,
        now: Timestamp,
        lag: SignedDuration,
    ) -> Option<Timestamp> {
        let course = self.of.get(node)?;
        let mut all = Vec::new();
        for (index, (since, truth)) in course.known.iter().enumerate() {
            let until = course.known.get(index + 1).map_or(now, |(until, _)| *until);
            if until < from || *since > now {
                continue;
            }
            for reading in truth.ways() {
                // Windows may have opened and closed by the clock alone.
                let mut at = from.max(*since);
                let edges = |at: Timestamp| {
                    let policies = reading.iter().flat_map(|(lender, borrower)| [lender, borrower]);
                    policies
                        .flatten()
                        .filter_map(|policy| policy.schedule.next_edge(at))
                        .map(|edge| edge.at)
                        .min()
                };
                while let Some(edge) = edges(at).filter(|edge| *edge <= until) {
                    let before = edge.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(edge);
                    all.extend(course.dues(index, reading, before, Manner::Eager(lag)));
                    at = edge;
                }
                all.extend(course.dues(index, reading, until, Manner::Eager(lag)));
            }
        }
        all.iter().filter(|due| due.concerns(pod)).map(|due| due.at).min()
    }

    /// When a pod has to go at the latest, by what is so now.
    fn last(&self, node: &str, pod: &Value, now: Timestamp) -> Option<Timestamp> {
        let course = self.of.get(node)?;
        let index = course.known.len().checked_sub(1)?;
        let by = |reading: &Counting| {
            let dues = course.dues(index, reading, now, Manner::Patient);
            dues.iter().filter(|due| due.concerns(pod)).map(|due| due.at).min()
        };
        let all: Vec<_> = course.known[index].1.ways().iter().map(by).collect();
        // One reading by which it may stay is enough.
        all.into_iter().collect::<Option<Vec<_>>>()?.into_iter().max()
    }
}

impl Truth {
    fn ways(&self) -> &[Counting] {
        if self.is_gone { &[None] } else { &self.readings }
    }

    /// Whether a node may be leased, in any way of reading.
    fn is_leased(&self) -> bool {
        !self.is_gone && !self.has_to_go && self.readings.iter().any(Option::is_some)
    }
}

impl Course {
    /// All that is asked of pods at a moment, in one way of reading.
    fn dues(&self, index: usize, reading: &Counting, at: Timestamp, manner: Manner) -> Vec<Due> {
        let mut all = Vec::new();
        let (lender, borrower) = match reading {
            Some((lender, borrower)) => (lender.as_ref(), borrower.as_ref()),
            None => (None, None),
        };
        for (is_lenders, policy) in [(true, lender), (false, borrower)] {
            let Some(policy) = policy.filter(|policy| policy.force_reclaim && !policy.schedule.active(at))
            else {
                continue;
            };
            let closed = self.closed_since(index, is_lenders, &policy.name, at, manner);
            let at = after(closed, i64::try_from(policy.grace_seconds).unwrap_or(i64::MAX));
            all.push(Due { at, spares_the_tolerant: !is_lenders, clears_the_node: false });
        }
        let truth = &self.known[index].1;
        if reading.is_none() || truth.has_to_go {
            let at = self.leaves_by(index, manner);
            all.push(Due { at, spares_the_tolerant: false, clears_the_node: true });
        }
        all
    }

    /// Whether nobody may have noticed what was so.
    fn is_missed(&self, index: usize, now: usize, manner: Manner) -> bool {
        let Manner::Eager(lag) = manner else { return false };
        let ends = self.known.get(index + 1).map(|(ends, _)| *ends);
        index != now && ends.is_some_and(|ends| ends.duration_since(self.known[index].0) < lag)
    }

    /// Since when a policy that counts is closed: since its window closed, or since it counts.
    fn closed_since(
        &self,
        now: usize,
        is_lenders: bool,
        name: &str,
        at: Timestamp,
        manner: Manner,
    ) -> Timestamp {
        let mut until = at;
        for index in (0..=now).rev() {
            let (since, truth) = &self.known[index];
            if self.is_missed(index, now, manner) {
                until = *since;
                continue;
            }
            let counting = truth.ways().iter().flatten().filter_map(|(lender, borrower)| {
                if is_lenders { lender.as_ref() } else { borrower.as_ref() }
            });
            let same: Vec<_> = counting.clone().filter(|policy| policy.name == name).collect();
            let Some(policy) = same.first() else {
                // Who is leased again by the policy of before may have been remembered all the time.
                let may_be_remembered = matches!(manner, Manner::Eager(_)) && counting.count() == 0;
                if may_be_remembered {
                    until = *since;
                    continue;
                }
                return self.remembered(until, manner);
            };
            let just_before = until.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(until);
            if index != now && policy.schedule.active(just_before) {
                return self.remembered(until, manner);
            }
            if let Some(closed) = policy.schedule.last_closed(*since, until) {
                return self.remembered(closed, manner);
            }
            if policy.schedule.active(*since) {
                return self.remembered(until, manner);
            }
            until = *since;
        }
        self.remembered(until, manner)
    }

    /// A syncer that is born after someone took away what was remembered counts from then.
    fn remembered(&self, at: Timestamp, manner: Manner) -> Timestamp {
        match manner {
            Manner::Eager(_) => at,
            Manner::Patient => self.stripped.map_or(at, |stripped| stripped.max(at)),
        }
    }

    /// By when a node that goes is cleared.
    fn leaves_by(&self, now: usize, manner: Manner) -> Timestamp {
        if self.known[now].1.is_gone {
            let run = (0..=now)
                .rev()
                .take_while(|index| self.known[*index].1.is_gone || self.is_missed(*index, now, manner));
            return self.noticed(self.known[run.last().unwrap_or(now)].0, manner);
        }
        let run = (0..=now).rev().take_while(|index| {
            let truth = &self.known[*index].1;
            let may_be_unleased = match manner {
                Manner::Eager(_) => !truth.is_leased() || truth.readings.iter().any(Option::is_none),
                Manner::Patient => !truth.is_leased(),
            };
            may_be_unleased || self.is_missed(*index, now, manner)
        });
        let first = run.last().unwrap_or(now);
        let since = self.known[first].0;
        let graces = self.graces(first, now, manner);
        let forgotten = self.stripped.is_some_and(|_| matches!(manner, Manner::Patient));
        let grace = match manner {
            Manner::Eager(_) => graces.into_iter().min().unwrap_or_default(),
            Manner::Patient => {
                graces.into_iter().max().unwrap_or(FORGOTTEN).max(if forgotten { FORGOTTEN } else { 0 })
            }
        };
        after(self.noticed(self.remembered(since, manner), manner), grace)
    }

    fn noticed(&self, since: Timestamp, manner: Manner) -> Timestamp {
        match manner {
            Manner::Eager(_) => since,
            Manner::Patient => since.checked_add(CROWD).unwrap_or(since),
        }
    }

    /// The grace of the policies that may have counted last before a node was to go, or still do.
    fn graces(&self, first: usize, now: usize, manner: Manner) -> Vec<i64> {
        let mut all = Vec::new();
        let mut is_over = false;
        for index in (0..=now).rev() {
            let truth = &self.known[index].1;
            let of = |(lender, borrower): &(Option<Arc<Policy>>, Option<Arc<Policy>>)| {
                let policy = lender.as_ref().or(borrower.as_ref())?;
                i64::try_from(policy.grace_seconds).ok()
            };
            let graces: Vec<i64> = truth.ways().iter().flatten().filter_map(of).collect();
            if graces.is_empty() || (is_over && index < first) {
                continue;
            }
            // What counted for a moment only may have been missed, and what counted before it be what is remembered.
            is_over =
                index < first && !self.is_missed(index, now, manner) && matches!(manner, Manner::Patient);
            all.extend(graces);
        }
        all
    }
}

impl Due {
    fn concerns(&self, pod: &Value) -> bool {
        let tolerations = pod["spec"]["tolerations"].as_array();
        let is_tolerant = tolerations.into_iter().flatten().any(|one| {
            one["operator"] == "Exists"
                && one["key"].as_str().is_none_or(|key| key == taints::OUT_OF_TIME_WINDOWS_KEY)
                && one["effect"].as_str().is_none_or(|effect| effect == "NoExecute")
        });
        let has_ended = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        !((self.spares_the_tolerant && is_tolerant) || (has_ended && !self.clears_the_node))
    }
}

fn after(at: Timestamp, seconds: i64) -> Timestamp {
    at.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

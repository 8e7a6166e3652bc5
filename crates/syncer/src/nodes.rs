//! One node: gathers what is known of it, has it judged, and writes.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kubeocean_api::keys::names::NODE_LEASE_NAMESPACE;
use kubeocean_api::keys::{labels, reasons};
use kubeocean_cluster::apply::Outcome;
use kubeocean_cluster::queue::Verdict;
use kubeocean_cluster::reconcile::look_again;
use kubeocean_cluster::store::Entry;
use kubeocean_model::action::{Action, Verb, kinds};
use kubeocean_model::bind::{Leftover, Telling};
use kubeocean_model::binding::Binding;
use kubeocean_model::key::{Key, Physical, Side, Virtual};
use kubeocean_model::lease::{self, Explanation};
use kubeocean_model::naming::VnodeName;
use kubeocean_model::reclaim::VirtualPod;
use kubeocean_model::selector::NodeSelector;
use kubeocean_model::vnode::{self, Cause, Situation, Unkept, VirtualNode, Worker};
use kubeocean_model::{csinode, hostports};

use crate::seen::SeenVnode;
use crate::standing::Standing;
use crate::syncer::Syncer;
use crate::world::Duty;

/// Until it is known which ports are taken, nothing else is done.
const ASK_FOR_PORTS: Duration = Duration::from_secs(1);

/// While a node waits for pods that only the server knows of.
const LOOK_FOR_PODS: Duration = Duration::from_secs(5);

fn has_company(worker: &Worker, binding: &Binding, existing: &VirtualNode) -> bool {
    matches!(worker, Worker::Known) || (binding.is_deleting && existing.tenure.leaving.is_some())
}

impl Syncer {
    /// One round for one node.
    pub(crate) async fn look_at_node(&self, name: &Arc<str>) -> Verdict {
        let duty = Duty::Node(Arc::clone(name));
        if !self.reconciler.fences.is_open(&duty) {
            return Verdict::Blocked;
        }
        let Some(binding) = self.binding() else { return Verdict::Done };
        let now = self.reconciler.clock.now();
        // Before and after what is read of it: a list may come in between.
        let was_known = matches!(self.pulse.worker(), Worker::Known);
        let is_behind = self.pulse.is_behind();
        self.remind(&duty, self.timekeeping.due(name), now);
        let existing = self.world.vnode_of(name);
        let is_held_back = existing.is_none() && self.is_misspelt();
        let binding = self.as_it_was_for(existing.as_deref(), binding);
        let seen = self.world.nodes.get(&Key::<Physical>::cluster_scoped(&**name));
        let policies = self.policies.read();
        let node = seen.as_ref().and_then(|seen| seen.0.as_ref().ok()).map(|node| &node.node);
        let explained = |by: &lease::Policies| {
            node.map(|node| self.world.usage.with(name, |all| Explanation::of(&binding, by, node, all, now)))
        };
        let explanation = explained(&policies.all);
        let remaining = node.map(|node| self.world.usage.with(name, |all| all.remaining_of(node.base())));
        let worker = match self.pulse.worker() {
            Worker::Known if !was_known => Worker::NotKnown,
            worker => worker,
        };
        if matches!(worker, Worker::Known) {
            // One that cannot be read was looked at all the same.
            let explanation = explanation.as_ref().filter(|_| !is_held_back);
            let standing = seen.as_ref().map(|_| explanation.map(Standing::of).unwrap_or_default());
            self.note_standing(name, standing);
        }
        let existing = existing.as_deref().map(|seen| self.as_remembered(&seen.0));
        let existing = existing.as_deref();
        // A node that is leased goes on by what its lender said last, as long as nobody may read what he says now.
        let last_word = policies.last_word.as_ref().filter(|_| existing.is_some());
        let is_behind = is_behind || last_word.is_some() || is_held_back;
        let explanation = last_word.map_or(explanation, explained);
        let derived = self.name_of(&binding, name);
        let vnode = existing.map_or(derived.as_str(), VirtualNode::name);
        let (preferred, known) = (derived.preferred_port(), existing.and_then(VirtualNode::port));
        self.ports.refuse(self.world.port_conflicts());
        let Some(port) = self.ports.of(&self.subject.uid, vnode, preferred, known) else {
            return Verdict::Failed("no-port");
        };
        let occupants = self.world.pods_on(vnode);
        let holds = occupants.iter().filter(|pod| pod.0.holds_its_node(self.subject.maps(&pod.0, &binding)));
        let holds = holds.count();
        let goes = existing.is_some_and(|existing| existing.tenure.leaving.is_some()) && holds == 0;
        let unseen = match self.unseen_pods(&binding, vnode, goes).await {
            Ok(unseen) => unseen,
            Err(verdict) => return verdict,
        };
        let alone = (goes && unseen == 0) || existing.is_none();
        let belongings = match self.belongings(vnode, alone, goes).await {
            Ok(belongings) => belongings,
            Err(verdict) => return verdict,
        };
        let address = self.proxiers.address_of(vnode);
        let situation = Situation {
            binding: &binding,
            virtual_cluster: &self.subject.virtual_cluster,
            physical_name: name,
            worker,
            is_behind,
            node: seen.as_ref().map(|seen| seen.0.as_ref().map_err(String::as_str)),
            explanation: explanation.as_ref(),
            remaining: remaining.as_ref(),
            existing,
            occupants: holds + unseen,
            belongings: &belongings,
            name: vnode,
            port,
            address: address.as_deref(),
            settings: &self.vnode_settings(),
            now,
        };
        let decision = vnode::plan(&situation);
        self.remind(&duty, decision.again_at, now);
        let uid = match self.write_node(&duty, &situation, &decision).await {
            Ok(uid) => uid,
            Err(verdict) => return verdict,
        };
        let written_at = self.reconciler.clock.now();
        // An edge that nobody could act on is late until someone can.
        if matches!(worker, Worker::Known) || binding.is_deleting {
            self.timekeeping.looked(name, decision.again_at, written_at);
        }
        let since = existing.and_then(|existing| existing.tenure.demanded_since());
        self.timekeeping.reclaims(name, since, holds + unseen, written_at);
        self.tell_node(vnode, uid.as_deref(), &decision.events);
        if existing.is_none() && seen.is_none() {
            self.ports.release(&self.subject.uid, vnode);
        }
        // What goes needs no word of the worker cluster; what stays has whatever that says.
        let company = existing.filter(|existing| has_company(&worker, &binding, existing));
        if let Some(existing) = company.filter(|_| decision.actions.is_empty())
            && let Err(verdict) = self.keep_company(&duty, &binding, existing).await
        {
            return verdict;
        }
        // What the store has not heard of yet comes in time, or is gone by then.
        let again = look_again(decision.again_at, now);
        if unseen > 0 { again.at_most(LOOK_FOR_PODS) } else { again }
    }

    /// A stand-in for a binding that nobody can read selects all that it has; not what was no longer selected when that was still known.
    fn as_it_was_for(&self, existing: Option<&Entry<SeenVnode>>, binding: Binding) -> Binding {
        let leaving = existing.and_then(|seen| self.world.tenure_of(&seen.0)?.leaving);
        if leaving.is_some_and(|leaving| leaving.cause == Cause::NotSelected) && self.is_stood_in_for() {
            return Binding { selector: NodeSelector::nothing(), ..binding };
        }
        binding
    }

    /// Writes what was decided, and remembers the node's tenure. Gives the node's uid, if there is one.
    async fn write_node(
        &self,
        duty: &Duty,
        situation: &Situation<'_>,
        decision: &vnode::Decision,
    ) -> Result<Option<String>, Verdict> {
        let Situation { binding, physical_name, name: vnode, existing, .. } = *situation;
        let removes = |action: &Action| {
            matches!(action.verb, Verb::Delete { .. }) && [kinds::LEASE, kinds::NODE].contains(&action.kind)
        };
        let _ending = decision.actions.iter().any(removes).then(|| self.renewals.end(vnode));
        let mut uid = existing.map(|existing| existing.meta.uid.to_string());
        let mut version = None;
        let mut last: Option<String> = None;
        for action in &decision.actions {
            // What was written a moment ago is what this one is about: one whose answer is lost must not be written twice.
            let follows = last.as_ref().filter(|_| action.is_unversioned_patch_of(&kinds::NODE));
            let action = &follows.map_or_else(|| action.clone(), |last| action.clone().if_version(last));
            let outcome = self.reconciler.write(duty, action).await;
            match &outcome {
                Outcome::ExistsForeign if matches!(action.verb, Verb::Create { .. }) => {
                    if let Some(verdict) = self.show_stripped(duty, situation).await {
                        return Err(verdict);
                    }
                    // Another cluster's node has that name; ours gets the other one.
                    self.name_is_taken(binding, physical_name, &action.name);
                    return Err(Verdict::Failed("name-taken"));
                }
                Outcome::ExistsOurs(found)
                    if action.kind == kinds::NODE && vnode::is_hidden(&found.meta, binding) =>
                {
                    // Someone took the label away by which we find it.
                    let shown = self.reconciler.write(duty, &vnode::show(&found.meta, binding)).await;
                    return Err(shown.verdict());
                }
                Outcome::Done(written) if action.kind == kinds::NODE => {
                    uid = written.uid.clone().or(uid);
                    last.clone_from(&written.resource_version);
                    version = written.resource_version.as_deref().and_then(|version| version.parse().ok());
                    self.note_unkept(action, &written.answer);
                }
                _ => {}
            }
            if !outcome.fulfils(action) {
                self.complain(action, &outcome);
                return Err(outcome.verdict());
            }
        }
        if let (Some(tenure), Some(uid)) = (&decision.tenure, &uid) {
            self.world.note_tenure(vnode, uid, tenure.clone(), version);
        }
        Ok(uid)
    }

    /// Remembers what the computing cluster did not keep of what was written, for as long as this process lives: whatever it is, the next
    /// one asks anew.
    fn note_unkept(&self, action: &Action, answer: &serde_json::Value) {
        let mut settings = self.settings.lock();
        if settings.unkept.learn(Unkept::of(action, answer)) {
            let fields = settings.unkept.fields().collect::<Vec<_>>().join(", ");
            tracing::info!(
                fields,
                "the computing cluster does not keep these fields of nodes: they are left out"
            );
        }
    }

    /// A virtual node of ours may have been stripped of all that we know it by at a glance. What it was made for cannot be edited.
    async fn show_stripped(&self, duty: &Duty, situation: &Situation<'_>) -> Option<Verdict> {
        let found = self.virt.get(&kinds::NODE, &Key::cluster_scoped(situation.name)).await;
        let found = match found {
            Ok(found) => VirtualNode::read(&found?),
            Err(_) => return Some(Verdict::Failed("node-not-read")),
        };
        if !found.is_of(situation.binding, situation.physical_name) {
            return None;
        }
        if !vnode::is_hidden(&found.meta, situation.binding) {
            return Some(Verdict::Failed("not-seen-yet"));
        }
        let shown = self.reconciler.write(duty, &vnode::show(&found.meta, situation.binding)).await;
        Some(shown.verdict())
    }

    /// The `CSINode` and the placeholder pod of a virtual node.
    async fn keep_company(&self, duty: &Duty, binding: &Binding, vnode: &VirtualNode) -> Result<(), Verdict> {
        let leaves = vnode.tenure.leaving.is_some();
        let virtual_cluster = &*self.subject.virtual_cluster;
        let mut actions: Vec<Action> = Vec::new();
        if !leaves && self.world.physical_csi.progress().is_synced() {
            let on = Key::<Physical>::cluster_scoped(vnode.physical_name.as_str());
            let physical = self.world.physical_csi.get(&on);
            let existing = self.world.virtual_csi.get(&Key::cluster_scoped(vnode.name()));
            actions.extend(csinode::plan(
                binding,
                virtual_cluster,
                vnode,
                physical.as_deref().map(|seen| &seen.0),
                existing.as_deref().map(|seen| &seen.0),
            ));
        }
        let ports = if leaves { BTreeSet::new() } else { self.world.usage.ports(&vnode.physical_name) };
        let pods = self.world.pods_on(vnode.name());
        let placeholders: Vec<_> = pods.iter().map(|pod| &pod.0).filter(|pod| pod.is_placeholder()).collect();
        actions.extend(hostports::plan(binding, virtual_cluster, vnode, &ports, &placeholders));
        let mut all = Ok(());
        for action in &actions {
            let makes = matches!(action.verb, Verb::Create { .. });
            if let Some(wait) = self.makings.wait_for(action).filter(|_| makes) {
                all = Err(Verdict::Again(wait));
                continue;
            }
            let outcome = self.reconciler.write(duty, action).await;
            if makes && matches!(outcome, Outcome::Done(_)) {
                self.makings.made(action);
            }
            if !outcome.fulfils(action) {
                self.complain(action, &outcome);
                all = Err(outcome.verdict());
            }
        }
        all
    }

    /// The lease clock waits for nobody: whatever becomes of this look, there is one then.
    pub(crate) fn remind(&self, duty: &Duty, at: Option<Timestamp>, now: Timestamp) {
        if let Some(at) = at.filter(|at| *at > now)
            && let Verdict::Again(wait) = look_again(Some(at), now)
        {
            self.reconciler.queue.add_after(duty.clone(), wait);
        }
    }

    /// A virtual node with what it remembered, also if someone took that away: a grace period is not shorter for that.
    fn as_remembered<'a>(&self, vnode: &'a VirtualNode) -> Cow<'a, VirtualNode> {
        let Some(tenure) = self.world.tenure_of(vnode).filter(|tenure| *tenure != vnode.tenure) else {
            return Cow::Borrowed(vnode);
        };
        let mut vnode = vnode.clone();
        vnode.tenure = tenure;
        Cow::Owned(vnode)
    }

    /// Learns which ports are taken, before any is handed out: those of this binding's virtual nodes, and of all that are answered for at
    /// the same address. The server is asked, since a store knows neither what others have nor what someone has hidden.
    pub(crate) async fn learn_ports(&self) {
        // What was so in an earlier term may not be so any more.
        self.ports.forget(&self.subject.uid);
        // Those of older installations have no uid.
        self.ports.know(&self.subject.uid, self.world.vnodes.all().iter().map(|(_, vnode)| &vnode.0));
        let ours = format!("{}={}", labels::BINDING_UID, self.subject.uid);
        let selector = if self.proxiers.are_shared() { labels::BINDING_UID } else { &ours };
        loop {
            match self.virt.list(&kinds::NODE, None, Some(selector)).await {
                Ok(nodes) => {
                    let nodes: Vec<VirtualNode> = nodes.iter().map(VirtualNode::read).collect();
                    return self.ports.know(&self.subject.uid, nodes.iter());
                }
                Err(error) => {
                    tracing::warn!(binding = %self.subject.binding, %error, "which ports are taken is not known yet");
                    tokio::time::sleep(ASK_FOR_PORTS).await;
                }
            }
        }
    }

    /// What a node is called whose virtual node does not exist yet.
    fn name_of(&self, binding: &Binding, node: &str) -> VnodeName {
        let name = VnodeName::of(&binding.cluster_id, node);
        if self.taken.lock().contains(name.as_str()) {
            VnodeName::disambiguated(&binding.cluster_id, node)
        } else {
            name
        }
    }

    /// Someone else has the name that a virtual node should get: it gets the other one, and people hear of it once.
    fn name_is_taken(&self, binding: &Binding, node: &str, taken: &str) {
        self.ports.release(&self.subject.uid, taken);
        if !self.taken.lock().insert(taken.to_owned()) {
            return;
        }
        let Some(subject) = self.binding_subject() else { return };
        let other = VnodeName::disambiguated(&binding.cluster_id, node);
        let message = if other.as_str() == taken {
            format!("node `{node}` cannot be leased: Node `{taken}` is not of this binding; delete that Node")
        } else {
            format!(
                "node `{node}` is called `{other}` here, since another node has the name `{taken}`: rename one of the two nodes if \
                 that is not wanted"
            )
        };
        self.tell(&subject, &[Telling::event(true, reasons::Event::NameTaken, message)]);
    }

    /// How many pods stand in the way of a node that goes, by the server's own word. A store may be far behind, and the pods of a node
    /// that is gone are taken for lost by V.
    async fn unseen_pods(&self, binding: &Binding, vnode: &str, goes: bool) -> Result<usize, Verdict> {
        if !goes {
            return Ok(0);
        }
        let fields = format!("spec.nodeName={vnode}");
        let pods = self.virt.list_by_fields(&kinds::POD, None, &fields).await;
        let pods = pods.map_err(|_| Verdict::Failed("pods-not-read"))?;
        let holds = |pod: &VirtualPod| pod.holds_its_node(self.subject.maps(pod, binding));
        Ok(pods.into_iter().map(VirtualPod::read).filter(holds).count())
    }

    /// What goes with a virtual node that goes, or is left of one that is gone. Leases are not watched: each of them changes every ten
    /// seconds.
    async fn belongings(&self, vnode: &str, alone: bool, goes: bool) -> Result<Vec<Leftover>, Verdict> {
        let mut all = Vec::new();
        // What stays keeps what it has.
        if !alone {
            return Ok(all);
        }
        if let Some(seen) = self.world.virtual_csi.get(&Key::cluster_scoped(vnode)) {
            all.push(Leftover { kind: kinds::CSI_NODE, meta: seen.0.meta.clone() });
        }
        if goes {
            let key = Key::<Virtual>::new(NODE_LEASE_NAMESPACE, vnode);
            match self.virt.get(&kinds::LEASE, &key).await {
                Ok(Some(lease)) if lease.meta.labels.get(labels::BINDING_UID) == Some(&self.subject.uid) => {
                    all.push(Leftover { kind: kinds::LEASE, meta: lease.meta });
                }
                Ok(_) => {}
                Err(_) => return Err(Verdict::Failed("lease-not-read")),
            }
        }
        Ok(all)
    }

    fn note_standing(&self, name: &Arc<str>, standing: Option<Standing>) {
        let Some(changed) = self.standings.note(name, standing) else { return };
        // Many nodes change together: one word for all of them.
        for (side, policy) in changed.iter().flat_map(Standing::policies) {
            self.reconciler.queue.add_after(Duty::Policy(side, policy.into()), crate::syncer::WORDS_AFTER);
        }
        self.reconciler.queue.add_after(Duty::Binding, crate::syncer::WORDS_AFTER);
    }

    fn tell_node(&self, vnode: &str, uid: Option<&str>, events: &[Telling]) {
        let subject = kubeocean_cluster::events::Subject {
            kind: kinds::NODE,
            namespace: String::new(),
            name: vnode.to_owned(),
            uid: uid.unwrap_or_default().to_owned(),
        };
        self.tell(&subject, events);
    }

    /// A server that refuses what is right by our own lights is for people to hear of.
    pub(crate) fn complain(&self, action: &Action, outcome: &Outcome) {
        let creates = matches!(action.verb, Verb::Create { .. });
        let why = match outcome {
            Outcome::Invalid(status) | Outcome::Forbidden(status) => status.to_string(),
            Outcome::ExistsForeign if creates => "there is one that is not ours; delete it".to_owned(),
            Outcome::Gone if creates => {
                format!("there is no namespace {}; make it, or install everything again", action.namespace)
            }
            _ => return,
        };
        let Some(subject) = self.binding_subject() else { return };
        let side = match action.side {
            Side::Virtual => "computing",
            Side::Physical => "worker",
        };
        let fix = match (action.side, outcome) {
            (_, Outcome::Invalid(_)) if [kinds::POLICY, kinds::BINDING].contains(&action.kind) => {
                "; apply the CustomResourceDefinitions of this version there (kubeocean crds)"
            }
            (Side::Physical, Outcome::Forbidden(_)) => "; apply `kubeocean worker-manifest` there again",
            _ => "",
        };
        let message = format!(
            "the {side} cluster refuses to {} {} {}: {why}{fix}",
            action.verb.name(),
            action.resource(),
            action.name
        );
        let event = Telling::event(true, reasons::Event::WriteRefused, message);
        self.tell(&subject, &[event]);
    }
}

//! The life of a virtual node, step by step, as people read it: `tests/scripts/vnode.txt`. The file is written by
//! `UPDATE_GOLDEN=1 cargo test -p kubeocean-model`, and reviewed as a diff. After each step, the same plan again wants nothing.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubeocean_api::keys::{annotations, finalizers, labels, taints};
use kubeocean_model::action::{Action, Verb};
use kubeocean_model::binding::Binding;
use kubeocean_model::lease::{Explanation, Ledger, Policies, User, WorkerPolicies};
use kubeocean_model::naming::Port;
use kubeocean_model::object::Object;
use kubeocean_model::policies::SeenPolicy;
use kubeocean_model::reclaim::{self, Twin, VirtualPod};
use kubeocean_model::resources::Resources;
use kubeocean_model::selector::NodeSelector;
use kubeocean_model::vnode::{PhysicalNode, Settings, Situation, Tenure, Unkept, VirtualNode, Worker, plan};
use kubeocean_model::window::Zone;
use serde_json::{Value, json};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/vnode.txt");

/// One node of a worker cluster, what V has of it, and what time it is.
pub(crate) struct Life {
    pub(crate) text: String,
    binding: Binding,
    pub(crate) node: Option<Value>,
    pub(crate) policies: Vec<Value>,
    /// The borrower's policies.
    pub(crate) computing: Vec<Value>,
    /// Whether the worker cluster knows what policies are.
    pub(crate) is_served: bool,
    used: Vec<(&'static str, &'static str)>,
    worker: Worker,
    is_behind: bool,
    /// Whether the lender's policies may be read.
    is_readable: bool,
    pub(crate) vnode: Option<Value>,
    pub(crate) pods: Vec<Value>,
    pub(crate) now: Timestamp,
    version: u64,
    /// The worker's API server is 1.this.
    physical_minor: Option<u32>,
}

fn object(value: &Value) -> Object {
    Object::from_value(value.clone()).unwrap()
}

pub(crate) fn policy(spec: Value) -> Value {
    let mut spec = spec;
    spec["cluster"] = "w1".into();
    json!({
        "metadata": {"name": "nights", "uid": "p-1", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1},
        "spec": spec,
    })
}

impl Life {
    pub(crate) fn new() -> Self {
        Self {
            text: String::new(),
            binding: crate::binding(),
            node: Some(json!({
                "metadata": {"name": "n1", "uid": "n-1", "labels": {
                    "zone": "a", "kubernetes.io/hostname": "n1", "node-role.kubernetes.io/worker": "",
                }},
                "spec": {"taints": [
                    {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
                    {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
                ]},
                "status": {
                    "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fine"}],
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                    "nodeInfo": {"kubeletVersion": "v1.36.0"},
                    "declaredFeatures": ["ExtendWebSocketsToKubelet", "Other"],
                },
            })),
            policies: vec![policy(json!({}))],
            computing: Vec::new(),
            is_served: true,
            used: Vec::new(),
            worker: Worker::Known,
            is_behind: false,
            is_readable: true,
            physical_minor: Some(35),
            vnode: None,
            pods: Vec::new(),
            now: "2026-11-20T12:00:00Z".parse().unwrap(),
            version: 1,
        }
    }

    pub(crate) fn wait(&mut self, seconds: i64) {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    }

    fn decide(&self) -> (Vec<Action>, String) {
        let settings = Settings {
            closing_notice: Duration::from_secs(600),
            node_annotations: Vec::new(),
            physical_minor: self.physical_minor,
            unkept: Unkept::default(),
        };
        let node = self.node.as_ref().map(|node| PhysicalNode::read(&object(node)));
        let candidates = |policies: &[Value]| {
            policies.iter().map(|one| SeenPolicy::read(&object(one), &Zone::utc()).candidate).collect()
        };
        let worker = match (self.is_served, self.is_readable) {
            (true, true) => WorkerPolicies::Served(candidates(&self.policies)),
            (true, false) => WorkerPolicies::Unreadable,
            (false, _) => WorkerPolicies::NotServed,
        };
        let policies = Policies { worker, computing: candidates(&self.computing) };
        let mut ledger = Ledger::default();
        let used: Resources =
            self.used.iter().map(|(resource, amount)| (*resource, amount.parse().unwrap())).collect();
        ledger.put("theirs", User::Namespace("theirs".to_owned()), used);
        let base = node.as_ref().and_then(|node| node.as_ref().ok()).map(|node| node.node.base());
        let remaining = base.map(|base| ledger.remaining_of(base));
        let explanation = node
            .as_ref()
            .and_then(|node| node.as_ref().ok())
            .map(|node| Explanation::of(&self.binding, &policies, &node.node, &ledger, self.now));
        let existing = self.vnode.as_ref().map(|vnode| VirtualNode::read(&object(vnode)));
        let decision = plan(&Situation {
            binding: &self.binding,
            virtual_cluster: "v-1",
            physical_name: "n1",
            worker: self.worker,
            is_behind: self.is_behind,
            node: node.as_ref().map(|node| node.as_ref().map_err(String::as_str)),
            explanation: explanation.as_ref(),
            remaining: remaining.as_ref(),
            existing: existing.as_ref(),
            occupants: self.pods.len(),
            belongings: &[],
            name: "vnode-w1-n1",
            port: Port::new(20_000).unwrap(),
            address: Some("10.9.9.9"),
            settings: &settings,
            now: self.now,
        });
        let mut text = String::new();
        for event in &decision.events {
            let severity = if event.warning { "Warning" } else { "Normal" };
            writeln!(text, "event {severity} {}: {}", event.reason, event.message).unwrap();
        }
        if let Some(at) = decision.again_at {
            writeln!(text, "again at {at}").unwrap();
        }
        (decision.actions, text)
    }

    /// Plans, writes down what is to be written, and writes it, until there is nothing left to write.
    pub(crate) fn step(&mut self, title: &str) {
        writeln!(self.text, "# {title}").unwrap();
        for round in 0.. {
            assert!(round < 4, "{title}: it does not come to rest\n{}", self.text);
            let (actions, more) = self.decide();
            if actions.is_empty() {
                self.text.push_str(if round == 0 { "rest\n" } else { "" });
                self.text.push_str(if round == 0 { &more } else { "" });
                break;
            }
            for action in &actions {
                writeln!(self.text, "{action}").unwrap();
                self.write(action);
            }
            self.text.push_str(&more);
        }
        self.text.push('\n');
    }

    fn write(&mut self, action: &Action) {
        self.version += 1;
        match &action.verb {
            Verb::Create { body, .. } => {
                writeln!(self.text, "    {}", shown(body)).unwrap();
                let mut vnode = body.clone();
                vnode["metadata"]["name"] = "vnode-w1-n1".into();
                vnode["metadata"]["uid"] = "v-n-1".into();
                self.vnode = Some(vnode);
            }
            Verb::Patch { body, .. } => {
                writeln!(self.text, "    {}", shown(body)).unwrap();
                merge(self.vnode.as_mut().unwrap(), body);
            }
            Verb::Delete { .. } => self.vnode = None,
            _ => unreachable!("{action}"),
        }
        if let Some(vnode) = &mut self.vnode {
            vnode["metadata"]["resourceVersion"] = self.version.to_string().into();
        }
    }

    /// What becomes of a pod on it.
    pub(crate) fn pod(&mut self, title: &str, pod: &Value, has_budget: bool) {
        let vnode = VirtualNode::read(&object(self.vnode.as_ref().unwrap()));
        let pod = VirtualPod::read(object(pod));
        let decision = reclaim::plan(&reclaim::Situation {
            pod: &pod,
            tenure: Some(&vnode.tenure),
            is_mapped: pod.is_mapped(&self.binding, "kubeocean-system"),
            has_budget,
            twin: if pod.meta.is_deleting() { Twin::None } else { Twin::Lives },
            now: self.now,
        });
        writeln!(self.text, "## {title}").unwrap();
        for action in &decision.actions {
            writeln!(self.text, "{action}").unwrap();
            if let Verb::Patch { body, .. } = &action.verb {
                writeln!(self.text, "    {body}").unwrap();
            }
            if let Verb::Delete { grace, .. } = &action.verb {
                writeln!(self.text, "    grace {grace:?}").unwrap();
            }
        }
        if let Some(event) = &decision.event {
            writeln!(self.text, "event {}: {}", event.reason, event.message).unwrap();
        }
        if decision.actions.is_empty() {
            self.text.push_str("rest\n");
        }
        self.text.push('\n');
    }
}

/// Without what only repeats the rest.
fn shown(body: &Value) -> String {
    let mut body = body.clone();
    if let Some(annotations) = body.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(annotations::EXPECTED_METADATA);
    }
    body.to_string()
}

/// As an API server merges, as far as nodes need it.
fn merge(into: &mut Value, patch: &Value) {
    for (key, value) in patch.as_object().unwrap() {
        match (value, into.get_mut(key)) {
            (Value::Null, _) => drop(into.as_object_mut().unwrap().remove(key)),
            (Value::Object(_), Some(known @ Value::Object(_))) => merge(known, value),
            (Value::Array(items), Some(Value::Array(known))) if key == "conditions" => {
                for item in items {
                    known.retain(|one| one["type"] != item["type"]);
                    if item["$patch"] != "delete" {
                        known.push(item.clone());
                    }
                }
            }
            _ => into[key] = value.clone(),
        }
    }
}

pub(crate) fn pod(name: &str, more: &Value) -> Value {
    let mut pod = json!({
        "metadata": {"namespace": "web", "name": name, "uid": format!("u-{name}")},
        "spec": {"nodeName": "vnode-w1-n1", "terminationGracePeriodSeconds": 300},
        "status": {"phase": "Running"},
    });
    merge(&mut pod, more);
    pod
}

fn offers(life: &mut Life) {
    life.step("the node is leased");
    life.used = vec![("cpu", "3")];
    life.step("others use three cores: at once");
    life.wait(3);
    life.used = vec![("cpu", "1")];
    life.step("they use only one: that can wait for ten seconds");
    life.wait(7);
    life.step("and now it is time");
    let vnode = life.vnode.as_mut().unwrap();
    merge(vnode, &json!({"metadata": {"labels": {"mine": "yes"}}, "spec": {"unschedulable": true}}));
    vnode["spec"]["taints"].as_array_mut().unwrap().push(json!({"key": "mine", "effect": "NoSchedule"}));
    life.step("someone labels, taints and cordons the virtual node: that is theirs");
    merge(
        life.node.as_mut().unwrap(),
        &json!({
            "metadata": {"labels": {"zone": "b", "mine": "no", "new": "1"}}, "spec": {"unschedulable": true, "taints": []},
        }),
    );
    life.step("the node gets other labels, loses its taint, and is cordoned");
    let not_ready = json!([{"type": "Ready", "status": "False", "reason": "KubeletStopped", "message": "m"}]);
    merge(
        life.node.as_mut().unwrap(),
        &json!({"spec": {"unschedulable": false}, "status": {"conditions": not_ready}}),
    );
    life.step("its kubelet stops");
    let ready = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fine"}]);
    merge(life.node.as_mut().unwrap(), &json!({"status": {"conditions": ready}}));
    life.step("and starts again");
    life.worker = Worker::Lost { since: life.now };
    life.step("the worker cluster is lost");
    life.worker = Worker::NotKnown;
    life.step("another cluster answers in its place");
    life.worker = Worker::Known;
    life.step("it is back");
}

fn windows(life: &mut Life) {
    let nights = json!({
        "timeWindows": [{"start": "11:00", "end": "12:29"}], "forceReclaim": true, "gracefulReclaimPeriodSeconds": 60,
    });
    life.policies = vec![policy(nights)];
    life.step("the lender wants it back at half past twelve");
    let (plain, guarded) = (pod("plain", &json!({})), pod("guarded", &json!({})));
    life.pods = vec![plain.clone(), guarded.clone()];
    life.now = "2026-11-20T12:20:00Z".parse().unwrap();
    life.step("ten minutes before");
    life.pod("a pod hears nothing yet", &plain, false);
    life.now = "2026-11-20T12:30:00Z".parse().unwrap();
    life.step("half past twelve");
    life.pod("a pod without a budget is told", &plain, false);
    life.pod("one with a budget is told and evicted", &guarded, true);
    let all = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    life.pod("one that tolerates everything is told: it is the lender's word", &pod("tolerant", &all), false);
    life.wait(60);
    life.step("a minute later");
    let told = json!({
        "metadata": {"annotations": {annotations::RECLAIM_AT: "2026-11-20T12:31:00Z"}},
        "status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "LeaseEnds"}]},
    });
    life.pod("a pod that was told has half a minute to end", &pod("plain", &told), false);
    let ending =
        json!({"metadata": {"deletionTimestamp": "2026-11-20T12:36:00Z", "deletionGracePeriodSeconds": 300}});
    life.pod("one that is to go and runs nowhere is finished", &pod("gone", &ending), false);
    life.policies = vec![policy(json!({}))];
    life.step("the window is open again");
    life.pod("what was told is taken back", &pod("plain", &told), false);
}

fn departure(life: &mut Life) {
    life.policies.clear();
    life.step("the lender deletes the policy: the node leaves when its pods are gone");
    life.policies = vec![policy(json!({}))];
    life.step("and makes it again: it stays, and the cordon was someone's own");
    let elsewhere = json!({"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["elsewhere"]}]},
    ]});
    let everything = std::mem::replace(
        &mut life.binding.selector,
        NodeSelector::parse(Some(&serde_json::from_value(elsewhere).unwrap())).unwrap(),
    );
    life.step("the binding no longer selects the node");
    life.binding.selector = everything;
    life.step("and selects it again");
    let label = |kind: Value| json!({"metadata": {"labels": {labels::TYPE: kind}}});
    merge(life.node.as_mut().unwrap(), &label(labels::TYPE_VIRTUAL_KUBELET.into()));
    life.step("the node says that there is no machine behind it");
    merge(life.node.as_mut().unwrap(), &label(Value::Null));
    life.step("and takes that back");
    let forgotten = json!({"metadata": {"annotations": {annotations::POLICY_DETAILS: null}}});
    merge(life.vnode.as_mut().unwrap(), &forgotten);
    let policies = std::mem::take(&mut life.policies);
    life.step("someone takes away what it remembers, and the policy goes: nobody knows its grace, and five minutes are given");
    life.policies = policies;
    life.step("the policy is there again");
    life.node = None;
    life.step("the node is deleted in the worker cluster");
    let running = pod("plain", &json!({}));
    life.pod("its pods are lost with it", &running, false);
    life.pods.clear();
    life.step("no pod is left");
}

#[test]
fn the_life_of_a_virtual_node_is_what_people_have_read() {
    let mut life = Life::new();
    offers(&mut life);
    windows(&mut life);
    departure(&mut life);
    assert!(life.vnode.is_none());
    let text = life.text;
    crate::is_golden(GOLDEN, &text);
}

fn tenure(life: &Life) -> Tenure {
    VirtualNode::read(&object(life.vnode.as_ref().unwrap())).tenure
}

/// Leased in a window of two hours a day, and looked at in it.
fn by_day() -> Life {
    let mut life = Life::new();
    life.policies = vec![policy(json!({
        "timeWindows": [{"start": "11:00", "end": "12:59"}], "forceReclaim": true, "gracefulReclaimPeriodSeconds": 14_400,
    }))];
    life.step("leased");
    life
}

#[test]
fn a_grace_period_counts_from_the_last_time_that_the_window_closed_also_if_nobody_watched() {
    let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap();
    // Asleep from before the end of one window until after the end of the next, and of the one after that.
    for (wakes, closed) in [
        ("2026-11-20T20:00:00Z", "2026-11-20T13:00:00Z"),
        ("2026-11-21T13:30:00Z", "2026-11-21T13:00:00Z"),
        ("2026-12-24T09:00:00Z", "2026-12-23T13:00:00Z"),
    ] {
        let mut life = by_day();
        life.now = at(wakes);
        life.step("awake");
        assert_eq!(tenure(&life).worker.unwrap().closed_at, Some(at(closed)), "{wakes}");
    }
    // Closed as anyone saw, asleep, and closed again.
    let mut life = by_day();
    life.now = at("2026-11-20T13:00:00Z");
    life.step("closed");
    life.now = at("2026-11-21T10:59:59Z");
    life.step("still closed");
    assert_eq!(tenure(&life).worker.unwrap().closed_at, Some(at("2026-11-20T13:00:00Z")));
    life.now = at("2026-11-21T19:00:00Z");
    life.step("closed again");
    assert_eq!(tenure(&life).worker.unwrap().closed_at, Some(at("2026-11-21T13:00:00Z")));
    // Another window does not make the time that it is closed any shorter.
    life.policies = vec![policy(json!({
        "timeWindows": [{"start": "15:00", "end": "15:59"}], "forceReclaim": true, "gracefulReclaimPeriodSeconds": 14_400,
    }))];
    life.step("edited");
    assert_eq!(tenure(&life).worker.unwrap().closed_at, Some(at("2026-11-21T13:00:00Z")));
}

#[test]
fn a_lender_whose_policies_may_not_be_read_gets_his_node_back_at_the_time_that_he_said_last() {
    let mut life = by_day();
    life.pods = vec![pod("plain", &json!({}))];
    life.is_readable = false;
    life.step("not readable");
    assert!(!tenure(&life).is_closed());
    let (_, told) = life.decide();
    assert!(told.contains("again at 2026-11-20T13:00:00Z"), "{told}");
    life.used = vec![("cpu", "6")];
    life.step("they use more of it");
    assert_eq!(life.vnode.as_ref().unwrap()["status"]["allocatable"]["cpu"], "2");
    life.used.clear();
    life.wait(120);
    life.step("and less: nobody knows whether that may be offered");
    assert_eq!(life.vnode.as_ref().unwrap()["status"]["allocatable"]["cpu"], "2");
    life.now = "2026-11-20T13:00:00Z".parse().unwrap();
    life.step("closed");
    assert!(tenure(&life).is_closed());
    let taints = life.vnode.as_ref().unwrap()["spec"]["taints"].to_string();
    assert!(taints.contains(taints::OUT_OF_TIME_WINDOWS_KEY), "{taints}");
}

#[test]
fn a_node_that_cannot_be_read_does_not_keep_its_binding() {
    let mut life = Life::new();
    life.step("leased");
    merge(life.node.as_mut().unwrap(), &json!({"status": {"allocatable": {"cpu": "lots"}}}));
    assert!(life.decide().0.is_empty());
    life.binding.is_deleting = true;
    life.step("it goes");
    assert!(life.vnode.is_none());
}

#[test]
fn a_virtual_node_gets_back_what_holds_it_until_its_pods_are_gone() {
    let mut life = Life::new();
    life.step("leased");
    merge(life.vnode.as_mut().unwrap(), &json!({"metadata": {"finalizers": ["others.example.com/theirs"]}}));
    life.step("held again");
    let held = life.vnode.as_ref().unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(held, json!(["others.example.com/theirs", finalizers::VNODE]));
}

/// Whoever knew the version of the worker cluster has promised what it can; the next one, who does not know it yet, does not take that back.
#[test]
fn what_was_promised_of_a_known_version_stays_while_nobody_knows_it() {
    const FEATURE: &str = "ExtendWebSocketsToKubelet";
    let mut life = Life::new();
    merge(life.node.as_mut().unwrap(), &json!({"status": {"declaredFeatures": [FEATURE]}}));
    let features = |life: &Life| life.vnode.as_ref().unwrap()["status"]["declaredFeatures"].clone();
    life.physical_minor = None;
    life.step("nobody knows whether it can");
    assert_eq!(features(&life), json!([]));
    life.physical_minor = Some(36);
    life.step("it can");
    assert_eq!(features(&life), json!([FEATURE]));
    life.physical_minor = None;
    assert!(life.decide().0.is_empty());
    life.physical_minor = Some(35);
    life.step("it cannot any more");
    assert_eq!(features(&life), json!([]));
}

/// Excluded node types are never leased, and labels that are too many are left out with a word.
#[test]
fn odd_nodes_are_refused_or_cut_with_a_word_and_never_stop_anyone() {
    let mut life = Life::new();
    merge(
        life.node.as_mut().unwrap(),
        &json!({"metadata": {"labels": {labels::TYPE: labels::TYPE_VIRTUAL_KUBELET}}}),
    );
    assert!(life.decide().0.is_empty());
    let mut life = Life::new();
    let many: serde_json::Map<String, Value> =
        (0..1000).map(|number| (format!("{}.example.com/l{number}", "x".repeat(200)), json!("v"))).collect();
    merge(life.node.as_mut().unwrap(), &json!({"metadata": {"labels": many}}));
    let (actions, told) = life.decide();
    assert!(told.contains("LabelsOmitted"), "{told}");
    let Verb::Create { body, .. } = &actions[0].verb else { panic!("{actions:?}") };
    assert!(body["metadata"]["annotations"].to_string().len() < 256 * 1024);
    let mut life = Life::new();
    merge(life.node.as_mut().unwrap(), &json!({"status": {"allocatable": {"cpu": "lots"}}}));
    let (actions, told) = life.decide();
    assert!(
        actions.is_empty() && told.contains("NodeUnreadable") && told.contains("status.allocatable.cpu"),
        "{told}"
    );
}

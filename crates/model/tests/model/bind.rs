//! What is written for a binding, case by case, as people read it: `tests/scripts/bind.txt`. The file is written by
//! `UPDATE_GOLDEN=1 cargo test -p kubeocean-model`, and reviewed as a diff.

mod cases;

use std::fmt::Write as _;

use jiff::Timestamp;
use kubeocean_api::keys::{annotations, finalizers, labels};
use kubeocean_model::action::{Action, Verb, kinds};
use kubeocean_model::bind::{
    BindingObject, Child, Decision, Existing, Finding, Hosting, Leftover, Refusal, Remains, Role, Situation,
    TaskState, Tasks, TemplateFault, Worker, hold_of, plan, tasks,
};
use kubeocean_model::object::{Meta, Object};
use serde_json::{Value, json};

use cases::cases;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/bind.txt");

fn now() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

/// A case under construction: a binding that is set up, with everything in order.
#[derive(Clone)]
struct Case {
    title: &'static str,
    object: Value,
    rival: Option<&'static str>,
    neighbours: Vec<String>,
    finding: Finding,
    kept: bool,
    hold: Option<Meta>,
    template: Option<TemplateFault>,
    existing: Vec<Existing>,
    refusal: Option<Refusal>,
    inline: Option<(TaskState, TaskState)>,
    leftovers: Vec<Leftover>,
    remains: Remains,
}

fn worker(uid: &str) -> Finding {
    let user = "system:serviceaccount:lender:kubeocean".to_owned();
    Finding::Good(Worker { uid: uid.to_owned(), user, nodes: 3 })
}

fn case(title: &'static str) -> Case {
    let object = json!({
        "metadata": {
            "name": "w1", "uid": "b-1", "resourceVersion": "5", "generation": 2,
            "creationTimestamp": "2026-11-20T08:00:00Z", "finalizers": [finalizers::CLUSTER_BINDING_MANAGER],
        },
        "spec": {
            "clusterID": "c1", "mountNamespace": "mount", "secretRef": {"name": "s", "namespace": "kubeocean-system"},
        },
    });
    let existing = Role::ALL.map(|role| deployment(role, &json!({"type": "Available", "status": "True"})));
    let case = Case {
        title,
        object,
        rival: None,
        neighbours: Vec::new(),
        finding: worker("p-1"),
        kept: false,
        hold: None,
        template: None,
        existing: existing.into(),
        refusal: None,
        inline: None,
        leftovers: Vec::new(),
        remains: Remains::NotAsked,
    };
    case.settled()
}

fn wanted() -> Vec<Child> {
    let child = |role: Role| Child {
        role,
        kind: kinds::DEPLOYMENT,
        namespace: "kubeocean-system".to_owned(),
        name: format!("kubeocean-{role}-c1"),
        body: json!({
            "metadata": {
                "labels": stamp(role), "annotations": {annotations::TEMPLATE_HASH: "0123"},
                "ownerReferences": [{"uid": "b-1"}],
            },
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": role.as_str()}}},
        }),
    };
    Role::ALL.map(child).into()
}

fn stamp(role: Role) -> Value {
    json!({
        labels::MANAGED_BY: labels::MANAGED_BY_VALUE, labels::BINDING_UID: "b-1", labels::COMPONENT: role.as_str(),
    })
}

fn deployment(role: Role, condition: &Value) -> Existing {
    let object = json!({
        "metadata": {
            "name": format!("kubeocean-{role}-c1"), "namespace": "kubeocean-system", "uid": format!("{role}-uid"),
            "resourceVersion": "9", "generation": 1, "labels": stamp(role),
            "annotations": {annotations::TEMPLATE_HASH: "0123"},
            "ownerReferences": [{"uid": "b-1", "kind": "ClusterBinding"}],
        },
        "spec": {"replicas": 2, "paused": false, "selector": {"matchLabels": {"app": role.as_str()}}},
        "status": {"observedGeneration": 1, "availableReplicas": 2, "conditions": [condition]},
    });
    Existing { kind: kinds::DEPLOYMENT, object: Object::from_value(object).unwrap() }
}

fn vnode() -> Leftover {
    let object = json!({"metadata": {
        "name": "vnode-c1-n1", "uid": "n-1", "resourceVersion": "7", "finalizers": [finalizers::VNODE],
        "labels": {labels::BINDING_UID: "b-1"},
    }});
    Leftover { kind: kinds::NODE, meta: Object::from_value(object).unwrap().meta }
}

fn hold() -> Meta {
    let object = json!({"metadata": {
        "name": "kubeocean-syncer-c1", "namespace": "kubeocean-system", "uid": "l-1", "resourceVersion": "8",
    }});
    Object::from_value(object).unwrap().meta
}

impl Case {
    /// A selector that the definition lets through, and nobody can follow.
    fn with_a_misspelt_selector(self) -> Self {
        let expression = json!({"key": "zone", "operator": "In", "values": ["not a label!"]});
        let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
        self.with(|case| case.object["spec"]["nodeSelector"] = selector)
    }

    fn run<T>(&self, look: impl FnOnce(&Situation<'_>) -> T) -> T {
        let object = BindingObject::read(&Object::from_value(self.object.clone()).unwrap());
        let wanted = wanted();
        let hosting = match &self.inline {
            Some((syncer, proxier)) => Hosting::Inline {
                syncer: syncer.clone(),
                proxier: proxier.clone(),
                existing: if matches!(syncer, TaskState::Stopped | TaskState::Missing) {
                    &self.existing
                } else {
                    &[]
                },
            },
            None => Hosting::Deployed {
                wanted: self.template.as_ref().map_or(Ok(&wanted), Err),
                existing: &self.existing,
            },
        };
        look(&Situation {
            object: &object,
            rival: self.rival,
            neighbours: &self.neighbours,
            finding: &self.finding,
            kept: self.kept,
            hosting: &hosting,
            refusal: self.refusal.as_ref(),
            leftovers: &self.leftovers,
            hold: self.hold.as_ref(),
            remains: &self.remains,
            now: now(),
        })
    }

    /// With the status that a first plan gives it.
    fn settled(mut self) -> Self {
        let status = self.run(|situation| plan(situation).status);
        if let Some(Action { verb: Verb::Patch { body, .. }, .. }) = status {
            self.object["status"] = body["status"].clone();
        }
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn fresh(self) -> Self {
        self.with(|case| {
            case.object["status"] = Value::Null;
            case.existing.clear();
        })
    }

    fn found(self, finding: Finding) -> Self {
        self.with(|case| case.finding = finding)
    }

    fn deleted(self, finalizers: &[&str]) -> Self {
        self.with(|case| {
            case.object["metadata"]["deletionTimestamp"] = "2026-11-20T11:59:00Z".into();
            case.object["metadata"]["finalizers"] = json!(finalizers);
        })
    }

    fn annotated(self, key: &str, value: &str) -> Self {
        self.with(|case| case.object["metadata"]["annotations"] = json!({key: value}))
    }

    fn text(&self) -> String {
        let decision = self.run(plan);
        let mut text = format!("# {}\n", self.title);
        if let Some(event) = &decision.farewell {
            writeln!(text, "first, for certain: event Warning {}: {}", event.reason, event.message).unwrap();
        }
        for action in &decision.actions {
            writeln!(text, "{action}").unwrap();
            if let Verb::Patch { body, .. } = &action.verb
                && let Some(finalizers) = body["metadata"]["finalizers"].as_array()
            {
                writeln!(text, "    finalizers: {}", json!(finalizers)).unwrap();
            }
        }
        if let Some(status) = &decision.status {
            let Verb::Patch { body, .. } = &status.verb else { unreachable!("{status}") };
            let said = &body["status"];
            writeln!(text, "{status}").unwrap();
            writeln!(text, "    phase={} workerUID={}", said["phase"], said["workerUID"]).unwrap();
            for condition in said["conditions"].as_array().unwrap() {
                let [name, holds, reason, message, since] =
                    ["type", "status", "reason", "message", "lastTransitionTime"]
                        .map(|field| condition[field].as_str().unwrap());
                let since = if since == now().to_string() { "" } else { " (as before)" };
                writeln!(text, "    {name}={holds} {reason}{since}: {message}").unwrap();
            }
        }
        if decision.counts {
            text.push_str("count what is left in the worker cluster\n");
        }
        for event in &decision.events {
            let severity = if event.warning { "Warning" } else { "Normal" };
            writeln!(text, "event {severity} {}: {}", event.reason, event.message).unwrap();
        }
        if decision == Decision::default() {
            text.push_str("rest\n");
        }
        text
    }
}

#[test]
fn what_is_written_for_a_binding_is_what_people_have_read() {
    let text: String = cases().iter().map(|case| case.text() + "\n").collect();
    crate::is_golden(GOLDEN, &text);
}

/// What is written makes the next plan empty.
#[test]
fn a_status_that_was_written_is_not_written_again() {
    for case in cases() {
        let again = case.clone().settled();
        let status = again.run(|situation| plan(situation).status);
        assert_eq!(status, None, "{}", case.title);
        let events = again.run(|situation| plan(situation).events.len());
        let told = case.run(|situation| {
            plan(situation).events.iter().filter(|event| event.reason.contains("nbound")).count()
        });
        assert_eq!(events, told, "{}: what did not change is not told again", case.title);
    }
}

#[test]
fn tasks_of_the_manager_go_on_until_the_worker_cluster_is_given_back() {
    let both = [finalizers::CLUSTER_BINDING_MANAGER, finalizers::CLUSTER_BINDING_SYNCER];
    let inline = || {
        case("inline").with(|case| {
            case.inline = Some((TaskState::Ready, TaskState::Ready));
            case.object["metadata"]["finalizers"] = json!(both);
        })
    };
    let unreadable = |case: Case| case.with(|case| case.object["spec"]["secretRef"] = 1.into());
    let become_of = |case: Case| case.run(tasks);
    assert_eq!(become_of(inline()), Tasks::Run);
    assert_eq!(become_of(inline().with_a_misspelt_selector()), Tasks::Stay, "a bad edit takes nothing down");
    assert_eq!(become_of(inline().deleted(&both)), Tasks::Run);
    assert_eq!(become_of(inline().with_a_misspelt_selector().deleted(&both)), Tasks::Run);
    assert_eq!(become_of(unreadable(inline()).deleted(&both)), Tasks::Stay, "it is needed");
    let rivalled = |case: Case| case.with(|case| case.rival = Some("w0"));
    assert_eq!(become_of(rivalled(inline())), Tasks::Stop);
    assert_eq!(become_of(rivalled(inline()).deleted(&both)), Tasks::Stay, "it is needed");
    assert_eq!(become_of(inline().deleted(&both[..1])), Tasks::Stop);
    assert_eq!(become_of(unreadable(inline()).deleted(&both[..1])), Tasks::Stop);
    let forced = inline().deleted(&both).annotated(annotations::FORCE_UNBIND, "it burnt");
    assert_eq!(become_of(unreadable(forced)), Tasks::Stop);
}

/// One that is not bound, and cannot be, has no right to a name only because it goes.
#[test]
fn a_binding_that_was_never_in_order_claims_nothing_when_it_goes() {
    let read = |case: Case| BindingObject::read(&Object::from_value(case.object).unwrap());
    let goes = |case: Case| case.with_a_misspelt_selector().deleted(&[finalizers::CLUSTER_BINDING_MANAGER]);
    assert_eq!(read(goes(case("never bound").fresh())).claims(), None);
    assert_eq!(read(goes(case("bound"))).claims(), Some("c1"));
    assert_eq!(hold_of(&read(goes(case("never bound").fresh())), None), None);
}

#[test]
fn the_hold_of_a_syncer_is_removed_by_whose_clusterid_it_is() {
    let read = |case: Case| BindingObject::read(&Object::from_value(case.object).unwrap());
    let goes = || read(case("goes").deleted(&[finalizers::CLUSTER_BINDING_MANAGER]));
    assert_eq!(hold_of(&goes(), None).as_deref(), Some("kubeocean-syncer-c1"));
    assert_eq!(hold_of(&goes(), Some("w0")), None, "it is the older one's");
    assert_eq!(hold_of(&read(case("lives")), None), None);
    assert_eq!(hold_of(&read(case("never ours").deleted(&[])), None), None);
}

//! What is written for a binding, case by case, as people read it: `tests/scripts/bind.txt`. The file is written by
//! `UPDATE_GOLDEN=1 cargo test -p kubeocean-model`, and reviewed as a diff.

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

#[expect(clippy::too_many_lines, reason = "it is a table")]
fn cases() -> Vec<Case> {
    let manager = finalizers::CLUSTER_BINDING_MANAGER;
    let syncer = finalizers::CLUSTER_BINDING_SYNCER;
    let server = || "https://10.0.0.1:6443".to_owned();
    let unreachable = || Finding::Unreachable { server: server(), cause: "no answer within 30 s".to_owned() };
    vec![
        case("a new binding is asked for before it goes").fresh().with(|case| {
            case.object["metadata"]["finalizers"] = json!(["someone/else"]);
        }),
        case("nobody has looked yet").fresh().found(Finding::NotYet),
        case("the worker is good, and nothing is there").fresh(),
        case("the workers are not available yet").with(|case| {
            case.existing = Role::ALL.map(|role| deployment(role, &json!({}))).into();
        }),
        case("all is well"),
        case("a manager that has just started says nothing new").found(Finding::NotYet),
        case("several fields are wrong").fresh().with(|case| {
            case.object["spec"]["clusterID"] = "UPPER".into();
            case.object["spec"]["secretRef"]["name"] = "".into();
        }),
        case("the object is of another version").fresh().with(|case| case.object["spec"]["secretRef"] = 1.into()),
        case("an older binding has the clusterID").fresh().with(|case| case.rival = Some("w0")),
        case("there is no Secret").fresh().found(Finding::NoSecret),
        case("the Secret may not be read").fresh().found(Finding::SecretForbidden("secrets \"s\" is forbidden".into())),
        case("the Secret has another key").fresh().found(Finding::NoKubeconfigKey),
        case("the kubeconfig runs a command").fresh().found(Finding::BadKubeconfig("the kubeconfig runs a command".into())),
        case("the worker does not answer, at first").fresh().found(unreachable()),
        case("the worker does not answer any more").found(unreachable()),
        case("the token has expired")
            .found(Finding::Unauthorized { server: server(), message: "Unauthorized".into() }),
        case("a new token that is none").with(|case| case.kept = true)
            .found(Finding::Unauthorized { server: server(), message: "Unauthorized".into() }),
        case("a new kubeconfig with a dead address").with(|case| case.kept = true).found(unreachable()),
        case("the certificate of the worker has expired").found(Finding::Unreachable {
            server: server(),
            cause: "invalid peer certificate: Expired".into(),
        }),
        case("the certificate of the worker is of tomorrow").found(Finding::Unreachable {
            server: server(),
            cause: "invalid peer certificate: certificate not valid yet".into(),
        }),
        case("the certificate of the worker is for another address").found(Finding::Unreachable {
            server: server(),
            cause: "invalid peer certificate: NotValidForName".into(),
        }),
        case("our certificate is not taken").fresh().found(Finding::Unreachable {
            server: server(),
            cause: "received fatal alert: CertificateExpired".into(),
        }),
        case("the lender has not made the namespace").fresh().found(Finding::MountNamespaceMissing),
        case("rights are missing").fresh().found(Finding::Denied {
            user: "system:serviceaccount:lender:kubeocean".into(),
            missing: vec!["create pods in namespace mount".into(), "watch nodes".into()],
        }),
        case("a bad new kubeconfig takes nothing down").found(Finding::BadKubeconfig("it is not YAML".into())),
        case("the kubeconfig leads to another cluster").found(worker("p-2")),
        case("another cluster is accepted").found(worker("p-2")).annotated(annotations::ACCEPT_WORKER, "p-2"),
        case("the identity lives in the mount namespace").fresh().found(Finding::Good(Worker {
            uid: "p-1".into(),
            user: "system:serviceaccount:mount:default".into(),
            nodes: 3,
        })),
        case("a size class that is misspelt")
            .fresh()
            .with(|case| case.object["metadata"]["annotations"] = json!({annotations::SIZE_CLASS: "lrage"})),
        case("the mount namespace is shared").fresh().with(|case| case.neighbours = vec!["w2".into(), "w3".into()]),
        case("someone deleted the syncer").with(|case| drop(case.existing.pop())),
        case("someone scaled the proxier").with(|case| {
            let selector = json!({"matchLabels": {"app": "proxier"}});
            let mut object = json!({"metadata": {}, "spec": {"replicas": 5, "selector": selector}});
            let known = &case.existing[0].object;
            object["metadata"] = json!({
                "name": &*known.meta.name, "namespace": "kubeocean-system", "uid": "proxier-uid", "resourceVersion": "10",
                "labels": stamp(Role::Proxier), "annotations": {annotations::TEMPLATE_HASH: "0123"},
                "ownerReferences": [{"uid": "b-1", "kind": "ClusterBinding"}],
            });
            object["status"] = json!({"availableReplicas": 5, "conditions": [{"type": "Available", "status": "True"}]});
            case.existing[0].object = Object::from_value(object).unwrap();
        }),
        case("an object that the template no longer has").with(|case| {
            let mut extra = deployment(Role::Syncer, &json!({"type": "Available", "status": "True"}));
            extra.object.meta.name = "kubeocean-syncer-w1".into();
            case.existing.push(extra);
        }),
        case("a Deployment of an older installation selects other pods").with(|case| {
            let mut old = json!({"metadata": {}, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "old"}}}});
            old["metadata"] = json!({
                "name": "kubeocean-syncer-c1", "namespace": "kubeocean-system", "uid": "old-uid", "resourceVersion": "3",
                "ownerReferences": [{"uid": "b-1", "kind": "ClusterBinding"}],
            });
            case.existing[1].object = Object::from_value(old).unwrap();
        }),
        case("the template is broken").with(|case| {
            let message = "/etc/kubeocean/syncer-template/deployment.yaml: line 7: undefined value".into();
            case.template = Some(TemplateFault { role: Role::Syncer, message });
        }),
        case("the API server does not take an object").with(|case| {
            let message = "Deployment kubeocean-system/kubeocean-proxier-c1 is refused by the API server: quota".into();
            case.refusal = Some(Refusal { role: Role::Proxier, message });
        }),
        case("the syncer does not come up").with(|case| {
            let condition = json!({
                "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
                "message": "ReplicaSet has timed out progressing",
            });
            case.existing[1] = deployment(Role::Syncer, &condition);
        }),
        case("a quota keeps the pods of the syncer away").with(|case| {
            let condition = json!({
                "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "pods \"a\" is forbidden: exceeded quota",
            });
            case.existing[1] = deployment(Role::Syncer, &condition);
        }),
        case("the proxier is being rolled out").with(|case| {
            case.existing[0] = deployment(Role::Proxier, &json!({}));
            // Its controller has not seen the last change yet.
            case.existing[0].object.meta.generation = 2;
        }),
        case("inline, both are ready").with(|case| case.inline = Some((TaskState::Ready, TaskState::Ready))),
        case("inline, one panics again and again").with(|case| {
            let until = "2026-11-20T12:00:08Z".parse().unwrap();
            let waiting = TaskState::Waiting { why: "it panicked: oh no".into(), restarts: 3, until };
            case.inline = Some((waiting, TaskState::Ready));
        }),
        case("deleted: the syncer has work to do").deleted(&[manager, syncer]),
        case("deleted: someone took the syncer away, and it is needed")
            .deleted(&[manager, syncer])
            .with(|case| drop(case.existing.pop())),
        case("deleted: the syncer has work to do, and its template is broken").deleted(&[manager, syncer]).with(|case| {
            let message = "/etc/kubeocean/syncer-template/deployment.yaml: line 7: undefined value".into();
            case.template = Some(TemplateFault { role: Role::Syncer, message });
        }),
        case("deleted: the syncer has work to do, and its binding is misspelt")
            .with_a_misspelt_selector()
            .deleted(&[manager, syncer]),
        case("deleted: the syncer has work to do, and its binding cannot be read").deleted(&[manager, syncer]).with(|case| {
            case.object["spec"]["secretRef"] = 1.into();
        }),
        case("deleted: the syncer has work to do, and the worker does not answer")
            .deleted(&[manager, syncer])
            .found(unreachable()),
        case("deleted: the syncer is done").deleted(&[manager]),
        case("deleted: the syncer is done, and its binding is misspelt").with_a_misspelt_selector().deleted(&[manager]),
        case("deleted: the Deployments are gone, and a node is left").deleted(&[manager]).with(|case| {
            case.existing.clear();
            case.leftovers.push(vnode());
        }),
        case("deleted: the hold of the syncer is left").deleted(&[manager]).with(|case| {
            case.existing.clear();
            case.hold = Some(hold());
        }),
        case("forced: the hold of the syncer is left")
            .deleted(&[manager, syncer])
            .annotated(annotations::FORCE_UNBIND, "it burnt")
            .with(|case| {
                case.existing.clear();
                case.hold = Some(hold());
            }),
        case("deleted: the syncer has work to do, and holds the lead").deleted(&[manager, syncer]).with(|case| {
            case.existing.clear();
            case.hold = Some(hold());
        }),
        case("deleted: the API server does not let the Deployment go").deleted(&[manager]).with(|case| {
            let message = "Deployment kubeocean-system/kubeocean-syncer-c1 is refused by the API server: a webhook says no";
            case.refusal = Some(Refusal { role: Role::Syncer, message: message.into() });
        }),
        case("deleted: nothing is left").deleted(&[manager, "someone/else"]).with(|case| case.existing.clear()),
        case("deleted: the manager was never asked").deleted(&["someone/else"]),
        case("deleted: it never had the clusterID").fresh().deleted(&[manager]).with(|case| case.rival = Some("w0")),
        case("forced: the workers go first").deleted(&[manager, syncer]).annotated(annotations::FORCE_UNBIND, "it burnt"),
        case("forced: a Deployment waits for pods that never end")
            .deleted(&[manager, syncer])
            .annotated(annotations::FORCE_UNBIND, "it burnt")
            .with(|case| {
                let meta = &mut case.existing[1].object.meta;
                meta.deletion_timestamp = Some(now());
                meta.finalizers = [Box::from("foregroundDeletion")].into();
            }),
        case("forced: what is left has not been counted yet")
            .deleted(&[manager, syncer])
            .annotated(annotations::FORCE_UNBIND, "it burnt")
            .with(|case| case.existing.clear()),
        case("forced: the worker can be asked")
            .deleted(&[manager, syncer])
            .annotated(annotations::FORCE_UNBIND, "it burnt")
            .with(|case| {
                case.existing.clear();
                case.remains = Remains::Counted(
                    [("pods", 2), ("secrets", 0), ("services", 1), ("endpointslices", 1), ("persistentvolumes", 3)]
                        .map(|(kind, count)| (kind.to_owned(), count))
                        .into(),
                );
            }),
        case("forced: the spec cannot be read, and nobody looks")
            .deleted(&[manager, syncer])
            .annotated(annotations::FORCE_UNBIND, "it burnt")
            .with(|case| {
                case.existing.clear();
                case.object["spec"]["secretRef"] = 1.into();
            }),
        case("forced: an older binding has the clusterID")
            .deleted(&[manager, syncer])
            .annotated(annotations::FORCE_UNBIND, "it burnt")
            .with(|case| {
                case.existing.clear();
                case.rival = Some("w0");
            }),
        case("inline, and the Deployments of another mode are still there").with(|case| {
            case.inline = Some((TaskState::Stopped, TaskState::Stopped));
        }),
        case("inline, and this program has no proxier: its Deployment stays").with(|case| {
            case.inline = Some((TaskState::Stopped, TaskState::Missing));
        }),
        case("inline, and this program has neither: nothing is taken down").with(|case| {
            case.inline = Some((TaskState::Missing, TaskState::Missing));
        }),
        case("forced: the worker cannot be asked")
            .deleted(&[manager, syncer])
            .annotated(annotations::FORCE_UNBIND, "it burnt")
            .with(|case| {
                case.existing.clear();
                case.remains = Remains::Unknown("no route to host".into());
            }),
        case("forced without a reason is not forced").deleted(&[manager, syncer]).annotated(annotations::FORCE_UNBIND, " "),
    ]
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

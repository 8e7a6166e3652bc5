//! The vectors that all implementations of the contract share.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kubeocean_api::{ResourceLeasingPolicy, TimeWindow};
use kubeocean_model::lease::{
    Candidate, Choice, Explanation, Ledger, Node, Outcome, Policies, Policy, WorkerPolicies,
};
use kubeocean_model::naming::{ClusterId, Origin, VnodeName};
use kubeocean_model::requests;
use kubeocean_model::resources::Resources;
use kubeocean_model::window::{Edge, Schedule, Zone};
use serde_json::{Value, json};

use crate::{binding, used_by_others};

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn cases<'a>(vectors: &'a Value, list: &str) -> &'a [Value] {
    let cases = vectors[list].as_array().unwrap();
    assert!(!cases.is_empty());
    cases
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[test]
fn names_are_those_of_existing_installations() {
    let vectors = read(include_str!("../vectors/naming.json"));
    for case in cases(&vectors, "physical_object") {
        let (namespace, name) = (text(&case["namespace"]), text(&case["name"]));
        let origin =
            if namespace.is_empty() { Origin::Volume { name } } else { Origin::Object { namespace, name } };
        assert_eq!(origin.physical_name().as_str(), text(&case["physical"]), "{case}");
    }
    for case in cases(&vectors, "vnode") {
        let cluster = ClusterId::parse(text(&case["clusterID"])).unwrap();
        assert_eq!(VnodeName::of(&cluster, text(&case["node"])).as_str(), text(&case["virtual"]), "{case}");
    }
    for case in cases(&vectors, "port") {
        let (cluster, node) = text(&case["vnode"]).strip_prefix("vnode-").unwrap().rsplit_once('-').unwrap();
        let vnode = VnodeName::of(&ClusterId::parse(cluster).unwrap(), node);
        assert_eq!(vnode.as_str(), text(&case["vnode"]));
        assert_eq!(u64::from(vnode.preferred_port().number()), case["preferred"].as_u64().unwrap(), "{case}");
    }
}

fn schedule(case: &Value) -> Schedule {
    let windows: Vec<TimeWindow> = serde_json::from_value(case["windows"].clone()).unwrap();
    Schedule::parse(&windows, case["zone"].as_str(), &Zone::utc()).unwrap()
}

/// Ends in Z: an instant. Else civil time in the zone of the case.
fn instant(case: &Value, field: &str) -> Timestamp {
    let time = text(&case[field]);
    if time.ends_with('Z') {
        return time.parse().unwrap();
    }
    let civil: jiff::civil::DateTime = time.parse().unwrap();
    civil.in_tz(text(&case["zone"])).unwrap().timestamp()
}

#[test]
fn windows_open_and_close_on_time() {
    let vectors = read(include_str!("../vectors/windows.json"));
    for case in cases(&vectors, "cases") {
        assert_eq!(schedule(case).active(instant(case, "at")), case["active"].as_bool().unwrap(), "{case}");
    }
    for case in cases(&vectors, "invalid") {
        let window: TimeWindow = serde_json::from_value(case.clone()).unwrap();
        assert!(Schedule::parse(&[window], None, &Zone::utc()).is_err(), "{case}");
    }
    for case in cases(&vectors, "next_transition") {
        let edge = schedule(case).next_edge(instant(case, "after"));
        let expected = case["at"].as_str().map(|at| at.parse().unwrap());
        assert_eq!(edge.map(|edge: Edge| edge.at), expected, "{case}");
    }
}

fn policy(name: &str, created: i64, spec: &Value) -> Candidate {
    let object: ResourceLeasingPolicy = serde_json::from_value(json!({
        "apiVersion": "cloud.tencent.com/v1beta1", "kind": "ResourceLeasingPolicy",
        "metadata": {"name": name, "creationTimestamp": format!("2026-01-{created:02}T00:00:00Z")},
        "spec": spec,
    }))
    .unwrap();
    Policy::parse(&object, &Zone::utc()).map(Arc::new).map_err(Arc::new)
}

fn noon() -> Timestamp {
    "2026-06-01T12:00:00Z".parse().unwrap()
}

fn resources(value: &Value) -> Resources {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn a_node_offers_what_others_leave_within_the_limits() {
    let vectors = read(include_str!("../vectors/leasing.json"));
    for case in cases(&vectors, "cases") {
        let limited = |limits: &Value| policy("p", 1, &json!({"cluster": "w1", "resourceLimits": limits}));
        let policies = Policies {
            worker: WorkerPolicies::Served(vec![limited(&case["limits"])]),
            computing: case.get("second_side_limits").map(limited).into_iter().collect(),
        };
        let node = Node { allocatable: resources(&case["allocatable"]), ..Node::default() };
        let answer =
            Explanation::of(&binding(), &policies, &node, &used_by_others(&resources(&case["used"])), noon());
        let offered = serde_json::to_value(answer.lease().unwrap().offered()).unwrap();
        assert_eq!(offered, case["offer"], "{case}\n{answer}");
    }
}

#[test]
fn a_pod_asks_for_what_the_scheduler_says() {
    let vectors = read(include_str!("../vectors/leasing.json"));
    for case in cases(&vectors, "pod_requests") {
        let containers = |list: &str, sidecar: bool| -> Vec<Value> {
            let restart_policy = if sidecar { json!("Always") } else { Value::Null };
            let make = |requests: &Value| json!({"name": "x", "resources": {"requests": requests}, "restartPolicy": restart_policy});
            case[list].as_array().into_iter().flatten().map(make).collect()
        };
        let init = [containers("sidecars", true), containers("init", false)].concat();
        let spec = json!({
            "initContainers": init,
            "containers": containers("containers", false),
            "overhead": case["overhead"],
            "resources": {"requests": case["pod_level"]},
        });
        let mut expected = resources(&case["requests"]);
        expected.set("pods", "1".parse().unwrap());
        assert_eq!(requests::of_pod(&spec.to_string(), None).unwrap(), expected, "{case}");
    }
}

fn candidate(case: &Value) -> Candidate {
    let mut spec = json!({"cluster": case["cluster"].as_str().unwrap_or("w1")});
    if let Some(cpu) = case["cpu"].as_str() {
        spec["resourceLimits"] = json!([{"resource": "cpu", "quantity": cpu}]);
    }
    if case["active"] == json!(false) {
        spec["timeWindows"] = json!([{"start": "00:00", "end": "00:01"}]);
    }
    if case["matches"] == json!(false) {
        spec["nodeSelector"] =
            json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]});
    }
    if case["valid"] == json!(false) {
        spec["timeZone"] = json!("Nowhere/Never");
    }
    policy(text(&case["name"]), case["created"].as_i64().unwrap(), &spec)
}

#[test]
fn the_policy_that_counts_is_the_one_that_should() {
    let vectors = read(include_str!("../vectors/policies.json"));
    for case in cases(&vectors, "cases") {
        let candidates =
            |side: &str| -> Vec<_> { case[side].as_array().into_iter().flatten().map(candidate).collect() };
        let worker = match (case["worker_serves_crd"] == json!(true), case["worker_readable"] != json!(false))
        {
            (false, _) => WorkerPolicies::NotServed,
            (true, false) => WorkerPolicies::Unreadable,
            (true, true) => WorkerPolicies::Served(candidates("worker")),
        };
        let policies = Policies { worker, computing: candidates("computing") };
        let node = Node { allocatable: resources(&json!({"cpu": "8"})), ..Node::default() };
        let answer = Explanation::of(&binding(), &policies, &node, &Ledger::default(), noon());

        let shadowed: BTreeMap<_, _> = answer.worker.iter().flat_map(Choice::shadowed).collect();
        let expected = case.get("shadowed").cloned().unwrap_or_else(|| json!({}));
        assert_eq!(serde_json::to_value(shadowed).unwrap(), expected, "{case}");
        match &answer.outcome {
            Outcome::NotLeased(why) => {
                assert_eq!(case["winner"], Value::Null, "{case}\n{answer}");
                assert_eq!(why.reason().unwrap().as_str(), text(&case["reason"]), "{case}");
            }
            Outcome::Leased(lease) => {
                let name = |policy: Option<&Arc<Policy>>| policy.map(|policy| policy.name.clone());
                assert_eq!(
                    name(lease.winners.worker()).as_deref(),
                    case["winner"]["worker"].as_str(),
                    "{case}"
                );
                assert_eq!(
                    name(lease.winners.computing()).as_deref(),
                    case["winner"]["computing"].as_str(),
                    "{case}"
                );
                if let Some(active) = case["active"].as_bool() {
                    assert_eq!(lease.active, active, "{case}");
                }
                if let Some(cpu) = case["cpu"].as_str() {
                    assert_eq!(lease.offers["cpu"].offer.to_string(), cpu, "{case}");
                }
            }
        }
    }
}

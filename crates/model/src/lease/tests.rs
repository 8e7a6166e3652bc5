use kubeocean_api::ResourceLeasingPolicy;
use serde_json::{Value, json};

use super::*;
use crate::quantity::Quantity;
use crate::window::Zone;

fn binding(spec: &Value) -> Binding {
    let mut object = json!({
        "apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding",
        "metadata": {"name": "w1", "uid": "b-1"},
        "spec": {"clusterID": "w1", "mountNamespace": "mount", "secretRef": {"name": "s", "namespace": "n"}},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    Binding::parse(&serde_json::from_value(object).unwrap()).unwrap()
}

fn parse(name: &str, spec: &Value) -> Result<Policy, Invalid> {
    let object: ResourceLeasingPolicy = serde_json::from_value(json!({
        "apiVersion": "cloud.tencent.com/v1beta1", "kind": "ResourceLeasingPolicy",
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec,
    }))
    .unwrap();
    Policy::parse(&object, &Zone::utc())
}

fn candidate(name: &str, spec: &Value) -> Candidate {
    parse(name, spec).map(Arc::new).map_err(Arc::new)
}

fn served(worker: Vec<Candidate>) -> Policies {
    Policies { worker: WorkerPolicies::Served(worker), computing: Vec::new() }
}

fn node(labels: &[(&str, &str)], allocatable: Value) -> Node {
    Node {
        name: "n1".into(),
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        allocatable: serde_json::from_value(allocatable).unwrap(),
        capacity: Resources::default(),
    }
}

fn monday_noon() -> Timestamp {
    "2026-06-01T12:00:00Z".parse().unwrap()
}

fn explain(binding: &Binding, policies: &Policies, node: &Node) -> Explanation {
    Explanation::of(binding, policies, node, &Ledger::default(), monday_noon())
}

#[test]
fn a_node_without_a_machine_behind_it_is_leased_on_no_path() {
    let open = candidate("p", &json!({"cluster": "w1"}));
    let alone = Policies { worker: WorkerPolicies::NotServed, computing: vec![open.clone()] };
    let both = Policies { worker: WorkerPolicies::Served(vec![open.clone()]), computing: vec![open.clone()] };
    for (key, value) in [
        ("node.kubernetes.io/instance-type", "external"),
        ("node.kubernetes.io/instance-type", "vnode"),
        ("node.kubernetes.io/instance-type", "eklet"),
        ("type", "virtual-kubelet"),
    ] {
        for policies in [&alone, &both, &served(vec![open.clone()])] {
            let excluded = node(&[(key, value)], json!({"cpu": "4"}));
            let answer = explain(&binding(&json!({})), policies, &excluded);
            assert!(
                matches!(&answer.outcome, Outcome::NotLeased(NoLease::ExcludedNode { label, .. }) if *label == key),
                "{answer}"
            );
        }
    }
    let real =
        node(&[("node.kubernetes.io/instance-type", "m5.large"), ("type", "gpu")], json!({"cpu": "4"}));
    assert!(explain(&binding(&json!({})), &both, &real).lease().is_some());
}

#[test]
fn capacity_counts_where_nothing_is_allocatable() {
    let mut node = node(&[], json!({}));
    node.capacity.set("cpu", Quantity::whole(2));
    let answer =
        explain(&binding(&json!({})), &served(vec![candidate("p", &json!({"cluster": "w1"}))]), &node);
    assert_eq!(answer.lease().unwrap().offered().to_string(), "cpu 2");
}

#[test]
fn storage_is_another_name_of_ephemeral_storage() {
    let node = node(&[], json!({"ephemeral-storage": "100Gi"}));
    let offer = |limits: Value| {
        let policy = candidate("p", &json!({"cluster": "w1", "resourceLimits": limits}));
        explain(&binding(&json!({})), &served(vec![policy]), &node).lease().unwrap().offered().to_string()
    };
    assert_eq!(offer(json!([{"resource": "storage", "quantity": "20Gi"}])), "ephemeral-storage 20Gi");
    let both = json!([{"resource": "storage", "quantity": "20Gi"}, {"resource": "ephemeral-storage", "percent": 10}]);
    assert_eq!(offer(both), "ephemeral-storage 10Gi");
}

#[test]
fn processors_are_offered_in_thousandths_and_the_rest_in_ones() {
    let policy = candidate(
        "p",
        &json!({"cluster": "w1", "resourceLimits": [{"resource": "cpu", "percent": 33}, {"resource": "pods", "percent": 33}]}),
    );
    let node = node(&[], json!({"cpu": "10m", "pods": "10", "memory": "2500m"}));
    let answer = explain(&binding(&json!({})), &served(vec![policy]), &node);
    assert_eq!(answer.lease().unwrap().offered().to_string(), "cpu 3m, memory 2, pods 3");
}

#[test]
fn every_fault_of_a_policy_is_named_with_its_fix() {
    let invalid = parse(
        "p",
        &json!({
            "cluster": "",
            "timeWindows": [{"start": "8:00", "end": "09:00"}],
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]},
            "resourceLimits": [
                {"resource": "cpu", "quantity": "many"},
                {"resource": "memory", "quantity": "-1", "percent": 101},
                {"resource": "pods"},
                {"resource": "", "percent": 1},
            ],
            "gracefulReclaimPeriodSeconds": -1,
        }),
    )
    .unwrap_err();
    let faults: Vec<_> = invalid.faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        faults,
        [
            "spec.cluster is empty: name the ClusterBinding that this policy is about",
            "spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].values: is empty: name at least one value",
            "spec.timeWindows[0].start: `8:00` is not a time of day: write HH:MM from 00:00 to 23:59, such as 08:30",
            "spec.resourceLimits[0].quantity (cpu): `many` is not a quantity: write a number such as 4, 500m or 16Gi",
            "spec.resourceLimits[1].quantity (memory): -1 is negative: write zero or more",
            "spec.resourceLimits[1].percent (memory): 101 is not a percentage: write 0 to 100",
            "spec.resourceLimits[2] (pods): set quantity, percent or both",
            "spec.resourceLimits[3].resource is empty: name a resource such as cpu",
            "spec.gracefulReclaimPeriodSeconds: -1 is negative: write zero or more",
        ]
    );
    assert!(
        invalid.to_string().starts_with("policy `p` is invalid and leases nothing: spec.cluster is empty")
    );
}

#[test]
fn the_explanation_tells_how_each_number_came_about() {
    let lender = candidate(
        "lender",
        &json!({
            "cluster": "w1",
            "timeWindows": [{"start": "08:00", "end": "18:00"}],
            "resourceLimits": [{"resource": "cpu", "quantity": "3", "percent": 50}],
        }),
    );
    let policies = Policies {
        worker: WorkerPolicies::Served(vec![
            lender,
            candidate("second", &json!({"cluster": "w1"})),
            candidate("theirs", &json!({"cluster": "w2"})),
            candidate("wrong", &json!({"cluster": "w1", "timeZone": "Mars/Olympus"})),
        ]),
        computing: vec![candidate(
            "v",
            &json!({"cluster": "w1", "resourceLimits": [{"resource": "cpu", "quantity": "1"}]}),
        )],
    };
    let mut ledger = Ledger::default();
    ledger.put("a", User::Namespace("web".into()), [("cpu", Quantity::milli(700))].into_iter().collect());
    ledger.put("b", User::Binding("b-2".into()), [("cpu", Quantity::milli(300))].into_iter().collect());
    ledger.put("c", User::Ours, [("cpu", Quantity::whole(2))].into_iter().collect());
    let node = node(&[], json!({"cpu": "4", "memory": "8Gi"}));
    let answer = Explanation::of(&binding(&json!({})), &policies, &node, &ledger, monday_noon());
    assert_eq!(
        answer.to_string(),
        "node `n1` is leased\n  \
           open until 2026-06-01T18:01:00Z\n  \
           cpu: 1 (of 4, others use 1: binding b-2 300m, namespace web 700m; 3 is left; policy `lender` in the worker cluster allows 3 or 50 % of what is \
         left: 1500m; policy `v` in the computing cluster allows 1)\n  \
           memory: 8Gi (of 8Gi, others use 0; 8Gi is left)\n\
         policy `lender` in the worker cluster counts\n\
         policy `second` in the worker cluster does not count, because `lender` is older\n\
         policy `theirs` in the worker cluster is about ClusterBinding `w2`\n\
         policy `wrong` in the worker cluster is invalid: spec.timeZone: `Mars/Olympus` is not a time zone: write an \
         IANA name such as Europe/Berlin or UTC\n\
         policy `v` in the computing cluster counts\n"
    );
    assert_eq!(answer.lease().unwrap().closes_at(), Some("2026-06-01T18:01:00Z".parse().unwrap()));
}

#[test]
fn who_gets_nothing_is_told_what_to_do() {
    let zone_a = json!({"nodeSelector": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}});
    let text = |binding_spec: &Value, policies: &Policies| {
        explain(&binding(binding_spec), policies, &node(&[], json!({}))).to_string()
    };
    assert_eq!(
        text(&zone_a, &served(vec![])),
        "node `n1` is not leased: ClusterBinding `w1` does not select this node: wanted zone in (a) (it is not there); \
         change the node's labels or the binding's spec.nodeSelector\n"
    );
    assert_eq!(
        text(&json!({}), &served(vec![])),
        "node `n1` is not leased: no valid ResourceLeasingPolicy in the worker cluster allows it: create one there \
         with spec.cluster `w1` and a spec.nodeSelector that means this node\n"
    );
    let nowhere = Policies { worker: WorkerPolicies::NotServed, computing: vec![] };
    assert!(text(&json!({}), &nowhere).contains("ResourceLeasingPolicy in the computing cluster allows it"));
    let unreadable = Policies { worker: WorkerPolicies::Unreadable, computing: vec![] };
    assert!(text(&json!({}), &unreadable).contains("get, list and watch on resourceleasingpolicies there"));
}

#[test]
fn a_lease_outlives_policies_that_cannot_be_read() {
    let ends =
        |policies: &Policies| match explain(&binding(&json!({})), policies, &node(&[], json!({}))).outcome {
            Outcome::NotLeased(why) => why.ends_leases(),
            Outcome::Leased(_) => panic!("leased"),
        };
    assert!(!ends(&Policies { worker: WorkerPolicies::Unreadable, computing: vec![] }));
    assert!(ends(&served(vec![])));
}

#[test]
fn a_pod_is_ours_only_with_our_stamp_in_our_namespace() {
    let binding = binding(&json!({}));
    let stamped = |uid: &str| Labels::from([(labels::BINDING_UID.to_owned(), uid.to_owned())]);
    assert_eq!(User::of("mount", &stamped("b-1"), &binding), User::Ours);
    assert_eq!(User::of("theirs", &stamped("b-1"), &binding), User::Namespace("theirs".into()));
    assert_eq!(User::of("mount", &stamped("b-2"), &binding), User::Binding("b-2".into()));
    assert_eq!(User::of("mount", &Labels::new(), &binding), User::Namespace("mount".into()));
}

#[test]
fn a_ledger_says_who_uses_what() {
    let mut ledger = Ledger::default();
    let cpu = |cores| {
        [("cpu", Quantity::whole(cores)), ("pods", Quantity::whole(1))].into_iter().collect::<Resources>()
    };
    assert!(ledger.put("a", User::Namespace("web".into()), cpu(2)));
    assert!(ledger.put("b", User::Namespace("web".into()), cpu(1)));
    assert!(ledger.put("c", User::Ours, cpu(7)));
    assert!(!ledger.put("c", User::Ours, cpu(7)), "nothing new");
    assert_eq!(ledger.used().to_string(), "cpu 3, pods 2");
    assert_eq!(ledger.ours().to_string(), "cpu 7, pods 1");
    let shares: Vec<_> = ledger
        .shares()
        .map(|(user, share)| format!("{user}: {} pods, {}", share.pods, share.requests))
        .collect();
    assert_eq!(shares, ["this binding: 1 pods, cpu 7, pods 1", "namespace web: 2 pods, cpu 3, pods 2"]);
    assert!(ledger.put("a", User::Namespace("web".into()), Resources::default()), "it has ended");
    assert_eq!(ledger.used().to_string(), "cpu 1, pods 1");
    assert!(ledger.remove("b") && !ledger.remove("b"));
    assert_eq!(ledger.used(), Resources::default());
}

#[test]
fn an_absurd_pod_leaves_no_trace() {
    let of = |text: &str| [("memory", text.parse::<Quantity>().unwrap())].into_iter().collect::<Resources>();
    let user = || User::Namespace("web".into());
    let mut ledger = Ledger::default();
    ledger.put("c", user(), of("1Gi"));
    ledger.put("a", user(), of("1e30"));
    ledger.remove("a");
    assert_eq!(ledger.used(), of("1Gi"));
}

//! What nobody should write, and what no worker cluster should be: it is told with its fix, and the node beside it is leased as if
//! nothing were wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use kubeocean_api::keys::conditions::{Binding as BindingCondition, Policy as PolicyCondition};
use kubeocean_api::keys::reasons::Event as EventReason;
use kubeocean_api::keys::{annotations, labels, taints};
use kubeocean_model::action::{Kind, kinds};
use kubeocean_model::leasing::SYNCER;
use kubeocean_model::naming::{ClusterId, VnodeName};
use kubeocean_testkit::Right;
use kubeocean_testkit::simulation::Site;
use serde_json::{Map, Value, json};

use crate::scene::{BINDING, Scene, Setting, condition, has_taint, label, text};
use crate::simulated::calm_in;

/// Everything is decided and said, also what is said only now and then.
const SETTLED: Duration = Duration::from_secs(30);

/// Retries are one in five minutes by then.
const LATER: Duration = Duration::from_secs(30 * 60);

/// Requests a minute that a syncer at rest may make to all servers: one question in five seconds, a watch of each kind now and then,
/// and a list in half a minute of each kind that it may not read.
const IDLE_REQUESTS: u64 = 60;

/// The node beside the one with the trouble, and a good policy for it.
fn good(scene: &Scene, site: &Site) {
    scene.lend(site, "good", "n1", json!({"resourceLimits": [{"resource": "cpu", "percent": 50}]}));
}

/// The good node is leased, rightly and openly.
fn is_fine(scene: &Scene) {
    let vnode = scene.vnode_of("n1");
    let offer = json!({"cpu": "3750m", "memory": "15Gi", "pods": "110"});
    assert_eq!(vnode["status"]["allocatable"], offer);
    for key in [taints::OUT_OF_TIME_WINDOWS_KEY, taints::VNODE_DELETING_KEY, taints::WORKER_UNREACHABLE_KEY] {
        assert!(!has_taint(&vnode, key), "{key}");
    }
}

/// The Events about an object, as `Warning Reason: message`.
fn events(scene: &Scene, name: &str) -> Vec<String> {
    let all = scene.server().list("events", None);
    let about = all.iter().filter(|event| text(event, "/involvedObject/name") == name);
    about
        .map(|one| format!("{} {}: {}", text(one, "/type"), text(one, "/reason"), text(one, "/message")))
        .collect()
}

/// The one Event of that reason about an object.
fn told(scene: &Scene, name: &str, reason: EventReason) -> String {
    let all = events(scene, name);
    let start = format!("Warning {}: ", reason.as_str());
    let mut found = all.iter().filter_map(|event| event.strip_prefix(&start));
    let event = found.next().expect(&start).to_owned();
    assert_eq!(found.next(), None);
    event
}

fn complaints(scene: &Scene) -> Vec<String> {
    let all = scene.server().list("events", None);
    let warnings = all.iter().filter(|event| text(event, "/type") == "Warning");
    warnings.map(|event| text(event, "/message").to_owned()).collect()
}

fn leasing(scene: &Scene) -> Value {
    let binding = scene.server().get("clusterbindings", "", BINDING).unwrap();
    condition(&binding, BindingCondition::Leasing.as_str())
}

/// What is said about a policy of the lender's.
fn said(scene: &Scene, policy: &str, about: PolicyCondition) -> Value {
    condition(&scene.lenders_policy(policy), about.as_str())
}

fn words(said: &Value) -> &str {
    text(said, "/message")
}

/// The policy is refused, and the words say why.
fn is_refused(scene: &Scene, policy: &str, why: &[&str]) {
    let valid = said(scene, policy, PolicyCondition::Valid);
    assert_eq!(valid["status"], "False", "{policy}: {valid}");
    assert_eq!(text(&scene.lenders_policy(policy), "/status/phase"), "Failed");
    for part in why {
        assert!(words(&valid).contains(part), "{policy}: {} without `{part}`", words(&valid));
    }
}

/// Whatever is wrong, nobody goes on about it: in ten minutes so many writes at most, Leases aside.
async fn is_quiet(scene: &Scene, most: usize) {
    tokio::time::sleep(LATER).await;
    let sites = [&scene.virt, &scene.phys];
    let since = sites.map(|site| site.server.revision());
    let asked = scene.traffic.counts().requests;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let written: Vec<String> = sites
        .iter()
        .zip(since)
        .flat_map(|(site, since)| site.server.history(since))
        .filter(|one| one.actor == SYNCER && one.plural != "leases")
        .map(|one| format!("{} {}", one.plural, one.name))
        .collect();
    assert!(written.len() <= most, "{written:?}");
    let renewals = scene.vnodes().len() as u64 * 60;
    let asked = scene.traffic.counts().requests - asked - renewals;
    assert!(asked <= IDLE_REQUESTS * 10, "{asked} requests in ten minutes");
}

/// A worker cluster whose node `n1` is lent, and what is wrong beside it.
fn beside_a_good_node(prepare: impl FnOnce(&Scene), course: impl AsyncFnOnce(&Scene)) {
    let start = "2026-11-20T07:59:00Z".parse().unwrap();
    let setting = Setting { start, nodes: &["n1", "n2"], ..Setting::default() };
    let prepare = |scene: &Scene| {
        good(scene, &scene.phys);
        prepare(scene);
    };
    calm_in(setting, prepare, async |scene| {
        tokio::time::sleep(SETTLED).await;
        is_fine(scene);
        course(scene).await;
        is_fine(scene);
    });
}

#[test]
fn a_policy_that_names_no_binding_is_told_so() {
    let prepare = |scene: &Scene| {
        scene.without_validation(&scene.phys);
        scene.lend(&scene.phys, "empty", "n2", json!({"cluster": ""}));
        scene.make(
            &scene.phys,
            "resourceleasingpolicies",
            "",
            json!({"metadata": {"name": "none"}, "spec": {}}),
        );
        scene.make(&scene.phys, "resourceleasingpolicies", "", json!({"metadata": {"name": "nothing"}}));
        // Nobody here can know whether another computing cluster has a binding of that name.
        scene.lend(&scene.phys, "other", "n2", json!({"cluster": "another"}));
        // In the computing cluster that is known, and the manager says it.
        let nothing = json!([{"resource": "cpu", "quantity": "0"}]);
        scene.lend(&scene.virt, "stray", "n1", json!({"cluster": "another", "resourceLimits": nothing}));
    };
    beside_a_good_node(prepare, async |scene| {
        is_refused(scene, "empty", &["spec.cluster is empty", "name the ClusterBinding"]);
        is_refused(scene, "none", &["cluster", "kubeocean crds"]);
        is_refused(scene, "nothing", &["spec", "kubeocean crds"]);
        assert!(scene.lenders_policy("other")["status"].is_null());
        let stray = scene.server().get("resourceleasingpolicies", "", "stray").unwrap();
        assert!(stray["status"].is_null(), "{stray}");
        assert_eq!(scene.vnodes(), ["vnode-c1-n1"]);
        is_quiet(scene, 0).await;
        // Alone, it is said what to create.
        scene.remove(&scene.phys, "resourceleasingpolicies", "", "good");
        tokio::time::sleep(SETTLED).await;
        let leasing = leasing(scene);
        assert_eq!((&leasing["status"], &leasing["reason"]), (&json!("False"), &json!("NoPolicy")));
        assert!(words(&leasing).contains("create one there with spec.cluster `w1`"), "{leasing}");
        good(scene, &scene.phys);
        // Named, it is followed.
        let place = json!({"spec": {"cluster": BINDING}});
        scene.patch(&scene.phys, "resourceleasingpolicies", "", "empty", place);
        tokio::time::sleep(SETTLED).await;
        assert_eq!(scene.vnodes(), ["vnode-c1-n1", "vnode-c1-n2"]);
        assert_eq!(said(scene, "empty", PolicyCondition::Valid)["status"], "True");
    });
}

#[test]
fn windows_of_two_sides_that_never_meet_are_told_on_the_binding() {
    let window = |start: &str, end: &str| json!({"timeWindows": [{"start": start, "end": end}]});
    let prepare = |scene: &Scene| {
        scene.lend(&scene.phys, "mornings", "n2", window("08:00", "10:00"));
        scene.lend(&scene.virt, "evenings", "n2", window("18:00", "20:00"));
    };
    beside_a_good_node(prepare, async |scene| {
        assert!(has_taint(&scene.vnode_of("n2"), taints::OUT_OF_TIME_WINDOWS_KEY));
        let fix = "1 of them never open, because the windows of policies `mornings` and `evenings` do not meet: \
                   change spec.timeWindows of one of them";
        assert!(words(&leasing(scene)).ends_with(fix), "{}", leasing(scene));
        // The lender's opens, and closes.
        for minutes in [10, 120] {
            tokio::time::sleep(Duration::from_secs(minutes * 60)).await;
            let opened = text(&scene.lenders_policy("mornings"), "/status/phase") == "Active";
            assert_eq!(opened, minutes == 10);
            assert!(has_taint(&scene.vnode_of("n2"), taints::OUT_OF_TIME_WINDOWS_KEY));
        }
        let (now, later) = (scene.clock.now(), scene.clock.now() + jiff::SignedDuration::from_mins(60));
        let hours = |at: jiff::Timestamp| at.strftime("%H:00").to_string();
        let spec = window(&hours(now), &hours(later));
        for (site, name) in [(&scene.phys, "mornings"), (&scene.virt, "evenings")] {
            scene.patch(site, "resourceleasingpolicies", "", name, json!({"spec": spec}));
        }
        tokio::time::sleep(SETTLED).await;
        assert!(!has_taint(&scene.vnode_of("n2"), taints::OUT_OF_TIME_WINDOWS_KEY));
        assert_eq!(words(&leasing(scene)), "2 of 2 nodes are leased");
    });
}

#[test]
fn absurd_numbers_of_an_old_definition_are_told_and_lease_nothing() {
    let limit = |limit: Value| json!({"resourceLimits": [limit]});
    let cases = [
        ("negative", limit(json!({"resource": "cpu", "quantity": "-1"})), "is negative: write zero or more"),
        ("number", limit(json!({"resource": "cpu", "quantity": -3})), "write"),
        (
            "word",
            limit(json!({"resource": "cpu", "quantity": "lots"})),
            "spec.resourceLimits[0].quantity (cpu)",
        ),
        ("percent", limit(json!({"resource": "cpu", "percent": 300})), "is not a percentage: write 0 to 100"),
        ("minus", limit(json!({"resource": "cpu", "percent": -1})), "is not a percentage: write 0 to 100"),
        ("huge", limit(json!({"resource": "cpu", "percent": 1_u64 << 40})), "kubeocean crds"),
        ("half", limit(json!({"resource": "cpu", "percent": "50%"})), "kubeocean crds"),
        ("neither", limit(json!({"resource": "cpu"})), "set quantity, percent or both"),
        ("nameless", limit(json!({"percent": 50})), "resource"),
        ("grace", json!({"gracefulReclaimPeriodSeconds": -1}), "write zero or more"),
        ("selector", json!({}), "spec.nodeSelector"),
        ("zone", json!({"timeZone": "Nowhere/Never"}), "spec.timeZone"),
    ];
    let prepare = |scene: &Scene| {
        scene.without_validation(&scene.phys);
        for (name, spec, _) in &cases {
            scene.lend(&scene.phys, name, "n2", spec.clone());
        }
        let operator = json!([{"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}]);
        let spec = json!({"spec": {"nodeSelector": {"nodeSelectorTerms": operator}}});
        scene.patch(&scene.phys, "resourceleasingpolicies", "", "selector", spec);
    };
    beside_a_good_node(prepare, async |scene| {
        for (name, _, fix) in &cases {
            is_refused(scene, name, &[fix]);
        }
        assert_eq!(scene.vnodes(), ["vnode-c1-n1"]);
        is_quiet(scene, 0).await;
    });
}

/// More than there can be is what there is; later than there can be is never.
#[test]
fn limits_beyond_all_measure_limit_nothing() {
    let limits = json!([
        {"resource": "cpu", "quantity": "1e300"}, {"resource": "memory", "quantity": "9999999999999999999999Ei"},
        {"resource": "pods", "quantity": "0.1e-300"},
    ]);
    let spec = json!({
        "resourceLimits": limits, "forceReclaim": true, "gracefulReclaimPeriodSeconds": i64::MAX,
        "timeWindows": [{"start": "10:00", "end": "11:00"}],
    });
    let prepare = |scene: &Scene| {
        scene.without_validation(&scene.phys);
        scene.lend(&scene.phys, "endless", "n2", spec);
        let odd = json!({"allocatable": {"cpu": "2", "memory": "99999999Ei"}});
        scene.add_node_with("odd", json!({labels::HOSTNAME: "odd"}), odd);
        scene.lend(
            &scene.phys,
            "odd",
            "odd",
            json!({"resourceLimits": [{"resource": "memory", "percent": 100}]}),
        );
    };
    beside_a_good_node(prepare, async |scene| {
        let offer = json!({"cpu": "7500m", "memory": "15Gi", "pods": "0"});
        assert_eq!(scene.vnode_of("n2")["status"]["allocatable"], offer);
        assert!(has_taint(&scene.vnode_of("n2"), taints::OUT_OF_TIME_WINDOWS_KEY), "it is eight o'clock");
        let physical = scene.phys.server.get("nodes", "", "odd").unwrap();
        assert_eq!(scene.vnode_of("odd")["status"]["allocatable"], physical["status"]["allocatable"]);
        scene.pod("patient", "vnode-c1-n2", json!({}));
        is_quiet(scene, 0).await;
        assert!(scene.get_pod("patient").is_some(), "its grace is not over");
    });
}

#[test]
fn a_limit_on_what_no_node_has_is_told_on_the_policy() {
    let limits =
        json!([{"resource": "nvidia.com/gpu", "percent": 50}, {"resource": "memory", "percent": 50}]);
    let prepare = |scene: &Scene| {
        scene.lend(&scene.phys, "gpus", "n2", json!({"resourceLimits": limits}));
    };
    beside_a_good_node(prepare, async |scene| {
        let offer = json!({"cpu": "7500m", "memory": "7680Mi", "pods": "110"});
        assert_eq!(scene.vnode_of("n2")["status"]["allocatable"], offer);
        let counts = said(scene, "gpus", PolicyCondition::Shadowed);
        let expected = "it counts for 1 nodes; none of them has nvidia.com/gpu: correct the name in \
                        spec.resourceLimits, or remove that limit";
        assert_eq!((&counts["status"], words(&counts)), (&json!("False"), expected));
        is_quiet(scene, 0).await;
        // A node that has it makes it a limit like any other.
        let status = json!({"allocatable": {"cpu": "4", "nvidia.com/gpu": "3"}});
        scene.add_node_with("n3", json!({labels::HOSTNAME: "n2"}), status);
        tokio::time::sleep(SETTLED).await;
        assert_eq!(scene.vnode_of("n3")["status"]["allocatable"], json!({"cpu": "4", "nvidia.com/gpu": "1"}));
        assert_eq!(words(&said(scene, "gpus", PolicyCondition::Shadowed)), "it counts for 2 nodes");
    });
}

/// A name of 253 characters; `end` is its last one.
fn long_name(end: char) -> String {
    let part = "n".repeat(63);
    let name = format!("{part}.{part}.{part}.{}{end}", "n".repeat(60));
    assert_eq!(name.len(), 253);
    name
}

#[test]
fn nodes_with_names_of_253_characters_are_leased_each_under_its_own() {
    let names = [long_name('a'), long_name('b')];
    let prepare = |scene: &Scene| {
        for name in &names {
            let status = json!({"allocatable": {"cpu": "2"}});
            scene.add_node_with(name, json!({labels::HOSTNAME: "long"}), status);
            let body = json!({"metadata": {"name": name}, "spec": {"drivers": [
                {"name": "disk.example.com", "nodeID": "id", "topologyKeys": []},
            ]}});
            assert_eq!(scene.make(&scene.phys, "csinodes", "", body), 201);
        }
        scene.lend(&scene.phys, "long", "long", json!({}));
        scene.their_pod("theirs", &names[0], "500m", Some(8080));
    };
    beside_a_good_node(prepare, async |scene| {
        let cpu = ["1500m", "2"];
        for (name, cpu) in names.iter().zip(cpu) {
            let vnode = scene.vnode_of(name);
            assert_eq!(text(&vnode, "/status/allocatable/cpu"), cpu);
            assert_eq!(vnode["metadata"]["annotations"][annotations::PHYSICAL_NODE_NAME], **name);
            let derived = text(&vnode, "/metadata/name");
            assert!(derived.len() <= 63 && scene.server().get("csinodes", "", derived).is_some());
        }
        assert_eq!(scene.vnodes().len(), 3);
        assert!(complaints(scene).is_empty(), "{:?}", complaints(scene));
        is_quiet(scene, 0).await;
    });
}

/// So many labels, whose keys have so many characters.
fn many_labels(count: usize, length: usize) -> Map<String, Value> {
    let mut labels = Map::new();
    for number in 0..count {
        let name = format!("l{number:04}");
        let prefix = "x".repeat(length.saturating_sub(name.len() + ".example.com/".len()));
        labels.insert(format!("{prefix}.example.com/{name}"), "v".into());
    }
    labels
}

#[test]
fn a_thousand_labels_are_taken_over_and_what_is_too_much_is_told() {
    let (short, long) = (many_labels(1000, 40), many_labels(1000, 250));
    let with = |labels: &Map<String, Value>, name: &str| {
        let mut labels = labels.clone();
        labels.insert(labels::HOSTNAME.to_owned(), name.into());
        Value::from(labels)
    };
    let status = || json!({"allocatable": {"cpu": "2"}});
    let prepare = |scene: &Scene| {
        scene.add_node_with("short", with(&short, "short"), status());
        scene.add_node_with("long", with(&long, "long"), status());
        scene.lend(&scene.phys, "short", "short", json!({}));
        scene.lend(&scene.phys, "long", "long", json!({}));
        scene.lend(&scene.phys, "n2", "n2", json!({}));
    };
    let taken_over = |scene: &Scene, node: &str, from: &Map<String, Value>| {
        let vnode = scene.vnode_of(node);
        from.keys().filter(|key| label(&vnode, key) == "v").count()
    };
    beside_a_good_node(prepare, async |scene| {
        assert_eq!(taken_over(scene, "short", &short), 1000);
        let kept = taken_over(scene, "long", &long);
        assert!(kept > 500 && kept < 1000, "{kept}");
        let event = told(scene, "vnode-c1-long", EventReason::LabelsOmitted);
        assert!(event.starts_with(&format!("{} labels of node long are left out", 1000 - kept)), "{event}");
        assert!(event.ends_with("remove some in the worker cluster"), "{event}");
        assert_eq!(complaints(scene).len(), 1, "{:?}", complaints(scene));
        is_quiet(scene, 0).await;
        // A node that gets them later.
        scene.patch(&scene.phys, "nodes", "", "n2", json!({"metadata": {"labels": long}}));
        tokio::time::sleep(SETTLED).await;
        assert!(taken_over(scene, "n2", &long) > 500);
        assert!(told(scene, "vnode-c1-n2", EventReason::LabelsOmitted).contains("of node n2 are left out"));
        is_quiet(scene, 0).await;
    });
}

#[test]
fn a_node_whose_name_is_taken_gets_another_one() {
    let long = "a".repeat(80);
    let derived = |node: &str| VnodeName::of(&ClusterId::parse("c1").unwrap(), node).as_str().to_owned();
    let other = |node: &str| VnodeName::disambiguated(&ClusterId::parse("c1").unwrap(), node);
    // The name of this one is what the name of the long one is cut to.
    let cut = derived(&long).strip_prefix("vnode-c1-").unwrap().to_owned();
    assert_eq!(derived(&cut), derived(&long));
    let prepare = |scene: &Scene| {
        for (node, cpu) in [(&long, "1"), (&cut, "2")] {
            let status = json!({"allocatable": {"cpu": cpu}});
            scene.add_node_with(node, json!({labels::HOSTNAME: "twins"}), status);
        }
        scene.lend(&scene.phys, "twins", "twins", json!({}));
        // A node of another worker cluster, whose clusterID has a dash.
        let body = json!({"metadata": {"name": "vnode-c1-n2", "labels": {labels::BINDING_UID: "another"}}});
        assert_eq!(scene.make(&scene.virt, "nodes", "", body), 201);
        scene.lend(&scene.phys, "second", "n2", json!({}));
        // And one of which someone has both names.
        scene.add_node("n3");
        scene.lend(&scene.phys, "third", "n3", json!({}));
        for name in ["vnode-c1-n3", other("n3").as_str()] {
            assert_eq!(scene.make(&scene.virt, "nodes", "", json!({"metadata": {"name": name}})), 201);
        }
    };
    beside_a_good_node(prepare, async |scene| {
        let of = |node: &str| {
            let vnode = scene.vnode_of(node);
            (text(&vnode, "/metadata/name").to_owned(), text(&vnode, "/status/allocatable/cpu").to_owned())
        };
        let (twins, second) = ([of(&long), of(&cut)], of("n2"));
        assert_eq!(twins.clone().map(|(_, cpu)| cpu), ["1", "2"], "each has its own");
        let names: BTreeSet<String> =
            twins.into_iter().chain([second.clone()]).map(|(name, _)| name).collect();
        assert_eq!(names.len(), 3);
        assert!(names.iter().all(|name| name.len() <= 63), "{names:?}");
        let foreign = scene.server().get("nodes", "", "vnode-c1-n2").unwrap();
        assert_eq!(foreign["metadata"]["labels"][labels::BINDING_UID], "another", "it is not touched");
        assert!(foreign["metadata"]["finalizers"].is_null());
        let events = events(scene, BINDING);
        let renamed = format!(
            "Warning {}: node `n2` is called `{}` here, since another node has the name `vnode-c1-n2`: rename one",
            EventReason::NameTaken.as_str(),
            second.0
        );
        assert!(events.iter().any(|event| event.starts_with(&renamed)), "{events:?}");
        let hopeless = format!("Node `{0}` is not of this binding; delete that Node", other("n3"));
        assert!(events.iter().any(|event| event.ends_with(&hopeless)), "{events:?}");
        assert_eq!(complaints(scene).len(), 4, "once for each name: {:?}", complaints(scene));
        is_quiet(scene, 0).await;
        scene.remove(&scene.virt, "nodes", "", other("n3").as_str());
        tokio::time::sleep(LATER).await;
        let vnode = scene.server().get("nodes", "", other("n3").as_str()).expect("it is free now");
        assert_eq!(vnode["metadata"]["annotations"][annotations::PHYSICAL_NODE_NAME], "n3");
    });
}

#[test]
fn without_the_definition_of_policies_the_borrowers_word_counts_alone() {
    let setting = Setting { lender_has_policies: false, nodes: &["n1", "n2"], ..Setting::default() };
    calm_in(
        setting,
        |_| (),
        async |scene| {
            tokio::time::sleep(SETTLED).await;
            assert!(scene.vnodes().is_empty());
            let leasing = leasing(scene);
            assert_eq!((&leasing["status"], &leasing["reason"]), (&json!("False"), &json!("NoPolicy")));
            let fix = "in the computing cluster allows it: create one there with spec.cluster `w1`";
            assert!(words(&leasing).contains(fix), "{leasing}");
            good(scene, &scene.virt);
            tokio::time::sleep(SETTLED).await;
            is_fine(scene);
            assert_eq!(scene.vnodes(), ["vnode-c1-n1"]);
            is_quiet(scene, 0).await;
            let refused = complaints(scene).iter().filter(|one| one.contains("does not let us read")).count();
            assert_eq!(refused, 0, "what is not there is not forbidden");
        },
    );
}

fn right(kind: &Kind) -> Right {
    let group = if kind.group.is_empty() { String::new() } else { format!(".{}", kind.group) };
    Right::to("*", &format!("{}{group}", kind.plural))
}

/// Takes the right to read away before the syncer is born; it is told once, and again only after it was given back and taken again.
fn without_rights(
    kind: &Kind,
    what_for: &str,
    meanwhile: impl AsyncFn(&Scene),
    mended: impl AsyncFn(&Scene),
) {
    let not_readable = |scene: &Scene| -> Vec<(String, u64)> {
        let all = scene.server().list("events", None);
        let about = all.iter().filter(|event| {
            text(event, "/reason") == EventReason::NotReadable.as_str()
                && text(event, "/involvedObject/name") == BINDING
                && text(event, "/involvedObject/kind") == kinds::BINDING.kind
        });
        about.map(|one| (text(one, "/message").to_owned(), one["count"].as_u64().unwrap())).collect()
    };
    let prepare = |scene: &Scene| {
        good(scene, &scene.phys);
        scene.phys.server.deny(SYNCER, right(kind));
    };
    calm_in(Setting { nodes: &["n1", "n2"], ..Setting::default() }, prepare, async |scene| {
        tokio::time::sleep(SETTLED).await;
        meanwhile(scene).await;
        let events = not_readable(scene);
        assert_eq!(events.len(), 1, "{events:?}");
        let (message, count) = &events[0];
        assert_eq!(*count, 1);
        let dot = if kind.group.is_empty() { "" } else { "." };
        let resource =
            format!("does not let us read {}{dot}{}, which we need to {what_for}", kind.plural, kind.group);
        for part in
            [&*resource, "get, list, watch", "`kubeocean worker-manifest | kubectl apply --server-side -f -`"]
        {
            assert!(message.contains(part), "{message}");
        }
        is_quiet(scene, 0).await;
        assert_eq!(not_readable(scene), events, "once is enough");
        meanwhile(scene).await;
        scene.phys.server.grant(SYNCER, &right(kind));
        tokio::time::sleep(SETTLED * 2).await;
        mended(scene).await;
        is_fine(scene);
        is_quiet(scene, 0).await;
        assert_eq!(not_readable(scene), events, "it is over");
        // Taken away again, it is news; what is known stays.
        scene.phys.server.deny(SYNCER, right(kind));
        scene.phys.server.drop_watches();
        tokio::time::sleep(SETTLED * 2).await;
        assert_eq!(not_readable(scene).len(), 2);
        assert_eq!(scene.vnode_of("n1")["status"]["allocatable"]["cpu"], "3750m");
        is_quiet(scene, 0).await;
        assert_eq!(not_readable(scene).len(), 2);
    });
}

#[test]
fn a_worker_that_hides_its_csinodes_is_told_so_and_its_nodes_are_leased() {
    let csi_node = |scene: &Scene| scene.server().get("csinodes", "", "vnode-c1-n1");
    without_rights(
        &kinds::CSI_NODE,
        "mirror which volume drivers a node has",
        async |scene| {
            is_fine(scene);
            assert!(csi_node(scene).is_none());
            let drivers = json!([{"name": "disk.example.com", "nodeID": "n1", "topologyKeys": []}]);
            let body = json!({"metadata": {"name": "n1"}, "spec": {"drivers": drivers}});
            scene.make(&scene.phys, "csinodes", "", body);
        },
        async |scene| assert!(csi_node(scene).is_some(), "mended, it is mirrored"),
    );
}

#[test]
fn a_worker_that_hides_its_policies_is_told_so_and_leases_nothing_new() {
    without_rights(
        &kinds::POLICY,
        "follow the lender's word",
        async |scene| {
            assert!(scene.vnodes().is_empty());
            let leasing = leasing(scene);
            let expected = (&json!("False"), &json!("PermissionDenied"));
            assert_eq!((&leasing["status"], &leasing["reason"]), expected);
            let fix =
                "grant the identity of ClusterBinding `w1` get, list and watch on resourceleasingpolicies";
            assert!(words(&leasing).contains(fix), "{leasing}");
        },
        async |scene| assert_eq!(leasing(scene)["status"], "True"),
    );
}

#[test]
fn a_worker_that_hides_its_nodes_or_pods_is_told_so() {
    let cases =
        [(kinds::NODE, "see which nodes there are"), (kinds::POD, "count what the lender's own pods use")];
    for (kind, what_for) in cases {
        let nothing_is_known = async |scene: &Scene| assert!(scene.vnodes().is_empty());
        without_rights(&kind, what_for, nothing_is_known, async |_| ());
    }
}

/// As the first installations have it: nothing is validated, and the status has fewer fields.
#[test]
fn an_older_definition_of_policies_is_followed_and_told() {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let status = json!({"type": "object", "properties": {
        "phase": {"type": "string"}, "activeTimeWindow": {"type": "boolean"},
        "lastAppliedTime": {"type": "string", "format": "date-time"},
        "conditions": {"type": "array", "items": open},
    }});
    let schema = json!({"type": "object", "properties": {"spec": open, "status": status}});
    let prepare = |scene: &Scene| scene.define_policies(&scene.phys, schema);
    beside_a_good_node(prepare, async |scene| {
        let event = told(scene, BINDING, EventReason::WriteRefused);
        assert!(event.contains("resourceleasingpolicies/status good"), "{event}");
        assert!(event.contains("not declared in schema"), "{event}");
        assert!(
            event.ends_with("apply the CustomResourceDefinitions of this version there (kubeocean crds)"),
            "{event}"
        );
        // It is tried again every five minutes, and counted.
        is_quiet(scene, 4).await;
        assert_eq!(leasing(scene)["status"], "True");
    });
}

#[test]
fn a_worker_that_lets_nobody_answer_its_policies_is_told_so() {
    let prepare = |scene: &Scene| {
        let status = format!("{}.{}/status", kinds::POLICY.plural, kinds::POLICY.group);
        scene.phys.server.deny(SYNCER, Right::to("patch", &status));
    };
    beside_a_good_node(prepare, async |scene| {
        let event = told(scene, BINDING, EventReason::WriteRefused);
        assert!(event.contains("refuses to apply resourceleasingpolicies/status good"), "{event}");
        assert!(event.ends_with("apply `kubeocean worker-manifest` there again"), "{event}");
        is_quiet(scene, 4).await;
        scene.phys.server.allow_all();
        tokio::time::sleep(LATER).await;
        assert_eq!(said(scene, "good", PolicyCondition::Valid)["status"], "True");
        is_quiet(scene, 0).await;
    });
}

#[test]
fn a_worker_three_minors_older_is_a_worker_like_any_other() {
    let features = json!(["ExtendWebSocketsToKubelet", "Other"]);
    let lend = |physical_minor: u32, expected: Value| {
        let setting = Setting { nodes: &["n1"], physical_minor, ..Setting::default() };
        let prepare = |scene: &Scene| {
            good(scene, &scene.phys);
            // A kubelet that is newer than its API server does not exist; one whose word is believed does harm.
            let body = json!({"status": {"declaredFeatures": features, "nodeInfo": {"kubeletVersion": format!("v1.{physical_minor}.0")}}});
            let merge = crate::scene::MERGE;
            let (code, answer) =
                scene.phys.server.call("kubelet", "PATCH", "/api/v1/nodes/n1/status", merge, Some(body));
            assert_eq!(code, 200, "{answer}");
        };
        calm_in(setting, prepare, async |scene| {
            tokio::time::sleep(SETTLED).await;
            is_fine(scene);
            let vnode = scene.vnode_of("n1");
            assert_eq!(vnode["status"]["declaredFeatures"], expected);
            assert_eq!(text(&vnode, "/status/nodeInfo/kubeletVersion"), format!("v1.{physical_minor}.0"));
            assert!(complaints(scene).is_empty(), "{:?}", complaints(scene));
            is_quiet(scene, 0).await;
        });
    };
    lend(36, features.clone());
    // What its API server cannot pass on is not promised.
    lend(33, json!(["Other"]));
}

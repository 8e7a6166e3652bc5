//! The vectors that all implementations of the contract share, through a syncer that runs.
//!
//! The pure functions are held to them in `crates/model/tests/model/vectors.rs`. Here it is the virtual nodes and the status of policies,
//! as people see them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubeocean_api::keys::conditions::{Binding as BindingCondition, Policy as PolicyCondition};
use kubeocean_api::keys::names::NODE_LEASE_NAMESPACE;
use kubeocean_api::keys::{annotations, labels, taints};
use kubeocean_model::action::kinds;
use kubeocean_model::leasing::SYNCER;
use kubeocean_model::quantity::Quantity;
use kubeocean_testkit::simulation::Site;
use serde_json::{Map, Value, json};

use crate::scene::{BINDING, MOUNT, Scene, Setting, condition, has_taint, label, text};
use crate::simulated::{calm_in, wait};

const LEASING: &str = include_str!("../../../model/tests/vectors/leasing.json");
const NAMING: &str = include_str!("../../../model/tests/vectors/naming.json");
const POLICIES: &str = include_str!("../../../model/tests/vectors/policies.json");
const WINDOWS: &str = include_str!("../../../model/tests/vectors/windows.json");

/// Everything is decided and written long before that, where nothing has to be waited for.
const A_MOMENT: Duration = Duration::from_millis(500);

/// As `A_MOMENT`, with all that is said only now and then.
const SETTLED: Duration = Duration::from_secs(15);

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn cases<'a>(vectors: &'a Value, list: &str) -> &'a [Value] {
    let cases = vectors[list].as_array().unwrap();
    assert!(!cases.is_empty());
    cases
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn before(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_sub(SignedDuration::try_from(by).unwrap()).unwrap()
}

/// One pod that asks for all of it, or as many pods as are used.
fn occupy(scene: &Scene, node: &str, used: &Value) {
    let used = used.as_object().unwrap();
    let pods = used.get("pods").map_or(usize::from(!used.is_empty()), |pods| word(pods).parse().unwrap());
    let requests: Map<_, _> = used
        .iter()
        .filter(|(resource, _)| *resource != "pods")
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    for number in 0..pods {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": requests}});
        run_there(scene, &format!("{node}-{number}"), node, json!({"containers": [container]}));
    }
}

/// A pod of the lender's; the server has to take it.
fn run_there(scene: &Scene, name: &str, node: &str, spec: Value) {
    let mut spec = spec;
    spec["nodeName"] = node.into();
    spec["automountServiceAccountToken"] = false.into();
    let body = json!({"metadata": {"name": name}, "spec": spec});
    assert_eq!(scene.make(&scene.phys, "pods", "theirs", body), 201, "{name}");
}

fn node_with(scene: &Scene, name: &str, allocatable: &Value) {
    scene.add_node_with(name, json!({labels::HOSTNAME: name}), json!({"allocatable": allocatable}));
}

#[test]
fn a_virtual_node_offers_what_others_leave_within_the_limits() {
    let vectors = read(LEASING);
    let cases = cases(&vectors, "cases");
    let named = || cases.iter().enumerate().map(|(number, case)| (format!("case-{number}"), case));
    // Pods that were there first, and pods that come when the node is leased already.
    for pods_come_later in [false, true] {
        let occupy = |scene: &Scene| named().for_each(|(node, case)| occupy(scene, &node, &case["used"]));
        let prepare = |scene: &Scene| {
            for (node, case) in named() {
                node_with(scene, &node, &case["allocatable"]);
                let lend = |site, limits: &Value| {
                    scene.lend(site, &node, &node, json!({"resourceLimits": limits}));
                };
                lend(&scene.phys, &case["limits"]);
                case.get("second_side_limits").into_iter().for_each(|limits| lend(&scene.virt, limits));
            }
            if !pods_come_later {
                occupy(scene);
            }
        };
        calm_in(Setting { nodes: &[], ..Setting::default() }, prepare, async |scene| {
            if pods_come_later {
                wait(scene, "leased", 30, || scene.at_rest()).await;
                occupy(scene);
            }
            tokio::time::sleep(SETTLED).await;
            for (node, case) in named() {
                let status = &scene.vnode_of(&node)["status"];
                assert_eq!(status["allocatable"], case["offer"], "{case}");
                assert_eq!(status["capacity"], case["offer"], "{case}");
            }
        });
    }
}

#[test]
fn a_pod_of_the_lender_takes_what_the_scheduler_says() {
    let vectors = read(LEASING);
    let cases = cases(&vectors, "pod_requests");
    let named = || cases.iter().enumerate().map(|(number, case)| (format!("case-{number}"), case));
    let prepare = |scene: &Scene| {
        scene.policy(&scene.phys, "all", json!({}));
        for (node, case) in named() {
            let containers = |list: &str, more: Value| -> Vec<Value> {
                let make = |(number, requests): (usize, &Value)| {
                    let mut container = json!({"name": format!("{list}-{number}"), "image": "i", "resources": {"requests": requests}});
                    container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                    container
                };
                case[list].as_array().into_iter().flatten().enumerate().map(make).collect()
            };
            let mut init = containers("sidecars", json!({"restartPolicy": "Always"}));
            init.extend(containers("init", json!({})));
            let mut spec = json!({"initContainers": init, "containers": containers("containers", json!({}))});
            if !case["overhead"].is_null() {
                spec["overhead"] = case["overhead"].clone();
            }
            if !case["pod_level"].is_null() {
                spec["resources"] = json!({"requests": case["pod_level"]});
            }
            node_with(scene, &node, &json!({"cpu": "8", "pods": "110"}));
            run_there(scene, &node, &node, spec);
        }
    };
    calm_in(Setting { nodes: &[], ..Setting::default() }, prepare, async |scene| {
        tokio::time::sleep(SETTLED).await;
        for (node, case) in named() {
            let asked: Quantity = word(&case["requests"]["cpu"]).parse().unwrap();
            let left = "8".parse::<Quantity>().unwrap() - asked;
            let offer = json!({"cpu": left.to_string(), "pods": "109"});
            assert_eq!(scene.vnode_of(&node)["status"]["allocatable"], offer, "{case}");
        }
    });
}

/// Ends in Z: an instant. Else civil time in the zone of the case.
fn instant(case: &Value, field: &str) -> Timestamp {
    let time = word(&case[field]);
    if time.ends_with('Z') {
        return time.parse().unwrap();
    }
    let civil: jiff::civil::DateTime = time.parse().unwrap();
    civil.in_tz(word(&case["zone"])).unwrap().timestamp()
}

/// A lender whose one node has the windows of a case. The scene begins `early` before `at`, and is looked at a moment after it.
fn at_the_window(case: &Value, at: Timestamp, early: Duration, look: impl Fn(&Scene)) {
    let setting = Setting { start: before(at, early), nodes: &["n1"], ..Setting::default() };
    let prepare = |scene: &Scene| {
        let spec = json!({"timeWindows": case["windows"], "timeZone": case["zone"]});
        scene.lend(&scene.phys, "windows", "n1", spec);
    };
    calm_in(setting, prepare, async |scene| {
        tokio::time::sleep(early + A_MOMENT).await;
        look(scene);
    });
}

fn is_open(scene: &Scene) -> bool {
    !has_taint(&scene.vnode_of("n1"), taints::OUT_OF_TIME_WINDOWS_KEY)
}

#[test]
fn a_virtual_node_is_open_while_its_windows_are() {
    let vectors = read(WINDOWS);
    for case in cases(&vectors, "cases") {
        let expected = case["active"].as_bool().unwrap();
        // A syncer that starts at that very moment, and one that has run up to it.
        for early in [0, 600] {
            at_the_window(case, instant(case, "at"), Duration::from_secs(early), |scene| {
                assert_eq!(is_open(scene), expected, "{case}");
                let policy = scene.lenders_policy("windows");
                assert_eq!(policy["status"]["activeTimeWindow"], expected, "{case}");
                let phase = if expected { "Active" } else { "Inactive" };
                assert_eq!(text(&policy, "/status/phase"), phase, "{case}");
            });
        }
    }
}

#[test]
fn a_policy_says_when_its_window_opens_or_closes_and_then_it_does() {
    let vectors = read(WINDOWS);
    for case in cases(&vectors, "next_transition") {
        at_the_window(case, instant(case, "after"), Duration::ZERO, |scene| {
            let said = &scene.lenders_policy("windows")["status"]["nextTransitionTime"];
            assert_eq!(*said, case["at"], "{case}");
            let closes = &scene.vnode_of("n1")["metadata"]["annotations"][annotations::LEASE_CLOSES_AT];
            let expected = if is_open(scene) { &case["at"] } else { &Value::Null };
            assert_eq!(closes, expected, "{case}");
        });
        let Some(edge) = case["at"].as_str().map(|at| at.parse::<Timestamp>().unwrap()) else { continue };
        // A second before it is one thing, a moment after it the other.
        let seen = |at: Timestamp| {
            let open = std::cell::Cell::new(None);
            at_the_window(case, at, Duration::from_secs(60), |scene| open.set(Some(is_open(scene))));
            open.get().unwrap()
        };
        assert_ne!(seen(before(edge, Duration::from_secs(1))), seen(edge), "{case}");
    }
}

/// API servers with our definitions refuse these; those with an older one take them.
#[test]
fn a_window_that_is_none_is_told_and_leases_nothing() {
    let vectors = read(WINDOWS);
    let cases = cases(&vectors, "invalid");
    let named = || cases.iter().enumerate().map(|(number, window)| (format!("case-{number}"), window));
    let prepare = |scene: &Scene| {
        for (name, window) in named() {
            let spec = json!({"cluster": BINDING, "timeWindows": [window]});
            let body = json!({"metadata": {"name": name}, "spec": spec});
            assert_eq!(scene.make(&scene.phys, "resourceleasingpolicies", "", body), 422, "{window}");
        }
        scene.without_validation(&scene.phys);
        scene.lend(&scene.phys, "good", "n1", json!({}));
        for (name, window) in named() {
            scene.add_node(&name);
            scene.lend(&scene.phys, &name, &name, json!({"timeWindows": [window]}));
        }
    };
    calm_in(Setting { nodes: &["n1"], ..Setting::default() }, prepare, async |scene| {
        tokio::time::sleep(SETTLED).await;
        assert_eq!(scene.vnodes(), ["vnode-c1-n1"]);
        for (name, window) in named() {
            let policy = scene.lenders_policy(&name);
            assert_eq!(text(&policy, "/status/phase"), "Failed", "{window}");
            let valid = condition(&policy, PolicyCondition::Valid.as_str());
            assert_eq!(valid["status"], "False", "{window}");
            let message = word(&valid["message"]);
            assert!(message.starts_with("spec.timeWindows[0]") && message.contains("write "), "{message}");
        }
    });
}

#[test]
fn virtual_nodes_have_the_names_and_ports_of_existing_installations() {
    let vectors = read(NAMING);
    let ports = cases(&vectors, "port");
    let mut ports_seen = 0;
    for case in cases(&vectors, "vnode") {
        let (node, name) = (word(&case["node"]), word(&case["virtual"]));
        let setting =
            Setting { cluster_id: word(&case["clusterID"]).to_owned(), nodes: &[], ..Setting::default() };
        let prepare = |scene: &Scene| {
            scene.policy(&scene.phys, "all", json!({}));
            scene.add_node(node);
            let drivers = json!([{"name": "disk.example.com", "nodeID": node, "topologyKeys": []}]);
            let body = json!({"metadata": {"name": node}, "spec": {"drivers": drivers}});
            assert_eq!(scene.make(&scene.phys, "csinodes", "", body), 201);
        };
        calm_in(setting, prepare, async |scene| {
            tokio::time::sleep(SETTLED).await;
            assert_eq!(scene.vnodes(), [name], "{case}");
            let vnode = scene.server().get("nodes", "", name).unwrap();
            assert_eq!(label(&vnode, labels::HOSTNAME), name);
            assert_eq!(vnode["metadata"]["annotations"][annotations::PHYSICAL_NODE_NAME], node);
            assert!(scene.server().get("leases", NODE_LEASE_NAMESPACE, name).is_some(), "{case}");
            assert!(scene.server().get("csinodes", "", name).is_some(), "{case}");
            for port in ports.iter().filter(|port| port["vnode"] == name) {
                let number = &port["preferred"];
                assert_eq!(label(&vnode, labels::PROXIER_PORT), number.to_string(), "{port}");
                assert_eq!(vnode["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"], *number, "{port}");
                ports_seen += 1;
            }
        });
    }
    assert_eq!(ports_seen, ports.len(), "each is the port of one of those nodes");
}

/// A pod of V with that name, which brings a `ConfigMap` and a Secret of that name along. Whether there can be one.
fn make_user(scene: &Scene, namespace: &str, name: &str) -> bool {
    scene.make(&scene.virt, "namespaces", "", json!({"metadata": {"name": namespace}}));
    for plural in ["configmaps", "secrets"] {
        scene.make(&scene.virt, plural, namespace, json!({"metadata": {"name": name}}));
    }
    let spec = json!({
        "nodeName": "vnode-c1-n1", "automountServiceAccountToken": false,
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [
            {"name": "c", "configMap": {"name": name}}, {"name": "s", "secret": {"secretName": name}},
        ],
    });
    scene.make(&scene.virt, "pods", namespace, json!({"metadata": {"name": name}, "spec": spec})) == 201
}

#[test]
fn what_pods_have_in_the_worker_cluster_is_called_as_in_existing_installations() {
    let vectors = read(NAMING);
    let cases = cases(&vectors, "physical_object");
    calm_in(
        Setting { nodes: &["n1"], ..Setting::default() },
        |_| (),
        async |scene| {
            scene.policy(&scene.phys, "all", json!({}));
            wait(scene, "leased", 20, || scene.at_rest()).await;
            let mut impossible = Vec::new();
            for case in cases {
                let (namespace, name) = (word(&case["namespace"]), word(&case["name"]));
                if namespace.is_empty() {
                    // A volume, which is in no namespace.
                    let claim = name.strip_prefix("pv-").unwrap();
                    scene.claim(claim);
                    scene.bind_claim(claim, json!({"nfs": {"server": "10.0.0.7", "path": "/data"}}));
                    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
                    scene.pod("user", "vnode-c1-n1", json!({"volumes": volumes}));
                } else if !make_user(scene, namespace, name) {
                    impossible.push(name);
                }
            }
            // What a function makes of a name that no API server takes is nothing that anyone meets.
            assert_eq!(impossible, ["trainer-0123456789-0123456789-.-zz"]);
            tokio::time::sleep(SETTLED).await;
            for case in cases.iter().filter(|case| !impossible.contains(&word(&case["name"]))) {
                let physical = word(&case["physical"]);
                let is_there = |plural: &str, namespace: &str| {
                    scene.phys.server.get(plural, namespace, physical).is_some()
                };
                if word(&case["namespace"]).is_empty() {
                    assert!(is_there("persistentvolumes", ""), "{case}");
                    continue;
                }
                for plural in ["pods", "configmaps", "secrets"] {
                    assert!(is_there(plural, MOUNT), "{plural}: {case}");
                }
                let twin = scene.phys.server.get("pods", MOUNT, physical).unwrap();
                assert_eq!(twin["metadata"]["annotations"][annotations::VIRTUAL_POD_NAME], case["name"]);
                assert_eq!(
                    twin["metadata"]["annotations"][annotations::VIRTUAL_POD_NAMESPACE],
                    case["namespace"]
                );
                let of =
                    |volume: usize, pointer: &str| text(&twin["spec"]["volumes"][volume], pointer).to_owned();
                assert_eq!(
                    [of(0, "/configMap/name"), of(1, "/secret/secretName")],
                    [physical, physical],
                    "{twin:#}"
                );
            }
        },
    );
}

/// The policies of both sides, the oldest first, each a second after the one before.
fn write_policies(scene: &Scene, case: &Value) {
    let side = |side: &str| case[side].as_array().cloned().unwrap_or_default();
    let mut all: Vec<(&Site, Value)> = side("worker").into_iter().map(|one| (&scene.phys, one)).collect();
    all.extend(side("computing").into_iter().map(|one| (&scene.virt, one)));
    all.sort_by_key(|(_, one)| one["created"].as_i64());
    let mut age = 0;
    for (site, one) in all {
        let created = one["created"].as_i64().unwrap();
        if created > age {
            let by = SignedDuration::from_secs(created - age);
            scene.virt.server.jump_clock(by);
            scene.phys.server.jump_clock(by);
            scene.clock.jump(by);
            age = created;
        }
        let mut spec = json!({"cluster": one["cluster"].as_str().unwrap_or(BINDING)});
        if let Some(cpu) = one["cpu"].as_str() {
            spec["resourceLimits"] = json!([{"resource": "cpu", "quantity": cpu}]);
        }
        if one["active"] == json!(false) {
            spec["timeWindows"] = json!([{"start": "00:00", "end": "00:01"}]);
        }
        if one["valid"] == json!(false) {
            scene.without_validation(site);
            spec["timeZone"] = "Nowhere/Never".into();
        }
        let node = if one["matches"] == json!(false) { "another" } else { "n1" };
        scene.lend(site, word(&one["name"]), node, spec);
    }
}

#[test]
fn the_policy_that_counts_is_the_one_that_should() {
    let vectors = read(POLICIES);
    for case in cases(&vectors, "cases") {
        let setting = Setting {
            lender_has_policies: case["worker_serves_crd"] == json!(true),
            start: "2026-06-01T12:00:00Z".parse().unwrap(),
            nodes: &["n1"],
            ..Setting::default()
        };
        let prepare = |scene: &Scene| {
            write_policies(scene, case);
            if case["worker_readable"] == json!(false) {
                scene.phys.server.forbid(SYNCER, "*", &kinds::POLICY.group, &kinds::POLICY.plural);
            }
        };
        calm_in(setting, prepare, async |scene| {
            tokio::time::sleep(SETTLED).await;
            let binding = scene.server().get("clusterbindings", "", BINDING).unwrap();
            let leasing = condition(&binding, BindingCondition::Leasing.as_str());
            let winner = &case["winner"];
            if winner.is_null() {
                assert!(scene.vnodes().is_empty(), "{case}");
                assert_eq!(
                    (&leasing["status"], &leasing["reason"]),
                    (&json!("False"), &case["reason"]),
                    "{case}"
                );
            } else {
                assert_eq!(leasing["status"], "True", "{case}");
                let vnode = scene.vnode_of("n1");
                let applied = &vnode["metadata"]["annotations"][annotations::POLICIES_APPLIED];
                let names: Vec<&str> =
                    ["worker", "computing"].iter().filter_map(|side| winner[*side].as_str()).collect();
                assert_eq!(word(applied), names.join(","), "{case}");
                if let Some(active) = case["active"].as_bool() {
                    assert_eq!(is_open(scene), active, "{case}");
                }
                if let Some(cpu) = case["cpu"].as_str() {
                    assert_eq!(text(&vnode, "/status/allocatable/cpu"), cpu, "{case}");
                }
            }
            for policy in scene.phys.server.list("resourceleasingpolicies", None) {
                let shadowed = condition(&policy, PolicyCondition::Shadowed.as_str());
                let name = text(&policy, "/metadata/name");
                if let Some(by) = case["shadowed"][name].as_str() {
                    assert_eq!(shadowed["status"], "True", "{name} of {case}");
                    assert!(word(&shadowed["message"]).contains(&format!("`{by}`")), "{shadowed}");
                } else {
                    assert_ne!(shadowed["status"], "True", "{name} of {case}");
                }
            }
        });
    }
}

//! The real loops, in memory, with everything that can go wrong.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt as _;
use kubeocean_api::keys::names::{FAKE_NAMESPACE, NODE_LEASE_NAMESPACE};
use kubeocean_api::keys::{annotations, labels, taints};
use kubeocean_cluster::together::until_one_ends;
use kubeocean_model::leasing::SYNCER;
use kubeocean_testkit::chaos::{Partition, Profile};
use kubeocean_testkit::crash::{self, Crash, Ending};
use kubeocean_testkit::simulation::{Trouble, World, fingerprint, hunt, run, seeds};
use kubeocean_testkit::test;
use rand::RngExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::rules::LATELY;
use crate::scene::{
    BINDING, MERGE, MOUNT, REST_WITHIN, Scene, Setting, collection, has_taint, is_deleting, minute, text,
};

/// Lives of the syncer until the course is run.
async fn beside(scene: &Scene, restarts: &Notify, course: impl Future<Output = ()>) {
    let lives = async {
        loop {
            tokio::select! {
                biased;
                () = restarts.notified() => {}
                () = scene.sync(None) => {}
            }
        }
    };
    until_one_ends([lives.boxed_local(), scene.others().boxed_local(), course.boxed_local()]).await;
}

pub(crate) async fn wait(scene: &Scene, what: &str, within: u64, condition: impl Fn() -> Result<(), String>) {
    if !scene.world.oracle.rest(Duration::from_secs(within), &condition).await {
        scene.late(what.to_owned());
    }
}

pub(crate) fn calm(course: impl AsyncFnOnce(&Scene), lender_has_policies: bool) {
    calm_in(Setting { lender_has_policies, ..Setting::default() }, |_| (), course);
}

/// A calm world that is prepared before the syncer is born.
pub(crate) fn calm_in(setting: Setting, prepare: impl FnOnce(&Scene), course: impl AsyncFnOnce(&Scene)) {
    calm_lives(setting, prepare, async |scene, _| course(scene).await);
}

/// The same, in which the syncer dies whenever it is told to, and is born again at once.
pub(crate) fn calm_lives(
    setting: Setting,
    prepare: impl FnOnce(&Scene),
    course: impl AsyncFnOnce(&Scene, &Notify),
) {
    let ((), violations) = run(1, |world| async move {
        let scene = Scene::set(&world, |_| Profile::calm(), setting);
        prepare(&scene);
        let restarts = Notify::new();
        beside(&scene, &restarts, course(&scene, &restarts)).await;
    });
    assert!(violations.is_empty(), "{}", violations[0]);
}

#[test]
fn a_policy_makes_virtual_nodes_and_its_end_takes_them_away() {
    calm(
        async |scene| {
            tokio::time::sleep(Duration::from_secs(30)).await;
            assert!(scene.vnodes().is_empty(), "the lender has not said a word");
            scene.policy(
                &scene.phys,
                "half",
                json!({"resourceLimits": [{"resource": "cpu", "percent": 50}]}),
            );
            wait(scene, "leased", 20, || scene.at_rest()).await;
            assert_eq!(scene.vnodes(), ["vnode-c1-n1", "vnode-c1-n2", "vnode-c1-n3"]);
            scene.their_pod("a", "n1", "2500m", Some(8080));
            wait(scene, "smaller", 20, || scene.at_rest()).await;
            let node = scene.server().get("nodes", "", "vnode-c1-n1").unwrap();
            assert_eq!(text(&node, "/status/allocatable/cpu"), "2500m", "half of what they leave");
            let fake = scene.server().list("pods", Some(FAKE_NAMESPACE));
            assert_eq!(fake[0]["spec"]["containers"][0]["ports"][0]["hostPort"], 8080);
            scene.comes_to_rest().await;
            let node = r#"{clusterbinding="w1",node="vnode-c1-n1",resource="cpu"}"#;
            let all = r#"{clusterbinding="w1",resource="cpu"}"#;
            shows(scene, r#"vnode_total{clusterbinding="w1"} 3.0"#);
            shows(scene, r#"worker_reachable{clusterbinding="w1"} 1.0"#);
            shows(scene, &format!("vnode_origin_resource{node} 7.5"));
            shows(scene, &format!("vnode_available_resource{node} 2.5"));
            shows(scene, &format!("vnode_physical_usage{node} 2.5"));
            shows(scene, &format!("cluster_origin_resource{all} 22.5"));
            shows(scene, &format!("cluster_available_resource{all} 10.0"));
            shows(scene, &format!("cluster_physical_usage{all} 2.5"));
            // What we run there ourselves is not what others use.
            let binding = scene.server().get("clusterbindings", "", BINDING).unwrap();
            let ours = json!({
                "metadata": {"name": "twin", "labels": {labels::BINDING_UID: text(&binding, "/metadata/uid")}},
                "spec": {
                    "nodeName": "n1", "automountServiceAccountToken": false,
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
                },
            });
            assert_eq!(scene.make(&scene.phys, "pods", MOUNT, ours), 201);
            tokio::time::sleep(Duration::from_secs(5)).await;
            shows(scene, &format!("vnode_physical_usage{node} 2.5"));
            shows(scene, &format!("vnode_virtual_usage{node} 1.0"));
            let pods =
                || scene.server().get("clusterbindings", "", BINDING).unwrap()["status"]["pods"].clone();
            // Counts are told now and then.
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(pods(), 1);
            shows(scene, r#"physical_pod_total{clusterbinding="w1"} 1.0"#);
            // One that has ended is history.
            let ended = json!({"status": {"phase": "Succeeded"}});
            let place = format!("{}/twin/status", collection("pods", MOUNT));
            scene.phys.server.call("kubelet", "PATCH", &place, MERGE, Some(ended));
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(pods(), 0);
            shows(scene, r#"physical_pod_total{clusterbinding="w1"} 0.0"#);
            scene.remove(&scene.phys, "pods", MOUNT, "twin");
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(pods(), 0);
            scene.remove(&scene.phys, "resourceleasingpolicies", "", "half");
            wait(scene, "gone", 60, || scene.at_rest()).await;
            assert!(scene.vnodes().is_empty());
            let binding = scene.server().get("clusterbindings", "", BINDING).unwrap();
            let leasing = binding["status"]["conditions"].as_array().unwrap();
            let leasing = leasing.iter().find(|one| one["type"] == "Leasing").unwrap();
            assert_eq!((&leasing["status"], &leasing["reason"]), (&json!("False"), &json!("NoPolicy")));
        },
        true,
    );
}

/// Asserts that Prometheus is shown this line.
pub(crate) fn shows(scene: &Scene, line: &str) {
    let line = format!("kubeocean_syncer_{line}");
    let all = scene.metrics.encode();
    assert!(all.lines().any(|shown| shown == line), "{line} is not in\n{all}");
}

/// The value of a series, by its name and a part of its labels.
pub(crate) fn counted(scene: &Scene, name: &str, label: &str) -> u64 {
    let name = format!("kubeocean_syncer_{name}{{");
    let all = scene.metrics.encode();
    let line = all.lines().find(|line| line.starts_with(&name) && line.contains(label));
    let value = line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok());
    assert!(value.is_some(), "{name} with {label} is not in\n{all}");
    value.unwrap_or_default()
}

#[test]
fn a_window_that_closes_takes_its_pods_in_time_and_not_before() {
    calm(
        async |scene| {
            let now = scene.clock.now();
            // Open until the end of the fifth minute from now.
            let window = json!({"start": minute(now, -60), "end": minute(now, 4)});
            let spec =
                json!({"timeWindows": [window], "forceReclaim": true, "gracefulReclaimPeriodSeconds": 120});
            scene.policy(&scene.phys, "nights", spec);
            wait(scene, "leased", 20, || scene.at_rest()).await;
            scene.budget(5);
            let tolerant = json!({"tolerations": [{"operator": "Exists"}]});
            scene.pod("plain", "vnode-c1-n1", json!({}));
            scene.pod("tolerant", "vnode-c1-n1", tolerant);
            scene.pod("guarded", "vnode-c1-n1", json!({}));
            let taint = |key: &str, effect: &str| {
                let node = scene.server().get("nodes", "", "vnode-c1-n1").unwrap();
                let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
                taints.iter().any(|taint| taint["key"] == key && taint["effect"] == effect)
            };
            let closes = now.checked_add(jiff::SignedDuration::from_mins(5)).unwrap();
            // The window is an hour and five minutes; ten minutes before its end nothing new comes.
            wait(scene, "closing", 5, || {
                if taint(taints::CLOSING_KEY, "NoSchedule") { Ok(()) } else { Err("not closing".to_owned()) }
            })
            .await;
            tokio::time::sleep(scene.until(closes).saturating_sub(Duration::from_secs(1))).await;
            assert!(!taint(taints::OUT_OF_TIME_WINDOWS_KEY, "NoSchedule"));
            assert!(scene.get_pod("guarded").is_some());
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(taint(taints::OUT_OF_TIME_WINDOWS_KEY, "NoSchedule"));
            let plain = scene.get_pod("plain").unwrap();
            let reclaim_at = closes.checked_add(jiff::SignedDuration::from_mins(2)).unwrap();
            let said = plain["metadata"]["annotations"][annotations::RECLAIM_AT].as_str().unwrap_or_default();
            assert_eq!(said, reclaim_at.to_string());
            let conditions = plain["status"]["conditions"].as_array().unwrap();
            assert!(
                conditions.iter().any(|one| one["type"] == "DisruptionTarget" && one["status"] == "True")
            );
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert!(scene.get_pod("guarded").is_none(), "its budget allowed it");
            tokio::time::sleep(scene.until(reclaim_at).saturating_sub(Duration::from_secs(1))).await;
            assert!(scene.get_pod("plain").is_some() && scene.get_pod("tolerant").is_some());
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(taint(taints::OUT_OF_TIME_WINDOWS_KEY, "NoExecute"));
            let goes = |name| scene.get_pod(name).is_none_or(|pod| is_deleting(&pod));
            assert!(goes("plain") && goes("tolerant"), "their time is up");
            let gone = || scene.get_pod("plain").is_none() && scene.get_pod("tolerant").is_none();
            wait(scene, "gone", 10, || if gone() { Ok(()) } else { Err("they end".to_owned()) }).await;
            let policy = scene.phys.server.get("resourceleasingpolicies", "", "nights").unwrap();
            assert_eq!(text(&policy, "/status/phase"), "Inactive");
            shows(scene, r#"reclaim_duration_seconds_bucket{le="300.0",clusterbinding="w1"} 1"#);
            let late = counted(scene, "window_edge_error_seconds_bucket", r#"le="1.0""#);
            let edges = counted(scene, "window_edge_error_seconds_count", "");
            assert!(late == edges && edges >= 3, "{late} of {edges}");
            let renewals = counted(scene, "lease_renewal_interval_seconds_bucket", r#"le="12.0""#);
            assert!(renewals > 90, "three nodes, every ten seconds, for seven minutes: {renewals}");
        },
        true,
    );
}

#[test]
fn a_window_that_opens_again_takes_nothing() {
    calm(
        async |scene| {
            let now = scene.clock.now();
            let windows = |open: bool| {
                let end = if open { minute(now, 600) } else { minute(now, 1) };
                let window = json!({"start": minute(now, -60), "end": end});
                json!({"timeWindows": [window], "forceReclaim": true, "gracefulReclaimPeriodSeconds": 600})
            };
            scene.policy(&scene.phys, "nights", windows(false));
            wait(scene, "leased", 20, || scene.at_rest()).await;
            scene.pod("plain", "vnode-c1-n1", json!({}));
            tokio::time::sleep(Duration::from_secs(180)).await;
            let told = |pod: &Value| !pod["metadata"]["annotations"][annotations::RECLAIM_AT].is_null();
            assert!(told(&scene.get_pod("plain").unwrap()));
            scene.policy(&scene.phys, "nights", windows(true));
            wait(scene, "open again", 10, || scene.at_rest()).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            let pod = scene.get_pod("plain").unwrap();
            assert!(!told(&pod), "{pod}");
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            assert!(conditions.iter().all(|one| one["type"] != "DisruptionTarget"), "{pod}");
            tokio::time::sleep(Duration::from_secs(900)).await;
            assert!(scene.get_pod("plain").is_some());
        },
        true,
    );
}

#[test]
fn a_worker_that_is_lost_is_said_to_be_lost_and_one_that_stutters_is_not() {
    calm(
        async |scene| {
            scene.policy(&scene.virt, "all", json!({}));
            wait(scene, "leased", 20, || scene.at_rest()).await;
            let before = scene.server().revision();
            let writes = || {
                let all = scene.server().history(before);
                all.iter().filter(|one| &*one.plural == "nodes" && one.actor == SYNCER).count()
            };
            scene.phys.chaos.partition(Partition::Silent);
            tokio::time::sleep(Duration::from_secs(30)).await;
            scene.phys.chaos.heal();
            tokio::time::sleep(Duration::from_secs(120)).await;
            assert_eq!(writes(), 0, "half a minute changes nothing");
            scene.phys.chaos.partition(Partition::Resets);
            tokio::time::sleep(Duration::from_secs(60)).await;
            let ready = || {
                let node = scene.server().get("nodes", "", "vnode-c1-n1").unwrap();
                let conditions = node["status"]["conditions"].as_array().unwrap().clone();
                conditions.into_iter().find(|one| one["type"] == "Ready").unwrap()
            };
            assert_eq!(
                (&ready()["status"], &ready()["reason"]),
                (&json!("Unknown"), &json!("WorkerUnreachable"))
            );
            scene.phys.chaos.heal();
            wait(scene, "back", 10, || {
                if ready()["status"] == "True" { Ok(()) } else { Err("lost".to_owned()) }
            })
            .await;
            wait(scene, "as before", 30, || scene.at_rest()).await;
            // Another cluster in its place changes nothing.
            let before = scene.server().revision();
            scene.lead_astray(true);
            tokio::time::sleep(Duration::from_secs(300)).await;
            let all = scene.server().history(before);
            let written = all.iter().filter(|one| &*one.plural != "leases" && one.actor == SYNCER);
            assert_eq!(written.count(), 0);
            wait(scene, "alive", 1, || scene.at_rest()).await;
            shows(scene, r#"worker_reachable{clusterbinding="w1"} 0.0"#);
            scene.lead_astray(false);
            scene.comes_to_rest().await;
            shows(scene, r#"worker_reachable{clusterbinding="w1"} 1.0"#);
        },
        false,
    );
}

/// How many things [`deed`] tells apart, by the lowest bits of a draw.
const DEEDS: u64 = 32;

/// Those that write or remove policies.
const POLICY_DEEDS: [u64; 5] = [0, 1, 2, 3, 4];

/// The same draw, for one of these deeds.
fn one_of(repertoire: &[u64], draw: u64) -> u64 {
    let deed = repertoire[usize::try_from(draw % DEEDS).unwrap() % repertoire.len()];
    draw - draw % DEEDS + deed
}

/// What lenders, borrowers and strangers do.
fn deed(scene: &Scene, draw: u64) {
    let n = (draw >> 8) % 4 + 1;
    let node = format!("n{n}");
    let vnode = format!("vnode-c1-{node}");
    let name = format!("p{}", draw >> 16 & 3);
    let now = scene.clock.now();
    match draw % DEEDS {
        0..=3 => {
            let percent = draw >> 20 & 63;
            let mut spec = json!({
                "resourceLimits": [{"resource": "cpu", "percent": percent}], "forceReclaim": draw >> 30 & 1 == 1,
                "gracefulReclaimPeriodSeconds": draw >> 32 & 127,
            });
            if draw >> 40 & 1 == 1 {
                let (from, to) = ((draw >> 41 & 7).cast_signed() - 6, (draw >> 44 & 7).cast_signed() + 2);
                spec["timeWindows"] = json!([{"start": minute(now, from), "end": minute(now, to)}]);
            }
            let site = if draw >> 50 & 1 == 1 { &scene.phys } else { &scene.virt };
            scene.policy(site, &name, spec);
        }
        4 => scene.remove(&scene.phys, "resourceleasingpolicies", "", &name),
        5 => scene.remove(&scene.virt, "resourceleasingpolicies", "", &name),
        6 => scene.remove(&scene.phys, "nodes", "", &node),
        7 | 8 => scene.add_node(&node),
        9 if draw >> 31 & 1 == 1 => scene.change_drivers(&node, draw >> 33),
        9 => scene.patch(
            &scene.phys,
            "nodes",
            "",
            &node,
            json!({"spec": {"unschedulable": draw >> 30 & 1 == 1}}),
        ),
        10 => move_node(scene, &node, draw),
        11 => {
            let ready = if draw >> 30 & 1 == 1 { "True" } else { "False" };
            let condition = json!({"type": "Ready", "status": ready, "reason": format!("Kubelet{ready}"), "message": "m",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let place = format!("/api/v1/nodes/{node}/status");
            let body = json!({"status": {"conditions": [condition]}});
            scene.phys.server.call("kubelet", "PATCH", &place, crate::scene::MERGE, Some(body));
        }
        12..=15 => {
            let port = (draw >> 30).is_multiple_of(4).then_some(8000 + (draw >> 34 & 3) as u16);
            let (name, cpu) = (format!("t{}", draw >> 20 & 15), format!("{}m", draw >> 24 & 1023));
            // Another borrower is one of those who use it.
            if (draw >> 40).is_multiple_of(4) {
                scene.pod_of_another_binding(&name, &node, &cpu);
            } else {
                scene.their_pod(&name, &node, &cpu, port);
            }
        }
        16 | 17 => {
            for namespace in ["theirs", MOUNT] {
                scene.remove(&scene.phys, "pods", namespace, &format!("t{}", draw >> 20 & 15));
            }
        }
        18..=20 => {
            if scene.vnodes().contains(&vnode) {
                let (name, spec) = some_pod(draw);
                scene.pod(&name, &vnode, spec);
            }
        }
        21 if (draw >> 31).is_multiple_of(4) => scene.lose_a_twin(draw >> 40),
        21 => scene.remove(&scene.virt, "pods", "web", &some_pod(draw).0),
        22 if draw >> 31 & 1 == 1 => scene.change_storage(draw >> 33),
        22 => scene.patch(
            &scene.virt,
            "nodes",
            "",
            &vnode,
            json!({"metadata": {"labels": {"mine": "yes", "zone": "stolen"}}}),
        ),
        23 if draw >> 31 & 1 == 1 => scene.change_services(draw >> 33),
        23 => scene.patch(
            &scene.virt,
            "nodes",
            "",
            &vnode,
            json!({"spec": {"unschedulable": draw >> 30 & 1 == 1}}),
        ),
        24 => scene.remove(&scene.virt, "nodes", "", &vnode),
        25 => scene.patch(&scene.virt, "nodes", "", &vnode, json!({"metadata": {"annotations": null}})),
        26 => scene.lead_astray(draw >> 30 & 1 == 1),
        27 if (draw >> 30).is_multiple_of(8) => scene.remove(&scene.virt, "clusterbindings", "", BINDING),
        28 => scene.remove(&scene.virt, "leases", NODE_LEASE_NAMESPACE, &vnode),
        29 => match draw >> 31 & 3 {
            0 => scene.change_settings(draw >> 33),
            1 => scene.change_storage(draw >> 33),
            2 => scene.change_services(draw >> 33),
            _ => scene.budget((draw >> 33 & 1) as u32 * 5),
        },
        30 => hide(scene, &vnode),
        _ => scene.bind(),
    }
}

/// A node comes out of what the binding selects, or into it: by its own labels, by the binding's word, or since it is no machine. And that
/// word may be one that nobody can follow.
fn move_node(scene: &Scene, node: &str, draw: u64) {
    let comes = draw >> 30 & 1 == 1;
    let label =
        |label: Value| scene.patch(&scene.phys, "nodes", "", node, json!({"metadata": {"labels": label}}));
    match draw >> 33 & 7 {
        0 => {
            let kind = if comes { Value::Null } else { labels::TYPE_VIRTUAL_KUBELET.into() };
            label(json!({labels::TYPE: kind}));
        }
        1 => {
            let zones = json!([{"key": "zone", "operator": "In", "values": ["a", "z1", "z2", "z3"]}]);
            let selector = json!({"nodeSelectorTerms": [{"matchExpressions": zones}]});
            let selector = if comes { Value::Null } else { selector };
            scene.patch(
                &scene.virt,
                "clusterbindings",
                "",
                BINDING,
                json!({"spec": {"nodeSelector": selector}}),
            );
        }
        2 if comes => crate::misspelt::correct(scene),
        2 => crate::misspelt::misspell(scene),
        _ => label(json!({"zone": format!("z{}", draw >> 62)})),
    }
}

/// A pod of one kind or another: guarded by a budget or not, a job or not, with settings and tokens or without.
fn some_pod(draw: u64) -> (String, Value) {
    let tolerations = if draw >> 30 & 1 == 1 { json!([{"operator": "Exists"}]) } else { json!([]) };
    let mut spec = json!({"tolerations": tolerations});
    if draw >> 33 & 1 == 1 {
        spec["volumes"] = json!([{"name": "s", "configMap": {"name": "settings"}}]);
    } else if draw >> 35 & 1 == 1 {
        spec["volumes"] =
            json!([{"name": "d", "persistentVolumeClaim": {"claimName": crate::storage::CLAIM}}]);
    }
    spec["automountServiceAccountToken"] = (draw >> 34 & 1 == 1).into();
    let prefix = match draw >> 31 & 3 {
        1 => "guarded",
        2 => {
            spec["restartPolicy"] = "Never".into();
            crate::kubelet::JOB
        }
        _ => "v",
    };
    (format!("{prefix}{}", draw >> 20 & 15), spec)
}

/// Takes the label away by which a virtual node is found.
pub(crate) fn hide(scene: &Scene, vnode: &str) {
    let body = json!({"metadata": {"labels": {labels::CLUSTER_BINDING: null}}});
    scene.patch(&scene.virt, "nodes", "", vnode, body);
}

async fn chaos(world: World) -> Scene {
    let mut random = world.random("which troubles");
    let profile = |name: &str| Profile::drawn(&mut world.random(&format!("profile of {name}")));
    let setting = Setting { lender_has_policies: random.random_bool(0.7), lag: LATELY, ..Setting::default() };
    let scene = Scene::set(&world, profile, setting);
    let restarts = Arc::new(Notify::new());
    scene.policy(&scene.phys, "p0", json!({}));
    scene.policy(&scene.virt, "p0", json!({}));
    let extent = world.extent(Duration::from_secs(60), Duration::from_secs(900));
    let mut trouble = Trouble::new(&world).every(extent.every);
    for _ in 0..4 {
        let (scene, repertoire) = (scene.clone(), world.repertoire(DEEDS));
        trouble = trouble.deed("someone", move |random| deed(&scene, one_of(&repertoire, random.random())));
    }
    let (v, p) = (&scene.virt, &scene.phys);
    for draw in 0..7 {
        if random.random_bool(0.4) {
            continue;
        }
        trouble = match draw {
            0 => trouble.compaction(v).compaction(p),
            1 => trouble.broken_watches(v).broken_watches(p),
            2 => trouble.partitions(v),
            3 => trouble.partitions(p),
            4 if random.random_bool(0.3) => {
                let restored = Arc::clone(&scene.restored);
                let site = if random.random_bool(0.5) { v } else { p };
                trouble.restore(site, site.server.revision(), move || restored.store(true, Ordering::Relaxed))
            }
            5 => {
                let (clock, jumped) = (scene.clock.clone(), Arc::clone(&scene.jumped));
                trouble.clock_jumps(v, move |by| {
                    jumped.store(true, Ordering::Relaxed);
                    clock.jump(by);
                })
            }
            6 => {
                let restarts = Arc::clone(&restarts);
                trouble.deed("the syncer dies", move |_| restarts.notify_one())
            }
            _ => trouble,
        };
    }
    let course = async {
        trouble.rage(extent.time).await;
        scene.comes_to_rest().await;
    };
    beside(&scene, &restarts, course).await;
    scene
}

#[test]
fn nodes_are_leased_and_given_back_under_chaos() {
    let report = hunt(test!(), &seeds(1_000), |world| async { drop(chaos(world).await) });
    println!("the syncer under full chaos: {report}");
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    let print = |seed| {
        let (print, _) = run(seed, |world| async move {
            let scene = chaos(world).await;
            let servers = [&scene.virt, &scene.phys, &scene.stranger].map(|site| &site.server);
            (fingerprint(servers), scene.traffic.counts())
        });
        print
    };
    for seed in 0..8 {
        assert_eq!(print(seed), print(seed), "seed {seed}");
    }
}

/// A network that is only slow, and people who do what they like: every pod goes in time.
async fn punctual(world: World) {
    let mut random = world.random("how slow");
    let latest = Duration::from_millis([0, 20, 500][random.random_range(0..3)]);
    // Where nothing is late nothing takes time either: then a second is a second.
    let slow =
        if latest.is_zero() { Duration::ZERO } else { Duration::from_millis(random.random_range(0..5)) };
    let late = if latest.is_zero() { 0.0 } else { 0.3 };
    let profile = Profile { late, latest, slow, ..Profile::calm() };
    // A node that changed waits a second for more, and each request may take its time.
    let lag = Duration::from_secs(2) + (latest * 2 + slow) * 4;
    let setting = Setting { lender_has_policies: random.random_bool(0.7), lag, ..Setting::default() };
    let scene = Scene::set(&world, |_| profile.clone(), setting);
    scene.policy(&scene.phys, "p0", json!({}));
    scene.policy(&scene.virt, "p0", json!({}));
    // Windows open and close by the minute: less than five would be over before any does.
    let extent = world.extent(Duration::from_secs(300), Duration::from_secs(1500));
    let mut trouble = Trouble::new(&world).every(extent.every);
    let (deeds, repertoire) = (scene.clone(), world.repertoire(DEEDS));
    trouble = trouble.deed("someone", move |random| {
        // Another cluster that answers is a reason to wait, as a cut is.
        let draw = one_of(&repertoire, random.random());
        if draw % DEEDS != 26 {
            deed(&deeds, draw);
        }
    });
    // Our own end is no cause for anything to be late, nor for a node to be lost.
    let restarts = Arc::new(Notify::new());
    if random.random_bool(0.5) {
        let restarts = Arc::clone(&restarts);
        trouble = trouble.deed("the syncer dies", move |_| restarts.notify_one());
    }
    scene.no_node_is_ever_lost();
    let edits_at_edges = random.random_bool(0.5);
    let at_edges = async {
        if edits_at_edges {
            let edit = |draw: u64| deed(&scene, one_of(&POLICY_DEEDS, draw));
            scene.edit_at_edges(world.random("at the edges"), edit).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    let course = async {
        tokio::select! {
            biased;
            () = scene.watch_the_deadlines(latest, slow) => {}
            () = at_edges => {}
            () = trouble.rage(extent.time) => {}
        }
        scene.comes_to_rest().await;
    };
    beside(&scene, &restarts, course).await;
}

#[test]
fn pods_go_within_a_second_of_their_deadline_if_nothing_is_broken() {
    let report = hunt(test!(), &seeds(100), punctual);
    println!("pods of a syncer in a slow network: {report}");
}

#[test]
fn a_node_that_is_stripped_of_its_annotations_gets_them_back_and_loses_no_pod() {
    let strip = |scene: &Scene| {
        scene.patch(&scene.virt, "nodes", "", "vnode-c1-n1", json!({"metadata": {"annotations": null}}));
    };
    let told = |scene: &Scene| {
        let pod = scene.get_pod("plain").unwrap();
        pod["metadata"]["annotations"][annotations::RECLAIM_AT].as_str().map(str::to_owned)
    };
    calm(
        async |scene| {
            let now = scene.clock.now();
            let window = json!({"start": minute(now, -60), "end": minute(now, 1)});
            let spec =
                json!({"timeWindows": [window], "forceReclaim": true, "gracefulReclaimPeriodSeconds": 600});
            scene.policy(&scene.phys, "nights", spec);
            wait(scene, "leased", 20, || scene.at_rest()).await;
            scene.pod("plain", "vnode-c1-n1", json!({}));
            tokio::time::sleep(Duration::from_secs(180)).await;
            let before = told(scene);
            assert!(before.is_some());
            strip(scene);
            wait(scene, "healed", 5, || scene.at_rest()).await;
            assert_eq!(told(scene), before, "its time is what it was");
            // The lender withdraws his policy, and the same happens again in that very moment.
            scene.remove(&scene.phys, "resourceleasingpolicies", "", "nights");
            strip(scene);
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(
                told(scene),
                before,
                "ten minutes from the end of the window are less than ten from now"
            );
            strip(scene);
            tokio::time::sleep(Duration::from_secs(300)).await;
            assert!(scene.get_pod("plain").is_some());
            wait(scene, "gone", 200, || scene.at_rest()).await;
            assert!(scene.get_pod("plain").is_none());
        },
        true,
    );
}

/// One life of a lease, each step from rest to rest; the syncer may die once.
async fn story(world: World, crash: Crash) -> Scene {
    // Time passes between the end of one life and the first write of the next.
    let profile = Profile { slow: Duration::from_millis(2), ..Profile::calm() };
    let mut scene = Scene::set(&world, |_| profile.clone(), Setting::default());
    // A renewal is like the other: all of them would be most of the points.
    scene.renew_every = Duration::from_secs(3600);
    let scene = scene;
    let rest = || async {
        scene.world.oracle.rest(REST_WITHIN, || scene.at_rest()).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
    };
    let course = async {
        rest().await;
        let spec = |windows: Value| {
            let limits = json!([{"resource": "cpu", "percent": 50}]);
            json!({"resourceLimits": limits, "forceReclaim": true, "gracefulReclaimPeriodSeconds": 60, "timeWindows": windows})
        };
        scene.policy(&scene.phys, "half", spec(Value::Null));
        rest().await;
        scene.their_pod("a", "n1", "1500m", Some(8080));
        rest().await;
        scene.policy(&scene.phys, "half", json!({"resourceLimits": [{"resource": "cpu", "percent": 25}]}));
        rest().await;
        scene.budget(5);
        scene.pod("plain", "vnode-c1-n1", json!({}));
        scene.pod("guarded", "vnode-c1-n1", json!({}));
        rest().await;
        let now = scene.clock.now();
        let closed = json!([{"start": minute(now, 300), "end": minute(now, 360)}]);
        scene.policy(&scene.phys, "half", spec(closed.clone()));
        tokio::time::sleep(Duration::from_secs(120)).await;
        rest().await;
        scene.policy(&scene.phys, "half", spec(Value::Null));
        rest().await;
        // Closed and opened again: told, and taken back.
        scene.pod("spared", "vnode-c1-n2", json!({}));
        rest().await;
        scene.policy(&scene.phys, "half", spec(closed));
        tokio::time::sleep(Duration::from_secs(30)).await;
        scene.policy(&scene.phys, "half", spec(Value::Null));
        rest().await;
        scene.remove(&scene.phys, "resourceleasingpolicies", "", "half");
        tokio::time::sleep(Duration::from_secs(90)).await;
        rest().await;
        scene.policy(&scene.phys, "half", spec(Value::Null));
        rest().await;
        scene.remove(&scene.virt, "clusterbindings", "", BINDING);
        scene.comes_to_rest().await;
    };
    let living = crash.survive(|| {
        let layer = crash.layer();
        let scene = &scene;
        async move { scene.sync(Some(&layer)).await }
    });
    until_one_ends([living.boxed_local(), scene.others().boxed_local(), course.boxed_local()]).await;
    scene
}

#[test]
fn a_syncer_that_dies_at_any_write_ends_where_it_would_have_ended() {
    let enumerated = crash::hunt(test!(), |crash| {
        let (ending, violations) = run(7, |world| async move {
            let scene = story(world, crash).await;
            let kinds = ["clusterbindings", "resourceleasingpolicies", "nodes", "leases", "csinodes", "pods"];
            let servers = [("V", &scene.virt.server), ("P", &scene.phys.server)];
            let mut ending = Ending::of(&servers, &kinds, SYNCER);
            // What was told twice was told; when it happened depends on when it happened.
            ending.summary.retain(|line, _| !line.contains(" events "));
            ending
        });
        violations.first().map_or(Ok(ending), |violation| Err(violation.to_string()))
    });
    println!("crash points of the syncer: {} of {} writes", enumerated.points, enumerated.writes);
    assert!(enumerated.writes >= 60, "{enumerated:?}");
}

#[test]
fn what_people_put_on_a_virtual_node_stays_and_one_that_they_hide_is_found() {
    calm(
        async |scene| {
            scene.policy(&scene.virt, "all", json!({}));
            wait(scene, "leased", 20, || scene.at_rest()).await;
            let theirs = json!({"key": "dedicated", "value": "mine", "effect": "NoSchedule"});
            let node = |name: &str| scene.server().get("nodes", "", name).unwrap();
            let mut taints = node("vnode-c1-n1")["spec"]["taints"].as_array().cloned().unwrap();
            taints.push(theirs.clone());
            scene.patch(&scene.virt, "nodes", "", "vnode-c1-n1", json!({"spec": {"taints": taints}}));
            let lenders = json!([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]);
            scene.patch(&scene.phys, "nodes", "", "n1", json!({"spec": {"taints": lenders}}));
            for zone in ["b", "c"] {
                tokio::time::sleep(Duration::from_secs(30)).await;
                scene.patch(&scene.phys, "nodes", "", "n1", json!({"metadata": {"labels": {"zone": zone}}}));
            }
            tokio::time::sleep(Duration::from_secs(30)).await;
            let found = node("vnode-c1-n1");
            assert_eq!(found["metadata"]["labels"]["zone"], "c");
            assert!(found["spec"]["taints"].as_array().unwrap().contains(&theirs), "{found:#}");

            scene.patch(&scene.virt, "nodes", "", "vnode-c1-n2", json!({"metadata": {"annotations": null}}));
            hide(scene, "vnode-c1-n2");
            let is_found = || node("vnode-c1-n2")["metadata"]["labels"][labels::CLUSTER_BINDING] == BINDING;
            wait(scene, "found", 10, || if is_found() { Ok(()) } else { Err("hidden".to_owned()) }).await;
            wait(scene, "as it was", 10, || scene.at_rest()).await;
            assert!(is_found());
        },
        false,
    );
}

#[test]
fn the_lease_clock_waits_for_nobody_who_refuses_something_else() {
    calm(
        async |scene| {
            let now = scene.clock.now();
            let window = json!({"start": minute(now, -60), "end": minute(now, 9)});
            let spec =
                json!({"timeWindows": [window], "forceReclaim": true, "gracefulReclaimPeriodSeconds": 300});
            // Neither a placeholder nor a word on a pod may be written.
            scene.server().forbid(SYNCER, "create", "", "pods");
            scene.server().forbid(SYNCER, "patch", "", "pods/status");
            scene.their_pod("a", "n1", "1", Some(8080));
            scene.policy(&scene.phys, "nights", spec);
            wait(scene, "three nodes", 20, || match scene.vnodes().len() {
                3 => Ok(()),
                others => Err(format!("{others} nodes")),
            })
            .await;
            scene.pod("plain", "vnode-c1-n1", json!({}));
            let closes = now.checked_add(jiff::SignedDuration::from_mins(10)).unwrap();
            tokio::time::sleep(scene.until(closes) + Duration::from_secs(1)).await;
            let node = scene.server().get("nodes", "", "vnode-c1-n1").unwrap();
            assert!(has_taint(&node, taints::OUT_OF_TIME_WINDOWS_KEY), "{node:#}");
            let deadline = closes.checked_add(jiff::SignedDuration::from_mins(5)).unwrap();
            tokio::time::sleep(scene.until(deadline).saturating_sub(Duration::from_secs(1))).await;
            assert!(scene.get_pod("plain").is_some());
            tokio::time::sleep(Duration::from_secs(2)).await;
            let pod = scene.get_pod("plain");
            assert!(
                pod.as_deref().is_none_or(|pod| !pod["metadata"]["deletionTimestamp"].is_null()),
                "{pod:?}"
            );
        },
        true,
    );
}

#[test]
fn an_offer_does_not_rise_while_nobody_knows_who_uses_what() {
    // What it cannot hear of, it hears of late.
    calm_in(
        Setting { lag: LATELY, ..Setting::default() },
        |_| (),
        async |scene| {
            let half = json!({"resourceLimits": [{"resource": "cpu", "percent": 50}]});
            scene.policy(&scene.phys, "p", half);
            wait(scene, "leased", 20, || scene.at_rest()).await;
            let offers = |vnode: &str| {
                let node = scene.server().get("nodes", "", vnode);
                node.map(|node| text(&node, "/status/allocatable/cpu").to_owned())
            };
            scene.phys.server.forbid(SYNCER, "*", "", "pods");
            scene.phys.server.drop_watches();
            tokio::time::sleep(Duration::from_secs(20)).await;
            scene.their_pod("big", "n1", "5", None);
            scene.add_node("n4");
            scene.policy(&scene.phys, "p", json!({}));
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(offers("vnode-c1-n1").as_deref(), Some("3750m"), "as before");
            assert_eq!(offers("vnode-c1-n4"), None, "who knows what runs there");
            // What is less is less for certain.
            scene.policy(&scene.phys, "p", json!({"resourceLimits": [{"resource": "cpu", "quantity": "1"}]}));
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert_eq!(offers("vnode-c1-n1").as_deref(), Some("1"));
            scene.policy(&scene.phys, "p", json!({"resourceLimits": null}));
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert_eq!(offers("vnode-c1-n1").as_deref(), Some("1"));
            scene.phys.server.allow_all();
            wait(scene, "as it should be", 60, || scene.at_rest()).await;
            assert_eq!(offers("vnode-c1-n1").as_deref(), Some("2500m"));
            assert_eq!(offers("vnode-c1-n4").as_deref(), Some("7500m"));
        },
    );
}

#[test]
fn a_node_that_comes_while_a_watch_is_away_for_a_moment_is_leased_a_moment_later() {
    calm(
        async |scene| {
            scene.policy(&scene.phys, "p", json!({}));
            wait(scene, "leased", 20, || scene.at_rest()).await;
            // The worker cluster is asked every five seconds: some of these moments are between two questions.
            for number in 4..9 {
                scene.phys.server.forbid(SYNCER, "*", "", "pods");
                scene.phys.server.drop_watches();
                tokio::time::sleep(Duration::from_millis(600)).await;
                scene.add_node(&format!("n{number}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
                scene.phys.server.allow_all();
                wait(scene, "leased", 30, || scene.at_rest()).await;
                tokio::time::sleep(Duration::from_millis(16_100)).await;
            }
        },
        true,
    );
}

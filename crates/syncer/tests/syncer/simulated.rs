//! The real loops, in memory, with everything that can go wrong.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use kubeocean_api::keys::names::{FAKE_NAMESPACE, NODE_LEASE_NAMESPACE};
use kubeocean_api::keys::{annotations, taints};
use kubeocean_model::leasing::SYNCER;
use kubeocean_testkit::chaos::{Partition, Profile};
use kubeocean_testkit::simulation::{Trouble, World, hunt, run, seeds};
use kubeocean_testkit::test;
use rand::RngExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::scene::{BINDING, Scene, minute, text};

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
    tokio::select! {
        biased;
        () = lives => {}
        () = scene.others() => {}
        () = course => {}
    }
}

async fn wait(scene: &Scene, what: &str, within: u64, condition: impl Fn() -> Result<(), String>) {
    if !scene.world.oracle.rest(Duration::from_secs(within), &condition).await {
        scene.late(what.to_owned());
    }
}

fn calm(course: impl AsyncFnOnce(&Scene), lender_has_policies: bool) {
    let ((), violations) = run(1, |world| async move {
        let scene = Scene::new(&world, |_| Profile::calm(), lender_has_policies);
        beside(&scene, &Notify::new(), course(&scene)).await;
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
            let budget = json!({
                "metadata": {"name": "b"}, "spec": {"minAvailable": 0, "selector": {"matchLabels": {"guarded": "yes"}}},
            });
            scene.make(&scene.virt, "poddisruptionbudgets", "web", budget);
            let status = json!({"status": {"disruptionsAllowed": 5, "currentHealthy": 5, "desiredHealthy": 0, "expectedPods": 5, "observedGeneration": 1}});
            let place = "/apis/policy/v1/namespaces/web/poddisruptionbudgets/b/status";
            scene.server().call("user", "PATCH", place, crate::scene::MERGE, Some(status));
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
            let until =
                |at: Timestamp| Duration::try_from(at.duration_since(scene.clock.now())).unwrap_or_default();
            tokio::time::sleep(until(closes) - Duration::from_secs(1)).await;
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
            tokio::time::sleep(until(reclaim_at) - Duration::from_secs(1)).await;
            assert!(scene.get_pod("plain").is_some() && scene.get_pod("tolerant").is_some());
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(taint(taints::OUT_OF_TIME_WINDOWS_KEY, "NoExecute"));
            assert!(scene.get_pod("plain").is_none() && scene.get_pod("tolerant").is_none());
            let policy = scene.phys.server.get("resourceleasingpolicies", "", "nights").unwrap();
            assert_eq!(text(&policy, "/status/phase"), "Inactive");
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
            scene.lead_astray(false);
            scene.comes_to_rest().await;
        },
        false,
    );
}

/// What lenders, borrowers and strangers do.
fn deed(scene: &Scene, draw: u64) {
    let n = (draw >> 8) % 4 + 1;
    let node = format!("n{n}");
    let vnode = format!("vnode-c1-{node}");
    let name = format!("p{}", draw >> 16 & 3);
    let now = scene.clock.now();
    match draw & 31 {
        0..=3 => {
            let percent = draw >> 20 & 63;
            let mut spec = json!({
                "resourceLimits": [{"resource": "cpu", "percent": percent}], "forceReclaim": draw >> 30 & 1 == 1,
                "gracefulReclaimPeriodSeconds": draw >> 32 & 127,
            });
            if draw >> 40 & 1 == 1 {
                let (from, to) = ((draw >> 41 & 7) as i64 - 6, (draw >> 44 & 7) as i64 + 2);
                spec["timeWindows"] = json!([{"start": minute(now, from), "end": minute(now, to)}]);
            }
            let site = if draw >> 50 & 1 == 1 { &scene.phys } else { &scene.virt };
            scene.policy(site, &name, spec);
        }
        4 => scene.remove(&scene.phys, "resourceleasingpolicies", "", &name),
        5 => scene.remove(&scene.virt, "resourceleasingpolicies", "", &name),
        6 => scene.remove(&scene.phys, "nodes", "", &node),
        7 | 8 => scene.add_node(&node),
        9 => scene.patch(
            &scene.phys,
            "nodes",
            "",
            &node,
            json!({"spec": {"unschedulable": draw >> 30 & 1 == 1}}),
        ),
        10 => scene.patch(
            &scene.phys,
            "nodes",
            "",
            &node,
            json!({"metadata": {"labels": {"zone": format!("z{}", draw >> 60)}}}),
        ),
        11 => {
            let ready = if draw >> 30 & 1 == 1 { "True" } else { "False" };
            let condition = json!({"type": "Ready", "status": ready, "reason": format!("Kubelet{ready}"), "message": "m",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let place = format!("/api/v1/nodes/{node}/status");
            let body = json!({"status": {"conditions": [condition]}});
            scene.phys.server.call("kubelet", "PATCH", &place, crate::scene::MERGE, Some(body));
        }
        12..=15 => {
            let port = (draw >> 30 & 3 == 0).then_some(8000 + (draw >> 34 & 3) as u16);
            scene.their_pod(
                &format!("t{}", draw >> 20 & 15),
                &node,
                &format!("{}m", draw >> 24 & 1023),
                port,
            );
        }
        16 | 17 => scene.remove(&scene.phys, "pods", "theirs", &format!("t{}", draw >> 20 & 15)),
        18..=20 => {
            let tolerations = if draw >> 30 & 1 == 1 { json!([{"operator": "Exists"}]) } else { json!([]) };
            let prefix = if draw >> 31 & 1 == 1 { "guarded" } else { "v" };
            if scene.vnodes().contains(&vnode) {
                scene.pod(
                    &format!("{prefix}{}", draw >> 20 & 15),
                    &vnode,
                    json!({"tolerations": tolerations}),
                );
            }
        }
        21 => scene.remove(&scene.virt, "pods", "web", &format!("v{}", draw >> 20 & 15)),
        22 => scene.patch(
            &scene.virt,
            "nodes",
            "",
            &vnode,
            json!({"metadata": {"labels": {"mine": "yes", "zone": "stolen"}}}),
        ),
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
        27 if draw >> 30 & 7 == 0 => scene.remove(&scene.virt, "clusterbindings", "", BINDING),
        28 => scene.remove(&scene.virt, "leases", NODE_LEASE_NAMESPACE, &vnode),
        _ => scene.bind(),
    }
}

async fn chaos(world: World) -> Scene {
    let mut random = world.random("which troubles");
    let profile = |name: &str| Profile::drawn(&mut world.random(&format!("profile of {name}")));
    let scene = Scene::new(&world, profile, random.random_bool(0.7));
    let restarts = Arc::new(Notify::new());
    scene.policy(&scene.phys, "p0", json!({}));
    scene.policy(&scene.virt, "p0", json!({}));
    let mut trouble = Trouble::new(&world).every(Duration::from_millis(random.random_range(500..20_000)));
    for _ in 0..4 {
        let scene = scene.clone();
        trouble = trouble.deed("someone", move |random| deed(&scene, random.random()));
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
    let time = Duration::from_secs(world.random("how long").random_range(60..900));
    let course = async {
        trouble.rage(time).await;
        scene.comes_to_rest().await;
    };
    beside(&scene, &restarts, course).await;
    scene
}

#[test]
fn nodes_are_leased_and_given_back_under_chaos() {
    let report = hunt(test!(), &seeds(500), |world| async { drop(chaos(world).await) });
    println!("the syncer under full chaos: {report}");
}

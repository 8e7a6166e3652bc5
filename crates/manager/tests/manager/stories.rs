//! What a user would notice, each told once in a calm world.

use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::SignedDuration;
use kubeocean_api::keys::{annotations, labels};
use kubeocean_model::action::kinds;
use kubeocean_model::bind::MANAGER;
use kubeocean_model::key::Key;
use kubeocean_testkit::Right;
use kubeocean_testkit::chaos::Profile;
use kubeocean_testkit::simulation::run;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::residents::{collection, text};
use crate::scene::{CHILDREN, MOUNT, NAMESPACE, REST_WITHIN, Scene};
use crate::simulated::beside;

/// A course in a calm world, beside one manager.
pub(crate) fn calmly<F: Future<Output = ()>>(inline: bool, course: impl FnOnce(Scene) -> F) {
    let ((), violations) = run(7, |world| async move {
        let scene = Scene::new(&world, |_| Profile::calm());
        scene.inline.store(inline, Ordering::Relaxed);
        beside(&scene, &Notify::new(), course(scene.clone())).await;
    });
    assert!(violations.is_empty(), "{violations:#?}");
}

pub(crate) async fn rest(scene: &Scene) {
    scene.world.oracle.rest(REST_WITHIN, || scene.at_rest()).await;
}

pub(crate) async fn seconds(time: u64) {
    tokio::time::sleep(Duration::from_secs(time)).await;
}

#[test]
fn a_binding_that_became_misspelt_can_be_unbound() {
    for (inline, foreground) in [(false, false), (false, true), (true, true)] {
        calmly(inline, |scene| async move {
            scene.bind("w1", "c1", "s1");
            rest(&scene).await;
            // Its syncer has work to do.
            seconds(20).await;
            scene.misspell("w1");
            seconds(20).await;
            let bindings = scene.virt.server.list("clusterbindings", None);
            assert_eq!(text(&bindings[0], "/status/phase"), "Failed", "{}", bindings[0]);
            scene.unbind("w1", foreground);
            rest(&scene).await;
            assert_eq!(scene.virt.server.list("clusterbindings", None).len(), 0, "inline: {inline}");
        });
    }
}

#[test]
fn what_is_left_is_counted_when_the_syncer_of_the_manager_has_ended() {
    for (volumes_may_be_read, left) in
        [(true, "1 endpointslices, 1 persistentvolumes;"), (false, "1 endpointslices;")]
    {
        calmly(true, |scene| async move {
            let worker = &scene.workers[0].server;
            if !volumes_may_be_read {
                worker.deny(MANAGER, Right::to("list", "persistentvolumes"));
            }
            scene.bind("w1", "c1", "s1");
            rest(&scene).await;
            seconds(20).await;
            let binding = scene.virt.server.get("clusterbindings", "", "w1").unwrap();
            let meta = json!({"name": "a", "labels": {labels::BINDING_UID: text(&binding, "/metadata/uid")}});
            let make = |plural: &str, namespace: &str, mut body: Value| {
                body["metadata"] = meta.clone();
                let place = collection(plural, namespace);
                let (code, answer) = worker.call("syncer", "POST", &place, None, Some(body));
                assert_eq!(code, 201, "{answer}");
            };
            let containers = json!([{"name": "main", "image": "none"}]);
            let spec = json!({"automountServiceAccountToken": false, "containers": containers});
            // Its syncer takes pods away when it ends, and here nothing else.
            make("pods", MOUNT, json!({"spec": spec}));
            make("endpointslices", MOUNT, json!({"addressType": "IPv4", "endpoints": []}));
            let volume = json!({
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "nfs": {"server": "s", "path": "/"},
            });
            make("persistentvolumes", "", json!({"spec": volume}));
            let forced = json!({"metadata": {"annotations": {annotations::FORCE_UNBIND: "a test"}}});
            scene.patch_binding("w1", forced);
            scene.unbind("w1", false);
            rest(&scene).await;
            seconds(10).await;
            let events = scene.virt.server.list("events", None);
            let said: Vec<&str> = events.iter().map(|event| text(event, "/message")).collect();
            let expected = format!("Left in the worker cluster: {left}");
            assert!(said.iter().any(|words| words.contains(&expected)), "{expected} {said:#?}");
        });
    }
}

#[test]
fn a_rotated_kubeconfig_is_used_before_all_rights_are_asked_for() {
    const CALLS: u64 = 20;
    calmly(true, |scene| async move {
        scene.bind("w1", "c1", "s1");
        rest(&scene).await;
        seconds(20).await;
        let phys = scene.phys.lock().clone().unwrap();
        // Seventy questions, two at a time, take more than half a minute.
        scene.workers[0].chaos.set_profile(Profile { slow: Duration::from_secs(1), ..Profile::calm() });
        scene.write_secret("s1", "p1 far");
        seconds(5).await;
        let before = scene.far.counts().requests;
        let (kind, namespace) = (kinds::NAMESPACE, Key::cluster_scoped(MOUNT));
        let calls = (0..CALLS).map(|_| phys.get(&kind, &namespace));
        futures::future::join_all(calls).await;
        let through = scene.far.counts().requests - before;
        assert!(through >= CALLS, "{through} of {CALLS} went over the new connection");
        scene.workers[0].chaos.calm();
        scene.comes_to_rest().await;
    });
}

/// A condition of a binding: its status, reason and message.
pub(crate) fn condition(scene: &Scene, name: &str, about: &str) -> [String; 3] {
    let binding = scene.virt.server.get("clusterbindings", "", name).unwrap();
    let conditions = binding["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|one| one["type"] == about).unwrap_or_default();
    ["/status", "/reason", "/message"].map(|pointer| text(&found, pointer).to_owned())
}

#[test]
fn a_secret_of_another_namespace_needs_a_role_binding_and_is_followed_from_then_on() {
    const LENDERS: &str = "lenders";
    calmly(false, |scene| async move {
        let server = &scene.virt.server;
        let namespace = json!({"metadata": {"name": LENDERS}});
        server.call("setup", "POST", &collection("namespaces", ""), None, Some(namespace));
        let right = Right::to("get", "secrets").within(LENDERS);
        server.deny(MANAGER, right.clone());
        scene.write_secret_of(LENDERS, "berlin", "p1");
        scene.bind_by("w1", "c1", LENDERS, "berlin");
        seconds(60).await;
        let [status, reason, message] = condition(&scene, "w1", "Connected");
        assert_eq!((&*status, &*reason), ("False", "PermissionDenied"), "{message}");
        assert!(message.contains("with a RoleBinding in lenders"), "{message}");

        server.grant(MANAGER, &right);
        seconds(5).await;
        let [status, _, message] = condition(&scene, "w1", "Connected");
        assert_eq!(status, "True", "{message}");
        rest(&scene).await;

        // No watch tells of it: it is read every few seconds.
        seconds(60).await;
        assert_eq!(scene.far.counts().requests, 0);
        scene.write_secret_of(LENDERS, "berlin", "p1 far");
        seconds(5).await;
        assert!(scene.far.counts().requests > 0, "the new connection is in use");
    });
}

#[test]
fn what_an_older_installation_made_is_taken_over_and_goes_with_the_binding() {
    calmly(false, |scene| async move {
        let server = &scene.virt.server;
        scene.bind("w1", "c1", "s1");
        let binding = server.get("clusterbindings", "", "w1").unwrap();
        let kind = kinds::BINDING;
        let owner = json!([{
            "apiVersion": kind.api_version(), "kind": kind.kind, "name": "w1", "uid": text(&binding, "/metadata/uid"),
        }]);
        let make = |plural: &str, body: Value| {
            let (code, answer) =
                server.call("older manager", "POST", &collection(plural, NAMESPACE), None, Some(body));
            assert_eq!(code, 201, "{answer}");
        };
        // One is called as ours is and selects other pods, one was named after the binding.
        for name in ["kubeocean-syncer-c1", "kubeocean-proxier-w1"] {
            let pods = json!({
                "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "old"}]},
            });
            let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": pods});
            let meta = json!({"name": name, "ownerReferences": owner});
            make("deployments", json!({"metadata": meta, "spec": spec}));
        }
        // And one has no owner, only labels.
        let by_label = json!({"app.kubernetes.io/managed-by": MANAGER, labels::CLUSTER_BINDING: "w1"});
        let meta = json!({"name": "kubeocean-proxier-c1-svc", "labels": by_label});
        make(
            "services",
            json!({"metadata": meta, "spec": {"clusterIP": "10.0.0.7", "ports": [{"port": 10250}]}}),
        );

        rest(&scene).await;
        seconds(20).await;
        let names = |plural: &str| -> Vec<String> {
            let all = server.list(plural, Some(NAMESPACE));
            all.iter().map(|one| text(one, "/metadata/name").to_owned()).collect()
        };
        assert_eq!(names("deployments"), ["kubeocean-proxier-c1", "kubeocean-syncer-c1"]);
        assert_eq!(names("services"), ["kubeocean-proxier-c1-svc"]);
        let syncer = server.get("deployments", NAMESPACE, "kubeocean-syncer-c1").unwrap();
        assert!(syncer["spec"]["selector"]["matchLabels"]["app"].is_null(), "{}", syncer["spec"]);
        let service = server.get("services", NAMESPACE, "kubeocean-proxier-c1-svc").unwrap();
        assert_eq!(text(&service, "/spec/clusterIP"), "None", "it is made anew");

        scene.unbind("w1", false);
        rest(&scene).await;
        seconds(20).await;
        for plural in CHILDREN {
            let left = names(plural);
            assert!(left.iter().all(|name| !name.contains("kubeocean")), "{plural}: {left:?}");
        }
    });
}

#[test]
fn the_workers_of_a_cluster_that_grew_are_larger() {
    let requests = |scene: &Scene| -> Vec<Value> {
        let all = scene.virt.server.list("deployments", None);
        let of =
            |one: &Value| one["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"].clone();
        all.iter().map(|one| of(one)).collect()
    };
    calmly(false, |scene| async move {
        scene.bind("w1", "c1", "s1");
        rest(&scene).await;
        let small = json!({"cpu": "100m", "memory": "128Mi"});
        assert_eq!(requests(&scene), [small.clone(), small]);
        for number in 0..118 {
            let node = json!({"metadata": {"name": format!("more-{number}")}});
            scene.workers[0].server.call("lender", "POST", &collection("nodes", ""), None, Some(node));
        }
        // Nodes are counted with the rights, every five minutes.
        seconds(320).await;
        rest(&scene).await;
        let medium = json!({"cpu": "200m", "memory": "256Mi"});
        assert_eq!(requests(&scene), [medium.clone(), medium]);
    });
}

#[test]
fn many_slow_worker_clusters_do_not_keep_a_good_one_waiting() {
    // More than are asked for everything at a time, twice.
    const SLOW: usize = 30;
    calmly(false, |scene| async move {
        scene.workers[0].chaos.set_profile(Profile { slow: Duration::from_secs(20), ..Profile::calm() });
        for number in 0..SLOW {
            scene.bind(&format!("slow-{number}"), &format!("c{number}"), "s1");
        }
        seconds(2).await;
        scene.bind("good", "good", "s2");
        seconds(20).await;
        let phase = |name: &str| {
            let binding = scene.virt.server.get("clusterbindings", "", name).unwrap();
            text(&binding, "/status/phase").to_owned()
        };
        assert_eq!(phase("good"), "Ready");
        for number in 0..SLOW {
            assert_ne!(phase(&format!("slow-{number}")), "Ready");
        }
    });
}

#[test]
fn the_manager_counts_by_the_names_that_dashboards_know() {
    calmly(false, |scene| async move {
        scene.bind("w1", "c1", "s1");
        scene.write_secret("s2", "nonsense");
        scene.bind("w2", "c2", "s2");
        seconds(60).await;
        let text = scene.metrics.lock().as_ref().unwrap().encode();
        let value = |series: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
            line.and_then(|value| value.parse::<f64>().ok())
                .unwrap_or_else(|| panic!("no {series} in\n{text}"))
        };
        for (phase, count) in [("Ready", 1.0), ("Failed", 1.0), ("Pending", 0.0)] {
            let series = format!("kubeocean_cluster_bindings_total{{phase=\"{phase}\"}}");
            assert!((value(&series) - count).abs() < 0.5, "{series} in\n{text}");
        }
        for series in [
            "kubeocean_sync_duration_seconds_count{queue=\"bindings\"}",
            "kubeocean_sync_errors_total{queue=\"probes\",outcome=\"bad-kubeconfig\"}",
            "kubeocean_manager_sync_total{clusterbinding=\"w1\"}",
            "kubeocean_manager_sync_duration_seconds_count",
            "kubeocean_manager_bindings_with_condition{condition=\"Connected\"}",
        ] {
            assert!(value(series) >= 1.0, "{series} in\n{text}");
        }
        // It is there before anything fails: who looks at its rate needs a first value.
        assert!(value("kubeocean_manager_sync_errors_total{clusterbinding=\"w1\"}") >= 0.0);
    });
}

/// The condition Valid of the only policy: its status and reason.
fn valid(scene: &Scene) -> Option<(String, String)> {
    let policies = scene.virt.server.list("resourceleasingpolicies", None);
    let conditions = policies[0]["status"]["conditions"].as_array()?.clone();
    let valid: &Value = conditions.iter().find(|one| one["type"] == "Valid")?;
    Some((text(valid, "/status").to_owned(), text(valid, "/reason").to_owned()))
}

#[test]
fn a_policy_hears_that_its_binding_does_not_exist_as_long_as_that_is_true() {
    calmly(false, |scene| async move {
        let policy = json!({
            "apiVersion": kinds::POLICY.api_version(), "kind": "ResourceLeasingPolicy",
            "metadata": {"name": "nights"}, "spec": {"cluster": "w1"},
        });
        let place = collection("resourceleasingpolicies", "");
        let (code, answer) = scene.virt.server.call("user", "POST", &place, None, Some(policy));
        assert_eq!(code, 201, "{answer}");
        let complaint = Some(("False".to_owned(), "NoSuchBinding".to_owned()));
        seconds(5).await;
        assert_eq!(valid(&scene), complaint);
        scene.bind("w1", "c1", "s1");
        rest(&scene).await;
        seconds(5).await;
        assert_eq!(valid(&scene), None, "what is not true any more is taken back");
        scene.unbind("w1", false);
        rest(&scene).await;
        seconds(5).await;
        assert_eq!(valid(&scene), complaint);
    });
}

#[test]
fn a_manager_that_has_not_heard_of_a_binding_yet_removes_nothing_of_it() {
    for seed in 0..24 {
        let ((), violations) = run(seed, |world| async move {
            // Half of its watches say nothing any more, and it does not know.
            let silent = |name: &str| if name == "V" { 0.5 } else { 0.0 };
            let scene = Scene::new(&world, |name| Profile { watch_silent: silent(name), ..Profile::calm() });
            // What was made a moment ago looks old to it.
            scene.clock.jump(SignedDuration::from_mins(10));
            let course = async {
                seconds(5).await;
                scene.bind("w1", "c1", "s1");
                let server = &scene.virt.server;
                let binding = server.get("clusterbindings", "", "w1").unwrap();
                let uid = text(&binding, "/metadata/uid");
                let stamp = json!({labels::MANAGED_BY: labels::MANAGED_BY_VALUE, labels::BINDING_UID: uid});
                let node = json!({"metadata": {"name": "vnode-c1-n1", "labels": stamp}});
                server.call("syncer", "POST", &collection("nodes", ""), None, Some(node));
                seconds(150).await;
                assert!(server.get("nodes", "", "vnode-c1-n1").is_some(), "seed {seed}");
            };
            beside(&scene, &Notify::new(), course).await;
        });
        assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
    }
}

#[test]
fn people_hear_of_a_status_that_an_api_server_refuses() {
    calmly(false, |scene| async move {
        let right = Right::to("patch", "clusterbindings/status");
        scene.virt.server.deny(MANAGER, right.clone());
        scene.bind("w1", "c1", "s1");
        seconds(20).await;
        let events = scene.virt.server.list("events", None);
        let told = events.iter().find(|event| text(event, "/reason") == "WriteRefused");
        let told = told.unwrap_or_else(|| panic!("{events:#?}"));
        let words = text(told, "/message");
        assert_eq!(text(told, "/type"), "Warning");
        assert!(
            words.contains("forbidden")
                && words.contains("kubeocean crds | kubectl apply --server-side -f -"),
            "{words}"
        );
        scene.virt.server.grant(MANAGER, &right);
        rest(&scene).await;
    });
}

#[test]
fn a_kubeconfig_is_not_taken_while_nobody_knows_whether_it_leads_home() {
    calmly(false, |scene| async move {
        let right = Right::to("get", "namespaces");
        scene.virt.server.deny(MANAGER, right.clone());
        scene.bind("w1", "c1", "s1");
        seconds(30).await;
        let binding = scene.virt.server.get("clusterbindings", "", "w1").unwrap();
        assert_eq!(text(&binding, "/status/workerUID"), "", "{}", binding["status"]);
        scene.virt.server.grant(MANAGER, &right);
        rest(&scene).await;
        let binding = scene.virt.server.get("clusterbindings", "", "w1").unwrap();
        assert_eq!(text(&binding, "/status/phase"), "Ready");
    });
}

#[test]
fn what_is_left_is_counted_page_by_page() {
    calmly(true, |scene| async move {
        let worker = &scene.workers[0].server;
        scene.bind("w1", "c1", "s1");
        rest(&scene).await;
        seconds(20).await;
        let binding = scene.virt.server.get("clusterbindings", "", "w1").unwrap();
        let stamp = json!({labels::BINDING_UID: text(&binding, "/metadata/uid")});
        // More than fit into one answer of those that the manager takes from a worker cluster.
        for number in 0..120 {
            let meta = json!({"name": format!("s{number}"), "labels": stamp, "annotations": {"a": "x".repeat(10_000)}});
            let body = json!({"metadata": meta, "addressType": "IPv4", "endpoints": []});
            worker.call("syncer", "POST", &collection("endpointslices", MOUNT), None, Some(body));
        }
        scene
            .patch_binding("w1", json!({"metadata": {"annotations": {annotations::FORCE_UNBIND: "a test"}}}));
        scene.unbind("w1", false);
        rest(&scene).await;
        seconds(10).await;
        let events = scene.virt.server.list("events", None);
        let said: Vec<&str> = events.iter().map(|event| text(event, "/message")).collect();
        assert!(said.iter().any(|words| words.contains("worker cluster: 120 endpointslices;")), "{said:#?}");
    });
}

#[test]
fn an_etcd_that_is_restored_at_any_moment_of_an_unbinding_takes_no_syncer_away_too_early_and_leaves_nothing()
{
    for moment in 0..24 {
        for back in [2, 9] {
            let ((), violations) = run(moment, |world| async move {
                // Watches that say nothing any more: the manager does not hear that time was turned back.
                let silent = |name: &str| if name == "V" { 0.3 } else { 0.0 };
                let profile = |name: &str| Profile { watch_silent: silent(name), ..Profile::calm() };
                let scene = Scene::new(&world, profile);
                let course = async {
                    scene.bind("w1", "c1", "s1");
                    seconds(60).await;
                    let server = &scene.virt.server;
                    let begins = server.revision();
                    scene.unbind("w1", false);
                    let limit = Instant::now() + Duration::from_secs(300);
                    while server.revision() < begins + moment && Instant::now() < limit {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    *scene.restored.write() = true;
                    server.restore(server.revision().saturating_sub(back).max(begins));
                    scene.comes_to_rest().await;
                };
                beside(&scene, &Notify::new(), course).await;
            });
            assert!(violations.is_empty(), "restored {back} versions at {moment}: {violations:#?}");
        }
    }
}

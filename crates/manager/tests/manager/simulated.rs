//! The real loops, in memory, with everything that can go wrong.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt as _;
use kubeocean_api::keys::annotations;
use kubeocean_cluster::together::until_one_ends;
use kubeocean_model::bind::MANAGER;
use kubeocean_testkit::chaos::Profile;
use kubeocean_testkit::crash::{self, Crash, Ending, Enumerated};
use kubeocean_testkit::simulation::{Test, Trouble, World, fingerprint, hunt, run, seeds};
use kubeocean_testkit::test;
use rand::RngExt as _;
use serde_json::json;
use tokio::sync::Notify;

use crate::residents::text;
use crate::scene::{CHILDREN, MOUNT, REST_WITHIN, Scene};

/// Lives of the manager, or of two of whom one leads, until the course is run.
pub(crate) async fn beside(scene: &Scene, restarts: &Notify, course: impl Future<Output = ()>) {
    let lives = |identity: &'static str| async move {
        loop {
            let life = if scene.managers == 1 {
                scene.manage(None).boxed_local()
            } else {
                scene.stand_by(identity).boxed_local()
            };
            tokio::select! {
                biased;
                () = restarts.notified() => {}
                () = life => {}
            }
        }
    };
    let living = async {
        if scene.managers == 1 {
            lives("alone").await;
        } else {
            until_one_ends([lives("one").boxed_local(), lives("other").boxed_local()]).await;
        }
    };
    until_one_ends([living.boxed_local(), scene.others().boxed_local(), course.boxed_local()]).await;
}

/// How many things [`user`] tells apart.
const DEEDS: u64 = 17;

/// What a user may do to bindings: one of these, to one of them.
fn user(scene: &Scene, repertoire: &[u64], draw: u64) {
    let n = usize::from(draw & 1 == 1);
    let (name, id, secret) = [("w1", "c1", "s1"), ("w2", "c2", "s2")][n];
    match repertoire[(draw >> 4) as usize % repertoire.len()] {
        0 => scene.unbind(name, false),
        1 => scene.unbind(name, true),
        2 => scene.bind("w3", "c1", "s3"),
        3 => scene.unbind("w3", false),
        4 => scene.write_secret(secret, &format!("p{} rotated {}", n + 1, draw >> 32)),
        5 => scene.write_secret(secret, "nonsense"),
        6 => scene.write_secret(secret, "p2"),
        7 => scene.patch_binding(name, json!({"spec": {"serviceNamespaces": [format!("n{}", draw >> 60)]}})),
        8 => {
            let namespace = scene.workers[1].server.get("namespaces", "", MOUNT).unwrap();
            let uid = text(&namespace, "/metadata/uid");
            scene
                .patch_binding(name, json!({"metadata": {"annotations": {annotations::ACCEPT_WORKER: uid}}}));
        }
        9 if (draw >> 40).is_multiple_of(4) => {
            scene.patch_binding(
                name,
                json!({"metadata": {"annotations": {annotations::FORCE_UNBIND: "a test"}}}),
            );
        }
        10 | 11 => scene.vandalise((draw >> 20) as usize & 0xffff),
        12 => scene
            .patch_binding(name, json!({"metadata": {"annotations": {annotations::SIZE_CLASS: "large"}}})),
        13 => scene.misspell(name),
        14 => scene.vanish(name),
        _ => scene.bind(name, id, secret),
    }
}

async fn chaos(world: World) -> Scene {
    let mut scene =
        Scene::new(&world, |name| Profile::drawn(&mut world.random(&format!("profile of {name}"))));
    let mut random = world.random("how it is run");
    scene.managers = if random.random_bool(0.25) { 2 } else { 1 };
    scene.inline.store(random.random_bool(0.25), Ordering::Relaxed);
    let changes_mode = scene.managers == 1 && random.random_bool(0.25);
    let restarts = Arc::new(Notify::new());
    scene.bind("w1", "c1", "s1");
    scene.bind("w2", "c2", "s2");
    let mut random = world.random("which troubles");
    let extent = world.extent(Duration::from_secs(60), Duration::from_secs(600));
    let mut trouble = Trouble::new(&world).every(extent.every);
    for _ in 0..3 {
        let (scene, repertoire) = (scene.clone(), world.repertoire(DEEDS));
        trouble = trouble.deed("the user", move |random| user(&scene, &repertoire, random.random()));
    }
    let (v, [p1, p2]) = (&scene.virt, &scene.workers);
    for draw in 0..7 {
        if random.random_bool(0.4) {
            continue;
        }
        trouble = match draw {
            0 => trouble.compaction(v),
            1 => trouble.broken_watches(v),
            2 => trouble.partitions(v),
            3 => trouble.partitions(p1).partitions(p2),
            4 if random.random_bool(0.3) => {
                let restored = Arc::clone(&scene.restored);
                trouble.restore(v, v.server.revision(), move || *restored.write() = true)
            }
            5 => {
                let clock = scene.clock.clone();
                trouble.clock_jumps(v, move |by| clock.jump(by))
            }
            6 => {
                let (restarts, inline) = (Arc::clone(&restarts), Arc::clone(&scene.inline));
                trouble.deed("the manager dies", move |random| {
                    if changes_mode {
                        inline.store(random.random(), Ordering::Relaxed);
                    }
                    restarts.notify_one();
                })
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
fn bindings_come_and_go_under_chaos_and_nothing_is_left_or_lost() {
    let report = hunt(test!(), &seeds(500), |world| async { drop(chaos(world).await) });
    println!("the manager under full chaos: {report}");
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    let print = |seed| {
        let (print, _) = run(seed, |world| async move {
            let scene = chaos(world).await;
            let [one, other] = &scene.workers;
            (fingerprint([&scene.virt.server, &one.server, &other.server]), scene.traffic.counts())
        });
        print
    };
    for seed in 0..8 {
        assert_eq!(print(seed), print(seed), "seed {seed}");
    }
}

/// Bind, edit, rotate, unbind: each from rest to rest, and the manager may die once.
async fn story(world: World, crash: Crash, inline: bool) -> Scene {
    let scene = Scene::new(&world, |_| Profile::calm());
    scene.inline.store(inline, Ordering::Relaxed);
    let rest = || async {
        scene.world.oracle.rest(REST_WITHIN, || scene.at_rest()).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
    };
    let course = async {
        scene.bind("w1", "c1", "s1");
        scene.bind("w2", "c2", "s2");
        rest().await;
        scene.patch_binding("w1", json!({"spec": {"serviceNamespaces": ["web"]}}));
        scene.bind("w3", "c1", "s3");
        rest().await;
        scene.write_secret("s1", "p1 with another token");
        scene.patch_binding("w2", json!({"metadata": {"annotations": {annotations::SIZE_CLASS: "large"}}}));
        rest().await;
        scene.unbind("w3", false);
        scene.unbind("w1", true);
        rest().await;
        let force = json!({annotations::FORCE_UNBIND: "a test"});
        scene.patch_binding("w2", json!({"metadata": {"annotations": force}}));
        scene.unbind("w2", false);
        rest().await;
        scene.bind("w2", "c2", "s2");
        scene.comes_to_rest().await;
    };
    let living = crash.survive(|| {
        let layer = crash.layer();
        let scene = &scene;
        async move { scene.manage(Some(&layer)).await }
    });
    until_one_ends([living.boxed_local(), scene.others().boxed_local(), course.boxed_local()]).await;
    scene
}

fn crash_points(test: Test, inline: bool) -> Enumerated {
    crash::hunt(test, |crash| {
        let (ending, violations) = run(7, |world| async move {
            let scene = story(world, crash, inline).await;
            let kinds: Vec<&str> = CHILDREN
                .into_iter()
                .chain(["clusterbindings", "nodes", "leases", "csinodes", "pods"])
                .collect();
            let mut ending = Ending::of(&[("V", &scene.virt.server)], &kinds, MANAGER);
            // What was told twice was told; when it happened depends on when it happened.
            ending.summary.retain(|line, _| !line.contains(" events "));
            for object in ending.state.values_mut() {
                for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
                    condition["lastTransitionTime"] = json!(null);
                    condition["lastUpdateTime"] = json!(null);
                }
            }
            ending
        });
        violations.first().map_or(Ok(ending), |violation| Err(violation.to_string()))
    })
}

#[test]
fn a_manager_that_dies_at_any_write_ends_where_it_would_have_ended() {
    let enumerated = crash_points(test!(), false);
    println!("crash points of the manager: {} of {} writes", enumerated.points, enumerated.writes);
    assert!(enumerated.writes >= 40, "{enumerated:?}");
}

#[test]
fn one_that_runs_the_workers_itself_does_so_too() {
    let enumerated = crash_points(test!(), true);
    println!("crash points of the manager, inline: {} of {} writes", enumerated.points, enumerated.writes);
    assert!(enumerated.writes >= 20, "{enumerated:?}");
}

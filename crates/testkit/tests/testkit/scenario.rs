//! The world of the sample: two clusters, a user, someone, and the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::metrics::Metrics;
use kubeocean_model::key::{Physical, Virtual};
use kubeocean_testkit::chaos::Profile;
use kubeocean_testkit::crash::{Crash, CrashLayer};
use kubeocean_testkit::simulation::{Mischief, Site, Trouble, World};
use kubeocean_testkit::traffic::Traffic;
use kubeocean_testkit::{ApiServer, Commit, Verb};
use parking_lot::Mutex;
use rand::RngExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::mirror::{ACTOR, NAMESPACE, Running, Wiring, copy_name_of, is_wanted, place, share, stamp};

pub(crate) const ONE_COPY: &str = "at most one live copy per uid";
pub(crate) const ONLY_OURS: &str = "nothing without our stamp is touched";
pub(crate) const NOT_YET: &str = "no copy is deleted that its original wanted all along";

/// Watches that died silently are noticed after two minutes and some, failing keys come back after five.
const REST_WITHIN: Duration = Duration::from_secs(15 * 60);

/// A restored etcd that caught up unseen is noticed by the next list, half an hour later at most.
const REST_AFTER_RESTORE: Duration = Duration::from_secs(45 * 60);

/// Two watches are renewed each minute.
const REQUESTS_A_MINUTE: u64 = 6;

const PATH: &str = "/api/v1/namespaces/{namespace}/configmaps";
const MERGE: Option<&str> = Some("application/merge-patch+json");

pub(crate) type Controller = fn(Wiring) -> Running;

type Clusters = (Cluster<Virtual>, Cluster<Physical>);

/// Both clusters, and the controller's end of the wire.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) virt: Site,
    pub(crate) phys: Site,
    pub(crate) traffic: Traffic,
    pub(crate) clock: Clock,
    /// Those of the controller's present life.
    clusters: Arc<Mutex<Option<Clusters>>>,
    restored: Arc<Mutex<Option<Instant>>>,
}

impl Scene {
    pub(crate) fn new(world: &World, profile: impl Fn(&str) -> Profile) -> Self {
        let (virt, phys) = (world.site("V", profile("V")), world.site("P", profile("P")));
        for (site, namespace) in [(&virt, "web"), (&virt, "db"), (&phys, NAMESPACE)] {
            let body = json!({"metadata": {"name": namespace}});
            site.server.call("setup", "POST", "/api/v1/namespaces", None, Some(body));
        }
        let scene = Self {
            traffic: Traffic::of(ACTOR, &world.oracle),
            clock: Clock::simulated(virt.server.now()),
            world: world.clone(),
            virt,
            phys,
            clusters: share(None),
            restored: share(None),
        };
        scene.rules();
        scene
    }

    fn rules(&self) {
        let oracle = &self.world.oracle;
        let (virt, phys) = (self.virt.server.clone(), self.phys.server.clone());
        let copies = phys.clone();
        oracle.always("P", &phys, ONE_COPY, move |commit| {
            let Some((_, uid)) = commit.new.as_deref().and_then(stamp) else { return Ok(()) };
            let live = copies.list_at(commit.revision, "configmaps", Some(NAMESPACE));
            let live = live.iter().filter(|copy| copy["metadata"]["deletionTimestamp"].is_null());
            let names: Vec<String> = live
                .filter(|copy| stamp(copy).is_some_and(|(_, other)| other == uid))
                .map(|copy| place(copy))
                .collect();
            if names.len() > 1 { Err(format!("{uid} has {}", names.join(" and "))) } else { Ok(()) }
        });
        oracle.always("P", &phys, ONLY_OURS, |commit| match &commit.old {
            Some(old) if commit.actor == ACTOR && stamp(old).is_none() => {
                Err(format!("{} is not ours: {}", place(old), old["metadata"]))
            }
            _ => Ok(()),
        });
        oracle.always("V", &virt, ONLY_OURS, |commit| {
            if commit.actor == ACTOR { Err("nothing of V is ours".to_owned()) } else { Ok(()) }
        });
        self.wanted_all_along();
    }

    /// A deletion may be late, but it must have been right once in the life of the copy.
    fn wanted_all_along(&self) {
        let unwanted: Arc<Mutex<BTreeMap<String, Instant>>> = share(BTreeMap::new());
        let seen = Arc::clone(&unwanted);
        self.virt.server.on_commit(move |commit| {
            if !commit.new.as_deref().is_some_and(is_wanted)
                && let Some(object) = commit.old.as_deref().or(commit.new.as_deref())
            {
                seen.lock().insert(uid(object), Instant::now());
            }
        });
        let (virt, restored) = (self.virt.server.clone(), Arc::clone(&self.restored));
        let mut born = BTreeMap::new();
        self.world.oracle.always("P", &self.phys.server, NOT_YET, move |commit: &Commit| {
            if let (Verb::Create, Some(new)) = (commit.verb, &commit.new) {
                born.insert(uid(new), Instant::now());
            }
            let (Verb::Delete, Some(old)) = (commit.verb, commit.old.as_deref()) else { return Ok(()) };
            let (Some((of, original_uid)), true) = (stamp(old), commit.actor == ACTOR) else { return Ok(()) };
            let Some((namespace, name)) = of.split_once('/') else { return Ok(()) };
            let wanted = virt.get("configmaps", namespace, name).filter(|original| {
                is_wanted(original) && uid(original) == original_uid && commit.name == copy_name_of(of)
            });
            let born = born.get(&uid(old)).copied();
            // What was seen to be unwanted may be wanted again, and the news of it on their way.
            let unwanted = unwanted.lock().get(original_uid).map(|at| *at + REST_WITHIN);
            let excused = restored.lock().map(|at| at + REST_AFTER_RESTORE).max(unwanted);
            if wanted.is_some() && excused < born {
                return Err(format!("{of} wants {}", place(old)));
            }
            Ok(())
        });
    }

    /// Starts a life of the controller.
    pub(crate) fn start(&self, controller: Controller, life: Option<&CrashLayer>) -> Running {
        let metrics = Metrics::new(ACTOR);
        let settings =
            |name: &str| Settings { seed: self.world.seed, ..Settings::new(name, ACTOR, &metrics) };
        let virt = Cluster::over(self.virt.client(&self.traffic, life), settings("virtual"));
        let phys = Cluster::over(self.phys.client(&self.traffic, life), settings("physical"));
        *self.clusters.lock() = Some((virt.clone(), phys.clone()));
        controller(Wiring {
            virt,
            phys,
            raw: [self.virt.client(&self.traffic, life), self.phys.client(&self.traffic, life)],
            clock: self.clock.clone(),
            seed: self.world.seed,
            metrics,
        })
    }

    /// What is wrong with P at rest.
    pub(crate) fn at_rest(&self) -> Result<(), String> {
        let line =
            |place: String, uid: &str, object: &Value| (place, uid.to_owned(), object["data"].to_string());
        let wanted: BTreeSet<_> = self
            .virt
            .server
            .list("configmaps", None)
            .iter()
            .filter(|original| is_wanted(original))
            .map(|original| line(place(original), &uid(original), original))
            .collect();
        let there: BTreeSet<_> = self
            .phys
            .server
            .list("configmaps", Some(NAMESPACE))
            .iter()
            .filter_map(|copy| stamp(copy).map(|(of, uid)| line(of.to_owned(), uid, copy)))
            .collect();
        if wanted == there {
            return Ok(());
        }
        let missing: Vec<_> = wanted.difference(&there).collect();
        let too_many: Vec<_> = there.difference(&wanted).collect();
        Err(format!("missing: {missing:?}, too many: {too_many:?}"))
    }

    /// Calms everything, and waits for rest.
    pub(crate) async fn comes_to_rest(&self) {
        self.virt.chaos.calm();
        self.phys.chaos.calm();
        // What is not ours is in nobody's way any more.
        for object in self.phys.server.list("configmaps", Some(NAMESPACE)) {
            if stamp(&object).is_none() {
                let path = format!("/api/v1/namespaces/{}", place(&object).replace('/', "/configmaps/"));
                self.phys.server.call("someone", "DELETE", &path, None, None);
            }
        }
        let within = if self.restored.lock().is_some() { REST_AFTER_RESTORE } else { REST_WITHIN };
        let oracle = &self.world.oracle;
        if oracle.rest(within, || self.at_rest()).await {
            // The servers are at rest; the controller may not know it yet: a watch is dead, a key failed for
            // long, a store remembers what a restored etcd forgot.
            tokio::time::sleep(within).await;
            oracle
                .stays_at_rest(Duration::from_secs(600), &self.traffic, REQUESTS_A_MINUTE, || self.at_rest())
                .await;
        }
    }

    fn troubles(&self, restarts: &Arc<Notify>) -> Trouble {
        let mut random = self.world.random("which troubles");
        let mut trouble =
            Trouble::new(&self.world).every(Duration::from_millis(random.random_range(200..20_000)));
        let server = self.virt.server.clone();
        for _ in 0..3 {
            let server = server.clone();
            trouble = trouble.deed("the user", move |random| user(&server, random.random()));
        }
        let (v, p) = (&self.virt, &self.phys);
        let restored = |which: &Arc<Mutex<Option<Instant>>>| {
            let which = Arc::clone(which);
            move || *which.lock() = Some(Instant::now())
        };
        for draw in 0..10 {
            if random.random_bool(0.4) {
                continue;
            }
            trouble = match draw {
                0 => trouble.compaction(v).compaction(p),
                1 => trouble.broken_watches(v).broken_watches(p),
                2 => trouble.partitions(v),
                3 => trouble.partitions(p),
                4 if random.random_bool(0.4) => {
                    trouble.restore(v, v.server.revision(), restored(&self.restored))
                }
                4 if random.random_bool(0.4) => {
                    trouble.restore(p, p.server.revision(), restored(&self.restored))
                }
                5 => {
                    let clock = self.clock.clone();
                    trouble.clock_jumps(v, move |by| clock.jump(by)).clock_jumps(p, |_| {})
                }
                6 => trouble.foreign_hands(v, "configmaps", PATH, FOREIGN_V),
                7 => trouble.foreign_hands(p, "configmaps", PATH, FOREIGN_P),
                8 => {
                    let scene = self.clone();
                    trouble.deed("other credentials", move |_| {
                        if let Some((virt, phys)) = &*scene.clusters.lock() {
                            virt.replace_over(&scene.virt.client(&scene.traffic, None));
                            phys.replace_over(&scene.phys.client(&scene.traffic, None));
                        }
                    })
                }
                9 => {
                    let restarts = Arc::clone(restarts);
                    trouble.deed("the controller dies", move |_| restarts.notify_one())
                }
                _ => trouble,
            };
        }
        trouble
    }
}

const FOREIGN_V: &[Mischief] =
    &[Mischief::Delete, Mischief::StripLabels, Mischief::Scribble, Mischief::ChangeData, Mischief::Recreate];
const FOREIGN_P: &[Mischief] = &[
    Mischief::Delete,
    Mischief::StripLabels,
    Mischief::StripAnnotations,
    Mischief::Scribble,
    Mischief::ChangeData,
    Mischief::Recreate,
    Mischief::Usurp,
];

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// A user of V makes, changes and removes a handful of `ConfigMap`s.
fn user(server: &ApiServer, draw: u64) {
    let (namespace, name) =
        (["web", "db"][usize::from(draw & 1 == 1)], ["a", "b", "c"][(draw >> 1) as usize % 3]);
    let collection = PATH.replace("{namespace}", namespace);
    let place = format!("{collection}/{name}");
    let data = json!({"a": (draw >> 20).to_string()});
    let patch = |body| server.call("user", "PATCH", &place, MERGE, Some(body));
    match draw >> 8 & 7 {
        0 => drop(server.call("user", "DELETE", &place, None, None)),
        1 => drop(patch(json!({"metadata": {"labels": {"mirror": "no"}}}))),
        2 => drop(patch(json!({"metadata": {"labels": {"mirror": "yes"}}}))),
        3 | 4 => drop(patch(json!({"data": data}))),
        _ => {
            let body = json!({"metadata": {"name": name, "labels": {"mirror": "yes"}}, "data": data});
            server.call("user", "POST", &collection, None, Some(body));
        }
    }
}

/// Everything goes wrong for some minutes; then it has to come to rest.
pub(crate) async fn full_chaos(world: World, controller: Controller) -> Scene {
    let scene = Scene::new(&world, |name| Profile::drawn(&mut world.random(&format!("profile of {name}"))));
    storm(&scene, controller).await;
    scene
}

async fn storm(scene: &Scene, controller: Controller) {
    let restarts = Arc::new(Notify::new());
    let troubles = scene.troubles(&restarts);
    under(scene, controller, troubles, &restarts).await;
}

/// A user who never pauses, and nothing else.
pub(crate) async fn busy_user(scene: &Scene, controller: Controller) {
    let server = scene.virt.server.clone();
    let user = Trouble::new(&scene.world)
        .every(Duration::from_millis(500))
        .deed("the user", move |random| user(&server, random.random()));
    under(scene, controller, user, &Notify::new()).await;
}

async fn under(scene: &Scene, controller: Controller, troubles: Trouble, restarts: &Notify) {
    for (namespace, name) in [("web", "a"), ("web", "b"), ("db", "a")] {
        let body = json!({"metadata": {"name": name, "labels": {"mirror": "yes"}}, "data": {"a": "0"}});
        scene.virt.server.call("user", "POST", &PATH.replace("{namespace}", namespace), None, Some(body));
    }
    let living = async {
        loop {
            tokio::select! {
                biased;
                () = restarts.notified() => {}
                () = scene.start(controller, None) => {}
            }
        }
    };
    let time = Duration::from_secs(scene.world.random("how long").random_range(30..240));
    let course = async {
        troubles.rage(time).await;
        scene.comes_to_rest().await;
    };
    tokio::select! {
        biased;
        () = living => {}
        () = course => {}
    }
}

/// A few steps, each from rest to rest, in which the controller may die once.
pub(crate) async fn steps(world: World, controller: Controller, crash: Crash) -> Scene {
    let scene = Scene::new(&world, |_| Profile::calm());
    let server = scene.virt.server.clone();
    let call = |method: &str, path: &str, body: Value| {
        server.call("user", method, path, (method == "PATCH").then_some(MERGE).flatten(), Some(body))
    };
    let make = |name: &str, text: &str| {
        let body = json!({"metadata": {"name": name, "labels": {"mirror": "yes"}}, "data": {"a": text}});
        call("POST", "/api/v1/namespaces/web/configmaps", body);
    };
    let at = |name: &str| format!("/api/v1/namespaces/web/configmaps/{name}");
    let rest = || async {
        scene.world.oracle.rest(REST_WITHIN, || scene.at_rest()).await;
        // The controller has to hear of it, too.
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    let course = async {
        for name in ["a", "b", "c"] {
            make(name, "1");
        }
        rest().await;
        call("PATCH", &at("a"), json!({"data": {"a": "2", "b": "new"}}));
        call("DELETE", &at("b"), json!({}));
        rest().await;
        // Another one of that name, before anyone looks.
        call("DELETE", &at("a"), json!({}));
        make("a", "3");
        call("PATCH", &at("c"), json!({"metadata": {"labels": {"mirror": "no"}}}));
        rest().await;
        make("b", "4");
        scene.comes_to_rest().await;
    };
    let living = crash.survive(|| scene.start(controller, Some(&crash.layer())));
    tokio::select! {
        biased;
        () = living => {}
        () = course => {}
    }
    scene
}

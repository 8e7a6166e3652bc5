//! Managers that are killed, and API servers that go away.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use kubeocean_api::keys::annotations::SIZE_CLASS;
use kubeocean_api::keys::labels::{BINDING_UID, COMPONENT};
use kubeocean_api::keys::names::{INSTALL_NAMESPACE, WORKER_NAMESPACE};
use kubeocean_sandbox::COMPUTING;
use kubeocean_sandbox::lab::Program;
use serde_json::{Value, json};

use super::place::{Ours, Place, get, request, text};
use crate::access::until;
use crate::support::eventually;

/// How often the manager is killed.
const KILLS: usize = 20;

/// What people do between two rounds of looking at what became of it; a manager is killed at some moment after each.
const STORY: [&str; 5] = ["bind", "edit", "rotate", "unbind", "meddle"];

/// Most of what a manager does after it begins to lead, it does within this time.
const KILLED_WITHIN: u64 = 1500;

/// Short, so that the next manager need not wait for long.
pub(super) const SHORT_HOLD: &[&str] = &[
    "--leader-elect",
    "--leader-election-lease-duration=1s",
    "--leader-election-renew-deadline=800ms",
    "--leader-election-retry-period=200ms",
];

/// Numbers that look random; the same ones for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Deployments per binding and role, all the time.
#[derive(Clone, Default)]
struct Doubles(Arc<Mutex<Vec<String>>>);

impl Doubles {
    /// Looks at every Deployment that comes, until it is dropped.
    async fn watch(self, client: Client) {
        let api: Api<Deployment> = Api::namespaced(client, INSTALL_NAMESPACE);
        loop {
            let mut known: BTreeMap<String, (String, String)> = BTreeMap::new();
            let Ok(list) = api.list(&kube::api::ListParams::default()).await else { continue };
            let version = list.metadata.resource_version.clone().unwrap_or_default();
            for deployment in &list.items {
                known.insert(deployment.name_any(), whose(deployment));
            }
            self.judge(&known);
            let Ok(events) = api.watch(&WatchParams::default(), &version).await else { continue };
            let mut events = std::pin::pin!(events);
            while let Some(Ok(event)) = events.next().await {
                match event {
                    WatchEvent::Added(new) | WatchEvent::Modified(new) => {
                        known.insert(new.name_any(), whose(&new));
                    }
                    WatchEvent::Deleted(old) => {
                        known.remove(&old.name_any());
                    }
                    _ => {}
                }
                self.judge(&known);
            }
        }
    }

    fn judge(&self, known: &BTreeMap<String, (String, String)>) {
        let mut seen = BTreeSet::new();
        for (name, whose) in known {
            if !seen.insert(whose) {
                self.0.lock().unwrap().push(format!("{name} is one too many of {whose:?}"));
            }
        }
    }
}

fn whose(deployment: &Deployment) -> (String, String) {
    let label = |key: &str| deployment.labels().get(key).cloned().unwrap_or_default();
    (label(BINDING_UID), label(COMPONENT))
}

const NAMES: [(&str, &str); 3] = [("one", "worker-1"), ("two", "worker-2"), ("three", "worker-1")];

/// One step of the story. `number` makes it another one each time.
async fn act(place: &Place, step: &str, number: usize) {
    match step {
        "bind" => {
            for (name, worker) in NAMES {
                place.secret(name, &place.worker(worker).kubeconfig()).await;
                place.bind(name, name, WORKER_NAMESPACE).await;
            }
        }
        "edit" => {
            let more = json!({"disableNodeDefaultTaint": number.is_multiple_of(2), "serviceNamespaces": [format!("n{number}")]});
            for (name, _) in NAMES {
                let size = json!({SIZE_CLASS: if number % 10 < 5 { "large" } else { "small" }});
                place.bind_with(name, name, WORKER_NAMESPACE, &more, &size).await;
            }
        }
        "rotate" => {
            for (name, worker) in NAMES {
                let kubeconfig = place.worker(worker).kubeconfig();
                place.secret(name, &format!("{kubeconfig}# number {number}\n")).await;
            }
        }
        "unbind" => {
            place.unbind("two", "Background").await;
            place.unbind("three", "Foreground").await;
        }
        "meddle" => {
            let deployments = format!("/apis/apps/v1/namespaces/{INSTALL_NAMESPACE}/deployments");
            let path = |role: &str| format!("{deployments}/kubeocean-{role}-one");
            // Where it is not there yet, there is nothing to meddle with.
            let _ = request(&place.virt, "DELETE", &path("syncer"), "application/json", &Value::Null).await;
            let fewer = json!({"spec": {"replicas": 0}});
            let _ =
                request(&place.virt, "PATCH", &path("proxier"), "application/merge-patch+json", &fewer).await;
        }
        other => panic!("{other}"),
    }
}

/// What there is of each of these bindings, without what differs between them. Fails if there is anything else of ours.
async fn belongings(
    place: &Place,
    bindings: &BTreeMap<String, Value>,
) -> Result<BTreeMap<String, Vec<String>>, String> {
    let mut all: BTreeMap<String, Vec<String>> =
        bindings.keys().map(|name| (name.clone(), Vec::new())).collect();
    for Ours { kind, name, binding, component, .. } in place.ours().await? {
        let owner = bindings.iter().find(|(_, known)| known["metadata"]["uid"] == binding.as_str());
        let (owner, _) = owner.ok_or_else(|| format!("{kind} {name} of {binding} is an orphan"))?;
        let named = format!("{kind} {component} {}", name.replace(owner.as_str(), "NAME"));
        all.get_mut(owner).into_iter().for_each(|of| of.push(named.clone()));
    }
    Ok(all)
}

/// Waits until these bindings are Ready, have what they should have, and there is nothing else of ours.
async fn at_rest<const N: usize>(place: &Place, names: [&str; N]) {
    until("every binding has what it should have, and nobody else anything", async || {
        let bindings = place.all_ready(names).await;
        let belongings = belongings(place, &bindings).await?;
        let all: BTreeSet<&Vec<String>> = belongings.values().collect();
        let deployments = |of: &&Vec<String>| of.iter().filter(|one| one.contains("/deployments ")).count();
        let alike = all.iter().all(|of| deployments(of) == 2) && all.len() <= 1;
        if alike { Ok(()) } else { Err(format!("{belongings:#?}")) }
    })
    .await;
}

#[tokio::test]
async fn a_manager_that_is_killed_twenty_times_leaves_nothing_half_done() {
    let given = std::env::var("KUBEOCEAN_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| std::hash::RandomState::new().build_hasher().finish());
    println!("KUBEOCEAN_SEED={seed}");
    let mut dice = Dice(seed);
    let place = Place::new(2).await;
    let doubles = Doubles::default();
    let watching = tokio::spawn(doubles.clone().watch(place.virt.clone()));

    let mut manager = place.manager("manager-0", SHORT_HOLD);
    for kill in 1..=KILLS {
        let step = STORY[(kill - 1) % STORY.len()];
        until("a manager leads", async || if manager.leads() { Ok(()) } else { Err(manager.said()) }).await;
        act(&place, step, kill).await;
        let moment = Duration::from_millis(dice.below(KILLED_WITHIN));
        // Not to wait for anything: the moment of the fault.
        tokio::time::sleep(moment).await;
        let wrote = manager.writes().len();
        drop(manager);
        println!("kill {kill}: {moment:?} after {step}, after {wrote} writes");
        manager = place.manager(&format!("manager-{kill}"), SHORT_HOLD);
        if kill.is_multiple_of(STORY.len()) {
            at_rest(&place, ["one"]).await;
        }
    }

    act(&place, "bind", 0).await;
    at_rest(&place, ["one", "two", "three"]).await;
    act(&place, "edit", 1).await;
    let deployment = format!("/apis/apps/v1/namespaces/{INSTALL_NAMESPACE}/deployments/kubeocean-syncer-two");
    until("the last edit is heeded", async || {
        let deployment = get(&place.virt, &deployment).await?;
        let asked = &deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"];
        if asked == "500m" { Ok(()) } else { Err(asked.to_string()) }
    })
    .await;
    at_rest(&place, ["one", "two", "three"]).await;
    for (name, _) in NAMES {
        place.unbind(name, "Background").await;
    }
    at_rest(&place, []).await;
    assert_eq!(*doubles.0.lock().unwrap(), Vec::<String>::new());
    assert!(manager.is_running(), "{}", manager.said());
    watching.abort();
    drop(manager);
    place.stop().await;
}

#[tokio::test]
async fn a_computing_cluster_that_goes_away_is_waited_for() {
    let place = Place::new(1).await;
    let api_server = place.worker(COMPUTING).program(Program::KubeApiserver);
    place.secret("w1", &place.worker("worker-1").kubeconfig()).await;

    // In the midst of binding: some objects are there, and some are not.
    let mut manager = place.manager("manager-a", &["--leader-elect"]);
    for name in ["one", "two", "three"] {
        place.bind(name, "w1", WORKER_NAMESPACE).await;
    }
    until("the first Deployment is there", async || {
        let all = place.ours().await?;
        all.iter().any(|one| one.kind.ends_with("/deployments")).then_some(()).ok_or(format!("{all:?}"))
    })
    .await;
    api_server.kill().await.unwrap();
    api_server.start().await.unwrap();
    let bound = place.all_ready(["one", "two", "three"]).await;
    assert!(manager.is_running(), "it did not end over it: {}", manager.said());

    // One that starts while nobody is there says so, and is alive but not ready.
    api_server.stop().await.unwrap();
    let mut early = place.manager("manager-b", &["--leader-elect"]);
    let waits = "the computing cluster does not answer as it should: waiting for it";
    let told = eventually("it says that it waits", || {
        let lines = early.lines();
        let line = lines.into_iter().find(|line| text(&line["message"]).starts_with(waits));
        line.ok_or_else(|| early.said())
    });
    assert!(text(&told["server"]).starts_with("https://127.0.0.1:"), "{told}");
    assert!(text(&told["error"]).contains("refused"), "{told}");
    let (alive, _) = eventually("an answer to /healthz", || early.ask("/healthz"));
    assert_eq!(alive, 200);
    let (ready, why) = early.ask("/readyz").unwrap();
    assert!(ready >= 500 && why.contains("[-]computing cluster failed: https://127.0.0.1:"), "{ready} {why}");
    assert!(early.is_running(), "{}", early.said());
    // Nobody has to wait for it.
    let asked = Instant::now();
    let ended = early.stop();
    assert!(ended.success(), "{ended}");
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());

    let early = place.manager("manager-c", &["--leader-elect"]);
    eventually("it says that it waits", || early.said().contains(waits).then_some(()).ok_or("silence"));
    api_server.start().await.unwrap();
    until("it is ready", async || match early.ask("/readyz")? {
        (200, _) => Ok(()),
        (_, why) => Err(why),
    })
    .await;
    let once = early.lines().iter().filter(|line| text(&line["message"]).starts_with(waits)).count();
    assert!(once <= 3, "each trouble is told once: {}", early.said());

    // The one that ran through it all, or its standby, goes on with its work, and nothing was made anew.
    let after = place.all_ready(["one", "two", "three"]).await;
    let uids = |all: &BTreeMap<String, Value>| {
        all.values().map(|one| one["status"]["workerUID"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(uids(&after), uids(&bound));
    place.bind("four", "w1", WORKER_NAMESPACE).await;
    place.all_ready(["one", "two", "three", "four"]).await;
    assert!(manager.is_running(), "{}", manager.said());
    drop((manager, early));
    place.stop().await;
}

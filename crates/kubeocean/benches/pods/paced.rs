//! So many pods in a second: how long each waits for its syncer, by the clocks of the API servers.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use kubeocean_api::keys::annotations;
use kubeocean_api::keys::names::WORKER_NAMESPACE;
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;

use super::audit::Request;
use super::bound::calls::{JSON, get, items, send, text};
use super::objects::{self, Kind, NAMESPACE};
use super::place::{Place, pods};

pub(super) const RATES: [usize; 3] = [5, 20, 50];

/// Pods that came at one rate, and their twins.
pub(super) struct Paced {
    pub(super) kind: Kind,
    pub(super) rate: usize,
    twins: BTreeMap<String, String>,
}

/// Milliseconds of each pod.
#[derive(Default, Serialize)]
pub(super) struct Waits {
    /// From the answer to who bound it, to its twin being asked for.
    pub(super) bind_to_create: Vec<f64>,
    /// From the answer to who said that the twin runs, to the answer to who passed it on.
    pub(super) status_to_status: Vec<f64>,
    /// From the answer to who bound it, to V being told that it runs: what a scheduler and a kubelet take is in it.
    pub(super) bind_to_running: Vec<f64>,
    /// Of whom the logs do not tell all of that.
    pub(super) unknown: usize,
}

pub(super) async fn come(place: &Place, kind: Kind, rate: usize) -> Paced {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / u32::try_from(rate).unwrap());
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut under_way = JoinSet::new();
    let count = rate * place.sizes.seconds;
    for number in 0..count {
        ticks.tick().await;
        let name = format!("{kind}-r{rate}-{number:05}");
        let pod = objects::pod(kind, &name, number, place.sizes.nodes);
        let client = place.bound.virt.clone();
        under_way.spawn(async move { send(&client, "POST", &pods(NAMESPACE), JSON, &pod).await });
    }
    under_way.join_all().await;
    place.virt.run(count).await;
    let all = get(&place.bound.phys, &pods(WORKER_NAMESPACE)).await.unwrap();
    let pair = |twin: &Value| {
        let metadata = &twin["metadata"];
        (text(&metadata["annotations"][annotations::VIRTUAL_POD_NAME]), text(&metadata["name"]))
    };
    let twins: BTreeMap<String, String> = items(&all).iter().map(pair).collect();
    for name in twins.keys() {
        let path = format!("{}/{name}", pods(NAMESPACE));
        send(&place.bound.virt, "DELETE", &path, JSON, &Value::Null).await;
    }
    place.virt.left(0).await;
    place.phys.left(0).await;
    Paced { kind, rate, twins }
}

impl Paced {
    /// What both servers' logs say.
    pub(super) fn waits(&self, virt: &[Request], phys: &[Request]) -> Waits {
        // The first of each name: requests are in the order in which they came.
        let first = |all: &[Request], is_it: &dyn Fn(&Request) -> bool| -> HashMap<String, Request> {
            let mut found = HashMap::new();
            for one in all.iter().filter(|one| one.went_well() && is_it(one)) {
                found.entry(one.object.name.clone()).or_insert_with(|| one.clone());
            }
            found
        };
        let bound = first(virt, &|one| one.is("create", "") && !one.is_syncers());
        let created = first(phys, &|one| one.is("create", "") && one.is_syncers());
        let runs = first(phys, &|one| one.is("patch", "status") && one.user_agent.starts_with("kwok"));
        let mut told: HashMap<&str, Vec<&Request>> = HashMap::new();
        for one in virt.iter().filter(|one| one.is("patch", "status") && one.is_syncers()) {
            told.entry(&one.object.name).or_default().push(one);
        }
        let mut waits = Waits::default();
        for (pod, twin) in &self.twins {
            let (Some(bound), Some(created), Some(runs)) =
                (bound.get(pod), created.get(twin), runs.get(twin))
            else {
                waits.unknown += 1;
                continue;
            };
            // A watch may tell of a write before who made it has its answer.
            let after = |one: &&&Request| one.answered >= runs.received;
            let Some(told) = told.get(&**pod).and_then(|all| all.iter().find(after)) else {
                waits.unknown += 1;
                continue;
            };
            waits.bind_to_create.push(milliseconds(bound.answered, created.received));
            waits.status_to_status.push(milliseconds(runs.answered, told.answered));
            waits.bind_to_running.push(milliseconds(bound.answered, told.answered));
        }
        waits
    }
}

fn milliseconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0) * 1e3
}

//! Many pods at once, mirrored by a syncer, and the same writes by a bare client.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use kubeocean_api::keys::labels;
use kubeocean_api::keys::names::WORKER_NAMESPACE;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::audit::Span;
use super::bound::calls::{JSON, count, get, items, plain, send, text, until};
use super::bound::process::Component;
use super::bound::{AT_A_TIME, NAMESPACES};
use super::objects::{self, Kind, NAMESPACE};
use super::place::{Place, at_once, pods, within};

const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// How long it took, of so many pods.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Took {
    /// From the first pod to the last that runs.
    pub(super) up: f64,
    /// From the first that is to go to the last that is gone, with all that it brought along.
    pub(super) down: f64,
}

#[derive(Serialize)]
pub(super) struct Mirrored {
    pub(super) took: Took,
    /// Of the syncer, in seconds.
    pub(super) cpu: f64,
    pub(super) span: Span,
}

/// What a syncer makes of one pod, to be made again.
pub(super) struct Sample {
    twin: Value,
    /// The Secret with the token, or the copy of the `ConfigMap`.
    along: Option<(&'static str, Value)>,
    /// What the pod in V is told.
    told: Value,
}

fn names(kind: Kind, who: &str, round: usize, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{kind}-{who}{round}-{number:05}")).collect()
}

/// For each of them, some at a time.
async fn each(names: &[String], job: impl AsyncFn(usize, &str)) {
    let job = &job;
    let all = stream::iter(names.iter().enumerate());
    all.for_each_concurrent(AT_A_TIME, async |(number, name): (usize, &String)| job(number, name).await)
        .await;
}

/// `ConfigMaps` are there before their pods, and go after them: outside of what is measured.
async fn config_maps(place: &Place, kind: Kind, names: &[String], method: &str) {
    if kind == Kind::ConfigMap {
        let all = within(NAMESPACE, "configmaps");
        each(names, async |_, name| {
            let (path, body) = match method {
                "POST" => (all.clone(), objects::config_map(name)),
                _ => (format!("{all}/{name}"), Value::Null),
            };
            send(&place.bound.virt, method, &path, JSON, &body).await;
        })
        .await;
    }
}

pub(super) async fn mirrored(
    place: &Place,
    syncer: &Component,
    kind: Kind,
    round: usize,
) -> (Mirrored, Sample) {
    let pods_wanted = place.sizes.pods;
    let names = names(kind, "m", round, pods_wanted);
    config_maps(place, kind, &names, "POST").await;
    let before = brought_along(place).await;
    let (cpu, span, began) = (syncer.cpu(), Timestamp::now(), Instant::now());
    each(&names, async |number, name| {
        let pod = objects::pod(kind, name, number, place.sizes.nodes);
        send(&place.bound.virt, "POST", &pods(NAMESPACE), JSON, &pod).await;
    })
    .await;
    place.virt.run(pods_wanted).await;
    let up = began.elapsed().as_secs_f64();
    let sample = sample(place, kind, &names[0]).await;
    let began = Instant::now();
    each(&names, async |_, name| {
        let path = format!("{}/{name}", pods(NAMESPACE));
        send(&place.bound.virt, "DELETE", &path, JSON, &Value::Null).await;
    })
    .await;
    place.virt.left(0).await;
    place.phys.left(0).await;
    until(async || (brought_along(place).await <= before).then_some(())).await;
    let down = began.elapsed().as_secs_f64();
    let (cpu, span) = (syncer.cpu() - cpu, Span::since(span));
    config_maps(place, kind, &names, "DELETE").await;
    (Mirrored { took: Took { up, down }, cpu, span }, sample)
}

/// Secrets and `ConfigMaps` in the mount namespace.
async fn brought_along(place: &Place) -> usize {
    let of = async |plural: &str| count(&place.bound.phys, &within(WORKER_NAMESPACE, plural)).await;
    of("secrets").await + of("configmaps").await
}

async fn sample(place: &Place, kind: Kind, name: &str) -> Sample {
    let (virt, phys) = (&place.bound.virt, &place.bound.phys);
    let pod = get(virt, &format!("{}/{name}", pods(NAMESPACE))).await.unwrap();
    let ours = format!("labelSelector={}%3D{}&limit=1", labels::MANAGED_BY, labels::MANAGED_BY_VALUE);
    let first = async |plural: &str| {
        let list = get(phys, &format!("{}?{ours}", within(WORKER_NAMESPACE, plural))).await.unwrap();
        plain(&items(&list)[0])
    };
    let mut twin = first("pods").await;
    twin.as_object_mut().unwrap().remove("status");
    // Its scheduler put it there.
    twin["spec"].as_object_mut().unwrap().remove("nodeName");
    let along = match kind {
        Kind::Bare => None,
        Kind::Token => Some(("secrets", first("secrets").await)),
        Kind::ConfigMap => Some(("configmaps", first("configmaps").await)),
    };
    let told = json!({"metadata": {"annotations": pod["metadata"]["annotations"]}, "status": pod["status"]});
    Sample { twin, along, told }
}

/// The same writes, by someone who keeps no books. No syncer runs meanwhile.
pub(super) async fn bare(place: &Place, sample: &Sample, kind: Kind, round: usize) -> Took {
    let pods_wanted = place.sizes.pods;
    let names = names(kind, "b", round, pods_wanted);
    config_maps(place, kind, &names, "POST").await;
    let (virt, phys) = (&place.bound.virt, &place.bound.phys);
    let began = Instant::now();
    each(&names, async |number, name| {
        let pod = objects::pod(kind, name, number, place.sizes.nodes);
        let pod = send(virt, "POST", &pods(NAMESPACE), JSON, &pod).await;
        match kind {
            Kind::Bare => {}
            Kind::Token => {
                let path = format!("{NAMESPACES}/{NAMESPACE}/serviceaccounts/default/token");
                send(virt, "POST", &path, JSON, &objects::token_request(&pod)).await;
            }
            Kind::ConfigMap => {
                get(virt, &format!("{}/{name}", within(NAMESPACE, "configmaps"))).await.unwrap();
            }
        }
        if let Some((plural, along)) = &sample.along {
            send(phys, "POST", &within(WORKER_NAMESPACE, plural), JSON, &called(along, name)).await;
        }
        send(phys, "POST", &pods(WORKER_NAMESPACE), JSON, &called(&sample.twin, name)).await;
        let path = format!("{}/{name}/status", pods(NAMESPACE));
        send(virt, "PATCH", &path, STRATEGIC, &sample.told).await;
    })
    .await;
    place.phys.run(pods_wanted).await;
    let up = began.elapsed().as_secs_f64();
    let began = Instant::now();
    each(&names, async |_, name| {
        let (pod, twin) =
            (format!("{}/{name}", pods(NAMESPACE)), format!("{}/{name}", pods(WORKER_NAMESPACE)));
        send(virt, "DELETE", &pod, JSON, &Value::Null).await;
        send(phys, "DELETE", &twin, JSON, &Value::Null).await;
        let ended = json!({"status": {"phase": "Failed"}});
        send(virt, "PATCH", &format!("{pod}/status"), STRATEGIC, &ended).await;
        send(virt, "DELETE", &pod, JSON, &at_once()).await;
        if let Some((plural, _)) = &sample.along {
            let path = format!("{}/{name}", within(WORKER_NAMESPACE, plural));
            send(phys, "DELETE", &path, JSON, &Value::Null).await;
        }
    })
    .await;
    place.virt.left(0).await;
    place.phys.left(0).await;
    let down = began.elapsed().as_secs_f64();
    config_maps(place, kind, &names, "DELETE").await;
    Took { up, down }
}

fn called(object: &Value, name: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["name"] = name.into();
    object
}

/// Pods come and go once more, beside all that are there: what one costs then, in seconds of CPU, less what nothing costs.
pub(super) async fn passing(place: &Place, syncer: &Component, there: usize, pause: Duration) -> (f64, f64) {
    let idle = syncer.cpu();
    tokio::time::sleep(pause).await;
    let idle = (syncer.cpu() - idle) / pause.as_secs_f64();
    let names = names(Kind::Bare, "p", there, place.sizes.pods);
    let (cpu, writes, began) = (syncer.cpu(), syncer.writes().await, Instant::now());
    each(&names, async |number, name| {
        let pod = objects::pod(Kind::Bare, name, number, place.sizes.nodes);
        send(&place.bound.virt, "POST", &pods(NAMESPACE), JSON, &pod).await;
    })
    .await;
    place.virt.run(there + names.len()).await;
    each(&names, async |_, name| {
        let path = format!("{}/{name}", pods(NAMESPACE));
        send(&place.bound.virt, "DELETE", &path, JSON, &Value::Null).await;
    })
    .await;
    place.virt.left(there).await;
    let cpu = syncer.cpu() - cpu - idle * began.elapsed().as_secs_f64();
    let count = f64::from(u32::try_from(names.len()).unwrap());
    (cpu / count, (syncer.writes().await - writes) / count)
}

/// Pods that stay.
pub(super) async fn fill(place: &Place, numbers: std::ops::Range<usize>) {
    let count = numbers.end;
    let names: Vec<String> = numbers.map(|number| format!("stays-{number:05}")).collect();
    each(&names, async |_, name| {
        let number = text(&name.into()).trim_start_matches("stays-").parse().unwrap();
        let pod = objects::pod(Kind::Bare, name, number, place.sizes.nodes);
        send(&place.bound.virt, "POST", &pods(NAMESPACE), JSON, &pod).await;
    })
    .await;
    place.virt.run(count).await;
}

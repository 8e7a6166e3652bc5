//! Two computing clusters that know nothing of each other, one worker cluster and one mount namespace. Everything has the same name
//! in both: bindings, namespaces, pods, and what pods use.

use std::collections::BTreeMap;

use kubeocean_api::keys::labels;
use kubeocean_sandbox::Spec;
use serde_json::{Value, json};

use super::place::{Place, request, text};
use super::vnodes::syncer_as;
use super::workloads::{Pool, pod, settings};
use crate::access::until;
use crate::manager::Manager;

const W1: (&str, usize) = ("w1", 2);
const NS: &str = "app";
const PODS: usize = 6;

const CONFIG_MAPS: &str = "/api/v1/namespaces/{}/configmaps";

fn named(number: usize) -> Value {
    let volumes = json!([{"name": "config", "configMap": {"name": "config"}}]);
    pod(&format!("p{number}"), &json!({"volumes": volumes}))
}

fn syncer(pool: &Pool, name: &str) -> Manager {
    syncer_as(&pool.place, &pool.accounts[W1.0], W1.0, name)
}

#[tokio::test]
async fn two_computing_clusters_share_a_worker_and_neither_touches_what_is_the_others() {
    let one = Pool::new(&[W1]).await;
    let place = Place::of(Spec::new()).await;
    let other = Pool::beside(place, one.place.worker("worker-1"), &[(W1.0, json!({}))]).await;
    let syncers = (syncer(&one, "syncer"), syncer(&other, "syncer"));
    tokio::join!(one.usable(W1), other.usable(W1));
    tokio::join!(pods_run(&one, "of one"), pods_run(&other, "of the other"));
    let (before_one, before_other) = (uids(&one).await, uids(&other).await);
    assert!(before_one.values().all(|uid| !before_other.values().any(|other| other == uid)));

    // What a pod leaves that goes while nobody sees it is removed by who made it, and by nobody else.
    syncers.0.stop();
    syncers.1.stop();
    tokio::join!(vanishes(&one, 0), vanishes(&other, 1));
    let mut syncers = (syncer(&one, "syncer-again"), syncer(&other, "syncer-again"));
    tokio::join!(one.agree(NS, PODS - 1, "Running"), other.agree(NS, PODS - 1, "Running"));
    assert_same(&before_one, &uids(&one).await, 0);
    assert_same(&before_other, &uids(&other).await, 1);

    // One lets go of the worker: nothing of it is left, and nothing of the other is missing.
    one.place.unbind(W1.0, "Background").await;
    one.nothing_left("").await;
    other.agree(NS, PODS - 1, "Running").await;
    assert_same(&before_other, &uids(&other).await, 1);
    copies_say(&other, "of the other").await;
    for number in (0..PODS).filter(|number| *number != 1) {
        other.delete(NS, &named(number)).await;
    }
    other.nothing_left("").await;
    assert!(syncers.1.is_running(), "{}", syncers.1.said());
    drop(syncers);
    other.stop().await;
    one.stop().await;
}

async fn pods_run(pool: &Pool, word: &str) {
    pool.namespace(NS).await;
    pool.apply(NS, &settings("ConfigMap", "config", word)).await;
    for number in 0..PODS {
        pool.apply(NS, &named(number)).await;
    }
    pool.agree(NS, PODS, "Running").await;
    copies_say(pool, word).await;
}

/// The copy of the one `ConfigMap` that its pods use.
async fn copies_say(pool: &Pool, word: &str) {
    until(&format!("the copy says {word:?}"), async || {
        let copies = pool.copies(CONFIG_MAPS, NS).await?;
        let said: Vec<String> = copies.iter().map(|copy| text(&copy["data"]["key"])).collect();
        if said.iter().any(|said| said == word) && said.iter().all(|said| said.is_empty() || said == word) {
            Ok(())
        } else {
            Err(format!("{said:?}"))
        }
    })
    .await;
}

/// The uids of twins, by the name of their pod.
async fn uids(pool: &Pool) -> BTreeMap<String, String> {
    let pairs = pool.agree(NS, pool.pods(NS).await.unwrap().len(), "Running").await;
    let uid = |(pod, twin): &(Value, Value)| {
        assert!(!text(&twin["metadata"]["labels"][labels::VIRTUAL_CLUSTER_UID]).is_empty(), "{twin:#}");
        (text(&pod["metadata"]["name"]), text(&twin["metadata"]["uid"]))
    };
    pairs.iter().map(uid).collect()
}

/// A pod is gone at once, as by force.
async fn vanishes(pool: &Pool, number: usize) {
    let path = format!("/api/v1/namespaces/{NS}/pods/p{number}");
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
    request(&pool.virt, "DELETE", &path, "application/json", &body).await.unwrap();
}

/// All but one are what they were.
fn assert_same(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>, without: usize) {
    let mut before = before.clone();
    before.remove(&format!("p{without}"));
    assert_eq!(&before, now);
}

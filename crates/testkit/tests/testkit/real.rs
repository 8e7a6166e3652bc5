//! The bad network in front of a real API server.

use std::time::{Duration, Instant};

use http::Request;
use kube::client::Body;
use kubeocean_cluster::apply::Applier;
use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::informer::Informer;
use kubeocean_cluster::metrics::Metrics;
use kubeocean_cluster::store::Store;
use kubeocean_model::action::{Action, Dependents, Kind, Mark, Verb, kinds};
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::object::Object;
use kubeocean_sandbox::{COMPUTING, Sandbox, Spec};
use kubeocean_testkit::chaos::{Chaos, Partition, Profile};
use kubeocean_testkit::story::Story;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower::Layer as _;

use crate::mirror::{ACTOR, BY, NAMESPACE, Wiring, data, mirror};

/// Two thirds of what is made stays.
const ROUND: usize = 30;

/// Watches break rarely; of many, some do at any time.
const STORES: usize = 12;

/// Of those that a client who never asks for old answers can meet, partitions not counted.
const KINDS_OF_FAULTS: usize = 6;

/// Real time passes here: whatever takes longer than this is stuck.
const PATIENCE: Duration = Duration::from_secs(120);

fn settings() -> Settings {
    let mut settings = Settings::new("virtual", "test", &Metrics::new("test"));
    settings.deadline = Duration::from_secs(2);
    // So that there is more than one watch to break.
    settings.watch_for = Duration::from_secs(1);
    settings
}

/// Makes things and removes some of them, with a moment between for the watches to break.
async fn stir(writer: &Applier, round: usize) {
    for number in round * ROUND..(round + 1) * ROUND {
        let key = Key::<Virtual>::new("default", format!("chaos-{number:03}"));
        let body = json!({"metadata": {"labels": {"app": "chaos"}}});
        let create = Verb::Create { body, mark: Mark::default() };
        assert!(writer.apply(&Action::new(kinds::CONFIG_MAP, &key, create, "the test")).await.is_done());
        if number % 3 == 0 {
            let delete = Verb::Delete { grace: None, dependents: Dependents::Background };
            assert!(writer.apply(&Action::new(kinds::CONFIG_MAP, &key, delete, "the test")).await.is_done());
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

/// Waits until a store shows what the server has.
async fn ends_up_right(store: &Store<Virtual, Object>, good: &Cluster<Virtual>, count: usize) {
    let truth = good.list(&kinds::CONFIG_MAP, Some("default"), Some("app=chaos")).await.unwrap();
    let mut there: Vec<_> =
        truth.iter().map(|o| (o.meta.name.to_string(), o.meta.resource_version.to_string())).collect();
    there.sort();
    assert_eq!(there.len(), count);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let all = store.all();
        let mut here: Vec<_> =
            all.iter().map(|(key, o)| (key.name.to_string(), o.resource_version.to_string())).collect();
        here.sort();
        if here == there {
            return;
        }
        assert!(Instant::now() < deadline, "{here:?} instead of {there:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A client whose every request passes through a bad network.
fn behind(chaos: &Chaos, client: &kube::Client) -> kube::Client {
    let wire = client.clone();
    let wire = tower::service_fn(move |request: Request<Body>| {
        let wire = wire.clone();
        async move { wire.send(request).await }
    });
    kube::Client::new(chaos.layer(wire), "default")
}

/// The sample controller writes through such a network: answers are lost, and what was refused may be done. What it leaves is right.
async fn a_mirror_leaves_it_right(client: &kube::Client, good: &Cluster<Virtual>, profile: Profile) {
    let chaos = Chaos::new("mirror", 2, profile, &Story::new());
    let bad = behind(&chaos, client);
    let wiring = Wiring {
        virt: Cluster::over(bad.clone(), settings()),
        phys: Cluster::over(bad.clone(), settings()),
        raw: [bad.clone(), bad],
        clock: Clock::system(),
        seed: 1,
        metrics: Metrics::new("test"),
    };
    let writer = Applier::new("test").virtually(good);
    let make = async |kind: &Kind, key: &Key<Virtual>, body: Value| {
        let create = Verb::Create { body, mark: Mark::default() };
        assert!(writer.apply(&Action::new(kind.clone(), key, create, "the test")).await.is_done());
    };
    make(&kinds::NAMESPACE, &Key::cluster_scoped(NAMESPACE), json!({})).await;
    let mut running = JoinSet::new();
    running.spawn(mirror(wiring));
    let original = |number: usize| Key::<Virtual>::new("default", format!("original-{number:02}"));
    for number in 0..ROUND {
        let body = json!({"metadata": {"labels": {"mirror": "yes"}}, "data": {"number": number.to_string()}});
        make(&kinds::CONFIG_MAP, &original(number), body).await;
    }
    copies_are(good, &(0..ROUND).collect::<Vec<_>>()).await;
    for number in (0..ROUND).step_by(2) {
        let delete = Verb::Delete { grace: None, dependents: Dependents::Background };
        let action = Action::new(kinds::CONFIG_MAP, &original(number), delete, "the test");
        assert!(writer.apply(&action).await.is_done());
    }
    copies_are(good, &(0..ROUND).skip(1).step_by(2).collect::<Vec<_>>()).await;
    assert!(chaos.faults().len() >= 3, "too little went wrong: {:?}", chaos.faults());
    running.shutdown().await;
}

/// Waits until there is one copy of each of these, and no other.
async fn copies_are(good: &Cluster<Virtual>, wanted: &[usize]) {
    let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let copies =
            good.list(&kinds::CONFIG_MAP, Some(NAMESPACE), Some(&format!("{BY}={ACTOR}"))).await.unwrap();
        let mut numbers: Vec<String> =
            copies.iter().filter_map(|copy| data(copy).get("number")?.as_str().map(str::to_owned)).collect();
        numbers.sort_by_key(|number| number.parse::<usize>().ok());
        if numbers == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{numbers:?} instead of {wanted:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_store_behind_a_bad_network_ends_up_as_the_real_server_has_it() {
    let sandbox = Sandbox::start(Spec::new()).await.unwrap();
    let client = sandbox.cluster(COMPUTING).unwrap().client().await.unwrap();
    // Time passes here: what is late is late by moments.
    let profile = Profile { latest: Duration::from_millis(300), ..Profile::rough() };
    let chaos = Chaos::new("real", 1, profile.clone(), &Story::new());
    let bad = Cluster::<Virtual>::over(behind(&chaos, &client), settings());
    let good = Cluster::<Virtual>::over(client.clone(), settings());
    let mut informers = JoinSet::new();
    let mut followed = Vec::new();
    for _ in 0..STORES {
        let (informer, switch) =
            Informer::<Virtual, Object>::of(&bad, kinds::CONFIG_MAP).labels("app=chaos").build();
        followed.push((informer.store(), switch));
        informers.spawn(informer.run());
    }
    let writer = Applier::new("test").virtually(&good);
    let mut rounds = 0;
    // As many rounds as it takes to be hurt in several ways.
    let deadline = Instant::now() + PATIENCE;
    while rounds < 2 || chaos.faults().len() < KINDS_OF_FAULTS {
        assert!(Instant::now() < deadline, "too little went wrong: {:?}", chaos.faults());
        stir(&writer, rounds).await;
        rounds += 1;
    }
    for how in [Partition::Silent, Partition::Resets] {
        chaos.partition(how);
        stir(&writer, rounds).await;
        rounds += 1;
        chaos.heal();
    }
    chaos.calm();
    for (store, _) in &followed {
        ends_up_right(store, &good, rounds * ROUND * 2 / 3).await;
    }
    // And they still listen.
    stir(&writer, rounds).await;
    rounds += 1;
    for (store, _) in &followed {
        ends_up_right(store, &good, rounds * ROUND * 2 / 3).await;
    }
    println!("{rounds} rounds: {:?}", chaos.faults());
    informers.shutdown().await;
    a_mirror_leaves_it_right(&client, &good, profile).await;
    sandbox.stop().await.unwrap();
}

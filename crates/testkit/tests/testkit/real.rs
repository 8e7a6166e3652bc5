//! The bad network in front of a real API server.

use std::time::{Duration, Instant};

use http::Request;
use kube::client::Body;
use kubeocean_cluster::apply::Applier;
use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::informer::Informer;
use kubeocean_cluster::metrics::Metrics;
use kubeocean_model::action::{Action, Dependents, Mark, Verb, kinds};
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::object::Object;
use kubeocean_sandbox::{COMPUTING, Sandbox, Spec};
use kubeocean_testkit::chaos::{Chaos, Profile};
use kubeocean_testkit::story::Story;
use serde_json::json;
use tower::Layer as _;

fn settings() -> Settings {
    let mut settings = Settings::new("virtual", "test", &Metrics::new("test"));
    settings.deadline = Duration::from_secs(2);
    settings.watch_for = Duration::from_secs(1);
    settings
}

#[tokio::test]
async fn a_store_behind_a_bad_network_ends_up_as_the_real_server_has_it() {
    let sandbox = Sandbox::start(Spec::new()).await.unwrap();
    let client = sandbox.cluster(COMPUTING).unwrap().client().await.unwrap();
    let chaos = Chaos::new("real", 1, Profile::rough(), &Story::new());
    let wire = client.clone();
    let wire = tower::service_fn(move |request: Request<Body>| {
        let wire = wire.clone();
        async move { wire.send(request).await }
    });
    let bad = Cluster::<Virtual>::over(kube::Client::new(chaos.layer(wire), "default"), settings());
    let good = Cluster::<Virtual>::over(client, settings());
    let (informer, _switch) =
        Informer::<Virtual, Object>::of(&bad, kinds::CONFIG_MAP).labels("app=chaos").build();
    let store = informer.store();
    let task = tokio::spawn(informer.run());
    let writer = Applier::new("test").virtually(&good);
    for number in 0..60 {
        let key = Key::<Virtual>::new("default", format!("chaos-{number:02}"));
        let body = json!({"metadata": {"labels": {"app": "chaos"}}});
        let create = Verb::Create { body, mark: Mark::default() };
        assert!(writer.apply(&Action::new(kinds::CONFIG_MAP, &key, create, "the test")).await.is_done());
        if number % 3 == 0 {
            let delete = Verb::Delete { grace: None, dependents: Dependents::Background };
            assert!(writer.apply(&Action::new(kinds::CONFIG_MAP, &key, delete, "the test")).await.is_done());
        }
        // So that there is more than one watch to break.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    chaos.calm();
    let truth = good.list(&kinds::CONFIG_MAP, Some("default"), Some("app=chaos")).await.unwrap();
    let versions = |objects: Vec<(String, String)>| {
        let mut objects = objects;
        objects.sort();
        objects
    };
    let there = versions(
        truth.iter().map(|o| (o.meta.name.to_string(), o.meta.resource_version.to_string())).collect(),
    );
    assert_eq!(there.len(), 40);
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let here = versions(
            store
                .all()
                .iter()
                .map(|(key, o)| (key.name.to_string(), o.resource_version.to_string()))
                .collect(),
        );
        if here == there {
            break;
        }
        assert!(Instant::now() < deadline, "{here:?} instead of {there:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!chaos.faults().is_empty(), "nothing went wrong on the way");
    task.abort();
    sandbox.stop().await.unwrap();
}

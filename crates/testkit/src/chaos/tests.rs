use tokio::time::Instant;

use super::*;
use crate::{ApiServer, Options};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

struct Wire {
    server: ApiServer,
    chaos: Chaos,
    client: kube::Client,
}

fn wire(profile: Profile) -> Wire {
    let server = ApiServer::new(Options { with_crds: false, ..Options::default() });
    let chaos = Chaos::new("P", 7, profile, &Story::new());
    let client = kube::Client::new(chaos.layer(server.service("tester")), "default");
    Wire { server, chaos, client }
}

impl Wire {
    async fn ask(&self, method: &str, path: &str, body: &str) -> Result<(u16, Bytes), String> {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.body(Body::from(body.as_bytes().to_vec())).unwrap();
        let response = self.client.send(request).await.map_err(|error| error.to_string())?;
        let code = response.status().as_u16();
        Ok((code, response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes()))
    }

    async fn create(&self, name: &str) -> Result<(u16, Bytes), String> {
        self.ask("POST", MAPS, &format!(r#"{{"metadata":{{"name":"{name}"}}}}"#)).await
    }

    fn has(&self, name: &str) -> bool {
        self.server.get("configmaps", "default", name).is_some()
    }

    /// What a watch says within two minutes, and whether it ended.
    async fn watch(&self) -> (String, bool) {
        let path = format!("{MAPS}?watch=true&resourceVersion={}&timeoutSeconds=600", self.server.revision());
        let request = Request::get(path).body(Body::empty()).unwrap();
        let mut body = self.client.send(request).await.unwrap().into_body();
        self.server.call(
            "someone",
            "POST",
            MAPS,
            None,
            Some(serde_json::json!({"metadata": {"name": "watched"}})),
        );
        let (mut text, end) = (String::new(), Instant::now() + Duration::from_secs(120));
        loop {
            match tokio::time::timeout_at(end, body.frame()).await {
                Err(_) => return (text, false),
                Ok(Some(Ok(frame))) => text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap()),
                Ok(_) => return (text, true),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_faults_nothing_changes() {
    let wire = wire(Profile::calm());
    assert_eq!(wire.create("a").await.unwrap().0, 201);
    assert_eq!(wire.watch().await.0.lines().count(), 1);
    assert!(wire.chaos.faults().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_reset_comes_before_the_write_and_a_lost_answer_after_it() {
    let wire = wire(Profile { reset: 1.0, ..Profile::calm() });
    assert!(wire.create("a").await.is_err() && !wire.has("a"));
    wire.chaos.set_profile(Profile { answer_lost: 1.0, ..Profile::calm() });
    assert!(wire.create("b").await.is_err() && wire.has("b"));
}

#[tokio::test(start_paused = true)]
async fn a_late_write_is_done_though_nobody_waits() {
    let wire = wire(Profile { late: 1.0, latest: Duration::from_secs(60), ..Profile::calm() });
    let answer = tokio::time::timeout(Duration::from_millis(1), wire.create("a")).await;
    assert!(answer.is_err() && !wire.has("a"));
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(wire.has("a"));
}

#[tokio::test(start_paused = true)]
async fn only_who_allows_it_is_told_old_things() {
    let wire = wire(Profile { stale: 1.0, ..Profile::calm() });
    let count = async |query: &str| {
        let (_, body) = wire.ask("GET", &format!("{MAPS}{query}"), "").await.unwrap();
        serde_json::from_slice::<serde_json::Value>(&body).unwrap()["items"].as_array().unwrap().len()
    };
    assert_eq!(count("?resourceVersion=0").await, 0, "nothing older was ever asked for");
    wire.create("a").await.unwrap();
    assert_eq!(count("?resourceVersion=0").await, 0, "as it was");
    assert_eq!(count("").await, 1, "a consistent read");
    let newest = wire.server.revision();
    let not_older = format!("?resourceVersion={newest}&resourceVersionMatch=NotOlderThan");
    assert_eq!(count(&not_older).await, 1, "no older than it may be");
}

#[tokio::test(start_paused = true)]
async fn a_partition_is_silent_or_resets_and_heals() {
    let wire = wire(Profile::calm());
    wire.chaos.partition(Partition::Resets);
    assert!(wire.create("a").await.is_err());
    wire.chaos.partition(Partition::Silent);
    assert!(tokio::time::timeout(Duration::from_secs(3600), wire.create("a")).await.is_err());
    assert!(!wire.has("a"));
    wire.chaos.heal();
    assert_eq!(wire.create("b").await.unwrap().0, 201);
}

#[tokio::test(start_paused = true)]
async fn watches_suffer_in_every_way() {
    let (mut expired, mut silent, mut cut, mut twice) = (0, 0, 0, 0);
    let sick =
        Profile { watch_gap: 0.4, watch_cut: 0.4, watch_silent: 0.5, event_twice: 0.3, ..Profile::calm() };
    for seed in 0..60 {
        let mut wire = wire(sick.clone());
        wire.chaos = Chaos::new("P", seed, sick.clone(), &Story::new());
        wire.client = kube::Client::new(wire.chaos.layer(wire.server.service("tester")), "default");
        let (text, ended) = wire.watch().await;
        let events = text.lines().filter(|line| line.contains("watched")).count();
        expired += u32::from(text.contains("\"code\":410"));
        twice += u32::from(events == 2);
        cut += u32::from(ended && !text.contains("410"));
        silent += u32::from(!ended && wire.chaos.faults().contains_key("watch silent"));
    }
    assert!([expired, silent, cut, twice].iter().all(|count| *count > 2), "{expired} {silent} {cut} {twice}");
}

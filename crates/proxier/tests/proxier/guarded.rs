//! Against those who only want to hold or to burn something: connections, places, and the computing cluster's patience.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kubeocean_proxier::desk::{Caps, House};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::caller::{Heard, hear};
use crate::scene::{MERGE, NODE, Scene, Setting, free_port, leap, until};

const LOG: &str = "/containerLogs/web/a/c1";

const FORWARD: &str = "POST /portForward/web/a HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n";

async fn scene_of(caps: Caps) -> Scene {
    Scene::set_as(Setting { house: House::with(caps), ..Setting::default() }).await
}

/// One line of the audit log, with the code and these words.
fn told(scene: &Scene, heard: &Heard, words: &str) {
    let lines = scene.audit.about(&heard.peer);
    assert_eq!(lines.len(), 1, "{heard:?}: {lines:?}");
    assert!(lines[0].contains(&format!("code={};", heard.code)) && lines[0].contains(words), "{lines:?}");
}

async fn closes(stream: &mut (impl tokio::io::AsyncRead + Unpin)) {
    let mut rest = Vec::new();
    let reading = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest));
    drop(reading.await.expect("it is still open"));
}

#[tokio::test]
async fn who_takes_his_time_with_a_handshake_or_with_headers_is_left() {
    let scene = Scene::set().await;
    let mut silent = scene.nobody().dial(scene.port).await;
    let mut slow = scene.nobody().dial(scene.port).await;
    slow.write_all(&[22, 3, 1]).await.unwrap();
    let mut half = scene.caller("jane").connect(scene.port).await;
    half.write_all(b"GET /pods HTTP/1.1\r\nHost: n\r\nX: ").await.unwrap();
    let mut wordless = scene.nobody().connect(scene.port).await;
    // They were heard of.
    scene.caller("jane").call(scene.port, "GET", "/healthz", &[]).await;
    leap(Duration::from_secs(11)).await;
    closes(&mut silent).await;
    closes(&mut slow).await;
    half.write_all(b"y").await.unwrap();
    leap(Duration::from_secs(20)).await;
    closes(&mut half).await;
    closes(&mut wordless).await;
}

#[tokio::test]
async fn streams_beyond_the_limits_are_refused_with_the_reason() {
    let scene = scene_of(Caps { streams: 2, streams_per_node: 1, ..Caps::default() }).await;
    let jane = scene.caller("jane");
    let mut first = jane.connect(scene.port).await;
    first.write_all(FORWARD.as_bytes()).await.unwrap();
    assert_eq!(hear(&mut first, String::new()).await.code, 101);
    let heard = jane.say(scene.port, FORWARD.as_bytes()).await;
    assert!(heard.code == 429 && heard.body.contains("node vnode-w1-n1 has 1 streams"), "{heard:?}");
    told(&scene, &heard, "has 1 streams");
    let lines = scene.worker.tells();
    let mut second = jane.connect(scene.other_port).await;
    let follow = b"GET /containerLogs/web/b/c1?follow=true HTTP/1.1\r\nHost: n\r\n\r\n";
    second.write_all(follow).await.unwrap();
    until("a log that waits has no place", || scene.proxier.state()["streams"] == 2).await;
    // Others are answered all the same.
    assert_eq!(jane.call(scene.port, "GET", "/pods", &[]).await.code, 200);
    drop((first, second, lines));
    until("places are not given back", || scene.proxier.state()["streams"] == 0).await;
    assert_eq!(jane.call(scene.port, "GET", LOG, &[]).await.code, 200);
}

#[tokio::test]
async fn connections_beyond_the_limits_are_told_so() {
    let scene = scene_of(Caps { connections_per_node: 2, ..Caps::default() }).await;
    let jane = scene.caller("jane");
    let (first, second) = (jane.connect(scene.port).await, jane.connect(scene.port).await);
    let heard = jane.call(scene.port, "GET", LOG, &[]).await;
    assert!(heard.code == 503 && heard.body.contains("too many connections"), "{heard:?}");
    told(&scene, &heard, "too many connections");
    assert_eq!(jane.call(scene.other_port, "GET", "/pods", &[]).await.code, 200, "another node's port");
    drop((first, second));
    scene.until_answered(&jane).await;
}

#[tokio::test]
async fn who_does_not_say_who_he_is_cannot_take_the_place_of_those_who_do() {
    let scene = scene_of(Caps { strangers_per_address: 3, ..Caps::default() }).await;
    let jane = scene.caller("jane");
    // Those who have said it do not count, however many they are.
    let mut known = Vec::new();
    for _ in 0..5 {
        let mut stream = jane.connect(scene.port).await;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n").await.unwrap();
        assert_eq!(hear(&mut stream, String::new()).await.code, 200);
        known.push(stream);
    }
    let mut strangers = Vec::new();
    for _ in 0..3 {
        strangers.push(scene.nobody().connect(scene.port).await);
    }
    let heard = scene.nobody().call(scene.other_port, "GET", LOG, &[]).await;
    assert!(heard.code == 503 && heard.body.contains("too many connections"), "{heard:?}");
    told(&scene, &heard, "too many connections");
    drop(strangers);
    scene.until_answered(&jane).await;
}

#[tokio::test]
async fn a_caller_who_is_refused_as_unknown_has_to_connect_again() {
    let scene = Scene::set().await;
    let mut stream = scene.nobody().connect(scene.port).await;
    for (call, code) in [("Authorization: Bearer user:jane\r\n", 200), ("", 401)] {
        let request = format!("GET /healthz HTTP/1.1\r\nHost: n\r\n{call}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(hear(&mut stream, String::new()).await.code, code);
    }
    closes(&mut stream).await;
}

#[tokio::test]
async fn made_up_tokens_cost_the_computing_cluster_a_few_questions_at_a_time() {
    let scene = scene_of(Caps { reviews: 2, ..Caps::default() }).await;
    let reviews = scene.reviews.clone();
    let call = |token: String| {
        let (nobody, port) = (scene.nobody(), scene.port);
        let header = format!("Authorization: Bearer {token}");
        tokio::spawn(async move { nobody.call(port, "GET", LOG, &[&header]).await })
    };
    reviews.wait.store(true, Ordering::Relaxed);
    let mut waiting = Vec::new();
    // Ten who show the same one are one question.
    for token in ["user:scraper"; 10].into_iter().chain(["made-up"]) {
        waiting.push(call(token.to_owned()));
    }
    until("both are asked about", || reviews.of_tokens.load(Ordering::Relaxed) == 2).await;
    for number in 0..5 {
        let heard = call(format!("made-up-{number}")).await.unwrap();
        assert!(heard.code == 503 && heard.body.contains("too many tokens"), "{heard:?}");
        told(&scene, &heard, "too many tokens");
    }
    // Those who show a certificate do not even notice; whether they may is asked elsewhere.
    reviews.wait.store(false, Ordering::Relaxed);
    assert_eq!(scene.caller("jane").call(scene.port, "GET", LOG, &[]).await.code, 200);
    reviews.go_on.notify_waiters();
    let mut codes = Vec::new();
    for heard in waiting {
        codes.push(heard.await.unwrap().code);
    }
    assert_eq!(codes, [200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 401]);
    // What came of it is remembered for a while, of one that is no token as well.
    for (token, code) in [("user:scraper", 200), ("made-up", 401)] {
        assert_eq!(call(token.to_owned()).await.unwrap().code, code);
    }
    assert_eq!(reviews.of_tokens.load(Ordering::Relaxed), 2);
    leap(Duration::from_secs(11)).await;
    assert_eq!(call("made-up".to_owned()).await.unwrap().code, 401);
    assert_eq!(reviews.of_tokens.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_connection_does_not_outlive_the_port_of_its_node_and_a_stream_does() {
    let scene = Scene::set().await;
    let jane = scene.caller("jane");
    let mut stream = jane.connect(scene.port).await;
    stream.write_all(FORWARD.as_bytes()).await.unwrap();
    assert_eq!(hear(&mut stream, String::new()).await.code, 101);
    let mut kept = jane.connect(scene.port).await;
    kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n").await.unwrap();
    assert_eq!(hear(&mut kept, String::new()).await.code, 200);
    let unused = jane.connect(scene.port).await;
    let label = json!({"metadata": {"labels": {"kubeocean.io/proxier_port": free_port().await.to_string()}}});
    let (code, _) = scene.virt.call("user", "PATCH", &format!("/api/v1/nodes/{NODE}"), MERGE, Some(label));
    assert_eq!(code, 200);
    closes(&mut kept).await;
    // One that has not been used yet is not used for what was meant for the node before.
    let mut unused = unused;
    drop(unused.write_all(b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n").await);
    let heard = hear(&mut unused, String::new()).await;
    assert!(matches!(heard.code, 0 | 503), "{heard:?}");
    let mut echoed = [0; 4];
    stream.write_all(b"ping").await.unwrap();
    stream.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"ping");
}

#[tokio::test]
async fn a_proxier_that_ends_says_so_first_and_answers_for_a_moment_longer() {
    let scene = Scene::set().await;
    scene.stop.cancel();
    until("it is still ready", || scene.proxier.readiness().is_err()).await;
    assert!(scene.proxier.readiness().unwrap_err().contains("others should be asked"));
    assert_eq!(scene.caller("jane").call(scene.port, "GET", LOG, &[]).await.code, 200);
    let closed = async {
        while scene.is_open(scene.port).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), closed).await.unwrap();
}

//! Several proxiers in one process: each has its own callers, streams and end, and all share a door.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::caller::hear;
use crate::scene::{NODE, Scene, Setting, until};

const FORWARD: &str = "POST /portForward/web/only-second HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n";

const FOLLOW: &str = "GET /containerLogs/web/only-second/c1?follow=true HTTP/1.1\r\nHost: n\r\n\r\n";

/// A second one in the same house, with a pod that the first one does not have.
async fn beside(first: &Scene) -> Scene {
    let setting = Setting {
        name: "w2",
        house: first.house.clone(),
        shared_port: Some(first.shared_port),
        ..Setting::default()
    };
    let second = Scene::set_as(setting).await;
    let uid = second.add_pod("only-second", NODE, &json!({}));
    second.add_twin("only-second-twin", &second.uid, &uid);
    second
}

async fn hears(stream: &mut (impl tokio::io::AsyncRead + Unpin), words: &str) {
    let mut heard = String::new();
    while !heard.contains(words) {
        let mut buffer = [0; 1024];
        let reading = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut buffer)).await;
        let count = reading.unwrap_or_else(|_| panic!("{words:?} did not come, but {heard:?}")).unwrap();
        assert!(count > 0, "it ended after {heard:?}");
        heard += &String::from_utf8_lossy(&buffer[..count]);
    }
}

#[tokio::test]
async fn streams_by_the_shared_port_outlive_the_binding_that_holds_it() {
    let first = Scene::set().await;
    let second = beside(&first).await;
    let jane = first.caller("jane");
    let lines = second.worker.tells();
    let mut log = jane.connect(first.shared_port).await;
    log.write_all(FOLLOW.as_bytes()).await.unwrap();
    lines.send("before\n").unwrap();
    hears(&mut log, "before").await;
    let mut forward = jane.connect(first.shared_port).await;
    let peer = forward.get_ref().0.local_addr().unwrap().to_string();
    forward.write_all(FORWARD.as_bytes()).await.unwrap();
    let heard = hear(&mut forward, peer).await;
    assert_eq!(heard.code, 101);
    let told = first.audit.about(&heard.peer);
    assert!(told.len() == 1 && told[0].contains("binding=w2;"), "of whom it was asked: {told:?}");
    let mut own = jane.connect(first.shared_port).await;
    own.write_all(FORWARD.replace("only-second", "a").as_bytes()).await.unwrap();
    assert_eq!(hear(&mut own, String::new()).await.code, 101);
    // The one that holds the door is unbound.
    first.stop.cancel();
    let mut rest = Vec::new();
    let reading = tokio::time::timeout(Duration::from_secs(20), own.read_to_end(&mut rest)).await;
    drop(reading.expect("its own streams go on"));
    lines.send("after\n").unwrap();
    hears(&mut log, "after").await;
    forward.write_all(b"still here").await.unwrap();
    hears(&mut forward, "still here").await;
    // Whoever comes now is let in by the other one.
    let john = second.caller("john");
    until("nobody holds the door", || std::net::TcpStream::connect(("127.0.0.1", first.shared_port)).is_ok())
        .await;
    let heard = john.call(first.shared_port, "GET", "/containerLogs/web/only-second/c1", &[]).await;
    assert_eq!(heard.code, 200, "{heard:?}");
    // And the end of that one ends them.
    second.stop.cancel();
    let reading = tokio::time::timeout(Duration::from_secs(20), log.read_to_end(&mut rest)).await;
    drop(reading.expect("its streams go on"));
    until("places are still taken", || second.proxier.state()["streams"] == 0).await;
}

#[tokio::test]
async fn one_that_died_is_not_asked_in_place_of_its_successor() {
    let mut first = Scene::set().await;
    let mut stream = first.caller("jane").connect(first.port).await;
    stream.write_all(FORWARD.replace("only-second", "a").as_bytes()).await.unwrap();
    assert_eq!(hear(&mut stream, String::new()).await.code, 101);
    first.tasks.shutdown().await;
    let second = beside(&first).await;
    let heard = second.caller("jane").call(first.shared_port, "GET", "/containerLogs/web/a/c1", &[]).await;
    assert_eq!(heard.code, 200, "{heard:?}");
    assert_eq!(second.worker.asked().len(), 1, "the dead one was asked");
    let mut rest = Vec::new();
    let reading = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
    drop(reading.expect("a stream that nobody ends"));
    drop(first.proxier);
}

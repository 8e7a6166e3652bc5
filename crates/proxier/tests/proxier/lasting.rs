//! Streams that last: quiet ones, forgotten ones, those that nobody reads, and those whose one end goes.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::caller::hear;
use crate::scene::{Scene, leap, until};
use crate::worker::Behaviour;

const HOUR: Duration = Duration::from_secs(3600);

const FOLLOW: &str = "GET /containerLogs/web/a/c1?follow=true HTTP/1.1\r\nHost: n\r\n\r\n";

const FORWARD: &str = "POST /portForward/web/a HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n";

async fn begin(scene: &Scene, request: &str) -> TlsStream<TcpStream> {
    let mut stream = scene.caller("jane").connect(scene.port).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn forward(scene: &Scene) -> TlsStream<TcpStream> {
    let mut stream = begin(scene, FORWARD).await;
    assert_eq!(hear(&mut stream, String::new()).await.code, 101);
    stream
}

async fn hears(stream: &mut TlsStream<TcpStream>, words: &str) {
    let mut heard = String::new();
    let hearing = async {
        while !heard.contains(words) {
            let mut buffer = [0; 1024];
            let count = stream.read(&mut buffer).await.unwrap();
            assert!(count > 0, "it ended after {heard:?}");
            heard += &String::from_utf8_lossy(&buffer[..count]);
        }
    };
    let within = tokio::time::timeout(Duration::from_secs(20), hearing).await;
    assert!(within.is_ok(), "{words:?} did not come, but {heard:?}");
}

async fn echoes(stream: &mut TlsStream<TcpStream>, words: &str) {
    stream.write_all(words.as_bytes()).await.unwrap();
    hears(stream, words).await;
}

/// Reads to the end, which comes soon.
async fn ends(stream: &mut TlsStream<TcpStream>) -> Vec<u8> {
    let mut rest = Vec::new();
    let reading = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
    drop(reading.expect("it goes on"));
    rest
}

#[tokio::test]
async fn a_log_that_is_followed_waits_for_its_first_line_for_as_long_as_it_takes() {
    let scene = Scene::set().await;
    let lines = scene.worker.tells();
    let mut log = begin(&scene, FOLLOW).await;
    until("it is asked for", || scene.worker.open() == 1).await;
    leap(Duration::from_secs(31)).await;
    lines.send("at last\n").unwrap();
    hears(&mut log, "at last").await;
    leap(HOUR).await;
    lines.send("and more\n").unwrap();
    hears(&mut log, "and more").await;
    // And its end is one.
    drop(lines);
    hears(&mut log, "0\r\n\r\n").await;
}

#[tokio::test]
async fn a_log_that_is_not_followed_does_not_wait_for_ever() {
    let scene = Scene::set().await;
    let _lines = scene.worker.tells();
    let mut log = begin(&scene, "GET /containerLogs/web/a/c1 HTTP/1.1\r\nHost: n\r\n\r\n").await;
    until("it is asked for", || scene.worker.open() == 1).await;
    leap(Duration::from_secs(31)).await;
    let heard = hear(&mut log, String::new()).await;
    assert!(heard.code == 500 && heard.body.contains("no answer within 30 s"), "{heard:?}");
}

#[tokio::test]
async fn who_leaves_before_the_first_line_leaves_nothing_behind() {
    let scene = Scene::set().await;
    let lines = scene.worker.tells();
    let log = begin(&scene, FOLLOW).await;
    until("it is asked for", || scene.worker.open() == 1).await;
    drop(log);
    until("the worker still tells a log to nobody", || scene.worker.open() == 0).await;
    until("its place is still taken", || scene.proxier.state()["streams"] == 0).await;
    drop(lines);
}

#[tokio::test]
async fn the_end_of_a_proxier_ends_a_log_that_has_not_begun() {
    let scene = Scene::set().await;
    let _lines = scene.worker.tells();
    let mut log = begin(&scene, FOLLOW).await;
    until("it is asked for", || scene.worker.open() == 1).await;
    scene.stop.cancel();
    let heard = hear(&mut log, String::new()).await;
    assert!(heard.code == 500 && heard.body.contains("ended here"), "{heard:?}");
}

#[tokio::test]
async fn a_stream_that_nobody_uses_ends_after_four_hours_and_one_that_is_used_goes_on() {
    let scene = Scene::set().await;
    let lines = scene.worker.tells();
    let mut followed = begin(&scene, FOLLOW).await;
    lines.send("one\n").unwrap();
    hears(&mut followed, "one").await;
    let (mut used, mut forgotten) = (forward(&scene).await, forward(&scene).await);
    until("all are open", || scene.worker.open() == 3).await;
    for words in ["first", "second"] {
        leap(2 * HOUR).await;
        echoes(&mut used, words).await;
        lines.send("two\n").unwrap();
        hears(&mut followed, "two").await;
    }
    ends(&mut forgotten).await;
    leap(2 * HOUR).await;
    echoes(&mut used, "third").await;
    leap(2 * HOUR).await;
    // Two hours for the one, and four for the other.
    let rest = ends(&mut followed).await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "as if that were all of it");
    echoes(&mut used, "fourth").await;
    leap(4 * HOUR).await;
    ends(&mut used).await;
    until("nothing is left", || scene.worker.open() == 0 && scene.proxier.state()["streams"] == 0).await;
}

/// What the kernel's buffers of four connections may take, at the very most.
const IN_BUFFERS: usize = 64 << 20;

#[tokio::test]
async fn a_worker_that_floods_a_reader_who_does_not_read_stops_and_is_left_after_four_hours() {
    let scene = Scene::set().await;
    for request in [FOLLOW, FORWARD] {
        scene.until_answered(&scene.caller("jane")).await;
        scene.worker.behave(Behaviour::Floods);
        let idle = begin(&scene, request).await;
        until(&format!("nothing comes: {request}"), || scene.worker.open() == 1).await;
        let mut before = usize::MAX;
        // What goes nowhere does not grow.
        while scene.worker.flooded() != before {
            before = scene.worker.flooded();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert!(before > 0 && before < IN_BUFFERS, "{request}: {before} bytes are somewhere");
        assert_eq!(scene.worker.open(), 1, "{request} {before}");
        leap(4 * HOUR).await;
        until(&format!("a reader that reads nothing is not left: {request}"), || scene.worker.open() == 0)
            .await;
        until("its place is still taken", || scene.proxier.state()["streams"] == 0).await;
        drop(idle);
    }
}

#[tokio::test]
async fn either_end_that_goes_takes_the_other_with_it() {
    let scene = Scene::set().await;
    let caller_goes = forward(&scene).await;
    until("it is open", || scene.worker.open() == 1).await;
    drop(caller_goes);
    until("the worker still speaks with nobody", || scene.worker.open() == 0).await;
    let lines = scene.worker.tells();
    let mut worker_goes = begin(&scene, FOLLOW).await;
    lines.send("one\n").unwrap();
    hears(&mut worker_goes, "one").await;
    drop(worker_goes);
    until("a log is told to nobody", || scene.worker.open() == 0).await;
    drop(lines);
    let mut worker_goes = forward(&scene).await;
    worker_goes.shutdown().await.unwrap();
    assert_eq!(ends(&mut worker_goes).await, b"bye");
    until("nothing is left", || scene.proxier.state()["streams"] == 0).await;
}

#[tokio::test]
async fn streams_end_when_another_cluster_answers_in_its_place_and_new_ones_wait_for_the_right_one() {
    let scene = Scene::set().await;
    let mut old = forward(&scene).await;
    scene.worker.is_another(true);
    leap(Duration::from_secs(6)).await;
    ends(&mut old).await;
    let heard = scene.caller("jane").call(scene.port, "GET", "/containerLogs/web/a/c1", &[]).await;
    assert!(heard.code == 500 && heard.body.contains("another cluster answers in its place"), "{heard:?}");
    let asked = scene.worker.asked().len();
    assert_eq!(asked, 1, "only the first one: {:?}", scene.worker.asked());
    scene.worker.is_another(false);
    leap(Duration::from_secs(6)).await;
    until("it is the right one again", || scene.proxier.state()["worker"].is_null()).await;
    let mut new = forward(&scene).await;
    echoes(&mut new, "here").await;
}

/// The timers of this process's connections, by local and remote port: 2 asks whether the other end still is there.
fn timer(local: u16, remote: u16) -> Option<u8> {
    let (local, remote) = (format!(":{local:04X}"), format!(":{remote:04X}"));
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let is_it = columns[1].ends_with(&local) && columns[2].ends_with(&remote);
        is_it.then(|| columns[5].split(':').next().unwrap().parse().unwrap())
    })
}

#[tokio::test]
async fn a_machine_that_vanished_is_noticed_while_nothing_is_said() {
    let scene = Scene::set().await;
    let stream = forward(&scene).await;
    let caller = stream.get_ref().0.local_addr().unwrap().port();
    until("nobody asks whether the caller still is there", || timer(scene.port, caller) == Some(2)).await;
}

//! What does not work, and what is left of it.

use std::process::Stdio;

use futures::future::join_all;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::home::Home;
use super::streams::{container, pod, within};
use crate::access::until;

/// Who follow logs at once; `KUBEOCEAN_FOLLOWERS=200` is for the day on which it matters.
const FOLLOWERS: u32 = 30;

/// How many streams proxiers carry.
const STREAMS: &str = "kubeocean_proxier_streams{";

/// Words that a kubelet would say, of what is not there.
pub(super) async fn what_is_not_there_is_told_as_a_kubelet_tells_it(home: &Home) {
    for (args, expected) in [
        ("logs nobody", "\"nobody\" not found"),
        ("exec nobody -- true", "\"nobody\" not found"),
        ("logs app -c nothing", "container nothing is not valid for pod app"),
        ("exec app -c nothing -- true", "container nothing"),
        ("exec app -c prepares -- true", "container"),
        ("logs app -c c --previous", "previous terminated container \"c\" in pod"),
        ("exec app -c c -- no-such-program", "no-such-program"),
    ] {
        let said = home.say(args, b"").await;
        assert_ne!(said.code, Some(0), "{args}: {}", said.text());
        assert!(said.err.contains(expected), "{args}: {}", said.err);
    }
    // One that never starts.
    let mut waits = container("c", "true", &serde_json::json!({}));
    waits["image"] = "kubeocean.local/absent:lab".into();
    home.apply(&pod("absent", &serde_json::json!([waits]), &serde_json::json!({})));
    until("its kubelet waits for the image", async || {
        let said = home.say("logs absent", b"").await;
        let is_told = said.code != Some(0) && said.err.contains("is waiting to start");
        if is_told { Ok(()) } else { Err(said.err) }
    })
    .await;
    home.good("delete pod absent --timeout=60s").await;
}

pub(super) async fn many_follow_at_once_and_nothing_is_left_of_who_goes(home: &Home) {
    let count =
        std::env::var("KUBEOCEAN_FOLLOWERS").ok().and_then(|text| text.parse().ok()).unwrap_or(FOLLOWERS);
    let followers = (0..count).map(|_| async {
        let mut follow = home.kubectl("logs -f app -c beside");
        let mut follow = follow.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
        assert_eq!(within(lines.next_line()).await.unwrap().as_deref(), Some("beside"));
        (follow, lines)
    });
    let mut followers = join_all(followers).await;
    let streams = home.metric(STREAMS).await.unwrap();
    assert!(streams >= f64::from(count), "{streams} streams of {count}");
    for (follow, _) in &mut followers {
        follow.kill().await.unwrap();
    }
    until("nothing is left of them", async || match home.metric(STREAMS).await? {
        0.0 => Ok(()),
        streams => Err(format!("{streams} streams")),
    })
    .await;
}

pub(super) async fn a_worker_that_restarts_ends_streams_and_serves_new_ones(home: &Home) {
    let mut follow = home.kubectl("logs -f app -c beside --tail=1");
    let mut follow = follow.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    assert!(within(lines.next_line()).await.unwrap().is_some());
    let server = home.worker().program("kube-apiserver");
    server.stop().await.unwrap();
    // It ends, and does not hang for ever.
    assert_eq!(within(lines.next_line()).await.unwrap_or_default(), None);
    within(follow.wait()).await.unwrap();
    let said = home.say("logs app -c c --tail=1", b"").await;
    assert_ne!(said.code, Some(0), "{}", said.text());
    assert!(said.err.contains("worker cluster"), "the cause is named: {}", said.err);
    server.start().await.unwrap();
    until("logs are served again", async || {
        let said = home.say("logs app -c c --tail=1", b"").await;
        if said.code == Some(0) { Ok(()) } else { Err(said.err) }
    })
    .await;
}

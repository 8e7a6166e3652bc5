//! Many who follow one log.

use std::fmt::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use super::home::{Home, STREAMS};
use super::streams::{container, pod, within};
use crate::access::until;

/// `KUBEOCEAN_FOLLOWERS=200` is for the day on which it matters.
const FOLLOWERS: u32 = 30;

/// Each third goes before the end.
const GOES: usize = 3;

/// A hundred lines at a time, so that it grows for seconds, and nobody finds all of it there.
const LINES: u32 = 3000;
const GROWS: &str = "echo begins; until [ -e /tmp/go ]; do sleep 0.1; done; n=0; \
    while [ $n -lt 3000 ]; do n=$((n+1)); echo \"line $n of what grows\"; [ $((n%100)) != 0 ] || sleep 0.1; done";

/// A kubectl starts in a tenth of a second of a core, or two.
const EACH_WITHIN: Duration = Duration::from_secs(1);

pub(super) async fn many_follow_what_grows_and_nothing_is_left_of_who_goes(home: &Home) {
    let wanted = std::env::var("KUBEOCEAN_FOLLOWERS").ok().and_then(|text| text.parse().ok());
    let count: u32 = wanted.unwrap_or(FOLLOWERS);
    let limit = Duration::from_secs(60) + EACH_WITHIN * count;
    home.apply(&pod(
        "grows",
        &json!([container("c", GROWS, &json!({}))]),
        &json!({"restartPolicy": "Never"}),
    ));
    home.ready("grows").await;
    let began = Instant::now();
    let followers = (0..count).map(|_| async {
        let mut follow = home.kubectl("logs -f grows");
        let mut follow = follow.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut said = BufReader::new(follow.stdout.take().unwrap());
        let mut first = String::new();
        let read = tokio::time::timeout(limit, said.read_line(&mut first)).await;
        read.expect("it came to nothing").unwrap();
        assert_eq!(first, "begins\n");
        (follow, said)
    });
    let mut followers = join_all(followers).await;
    println!("{count} follow a log after {:.1} s", began.elapsed().as_secs_f64());
    let streams = home.metric(STREAMS).await.unwrap();
    assert!(streams >= f64::from(count), "{streams} streams of {count}");
    let began = Instant::now();
    home.good("exec grows -- touch /tmp/go").await;
    let mut expected = String::new();
    for number in 1..=LINES {
        let _ = writeln!(expected, "line {number} of what grows");
    }
    let ended = followers.iter_mut().enumerate().map(async |(number, (follow, said))| {
        if number % GOES == 1 {
            let mut line = String::new();
            within(said.read_line(&mut line)).await.unwrap();
            assert_eq!(line, "line 1 of what grows\n");
            follow.kill().await.unwrap();
            return;
        }
        let mut text = String::new();
        let read = tokio::time::timeout(limit, said.read_to_string(&mut text)).await;
        read.expect("it came to no end").unwrap();
        assert!(text == expected, "{} of {} bytes came", text.len(), expected.len());
        // The container has ended, and so does its log.
        assert!(within(follow.wait()).await.unwrap().success());
    });
    join_all(ended).await;
    println!("all of them have all {LINES} lines after {:.1} s", began.elapsed().as_secs_f64());
    until("nothing is left of them", async || match home.metric(STREAMS).await? {
        0.0 => Ok(()),
        streams => Err(format!("{streams} streams")),
    })
    .await;
    home.good("delete pod grows --timeout=60s").await;
}

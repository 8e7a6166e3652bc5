//! Servers that take a connection, and say nothing.

use std::time::Duration;

use http::{HeaderMap, Method};
use kubeocean_cluster::client::{Cluster, Settings, Stream};
use kubeocean_cluster::credentials::Credentials;
use kubeocean_cluster::metrics::Metrics;
use kubeocean_model::key::Physical;
use tokio::net::TcpListener;
use tokio::time::Instant;

async fn cluster_at(listener: &TcpListener) -> Cluster<Physical> {
    let at = listener.local_addr().unwrap();
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
         contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
         clusters: [{{name: a, cluster: {{server: 'https://{at}'}}}}]\nusers: [{{name: a, user: {{token: t}}}}]\n"
    );
    let credentials = Credentials::from_kubeconfig(kubeconfig.as_bytes()).await.unwrap();
    Cluster::connect(credentials, Settings::new("physical", "test", &Metrics::new("test"))).unwrap()
}

/// A log that is followed, of which nothing may come for hours.
fn quiet_log() -> Stream {
    Stream {
        method: Method::GET,
        path: "/api/v1/namespaces/a/pods/b/log?follow=true".to_owned(),
        headers: HeaderMap::new(),
        resource: "pods/log",
        begins_within: Some(Duration::from_secs(4 * 3600)),
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_shake_hands_is_left_however_long_an_answer_may_take() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cluster = cluster_at(&listener).await;
    let start = Instant::now();
    let error = cluster.open_stream(quiet_log()).await.unwrap_err();
    assert!(error.to_string().contains("no connection within 30 s"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(31), "{:?}", start.elapsed());
}

/// Which timer the kernel has for a connection: 2 asks whether the other end still is there.
fn timer(local: u16, remote: u16) -> Option<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ends = [format!(":{local:04X}"), format!(":{remote:04X}")];
    table.lines().find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let is_it = columns[1].ends_with(&ends[0]) && columns[2].ends_with(&ends[1]);
        is_it.then(|| columns[5].split(':').next().unwrap_or_default().to_owned())
    })
}

#[tokio::test]
async fn a_server_that_vanished_is_noticed_while_it_owes_an_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cluster = cluster_at(&listener).await;
    let asking = tokio::spawn(async move { cluster.open_stream(quiet_log()).await });
    let (_held, peer) = listener.accept().await.unwrap();
    let asked = async {
        while timer(peer.port(), listener.local_addr().unwrap().port()).as_deref() != Some("02") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let within = tokio::time::timeout(Duration::from_secs(8), asked).await;
    assert!(within.is_ok(), "nobody asks whether the server still is there");
    asking.abort();
}

//! What callers with rights get.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::caller::hear;
use crate::scene::{MOUNT, Scene};
use crate::worker::Behaviour;

const SPDY: &[&str] =
    &["Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io"];

#[tokio::test(flavor = "multi_thread")]
async fn a_log_and_a_command_reach_the_twin_and_nothing_of_the_caller_does() {
    let mut scene = Scene::set().await;
    let jane = scene.caller("jane");

    let heard = jane.call(scene.port, "GET", "/containerLogs/web/a/c1?tailLines=5&unknown=1", &[]).await;
    assert_eq!(heard.code, 200, "{heard:?}");
    assert!(heard.body.contains("log of") && !heard.head.to_lowercase().contains("set-cookie"), "{heard:?}");
    let asked = scene.worker.last_asked();
    let expected = format!("GET /api/v1/namespaces/{MOUNT}/pods/a-twin/log?container=c1&tailLines=5\n");
    assert!(asked.starts_with(&expected), "{asked}");

    // On the port of all nodes too, and by a token.
    let heard = scene
        .nobody()
        .call(scene.shared_port, "GET", "/containerLogs/web/b/c1", &["Authorization: Bearer user:jane"])
        .await;
    assert_eq!(heard.code, 200, "{heard:?}");
    let asked = scene.worker.last_asked();
    assert!(
        asked.contains("/pods/b-twin/log?container=c1") && !asked.to_lowercase().contains("authorization"),
        "{asked}"
    );

    let mut stream = jane.connect(scene.port).await;
    let evil = "Cookie: a=b\r\nImpersonate-User: admin\r\nX-Remote-User: admin\r\nX-Forwarded-For: 1.2.3.4";
    let request = format!(
        "POST /exec/web/a/c1?command=cat&input=1&output=1 HTTP/1.1\r\nHost: n\r\n{}\r\n{evil}\r\nContent-Length: 0\r\n\r\n",
        SPDY.join("\r\n")
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let heard = hear(&mut stream, String::new()).await;
    assert_eq!(heard.code, 101, "{heard:?}");
    assert!(heard.head.to_lowercase().contains("upgrade: spdy/3.1"), "{heard:?}");
    let asked = scene.worker.last_asked().to_lowercase();
    assert!(asked.starts_with("post ") && asked.contains("stdin=true&stdout=true&command=cat"), "{asked}");
    for word in ["cookie", "impersonate", "x-remote", "x-forwarded", "authorization"] {
        assert!(!asked.contains(word), "{word} in {asked}");
    }
    let mut echoed = [0; 5];
    stream.write_all(b"hello").await.unwrap();
    stream.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"hello");
    // Half of the stream ends; the other half goes on until it is through.
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    drop(stream.read_to_end(&mut rest).await);
    assert_eq!(rest, b"bye");

    for (path, contains) in [
        ("/healthz", "ok"),
        ("/pods", "\"kind\":\"PodList\""),
        ("/metrics", "kubeocean_proxier_streams{clusterbinding=\"w1\"} 0"),
    ] {
        let heard = jane.call(scene.port, "GET", path, &[]).await;
        assert!(heard.code == 200 && heard.body.contains(contains), "{path}: {heard:?}");
    }
    assert!(scene.audit.all().contains("user=jane;"));

    scene.stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(10), async {
        scene.tasks.abort_all();
        while scene.tasks.join_next().await.is_some() {}
    });
    ended.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_on_for_a_while_when_the_proxier_ends_and_no_new_one_begins() {
    let scene = Scene::set().await;
    let jane = scene.caller("jane");
    let mut stream = jane.connect(scene.port).await;
    let request = format!(
        "POST /portForward/web/a HTTP/1.1\r\nHost: n\r\n{}\r\nContent-Length: 0\r\n\r\n",
        SPDY.join("\r\n")
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(hear(&mut stream, String::new()).await.code, 101);
    scene.stop.cancel();
    let mut echoed = [0; 4];
    stream.write_all(b"ping").await.unwrap();
    stream.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"ping");
    let mut rest = Vec::new();
    // It is cut after the two seconds that this one grants.
    tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await.unwrap().ok();
    assert!(tokio::net::TcpStream::connect(("127.0.0.1", scene.port)).await.is_err());
}

/// What a WebSocket brings, and which of the protocols that were offered the worker chooses.
const WEB_SOCKETS: [(&str, &str, &str); 4] = [
    (
        "/exec/web/a/c1?command=cat&input=1&output=1",
        "v5.channel.k8s.io, v4.channel.k8s.io",
        "v5.channel.k8s.io",
    ),
    ("/exec/web/a/c1?command=cat&input=1&output=1", "v4.channel.k8s.io", "v4.channel.k8s.io"),
    ("/attach/web/a/c1?output=1", "v5.channel.k8s.io", "v5.channel.k8s.io"),
    ("/portForward/web/a", "SPDY/3.1+portforward.k8s.io", "SPDY/3.1+portforward.k8s.io"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_reaches_the_twin_and_the_audit_log_says_that_it_was_one() {
    let scene = Scene::set().await;
    let jane = scene.caller("jane");
    for (path, offered, chosen) in WEB_SOCKETS {
        let mut stream = jane.connect(scene.port).await;
        let peer = stream.get_ref().0.local_addr().unwrap().to_string();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {offered}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let heard = hear(&mut stream, peer).await;
        assert_eq!(heard.code, 101, "{heard:?}");
        let lower = heard.head.to_lowercase();
        for line in ["upgrade: websocket", "sec-websocket-accept: accepted"] {
            assert!(lower.contains(line), "{line}: {heard:?}");
        }
        assert!(heard.head.ends_with(chosen) || heard.head.contains(&format!(": {chosen}\r\n")), "{heard:?}");
        let asked = scene.worker.last_asked();
        assert!(asked.contains(&format!("sec-websocket-protocol: {offered}")), "{asked}");
        assert!(asked.contains("sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="), "{asked}");
        let mut echoed = [0; 6];
        stream.write_all(b"frames").await.unwrap();
        stream.read_exact(&mut echoed).await.unwrap();
        assert_eq!(&echoed, b"frames", "{path}");
        let lines = scene.audit.about(&heard.peer);
        assert!(lines.len() == 1 && lines[0].contains("protocol=websocket;"), "{lines:?}");
    }
    let heard = jane.call(scene.port, "POST", "/portForward/web/a", SPDY).await;
    let lines = scene.audit.about(&heard.peer);
    assert!(lines.len() == 1 && lines[0].contains("protocol=spdy;"), "{lines:?}");
    let heard = jane.call(scene.port, "GET", "/containerLogs/web/a/c1", &[]).await;
    let lines = scene.audit.about(&heard.peer);
    assert!(lines.len() == 1 && !lines[0].contains("protocol="), "{lines:?}");
}

/// What the worker cluster says, and what a caller hears of it. That it does not let us is nothing that he could mend.
const REFUSALS: [(u16, &str, u16, &str); 6] = [
    (400, "container c1 is waiting to start: ImagePullBackOff", 400, "waiting to start: ImagePullBackOff"),
    (401, "Unauthorized", 500, "worker cluster w1 does not let this proxier use"),
    (403, "pods \"a-twin\" is forbidden: no rights", 500, "(403): pods \"a\" is forbidden: no rights"),
    (404, "pods \"a-twin\" not found", 404, "pods \"a\" not found"),
    (429, "too many requests", 429, "too many requests"),
    (500, "container runtime is down", 500, "container runtime is down"),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_the_worker_refuses_is_told_in_its_words_and_never_as_if_the_caller_were_unknown() {
    let scene = Scene::set().await;
    let jane = scene.caller("jane");
    for (said, message, code, words) in REFUSALS {
        for (method, path, headers) in [
            ("GET", "/containerLogs/web/a/c1", &[][..]),
            ("POST", "/exec/web/a/c1?command=ls&output=1", SPDY),
        ] {
            scene.worker.behave(Behaviour::Refuses(said, message));
            let heard = jane.call(scene.port, method, path, headers).await;
            assert!(heard.code == code && heard.body.contains(words), "{said}: {heard:?}");
            assert!(!heard.head.to_lowercase().contains("www-authenticate"), "{said}: {heard:?}");
            assert!(!heard.body.contains("twin"), "{said}: {heard:?}");
            let lines = scene.audit.about(&heard.peer);
            let is_told = lines.len() == 1 && lines[0].contains(&format!("code={code};"));
            assert!(is_told && lines[0].contains(words), "{said}: {lines:?}");
        }
    }
}

//! What nobody gets: every refusal with its status, its line in the audit log, and not a word to the worker cluster.

use std::sync::atomic::Ordering;

use kubeocean_testkit::Right;
use tokio::io::AsyncWriteExt as _;

use crate::caller::{Authority, Caller, hear};
use crate::scene::Scene;

const SPDY: [&str; 3] =
    ["Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io"];

/// Every route: method and path.
const ROUTES: [(&str, &str); 11] = [
    ("GET", "/containerLogs/web/a/c1"),
    ("POST", "/exec/web/a/c1?command=ls&output=1"),
    ("GET", "/exec/web/a/c1?command=ls&output=1"),
    ("POST", "/attach/web/a/c1?output=1"),
    ("POST", "/portForward/web/a"),
    ("GET", "/pods"),
    ("GET", "/metrics"),
    ("GET", "/metrics/resource"),
    ("GET", "/metrics/cadvisor"),
    ("GET", "/healthz"),
    ("GET", "/no/such/path"),
];

type PodOfOthers = (&'static str, &'static str, &'static str, &'static str, [Option<u16>; 2]);

/// Namespace, name, container, why not; and the code on the port of the first node, and on that of all.
const PODS_OF_OTHERS: [PodOfOthers; 10] = [
    ("web", "b", "c1", "on another virtual node", [Some(404), None]),
    ("web", "elsewhere", "c1", "of another binding", [Some(404); 2]),
    ("web", "real", "c1", "on a real node", [Some(404); 2]),
    ("web", "nobody", "c1", "not there", [Some(404); 2]),
    ("kube-system", "a", "c1", "in another namespace", [Some(404); 2]),
    ("web", "a", "c2", "without that container", [Some(404); 2]),
    ("mount", "a-twin", "c1", "by the name of the worker's pod", [Some(404); 2]),
    ("web", "forged", "c1", "annotations name another's twin", [Some(500); 2]),
    ("web", "stolen", "c1", "its twin is another binding's", [Some(500); 2]),
    ("web", "forged", "i2", "without that container, and forged", [Some(404); 2]),
];

struct Refusals {
    scene: Scene,
    count: usize,
}

impl Refusals {
    async fn expect(
        &mut self,
        caller: &Caller,
        port: u16,
        call: (&str, &str),
        headers: &[&str],
        code: u16,
        why: &str,
    ) {
        let (method, path) = call;
        let heard = caller.call(port, method, path, headers).await;
        assert_eq!(heard.code, code, "{why}: {method} {path} {headers:?}: {heard:?}");
        self.told(&heard.peer, code, &format!("{why}: {method} {path}"));
    }

    /// One line, with the code; and nothing was asked of the worker cluster.
    fn told(&mut self, peer: &str, code: u16, what: &str) {
        let lines = self.scene.audit.about(peer);
        assert_eq!(lines.len(), 1, "{what}: {lines:?}");
        assert!(lines[0].contains(&format!("code={code};")), "{what}: {lines:?}");
        assert_eq!(self.scene.worker.asked().len(), 0, "{what}: {:?}", self.scene.worker.asked());
        self.count += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_should_not_is_refused_and_written_down() {
    let mut refusals = Refusals { scene: Scene::set().await, count: 0 };
    strangers(&mut refusals).await;
    those_without_rights(&mut refusals).await;
    pods_of_others(&mut refusals).await;
    smuggled(&mut refusals).await;
    malformed(&mut refusals).await;
    not_even_http(&mut refusals).await;
    println!("{} calls were refused", refusals.count);
    assert!(refusals.count >= 60, "{}", refusals.count);
}

/// Nobody is anonymous, and a certificate of others is none.
async fn strangers(refusals: &mut Refusals) {
    let (port, shared) = (refusals.scene.port, refusals.scene.shared_port);
    let nobody = refusals.scene.nobody();
    let other = Authority::new("clients of another cluster");
    let authority = &refusals.scene.authority;
    let with = |identity| Caller { identity: Some(identity), ..nobody.clone() };
    let wrong_ca = with(other.client("jane", Some("system:masters")));
    let expired = with(authority.expired("jane"));
    let server = with(authority.server("jane"));
    let nameless = with(authority.client("", Some("system:masters")));
    for call in ROUTES {
        refusals.expect(&nobody, port, call, &SPDY, 401, "anonymous").await;
        refusals.expect(&wrong_ca, port, call, &SPDY, 401, "a certificate of another authority").await;
    }
    for (caller, why) in
        [(&expired, "expired"), (&server, "a server's certificate"), (&nameless, "without a name")]
    {
        refusals.expect(caller, port, ROUTES[0], &[], 401, why).await;
    }
    let forged = ["X-Remote-User: admin", "X-Remote-Group: system:masters", "Impersonate-User: admin"];
    refusals.expect(&nobody, port, ROUTES[1], &[&forged[..], &SPDY].concat(), 401, "forged headers").await;
    for token in ["Bearer no-such-token", "Basic dXNlcjpwYXNz", "Bearer", "Negotiate abc"] {
        let header = format!("Authorization: {token}");
        refusals.expect(&nobody, port, ROUTES[0], &[&header], 401, "a bad token").await;
    }
    let twice = ["Authorization: Bearer user:jane", "Authorization: Bearer user:root"];
    refusals.expect(&nobody, port, ROUTES[0], &twice, 401, "two tokens").await;
    let protocol = "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.dXNlcjpqYW5l";
    refusals.expect(&nobody, port, ROUTES[2], &[protocol], 401, "a token in a protocol").await;
    refusals
        .expect(&wrong_ca, port, ROUTES[0], &["Authorization: Bearer user:jane"], 401, "beside a good token")
        .await;
    refusals.expect(&nobody, shared, ROUTES[0], &[], 401, "anonymous on the shared port").await;
}

/// A user who is known may not do what he was not given.
async fn those_without_rights(refusals: &mut Refusals) {
    let (port, shared) = (refusals.scene.port, refusals.scene.shared_port);
    let virt = refusals.scene.virt.clone();
    virt.deny("mallory", Right::to("*", "nodes/*"));
    let mallory = refusals.scene.caller("mallory");
    for call in ROUTES {
        refusals.expect(&mallory, port, call, &SPDY, 403, "without any right").await;
    }
    refusals.expect(&mallory, shared, ROUTES[0], &[], 403, "on the shared port").await;
    refusals
        .expect(
            &mallory,
            shared,
            ("GET", "/containerLogs/web/nobody/c1"),
            &[],
            403,
            "a pod that is not there",
        )
        .await;
    // Who may read may not change the protocol, whatever the method.
    virt.deny("reader", Right::to("create", "nodes/*"));
    let reader = refusals.scene.caller("reader");
    for call in &ROUTES[1..5] {
        refusals.expect(&reader, port, *call, &SPDY, 403, "reading is no exec").await;
    }
    refusals.expect(&reader, port, ROUTES[0], &SPDY[..2], 403, "a log that asks for an upgrade").await;
    // Who may only look at metrics looks at nothing else.
    for verb in ["get", "create"] {
        virt.deny("scraper", Right::to(verb, "nodes/proxy"));
        virt.deny("scraper", Right::to(verb, "nodes/pods"));
        virt.deny("scraper", Right::to(verb, "nodes/healthz"));
    }
    let scraper = refusals.scene.caller("scraper");
    for call in [ROUTES[0], ROUTES[5], ROUTES[9], ROUTES[10]] {
        refusals.expect(&scraper, port, call, &[], 403, "metrics are not pods").await;
    }
    // Who cannot be asked about is refused.
    refusals.scene.reviews.fail.store(true, Ordering::Relaxed);
    let late = refusals.scene.caller("late");
    refusals.expect(&late, port, ROUTES[0], &[], 503, "nobody can be asked").await;
    let header = ["Authorization: Bearer user:unasked"];
    refusals.expect(&refusals.scene.nobody(), port, ROUTES[0], &header, 503, "nobody can be asked").await;
    refusals.scene.reviews.fail.store(false, Ordering::Relaxed);
    virt.allow_all();
}

/// A pod is this node's, this binding's and of this uid, or it does not exist.
async fn pods_of_others(refusals: &mut Refusals) {
    let (port, shared) = (refusals.scene.port, refusals.scene.shared_port);
    let jane = refusals.scene.caller("jane");
    let other_uid = refusals.scene.uid_of("b");
    // Whatever is done with a pod, and through whichever door: on the shared one, the node is the pod's own.
    for (namespace, pod, container, why, [at_node, at_door]) in PODS_OF_OTHERS {
        let calls = [
            ("GET", format!("/containerLogs/{namespace}/{pod}/{container}")),
            ("POST", format!("/exec/{namespace}/{pod}/{container}?command=ls&output=1")),
            ("POST", format!("/attach/{namespace}/{pod}/{container}?output=1")),
            ("POST", format!("/portForward/{namespace}/{pod}")),
        ];
        for (method, path) in &calls {
            // Ports are forwarded to a pod, and not to a container.
            if path.starts_with("/portForward") && container != "c1" {
                continue;
            }
            let upgrade = if *method == "GET" { &[][..] } else { &SPDY[..] };
            for (door, code) in [(port, at_node), (shared, at_door)] {
                if let Some(code) = code {
                    refusals.expect(&jane, door, (*method, path.as_str()), upgrade, code, why).await;
                }
            }
        }
    }
    for uid in [other_uid.as_str(), "00000000-0000"] {
        for path in [
            format!("/exec/web/a/{uid}/c1?command=ls&output=1"),
            format!("/attach/web/a/{uid}/c1?output=1"),
            format!("/portForward/web/a/{uid}"),
        ] {
            for door in [port, shared] {
                refusals.expect(&jane, door, ("POST", path.as_str()), &SPDY, 404, "of another uid").await;
            }
        }
    }
    refusals
        .expect(&jane, shared, ("GET", "/containerLogs/web/elsewhere/c1"), &[], 404, "of another binding")
        .await;
    refusals.expect(&jane, shared, ("GET", "/pods"), &[], 404, "of no node").await;
}

/// What looks like one thing to us and like another to someone else.
async fn smuggled(refusals: &mut Refusals) {
    let port = refusals.scene.port;
    let jane = refusals.scene.caller("jane");
    for path in [
        "/containerLogs/web/../../api/v1/namespaces",
        "/containerLogs/web/a/c1/../../../b/c1",
        "/containerLogs/web%2f..%2fkube-system/a/c1",
        "/containerLogs/web/a%2f..%2fb/c1",
        "/containerLogs/web/a/c1%00",
        "/containerLogs/web/a/c1%0d%0aX:%20y",
        "//containerLogs/web/a/c1",
        "/containerLogs//web/a/c1",
        "/containerLogs/web/a/c1/",
        "/containerLogs/web/a/c1;x=y",
        "/CONTAINERLOGS/web/a/c1",
        "/exec/web/a/c1%3Fcommand=ls",
        "/run/web/a/c1",
        "/debug/pprof/heap",
    ] {
        refusals.expect(&jane, port, ("GET", path), &[], 404, "no such path").await;
    }
    for (path, code) in [
        ("/containerLogs/web/a/c1?tailLines=1&tailLines=2", 400),
        ("/containerLogs/web/a/c1?tailLines=%zz", 400),
        ("/containerLogs/web/a/c1?follow=true;container=c2", 400),
        ("/containerLogs/web/a/c1?sinceSeconds=0", 422),
        ("/containerLogs/web/a/c1?stream=Everything", 422),
        ("/exec/web/a/c1?output=1&command=l%00s", 400),
        ("/exec/web/a/c1?command=ls", 400),
        ("/exec/web/a/c1?output=1", 400),
        ("/portForward/web/a?port=0", 400),
    ] {
        refusals.expect(&jane, port, ("GET", path), &SPDY, code, "a bad query").await;
    }
    for (method, path) in
        [("DELETE", "/pods"), ("PUT", "/containerLogs/web/a/c1"), ("POST", "/healthz"), ("BREW", "/pods")]
    {
        refusals.expect(&jane, port, (method, path), &["Content-Length: 0"], 405, "no such method").await;
    }
}

/// Upgrades that are none.
async fn malformed(refusals: &mut Refusals) {
    let port = refusals.scene.port;
    let jane = refusals.scene.caller("jane");
    let exec = ("POST", "/exec/web/a/c1?command=ls&output=1");
    for headers in [
        &[][..],
        &["Upgrade: SPDY/3.1"],
        &["Connection: Upgrade"],
        &["Connection: Upgrade", "Upgrade: h2c"],
        &["Connection: Upgrade", "Upgrade: SPDY/3.1", "Upgrade: websocket"],
        &["Connection: Upgrade", "Upgrade: websocket"],
        &["Connection: Upgrade", "Upgrade: SPDY/3.1", "Content-Length: 5"],
        &["Connection: Upgrade", "Upgrade: SPDY/3.1", "Transfer-Encoding: chunked"],
    ] {
        refusals.expect(&jane, port, exec, headers, 400, "no upgrade").await;
    }
}

/// What never becomes a call.
async fn not_even_http(refusals: &mut Refusals) {
    let port = refusals.scene.port;
    let jane = refusals.scene.caller("jane");
    for port in [port, refusals.scene.shared_port] {
        let mut plain = jane.dial(port).await;
        let peer = plain.local_addr().unwrap().to_string();
        plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n").await.unwrap();
        let heard = hear(&mut plain, peer).await;
        assert_eq!(heard.code, 400, "{heard:?}");
        refusals.told(&heard.peer, 400, "plain HTTP");
    }
    // The head is not even read to its end: nobody has called.
    let long = format!("GET /pods HTTP/1.1\r\nHost: n\r\nX: {}\r\n\r\n", "x".repeat(200_000));
    let heard = jane.say(port, long.as_bytes()).await;
    assert_eq!(heard.code, 431, "{heard:?}");
    let many = "X: y\r\n".repeat(300);
    let heard = jane.say(port, format!("GET /pods HTTP/1.1\r\nHost: n\r\n{many}\r\n").as_bytes()).await;
    assert_eq!(heard.code, 431, "{heard:?}");
    let heard = jane
        .say(port, format!("GET /pods?{} HTTP/1.1\r\nHost: n\r\n\r\n", "x".repeat(80_000)).as_bytes())
        .await;
    assert_eq!(heard.code, 414, "{heard:?}");
    let heard = jane
        .say(port, b"GET /pods HTTP/1.1\r\nHost: n\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")
        .await;
    assert_eq!(heard.code, 400, "{heard:?}");
    let heard = jane.say(port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert!(heard.code == 400 || heard.code == 0, "{heard:?}");
    assert_eq!(refusals.scene.worker.asked().len(), 0);
}

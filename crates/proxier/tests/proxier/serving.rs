//! What is shown to callers, and whom of them is believed, while both change.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use kubeocean_cluster::apply::Applier;
use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::metrics::Metrics;
use kubeocean_model::key::Virtual;
use kubeocean_proxier::certificate::{self, Asker, LIFE, Parts, Serving, Source};
use kubeocean_testkit::{ApiServer, Options, Right};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::caller::{Authority, Caller, Identity, hear};
use crate::scene::{MERGE, Scene, Setting, leap, post, until};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// Someone else keeps a certificate in a Secret.
struct Kept {
    virt: ApiServer,
    serving: Serving,
    clock: Clock,
    _tasks: JoinSet<()>,
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn data(certificate: &Identity, key: &Identity) -> Value {
    let chain = pem("CERTIFICATE", &certificate.certificate);
    let key = pem("PRIVATE KEY", key.key.secret_der());
    json!({"data": {"tls.crt": STANDARD.encode(chain), "tls.key": STANDARD.encode(key)}})
}

impl Kept {
    fn begin() -> Self {
        let virt = ApiServer::new(Options::default());
        let settings = Settings::new("virtual", "kubeocean-proxier", &Metrics::new("test"));
        let cluster = Cluster::<Virtual>::over(virt.client("proxier"), settings);
        let clock = Clock::simulated(Timestamp::now());
        let (serving, keeper) = certificate::keep(Parts {
            applier: Applier::new("kubeocean-proxier").virtually(&cluster),
            virt: cluster,
            clock: clock.clone(),
            asker: Asker::Manager,
            virtual_cluster_uid: "u".to_owned(),
            address: watch::channel([127, 0, 0, 1].into()).1,
            source: Source::Secret { namespace: "default".to_owned(), name: "tls".to_owned() },
            life: LIFE,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(keeper.run());
        Self { virt, serving, clock, _tasks: tasks }
    }

    fn create(&self, certificate: &Identity) {
        let mut secret = data(certificate, certificate);
        secret["metadata"] = json!({"name": "tls"});
        secret["type"] = json!("kubernetes.io/tls");
        post(&self.virt, SECRETS, secret);
    }

    fn replace(&self, data: Value) {
        let (code, said) = self.virt.call("user", "PATCH", &format!("{SECRETS}/tls"), MERGE, Some(data));
        assert_eq!(code, 200, "{said}");
    }

    fn shows(&self, identity: &Identity) -> bool {
        self.serving.current().is_some_and(|current| current.cert[0] == identity.certificate)
    }
}

/// What is shown in a handshake now.
async fn shown(caller: &Caller, port: u16) -> CertificateDer<'static> {
    let stream = caller.connect(port).await;
    stream.get_ref().1.peer_certificates().unwrap()[0].clone()
}

#[tokio::test]
async fn another_certificate_is_shown_at_once_and_stops_no_stream() {
    let (kept, servers) = (Kept::begin(), Authority::new("servers"));
    let (first, second) = (servers.server("first"), servers.server("second"));
    kept.create(&first);
    until("the first one is in place", || kept.shows(&first)).await;
    let scene = Scene::set_as(Setting { serving: Some(kept.serving.clone()), ..Setting::default() }).await;
    let jane = Caller::new(&servers, Some(scene.authority.client("jane", None)));
    let mut stream = jane.connect(scene.port).await;
    let forward = "POST /portForward/web/a HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(forward.as_bytes()).await.unwrap();
    assert_eq!(hear(&mut stream, String::new()).await.code, 101);
    assert_eq!(shown(&jane, scene.port).await, first.certificate);
    kept.replace(data(&second, &second));
    until("the second one is in place", || kept.shows(&second)).await;
    assert_eq!(shown(&jane, scene.port).await, second.certificate);
    let mut echoed = [0; 4];
    stream.write_all(b"ping").await.unwrap();
    stream.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"ping");
}

#[tokio::test]
async fn a_secret_that_is_wrong_or_gone_takes_the_last_good_certificate_from_nobody() {
    let (kept, servers) = (Kept::begin(), Authority::new("servers"));
    let (good, other, better) = (servers.server("good"), servers.server("other"), servers.server("better"));
    until("what is missing is said", || {
        kept.serving.is_ready().is_err_and(|why| why.contains("there is no Secret default/tls"))
    })
    .await;
    kept.create(&good);
    until("it is in place", || kept.shows(&good)).await;
    assert_eq!(kept.serving.is_ready(), Ok(()));
    for wrong in [
        data(&other, &good),
        json!({"data": {"tls.crt": "bm9uc2Vuc2U=", "tls.key": "bm9uc2Vuc2U="}}),
        json!({"data": {"tls.crt": "", "tls.key": ""}}),
    ] {
        kept.replace(wrong);
        // It was looked at before what comes next is.
        leap(Duration::from_secs(1)).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(kept.shows(&good), "the last good one was taken away");
        assert_eq!(kept.serving.is_ready(), Ok(()));
    }
    let (code, _) = kept.virt.call("user", "DELETE", &format!("{SECRETS}/tls"), None, None);
    assert_eq!(code, 200);
    kept.create(&better);
    until("the better one is in place", || kept.shows(&better)).await;
}

#[tokio::test]
async fn a_certificate_that_is_not_good_yet_is_taken_when_it_is() {
    let (kept, servers) = (Kept::begin(), Authority::new("servers"));
    let begins = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
    kept.clock.jump(-SignedDuration::from_secs(60));
    let early = servers.server_from("early", begins.as_second());
    kept.create(&early);
    until("why it is not taken is said", || {
        kept.serving.is_ready().is_err_and(|why| why.contains("is not good before"))
    })
    .await;
    for _ in 0..3 {
        leap(Duration::from_secs(31)).await;
    }
    until("it is in place", || kept.shows(&early)).await;
}

const CONFIG_MAP: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

#[tokio::test]
async fn other_authorities_count_from_the_next_call_on_also_on_a_connection_that_is_open() {
    let scene = Scene::set().await;
    let (jane, others) = (scene.caller("jane"), Authority::new("other clients of V"));
    let john = Caller { identity: Some(others.client("john", None)), ..jane.clone() };
    assert_eq!(john.call(scene.port, "GET", "/healthz", &[]).await.code, 401);
    let mut open = jane.connect(scene.port).await;
    let request = b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n";
    open.write_all(request).await.unwrap();
    assert_eq!(hear(&mut open, String::new()).await.code, 200);
    let body = json!({"data": {"client-ca-file": others.pem()}});
    let (code, _) = scene.virt.call("user", "PATCH", CONFIG_MAP, MERGE, Some(body));
    assert_eq!(code, 200);
    let known = async {
        while john.call(scene.port, "GET", "/healthz", &[]).await.code != 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), known).await.unwrap();
    open.write_all(request).await.unwrap();
    assert_eq!(hear(&mut open, String::new()).await.code, 401);
}

#[tokio::test]
async fn a_right_that_is_taken_away_is_gone_within_a_minute_and_one_that_is_given_is_there_in_ten_seconds() {
    let scene = Scene::set().await;
    let jane = scene.caller("jane");
    let call = async || jane.call(scene.port, "GET", "/containerLogs/web/a/c1", &[]).await.code;
    assert_eq!(call().await, 200);
    let right = Right::to("*", "nodes/*");
    scene.virt.deny("jane", right.clone());
    leap(Duration::from_secs(50)).await;
    assert_eq!(call().await, 200, "nobody is asked each time");
    leap(Duration::from_secs(11)).await;
    assert_eq!(call().await, 403);
    scene.virt.grant("jane", &right);
    assert_eq!(call().await, 403, "nobody is asked each time");
    leap(Duration::from_secs(11)).await;
    assert_eq!(call().await, 200);
}

#[tokio::test]
async fn a_port_that_is_taken_is_told_on_the_service_as_soon_as_there_is_one() {
    let scene = Scene::set().await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port();
    scene.add_node("vnode-w1-n3", port);
    let path = "/api/v1/namespaces/kubeocean-system/services";
    let told = || {
        let service = scene.virt.get("services", "kubeocean-system", "kubeocean-proxier-w1-svc");
        service.and_then(|service| {
            service["metadata"]["annotations"]["kubeocean.io/port-conflict"].as_str().map(str::to_owned)
        })
    };
    // It may be another program's for a moment only, and then nobody hears of it.
    for _ in 0..3 {
        leap(Duration::from_secs(11)).await;
        let heard = scene.caller("jane").call(scene.port, "GET", "/healthz", &[]).await;
        assert_eq!(heard.code, 200, "others are not kept waiting");
    }
    assert_eq!(told(), None);
    scene.virt.call(
        "user",
        "POST",
        "/api/v1/namespaces",
        None,
        Some(json!({"metadata": {"name": "kubeocean-system"}})),
    );
    let service = json!({
        "metadata": {"name": "kubeocean-proxier-w1-svc"},
        "spec": {"ports": [{"port": 10250}]},
    });
    post(&scene.virt, path, service);
    for _ in 0..3 {
        leap(Duration::from_secs(11)).await;
        scene.caller("jane").call(scene.port, "GET", "/healthz", &[]).await;
    }
    until("nobody was told", || told() == Some(port.to_string())).await;
    drop(taken);
}

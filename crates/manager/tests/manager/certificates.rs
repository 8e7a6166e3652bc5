//! Serving certificates: what proxiers ask for, and what the manager makes of it, simulated and in front of a real control plane.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use kubeocean_api::keys::names::{INSTALL_NAMESPACE, PROXIER_PREFIX};
use kubeocean_cluster::apply::Applier;
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::introduction::virtual_cluster_uid;
use kubeocean_model::action::{Verb, kinds};
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::rights::{Component, in_computing, rules};
use kubeocean_model::serving::{self, Asker};
use kubeocean_proxier::certificate::{self, Parts, Serving, Source};
use kubeocean_sandbox::COMPUTING;
use kubeocean_testkit::ApiServer;
use parking_lot::Mutex;
use rcgen::string::Ia5String;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::real::{LIMIT, MOUNT, Place, built_in, cluster_of, with_token};
use crate::residents::{collection, text};
use crate::scene::{MERGE, NAMESPACE};

/// How the name of a request begins that must not be approved.
pub(crate) const FORGED: &str = "forged-";

fn params(common_name: &str, names: Vec<SanType>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.subject_alt_names = names;
    params
}

fn pem(params: &CertificateParams) -> String {
    params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
}

/// The user of a proxier.
pub(crate) fn user_of(cluster_id: &str) -> String {
    format!("system:serviceaccount:{NAMESPACE}:{PROXIER_PREFIX}{cluster_id}")
}

/// A request of the proxier of a cluster, for the one address that all of them have here. Made once: keys cost time.
fn request_of(cluster_id: &str) -> String {
    static MADE: LazyLock<Mutex<BTreeMap<String, String>>> = LazyLock::new(Mutex::default);
    let make = || {
        let address = SanType::IpAddress("10.0.0.7".parse().unwrap());
        STANDARD.encode(pem(&params(&serving::common_name(cluster_id), vec![address])))
    };
    MADE.lock().entry(cluster_id.to_owned()).or_insert_with(make).clone()
}

/// A proxier has a pod, and asks; someone else asks for the same.
pub(crate) fn ask(server: &ApiServer, binding: &Value, labels: &Value) {
    let (id, uid) = (text(binding, "/spec/clusterID"), text(binding, "/metadata/uid"));
    let pod = format!("{PROXIER_PREFIX}{id}-1");
    if server.get("pods", NAMESPACE, &pod).is_none() {
        let spec = json!({
            "serviceAccountName": format!("{PROXIER_PREFIX}{id}"), "automountServiceAccountToken": false,
            "containers": [{"name": "proxier", "image": "none"}],
        });
        let body = json!({"metadata": {"name": pod}, "spec": spec});
        server.call("kubelet", "POST", &collection("pods", NAMESPACE), None, Some(body));
    }
    // A kubelet says it again where a restored etcd has taken it back.
    if server.get("pods", NAMESPACE, &pod).is_some_and(|pod| text(&pod, "/status/podIP").is_empty()) {
        let body =
            json!({"status": {"phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}]}});
        let place = format!("{}/{pod}/status", collection("pods", NAMESPACE));
        server.call("kubelet", "PATCH", &place, MERGE, Some(body));
    }
    let proxier = format!("proxier of {id}");
    server.identify(&proxier, &user_of(id));
    for (actor, start) in [(proxier.as_str(), ""), ("syncer", FORGED)] {
        let name = format!("{start}{id}-{uid}");
        if server.get("certificatesigningrequests", "", &name).is_none() {
            let body = json!({"metadata": {"name": name, "labels": labels}, "spec": {
                "request": request_of(id), "signerName": "kubernetes.io/kubelet-serving",
                "usages": ["digital signature", "server auth"],
            }});
            server.call(actor, "POST", &collection("certificatesigningrequests", ""), None, Some(body));
        }
    }
}

/// Whether a request is approved.
pub(crate) fn is_approved(request: &Value) -> bool {
    let conditions = request["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Approved"))
}

/// A proxier of a real computing cluster, as its pod would be.
struct Proxier {
    virt: Cluster<Virtual>,
    uid: String,
    address: IpAddr,
}

impl Proxier {
    /// Takes the place of a pod that runs on a simulated node: its token, and its address.
    async fn of(place: &Place, cluster_id: &str) -> Self {
        let account = format!("{PROXIER_PREFIX}{cluster_id}");
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "kubeocean-proxier"},
            "rules": rules(&in_computing(Component::Proxier)),
        });
        place.apply(COMPUTING, &role).await;
        let deadline = Instant::now() + LIMIT;
        let (pod, uid, address) = loop {
            let fields = format!("--field-selector=spec.serviceAccountName={account},status.phase=Running");
            let columns =
                "jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.status.podIP}{'\\n'}{end}";
            let found = place
                .kubectl(COMPUTING, &["-n", INSTALL_NAMESPACE, "get", "pods", &fields, "-o", columns])
                .await;
            let words: Vec<_> =
                found.lines().next().unwrap_or_default().split(' ').map(str::to_owned).collect();
            if let [pod, uid, address] = words.as_slice()
                && let Ok(address) = address.parse()
            {
                break (pod.clone(), uid.clone(), address);
            }
            assert!(Instant::now() < deadline, "no pod of {account}: {found}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        let bound = ["--bound-object-kind=Pod", "--bound-object-name", &pod, "--bound-object-uid", &uid];
        let token = [&["-n", INSTALL_NAMESPACE, "create", "token", &account], &bound[..]].concat();
        let token = place.kubectl(COMPUTING, &token).await;
        let virt = cluster_of(&with_token(&place.kubeconfig(COMPUTING), token.trim())).await;
        let uid = place.binding(cluster_id).await.unwrap()["uid"].as_str().unwrap().to_owned();
        Self { virt, uid, address }
    }

    fn applier(&self) -> Applier {
        Applier::new("kubeocean-proxier").virtually(&self.virt)
    }

    /// Asks for something that it should not have; the name of the request.
    async fn forge(&self, params: &CertificateParams, usages: &[&str]) -> String {
        forge(&self.applier(), &self.uid, params, usages).await
    }
}

async fn forge(applier: &Applier, uid: &str, params: &CertificateParams, usages: &[&str]) -> String {
    let asker = Asker::Proxier { cluster_id: "one".into(), binding_uid: uid.to_owned() };
    let mut action = serving::ask(&asker, "v", &pem(params), 3600);
    if let Verb::Create { body, .. } = &mut action.verb {
        body["spec"]["usages"] = json!(usages);
    }
    let outcome = applier.apply(&action).await;
    assert!(outcome.is_done(), "{outcome}");
    action.name
}

/// What is said of a request.
async fn conditions(place: &Place, name: &str) -> String {
    let request = place.virt.get(&kinds::SIGNING_REQUEST, &Key::cluster_scoped(name)).await.unwrap();
    let status: Value = request.unwrap().field("status").unwrap().unwrap_or_default();
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    let said = all.iter().map(|one| format!("{} {}", text(one, "/type"), text(one, "/message")));
    said.collect::<Vec<_>>().join("; ")
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so().await {
        assert!(Instant::now() < deadline, "not so in time: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Whether a client that trusts this authority believes who serves at an address.
fn is_believed(authority: &[u8], serving: &Serving, address: IpAddr) -> Result<(), rustls::Error> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let key = serving.current().unwrap();
    let name = ServerName::IpAddress(address.into());
    verifier.verify_server_cert(&key.cert[0], &key.cert[1..], &name, &[], UnixTime::now()).map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxier_gets_its_certificate_and_renews_it_and_nobody_gets_another() {
    let place = Place::new(1).await;
    let manager = place.manage(built_in()).await;
    place.secret("w1", "kubeconfig", &place.kubeconfig("worker-1")).await;
    place.bind("one", "w1", MOUNT).await;
    place.ready("one").await;
    let proxier = Proxier::of(&place, "one").await;
    let own = serving::common_name("one");
    let here = || SanType::IpAddress(proxier.address);
    let serve = ["digital signature", "server auth"];

    // Forged ones come first, so that they have been looked at when the right one is approved.
    let dns = SanType::DnsName(Ia5String::try_from("kubernetes.default.svc").unwrap());
    let denied = [
        proxier.forge(&params("system:node:n1", vec![here()]), &serve).await,
        proxier.forge(&params(&serving::common_name("two"), vec![here()]), &serve).await,
        proxier.forge(&params(&own, vec![here(), dns]), &serve).await,
        proxier.forge(&params(&own, vec![here()]), &["digital signature", "client auth"]).await,
    ];
    let elsewhere = SanType::IpAddress("10.255.0.1".parse().unwrap());
    let waits = proxier.forge(&params(&own, vec![here(), elsewhere]), &serve).await;
    let admin = Applier::new("admin").virtually(&place.virt);
    let foreign = forge(&admin, &proxier.uid, &params(&own, vec![here()]), &serve).await;

    let clock = Clock::simulated(Clock::system().now());
    let (_sender, address) = watch::channel(proxier.address);
    let (serving, keeper) = certificate::keep(Parts {
        virt: proxier.virt.clone(),
        applier: proxier.applier(),
        clock: clock.clone(),
        asker: Asker::Proxier { cluster_id: "one".into(), binding_uid: proxier.uid.clone() },
        virtual_cluster_uid: virtual_cluster_uid(&place.virt).await.unwrap(),
        address,
        source: Source::Signed,
        life: Duration::from_secs(600),
    });
    assert!(serving.is_ready().is_err());
    let keeper = tokio::spawn(keeper.run());
    until("there is a certificate", async || serving.is_ready().is_ok()).await;
    let authority = std::fs::read(place.sandbox.directory().join("computing/pki/ca.crt")).unwrap();
    is_believed(&authority, &serving, proxier.address).unwrap();
    is_believed(&authority, &serving, "10.255.0.1".parse().unwrap()).unwrap_err();

    for name in &denied {
        until("it is denied", async || conditions(&place, name).await.starts_with("Denied")).await;
    }
    until("it is told why one waits", async || {
        let fields = format!("involvedObject.name={waits}");
        let events =
            place.kubectl(COMPUTING, &["-n", "default", "get", "events", "--field-selector", &fields]).await;
        events.contains("CertificatePending")
            && events.contains("10.255.0.1 is not an address of the pod that asked")
    })
    .await;

    // Nine tenths of its life later there is another one, and what is served changes without a restart.
    let first = serving.current().unwrap();
    clock.jump(SignedDuration::from_secs(550));
    until("it is renewed", async || serving.current().is_some_and(|now| now.cert != first.cert)).await;
    is_believed(&authority, &serving, proxier.address).unwrap();
    assert!(serving.is_ready().is_ok());

    assert_eq!(conditions(&place, &waits).await, "");
    assert_eq!(conditions(&place, &foreign).await, "", "who asks is not a proxier");
    keeper.abort();
    manager.abort();
    place.sandbox.stop().await.unwrap();
}

//! The manager in front of real API servers. Deployments run on simulated nodes.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use futures::future::BoxFuture;
use kubeocean_api::keys::names::INSTALL_NAMESPACE;
use kubeocean_api::keys::{annotations, finalizers, labels};
use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::credentials::Credentials;
use kubeocean_cluster::introduction::virtual_cluster_uid;
use kubeocean_cluster::leader::Leadership;
use kubeocean_cluster::metrics::Metrics;
use kubeocean_cluster::shutdown::BoxError;
use kubeocean_manager::inline::{Job, Workload};
use kubeocean_manager::manager::{Manager, Parts, Workers};
use kubeocean_manager::probe::connect;
use kubeocean_manager::template::{Installation, Templates};
use kubeocean_model::action::kinds;
use kubeocean_model::bind::Role;
use kubeocean_model::key::{Key, Virtual};
use kubeocean_sandbox::{COMPUTING, NodeSize, Sandbox, Spec};
use parking_lot::RwLock;
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A busy machine may be ten times slower than an idle one; what is right is right long before this.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);
pub(crate) const MOUNT: &str = "kubeocean-worker";

/// Whose tokens the API servers of a sandbox take.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

pub(crate) struct Place {
    pub(crate) sandbox: Sandbox,
    pub(crate) virt: Cluster<Virtual>,
}

impl Place {
    /// A computing cluster with our definitions, and worker clusters with a mount namespace.
    pub(crate) async fn new(workers: usize) -> Self {
        let size = NodeSize { pods: "2000".into(), cpu: "1000".into(), memory: "4000Gi".into() };
        let spec = Spec::new().workers(workers, 1, 0).computing_nodes(1, 0).sim_node_size(size);
        let sandbox = Sandbox::start(spec).await.unwrap();
        let virt = cluster_of(&sandbox.cluster(COMPUTING).unwrap().kubeconfig()).await;
        let place = Self { sandbox, virt };
        let crds = kubeocean_api::crd::crds();
        let crds = json!({"apiVersion": "v1", "kind": "List", "items": crds});
        place.apply(COMPUTING, &crds).await;
        place.kubectl(COMPUTING, &["wait", "--for=condition=Established", "crd", "--all"]).await;
        place.kubectl(COMPUTING, &["create", "namespace", INSTALL_NAMESPACE]).await;
        for worker in 1..=workers {
            place.kubectl(&format!("worker-{worker}"), &["create", "namespace", MOUNT]).await;
        }
        place
    }

    pub(crate) async fn kubectl(&self, cluster: &str, args: &[&str]) -> String {
        let output = self.sandbox.cluster(cluster).unwrap().kubectl().args(args).output().await.unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) async fn apply(&self, cluster: &str, object: &Value) {
        let mut kubectl = self.sandbox.cluster(cluster).unwrap().kubectl();
        kubectl
            .args(["apply", "--server-side", "--force-conflicts", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let mut child = kubectl.spawn().unwrap();
        child.stdin.take().unwrap().write_all(object.to_string().as_bytes()).await.unwrap();
        assert!(child.wait().await.unwrap().success(), "{object}");
    }

    pub(crate) fn kubeconfig(&self, cluster: &str) -> String {
        self.sandbox.cluster(cluster).unwrap().kubeconfig()
    }

    pub(crate) async fn secret(&self, name: &str, key: &str, content: &str) {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": INSTALL_NAMESPACE},
            "stringData": {key: content},
        });
        self.apply(COMPUTING, &object).await;
    }

    pub(crate) async fn bind(&self, name: &str, secret: &str, mount: &str) {
        let object = json!({
            "apiVersion": kinds::BINDING.api_version(), "kind": "ClusterBinding", "metadata": {"name": name},
            "spec": {
                "clusterID": name, "mountNamespace": mount,
                "secretRef": {"name": secret, "namespace": INSTALL_NAMESPACE},
            },
        });
        self.apply(COMPUTING, &object).await;
    }

    pub(crate) async fn binding(&self, name: &str) -> Option<Value> {
        let object = self.virt.get(&kinds::BINDING, &Key::cluster_scoped(name)).await.unwrap()?;
        let mut value = Value::Object(object.content().unwrap());
        value["uid"] = (&*object.meta.uid).into();
        Some(value)
    }

    /// Waits until a binding is so.
    async fn until(&self, name: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + LIMIT;
        loop {
            let binding = self.binding(name).await.unwrap_or_default();
            if is_so(&binding) {
                return binding;
            }
            assert!(Instant::now() < deadline, "{name} is not {what}: {:#}", binding["status"]);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn ready(&self, name: &str) -> Value {
        self.until(name, "Ready", |binding| binding["status"]["phase"] == "Ready").await
    }

    /// Waits for a Warning about a binding, of this reason, that says this.
    async fn is_warned(&self, name: &str, reason: &str, words: &str) {
        let fields = format!(
            "involvedObject.kind=ClusterBinding,involvedObject.name={name},reason={reason},type=Warning"
        );
        let get = [
            "-n",
            "default",
            "get",
            "events",
            "--field-selector",
            &fields,
            "-o",
            "jsonpath={.items[*].message}",
        ];
        let deadline = Instant::now() + LIMIT;
        loop {
            let said = self.kubectl(COMPUTING, &get).await;
            if said.contains(words) {
                return;
            }
            assert!(Instant::now() < deadline, "no Warning {reason} of {name} says {words:?}: {said}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until the garbage collector has removed what came to it after everything else: an object whose owner never was.
    async fn garbage_is_collected(&self) {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "00000000-0000-0000-0000-000000000000"});
        let orphan = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "orphan", "namespace": "default", "ownerReferences": [owner]},
        });
        self.apply(COMPUTING, &orphan).await;
        self.kubectl(
            COMPUTING,
            &["wait", "--for=delete", "configmap/orphan", "-n", "default", "--timeout=120s"],
        )
        .await;
    }

    /// Objects of the manager's that a binding left.
    async fn left_of(&self, uid: &str) -> String {
        let selector = format!("{}={uid}", labels::BINDING_UID);
        let all = "deploy,svc,sa,role,rolebinding,clusterrolebinding,pdb,hpa,nodes,leases";
        self.kubectl(COMPUTING, &["get", all, "-A", "-o", "name", "-l", &selector]).await
    }

    /// A token of a service account of `worker-1`, as its API server signs them, that ends so many seconds from now.
    async fn token(&self, account: &str, ends_in: i64) -> String {
        let uid = ["-n", MOUNT, "get", "serviceaccount", account, "-o", "jsonpath={.metadata.uid}"];
        let uid = self.kubectl("worker-1", &uid).await;
        let ends = Clock::system().now().as_second() + ends_in;
        let claims = json!({
            "iss": ISSUER, "aud": [ISSUER], "iat": ends - 3600, "nbf": ends - 3600, "exp": ends,
            "sub": format!("system:serviceaccount:{MOUNT}:{account}"),
            "kubernetes.io": {"namespace": MOUNT, "serviceaccount": {"name": account, "uid": uid}},
        });
        let key = self.sandbox.directory().join("worker-1/pki/sa.key");
        let key = KeyPair::from_pem(&std::fs::read_to_string(key).unwrap()).unwrap();
        let parts = [json!({"alg": "ES256", "typ": "JWT"}), claims].map(|part| encoded(part.to_string()));
        let signed = parts.join(".");
        let signature = encoded(bare(&key.sign(signed.as_bytes()).unwrap()));
        format!("{signed}.{signature}")
    }

    /// Runs a manager in this process.
    pub(crate) async fn manage(&self, workers: Workers) -> JoinHandle<()> {
        let parts = Parts {
            virt: self.virt.clone(),
            connect: connect(matches!(workers, Workers::Deployed(_))),
            installation: Installation {
                namespace: INSTALL_NAMESPACE.to_owned(),
                virtual_cluster_uid: virtual_cluster_uid(&self.virt).await.unwrap(),
                image: "kubeocean:test".to_owned(),
                cluster_domain: "cluster.local".to_owned(),
            },
            workers,
            leadership: Leadership::always(),
            clock: Clock::system(),
            metrics: Metrics::new("manager"),
            seed: None,
        };
        let (manager, background) = Manager::new(parts).unwrap();
        tokio::spawn(manager.run(background))
    }
}

pub(crate) fn built_in() -> Workers {
    Workers::Deployed(Arc::new(RwLock::new(Arc::new(Ok(Templates::built_in())))))
}

pub(crate) async fn cluster_of<S: kubeocean_model::key::OnSide>(kubeconfig: &str) -> Cluster<S> {
    let credentials = Credentials::from_kubeconfig(kubeconfig.as_bytes()).await.unwrap();
    Cluster::connect(credentials, Settings::new("test", "kubeocean-test", &Metrics::new("test"))).unwrap()
}

fn condition<'a>(binding: &'a Value, about: &str) -> &'a Value {
    let all = binding["status"]["conditions"].as_array();
    all.and_then(|all| all.iter().find(|one| one["type"] == about)).unwrap_or(&Value::Null)
}

fn connected_for(binding: &Value, reason: &str) -> bool {
    condition(binding, "Connected")["reason"] == reason
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    BASE64.encode(bytes)
}

/// A signature as tokens have it: its two numbers of 32 bytes, without the DER around them.
fn bare(der: &[u8]) -> Vec<u8> {
    // A sequence and its length; then twice: an integer, its length, and perhaps a zero in front.
    let (mut rest, mut all) = (&der[2..], Vec::new());
    for _ in 0..2 {
        let (number, after) = rest[2..].split_at(usize::from(rest[1]));
        let digits = &number[number.len().saturating_sub(32)..];
        all.extend(std::iter::repeat_n(0, 32 - digits.len()).chain(digits.iter().copied()));
        rest = after;
    }
    all
}

/// A kubeconfig with a token instead of a certificate.
pub(crate) fn with_token(kubeconfig: &str, token: &str) -> String {
    let told = with_line(kubeconfig, "client-certificate-data:", &format!("token: {token}"));
    with_line(&told, "client-key-data:", "username: ''").replace("username: ''\n", "")
}

/// A kubeconfig with another line in place of the one that begins so.
fn with_line(kubeconfig: &str, begins: &str, line: &str) -> String {
    let replaced: Vec<String> = kubeconfig
        .lines()
        .map(|known| {
            let indent = known.len() - known.trim_start().len();
            let dash = if known.trim_start().starts_with("- ") { "- " } else { "" };
            if known.trim_start().trim_start_matches("- ").starts_with(begins) {
                format!("{}{dash}{line}", &known[..indent])
            } else {
                known.to_owned()
            }
        })
        .collect();
    replaced.join("\n") + "\n"
}

#[tokio::test(flavor = "multi_thread")]
async fn bindings_come_up_are_kept_right_and_go_without_a_trace() {
    let place = Place::new(2).await;
    let manager = place.manage(built_in()).await;
    place.secret("w1", "kubeconfig", &place.kubeconfig("worker-1")).await;
    place.secret("w2", "kubeconfig", &place.kubeconfig("worker-2")).await;
    for (name, secret) in [("one", "w1"), ("two", "w2"), ("three", "w1")] {
        place.bind(name, secret, MOUNT).await;
    }
    let bound = place.ready("one").await;
    place.ready("two").await;
    place.ready("three").await;

    // Whoever meddles is put right.
    let deployment = "deployment/kubeocean-syncer-one";
    let of = |args: &[&'static str]| [&["-n", INSTALL_NAMESPACE], args].concat();
    place.kubectl(COMPUTING, &of(&["delete", deployment])).await;
    place.kubectl(COMPUTING, &of(&["scale", "deployment/kubeocean-proxier-one", "--replicas=5"])).await;
    let healed = "jsonpath={.spec.replicas}";
    let deadline = Instant::now() + LIMIT;
    loop {
        let get = ["-n", INSTALL_NAMESPACE, "get", "deployment", "-o"];
        let replicas =
            place.kubectl(COMPUTING, &[&get[..], &[healed, "kubeocean-proxier-one"]].concat()).await;
        let names = place.kubectl(COMPUTING, &[&get[..], &["name"]].concat()).await;
        if replicas == "2" && names.contains("kubeocean-syncer-one") {
            break;
        }
        assert!(Instant::now() < deadline, "{replicas} {names}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    // A kubeconfig that leads elsewhere is refused, until someone says that it is meant.
    place.secret("w1", "kubeconfig", &place.kubeconfig("worker-2")).await;
    let swapped = place.until("one", "refusing", |binding| connected_for(binding, "WorkerChanged")).await;
    assert_eq!(swapped["status"]["workerUID"], bound["status"]["workerUID"]);
    assert_eq!(condition(&swapped, "SyncerReady")["status"], "True", "nothing is taken down: {swapped:#}");
    place.secret("w1", "kubeconfig", "nonsense").await;
    place.until("one", "refusing", |binding| connected_for(binding, "ValidationFailed")).await;
    place.secret("w1", "kubeconfig", &place.kubeconfig("worker-1")).await;
    place.ready("one").await;
    place.secret("w1", "kubeconfig", &place.kubeconfig("worker-2")).await;
    place.until("one", "refusing", |binding| connected_for(binding, "WorkerChanged")).await;
    let uid = place.binding("two").await.unwrap()["status"]["workerUID"].as_str().unwrap().to_owned();
    let accept = format!("{}={uid}", annotations::ACCEPT_WORKER);
    place.kubectl(COMPUTING, &["annotate", "clusterbinding", "one", &accept]).await;
    place.until("one", "accepted", |binding| binding["status"]["workerUID"] == uid.as_str()).await;

    // A lost worker cluster costs its own condition, and nobody else's.
    place.sandbox.cluster("worker-2").unwrap().program("kube-apiserver").stop().await.unwrap();
    place.until("two", "unconnected", |binding| connected_for(binding, "ConnectivityFailed")).await;
    let two = place.binding("two").await.unwrap();
    assert_eq!(two["status"]["phase"], "Ready", "it may come back: {two:#}");
    place.sandbox.cluster("worker-2").unwrap().program("kube-apiserver").start().await.unwrap();
    place.until("two", "connected", |binding| connected_for(binding, "ConnectivityPassed")).await;

    // The way out: in the foreground, as usual, and by force with a syncer that never answers.
    let finalizer =
        json!([{"op": "add", "path": "/metadata/finalizers/-", "value": finalizers::CLUSTER_BINDING_SYNCER}]);
    let patch = ["patch", "clusterbinding", "three", "--type=json", "-p"];
    place.kubectl(COMPUTING, &[&patch[..], &[&finalizer.to_string()]].concat()).await;
    let uids = ["one", "two", "three"].map(str::to_owned);
    let mut gone = Vec::new();
    for name in &uids {
        gone.push(place.binding(name).await.unwrap()["uid"].as_str().unwrap().to_owned());
    }
    place.kubectl(COMPUTING, &["delete", "clusterbinding", "one", "--cascade=foreground"]).await;
    place.kubectl(COMPUTING, &["delete", "clusterbinding", "two"]).await;
    place.kubectl(COMPUTING, &["delete", "clusterbinding", "three", "--wait=false"]).await;
    let waiting =
        place.until("three", "waiting", |binding| condition(binding, "Ready")["reason"] == "Deleting").await;
    assert!(
        condition(&waiting, "Ready")["message"].as_str().unwrap().contains(annotations::FORCE_UNBIND),
        "{waiting:#}"
    );
    assert!(place.left_of(&gone[2]).await.contains("kubeocean-syncer-three"), "the syncer is needed");
    let force = format!("{}=the test", annotations::FORCE_UNBIND);
    place.kubectl(COMPUTING, &["annotate", "clusterbinding", "three", &force]).await;
    place.until("three", "gone", Value::is_null).await;
    for uid in &gone {
        assert_eq!(place.left_of(uid).await, "");
    }
    let events = place
        .kubectl(COMPUTING, &["get", "events", "-n", "default", "-o", "custom-columns=R:.reason,M:.message"])
        .await;
    for told in [
        "WorkerChanged",
        "ConnectivityFailed",
        "Unbound",
        "ForceUnbound",
        "Left in the worker cluster: nothing",
    ] {
        assert!(events.contains(told), "{told} in {events}");
    }
    manager.abort();
    place.sandbox.stop().await.unwrap();
}

/// What runs the workers of a binding.
const CHILDREN: &str = "deploy,svc,sa,role,rolebinding,clusterrolebinding,pdb";

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_that_is_deleted_in_the_foreground_keeps_its_syncer_until_that_has_done_its_work() {
    let place = Place::new(1).await;
    let manager = place.manage(built_in()).await;
    place.secret("w1", "kubeconfig", &place.kubeconfig("worker-1")).await;
    // The garbage collector hears of new kinds every half a minute. One that is deleted so goes when it knows of bindings.
    place.bind("known", "nothing", MOUNT).await;
    place.until("known", "seen", |binding| binding["status"]["phase"] == "Failed").await;
    let known = ["delete", "clusterbinding", "known", "--cascade=foreground", "--timeout=180s"];
    place.kubectl(COMPUTING, &known).await;
    place.bind("one", "w1", MOUNT).await;
    let uid = place.ready("one").await["uid"].as_str().unwrap().to_owned();
    let selector = format!("{}={uid}", labels::BINDING_UID);
    let columns = "jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.uid} {.metadata.deletionTimestamp}{'\\n'}{end}";
    let runs =
        async || place.kubectl(COMPUTING, &["get", CHILDREN, "-A", "-l", &selector, "-o", columns]).await;
    let finalizers = async |all: Value| {
        let patch = json!({"metadata": {"finalizers": all}}).to_string();
        place.kubectl(COMPUTING, &["patch", "clusterbinding", "one", "--type=merge", "-p", &patch]).await;
    };
    finalizers(json!([finalizers::CLUSTER_BINDING_MANAGER, finalizers::CLUSTER_BINDING_SYNCER])).await;
    // As soon as there is a syncer at work.
    let owners =
        ["get", CHILDREN, "-A", "-l", &selector, "-o", "jsonpath={.items[*].metadata.ownerReferences}"];
    let deadline = Instant::now() + LIMIT;
    while !place.kubectl(COMPUTING, &owners).await.is_empty() {
        assert!(Instant::now() < deadline, "what the syncer runs by is owned");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let before = runs().await;
    assert!(before.contains("Deployment kubeocean-syncer-one"), "{before}");

    place
        .kubectl(COMPUTING, &["delete", "clusterbinding", "one", "--cascade=foreground", "--wait=false"])
        .await;
    place.until("one", "leaving", |binding| condition(binding, "Ready")["reason"] == "Deleting").await;
    place.garbage_is_collected().await;
    assert_eq!(runs().await, before, "what the syncer needs stays as it is");

    // The syncer is done.
    let known = place
        .kubectl(COMPUTING, &["get", "clusterbinding", "one", "-o", "jsonpath={.metadata.finalizers}"])
        .await;
    let mut rest: Vec<String> = serde_json::from_str(&known).unwrap();
    rest.retain(|one| one != finalizers::CLUSTER_BINDING_SYNCER);
    finalizers(json!(rest)).await;
    place.until("one", "gone", Value::is_null).await;
    assert_eq!(place.left_of(&uid).await, "");
    manager.abort();
    place.sandbox.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_said_with_its_fix_and_mended_without_a_restart() {
    let place = Place::new(1).await;
    let manager = place.manage(built_in()).await;
    let good = place.kubeconfig("worker-1");
    place.kubectl("worker-1", &["-n", MOUNT, "create", "serviceaccount", "borrower"]).await;
    let expired = with_token(&good, &place.token("borrower", -60).await);
    let in_time = with_token(&good, &place.token("borrower", 3000).await);
    let other_authority = {
        let ours = place.kubeconfig(COMPUTING);
        let line =
            ours.lines().find(|line| line.contains("certificate-authority-data:")).unwrap().trim().to_owned();
        with_line(&good, "certificate-authority-data:", line.trim_start_matches("- "))
    };
    // Takes calls, and says nothing.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("server: https://{}", listener.local_addr().unwrap());
    let cases = [
        ("no-secret", None, MOUNT, "ValidationFailed", "does not exist: create it"),
        ("other-key", Some(("config", good.clone())), MOUNT, "ValidationFailed", "has no key `kubeconfig`"),
        ("not-yaml", Some(("kubeconfig", "]".into())), MOUNT, "ValidationFailed", "kubectl config view"),
        (
            "runs-a-command",
            Some(("kubeconfig", with_line(&good, "client-key-data:", "exec: {command: sh, apiVersion: v1}"))),
            MOUNT,
            "ValidationFailed",
            "use a token or a client certificate",
        ),
        (
            "elsewhere",
            Some(("kubeconfig", with_line(&good, "server:", "server: https://127.0.0.1:1"))),
            MOUNT,
            "ConnectivityFailed",
            "check the address",
        ),
        (
            "other-authority",
            Some(("kubeconfig", other_authority)),
            MOUNT,
            "ConnectivityFailed",
            "is not whom the kubeconfig trusts",
        ),
        (
            "nobodys-token",
            Some(("kubeconfig", with_token(&good, "of-yesterday"))),
            MOUNT,
            "ConnectivityFailed",
            "does not know who is asking",
        ),
        (
            "expired-token",
            Some(("kubeconfig", expired)),
            MOUNT,
            "ConnectivityFailed",
            "has expired or is of another cluster; make a new one with `kubeocean worker-kubeconfig`",
        ),
        (
            "never-answers",
            Some(("kubeconfig", with_line(&good, "server:", &silent))),
            MOUNT,
            "ConnectivityFailed",
            "within 30 s; check the address",
        ),
        // The same token while it lasts: it was the time that was wrong with the other one.
        (
            "token-in-time",
            Some(("kubeconfig", in_time)),
            MOUNT,
            "PermissionDenied",
            "the lender has to grant rights",
        ),
        (
            "no-namespace",
            Some(("kubeconfig", good.clone())),
            "nowhere",
            "MountNamespaceMissing",
            "the lender makes it",
        ),
    ];
    for (name, secret, mount, ..) in &cases {
        if let Some((key, content)) = secret {
            place.secret(name, key, content).await;
        }
        place.bind(name, name, mount).await;
    }
    for (name, _, _, reason, fix) in &cases {
        let binding = place.until(name, "Failed", |binding| connected_for(binding, reason)).await;
        let message = condition(&binding, "Connected")["message"].as_str().unwrap();
        assert!(message.contains(fix), "{name}: {message}");
        assert_eq!(binding["status"]["phase"], "Failed", "{name}");
        place.is_warned(name, reason, fix).await;
    }
    for (name, _, mount, ..) in &cases {
        place.secret(name, "kubeconfig", &good).await;
        if *mount != MOUNT {
            place.kubectl("worker-1", &["create", "namespace", mount]).await;
        }
    }
    for (name, ..) in &cases {
        place.ready(name).await;
    }
    manager.abort();
    place.sandbox.stop().await.unwrap();
}

/// How long a slow one keeps its thread busy at a time.
const BUSY: Duration = Duration::from_millis(200);

/// Asks both sides a question; or is bad in the way that its binding's name says.
struct Counting;

impl Workload for Counting {
    fn run(&self, job: Job, stop: CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> {
        Box::pin(async move {
            assert!(*job.binding.name != *"bad", "this one is broken");
            // A real question to each side: it is ready when both have answered.
            job.virt.version().await?;
            job.phys.version().await?;
            match &*job.binding.name {
                "never-ready" => job.readiness.not_ready("it is still at it"),
                "slow" => {
                    // A thread that is held is missed by whoever shares it.
                    for _ in 0..10 {
                        let began = Instant::now();
                        while began.elapsed() < BUSY {
                            std::hint::spin_loop();
                        }
                        tokio::task::yield_now().await;
                    }
                    job.readiness.ready();
                }
                _ => job.readiness.ready(),
            }
            if *job.binding.name == *"deaf" {
                std::future::pending::<()>().await;
            }
            stop.cancelled().await;
            Ok(())
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inline_worker_that_panics_or_dawdles_or_does_not_listen_moves_nobody_elses_conditions() {
    let place = Place::new(1).await;
    let workload: Arc<dyn Workload> = Arc::new(Counting);
    let workloads: BTreeMap<Role, Arc<dyn Workload>> =
        Role::ALL.map(|role| (role, Arc::clone(&workload))).into();
    let manager = place.manage(Workers::Inline(workloads)).await;
    place.secret("w1", "kubeconfig", &place.kubeconfig("worker-1")).await;
    for name in ["good", "better"] {
        place.bind(name, "w1", MOUNT).await;
    }
    let before = [place.ready("good").await, place.ready("better").await];
    place.bind("bad", "w1", MOUNT).await;
    let bad = place
        .until("bad", "seen to fail again", |binding| {
            let message = condition(binding, "SyncerReady")["message"].as_str().unwrap_or_default();
            message.contains("this one is broken") && message.contains("started again 2 times")
        })
        .await;
    assert_eq!(condition(&bad, "SyncerReady")["reason"], "SyncerFailed");
    let message = condition(&bad, "SyncerReady")["message"].as_str().unwrap();
    let (_, next) = message.split_once("and will be at ").unwrap();
    let next: jiff::Timestamp = next.parse().unwrap();
    let wait = next.as_second() - Clock::system().now().as_second();
    assert!((-1..=300).contains(&wait), "it is started again in {wait} s: {message}");

    for name in ["slow", "never-ready", "deaf"] {
        place.bind(name, "w1", MOUNT).await;
    }
    place.ready("deaf").await;
    place.ready("slow").await;
    let still = "it is still at it";
    let starting = place
        .until("never-ready", "starting", |one| condition(one, "ProxierReady")["message"] == still)
        .await;
    assert_eq!(condition(&starting, "SyncerReady")["message"], still);
    assert_eq!(condition(&starting, "SyncerReady")["reason"], "SyncerCreated");
    assert_eq!(starting["status"]["phase"], "Pending");
    // Also one that does not end when it is told to goes.
    for name in ["deaf", "bad", "never-ready", "slow"] {
        place.kubectl(COMPUTING, &["delete", "clusterbinding", name, "--timeout=60s"]).await;
    }
    for (name, before) in ["good", "better"].iter().zip(before) {
        assert_eq!(place.binding(name).await.unwrap()["status"], before["status"], "{name}");
    }
    for name in ["good", "better"] {
        place.kubectl(COMPUTING, &["delete", "clusterbinding", name]).await;
    }
    manager.abort();
    place.sandbox.stop().await.unwrap();
}

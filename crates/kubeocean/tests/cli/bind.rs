//! Binding a worker cluster and letting it go, with a manager and real control planes.
//!
//! All tests share one sandbox: a computing cluster with a manager and simulated nodes that run syncers and proxiers, and
//! three worker clusters. The second one also stands for a computing cluster that nothing was installed in, the third one burns down.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, mpsc};

use kubeocean_api::keys::finalizers::CLUSTER_BINDING_SYNCER;
use kubeocean_api::keys::labels::{MANAGED_BY, MANAGED_BY_VALUE};
use kubeocean_sandbox::{ProgramHandle, Sandbox, Spec};

use crate::manager::Manager;
use crate::support::{Answer, answer, kubeocean, succeed};

/// What all tests use. It ends with the process.
pub(crate) struct Place {
    pub(crate) directory: PathBuf,
    kubectl: PathBuf,
    /// The API server of the worker cluster that burns down.
    burns: ProgramHandle,
}

pub(crate) static PLACE: LazyLock<Place> = LazyLock::new(Place::make);

impl Place {
    fn make() -> Self {
        let (tell, made) = mpsc::channel();
        // The kernel ends the manager with the thread that started it: this one never ends before the process.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let spec = Spec::new().workers(3, 1, 0).computing_nodes(2, 0);
            let sandbox = runtime.block_on(Sandbox::start(spec)).unwrap();
            let kubectl = sandbox.cluster("computing").unwrap().kubectl();
            let place = Self {
                directory: sandbox.directory().to_owned(),
                kubectl: PathBuf::from(kubectl.as_std().get_program()),
                burns: sandbox.cluster("worker-3").unwrap().program("kube-apiserver"),
            };
            place.install();
            let _manager = place.start_manager();
            tell.send(place).unwrap();
            loop {
                std::thread::park();
            }
        });
        made.recv().expect("the sandbox and its manager")
    }

    /// The definitions and the namespace here, and what the lender applies there.
    fn install(&self) {
        let crds = succeed(["crds"]);
        self.apply("computing", &crds);
        self.kubectl("computing", &["wait", "--for=condition=Established", "crd", "--all"]);
        self.kubectl("computing", &["create", "namespace", "kubeocean-system"]);
        // As a manager leaves it that ended well: the first one need not wait for one that never was.
        self.apply(
            "computing",
            "{apiVersion: coordination.k8s.io/v1, kind: Lease, \
             metadata: {name: kubeocean-manager-leader, namespace: kubeocean-system}}",
        );
        for worker in ["worker-1", "worker-2", "worker-3"] {
            self.apply(worker, &succeed(["worker-manifest"]));
            let kubeconfig = self.run(&["worker-kubeconfig", "--context", worker]);
            assert_eq!(kubeconfig.code, Some(0), "{}", kubeconfig.err);
            self.file(&format!("{worker}.kubeconfig"), &kubeconfig.out);
        }
    }

    fn start_manager(&self) -> Manager {
        let kubeconfig = self.directory.join("kubeconfig/computing.yaml");
        let manager = Manager::start(&self.directory, &kubeconfig, "kubeocean-manager", &["--leader-elect"]);
        let lease = "lease/kubeocean-manager-leader";
        self.kubectl(
            "computing",
            &[
                "-n",
                "kubeocean-system",
                "wait",
                "--for=jsonpath={.spec.holderIdentity}",
                "--timeout=60s",
                lease,
            ],
        );
        manager
    }

    /// `kubeocean`, with the contexts of all clusters.
    pub(crate) fn run(&self, args: &[&str]) -> Answer {
        let mut command = kubeocean(args);
        command.current_dir(&self.directory).env("KUBECONFIG", self.directory.join("kubeconfig/all.yaml"));
        answer(command)
    }

    /// `kubeocean bind`, into the computing cluster: a worker cluster by its name, or by a file.
    pub(crate) fn bind(&self, name: &str, worker: &str, flags: &[&str]) -> Answer {
        let borrowed = format!("{worker}.kubeconfig");
        let file = if worker.starts_with("worker-") { &borrowed } else { worker };
        let line = ["bind", name, "--worker-kubeconfig", file, "--context", "computing"];
        self.run(&[&line, flags].concat())
    }

    pub(crate) fn unbind(&self, name: &str, flags: &[&str]) -> Answer {
        self.run(&[&["unbind", name, "--context", "computing", "--yes"], flags].concat())
    }

    fn try_kubectl(&self, context: &str, args: &[&str]) -> Answer {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(self.directory.join("kubeconfig/all.yaml"));
        command.args(["--context", context]).args(args).stdin(Stdio::null());
        answer(command)
    }

    pub(crate) fn kubectl(&self, context: &str, args: &[&str]) -> String {
        let answer = self.try_kubectl(context, args);
        assert_eq!(answer.code, Some(0), "kubectl {args:?}: {}", answer.err);
        answer.out
    }

    pub(crate) fn apply(&self, context: &str, manifest: &str) {
        let file = self.file("applied.yaml", manifest);
        self.kubectl(context, &["apply", "--server-side", "-f", file.to_str().unwrap()]);
    }

    /// A file that goes with the sandbox.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A mount namespace of a test's own in `worker-1`, and the borrower's kubeconfig for it.
    fn borrow_in(&self, namespace: &str) {
        let manifest = ["worker-manifest", "--namespace", namespace];
        let manifest = self.run(&manifest).out;
        let file = self.file(&format!("{namespace}.yaml"), &manifest);
        self.kubectl("worker-1", &["apply", "--server-side", "-f", file.to_str().unwrap()]);
    }

    /// Names of what carries our mark and the name of a binding.
    fn left_of(&self, cluster_id: &str) -> Vec<String> {
        let labels = format!("{MANAGED_BY}={MANAGED_BY_VALUE}");
        let kinds = "deployments,services,serviceaccounts,roles,rolebindings,clusterrolebindings,poddisruptionbudgets,secrets";
        let all = self.kubectl("computing", &["get", kinds, "-A", "-l", &labels, "-o", "name"]);
        all.lines().filter(|name| name.contains(cluster_id)).map(str::to_owned).collect()
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.try_kubectl("computing", &["get", "clusterbinding", name]).code == Some(0)
    }
}

/// What a user sees of something wrong: the line, the code, and that nothing was written.
pub(crate) fn refused(place: &Place, name: &str, answer: &Answer, words: &[&str]) {
    assert_eq!(answer.code, Some(1), "{}{}", answer.err, answer.out);
    for words in words {
        let found = answer.err.lines().any(|line| line.starts_with('✗') && line.contains(words));
        assert!(found, "no ✗ says {words:?}:\n{}", answer.err);
    }
    assert!(answer.err.contains("nothing was written"), "{}", answer.err);
    assert!(!place.exists(name) && place.left_of(name).is_empty(), "{:?}", place.left_of(name));
}

#[test]
fn a_worker_is_bound_bound_again_and_let_go_without_a_trace() {
    let place = &*PLACE;
    let bound = place.bind("berlin", "worker-1", &["--service-namespaces", "web"]);
    assert_eq!(bound.code, Some(0), "{}", bound.err);
    assert_eq!(bound.err.lines().filter(|line| line.starts_with('✗')).count(), 0, "{}", bound.err);
    for words in [
        "✓ manager            kubeocean-manager",
        "✓ identity           system:serviceaccount:kubeocean-identity:kubeocean-borrower",
        "✓ rights             all that are needed",
        "✓ pod security       kubeocean-worker enforces baseline",
        "none names berlin: nothing is leased until",
        " pod network        ",
        "! intranet services  default/kubernetes-intranet is not there, kube-system/kube-dns-intranet is not there: pods of the worker",
        "? proxier network    not seen from here: the computing cluster's API server has to reach the pods of the proxier",
        "? manager network    not seen from here: https://127.0.0.1:",
        "✓ ClusterBinding berlin created",
        "Connected=True     the worker cluster answers",
        "SyncerReady=True",
    ] {
        assert!(bound.err.contains(words), "{words:?} is not in:\n{}", bound.err);
    }
    assert!(bound.out.starts_with("ClusterBinding berlin is Ready after"), "{}", bound.out);
    assert!(place.left_of("berlin").len() > 8, "{:?}", place.left_of("berlin"));

    // What is not named stays: the Services of `web` are still mirrored.
    let again = place.bind("berlin", "worker-1", &[]);
    assert_eq!(again.code, Some(0), "{}", again.err);
    assert!(again.err.contains("ClusterBinding berlin exists, and says the same"), "{}", again.err);
    assert!(again.err.contains("✓ ClusterBinding berlin is as it should be"), "{}", again.err);

    let other = place.bind("berlin", "worker-1", &["--cluster-id", "paris"]);
    assert_eq!(other.code, Some(1));
    let words = "ClusterBinding berlin exists with clusterID berlin, which cannot be changed: use --cluster-id berlin";
    assert!(other.err.contains(words), "{}", other.err);

    let swapped = place.bind("berlin", "worker-2", &[]);
    assert_eq!(swapped.code, Some(1));
    assert!(
        swapped.err.contains("✗ worker cluster     the kubeconfig leads to another cluster"),
        "{}",
        swapped.err
    );

    let foretold = place.unbind("berlin", &["--dry-run"]);
    assert_eq!((foretold.code, foretold.out.trim()), (Some(0), "Nothing was changed (--dry-run)."));
    let secret = "- Secret kubeocean-system/berlin-kubeconfig, which `kubeocean bind` made";
    for words in ["ClusterBinding berlin (clusterID berlin) goes:", "- its syncer and proxier", secret] {
        assert!(foretold.err.contains(words), "{words:?} is not in:\n{}", foretold.err);
    }
    let still =
        place.kubectl("computing", &["get", "cb", "berlin", "-o", "jsonpath={.metadata.deletionTimestamp}"]);
    assert!(still.is_empty() && place.left_of("berlin").len() > 8, "{still}");

    let gone = place.unbind("berlin", &[]);
    assert_eq!(gone.code, Some(0), "{}", gone.err);
    for words in [
        "ClusterBinding berlin (clusterID berlin) goes:",
        "- Secret kubeocean-system/berlin-kubeconfig, which `kubeocean bind` made",
        "Unbound: berlin is unbound; nothing of it is left in this cluster",
        "Secret kubeocean-system/berlin-kubeconfig is removed.",
    ] {
        assert!(gone.err.contains(words), "{words:?} is not in:\n{}", gone.err);
    }
    assert!(gone.out.starts_with("ClusterBinding berlin is gone after"), "{}", gone.out);
    assert_eq!(place.left_of("berlin"), Vec::<String>::new());
    let unknown = place.unbind("berlin", &[]);
    assert_eq!(unknown.code, Some(3), "{}", unknown.err);
    assert!(unknown.err.contains("there is no ClusterBinding berlin"), "{}", unknown.err);
}

#[test]
fn a_dry_run_shows_the_objects_and_writes_nothing() {
    let place = &*PLACE;
    // Nodes without room for anything, in both clusters, whose pods would have the same addresses.
    for (cluster, range) in [("computing", "10.77.0.0/23"), ("worker-1", "10.77.1.0/24")] {
        let node = format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: of-{cluster}}}, spec: {{podCIDR: {range}, podCIDRs: [{range}]}}}}"
        );
        let file = place.file(&format!("node-of-{cluster}.yaml"), &node);
        place.kubectl(cluster, &["apply", "--server-side", "-f", file.to_str().unwrap()]);
    }
    let dry = place.bind("dry", "worker-1", &["--dry-run", "--node-selector", "lend=yes,zone=a"]);
    assert_eq!(dry.code, Some(0), "{}", dry.err);
    assert!(dry.err.contains("✓ rights"), "the checks are told: {}", dry.err);
    let overlap =
        "10.77.0.0/23 of node of-computing in the computing cluster and 10.77.1.0/24 of node of-worker-1";
    assert!(dry.err.contains(&format!("! pod network        {overlap}")), "{}", dry.err);
    for words in [
        "kind: Secret",
        "kind: ClusterBinding",
        "clusterID: dry",
        "(not shown: --show-secrets shows it)",
        "key: lend",
    ] {
        assert!(dry.out.contains(words), "{words:?} is not in:\n{}", dry.out);
    }
    let shown = place.bind("dry", "worker-1", &["--dry-run", "--show-secrets"]);
    let file = place.file("dry.yaml", &shown.out);
    let taken = place.kubectl("computing", &["apply", "--dry-run=server", "-f", file.to_str().unwrap()]);
    assert!(taken.contains("clusterbinding.cloud.tencent.com/dry created (server dry run)"), "{taken}");
    assert!(!place.exists("dry") && place.left_of("dry").is_empty());
    for cluster in ["computing", "worker-1"] {
        place.kubectl(cluster, &["delete", "node", &format!("of-{cluster}")]);
    }
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_refused_by_name() {
    let place = &*PLACE;
    let good = std::fs::read_to_string(place.directory.join("worker-1.kubeconfig")).unwrap();
    let absent = place.bind("bad", "no-such-file", &[]);
    refused(
        place,
        "bad",
        &absent,
        &["no-such-file cannot be read: No such file", "kubeocean worker-kubeconfig"],
    );

    let token = good.lines().find(|line| line.trim_start().starts_with("token:")).unwrap();
    place.file(
        "exec",
        &good.replace(token, "    exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}"),
    );
    let exec = place.bind("bad", "exec", &[]);
    refused(place, "bad", &exec, &["exec: the kubeconfig runs a command (users[].user.exec): use a token"]);

    place.file("text", "not a kubeconfig at all");
    refused(place, "bad", &place.bind("bad", "text", &[]), &["text: the kubeconfig cannot be read"]);

    let server = good.lines().find(|line| line.trim_start().starts_with("server:")).unwrap();
    place.file("nowhere", &good.replace(server, "    server: https://127.0.0.1:9/"));
    let nowhere = place.bind("bad", "nowhere", &[]);
    refused(
        place,
        "bad",
        &nowhere,
        &["https://127.0.0.1:9/ does not answer", "check the address in nowhere"],
    );

    place.file("stranger", &good.replace(token, "    token: bm9ib2R5"));
    let stranger = place.bind("bad", "stranger", &[]);
    refused(
        place,
        "bad",
        &stranger,
        &["does not know who is asking", "make a new one with `kubeocean worker-kubeconfig`"],
    );
}

#[test]
fn a_worker_that_is_not_prepared_is_told_what_to_apply() {
    let place = &*PLACE;
    let admin = "kubeconfig/worker-1.yaml";
    let missing = place.bind("bare", admin, &["--mount-namespace", "not-there"]);
    let fix = "kubeocean worker-manifest --namespace not-there | kubectl apply --server-side -f -";
    refused(place, "bare", &missing, &["not-there does not exist in the worker cluster", fix]);
    assert!(
        missing.err.contains("! identity           kubeocean-sandbox-admin may do everything"),
        "{}",
        missing.err
    );

    // The borrower of one mount namespace has no rights in another one.
    place.kubectl("worker-1", &["create", "namespace", "bare"]);
    let denied = place.bind("bare", "worker-1", &["--mount-namespace", "bare"]);
    refused(place, "bare", &denied, &["bare may not be read", "create pods in namespace bare"]);
    let open = place.bind("bare", admin, &["--mount-namespace", "bare", "--dry-run"]);
    assert!(open.err.contains("! pod security       bare enforces nothing"), "{}", open.err);
}

#[test]
fn a_computing_cluster_that_is_not_prepared_is_told_what_to_do() {
    let place = &*PLACE;
    let line = ["bind", "early", "--worker-kubeconfig", "worker-1.kubeconfig", "--context", "worker-2"];
    let early = place.run(&line);
    assert_eq!(early.code, Some(1), "{}", early.err);
    for words in [
        "✗ definitions        ClusterBinding and ResourceLeasingPolicy of cloud.tencent.com not served: kubeocean crds | kubectl apply",
        "✗ install namespace  kubeocean-system does not exist: kubectl create namespace kubeocean-system",
        "! manager            none is seen",
        "error: 2 things have to be repaired first",
    ] {
        assert!(early.err.contains(words), "{words:?} is not in:\n{}", early.err);
    }
    let itself = place.bind("itself", "kubeconfig/computing.yaml", &[]);
    refused(place, "itself", &itself, &["it is the computing cluster itself"]);
    let nobody =
        place.run(&["bind", "x", "--worker-kubeconfig", "worker-1.kubeconfig", "--context", "nobody"]);
    assert_eq!(nobody.code, Some(1));
    assert!(nobody.err.contains("✗ computing cluster"), "{}", nobody.err);
    let unbind = place.run(&["unbind", "x", "--context", "worker-2"]);
    assert_eq!(unbind.code, Some(3));
    assert!(unbind.err.contains("knows no ClusterBindings: is it the computing cluster?"), "{}", unbind.err);
}

#[test]
fn what_cannot_be_changed_or_shared_is_refused() {
    let place = &*PLACE;
    place.borrow_in("rome-pods");
    let flags = ["--cluster-id", "eternal", "--mount-namespace", "rome-pods", "--no-wait"];
    let rome = place.bind("rome", "worker-1", &flags);
    assert_eq!(rome.code, Some(0), "{}", rome.err);
    assert!(rome.out.contains("ClusterBinding rome is written."), "{}", rome.out);
    let rival = place.bind("rival", "worker-2", &["--cluster-id", "eternal"]);
    refused(
        place,
        "rival",
        &rival,
        &["eternal is used by ClusterBinding rome: choose another one with --cluster-id"],
    );

    // A Secret of that name that someone else made is not overwritten.
    let secret = [
        "-n",
        "kubeocean-system",
        "create",
        "secret",
        "generic",
        "oslo-kubeconfig",
        "--from-literal=kubeconfig=x",
    ];
    place.kubectl("computing", &secret);
    let foreign = place.bind("oslo", "worker-2", &[]);
    refused(
        place,
        "oslo",
        &foreign,
        &["Secret kubeocean-system/oslo-kubeconfig exists, and `kubeocean bind` did not make it"],
    );
    place.kubectl("computing", &["-n", "kubeocean-system", "delete", "secret", "oslo-kubeconfig"]);

    // Who does not wait leaves the Secret, which the syncer needs until the end; the next time it goes.
    let asked = place.unbind("rome", &["--no-wait"]);
    assert_eq!(asked.code, Some(0), "{}", asked.err);
    let words = "Secret kubeocean-system/rome-kubeconfig stays until you run this again, when it is gone";
    assert!(asked.err.contains(words), "{}", asked.err);
    place.kubectl("computing", &["wait", "--for=delete", "clusterbinding/rome", "--timeout=120s"]);
    let gone = place.unbind("rome", &[]);
    assert_eq!(gone.code, Some(0), "{}", gone.err);
    assert!(gone.err.contains("Secret kubeocean-system/rome-kubeconfig is removed."), "{}", gone.err);
    assert_eq!(place.unbind("rome", &[]).code, Some(3));
    assert_eq!([place.left_of("eternal"), place.left_of("rome")].concat(), Vec::<String>::new());
}

#[test]
fn a_worker_that_burned_down_is_let_go_by_force() {
    let place = &*PLACE;
    let bound = place.bind("pompeii", "worker-3", &[]);
    assert_eq!(bound.code, Some(0), "{}", bound.err);
    // As a syncer does before it writes anything, and takes back when it has cleared everything.
    let finalizer =
        format!(r#"[{{"op":"add","path":"/metadata/finalizers/-","value":"{CLUSTER_BINDING_SYNCER}"}}]"#);
    place.kubectl("computing", &["patch", "cb", "pompeii", "--type=json", "-p", &finalizer]);

    let stuck = place.unbind("pompeii", &["--timeout", "3s"]);
    assert_eq!(stuck.code, Some(1), "{}", stuck.err);
    for words in
        ["is not gone after 3.0 s: the syncer is giving the worker cluster back", "force-unbind=REASON"]
    {
        assert!(stuck.err.contains(words), "{words:?} is not in:\n{}", stuck.err);
    }
    let late = place.bind("pompeii", "worker-3", &[]);
    assert!(
        late.err.contains("✗ binding            ClusterBinding pompeii is being deleted"),
        "{}",
        late.err
    );

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(place.burns.stop()).unwrap();
    let forced = place.unbind("pompeii", &["--force", "a volcano"]);
    assert_eq!(forced.code, Some(0), "{}", forced.err);
    for words in [
        "! What runs in the worker cluster stays there",
        "ForceUnbound: unbound by force. Left in the worker cluster: unknown, since it could not be asked (",
        "whoever has it finds them with kubectl -n kubeocean-worker get pods,",
        "a volcano",
    ] {
        assert!(forced.err.contains(words), "{words:?} is not in:\n{}", forced.err);
    }
    assert!(!place.exists("pompeii"));
    assert_eq!(place.left_of("pompeii"), Vec::<String>::new());
}

#[test]
fn a_binding_that_fails_says_why_and_is_bound_when_that_is_repaired() {
    let place = &*PLACE;
    let here = ["-n", "kubeocean-system"];
    let foreign = ["create", "deployment", "kubeocean-syncer-kyoto", "--image=x", "--replicas=0"];
    place.kubectl("computing", &[&here[..], &foreign].concat());
    place.borrow_in("kyoto-pods");
    let failed = place.bind("kyoto", "worker-1", &["--mount-namespace", "kyoto-pods"]);
    assert_eq!(failed.code, Some(1), "{}", failed.err);
    for words in [
        "Failed",
        "error: ClusterBinding kyoto is Failed, SyncerFailed: Deployment kubeocean-system/kubeocean-syncer-kyoto exists and is not",
        "or give up with `kubeocean unbind kyoto`",
    ] {
        assert!(failed.err.contains(words), "{words:?} is not in:\n{}", failed.err);
    }
    place.kubectl("computing", &[&here[..], &["delete", "deployment", "kubeocean-syncer-kyoto"]].concat());
    let bound = place.bind("kyoto", "worker-1", &["--timeout", "3m"]);
    assert_eq!(bound.code, Some(0), "{}", bound.err);

    // A Secret that someone else took over is not ours to remove.
    let label = format!("{MANAGED_BY}-");
    place.kubectl("computing", &[&here[..], &["label", "secret", "kyoto-kubeconfig", &label]].concat());
    let gone = place.unbind("kyoto", &[]);
    assert_eq!(gone.code, Some(0), "{}", gone.err);
    let words = "Secret kubeocean-system/kyoto-kubeconfig stays, since `kubeocean bind` did not make it";
    assert!(gone.err.contains(words), "{}", gone.err);
    place.kubectl("computing", &[&here[..], &["delete", "secret", "kyoto-kubeconfig"]].concat());
    assert_eq!(place.left_of("kyoto"), Vec::<String>::new());
}

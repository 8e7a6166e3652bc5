//! A computing cluster in which Kubeocean is installed, and a worker cluster that is bound to it.

use std::path::Path;
use std::process::{Command, Stdio};

use kubeocean_api::keys::labels;
use kubeocean_api::keys::names::INSTALL_NAMESPACE;
use kubeocean_sandbox::{COMPUTING, Cluster, Sandbox, Spec, write_program_image};
use serde_json::Value;

use super::kubectl::{Said, run};
use crate::access::{kubectl, until};
use crate::support::{answer, kubeocean};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// As a container runtime knows the image of `config/manager`, which has no registry in its name.
const IMAGE: &str = "docker.io/library/kubeocean:0.1.0";

pub(super) const WORKER: &str = "worker-1";

/// The virtual node of the worker's only node.
pub(super) const VNODE: &str = "vnode-worker-1-real-1";

/// How many streams proxiers carry.
pub(super) const STREAMS: &str = "kubeocean_proxier_streams{";

pub(super) struct Home {
    pub(super) sandbox: Sandbox,
}

impl Home {
    /// Installed by `make deploy`, and running.
    pub(super) async fn new(spec: Spec) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let archive = directory.path().join("kubeocean.tar");
        write_program_image(&archive, IMAGE, Path::new(env!("CARGO_BIN_EXE_kubeocean"))).unwrap();
        let sandbox = Sandbox::start(spec.image(&archive)).await.unwrap();
        let home = Self { sandbox };
        home.make("deploy");
        home.good("-n kubeocean-system rollout status deployment/kubeocean-manager --timeout=120s").await;
        home
    }

    pub(super) fn computing(&self) -> &Cluster {
        self.sandbox.cluster(COMPUTING).unwrap()
    }

    pub(super) fn worker(&self) -> &Cluster {
        self.sandbox.cluster(WORKER).unwrap()
    }

    fn make(&self, target: &str) {
        let kubectl = self.computing().kubectl();
        let programs = Path::new(kubectl.as_std().get_program()).parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let made = Command::new("make")
            .args(["-C", ROOT, "-o", "build", target])
            .env("PATH", path)
            .env("KUBECONFIG", self.computing().kubeconfig_path())
            // Of the make that runs the tests.
            .env_remove("MAKEFLAGS")
            .output()
            .unwrap();
        assert!(made.status.success(), "make {target}: {}", String::from_utf8_lossy(&made.stderr));
    }

    /// What lender and borrower type, until the virtual node can be used.
    pub(super) async fn bind(&self) {
        let manifest = self.kubeocean(&["worker-manifest", "--crd", "--with-policy", WORKER]);
        // The definition comes first; its objects are taken a moment later.
        until("the lender's objects are made", async || {
            let mut apply = self.worker().kubectl();
            apply.args(["apply", "--server-side", "-f", "-"]);
            let said = run(apply, manifest.as_bytes()).await;
            if said.code == Some(0) { Ok(()) } else { Err(said.err) }
        })
        .await;
        let kubeconfig = self.kubeocean(&["worker-kubeconfig", "--context", WORKER]);
        let file = self.sandbox.directory().join("worker-1.kubeconfig");
        std::fs::write(&file, kubeconfig).unwrap();
        let file = file.display().to_string();
        let bound = self.kubeocean(&["bind", WORKER, "--worker-kubeconfig", &file, "--context", COMPUTING]);
        assert!(bound.contains("ClusterBinding worker-1 is Ready"), "{bound}");
        self.good(&format!("wait --for=create --timeout=120s node/{VNODE}")).await;
        self.good(&format!("wait --for=condition=Ready --timeout=120s node/{VNODE}")).await;
    }

    /// Unbound and uninstalled; nothing is left.
    pub(super) async fn leave(self) {
        self.good("delete pods --all --timeout=60s").await;
        self.kubeocean(&["unbind", WORKER, "--context", COMPUTING, "--yes"]);
        let ours = format!("{}={}", labels::MANAGED_BY, labels::MANAGED_BY_VALUE);
        let kinds =
            "nodes,clusterrolebindings,csinodes,leases,deployments,services,certificatesigningrequests";
        let left = self.good(&format!("get {kinds} -A -l {ours} -o name")).await;
        assert_eq!(left.trim(), "", "left behind");
        self.make("undeploy");
        self.sandbox.stop().await.unwrap();
    }

    /// One of our own commands, with contexts of all clusters.
    fn kubeocean(&self, args: &[&str]) -> String {
        let mut command = kubeocean(args);
        command.env("KUBECONFIG", self.sandbox.directory().join("kubeconfig").join("all.yaml"));
        let answer = answer(command);
        assert_eq!(answer.code, Some(0), "kubeocean {args:?}: {}\n{}", answer.err, self.how_it_is());
        format!("{}{}", answer.out, if args[0] == "bind" { answer.err } else { String::new() })
    }

    /// For who reads of a failure.
    pub(super) fn how_it_is(&self) -> String {
        let say = |args: &str| {
            let mut kubectl = self.computing().kubectl();
            let kubectl = kubectl.as_std_mut();
            let said = kubectl.args(args.split_whitespace()).stdin(Stdio::null()).output().unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            format!("$ kubectl {args}\n{}{}", text(&said.stdout), text(&said.stderr))
        };
        [
            "get pods -A -o wide",
            "get cb,csr,nodes -o wide",
            "get events -A",
            "-n kubeocean-system logs -l app.kubernetes.io/component=manager --tail=15",
            "-n kubeocean-system logs -l app.kubernetes.io/component=proxier --tail=15",
            "-n kubeocean-system logs -l app.kubernetes.io/component=syncer --tail=25",
        ]
        .map(say)
        .join("\n")
    }

    /// A command of the computing cluster that must succeed: what it prints.
    pub(super) async fn good(&self, args: &str) -> String {
        let said = self.say(args, b"").await;
        assert_eq!(said.code, Some(0), "kubectl {args}: {}\n{}", said.err, self.how_it_is());
        said.text()
    }

    /// The same, of which a part has spaces in it: `args` and then this.
    pub(super) async fn good_with(&self, args: &str, last: &str) -> String {
        let mut kubectl = self.kubectl(args);
        kubectl.arg(last);
        let said = run(kubectl, b"").await;
        assert_eq!(said.code, Some(0), "kubectl {args} {last:?}: {}\n{}", said.err, self.how_it_is());
        said.text()
    }

    pub(super) async fn say(&self, args: &str, input: &[u8]) -> Said {
        run(self.kubectl(args), input).await
    }

    pub(super) fn kubectl(&self, args: &str) -> tokio::process::Command {
        let mut kubectl = self.computing().kubectl();
        kubectl.args(args.split_whitespace());
        kubectl
    }

    pub(super) fn apply(&self, object: &Value) {
        kubectl(self.computing(), "apply -f -", &object.to_string());
    }

    /// Waits for a pod.
    pub(super) async fn ready(&self, pod: &str) {
        self.good(&format!("wait --for=condition=Ready --timeout=120s pod/{pod}")).await;
    }

    /// The sum of a metric over all proxiers of the binding.
    pub(super) async fn metric(&self, name: &str) -> Result<f64, String> {
        let list = "get pods -l app.kubernetes.io/component=proxier -o jsonpath={.items[*].metadata.name}";
        let pods = self.say(&format!("-n {INSTALL_NAMESPACE} {list}"), b"").await;
        let mut sum = 0.0;
        for pod in pods.text().split_whitespace() {
            let path = format!("/api/v1/namespaces/{INSTALL_NAMESPACE}/pods/{pod}:8080/proxy/metrics");
            let said = self.say(&format!("get --raw {path}"), b"").await;
            if said.code != Some(0) {
                return Err(said.err);
            }
            let text = said.text();
            let of = |line: &&str| line.starts_with(name);
            let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
            sum += text.lines().filter(of).filter_map(value).sum::<f64>();
        }
        Ok(sum)
    }
}

//! `kubeocean demo`: what Kubeocean does, on real clusters, step by step.
//!
//! A walk that a test can take too: each step either shows something or ends the demo with its name.

mod application;
mod manager;
mod pool;

use std::io::Write as _;
use std::process::Output;

use anyhow::{Context as _, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use kubeocean_api::crd;
use kubeocean_api::keys::names::INSTALL_NAMESPACE;
use kubeocean_sandbox::{BUSYBOX_IMAGE, Cluster, Sandbox, Spec, doctor};

use crate::exit::Interrupted;
use crate::interrupt::Interrupt;
use crate::sandbox::up;
use crate::terminal::note;
use manager::Manager;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Walk through and exit: 0 if every step worked
    #[arg(long)]
    once: bool,
    /// The name of the demo's sandbox [default: demo; with --once a unique one]
    #[arg(long)]
    name: Option<String>,
    /// Simulated nodes even where real ones are possible
    #[arg(long)]
    simulated: bool,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let name = args.name.clone().unwrap_or_else(|| {
        if args.once { format!("demo-{}", std::process::id()) } else { "demo".to_owned() }
    });
    let interrupt = Interrupt::listen()?;
    let real = !args.simulated && real_nodes_possible();
    say("\n1. Three real clusters: computing borrows, worker-1 and worker-2 lend")?;
    let (sim_nodes, real_nodes) = if real { (2, 1) } else { (3, 0) };
    let spec = Spec::new().named(&name).workers(2, sim_nodes, real_nodes);
    let spec = if real { spec.metrics_server("computing") } else { spec };
    let sandbox = up::start(spec, &interrupt).await.context("step 1, starting the clusters")?;
    let mut manager = None;
    let outcome = tokio::select! {
        outcome = walk(&sandbox, real, &mut manager) => outcome,
        () = interrupt.wait() => Err(Interrupted.into()),
    };
    let outcome = match outcome {
        Ok(()) if !args.once => {
            let shown = tour(&sandbox, real);
            if shown.is_ok() {
                interrupt.wait().await;
            }
            shown
        }
        other => other,
    };
    note("\nEnding the demo …");
    let ended = match manager {
        Some(manager) => manager.end().await,
        None => Ok(()),
    };
    sandbox.stop().await?;
    outcome.and(ended)
}

fn real_nodes_possible() -> bool {
    match doctor::require_real_nodes(3, 2) {
        Ok(()) => true,
        Err(error) => {
            note(&format!("Nodes will be simulated: {error}"));
            false
        }
    }
}

async fn walk(sandbox: &Sandbox, real: bool, running: &mut Option<Manager>) -> anyhow::Result<()> {
    let (computing, worker) = (sandbox.cluster("computing")?, sandbox.cluster("worker-1")?);
    show(worker, &["get", "nodes", "-o", "wide"]).await.context("step 1, listing the nodes of worker-1")?;

    say("\n2. The API: leasing policies and bindings, as resources of the computing cluster")?;
    apply_crds(computing).await.context("step 2, installing the CRDs")?;
    show(computing, &["get", "crds"]).await.context("step 2, listing the CRDs")?;
    refused(computing).await.context("step 2, sending a policy with a mistake")?;

    say("\n3. A pod on a node of a worker cluster")?;
    pod(worker, real).await.context("step 3, running a pod")?;

    say("\n4. A manager in the computing cluster; the workers are prepared by their owners, and bound")?;
    show(computing, &["create", "namespace", INSTALL_NAMESPACE])
        .await
        .context("step 4, making a namespace")?;
    say("$ kubeocean manager --worker-mode=inline --leader-elect --kubeconfig computing.yaml &")?;
    let manager = Manager::start(computing, sandbox.directory()).context("step 4, starting the manager")?;
    let manager = running.insert(manager);
    let bound = async {
        pool::wait_for_manager(computing).await.context("step 4, waiting for the manager")?;
        pool::bind(sandbox).await.context("step 4, binding the workers")?;
        say("\n5. Nodes of both become virtual nodes")?;
        pool::lease(sandbox).await.context("step 5, leasing nodes")?;
        say("\n6. An application runs on all of them")?;
        application::run(sandbox, real).await.context("step 6, running an application")?;
        say("\n7. A lender takes back what is its own")?;
        pool::take_back(sandbox).await.context("step 7, taking nodes back")?;
        say("\n8. One worker cluster leaves, and nothing of it is left")?;
        pool::unbind(sandbox).await.context("step 8, unbinding worker-2")
    };
    let bound = bound.await;
    if bound.is_err() {
        note(&format!("The manager said last:\n{}", manager.last_words()));
    }
    bound
}

async fn apply_crds(cluster: &Cluster) -> anyhow::Result<()> {
    let api = Api::<CustomResourceDefinition>::all(cluster.client().await?);
    for definition in crd::crds() {
        let params = PatchParams::apply("kubeocean").force();
        api.patch(&definition.name_any(), &params, &Patch::Apply(&definition)).await?;
    }
    for definition in crd::crds() {
        let name = format!("crd/{}", definition.name_any());
        kubectl(cluster, &["wait", "--for=condition=Established", "--timeout=60s", &name], None).await?;
    }
    Ok(())
}

/// A policy with a mistake is answered with what to do about it.
async fn refused(cluster: &Cluster) -> anyhow::Result<()> {
    const POLICY: &str = "\
apiVersion: cloud.tencent.com/v1beta1
kind: ResourceLeasingPolicy
metadata: {name: nights}
spec:
  cluster: worker-1
  timeZone: Europe/Atlantis
  timeWindows: [{start: \"22:00\", end: \"06:00\"}]
";
    say("\nA policy whose time zone does not exist is refused:")?;
    say("$ kubectl --context computing apply -f policy.yaml")?;
    let output = output(cluster, &["apply", "-f", "-"], Some(POLICY)).await?;
    let answer = String::from_utf8_lossy(&output.stderr);
    if output.status.success() || !answer.contains("unknown time zone") {
        bail!("a refusal that names the time zone was expected, and this came: {}", answer.trim_end());
    }
    say(answer.trim_end())
}

async fn pod(worker: &Cluster, real: bool) -> anyhow::Result<()> {
    let node = if real { "real-1" } else { "sim-1" };
    let script = "echo \"Hello from pod $(hostname), a real container on $NODE of worker-1\" | tee /tmp/index.html; \
                  exec httpd -f -p 8080 -h /tmp";
    let manifest = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "hello" },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "hello",
                "image": BUSYBOX_IMAGE,
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", script],
                "env": [{ "name": "NODE", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } }],
            }],
        },
    });
    kubectl(worker, &["apply", "-f", "-"], Some(&manifest.to_string())).await?;
    kubectl(worker, &["wait", "--for=condition=Ready", "--timeout=120s", "pod/hello"], None).await?;
    show(worker, &["get", "pod", "hello", "-o", "wide"]).await?;
    if real {
        show(worker, &["logs", "hello"]).await?;
        show(worker, &["exec", "hello", "--", "uname", "-a"]).await?;
    }
    Ok(())
}

fn tour(sandbox: &Sandbox, real: bool) -> anyhow::Result<()> {
    let name = sandbox.name();
    let directory = sandbox.directory().join("kubeconfig").join("all.yaml");
    say(&format!("\nEverything is up. In another terminal:\n\n  export KUBECONFIG={}", directory.display()))?;
    say("  kubectl config get-contexts                          # computing, worker-1, worker-2")?;
    say("  kubectl --context computing explain clusterbinding.spec")?;
    say("  kubectl --context computing explain rlp.spec.timeWindows")?;
    say("  kubectl --context computing describe cb worker-1")?;
    say(&format!(
        "  kubectl --context worker-1 create deployment web --image={BUSYBOX_IMAGE} --replicas=5 -- sleep 3600"
    ))?;
    if real {
        say("  kubectl --context worker-1 exec -it hello -- sh")?;
        say("  kubectl --context worker-1 port-forward pod/hello 8080:8080  # then: curl localhost:8080")?;
        say("  kubectl --context computing top node                 # what pods on virtual nodes use")?;
    }
    say(&format!("  kubeocean sandbox status {name}"))?;
    say(&format!("  kubeocean sandbox kubectl {name} worker-1 get pods   # where kubectl is not installed"))?;
    say(&format!("  kubeocean sandbox logs {name} worker-1 kube-apiserver"))?;
    say("\n(`kubeocean` is target/debug/kubeocean here.) Ctrl-C ends the demo and removes everything.")
}

/// Prints a kubectl command as one would type it, and what it answers.
async fn show(cluster: &Cluster, args: &[&str]) -> anyhow::Result<()> {
    let quoted: Vec<_> = args.iter().map(|word| quoted(word)).collect();
    say(&format!("$ kubectl --context {} {}", cluster.name(), quoted.join(" ")))?;
    say(kubectl(cluster, args, None).await?.trim_end())
}

/// As a shell needs it.
fn quoted(word: &str) -> String {
    if word.contains([' ', '{', '"', '*']) { format!("'{word}'") } else { word.to_owned() }
}

async fn kubectl(cluster: &Cluster, args: &[&str], input: Option<&str>) -> anyhow::Result<String> {
    let output = output(cluster, args, input).await?;
    if !output.status.success() {
        bail!("kubectl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

async fn output(cluster: &Cluster, args: &[&str], input: Option<&str>) -> anyhow::Result<Output> {
    use tokio::io::AsyncWriteExt as _;
    let mut command = cluster.kubectl();
    command.args(args).stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().context("starting kubectl")?;
    if let Some(mut stdin) = child.stdin.take() {
        // kubectl may end without reading all of it; its exit code tells whether that was well.
        let _ = stdin.write_all(input.unwrap_or_default().as_bytes()).await;
    }
    Ok(child.wait_with_output().await?)
}

fn say(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

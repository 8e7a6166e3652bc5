//! The steps in which worker clusters are bound, as an operator takes them.

use std::process::{Output, Stdio};

use anyhow::{Context as _, bail};
use kubeocean_api::keys::labels::{CLUSTER_BINDING, TYPE, TYPE_VIRTUAL_KUBELET};
use kubeocean_api::keys::names::{INSTALL_NAMESPACE, MANAGER_LEADER};
use kubeocean_api::keys::taints::OUT_OF_TIME_WINDOWS_KEY;
use kubeocean_sandbox::{Cluster, Sandbox};
use tokio::process::Command;

use super::{kubectl, say, show};

const CONDITIONS: &str =
    r#"jsonpath={range .status.conditions[*]}{.type}={.status}, {.reason}: {.message}{"\n"}{end}"#;

/// Waits until the manager leads.
pub(super) async fn wait_for_manager(computing: &Cluster) -> anyhow::Result<()> {
    let lease = format!("lease/{MANAGER_LEADER}");
    let wait = ["-n", INSTALL_NAMESPACE, "wait", "--for=create", "--timeout=60s", &lease];
    kubectl(computing, &wait, None).await.map(drop)
}

/// Two lenders, each with an identity for the borrower, are bound.
pub(super) async fn bind(sandbox: &Sandbox) -> anyhow::Result<()> {
    let computing = sandbox.cluster("computing")?;
    for name in ["worker-1", "worker-2"] {
        lend(sandbox, name).await.with_context(|| format!("preparing {name}"))?;
        let file = format!("{name}.kubeconfig");
        say("")?;
        let args = ["bind", name, "--worker-kubeconfig", &file, "--context", "computing"];
        run(sandbox, &args).await?;
    }
    say("")?;
    show(computing, &["wait", "--for=condition=Ready", "--timeout=60s", "cb/worker-1", "cb/worker-2"])
        .await?;
    show(computing, &["get", "cb", "-o", "wide"]).await?;
    show(computing, &["get", "cb", "worker-1", "-o", CONDITIONS]).await?;
    show(computing, &["get", "events", "--field-selector", "involvedObject.kind=ClusterBinding"]).await?;
    say(
        "\nThe manager reached both, knows who it is there, and that it may do what is needed, and runs a syncer and a proxier for each.",
    )
}

/// Nodes of both are leased: of the first because its lender says so, of the second because the borrower does.
pub(super) async fn lease(sandbox: &Sandbox) -> anyhow::Result<()> {
    let (computing, lender) = (sandbox.cluster("computing")?, sandbox.cluster("worker-1")?);
    let args = ["worker-manifest", "--crd", "--with-policy", "worker-1"];
    say(&format!("$ kubeocean {} | kubectl --context worker-1 apply --server-side -f -", args.join(" ")))?;
    let manifest = success(&args, &kubeocean(sandbox, &args).await?)?;
    kubectl(lender, &["apply", "--server-side", "-f", "-"], Some(&manifest)).await?;
    say("\nThe lender of worker-2 left the word to the borrower, who takes half as well:")?;
    say("$ kubectl --context computing apply -f policy.yaml")?;
    say(kubectl(computing, &["apply", "-f", "-"], Some(POLICY)).await?.trim_end())?;
    let wait = ["wait", "--for=condition=Leasing", "--timeout=60s", "cb/worker-1", "cb/worker-2"];
    show(computing, &wait).await?;
    let virtual_nodes = format!("{TYPE}={TYPE_VIRTUAL_KUBELET}");
    show(computing, &["wait", "--for=condition=Ready", "--timeout=60s", "node", "-l", &virtual_nodes])
        .await?;
    show(computing, &NODES).await?;
    say("\nHalf of what is left of each node of a worker cluster is a virtual node.")
}

/// The borrower's policy, for a worker cluster whose lender has none.
const POLICY: &str = "\
apiVersion: cloud.tencent.com/v1beta1
kind: ResourceLeasingPolicy
metadata: {name: worker-2}
spec:
  cluster: worker-2
  resourceLimits: [{resource: cpu, percent: 50}, {resource: memory, percent: 50}]
";

/// Nodes shrink, and close, as their lender says.
pub(super) async fn take_back(sandbox: &Sandbox) -> anyhow::Result<()> {
    let (computing, lender) = (sandbox.cluster("computing")?, sandbox.cluster("worker-1")?);
    say("The lender of worker-1 wants to lend less:")?;
    let of_worker = format!("{CLUSTER_BINDING}=worker-1");
    let first = ["get", "nodes", "-l", &of_worker, "-o", "jsonpath={.items[0].metadata.name}"];
    let node = format!("node/{}", kubectl(computing, &first, None).await?.trim());
    let one = r#"{"spec":{"resourceLimits":[{"resource":"cpu","quantity":"1"}]}}"#;
    show(lender, &["patch", "rlp", "worker-1", "--type=merge", "-p", one]).await?;
    let shrunk = ["wait", "--for=jsonpath={.status.allocatable.cpu}=1", "--timeout=60s", &node];
    show(computing, &shrunk).await?;
    say("\nHe lends them by the hour now, and that hour has not come yet:")?;
    let now = jiff::Timestamp::now();
    let hour = |hours: i64| {
        let at = now.checked_add(jiff::SignedDuration::from_hours(hours)).unwrap_or(now);
        at.strftime("%H:%M").to_string()
    };
    let window = format!(
        r#"{{"spec":{{"timeZone":"UTC","timeWindows":[{{"start":"{}","end":"{}"}}]}}}}"#,
        hour(2),
        hour(3)
    );
    show(lender, &["patch", "rlp", "worker-1", "--type=merge", "-p", &window]).await?;
    let closed =
        format!("--for=jsonpath={{.spec.taints[?(@.key==\"{OUT_OF_TIME_WINDOWS_KEY}\")].effect}}=NoSchedule");
    show(computing, &["wait", &closed, "--timeout=60s", &node]).await?;
    show(computing, &NODES).await?;
    show(lender, &["get", "rlp"]).await?;
    say("\nNothing new is scheduled there until then.")
}

/// What people want to know of nodes.
const NODES: [&str; 4] = [
    "get",
    "nodes",
    "-o",
    "custom-columns=NAME:.metadata.name,CPU:.status.allocatable.cpu,MEMORY:.status.allocatable.memory,PODS:.status.allocatable.pods,TAINTS:.spec.taints[*].key",
];

/// What the lender does: a namespace, an identity, its rights; and the kubeconfig for the borrower.
async fn lend(sandbox: &Sandbox, name: &str) -> anyhow::Result<()> {
    let worker = sandbox.cluster(name)?;
    // The first wants to have a say in what is leased, the second leaves it to the borrower.
    let args: &[&str] = if name == "worker-1" { &["worker-manifest", "--crd"] } else { &["worker-manifest"] };
    say(&format!("$ kubeocean {} | kubectl --context {name} apply --server-side -f -", args.join(" ")))?;
    let manifest = success(args, &kubeocean(sandbox, args).await?)?;
    kubectl(worker, &["apply", "--server-side", "-f", "-"], Some(&manifest)).await?;
    let args = ["worker-kubeconfig", "--context", name];
    say(&format!("$ kubeocean {} > {name}.kubeconfig", args.join(" ")))?;
    let kubeconfig = success(&args, &kubeocean(sandbox, &args).await?)?;
    let path = sandbox.directory().join(format!("{name}.kubeconfig"));
    std::fs::write(&path, kubeconfig).with_context(|| format!("writing {}", path.display()))
}

/// One of them goes again.
pub(super) async fn unbind(sandbox: &Sandbox) -> anyhow::Result<()> {
    run(sandbox, &["unbind", "worker-2", "--context", "computing", "--yes"]).await?;
    show(sandbox.cluster("computing")?, &["get", "cb"]).await
}

/// Prints one of our own commands as one would type it, and what it says.
async fn run(sandbox: &Sandbox, args: &[&str]) -> anyhow::Result<()> {
    say(&format!("$ kubeocean {}", args.join(" ")))?;
    let output = kubeocean(sandbox, args).await?;
    say(String::from_utf8_lossy(&output.stderr).trim_end())?;
    say(success(args, &output)?.trim_end())
}

/// Files are named as in the sandbox's directory, and contexts are those of all its clusters.
async fn kubeocean(sandbox: &Sandbox, args: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(std::env::current_exe().context("finding our own executable")?);
    command
        .args(args)
        .current_dir(sandbox.directory())
        .env("KUBECONFIG", sandbox.directory().join("kubeconfig").join("all.yaml"))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command.output().await.with_context(|| format!("starting kubeocean {}", args.join(" ")))
}

fn success(args: &[&str], output: &Output) -> anyhow::Result<String> {
    if !output.status.success() {
        bail!("kubeocean {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

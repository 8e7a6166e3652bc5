//! The steps in which worker clusters are bound, as an operator takes them.

use std::process::{Output, Stdio};

use anyhow::{Context as _, bail};
use kubeocean_api::keys::names::{INSTALL_NAMESPACE, MANAGER_LEADER};
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
        let args = ["bind", name, "--worker-kubeconfig", &file, "--context", "computing", "--no-wait"];
        run(sandbox, &args).await?;
    }
    let wait = ["wait", "--for=condition=Connected", "--timeout=60s", "cb/worker-1", "cb/worker-2"];
    say("")?;
    show(computing, &wait).await?;
    show(computing, &["get", "cb", "-o", "wide"]).await?;
    show(computing, &["get", "cb", "worker-1", "-o", CONDITIONS]).await?;
    show(computing, &["get", "events", "--field-selector", "involvedObject.kind=ClusterBinding"]).await?;
    say(
        "\nThe manager reached both, knows who it is there, and that it may do what is needed. They stay Pending: this version has no",
    )?;
    say("syncer and no proxier yet, so no node is leased and no pod moves.")
}

/// What the lender does: a namespace, an identity, its rights; and the kubeconfig for the borrower.
async fn lend(sandbox: &Sandbox, name: &str) -> anyhow::Result<()> {
    let worker = sandbox.cluster(name)?;
    say(&format!("$ kubeocean worker-manifest | kubectl --context {name} apply --server-side -f -"))?;
    let manifest = success(&["worker-manifest"], &kubeocean(sandbox, &["worker-manifest"]).await?)?;
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

//! What several of these tests do.

use std::fmt::Debug;
use std::process::Stdio;
use std::time::{Duration, Instant};

use kubeocean_sandbox::{Cluster, leftovers};
use tokio::io::AsyncWriteExt as _;

/// A busy machine may be ten times slower than an idle one; what is right is right long before this.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Looks until `check` succeeds.
pub(crate) async fn eventually<T, E: Debug>(what: &str, mut check: impl AsyncFnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        match check().await {
            Ok(value) => return value,
            Err(error) if Instant::now() > deadline => panic!("{what} did not come true: {error:?}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Waits until nothing of a sandbox is left.
pub(crate) async fn nothing_left_of(name: &str) {
    eventually(&format!("the end of {name}"), async || match leftovers(name) {
        left if left.is_empty() => Ok(()),
        left => Err(left),
    })
    .await;
}

/// Runs kubectl and returns what it printed, or the complaint.
pub(crate) async fn kubectl(cluster: &Cluster, args: &[&str]) -> Result<String, String> {
    kubectl_with(cluster, args, "").await
}

/// Runs kubectl with an input.
pub(crate) async fn kubectl_with(cluster: &Cluster, args: &[&str], input: &str) -> Result<String, String> {
    let mut command = cluster.kubectl();
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("kubectl starts");
    let mut stdin = child.stdin.take().expect("piped");
    let write = async move { stdin.write_all(input.as_bytes()).await };
    let (written, output) = tokio::join!(write, child.wait_with_output());
    // kubectl may end without reading all of it; its exit code tells whether that was well.
    let _ = written;
    let output = output.expect("kubectl ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("kubectl {}: {}", args.join(" "), text(&output.stderr)))
    }
}

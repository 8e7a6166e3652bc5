//! A metrics-server: what `kubectl top` shows of real nodes and real pods.

use kubeocean_sandbox::{Sandbox, Spec};
use serde_json::json;

use crate::real_nodes::{possible, run};
use crate::support::{eventually, kubectl, nothing_left_of};

/// The number in front of a unit, as in `12m` and `34Mi`.
fn number(figure: &str) -> u64 {
    let digits: String = figure.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{figure} is no figure"))
}

#[tokio::test]
async fn top_shows_what_a_node_and_its_pods_use() {
    if !possible() {
        return;
    }
    let sandbox = Sandbox::start(Spec::new().workers(1, 0, 1).metrics_server("worker-1")).await.unwrap();
    let cluster = sandbox.cluster("worker-1").unwrap();
    let busy = json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{ "command": ["sh", "-c", "while :; do :; done"], "resources": { "limits": { "cpu": "200m" } } }],
    });
    run(cluster, "busy", &busy).await;

    let top = async |what: &str, name: &str| {
        eventually("a figure", async || kubectl(cluster, &["top", what, name, "--no-headers"]).await).await
    };
    let pod = top("pod", "busy").await;
    let figures: Vec<_> = pod.split_whitespace().collect();
    let [name, cpu, _memory] = figures[..] else { panic!("{pod}") };
    assert_eq!(name, "busy");
    assert!(number(cpu) > 0, "a pod that counts uses nothing: {pod}");

    let node = top("node", "real-1").await;
    let figures: Vec<_> = node.split_whitespace().collect();
    let [name, cpu, _, memory, _] = figures[..] else { panic!("{node}") };
    assert_eq!(name, "real-1");
    assert!(number(cpu) > 0 && number(memory) > 0, "{node}");

    let name = sandbox.name().to_owned();
    sandbox.stop().await.unwrap();
    nothing_left_of(&name).await;
}

//! Metering between a real kubelet and a real metrics-server, which are those that people run.

mod place;

use kubeocean_cluster::kubelet::Trust;
use kubeocean_proxier::metering::Limits;
use kubeocean_sandbox::{Sandbox, Spec};

use place::{Place, eventually, kubectl, number, possible};

#[tokio::test]
async fn a_stock_metrics_server_shows_what_a_real_kubelet_says_of_our_pods() {
    if !possible() {
        return;
    }
    let spec = Spec::new().workers(1, 0, 1).metrics_server("computing").metrics_server("worker-1");
    let sandbox = Sandbox::start(spec).await.unwrap();
    let (computing, worker) = (sandbox.cluster("computing").unwrap(), sandbox.cluster("worker-1").unwrap());
    let place = Place::build(computing, worker).await;

    // As the lender grants it: `nodes/metrics`, and no more.
    let metering = place.metering("meter", Trust::Kubeconfig, Limits::default()).await;
    let text = |answer: kubeocean_proxier::metering::Answer| String::from_utf8(answer.body.to_vec()).unwrap();
    let resource = eventually("figures of the pod", async || {
        let said = text(metering.resource("vnode-1").await.map_err(|refused| refused.message)?);
        if said.contains("container_cpu_usage_seconds_total{") { Ok(said) } else { Err(said) }
    })
    .await;
    for (page, said) in
        [("resource", resource), ("cadvisor", text(metering.cadvisor("vnode-1").await.unwrap()))]
    {
        assert!(
            said.contains(r#"container="main""#) && said.contains(r#"namespace="shop",pod="web""#),
            "{page}: {said}"
        );
        for foreign in ["\"mount\"", "web-3f2c", "lender", "secret-plans", "machine_"] {
            assert!(!said.contains(foreign), "{page} says {foreign}: {said}");
        }
    }

    // What the metrics-server of the computing cluster makes of it, beside what that of the worker cluster says.
    let _serving = place.serve(&sandbox, metering).await;
    let shown = async |cluster, arguments: &[&str]| {
        eventually("a figure", async || {
            let shown = kubectl(cluster, &[&["top"], arguments, &["--no-headers"]].concat()).await?;
            let cpu = number(shown.split_whitespace().nth(1).unwrap_or_default());
            // A pod that has just begun is shown as it was then.
            if cpu > 100 { Ok(cpu) } else { Err(shown) }
        })
        .await
    };
    let pod = shown(computing, &["pod", "--namespace=shop", "web"]).await;
    let node = shown(computing, &["node", "vnode-1"]).await;
    let twin = shown(worker, &["pod", "--namespace=mount", "web-3f2c"]).await;
    for figure in [pod, node] {
        assert!((twin / 2..=twin * 2).contains(&figure), "pod {pod}m, node {node}m, its twin {twin}m");
    }

    // Where the kubelet cannot be asked, the worker's metrics.k8s.io says it.
    let stranger = Trust::authorities(place.foreign_authority.as_bytes()).unwrap();
    let metering = place.metering("meter", stranger, Limits::default()).await;
    let said = text(metering.resource("vnode-1").await.unwrap());
    assert!(
        said.contains(r#"container_memory_working_set_bytes{container="main",namespace="shop",pod="web"}"#),
        "{said}"
    );
    let refused = metering.cadvisor("vnode-1").await.unwrap_err();
    assert!(refused.message.contains("--physical-kubelet-ca"), "{}", refused.message);

    // Someone without rights is told which.
    let metering = place.metering("nobody", Trust::Kubeconfig, Limits::default()).await;
    let refused = metering.resource("vnode-1").await.unwrap_err();
    for words in ["403", "`get` of `nodes/metrics`", "`list` of `pods.metrics.k8s.io`"] {
        assert!(refused.message.contains(words), "{}", refused.message);
    }
    sandbox.stop().await.unwrap();
}

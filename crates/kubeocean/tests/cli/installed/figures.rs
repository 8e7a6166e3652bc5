//! What pods use, as a stock metrics-server, `kubectl top`, Prometheus and autoscalers see it.

use std::time::Duration;

use kubeocean_api::keys::names::WORKER_NAMESPACE;
use kubeocean_sandbox::{COMPUTING, Spec};
use serde_json::{Value, json};

use super::home::{Home, VNODE};
use super::streams::{container, pod};
use crate::access::until;

/// Burns a tenth of a core, as its limit has it: two cores have other things to do. And holds some mebibytes: a shell alone has none to speak of.
const NAME: &str = "burns";
const BURNS: &str = "trap 'exit 0' TERM; held=$(head -c 4000000 /dev/zero | tr '\\0' x); until [ -e /tmp/over ]; do :; done; echo over; sleep 2147483647 & wait";

/// Twice the half of its request that the autoscaler wants: one replica is too few by far, three are not enough.
const REQUEST: &str = "50m";
const MOST: usize = 3;

/// Three looks of the metrics-server, ten seconds apart, and the autoscaler's own pace; the rest is for a machine that has other things to do.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(120);

/// A cluster in which use is measured, and in which an autoscaler does not wait for a quarter of a minute.
pub(super) fn measured(spec: Spec) -> Spec {
    let often = "--horizontal-pod-autoscaler-sync-period=3s";
    spec.metrics_server(COMPUTING).extra_arg(COMPUTING, "kube-controller-manager", often)
}

/// Something to measure, and an autoscaler for it. What follows takes a while, in which others may do something else.
pub(super) fn prepare(home: &Home) {
    let amount = |cpu: &str| json!({"cpu": cpu, "memory": "32Mi"});
    let resources = json!({"resources": {"requests": amount(REQUEST), "limits": amount("100m")}});
    let mut template = pod(NAME, &json!([container("c", BURNS, &resources)]), &json!({}));
    template["metadata"] = json!({"labels": {"app": NAME}});
    home.apply(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME},
        "spec": {
            "selector": {"matchLabels": {"app": NAME}},
            "template": {"metadata": template["metadata"], "spec": template["spec"]},
        },
    }));
    let metric = json!({
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    });
    home.apply(&json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": NAME},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME},
            "minReplicas": 1, "maxReplicas": MOST, "metrics": [metric],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }));
}

pub(super) async fn use_is_shown_and_scaled_by(home: &Home) {
    let (many, first) = tokio::join!(an_autoscaler_adds_replicas(home), kubectl_top_shows_it(home));
    assert!(many.contains(&first), "{first} of {many:?}");
    scrapers_are_answered(home, &first).await;
    // The load ends.
    for pod in &many {
        home.good(&format!("exec {pod} -- touch /tmp/over")).await;
    }
    let few = replicas(home, "and takes them away when nobody needs them", |pods| pods.len() == 1).await;
    assert!(many.contains(&few[0]), "{few:?} is none of {many:?}");
    home.good(&format!("delete hpa,deployment {NAME} --timeout=60s")).await;
}

async fn an_autoscaler_adds_replicas(home: &Home) -> Vec<String> {
    let many = replicas(home, "the autoscaler adds replicas", |pods| pods.len() == MOST).await;
    home.good(&format!("rollout status deployment/{NAME} --timeout=120s")).await;
    let seen = home.good(&format!("get hpa {NAME} -o json")).await;
    let seen: Value = serde_json::from_str(&seen).unwrap();
    let use_seen = seen["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"].as_u64();
    // Its limit is twice its request; how much of that it gets is for the machine to say. What idles uses less.
    assert!(use_seen.is_some_and(|percent| (10..=260).contains(&percent)), "{seen:#}");
    many
}

/// Waits for pods of the Deployment.
async fn replicas(home: &Home, what: &str, are_right: impl Fn(&[String]) -> bool) -> Vec<String> {
    let list = format!("get pods -l app={NAME} -o jsonpath={{.items[*].metadata.name}}");
    let seen = until(what, async || {
        let pods: Vec<String> = home.good(&list).await.split_whitespace().map(str::to_owned).collect();
        if are_right(&pods) { Ok(pods) } else { Err(format!("{pods:?}")) }
    });
    let Ok(pods) = tokio::time::timeout(FOLLOWS_WITHIN, seen).await else {
        let hpa = home.say(&format!("describe hpa {NAME}"), b"").await.text();
        panic!("{what}: not so\n{hpa}\n{}", home.how_it_is());
    };
    pods
}

/// `12m` or `3Mi`, as a number.
fn number(figure: &str) -> u64 {
    figure.trim_end_matches(|unit: char| !unit.is_ascii_digit()).parse().unwrap()
}

/// The name of the pod that was looked at.
async fn kubectl_top_shows_it(home: &Home) -> String {
    let top = async |what: &str, is_right: &dyn Fn(u64, u64) -> bool| {
        until(&format!("kubectl top {what} shows what is used"), async || {
            let said = home.say(&format!("top {what} --no-headers"), b"").await;
            let text = said.text();
            let words: Vec<&str> = text.split_whitespace().collect();
            // A pod: name, CPU, memory. A node has a share of its own after each.
            let (cpu, memory) = match words[..] {
                [_, cpu, memory] | [_, cpu, _, memory, _] => (number(cpu), number(memory)),
                _ => return Err(format!("{text}{}", said.err)),
            };
            if is_right(cpu, memory) { Ok(words[0].to_owned()) } else { Err(text.clone()) }
        })
        .await
    };
    let listed = replicas(home, "there is one", |pods| !pods.is_empty()).await;
    let first = listed[0].clone();
    // Below its limit, and a pod that burns does not idle.
    let burns = |cpu: u64, memory: u64| (30..=130).contains(&cpu) && (3..=32).contains(&memory);
    assert_eq!(top(&format!("pod {first}"), &burns).await, first);
    let idles = |cpu: u64, _| cpu < 30;
    top("pod app", &idles).await;
    let sums = |cpu: u64, memory: u64| cpu >= 30 && memory >= 3;
    assert_eq!(top(&format!("node {VNODE}"), &sums).await, VNODE);
    first
}

/// As Prometheus asks, through the API server.
async fn scrapers_are_answered(home: &Home, pod: &str) {
    let scrape = async |path: &str| home.good(&format!("get --raw /api/v1/nodes/{VNODE}/proxy{path}")).await;
    let series = |text: &str, name: &str| {
        let is_of = |line: &&str| {
            line.starts_with(&format!("{name}{{"))
                && [format!("pod=\"{pod}\""), "namespace=\"default\"".into(), "container=\"c\"".into()]
                    .iter()
                    .all(|label| line.contains(&**label))
        };
        assert_eq!(text.lines().filter(is_of).count(), 1, "{name} of {pod}: {text}");
    };
    let resource = scrape("/metrics/resource").await;
    series(&resource, "container_cpu_usage_seconds_total");
    series(&resource, "container_memory_working_set_bytes");
    let cadvisor = scrape("/metrics/cadvisor").await;
    for name in ["container_cpu_usage_seconds_total", "container_memory_working_set_bytes"] {
        series(&cadvisor, name);
    }
    // What the machine is, and who else is on it, is the lender's affair; and so is what a pod is called there.
    for (page, text) in [("resource", &resource), ("cadvisor", &cadvisor)] {
        for word in [WORKER_NAMESPACE, "machine_"] {
            assert!(!text.contains(word), "{page} says {word}");
        }
    }
    let pods: Value = serde_json::from_str(&scrape("/pods").await).unwrap();
    let names: Vec<&str> =
        pods["items"].as_array().unwrap().iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
    assert!(names.contains(&pod) && names.contains(&"app"), "{names:?}");
    let on = |pod: &Value| pod["spec"]["nodeName"] == VNODE;
    assert!(pods["items"].as_array().unwrap().iter().all(on), "{pods:#}");
    let said = home.say(&format!("get --raw /api/v1/nodes/{VNODE}/proxy/stats/summary"), b"").await;
    assert!(said.code != Some(0) && said.err.contains("could not find"), "{}", said.err);
}

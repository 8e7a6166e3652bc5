//! What an operation costs: simulations run thousands of seeds in debug builds.
//!
//! `cargo bench -p kubeocean-testkit`

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "printing is what it is for")]

use std::time::Instant;

use kubeocean_testkit::{ApiServer, Options};
use serde_json::json;

const ROUNDS: u32 = 500;

fn measured(what: &str, rounds: u32, mut act: impl FnMut(u32)) {
    let started = Instant::now();
    (0..rounds).for_each(&mut act);
    println!("{what:<40} {:>8.1} µs", started.elapsed().as_secs_f64() * 1e6 / f64::from(rounds));
}

fn main() {
    measured("a server", 20, |_| drop(ApiServer::new(Options::default())));
    let server = ApiServer::new(Options::default());
    let call = |method: &str, path: &str, content_type: &str, body| {
        let (code, answer) = server.call("hand", method, path, Some(content_type), body);
        assert!(code < 300, "{answer}");
    };
    let pods = "/api/v1/namespaces/default/pods";
    measured("create a pod", ROUNDS, |round| {
        let pod = json!({"metadata": {"name": format!("p{round}"), "labels": {"app": "x"}}, "spec": {"nodeName": "n1", "containers": [
            {"name": "c", "image": "x", "ports": [{"containerPort": 80}], "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}});
        call("POST", pods, "application/json", Some(pod));
    });
    measured("patch the status of a pod, strategic", ROUNDS, |round| {
        let patch = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        call(
            "PATCH",
            &format!("{pods}/p{round}/status"),
            "application/strategic-merge-patch+json",
            Some(patch),
        );
    });
    measured("the same again, which changes nothing", ROUNDS, |round| {
        let patch = json!({"status": {"phase": "Running"}});
        call(
            "PATCH",
            &format!("{pods}/p{round}/status"),
            "application/strategic-merge-patch+json",
            Some(patch),
        );
    });
    measured("merge-patch a label of a pod", ROUNDS, |round| {
        call(
            "PATCH",
            &format!("{pods}/p{round}"),
            "application/merge-patch+json",
            Some(json!({"metadata": {"labels": {"a": "b"}}})),
        );
    });
    measured("apply a label of a pod", ROUNDS, |round| {
        let applied = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{round}"), "labels": {"c": "d"}}});
        call(
            "PATCH",
            &format!("{pods}/p{round}?fieldManager=one"),
            "application/apply-patch+yaml",
            Some(applied),
        );
    });
    measured("get a pod", ROUNDS, |round| call("GET", &format!("{pods}/p{round}"), "", None));
    measured("list 500 pods", 20, |_| call("GET", pods, "", None));
    measured("create a ClusterBinding", ROUNDS, |round| {
        let binding = json!({"apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding", "metadata": {"name": format!("b{round}")},
            "spec": {"clusterID": "w1", "secretRef": {"name": "w1", "namespace": "k"}, "mountNamespace": "b"}});
        call("POST", "/apis/cloud.tencent.com/v1beta1/clusterbindings", "application/json", Some(binding));
    });
    measured("patch the status of a ClusterBinding", ROUNDS, |round| {
        let path = format!("/apis/cloud.tencent.com/v1beta1/clusterbindings/b{round}/status");
        call("PATCH", &path, "application/merge-patch+json", Some(json!({"status": {"phase": "Ready"}})));
    });
    measured("renew a lease", ROUNDS, |round| {
        let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": format!("h{round}"), "leaseDurationSeconds": 40}});
        if round == 0 {
            call(
                "POST",
                "/apis/coordination.k8s.io/v1/namespaces/default/leases",
                "application/json",
                Some(lease),
            );
        } else {
            call(
                "PATCH",
                "/apis/coordination.k8s.io/v1/namespaces/default/leases/l",
                "application/merge-patch+json",
                Some(lease),
            );
        }
    });
    measured("delete a pod at once", ROUNDS, |round| {
        call("DELETE", &format!("{pods}/p{round}?gracePeriodSeconds=0"), "", None);
    });
}

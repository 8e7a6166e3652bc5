//! The demo, as `make demo ARGS=--once` runs it.

use crate::support::{answer, kubeocean, real_nodes, script};

#[test]
fn every_step_works_with_simulated_nodes() {
    let answer = answer(kubeocean(["demo", "--once", "--simulated"]));
    assert_eq!(answer.code, Some(0), "{}{}", answer.out, answer.err);
    assert!(answer.out.contains("resourceleasingpolicies.cloud.tencent.com"), "{}", answer.out);
    assert!(answer.out.contains("unknown time zone Europe/Atlantis"), "{}", answer.out);
    for words in [
        "✓ ClusterBinding worker-2 created",
        "clusterbinding.cloud.tencent.com/worker-1 condition met",
        "SyncerReady=True, SyncerReady: the syncer is available",
        "ProxierReady=True, ProxierReady: the proxier is available",
        "clusterbinding.cloud.tencent.com/worker-1 condition met",
        "node/vnode-worker-1-sim-1 condition met",
        "node/vnode-worker-2-sim-1 condition met",
        "deployment \"web\" successfully rolled out",
        "What is left there is the worker cluster's own.",
        "kubeocean.io/vnode,kubeocean.io/out-of-time-windows",
        "ConnectivityPassed   clusterbinding/worker-1",
        "Unbound: worker-2 is unbound; nothing of it is left in this cluster",
    ] {
        assert!(answer.out.contains(words), "{words:?} is not in:\n{}", answer.out);
    }
    // Where each pod of the application runs: one on each virtual node, and its twin on the node behind it.
    for node in ["sim-1", "sim-2", "sim-3"] {
        for worker in ["worker-1", "worker-2"] {
            let virtual_node = format!(" vnode-{worker}-{node} ");
            assert!(line(&answer.out, "web-", &virtual_node), "{virtual_node:?} is not in:\n{}", answer.out);
        }
        assert!(line(&answer.out, "pod/web-", &format!(" {node} ")), "{node} is not in:\n{}", answer.out);
    }
}

/// Whether a line begins so and has these words.
fn line(text: &str, begins: &str, words: &str) -> bool {
    text.lines().any(|line| line.starts_with(begins) && line.contains(words))
}

#[test]
fn every_step_works_with_real_nodes() {
    if !real_nodes() {
        return;
    }
    let answer = answer(kubeocean(["demo", "--once"]));
    assert_eq!(answer.code, Some(0), "{}{}", answer.out, answer.err);
    assert!(
        answer.out.contains("Hello from pod hello, a real container on real-1 of worker-1"),
        "{}",
        answer.out
    );
    let words = " on vnode-worker-1-real-1";
    let greets = "Hello from the ConfigMap of the computing cluster: pod web-";
    assert!(line(&answer.out, greets, words), "{}", answer.out);
    assert!(answer.out.contains("$ kubectl --context computing exec web-"), "{}", answer.out);
    assert!(line(&answer.out, "web-", "m "), "`kubectl top pod` shows millicores:\n{}", answer.out);
    assert!(
        line(&answer.out, "vnode-worker-1-real-1", "%"),
        "`kubectl top node` shows a share:\n{}",
        answer.out
    );
}

#[test]
fn a_refusal_for_another_reason_is_not_taken_for_the_right_one() {
    let directory = tempfile::tempdir().unwrap();
    let found = crate::support::succeed(["sandbox", "build", "kubectl", "--dry-run"]);
    let real = found.split_whitespace().nth(1).unwrap();
    let text = format!("case \"$*\" in *apply*) echo out of order >&2; exit 1;; esac\nexec {real} \"$@\"");
    script(&directory.path().join("kubectl"), &text);
    let mut command = kubeocean(["demo", "--once", "--simulated"]);
    command.env("KUBEOCEAN_LAB_BIN", directory.path());
    let answer = answer(command);
    assert_eq!(answer.code, Some(1), "{}", answer.err);
    assert!(answer.err.contains("step 2, sending a policy with a mistake"), "{}", answer.err);
    assert!(answer.err.contains("out of order"), "{}", answer.err);
}

#[test]
fn a_step_that_fails_is_named() {
    let directory = tempfile::tempdir().unwrap();
    script(
        &directory.path().join("etcd"),
        "[ \"$1\" = --version ] && { echo etcd Version: 3.6.16; exit; }\necho no >&2; exit 1",
    );
    let mut command = kubeocean(["demo", "--once", "--simulated"]);
    command.env("KUBEOCEAN_LAB_BIN", directory.path());
    let answer = answer(command);
    assert_eq!(answer.code, Some(1));
    assert!(answer.err.contains("step 1, starting the clusters: etcd of"), "{}", answer.err);
}

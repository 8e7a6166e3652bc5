//! The demo, as `make demo ARGS=--once` runs it.

use crate::support::{answer, is_root, kubeocean, script};

#[test]
fn every_step_works_with_simulated_nodes() {
    let answer = answer(kubeocean(["demo", "--once", "--simulated"]));
    assert_eq!(answer.code, Some(0), "{}{}", answer.out, answer.err);
    assert!(answer.out.contains("resourceleasingpolicies.cloud.tencent.com"), "{}", answer.out);
    assert!(answer.out.contains("unknown time zone Europe/Atlantis"), "{}", answer.out);
}

#[test]
fn every_step_works_with_real_nodes() {
    assert!(
        is_root() || std::env::var_os("KUBEOCEAN_WITHOUT_REAL_NODES").is_some(),
        "real nodes need root: use sudo, or set KUBEOCEAN_WITHOUT_REAL_NODES=1 to leave this out"
    );
    if !is_root() {
        return;
    }
    let answer = answer(kubeocean(["demo", "--once"]));
    assert_eq!(answer.code, Some(0), "{}{}", answer.out, answer.err);
    assert!(
        answer.out.contains("Hello from pod hello, a real container on real-1 of worker-1"),
        "{}",
        answer.out
    );
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

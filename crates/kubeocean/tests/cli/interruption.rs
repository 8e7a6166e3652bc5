//! Ctrl-C in every phase: a clear word, a code, and nothing left.

use rustix::process::Signal;

use crate::support::{Running, eventually, kubeocean, nothing_left_of, script, unique_name, up};

#[test]
fn while_programs_are_built() {
    let name = unique_name();
    let directory = tempfile::tempdir().unwrap();
    script(&directory.path().join("go"), "exec sleep 600");
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", directory.path().display());
    let mut command = kubeocean(["sandbox", "up", &name]);
    command.env("PATH", path).env("XDG_CACHE_HOME", directory.path().join("cache"));
    let mut sandbox = Running::start(command);
    sandbox.wait_for("building etcd");
    sandbox.signal(Signal::INT);
    assert_interrupted(sandbox, &name);
}

#[test]
fn while_the_first_programs_start() {
    let name = unique_name();
    let sandbox = Running::start(up(&name, "--sim-nodes 0"));
    let log = kubeocean_sandbox::sandboxes().join(&name).join("computing/logs/etcd.log");
    eventually("the first program", || log.metadata());
    sandbox.signal(Signal::INT);
    assert_interrupted(sandbox, &name);
}

#[test]
fn while_the_last_clusters_start() {
    let name = unique_name();
    let mut sandbox = Running::start(up(&name, "--sim-nodes 1"));
    sandbox.wait_for("control plane ready");
    sandbox.signal(Signal::TERM);
    assert_interrupted(sandbox, &name);
}

#[test]
fn while_it_is_left_behind() {
    let name = unique_name();
    let mut sandbox = Running::start(up(&name, "--workers 1 --sim-nodes 0 --detach --ttl 10m"));
    sandbox.wait_for("control plane ready");
    sandbox.signal(Signal::INT);
    let (status, said) = sandbox.end();
    // The last cluster may have been faster than the signal.
    if status.success() {
        crate::support::succeed(["sandbox", "down", &name]);
    } else {
        assert_eq!(status.code(), Some(130), "{said}");
    }
    nothing_left_of(&name);
}

#[test]
fn while_it_runs_is_the_normal_end() {
    let name = unique_name();
    let mut sandbox = Running::start(up(&name, "--workers 0"));
    sandbox.wait_for("Ctrl-C ends it");
    sandbox.signal(Signal::INT);
    let (status, said) = sandbox.end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert_eq!(kubeocean_sandbox::leftovers(&name), Vec::<String>::new());
}

#[test]
fn in_the_very_moment_in_which_it_is_ready() {
    for _ in 0..3 {
        let name = unique_name();
        let mut sandbox = Running::start(up(&name, "--workers 0"));
        sandbox.wait_for("control plane ready");
        sandbox.signal(Signal::INT);
        assert_interrupted(sandbox, &name);
    }
}

#[test]
fn while_a_real_node_starts() {
    if !crate::support::real_nodes() {
        return;
    }
    let name = unique_name();
    let sandbox = Running::start(up(&name, "--workers 1 --sim-nodes 0 --real-nodes 1"));
    let log = kubeocean_sandbox::sandboxes().join(&name).join("worker-1/logs/real-1.containerd.log");
    eventually("the container runtime", || log.metadata());
    sandbox.signal(Signal::INT);
    assert_interrupted(sandbox, &name);
}

fn assert_interrupted(sandbox: Running, name: &str) {
    let (status, said) = sandbox.end();
    // A cluster that became ready in the same moment is ended as one that runs.
    assert!(matches!(status.code(), Some(130 | 0)), "{status}: {said}");
    if status.code() == Some(130) {
        assert!(said.contains("interrupted; nothing is left behind"), "{said}");
    }
    assert_eq!(kubeocean_sandbox::leftovers(name), Vec::<String>::new());
}

//! A sandbox from `up` to `down`, and after worse ends.

use kubeocean_sandbox::leftovers_in;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{
    Running, answer, eventually, kubeocean, nothing_left_of, read, real_nodes, run, succeed, unique_name, up,
};

#[test]
fn a_detached_sandbox_is_shown_used_and_ended() {
    let name = unique_name();
    let summary = succeed([
        "sandbox",
        "up",
        &name,
        "--workers",
        "1",
        "--sim-nodes",
        "2",
        "--node-cpu",
        "3",
        "--detach",
        "--ttl",
        "10m",
    ]);
    let _end = EndAlways(&name);
    assert!(summary.contains("kubectl --context worker-1 get nodes"), "{summary}");

    let status = succeed(["sandbox", "status", &name]);
    assert!(status.contains(&format!("Sandbox {name}: ready, Kubernetes v1.36")), "{status}");
    let status: Value = serde_json::from_str(&succeed(["sandbox", "status", &name, "-o", "json"])).unwrap();
    assert_eq!(status["phase"], "ready");
    let health = status["health"].as_array().unwrap();
    assert_eq!(health.len(), 2);
    assert!(health.iter().all(|cluster| cluster["ready"] == true), "{status}");
    assert!(succeed(["sandbox", "list", "-o", "name"]).lines().any(|line| line == name));

    let merged = succeed(["sandbox", "kubeconfig", &name, "--merge", "--path"]);
    let nodes = [
        "sandbox",
        "kubectl",
        &name,
        "computing",
        "--kubeconfig",
        merged.trim(),
        "--context",
        "worker-1",
        "get",
        "nodes",
    ];
    let nodes = succeed(nodes);
    assert!(nodes.contains("sim-1   Ready") && nodes.contains("sim-2   Ready"), "{nodes}");
    let one = succeed(["sandbox", "kubeconfig", &name, "worker-1"]);
    let path = succeed(["sandbox", "kubeconfig", &name, "worker-1", "--path"]);
    assert_eq!(one, read(path.trim().as_ref()));
    assert!(
        succeed(["sandbox", "logs", &name, "worker-1", "kube-apiserver"]).contains("Serving securely on")
    );

    assert!(succeed(["sandbox", "logs", &name, "worker-1"]).lines().any(|line| line == "kwok"));
    assert_eq!(
        run(["sandbox", "kubectl", &name, "worker-1", "get", "nonsense"]).code,
        Some(1),
        "kubectl's own code"
    );

    let again = run(["sandbox", "up", &name]);
    assert_eq!(again.code, Some(4), "{}", again.err);
    assert!(again.err.contains(&format!("kubeocean sandbox down {name}")), "{}", again.err);
    let detached = run(["sandbox", "up", &name, "--detach"]);
    assert_eq!(detached.code, Some(4), "{}", detached.err);
    let unknown = run(["sandbox", "kubeconfig", &name, "worker-7"]);
    assert_eq!(unknown.code, Some(3));
    assert!(unknown.err.contains("has no cluster worker-7: it has computing, worker-1"), "{}", unknown.err);
    let unknown = run(["sandbox", "logs", &name, "worker-1", "kube-nothing"]);
    assert_eq!(unknown.code, Some(3));
    assert!(unknown.err.contains("runs no kube-nothing: it has etcd, kube-apiserver"), "{}", unknown.err);

    // A program that dies is seen, with the way to its log.
    let scheduler =
        status["clusters"][1]["programs"].as_array().unwrap().iter().find(|p| p["name"] == "kube-scheduler");
    let pid = i32::try_from(scheduler.unwrap()["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    eventually("the death of the scheduler in the status", || {
        let answer = run(["sandbox", "status", &name]);
        let status = answer.out;
        let told = status.contains("worker-1: not running: kube-scheduler");
        if told
            && answer.code == Some(1)
            && status.contains(&format!("kubeocean sandbox logs {name} worker-1 kube-scheduler"))
        {
            Ok(())
        } else {
            Err(status)
        }
    });

    assert!(succeed(["sandbox", "down", &name]).contains("is down"));
    nothing_left_of(&name);
    let gone = run(["sandbox", "status", &name]);
    assert_eq!(gone.code, Some(3));
    assert!(gone.err.contains(&format!("`kubeocean sandbox up {name}` starts it")), "{}", gone.err);
    assert_eq!(run(["sandbox", "down", &name]).code, Some(3));
}

/// A detached sandbox outlives a test that fails: not this one.
struct EndAlways<'a>(&'a str);

impl Drop for EndAlways<'_> {
    fn drop(&mut self) {
        run(["sandbox", "down", self.0]);
    }
}

#[test]
fn a_sandbox_whose_time_is_up_ends_by_itself() {
    let name = unique_name();
    succeed(["sandbox", "up", &name, "--workers", "0", "--detach", "--ttl", "1s"]);
    nothing_left_of(&name);
}

#[test]
fn a_killed_supervisor_leaves_nothing() {
    let name = unique_name();
    let mut sandbox = Running::start(up(&name, "--workers 1 --sim-nodes 1"));
    sandbox.wait_for("Running.");
    sandbox.signal(Signal::KILL);
    let (status, _) = sandbox.end();
    assert!(!status.success());
    nothing_left_of(&name);
}

#[test]
fn what_a_killed_supervisor_and_a_killed_janitor_leave_is_removed_by_the_next_list() {
    // A registry of its own: in the common one, another test's `list` may be faster than ours.
    let (name, root) = (unique_name(), tempfile::tempdir().unwrap());
    let in_root = |args: &[&str]| {
        let mut command = kubeocean(args);
        command.env("KUBEOCEAN_SANDBOX_DIR", root.path());
        command
    };
    let mut sandbox =
        Running::start(in_root(&["sandbox", "up", &name, "--workers", "0", "--computing-sim-nodes", "1"]));
    sandbox.wait_for("Running.");
    kill_process(janitor_of(&name), Signal::KILL).unwrap();
    sandbox.signal(Signal::KILL);
    sandbox.end();
    let left = eventually("programs that died with their parent", || {
        let left = leftovers_in(root.path(), &name);
        if left.iter().any(|thing| thing.starts_with("process")) { Err(left) } else { Ok(left) }
    });
    assert!(!left.is_empty(), "without anyone to remove it, the directory stays");
    // And what was killed while it removed a directory: no identity any more, but the name tells.
    let tag = std::fs::read_to_string(root.path().join(&name).join("identity")).unwrap();
    let half_gone = root.path().join(format!(".gone-{}.old.1-2-3", tag.split('.').next().unwrap()));
    std::fs::create_dir_all(half_gone.join("worker-1")).unwrap();
    assert_eq!(answer(in_root(&["sandbox", "list"])).code, Some(0));
    assert!(!half_gone.exists());
    assert_eq!(leftovers_in(root.path(), &name), Vec::<String>::new());
}

#[test]
fn a_supervisor_with_real_nodes_that_is_killed_leaves_nothing() {
    if !real_nodes() {
        return;
    }
    let name = unique_name();
    let mut sandbox = Running::start(up(&name, "--workers 1 --sim-nodes 0 --real-nodes 1"));
    sandbox.wait_for("Running.");
    let pod = [
        "run",
        "left-alone",
        "--image=kubeocean.local/busybox:lab",
        "--",
        "sh",
        "-c",
        "setsid sleep 1000 & exec sleep 1000",
    ];
    let mut command = kubeocean(["sandbox", "kubectl", &name, "worker-1"]);
    command.args(pod);
    assert!(command.status().unwrap().success());
    succeed([
        "sandbox",
        "kubectl",
        &name,
        "worker-1",
        "wait",
        "--for=condition=Ready",
        "--timeout=120s",
        "pod/left-alone",
    ]);
    assert!(
        kubeocean_sandbox::leftovers(&name).iter().any(|thing| thing.contains("sleep 1000")),
        "the container is seen"
    );
    sandbox.signal(Signal::KILL);
    sandbox.end();
    nothing_left_of(&name);
}

#[test]
fn what_is_not_a_sandbox_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let photos = root.path().join("photos");
    std::fs::create_dir_all(photos.join("2020")).unwrap();
    std::fs::write(root.path().join("letter"), "dear").unwrap();
    for args in
        [vec!["sandbox", "list"], vec!["sandbox", "status", "photos"], vec!["sandbox", "down", "photos"]]
    {
        let mut command = kubeocean(&args);
        command.env("KUBEOCEAN_SANDBOX_DIR", root.path());
        answer(command);
        assert!(photos.join("2020").is_dir(), "{args:?} took the photos");
        assert_eq!(std::fs::read_dir(&photos).unwrap().count(), 1, "{args:?} put something there");
    }
    for name in ["photos", "letter"] {
        let mut command = kubeocean(["sandbox", "up", name]);
        command.env("KUBEOCEAN_SANDBOX_DIR", root.path());
        let refused = answer(command);
        assert_eq!(refused.code, Some(4), "{}", refused.err);
        assert!(refused.err.contains("is there and is not a sandbox"), "{}", refused.err);
    }
}

#[test]
fn without_its_janitor_a_sandbox_goes_all_the_same() {
    let name = unique_name();
    succeed(["sandbox", "up", &name, "--workers", "0", "--detach", "--ttl", "10m"]);
    let _end = EndAlways(&name);
    kill_process(janitor_of(&name), Signal::KILL).unwrap();
    succeed(["sandbox", "down", &name]);
    assert_eq!(kubeocean_sandbox::leftovers(&name), Vec::<String>::new());
}

#[test]
fn a_sandbox_whose_directory_was_deleted_ends_by_itself() {
    let name = unique_name();
    let mut sandbox = Running::start(up(&name, "--workers 0"));
    sandbox.wait_for("Running.");
    std::fs::remove_dir_all(kubeocean_sandbox::sandboxes().join(&name)).unwrap();
    sandbox.end();
    nothing_left_of(&name);
}

fn janitor_of(name: &str) -> Pid {
    let ending = format!("/{name}");
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .find_map(|process| {
            let command = std::fs::read_to_string(process.path().join("cmdline")).ok()?;
            let arguments: Vec<_> = command.split('\0').collect();
            let ours = arguments.contains(&"janitor")
                && arguments.iter().any(|argument| argument.ends_with(&ending));
            Pid::from_raw(process.file_name().to_str()?.parse().ok().filter(|_| ours)?)
        })
        .expect("a janitor")
}

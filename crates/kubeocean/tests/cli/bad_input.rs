//! Wrong names, missing rights, full disks, broken programs: a message with the fix, a code, nothing left.

use std::process::Command;

use crate::support::{answer, is_root, kubeocean, run, script, unique_name};

#[test]
fn names_and_numbers_that_cannot_be() {
    for (args, fix) in [
        (vec!["sandbox", "up", "No_Good"], "use 1 to 20 of a-z, 0-9 and -"),
        (vec!["sandbox", "up", "../../etc"], "use 1 to 20 of a-z, 0-9 and -"),
        (vec!["sandbox", "up", "many", "--workers", "17"], "at most 16"),
        (vec!["sandbox", "up", "many", "--sim-nodes", "2001"], "at most 2000"),
        (vec!["sandbox", "up", "many", "--node-cpu", "lots"], "use a quantity such as 8, 500m or 32Gi"),
        (vec!["sandbox", "up", "old", "--kubernetes", "1.12"], "it has 1.36"),
        (
            vec!["sandbox", "up", "img", "--real-nodes", "1", "--image", "/no/such.tar"],
            "/no/such.tar is not a file",
        ),
        (vec!["sandbox", "up", "img", "--image", "/bin/sh"], "images are for real nodes"),
        (vec!["sandbox", "up", "port", "--api-port", "0"], "0 is not in 1..=65000"),
        (vec!["sandbox", "build", "kube-nothing"], "the lab knows etcd, kube-apiserver"),
        (vec!["sandbox", "down", "Nobody!"], "use 1 to 20 of a-z, 0-9 and -"),
    ] {
        let answer = answer(kubeocean(&args));
        assert_eq!(answer.code, Some(2), "{args:?}: {}", answer.err);
        assert!(answer.err.contains(fix), "{args:?}: {}", answer.err);
    }
}

#[test]
fn a_sandbox_that_is_not_up_is_named_with_those_that_are() {
    let answer = run(["sandbox", "status", "nobody"]);
    assert_eq!(answer.code, Some(3));
    assert!(answer.err.contains("no sandbox nobody is up"), "{}", answer.err);
}

#[test]
fn a_program_that_dies_at_start_is_shown_with_its_last_words() {
    let (name, directory) = (unique_name(), tempfile::tempdir().unwrap());
    let text = "[ \"$1\" = --version ] && { echo Kubernetes v1.36.0; exit; }\necho 'F0 this disk is haunted' >&2\nexit 3";
    script(&directory.path().join("kube-apiserver"), text);
    let mut command = kubeocean(["sandbox", "up", &name, "--workers", "0"]);
    command.env("KUBEOCEAN_LAB_BIN", directory.path());
    let answer = answer(command);
    assert_eq!(answer.code, Some(1), "{}", answer.err);
    assert!(answer.err.contains("kube-apiserver of computing ended (exit status: 3)"), "{}", answer.err);
    assert!(answer.err.contains("this disk is haunted"), "{}", answer.err);
    assert_eq!(kubeocean_sandbox::leftovers(&name), Vec::<String>::new());
}

#[test]
fn a_program_that_dies_later_is_told_too() {
    let (name, directory) = (unique_name(), tempfile::tempdir().unwrap());
    let text = "[ \"$1\" = --version ] && { echo kwok version v0.8.0; exit; }\nsleep 2; echo 'tired of pretending' >&2\nexit 4";
    script(&directory.path().join("kwok"), text);
    let mut command = kubeocean(["sandbox", "up", &name, "--workers", "0", "--computing-sim-nodes", "1"]);
    command.env("KUBEOCEAN_LAB_BIN", directory.path());
    let answer = answer(command);
    assert_eq!(answer.code, Some(1), "{}", answer.err);
    assert!(answer.err.contains("kwok of computing ended (exit status: 4)"), "{}", answer.err);
    assert!(answer.err.contains("tired of pretending"), "{}", answer.err);
    assert_eq!(kubeocean_sandbox::leftovers(&name), Vec::<String>::new());
}

#[test]
fn a_path_that_is_too_long_for_sockets() {
    let directory = tempfile::tempdir().unwrap();
    let long = directory.path().join("x".repeat(100));
    let mut command = kubeocean(["sandbox", "up", "deep", "--workers", "0"]);
    command.env("KUBEOCEAN_SANDBOX_DIR", &long);
    let answer = answer(command);
    assert_eq!(answer.code, Some(2), "{}", answer.err);
    assert!(answer.err.contains("set KUBEOCEAN_SANDBOX_DIR to a shorter directory"), "{}", answer.err);
    assert!(!long.join("deep").exists());
}

/// A command that runs as a user without rights, with a home of its own.
fn as_nobody(home: &std::path::Path, args: &[&str]) -> Command {
    let binary = home.join("kubeocean");
    if !binary.exists() {
        std::fs::copy(env!("CARGO_BIN_EXE_kubeocean"), &binary).unwrap();
    }
    let mut command = if is_root() {
        let status = Command::new("chown").args(["-R", "65534:65534"]).arg(home).status().unwrap();
        assert!(status.success());
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(binary);
        command
    } else {
        Command::new(binary)
    };
    command.args(args).env("HOME", home).env_remove("XDG_CACHE_HOME").env_remove("XDG_STATE_HOME");
    command.current_dir("/").stdin(std::process::Stdio::null());
    command
}

#[test]
fn real_nodes_without_root() {
    let home = tempfile::tempdir().unwrap();
    let answer = answer(as_nobody(home.path(), &["sandbox", "up", "mine", "--real-nodes", "1"]));
    assert_eq!(answer.code, Some(5), "{}", answer.err);
    assert!(answer.err.contains("you are not root: use `sudo`, or `--real-nodes 0`"), "{}", answer.err);
    assert!(!home.path().join(".local/state/kubeocean/sandboxes/mine").exists());
}

#[test]
fn without_root_simulated_nodes_run_all_the_same() {
    let home = tempfile::tempdir().unwrap();
    let programs = home.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    // The cache of whoever runs the tests may not be readable for everyone.
    let found = crate::support::succeed(["sandbox", "build", "--dry-run"]);
    for line in found.lines().filter(|line| !line.starts_with("not used:")) {
        let mut words = line.split_whitespace();
        let (name, path) = (words.next().unwrap(), words.next().unwrap());
        std::fs::copy(path, programs.join(name)).unwrap();
    }
    let mut command = as_nobody(
        home.path(),
        &[
            "sandbox",
            "up",
            "mine",
            "--workers",
            "0",
            "--computing-sim-nodes",
            "1",
            "--detach",
            "--ttl",
            "10m",
        ],
    );
    command.env("KUBEOCEAN_LAB_BIN", &programs);
    let up = answer(command);
    assert_eq!(up.code, Some(0), "{}", up.err);
    assert!(up.out.contains("sim-1"), "{}", up.out);
    // Pods run, and a Service finds them.
    for args in [vec!["run", "web", "--image=x", "--port=80"], vec!["expose", "pod", "web"]] {
        let args = [vec!["sandbox", "kubectl", "mine", "computing"], args].concat();
        let made = answer(as_nobody(home.path(), &args));
        assert_eq!(made.code, Some(0), "{}", made.err);
    }
    crate::support::eventually("an endpoint", || {
        let slices = [
            "sandbox",
            "kubectl",
            "mine",
            "computing",
            "get",
            "endpointslices",
            "-l",
            "kubernetes.io/service-name=web",
            "-o",
            "jsonpath={.items[*].endpoints[*].addresses}",
        ];
        let found = answer(as_nobody(home.path(), &slices));
        if found.out.contains("240.") { Ok(()) } else { Err(found) }
    });
    let down = answer(as_nobody(home.path(), &["sandbox", "down", "mine"]));
    assert_eq!(down.code, Some(0), "{}", down.err);
    assert!(!home.path().join(".local/state/kubeocean/sandboxes/mine").exists());
}

#[test]
fn a_full_disk_is_noticed_before_anything_is_started() {
    if !crate::support::real_nodes() {
        return; // A small disk is made by mounting one, which needs root too.
    }
    let directory = tempfile::tempdir().unwrap();
    // A mount that only this command sees, and that goes with it.
    let mount = format!(
        "mount -t tmpfs -o size=64m tmpfs {0} && KUBEOCEAN_SANDBOX_DIR={0} {1} sandbox up small; code=$?; ls {0}; exit $code",
        directory.path().display(),
        env!("CARGO_BIN_EXE_kubeocean")
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &mount]);
    let answer = answer(command);
    assert_eq!(answer.code, Some(5), "{}", answer.err);
    assert!(answer.err.contains("MiB are free on the disk of"), "{}", answer.err);
    assert!(
        answer.err.contains("set KUBEOCEAN_SANDBOX_DIR to a directory on a larger disk"),
        "{}",
        answer.err
    );
    assert_eq!(answer.out, "", "the directory is empty again");
}

//! Where the programs come from, when something is wrong with where they come from.

use std::path::Path;

use crate::support::{Running, answer, kubeocean, read, script, succeed};

#[test]
fn without_go_the_three_ways_to_provide_the_programs_are_named() {
    let empty = tempfile::tempdir().unwrap();
    let mut command = kubeocean(["sandbox", "build", "etcd", "kwok"]);
    command.env("PATH", empty.path()).env("XDG_CACHE_HOME", empty.path());
    let answer = answer(command);
    assert_eq!(answer.code, Some(5), "{}", answer.err);
    for words in [
        "etcd, kwok not found",
        "needed: etcd v3.6.16, kwok v0.8.0",
        "install Go",
        "KUBEOCEAN_LAB_BIN",
        "copy the cache",
    ] {
        assert!(answer.err.contains(words), "{words} is not in: {}", answer.err);
    }
}

#[test]
fn without_a_network_the_message_says_so() {
    let empty = tempfile::tempdir().unwrap();
    let mut command = kubeocean(["sandbox", "build", "etcd"]);
    command.env("XDG_CACHE_HOME", empty.path().join("cache")).env("GOMODCACHE", empty.path().join("modules"));
    command.env("GOPROXY", "off");
    let answer = answer(command);
    assert_eq!(answer.code, Some(1), "{}", answer.err);
    assert!(answer.err.contains("the Go module proxy cannot be reached"), "{}", answer.err);
    assert!(answer.err.contains("KUBEOCEAN_LAB_BIN"), "{}", answer.err);
}

#[test]
fn a_wrong_version_on_the_path_is_passed_over_and_named() {
    let directory = tempfile::tempdir().unwrap();
    script(&directory.path().join("etcd"), "echo etcd Version: 3.4.23");
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let mut command = kubeocean(["sandbox", "build", "etcd", "--dry-run"]);
    command.env("PATH", path);
    let answer = answer(command);
    assert_eq!(answer.code, Some(0));
    assert!(answer.out.contains("is v3.4.23, not v3.6"), "{}", answer.out);
    assert!(answer.out.contains("(cache)"), "{}", answer.out);
}

#[test]
fn a_wrong_version_in_a_directory_that_was_named_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    script(&directory.path().join("kubelet"), "echo Kubernetes v1.20.1");
    let mut command = kubeocean(["sandbox", "build", "kubelet"]);
    command.env("KUBEOCEAN_LAB_BIN", directory.path());
    let answer = answer(command);
    assert_eq!(answer.code, Some(5));
    let fix = "KUBEOCEAN_LAB_BIN has kubelet v1.20.1, but v1.36 is needed: put the right one there, or unset KUBEOCEAN_LAB_BIN";
    assert!(answer.err.contains(fix), "{}", answer.err);
}

/// A cache with one program, copied from the real one and then damaged.
fn damaged_cache(damage: impl FnOnce(Vec<u8>) -> Vec<u8>) -> tempfile::TempDir {
    let found = succeed(["sandbox", "build", "etcd", "--dry-run"]);
    assert!(
        found.contains("(cache)"),
        "another etcd is preferred to the cache's, take it out of PATH: {found}"
    );
    let etcd = Path::new(found.split_whitespace().nth(1).unwrap());
    let home = tempfile::tempdir().unwrap();
    let copy = home.path().join("kubeocean/lab").join(etcd.parent().unwrap().file_name().unwrap());
    std::fs::create_dir_all(&copy).unwrap();
    std::fs::copy(etcd.with_extension("json"), copy.join("etcd.json")).unwrap();
    std::fs::write(copy.join("etcd"), damage(std::fs::read(etcd).unwrap())).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(copy.join("etcd"), executable).unwrap();
    home
}

#[test]
fn a_truncated_program_in_the_cache_would_be_built_again() {
    let home = damaged_cache(|_| b"truncated".to_vec());
    let mut command = kubeocean(["sandbox", "build", "etcd", "--dry-run"]);
    command.env("XDG_CACHE_HOME", home.path());
    let answer = answer(command);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    assert!(answer.out.contains("has 9 bytes instead of"), "{}", answer.out);
    assert!(answer.out.contains("would be built"), "{}", answer.out);
}

#[test]
fn a_damaged_program_of_the_right_size_is_removed_when_it_does_not_start() {
    let home = damaged_cache(|bytes| vec![b'#'; bytes.len()]);
    // The others come from where they are.
    let found = succeed(["sandbox", "build", "--dry-run"]);
    let programs = tempfile::tempdir().unwrap();
    for line in found.lines().filter(|line| !line.starts_with("not used:") && !line.starts_with("etcd ")) {
        let mut words = line.split_whitespace();
        let (name, path) = (words.next().unwrap(), words.next().unwrap());
        std::os::unix::fs::symlink(path, programs.path().join(name)).unwrap();
    }
    let name = crate::support::unique_name();
    let mut command = kubeocean(["sandbox", "up", &name, "--workers", "0"]);
    command.env("XDG_CACHE_HOME", home.path()).env("KUBEOCEAN_LAB_BIN", programs.path());
    let answer = answer(command);
    assert_eq!(answer.code, Some(1), "{}", answer.err);
    assert!(answer.err.contains("has another content than when it was built"), "{}", answer.err);
    assert!(answer.err.contains("run the command again, and it is built anew"), "{}", answer.err);
    assert_eq!(kubeocean_sandbox::leftovers(&name), Vec::<String>::new());
}

/// A toolchain that builds anything as soon as the file `go-on` exists, and counts how often it was asked.
fn slow_go(directory: &Path) {
    let text = format!(
        "echo asked >>{0}/asked\nwhile [ ! -e {0}/go-on ]; do sleep 0.05; done\n\
         while [ \"$1\" != -o ]; do shift; done\ncp /bin/true \"$2\"",
        directory.display()
    );
    script(&directory.join("go"), &text);
}

#[test]
fn two_builds_at_once_build_once() {
    let directory = tempfile::tempdir().unwrap();
    slow_go(directory.path());
    let build = || {
        let mut command = kubeocean(["sandbox", "build", "etcd"]);
        command.env("PATH", format!("{}:/usr/bin:/bin", directory.path().display()));
        command.env("XDG_CACHE_HOME", directory.path().join("cache"));
        Running::start(command)
    };
    let mut first = build();
    first.wait_for("building etcd");
    let mut second = build();
    second.wait_for("waiting for another build");
    std::fs::write(directory.path().join("go-on"), "").unwrap();
    for build in [first, second] {
        let (status, said) = build.end();
        assert!(status.success(), "{said}");
    }
    assert_eq!(read(&directory.path().join("asked")), "asked\n");
    // And what is in the cache is not built again.
    let (status, _) = build().end();
    assert!(status.success());
    assert_eq!(read(&directory.path().join("asked")), "asked\n");
}

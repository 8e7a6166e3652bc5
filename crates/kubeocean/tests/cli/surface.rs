//! Help, versions, exit codes, and what is printed for machines.

use std::path::Path;

use crate::support::{run, succeed};

#[test]
fn help_names_every_command_and_the_exit_codes() {
    let help = succeed(["--help"]);
    for word in [
        "crds",
        "manager",
        "worker-manifest",
        "worker-kubeconfig",
        "bind",
        "unbind",
        "sandbox",
        "demo",
        "completions",
        "Exit codes:",
        "130",
    ] {
        assert!(help.contains(word), "{word} is not in:\n{help}");
    }
    let help = succeed(["sandbox", "--help"]);
    for word in ["up", "status", "down", "list", "kubeconfig", "kubectl", "logs", "doctor", "build"] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(word)), "{word} is not in:\n{help}");
    }
}

#[test]
fn without_a_command_help_is_shown_and_the_code_says_that_something_is_missing() {
    let answer = run([]);
    assert_eq!(answer.code, Some(2));
    assert!(answer.err.contains("Usage: kubeocean <COMMAND>"), "{}", answer.err);
}

#[test]
fn the_version_names_the_commit() {
    let version = succeed(["--version"]);
    assert!(version.starts_with(concat!("kubeocean ", env!("CARGO_PKG_VERSION"), " (commit ")), "{version}");
}

#[test]
fn the_components_are_programs_of_their_own_too() {
    for (program, component) in [
        (env!("CARGO_BIN_EXE_kubeocean-manager"), "manager"),
        (env!("CARGO_BIN_EXE_kubeocean-syncer"), "syncer"),
    ] {
        let run = |arg: &str| {
            let output = std::process::Command::new(program).arg(arg).output().unwrap();
            assert!(output.status.success(), "{program} {arg}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        let version = run("--version");
        assert!(
            version.starts_with(&format!("kubeocean-{component} {}", env!("CARGO_PKG_VERSION"))),
            "{version}"
        );
        let help = run("--help");
        let flags = |text: &str| -> Vec<String> {
            let words = text.split_whitespace().filter(|word| word.starts_with("--"));
            words
                .map(|word| word.trim_end_matches([',', '.']).to_owned())
                .filter(|word| word != "--version")
                .collect()
        };
        assert_eq!(flags(&help), flags(&succeed([component, "--help"])), "{component}: both take the same");
    }
}

#[test]
fn the_definitions_are_the_committed_ones() {
    let printed = succeed(["crds", "--group", "ocean"]);
    assert_eq!(printed, succeed(["crds"]), "there is one group today");
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/crd");
    let committed = ["clusterbindings.yaml", "resourceleasingpolicies.yaml"]
        .map(|file| std::fs::read_to_string(directory.join(file)).unwrap())
        .join("---\n");
    assert_eq!(printed, committed, "write them anew with UPDATE_GOLDEN=1 cargo test -p kubeocean-api");
}

#[test]
fn definitions_are_printed_for_machines_too() {
    let list: serde_json::Value = serde_json::from_str(&succeed(["crds", "-o", "json"])).unwrap();
    assert_eq!(list["kind"], "List");
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    let names = succeed(["crds", "-o", "name"]);
    assert!(
        names.contains("customresourcedefinition.apiextensions.k8s.io/clusterbindings.cloud.tencent.com")
    );
    let answer = run(["crds", "--group", "sea"]);
    assert_eq!(answer.code, Some(2));
    assert!(answer.err.contains("there is no group `sea`: choose one of ocean"), "{}", answer.err);
}

#[test]
fn shells_get_their_completions() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(succeed(["completions", shell]).contains("kubeocean"), "{shell}");
    }
}

#[test]
fn make_installs_the_packages_that_the_doctor_names() {
    let makefile = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Makefile")).unwrap();
    let line = makefile.lines().find_map(|line| line.strip_prefix("PACKAGES := ")).unwrap();
    assert_eq!(line, kubeocean_sandbox::doctor::PACKAGES);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let binary = env!("CARGO_BIN_EXE_kubeocean");
    let script =
        format!("set -o pipefail; {binary} crds | true; {binary} sandbox doctor | true; {binary} --help >&-");
    let output = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("panicked"), "{said}");
}

#[test]
fn the_doctor_looks_at_everything() {
    let checks: serde_json::Value =
        serde_json::from_str(&succeed(["sandbox", "doctor", "-o", "json"])).unwrap();
    let looked_at: Vec<_> =
        checks.as_array().unwrap().iter().map(|check| check["what"].as_str().unwrap()).collect();
    for what in ["setpriv", "root", "containerd", "kube-apiserver", "etcd", "inotify instances"] {
        assert!(looked_at.contains(&what), "{what} is not in {looked_at:?}");
    }
}

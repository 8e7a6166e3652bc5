//! What `kubeocean bind` says before it writes anything, about what is seldom wrong.

use crate::bind::{PLACE, Place, refused};

/// A file with a token of a service account of the computing cluster, instead of the certificate of its administrator.
fn kubeconfig_of(place: &Place, account: &str) -> String {
    let token = place.kubectl("computing", &["-n", "default", "create", "token", account]);
    let of_admin = std::fs::read_to_string(place.directory.join("kubeconfig/computing.yaml")).unwrap();
    let of_account =
        of_admin.lines().filter(|line| !line.contains("client-key-data:")).map(|line| {
            match line.split_once("client-certificate-data:") {
                Some((indent, _)) => format!("{indent}token: {}\n", token.trim()),
                None => format!("{line}\n"),
            }
        });
    let name = format!("{account}.kubeconfig");
    place.file(&name, &of_account.collect::<String>());
    name
}

#[test]
fn who_may_not_write_is_told_before_anything_is_written() {
    let place = &*PLACE;
    place.kubectl("computing", &["-n", "default", "create", "serviceaccount", "looker"]);
    let reads = "--verb=get,list";
    let what = "--resource=clusterbindings.cloud.tencent.com,resourceleasingpolicies.cloud.tencent.com,secrets,namespaces,leases.coordination.k8s.io";
    place.kubectl("computing", &["create", "clusterrole", "looker", reads, what]);
    let bound =
        ["create", "clusterrolebinding", "looker", "--clusterrole=looker", "--serviceaccount=default:looker"];
    place.kubectl("computing", &bound);
    let file = kubeconfig_of(place, "looker");
    let answer = place.run(&[
        "bind",
        "looked-at",
        "--worker-kubeconfig",
        "worker-1.kubeconfig",
        "--kubeconfig",
        &file,
    ]);
    let missing = [
        "your rights        you may not create secrets in namespace kubeocean-system",
        "create clusterbindings.cloud.tencent.com cluster-wide, patch secrets in namespace kubeocean-system",
        "patch clusterbindings.cloud.tencent.com cluster-wide: use another --kubeconfig or --context",
    ];
    refused(place, "looked-at", &answer, &missing);
    assert!(answer.err.contains("error: one thing has to be repaired first"), "{}", answer.err);
}

#[test]
fn a_mount_namespace_that_is_strict_or_shared_is_told_of() {
    let place = &*PLACE;
    let admin = "kubeconfig/worker-1.yaml";
    place.kubectl("worker-1", &["create", "namespace", "strict"]);
    place.kubectl(
        "worker-1",
        &["label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted"],
    );
    let strict = place.bind("strict", admin, &["--mount-namespace", "strict", "--dry-run"]);
    assert_eq!(strict.code, Some(0), "{}", strict.err);
    let words = "! pod security       strict enforces restricted: pods that do not say that they run without root are refused there";
    assert!(strict.err.contains(words), "{}", strict.err);

    let first = place.bind("first", admin, &["--mount-namespace", "strict"]);
    assert_eq!(first.code, Some(0), "{}", first.err);
    let second = place.bind("second", admin, &["--mount-namespace", "strict", "--dry-run"]);
    assert_eq!(second.code, Some(0), "{}", second.err);
    let words = "! mount namespace    strict is also used by first: each can read all of it; use another --mount-namespace unless";
    assert!(second.err.contains(words), "{}", second.err);
    let gone = place.unbind("first", &[]);
    assert_eq!(gone.code, Some(0), "{}", gone.err);
}

#[test]
fn a_manager_without_pods_is_told_of() {
    let place = &*PLACE;
    place.kubectl("computing", &["create", "namespace", "elsewhere"]);
    let deployment =
        ["-n", "elsewhere", "create", "deployment", "kubeocean-manager", "--image=x", "--replicas=0"];
    place.kubectl("computing", &deployment);
    let answer = place.bind("idle", "worker-1", &["--namespace", "elsewhere", "--dry-run"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    let words = "! manager            Deployment elsewhere/kubeocean-manager has no available pod: see kubectl -n elsewhere describe pods";
    assert!(answer.err.contains(words), "{}", answer.err);
    assert!(!place.exists("idle"));
}

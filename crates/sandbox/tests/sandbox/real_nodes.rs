//! Real nodes: containers run, and everything that people do with pods works.

use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;

use kubeocean_sandbox::{BUSYBOX_IMAGE, Cluster, Sandbox, Spec, doctor};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{eventually, kubectl, kubectl_with, nothing_left_of};

/// These tests need root and a few Debian packages. Without them they fail and say which; whoever wants
/// the other tests alone says so.
pub(crate) fn possible() -> bool {
    if std::env::var_os("KUBEOCEAN_WITHOUT_REAL_NODES").is_some() {
        // Not captured, as what `eprintln!` says would be.
        let _ = writeln!(
            std::io::stderr(),
            "NOT RUN, because KUBEOCEAN_WITHOUT_REAL_NODES is set: a test of real nodes"
        );
        return false;
    }
    if let Err(error) = doctor::require_real_nodes(3, 2) {
        panic!(
            "{error}\n`make test` as root installs all of it; KUBEOCEAN_WITHOUT_REAL_NODES=1 leaves these tests out"
        );
    }
    true
}

/// One sandbox for the tests that only use it.
async fn sandbox() -> Arc<Sandbox> {
    Sandbox::shared("real nodes", || Spec::new().workers(2, 0, 1)).await.unwrap()
}

pub(crate) fn pod(name: &str, spec: &Value) -> String {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "labels": { "app": name }, "annotations": { "note": "from the test" } },
        "spec": {
            "nodeName": "real-1",
            "terminationGracePeriodSeconds": 20,
            "containers": [{ "name": "main", "image": BUSYBOX_IMAGE, "imagePullPolicy": "Never" }],
        },
    });
    merge(&mut pod["spec"], spec);
    pod.to_string()
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(from)) if into.len() == from.len() => {
            into.iter_mut().zip(from).for_each(|(into, from)| merge(into, from));
        }
        (into, from) => *into = from.clone(),
    }
}

/// A script that serves until it is told to end, and then says so.
fn server(page: &str) -> Value {
    let script = format!(
        "mkdir -p /tmp/www; echo '{page}' >/tmp/www/index.html; trap 'echo got TERM; exit 0' TERM; \
         httpd -p 8080 -h /tmp/www; echo serving; while :; do sleep 1 & wait $!; done"
    );
    json!({ "containers": [{ "command": ["sh", "-c", script] }] })
}

pub(crate) async fn run(cluster: &Cluster, name: &str, spec: &Value) {
    kubectl_with(cluster, &["apply", "-f", "-"], &pod(name, spec)).await.unwrap();
    let name = format!("pod/{name}");
    kubectl(cluster, &["wait", "--for=condition=Ready", "--timeout=120s", &name]).await.unwrap();
}

async fn log_says(cluster: &Cluster, pod: &str, words: &str) {
    eventually("the log", async || match kubectl(cluster, &["logs", pod]).await {
        Ok(log) if log.contains(words) => Ok(()),
        other => Err(other),
    })
    .await;
}

#[tokio::test]
async fn logs_exec_cp_and_port_forward_work() {
    if !possible() {
        return;
    }
    let sandbox = sandbox().await;
    let cluster = sandbox.cluster("worker-1").unwrap();
    run(cluster, "tools", &server("forwarded")).await;
    log_says(cluster, "tools", "serving").await;

    let hostname = kubectl(cluster, &["exec", "tools", "--", "hostname"]).await.unwrap();
    assert_eq!(hostname.trim(), "tools");
    let echoed = kubectl_with(cluster, &["exec", "-i", "tools", "--", "tr", "a-z", "A-Z"], "stdin goes in")
        .await
        .unwrap();
    assert_eq!(echoed, "STDIN GOES IN");
    let failure = kubectl(cluster, &["exec", "tools", "--", "sh", "-c", "exit 7"]).await.unwrap_err();
    assert!(failure.contains("exit code 7"), "{failure}");

    let directory = tempfile::tempdir().unwrap();
    let (there, back) = (directory.path().join("there"), directory.path().join("back"));
    let content: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    std::fs::write(&there, &content).unwrap();
    kubectl(cluster, &["cp", there.to_str().unwrap(), "tools:/tmp/file"]).await.unwrap();
    kubectl(cluster, &["cp", "tools:/tmp/file", back.to_str().unwrap()]).await.unwrap();
    assert!(std::fs::read(&back).unwrap() == content, "the file came back changed");

    let mut forward = cluster.kubectl();
    forward.args(["port-forward", "pod/tools", ":8080"]).stdout(Stdio::piped());
    let mut forward = forward.spawn().unwrap();
    let mut lines = tokio::io::BufReader::new(forward.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    let port: u16 =
        line.split([':', ' ']).find_map(|word| word.parse().ok()).unwrap_or_else(|| panic!("{line}"));
    assert!(http_get(port).await.ends_with("forwarded\n"));
    forward.kill().await.unwrap();
}

async fn http_get(port: u16) -> String {
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_container_sees_config_secrets_its_token_itself_and_scratch_space() {
    if !possible() {
        return;
    }
    let sandbox = sandbox().await;
    let cluster = sandbox.cluster("worker-1").unwrap();
    kubectl(cluster, &["create", "configmap", "settings", "--from-literal=color=blue"]).await.unwrap();
    kubectl(cluster, &["create", "secret", "generic", "password", "--from-literal=word=open sesame"])
        .await
        .unwrap();
    let script = "cat /config/color; echo; cat /secret/word; echo; cat /me/labels; echo; cat /me/note; echo; \
                  echo $NODE $COLOR; echo kept >/scratch/x; cat /scratch/x; \
                  cut -d. -f2 /token/token | tr '_-' '/+' | base64 -d 2>/dev/null; echo; exec sleep 3600";
    let spec = json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "command": ["sh", "-c", script],
            "env": [
                { "name": "NODE", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
                { "name": "COLOR", "valueFrom": { "configMapKeyRef": { "name": "settings", "key": "color" } } },
            ],
            "volumeMounts": [
                { "name": "config", "mountPath": "/config" },
                { "name": "secret", "mountPath": "/secret" },
                { "name": "me", "mountPath": "/me" },
                { "name": "scratch", "mountPath": "/scratch" },
                { "name": "token", "mountPath": "/token" },
            ],
        }],
        "volumes": [
            { "name": "config", "configMap": { "name": "settings" } },
            { "name": "secret", "secret": { "secretName": "password" } },
            { "name": "me", "downwardAPI": { "items": [
                { "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } },
                { "path": "note", "fieldRef": { "fieldPath": "metadata.annotations['note']" } },
            ] } },
            { "name": "scratch", "emptyDir": { "medium": "Memory" } },
            { "name": "token", "projected": { "sources": [
                { "serviceAccountToken": { "path": "token", "audience": "the-test", "expirationSeconds": 600 } },
            ] } },
        ],
    });
    run(cluster, "inside", &spec).await;
    for words in [
        "blue\nopen sesame\n",
        "app=\"inside\"",
        "from the test\nreal-1 blue\nkept\n",
        "\"aud\":[\"the-test\"]",
        "\"sub\":\"system:serviceaccount:default:default\"",
    ] {
        log_says(cluster, "inside", words).await;
    }
}

#[tokio::test]
async fn a_service_is_reached_by_address_and_by_name_and_so_is_the_api_server() {
    if !possible() {
        return;
    }
    let sandbox = sandbox().await;
    let cluster = sandbox.cluster("worker-1").unwrap();
    run(cluster, "backend", &server("the backend")).await;
    run(
        cluster,
        "client",
        &json!({ "terminationGracePeriodSeconds": 1, "containers": [{ "command": ["sleep", "3600"] }] }),
    )
    .await;
    kubectl(cluster, &["expose", "pod", "backend", "--port=80", "--target-port=8080"]).await.unwrap();
    let address =
        kubectl(cluster, &["get", "service", "backend", "-o", "jsonpath={.spec.clusterIP}"]).await.unwrap();
    for host in [address.as_str(), "backend.default.svc.cluster.local", "backend"] {
        // kube-proxy and CoreDNS learn of a new Service a moment after the API server does.
        eventually(host, async || {
            let url = format!("http://{host}/");
            match kubectl(cluster, &["exec", "client", "--", "wget", "-q", "-O-", &url]).await {
                Ok(page) if page == "the backend\n" => Ok(()),
                other => Err(other),
            }
        })
        .await;
    }
    // A pod that reaches itself through its own Service.
    let itself = format!("http://{address}/");
    let page = kubectl(cluster, &["exec", "backend", "--", "wget", "-q", "-O-", &itself]).await.unwrap();
    assert_eq!(page, "the backend\n");
    // The API server by its Service.
    let ask = "nc -w 5 kubernetes.default.svc 443 </dev/null && echo reached";
    let reached = kubectl(cluster, &["exec", "client", "--", "sh", "-c", ask]).await.unwrap();
    assert_eq!(reached.trim(), "reached");
}

#[tokio::test]
async fn a_deleted_pod_is_asked_to_end_and_is_given_its_time() {
    if !possible() {
        return;
    }
    let sandbox = sandbox().await;
    let cluster = sandbox.cluster("worker-2").unwrap();
    run(cluster, "graceful", &server("x")).await;
    log_says(cluster, "graceful", "serving").await;
    let mut follow = cluster.kubectl();
    follow.args(["logs", "-f", "graceful"]).stdout(Stdio::piped());
    let follow = follow.spawn().unwrap();
    kubectl(cluster, &["delete", "pod", "graceful", "--wait=true"]).await.unwrap();
    let log = follow.wait_with_output().await.unwrap().stdout;
    let log = String::from_utf8_lossy(&log);
    assert!(log.contains("got TERM"), "{log}");
    let gone = kubectl(cluster, &["get", "pod", "graceful"]).await.unwrap_err();
    assert!(gone.contains("not found"), "{gone}");
}

#[tokio::test]
async fn pods_of_all_clusters_reach_each_other_until_the_network_is_cut() {
    if !possible() {
        return;
    }
    let sandbox = Sandbox::start(Spec::new().workers(2, 0, 1)).await.unwrap();
    let (one, two) = (sandbox.cluster("worker-1").unwrap(), sandbox.cluster("worker-2").unwrap());
    run(two, "far", &server("from afar")).await;
    run(one, "near", &json!({ "containers": [{ "command": ["sleep", "3600"] }] })).await;
    let far = kubectl(two, &["get", "pod", "far", "-o", "jsonpath={.status.podIP}"]).await.unwrap();
    let fetch = format!("http://{far}:8080/");
    let get =
        async || kubectl(one, &["exec", "near", "--", "timeout", "3", "wget", "-q", "-O-", &fetch]).await;
    eventually("the far pod", get).await;
    // The flat network reaches the other clusters' API servers too.
    let computing = sandbox.cluster("computing").unwrap().kubeconfig();
    let server =
        computing.lines().find_map(|line| line.trim().strip_prefix("server: https://")).unwrap().to_owned();
    let (host, port) = server.split_once(':').unwrap();
    let knock = format!("nc -w 3 {host} {port} </dev/null && echo open");
    assert_eq!(kubectl(one, &["exec", "near", "--", "sh", "-c", &knock]).await.unwrap().trim(), "open");

    sandbox.cut("worker-1", "worker-2").await.unwrap();
    get().await.unwrap_err();
    assert_eq!(kubectl(one, &["exec", "near", "--", "sh", "-c", &knock]).await.unwrap().trim(), "open");
    sandbox.cut("worker-1", "computing").await.unwrap();
    kubectl(one, &["exec", "near", "--", "sh", "-c", &knock]).await.unwrap_err();
    sandbox.heal("worker-1", "computing").await.unwrap();
    sandbox.heal("worker-1", "computing").await.expect("healing what is whole is no mistake");
    sandbox.heal("worker-1", "worker-2").await.unwrap();
    eventually("the far pod after healing", get).await;
    assert_eq!(kubectl(one, &["exec", "near", "--", "sh", "-c", &knock]).await.unwrap().trim(), "open");

    // Nothing of a sandbox leaves the machine: there is no way out of a node.
    let out = kubectl(one, &["exec", "near", "--", "sh", "-c", "nc -w 3 192.0.2.1 80 </dev/null"])
        .await
        .unwrap_err();
    assert!(
        out.contains("unreachable") || out.contains("No route to host"),
        "only silence keeps it in: {out}"
    );
    let name = sandbox.name().to_owned();
    sandbox.stop().await.unwrap();
    nothing_left_of(&name).await;
}

#[tokio::test]
async fn a_node_that_lost_its_kubelet_and_one_that_lost_its_power_come_back() {
    if !possible() {
        return;
    }
    let sandbox = Sandbox::start(Spec::new().workers(1, 0, 1)).await.unwrap();
    let cluster = sandbox.cluster("worker-1").unwrap();
    run(cluster, "survivor", &server("still here")).await;
    log_says(cluster, "survivor", "serving").await;
    let id = &["get", "pod", "survivor", "-o", "jsonpath={.status.containerStatuses[0].containerID}"];
    let before = kubectl(cluster, id).await.unwrap();

    // Without a kubelet containers go on, and nobody answers for them.
    let kubelet = cluster.program("real-1.kubelet");
    kubelet.kill().await.unwrap();
    kubectl(cluster, &["logs", "survivor"]).await.unwrap_err();
    kubelet.start().await.unwrap();
    log_says(cluster, "survivor", "serving").await;
    assert_eq!(kubectl(cluster, id).await.unwrap(), before, "the container was not restarted");

    // A machine that loses power takes its containers along; when it is back, they are started anew.
    let machine = cluster.program("real-1.machine");
    machine.kill().await.unwrap();
    machine.start().await.unwrap();
    eventually("the pod on the restarted machine", async || {
        let now = kubectl(cluster, id).await.unwrap();
        let ready = kubectl(
            cluster,
            &["get", "pod", "survivor", "-o", "jsonpath={.status.containerStatuses[0].ready}"],
        )
        .await;
        if now != before && ready.as_deref() == Ok("true") { Ok(()) } else { Err((now, ready)) }
    })
    .await;
    assert_eq!(sandbox.died().await.unwrap(), Vec::<String>::new());
    sandbox.stop().await.unwrap();
}

#[tokio::test]
async fn an_image_from_a_file_runs() {
    if !possible() {
        return;
    }
    // Made by another tool than ours, in docker's own format.
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("image.tar");
    make_docker_archive(directory.path(), &archive);
    let sandbox = Sandbox::start(Spec::new().workers(1, 0, 1).image(&archive)).await.unwrap();
    let cluster = sandbox.cluster("worker-1").unwrap();
    run(cluster, "own-image", &json!({ "containers": [{ "image": "example.test/own:1", "command": ["/busybox", "sh", "-c", "echo own image; exec /busybox sleep 3600"] }] })).await;
    log_says(cluster, "own-image", "own image").await;
    sandbox.stop().await.unwrap();
}

/// The format of `docker save`: manifest.json, a config, and a layer with one program.
fn make_docker_archive(directory: &std::path::Path, archive: &std::path::Path) {
    let sh = |script: &str| {
        let status =
            std::process::Command::new("sh").args(["-ec", script]).current_dir(directory).status().unwrap();
        assert!(status.success(), "{script}");
    };
    sh("mkdir root && cp /bin/busybox root/ && tar -C root -cf layer.tar busybox");
    sh(
        r#"echo "{\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{},\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"sha256:$(sha256sum layer.tar | cut -d' ' -f1)\"]}}" >config.json"#,
    );
    sh(
        r#"echo '[{"Config":"config.json","RepoTags":["example.test/own:1"],"Layers":["layer.tar"]}]' >manifest.json"#,
    );
    sh(&format!("tar -cf {} manifest.json config.json layer.tar", archive.display()));
}

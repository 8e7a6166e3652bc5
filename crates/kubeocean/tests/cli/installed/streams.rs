//! Logs, commands, files and ports, as people use them.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use kubeocean_api::keys::labels;
use kubeocean_api::keys::taints::VNODE_KEY;
use kubeocean_sandbox::BUSYBOX_IMAGE;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::home::{Home, run};
use crate::access::until;

/// What is sent through in the test of every day; `KUBEOCEAN_STREAM_MIB=1024` is for the day on which it matters.
const MEBIBYTES: usize = 24;

const WAITS: &str = "trap 'exit 0' TERM; sleep 2147483647 & wait";

pub(super) fn container(name: &str, script: &str, more: &Value) -> Value {
    let mut container = json!({
        "name": name, "image": BUSYBOX_IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", script],
    });
    for (field, value) in more.as_object().unwrap() {
        container[field] = value.clone();
    }
    container
}

/// A pod for a virtual node.
pub(super) fn pod(name: &str, containers: &Value, more: &Value) -> Value {
    let mut spec = json!({
        "nodeSelector": {labels::TYPE: labels::TYPE_VIRTUAL_KUBELET},
        "tolerations": [{"key": VNODE_KEY, "operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        "containers": containers,
    });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

/// The pods of all of these stories.
pub(super) async fn prepare(home: &Home) {
    let words = format!("for n in 1 2 3 4 5; do echo line-$n; done; {WAITS}");
    let prepares = container("prepares", "echo prepared", &json!({}));
    let beside = container("beside", &format!("echo beside; {WAITS}"), &json!({"restartPolicy": "Always"}));
    let serves = container(
        "serves",
        "mkdir -p /tmp/www; echo right; echo wrong >&2; exec httpd -f -p 8080 -h /tmp/www",
        &json!({}),
    );
    let speaks = container("c", &words, &json!({}));
    let app = pod("app", &json!([speaks, serves]), &json!({"initContainers": [prepares, beside]}));
    let again =
        format!("if [ -f /kept/seen ]; then echo second; {WAITS}; fi; touch /kept/seen; echo first; exit 3");
    let kept = json!({"volumeMounts": [{"name": "kept", "mountPath": "/kept"}]});
    let ends = container("c", &again, &kept);
    let crashed = pod("crashed", &json!([ends]), &json!({"volumes": [{"name": "kept", "emptyDir": {}}]}));
    let listens = container("c", "echo ready; exec cat", &json!({"stdin": true}));
    let joined = pod("joined", &json!([listens]), &json!({}));
    for one in [&app, &crashed, &joined] {
        home.apply(one);
    }
    for one in ["app", "crashed", "joined"] {
        home.ready(one).await;
    }
}

pub(super) async fn logs_are_read(home: &Home) {
    let lines = "line-1\nline-2\nline-3\nline-4\nline-5\n";
    for kubectl in home.kubectls() {
        for (args, expected) in [
            ("logs app -c c", lines),
            ("logs app -c c --tail=2", "line-4\nline-5\n"),
            ("logs app -c c --limit-bytes=7", "line-1\n"),
            ("logs app -c c --since=1h --tail=1", "line-5\n"),
            ("logs app -c c --since-time=2100-01-01T00:00:00Z", ""),
            ("logs app -c prepares", "prepared\n"),
            ("logs app -c beside", "beside\n"),
        ] {
            let mut command = tokio::process::Command::new(&kubectl);
            command.arg("--kubeconfig").arg(home.computing().kubeconfig_path()).args(args.split_whitespace());
            let said = run(command, b"").await;
            assert_eq!((said.code, &*said.text()), (Some(0), expected), "{args}: {}", said.err);
        }
    }
    let stamped = home.good("logs app -c c --timestamps --tail=1").await;
    let (time, rest) = stamped.split_once(' ').unwrap();
    assert!(time.parse::<jiff::Timestamp>().is_ok() && rest == "line-5\n", "{stamped}");
    logs_are_followed(home).await;
}

async fn logs_are_followed(home: &Home) {
    let mut follow = home.kubectl("logs -f app -c beside --tail=1");
    let mut follow = follow.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    assert_eq!(within(lines.next_line()).await.unwrap().as_deref(), Some("beside"));
    // What is said later comes at once, and not when a buffer is full.
    home.good_with("exec app -c beside -- sh -c", "echo later > /proc/1/fd/1").await;
    assert_eq!(within(lines.next_line()).await.unwrap().as_deref(), Some("later"));
    follow.kill().await.unwrap();
}

pub(super) async fn previous_logs_are_read(home: &Home) {
    until("the container has crashed once", async || {
        let said = home.say("logs crashed --previous", b"").await;
        if said.text() == "first\n" { Ok(()) } else { Err(said.err) }
    })
    .await;
    assert_eq!(home.good("logs crashed").await, "second\n");
}

pub(super) async fn commands_run(home: &Home) {
    for kubectl in home.kubectls() {
        let command = |args: &[&str]| {
            let mut command = tokio::process::Command::new(&kubectl);
            command.arg("--kubeconfig").arg(home.computing().kubeconfig_path()).args(args);
            command
        };
        let exec = ["exec", "app", "-c", "c"];
        let said =
            run(command(&[&exec[..], &["--", "sh", "-c", "echo out; echo err >&2; exit 7"]].concat()), b"")
                .await;
        assert_eq!((said.code, &*said.text()), (Some(7), "out\n"), "{}", said.err);
        assert!(said.err.starts_with("err\n"), "{}", said.err);
        // Words with all that has a meaning in a path or a query.
        let odd = "a b&c=d%20+é/..?#\"'";
        let said = run(command(&[&exec[..], &["--", "printf", "%s", odd]].concat()), b"").await;
        assert_eq!(said.text(), odd);
        let input: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let said = run(command(&[&exec[..], &["-i", "--", "sha256sum"]].concat()), &input).await;
        assert_eq!(said.text().split(' ').next(), Some(&*hash(&input)), "{}", said.err);
        // Who reads five bytes and ends does not wait for the rest. (Not for much of it: some container runtimes then wait for each other.)
        let said =
            run(command(&[&exec[..], &["-i", "--", "head", "-c", "5"]].concat()), &input[..1000]).await;
        assert_eq!((said.code, said.out.as_slice()), (Some(0), &input[..5]), "{}", said.err);
    }
    let input = home.good("exec app -c c -- hostname").await;
    assert_eq!(input, "app\n", "its own name, not its twin's");
}

pub(super) async fn every_container_is_reached(home: &Home) {
    assert_eq!(home.good("exec app -c beside -- echo here").await, "here\n");
    // What the worker's namespace enforces is for these containers, too.
    let debug = format!(
        "debug app -c looks --profile=baseline --image={BUSYBOX_IMAGE} --image-pull-policy=Never -- sleep 600"
    );
    home.good(&debug).await;
    let runs = until("the container that came later runs", async || {
        let said = home.say("exec app -c looks -- echo there", b"").await;
        if said.text() == "there\n" { Ok(()) } else { Err(said.err) }
    });
    let runs = tokio::time::timeout(Duration::from_secs(60), runs).await;
    assert!(runs.is_ok(), "{}", home.how_it_is());
}

pub(super) async fn a_running_program_is_joined(home: &Home) {
    let mut attach = home.kubectl("attach -q -i joined");
    let mut attach = attach.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut stdin = attach.stdin.take().unwrap();
    let mut lines = BufReader::new(attach.stdout.take().unwrap()).lines();
    stdin.write_all(b"hello\n").await.unwrap();
    stdin.flush().await.unwrap();
    assert_eq!(within(lines.next_line()).await.unwrap().as_deref(), Some("hello"));
    attach.kill().await.unwrap();
}

/// Bytes that do not repeat.
fn much() -> Vec<u8> {
    let mebibytes = std::env::var("KUBEOCEAN_STREAM_MIB").ok().and_then(|text| text.parse().ok());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = (mebibytes.unwrap_or(MEBIBYTES) << 20) / 8;
    (0..words)
        .flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        })
        .collect()
}

pub(super) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

pub(super) async fn files_are_copied_both_ways(home: &Home) {
    let directory = tempfile::tempdir().unwrap();
    let (there, back) = (directory.path().join("there"), directory.path().join("back"));
    let content = much();
    std::fs::write(&there, &content).unwrap();
    home.good(&format!("cp {} app:/tmp/copied -c c", there.display())).await;
    let sum = home.good("exec app -c c -- sha256sum /tmp/copied").await;
    assert_eq!(sum.split(' ').next(), Some(&*hash(&content)));
    home.good(&format!("cp app:/tmp/copied {} -c c", back.display())).await;
    assert_eq!(hash(&std::fs::read(&back).unwrap()), hash(&content));
    home.good("exec app -c c -- rm /tmp/copied").await;
}

pub(super) async fn ports_are_forwarded(home: &Home) {
    let content = much();
    // Some container runtimes end a command when nobody holds its output any more: the shell does.
    let said = home.say("exec -i app -c serves -- sh -c cat>/tmp/www/much;true", &content).await;
    assert_eq!(said.code, Some(0), "{}", said.err);
    let mut forward = home.kubectl("port-forward pod/app :8080");
    let mut forward = forward.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(forward.stdout.take().unwrap()).lines();
    let line = within(lines.next_line()).await.unwrap().unwrap();
    let port: u16 =
        line.split(['>', '-']).next().unwrap().trim().rsplit(':').next().unwrap().parse().unwrap();
    // Several connections one after the other, and at once.
    for _ in 0..2 {
        let fetched = futures::future::join_all((0..3).map(|_| fetch(port))).await;
        for body in fetched {
            assert_eq!(hash(&body), hash(&content));
        }
    }
    forward.kill().await.unwrap();
}

async fn fetch(port: u16) -> Vec<u8> {
    let fetch = move || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(stream, "GET /much HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        answer.split_off(head + 4)
    };
    tokio::task::spawn_blocking(fetch).await.unwrap()
}

/// A minute is long enough for anything that is going to happen.
pub(super) async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("it came to nothing")
}

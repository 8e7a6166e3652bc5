//! Logs, commands, files and ports, as people use them, with each kubectl and in each of its ways.

use std::io::{BufRead as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use kubeocean_api::keys::labels;
use kubeocean_api::keys::taints::VNODE_KEY;
use kubeocean_sandbox::{BUSYBOX_IMAGE, COMPUTING, Spec};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Child;

use super::home::{Home, WORKER};
use super::kubectl::{Kubectl, run_with};
use super::much::{Much, hash, hash_of};
use crate::access::until;

pub(super) const WAITS: &str = "trap 'exit 0' TERM; sleep 2147483647 & wait";

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

/// Clusters in which people may ask for one of both outputs: not yet by default.
pub(super) fn splitting(spec: Spec) -> Spec {
    let gate = "--feature-gates=PodLogsQuerySplitStreams=true";
    spec.extra_arg(COMPUTING, "kube-apiserver", gate).extra_arg(WORKER, "kube-apiserver", gate)
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
    let shell = container("c", "exec sh", &json!({"stdin": true, "tty": true}));
    let typed = pod("typed", &json!([shell]), &json!({}));
    for one in [&app, &crashed, &joined, &typed] {
        home.apply(one);
    }
    for one in ["app", "crashed", "joined", "typed"] {
        home.ready(one).await;
    }
    until("the container has crashed once", async || {
        let said = home.say("logs crashed --previous", b"").await;
        if said.text() == "first\n" { Ok(()) } else { Err(said.err) }
    })
    .await;
}

pub(super) async fn logs_are_read(home: &Home) {
    let lines = "line-1\nline-2\nline-3\nline-4\nline-5\n";
    for kubectl in home.plain_kubectls() {
        for (args, expected) in [
            ("logs app -c c", lines),
            ("logs app -c c --tail=2", "line-4\nline-5\n"),
            ("logs app -c c --limit-bytes=7", "line-1\n"),
            ("logs app -c c --since=1h --tail=1", "line-5\n"),
            ("logs app -c c --since-time=2100-01-01T00:00:00Z", ""),
            ("logs app -c prepares", "prepared\n"),
            ("logs app -c beside --limit-bytes=7", "beside\n"),
            ("logs crashed --previous", "first\n"),
            ("logs crashed", "second\n"),
        ] {
            assert_eq!(kubectl.good(args, &[]).await, expected, "{kubectl:?} {args}");
        }
        let stamped = kubectl.good("logs app -c c --timestamps --tail=1", &[]).await;
        let (time, rest) = stamped.split_once(' ').unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok() && rest == "line-5\n", "{kubectl:?}: {stamped}");
        logs_are_followed(&kubectl).await;
    }
    one_of_both_outputs_is_chosen(home).await;
}

async fn logs_are_followed(kubectl: &Kubectl<'_>) {
    let mut follow = kubectl.command("logs -f app -c beside");
    let mut follow = follow.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    assert_eq!(within(lines.next_line()).await.unwrap().as_deref(), Some("beside"), "{kubectl:?}");
    // What is said later comes at once, and not when a buffer is full.
    let word = format!("later-{}", kubectl.number);
    kubectl.good("exec app -c beside -- sh -c", &[&format!("echo {word} > /proc/1/fd/1")]).await;
    loop {
        // What others said before.
        let line = within(lines.next_line()).await.unwrap();
        assert!(line.as_ref().is_some_and(|line| line.starts_with("later-")), "{kubectl:?}: {line:?}");
        if line.as_ref() == Some(&word) {
            break;
        }
    }
    follow.kill().await.unwrap();
}

/// No kubectl has a flag for it yet.
async fn one_of_both_outputs_is_chosen(home: &Home) {
    let path = "/api/v1/namespaces/default/pods/app/log?container=serves";
    for (stream, expected) in
        [("", &["right", "wrong"][..]), ("&stream=Stdout", &["right"]), ("&stream=Stderr", &["wrong"])]
    {
        let said = home.good(&format!("get --raw {path}{stream}")).await;
        let mut lines: Vec<&str> = said.lines().collect();
        // Two writers, and nobody says who comes first.
        lines.sort_unstable();
        assert_eq!(lines, expected, "{stream}");
    }
}

pub(super) async fn commands_run(home: &Home) {
    for kubectl in home.kubectls() {
        let exec = "exec app -c c --";
        let said = kubectl.say(exec, &["sh", "-c", "echo out; echo err >&2; exit 7"], b"").await;
        assert_eq!((said.code, &*said.text()), (Some(7), "out\n"), "{kubectl:?}: {}", said.err);
        assert!(said.err.starts_with("err\n"), "{kubectl:?}: {}", said.err);
        // Words with all that has a meaning in a path or a query.
        let odd = "a b&c=d%20+é/..?#\"'";
        assert_eq!(kubectl.good(exec, &["printf", "%s", odd]).await, odd, "{kubectl:?}");
        let input: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let said = kubectl.say("exec app -c c -i -- sha256sum", &[], &input).await;
        assert_eq!(said.text().split(' ').next(), Some(&*hash(&*input)), "{kubectl:?}: {}", said.err);
        // Who reads five bytes and ends does not wait for the rest. (Not for much of it: some container runtimes then wait for each other.)
        let said = kubectl.say("exec app -c c -i -- head -c 5", &[], &input[..1000]).await;
        assert_eq!((said.code, said.out.as_slice()), (Some(0), &input[..5]), "{kubectl:?}: {}", said.err);
    }
    let input = home.good("exec app -c c -- hostname").await;
    assert_eq!(input, "app\n", "its own name, not its twin's");
}

pub(super) async fn every_container_is_reached(home: &Home) {
    for kubectl in home.kubectls() {
        assert_eq!(kubectl.good("exec app -c beside -- echo here", &[]).await, "here\n", "{kubectl:?}");
        // What the worker's namespace enforces is for these containers, too.
        let name = format!("looks-{}", kubectl.number);
        let debug = format!(
            "debug app -c {name} --profile=baseline --image={BUSYBOX_IMAGE} --image-pull-policy=Never -- sleep 600"
        );
        kubectl.good(&debug, &[]).await;
        let runs = until("the container that came later runs", async || {
            let said = kubectl.say(&format!("exec app -c {name} -- echo there"), &[], b"").await;
            if said.text() == "there\n" { Ok(()) } else { Err(said.err) }
        });
        let runs = tokio::time::timeout(Duration::from_secs(60), runs).await;
        assert!(runs.is_ok(), "{kubectl:?}\n{}", home.how_it_is());
    }
}

/// One that does what it waits for only when somebody comes and does it.
pub(super) async fn a_container_that_prepares_is_reached_while_it_does(home: &Home) {
    let waits =
        container("waits", "echo begun; until [ -e /tmp/go ]; do sleep 0.1; done; echo gone", &json!({}));
    let then = container("c", WAITS, &json!({}));
    home.apply(&pod("prepared", &json!([then]), &json!({"initContainers": [waits]})));
    let runs =
        "wait --for=jsonpath={.status.initContainerStatuses[0].state.running.startedAt} --timeout=120s";
    home.good(&format!("{runs} pod/prepared")).await;
    let kubectls = home.kubectls();
    for kubectl in &kubectls {
        assert_eq!(kubectl.good("logs prepared -c waits", &[]).await, "begun\n");
        let said = kubectl.say("exec prepared -c c -- true", &[], b"").await;
        assert_ne!(said.code, Some(0), "{kubectl:?}: its turn has not come");
        assert_eq!(
            kubectl.good("exec prepared -c waits -- cat /proc/1/comm", &[]).await,
            "sh\n",
            "{kubectl:?}"
        );
    }
    kubectls[0].good("exec prepared -c waits -- touch /tmp/go", &[]).await;
    home.ready("prepared").await;
    assert_eq!(home.good("logs prepared -c waits").await, "begun\ngone\n");
    home.good("delete pod prepared --timeout=60s").await;
}

pub(super) async fn a_running_program_is_joined(home: &Home) {
    for kubectl in home.kubectls() {
        let mut attach = kubectl.command("attach -q -i joined");
        let mut attach =
            attach.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut stdin = attach.stdin.take().unwrap();
        let mut lines = BufReader::new(attach.stdout.take().unwrap()).lines();
        let word = format!("hello-{}", kubectl.number);
        stdin.write_all(format!("{word}\n").as_bytes()).await.unwrap();
        stdin.flush().await.unwrap();
        assert_eq!(within(lines.next_line()).await.unwrap(), Some(word), "{kubectl:?}");
        attach.kill().await.unwrap();
    }
}

pub(super) async fn files_are_copied_both_ways(home: &Home, much: &Much) {
    for kubectl in who_send(home, much) {
        let (there, back) =
            (format!("/tmp/copied-{}", kubectl.number), much.beside(&format!("back-{}", kubectl.number)));
        let copy = async |from: &str, to: &str| {
            let began = Instant::now();
            let nothing = std::fs::File::open("/dev/null").unwrap();
            let said =
                run_with(kubectl.command(&format!("cp {from} {to} -c c")), nothing, much.within()).await;
            assert_eq!(said.code, Some(0), "{kubectl:?} cp {from} {to}: {}", said.err);
            much.tell(&format!("{kubectl:?} cp {from} {to}"), began);
        };
        let (here, in_pod) = (much.path().display().to_string(), format!("app:{there}"));
        copy(&here, &in_pod).await;
        let sum = kubectl.good(&format!("exec app -c c -- sha256sum {there}"), &[]).await;
        assert_eq!(sum.split(' ').next(), Some(&*much.hash), "{kubectl:?}");
        copy(&in_pod, &back.display().to_string()).await;
        assert_eq!(hash_of(&back), much.hash, "{kubectl:?}");
        std::fs::remove_file(&back).unwrap();
        kubectl.good(&format!("exec app -c c -- rm {there}"), &[]).await;
    }
}

/// Much of it is sent by the lab's kubectl alone, in both ways.
fn who_send<'a>(home: &'a Home, much: &Much) -> Vec<Kubectl<'a>> {
    let mut all = home.kubectls();
    if much.is_large() {
        let first = all[0].clone();
        all.retain(|kubectl| kubectl.is_of(&first));
    }
    all
}

/// A port of this machine that leads to one of a pod, and who leads it.
pub(super) async fn forwarded(kubectl: &Kubectl<'_>, pod: &str, port: u16) -> (Child, u16) {
    let mut forward = kubectl.command(&format!("port-forward pod/{pod} :{port}"));
    let forward = forward.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut forward = forward.kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(forward.stdout.take().unwrap()).lines();
    let line = within(lines.next_line()).await.unwrap().unwrap();
    let here = line.split(['>', '-']).next().unwrap().trim().rsplit(':').next().unwrap().parse().unwrap();
    // What it says of each connection is of no interest, and must not fill a pipe.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    (forward, here)
}

pub(super) async fn ports_are_forwarded(home: &Home, much: &Much) {
    // Some container runtimes end a command when nobody holds its output any more: the shell does.
    let fill = home.kubectl("exec -i app -c serves -- sh -c cat>/tmp/www/much;true");
    let said = run_with(fill, much.file(), much.within()).await;
    assert_eq!(said.code, Some(0), "{}", said.err);
    for kubectl in who_send(home, much) {
        let (mut forward, port) = forwarded(&kubectl, "app", 8080).await;
        // One connection, and several at once.
        for count in [1, 3] {
            let began = Instant::now();
            let fetched = futures::future::join_all((0..count).map(|_| fetch(port, much.within()))).await;
            much.tell(&format!("{kubectl:?} port-forward, {count} at once, each"), began);
            for hash in fetched {
                assert_eq!(hash, much.hash, "{kubectl:?}, {count} at once");
            }
        }
        forward.kill().await.unwrap();
    }
    home.good("exec app -c serves -- rm /tmp/www/much").await;
}

/// The hash of what is served there.
async fn fetch(port: u16, limit: Duration) -> String {
    let fetch = move || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(stream, "GET /much HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = std::io::BufReader::new(stream);
        let mut line = String::from("?");
        while !line.trim().is_empty() {
            line.clear();
            answer.read_line(&mut line).unwrap();
        }
        hash(answer)
    };
    let fetched = tokio::task::spawn_blocking(fetch);
    tokio::time::timeout(limit, fetched).await.expect("it came to nothing").unwrap()
}

/// A minute is long enough for anything that is going to happen.
pub(super) async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("it came to nothing")
}

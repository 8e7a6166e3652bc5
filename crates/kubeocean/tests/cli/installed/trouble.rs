//! What does not work, and what is left of it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use kubeocean_api::keys::names::WORKER_NAMESPACE;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use super::home::{Home, STREAMS};
use super::kubectl::{Kubectl, Said, end};
use super::streams::{container, forwarded, pod, within};
use crate::access::until;

/// Those of the machine's own kubectl are others of the same kind.
const KILLED: usize = 5;

/// Connections that API servers and scrapers keep for later come and go.
const COME_AND_GO: f64 = 6.0;

/// Whoever loses what he was connected to notices at once, and a machine may be busy.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// Words that a kubelet would say, of what is not there.
pub(super) async fn what_is_not_there_is_told_as_a_kubelet_tells_it(home: &Home) {
    for (args, expected) in [
        ("logs nobody", "\"nobody\" not found"),
        ("exec nobody -- true", "\"nobody\" not found"),
        ("logs app -c nothing", "container nothing is not valid for pod app"),
        ("exec app -c nothing -- true", "container nothing"),
        ("exec app -c prepares -- true", "container"),
        ("logs app -c c --previous", "previous terminated container \"c\" in pod"),
        ("exec app -c c -- no-such-program", "no-such-program"),
    ] {
        let said = home.say(args, b"").await;
        assert_ne!(said.code, Some(0), "{args}: {}", said.text());
        assert!(said.err.contains(expected), "{args}: {}", said.err);
    }
    // One that never starts.
    let mut waits = container("c", "true", &serde_json::json!({}));
    waits["image"] = "kubeocean.local/absent:lab".into();
    home.apply(&pod("absent", &serde_json::json!([waits]), &serde_json::json!({})));
    until("its kubelet waits for the image", async || {
        let said = home.say("logs absent", b"").await;
        let is_told = said.code != Some(0) && said.err.contains("is waiting to start");
        if is_told { Ok(()) } else { Err(said.err) }
    })
    .await;
    home.good("delete pod absent --timeout=60s").await;
}

/// What is asked of the worker cluster, and not through a virtual node.
const DIRECTLY: &str = "directly over SPDY";

/// A stream that lasts, of each kind.
struct Lasting {
    what: String,
    child: Child,
    _stdin: Option<ChildStdin>,
    connection: Option<TcpStream>,
}

/// A command that waits for words, and has said some.
async fn speaking(kubectl: &Kubectl<'_>, args: &str) -> Lasting {
    speaking_in(kubectl.command(args), format!("{kubectl:?} {args}")).await
}

async fn speaking_in(mut command: Command, what: String) -> Lasting {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"words\n").await.unwrap();
    stdin.flush().await.unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert_eq!(within(lines.next_line()).await.unwrap().as_deref(), Some("words"), "{what}");
    Lasting { what, child, _stdin: Some(stdin), connection: None }
}

/// The same command over SPDY, asked of the worker cluster itself.
async fn speaking_directly(home: &Home) -> Lasting {
    let list = ["-n", WORKER_NAMESPACE, "get", "pods", "-o", "name"];
    let listed = home.worker().kubectl().args(list).output().await.unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let twin = listed.lines().find(|name| name.starts_with("pod/app-")).unwrap();
    let mut command = home.worker().kubectl();
    command.args(["-n", WORKER_NAMESPACE, "exec", "-i", twin, "-c", "c", "--", "cat"]);
    command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false");
    speaking_in(command, DIRECTLY.to_owned()).await
}

async fn following(kubectl: &Kubectl<'_>) -> Lasting {
    let args = "logs -f app -c beside";
    let mut command = kubectl.command(args);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut first = [0; 7];
    within(child.stdout.as_mut().unwrap().read_exact(&mut first)).await.unwrap();
    assert_eq!(&first, b"beside\n");
    Lasting { what: format!("{kubectl:?} {args}"), child, _stdin: None, connection: None }
}

/// With a connection that has begun a request, so that someone there waits for the rest of it.
async fn forwarding(kubectl: &Kubectl<'_>) -> Lasting {
    let (child, port) = forwarded(kubectl, "app", 8080).await;
    let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
    connection.write_all(b"GET /never HTTP/1.1\r\n").unwrap();
    let what = format!("{kubectl:?} port-forward");
    Lasting { what, child, _stdin: None, connection: Some(connection) }
}

pub(super) async fn what_is_left_of_who_is_killed_is_nothing(home: &Home) {
    const FILES: &str = "process_open_fds ";
    home.good("exec app -c c -- true").await;
    let before = home.metric(FILES).await.unwrap();
    // As the kernel has it, with a letter in brackets: who looks does not find itself.
    let at_work = async || {
        let look = "grep -l wanted-no-mor[e] /proc/[0-9]*/cmdline; true";
        home.good_with("exec app -c c -- sh -c", look).await.lines().count()
    };
    let mut lasting = Vec::new();
    for kubectl in home.kubectls() {
        for _ in 0..KILLED {
            // Its words come back, and it ends when nobody speaks any more.
            lasting.push(speaking(&kubectl, "exec -i app -c c -- cat - /tmp/wanted-no-more").await);
        }
        lasting.push(speaking(&kubectl, "attach -q -i joined").await);
        lasting.push(following(&kubectl).await);
        lasting.push(forwarding(&kubectl).await);
    }
    assert_eq!(at_work().await, KILLED * home.kubectls().len());
    let streams = home.metric(STREAMS).await.unwrap();
    // A port that is forwarded may be carried by one stream for each connection.
    assert!(streams >= f64::from(u32::try_from(lasting.len()).unwrap()), "{streams} of {}", lasting.len());
    assert!(home.metric(FILES).await.unwrap() >= before + streams, "each has a socket");
    for one in &mut lasting {
        one.child.kill().await.unwrap();
    }
    until("nothing is left of them", async || {
        let (streams, files) = (home.metric(STREAMS).await?, home.metric(FILES).await?);
        if streams == 0.0 && files <= before + COME_AND_GO {
            Ok(())
        } else {
            Err(format!("{streams} streams, {files} files of {before}"))
        }
    })
    .await;
    until("what they ran has ended", async || match at_work().await {
        0 => Ok(()),
        left => Err(format!("{left} are at work")),
    })
    .await;
}

/// How a stream ends that loses its worker.
async fn ended(one: Lasting, began: Instant) -> (String, Said) {
    let Lasting { what, child, connection, .. } = one;
    if let Some(mut connection) = connection {
        connection.set_read_timeout(Some(ENDS_WITHIN)).unwrap();
        let read = tokio::task::spawn_blocking(move || connection.read(&mut [0; 100]));
        let read = read.await.unwrap();
        assert!(matches!(read, Ok(0)) || is_reset(&read), "{what}: a connection goes on: {read:?}");
    }
    let said = end(child, &what, ENDS_WITHIN).await;
    println!(
        "{what}: ended with {:?} after {:.1} s: {}",
        said.code,
        began.elapsed().as_secs_f64(),
        said.err.trim()
    );
    (what, said)
}

fn is_reset(read: &std::io::Result<usize>) -> bool {
    read.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
}

pub(super) async fn a_worker_that_restarts_ends_streams_and_serves_new_ones(home: &Home) {
    let mut lasting = Vec::new();
    for kubectl in home.kubectls() {
        lasting.push(speaking(&kubectl, "exec -i app -c c -- cat").await);
        lasting.push(speaking(&kubectl, "attach -q -i joined").await);
        lasting.push(following(&kubectl).await);
        lasting.push(forwarding(&kubectl).await);
    }
    lasting.push(speaking_directly(home).await);
    let server = home.worker().program("kube-apiserver");
    server.stop().await.unwrap();
    let began = Instant::now();
    let ended = futures::future::join_all(lasting.into_iter().map(|one| ended(one, began))).await;
    let (_, directly) = ended.iter().find(|(what, _)| what == DIRECTLY).unwrap();
    for (what, said) in &ended {
        // API servers end a log where it breaks, and say nothing of it: kubectl takes that for its end, as it does when a kubelet restarts.
        let is_silent = what.contains("logs -f");
        // And over SPDY it takes the end of a connection for that of the command, whomever it asks.
        let is_spdy = what == DIRECTLY || (what.contains("over Spdy") && !what.contains("port-forward"));
        let is_told = said.code != Some(0) || !said.err.trim().is_empty();
        assert!(
            is_told || is_silent || (is_spdy && directly.code == Some(0)),
            "{what} ended as if all were well"
        );
    }
    let said = home.say("logs app -c c --tail=1", b"").await;
    assert_ne!(said.code, Some(0), "{}", said.text());
    assert!(said.err.contains("worker cluster"), "the cause is named: {}", said.err);
    server.start().await.unwrap();
    until("logs are served again", async || {
        let said = home.say("logs app -c c --tail=1", b"").await;
        if said.code == Some(0) { Ok(()) } else { Err(said.err) }
    })
    .await;
    for kubectl in home.kubectls() {
        drop(speaking(&kubectl, "exec -i app -c c -- cat").await);
    }
}

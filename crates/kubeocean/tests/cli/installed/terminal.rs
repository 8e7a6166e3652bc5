//! A person at a terminal: `kubectl exec -it`, `attach -it` and `debug -it`.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kubeocean_sandbox::BUSYBOX_IMAGE;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::home::Home;
use super::kubectl::Kubectl;
use crate::access::until;

/// Who sees nothing tries again.
const TYPES_AGAIN_AFTER: Duration = Duration::from_secs(2);

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// A terminal, and a kubectl that runs in it.
struct Terminal {
    end: OwnedFd,
    keys: File,
    screen: Arc<Mutex<String>>,
    child: Child,
    reads: JoinHandle<()>,
}

impl Terminal {
    fn open(kubectl: &Kubectl<'_>, args: &str, (rows, columns): (u16, u16)) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let other_end = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        tcsetwinsize(terminal.as_fd(), size(rows, columns)).unwrap();
        let kubectl = kubectl.command(args);
        let kubectl = kubectl.as_std();
        let end = || Stdio::from(other_end.try_clone().unwrap());
        // With a terminal of its own, so that it hears of changes of its size.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(kubectl.get_program()).args(kubectl.get_args());
        command.envs(kubectl.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let keys = File::from(terminal.try_clone().unwrap());
        let mut output = File::from(terminal.try_clone().unwrap());
        let screen = Arc::new(Mutex::new(String::new()));
        let onto = Arc::clone(&screen);
        let reads = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                onto.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        Self { end: terminal, keys, screen, child, reads }
    }

    fn types(&mut self, words: &str) {
        self.keys.write_all(words.as_bytes()).unwrap();
    }

    fn looks_for(&self, words: &str) -> Result<(), String> {
        let screen = self.screen.lock().unwrap().clone();
        if screen.contains(words) { Ok(()) } else { Err(screen) }
    }

    async fn shows(&self, words: &str) {
        until(&format!("the terminal shows {words:?}"), async || self.looks_for(words)).await;
    }

    /// Types until something is shown: what is typed before the other end listens is lost, as it is for people. Not often: a terminal keeps
    /// 4,096 characters for a shell that is slow to read them, and drops the rest.
    async fn shows_when(&mut self, typed: &str, words: &str) {
        let mut last: Option<Instant> = None;
        until(&format!("the terminal shows {words:?} when {typed:?} is typed"), async || {
            if last.is_none_or(|last| last.elapsed() > TYPES_AGAIN_AFTER) {
                self.types(typed);
                last = Some(Instant::now());
            }
            self.looks_for(words)
        })
        .await;
    }

    fn becomes(&self, rows: u16, columns: u16) {
        tcsetwinsize(self.end.as_fd(), size(rows, columns)).unwrap();
    }

    /// The exit code.
    async fn ends(mut self) -> Option<i32> {
        let code = until("kubectl ends", async || {
            self.child.try_wait().unwrap().ok_or_else(|| self.screen.lock().unwrap().clone())
        })
        .await;
        drop((self.keys, self.end));
        self.reads.join().unwrap();
        code.code()
    }
}

pub(super) async fn a_terminal_is_one_and_changes_its_size(home: &Home) {
    for kubectl in home.kubectls() {
        exec(&kubectl).await;
        attach(&kubectl).await;
        debug(&kubectl).await;
    }
}

async fn exec(kubectl: &Kubectl<'_>) {
    let mut terminal = Terminal::open(kubectl, "exec -it app -c c -- sh", (33, 101));
    terminal.shows("# ").await;
    terminal.types("tty; stty size\n");
    terminal.shows("/dev/pts/").await;
    terminal.shows("33 101").await;
    terminal.becomes(44, 77);
    terminal.shows_when("stty size\n", "44 77").await;
    terminal.types("exit 9\n");
    assert_eq!(terminal.ends().await, Some(9), "{kubectl:?}");
}

/// The shell that the container itself is: it does not end, but who leaves it does.
async fn attach(kubectl: &Kubectl<'_>) {
    let columns = 90 + u16::try_from(kubectl.number).unwrap();
    let mut terminal = Terminal::open(kubectl, "attach -it typed", (25, columns));
    terminal.shows_when("stty size\n", &format!("25 {columns}")).await;
    terminal.becomes(26, columns);
    terminal.shows_when("stty size\n", &format!("26 {columns}")).await;
    terminal.child.kill().unwrap();
    assert_eq!(terminal.ends().await, None, "{kubectl:?}");
}

async fn debug(kubectl: &Kubectl<'_>) {
    let name = format!("typed-{}", kubectl.number);
    let debug = format!(
        "debug app -it -c {name} --profile=baseline --image={BUSYBOX_IMAGE} --image-pull-policy=Never -- sh"
    );
    let mut terminal = Terminal::open(kubectl, &debug, (20, 70));
    // What a word is made of is not yet the word: the echo of what was typed is no answer.
    terminal.shows_when("echo wo''rks\n", "works").await;
    terminal.shows_when("stty size\n", "20 70").await;
    terminal.types("exit\n");
    assert_eq!(terminal.ends().await, Some(0), "{kubectl:?}");
}

//! Running `kubeocean` and looking at what it does.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, mpsc};
use std::time::{Duration, Instant};

use kubeocean_sandbox::leftovers;
use rustix::process::{Pid, Signal, kill_process};

/// Whatever is waited for comes within this time, unless someone wants more (`KUBEOCEAN_LIMIT_SECONDS`): a thousand pods do.
pub(crate) static LIMIT: LazyLock<Duration> = LazyLock::new(|| {
    let wanted = std::env::var("KUBEOCEAN_LIMIT_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(wanted.unwrap_or(180))
});

/// A name that no other sandbox on this machine has.
pub(crate) fn unique_name() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    format!("c{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn kubeocean<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(args: I) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubeocean"));
    command.args(args).stdin(Stdio::null()).env_remove("KUBEOCEAN_LAB_BIN").env_remove("KUBEBUILDER_ASSETS");
    command
}

/// `kubeocean sandbox up NAME`, with these flags.
pub(crate) fn up(name: &str, flags: &str) -> Command {
    kubeocean(["sandbox", "up", name].into_iter().chain(flags.split_whitespace()))
}

/// What a command answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn answer(mut command: Command) -> Answer {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Answer { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

pub(crate) fn run<const N: usize>(args: [&str; N]) -> Answer {
    answer(kubeocean(args))
}

/// Runs a command that must succeed, and returns what it printed.
pub(crate) fn succeed<const N: usize>(args: [&str; N]) -> String {
    let answer = run(args);
    assert_eq!(answer.code, Some(0), "kubeocean {args:?}: {}", answer.err);
    answer.out
}

/// A command that runs while the test does something else.
pub(crate) struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
    seen: String,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines, seen: String::new() }
    }

    /// Waits for a line on standard error that has these words.
    pub(crate) fn wait_for(&mut self, words: &str) {
        let deadline = Instant::now() + *LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("{words:?} was not said, but:\n{}", self.seen);
            };
            self.seen.push_str(&line);
            self.seen.push('\n');
            if line.contains(words) {
                return;
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the end, and returns how it was and what was said.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let status = eventually("the end of the command", || self.child.try_wait().unwrap().ok_or("it runs"));
        self.seen.extend(self.lines.iter().map(|line| line + "\n"));
        (status, self.seen)
    }
}

/// Looks until `check` succeeds.
pub(crate) fn eventually<T, E: std::fmt::Debug>(what: &str, mut check: impl FnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + *LIMIT;
    loop {
        match check() {
            Ok(value) => return value,
            Err(error) if Instant::now() > deadline => panic!("{what} did not come true: {error:?}"),
            Err(_) => pause(),
        }
    }
}

/// Between two looks.
#[allow(clippy::disallowed_methods, reason = "the condition is looked at again, with a deadline")]
fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}

pub(crate) fn nothing_left_of(name: &str) {
    eventually(&format!("the end of {name}"), || match leftovers(name) {
        left if left.is_empty() => Ok(()),
        left => Err(left),
    });
}

/// Writes an executable shell script.
pub(crate) fn script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Content of a file, or nothing.
pub(crate) fn read(path: &Path) -> String {
    let mut text = String::new();
    if let Ok(mut file) = std::fs::File::open(path) {
        file.read_to_string(&mut text).unwrap();
    }
    text
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether tests of real nodes are to run: they need root, and whoever has none says so.
pub(crate) fn real_nodes() -> bool {
    if std::env::var_os("KUBEOCEAN_WITHOUT_REAL_NODES").is_none() {
        assert!(
            is_root(),
            "real nodes need root: use sudo, or set KUBEOCEAN_WITHOUT_REAL_NODES=1 to leave them out"
        );
        return true;
    }
    // Not captured, as what `eprintln!` says would be.
    let _ = writeln!(
        std::io::stderr(),
        "NOT RUN, because KUBEOCEAN_WITHOUT_REAL_NODES is set: a test that needs root"
    );
    false
}

//! The kubectls that there are: that of the lab and that of this machine, each speaking WebSocket and SPDY.

use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Once;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use super::home::Home;

/// A command that hangs is not waited for longer.
const COMMAND_WITHIN: Duration = Duration::from_secs(120);

/// What a command ended with.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) code: Option<i32>,
    pub(super) out: Vec<u8>,
    pub(super) err: String,
}

impl Said {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }
}

/// What streams become on their way to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speech {
    /// As every kubectl from 1.31 on does unless told not to.
    WebSocket,
    /// As all did before.
    Spdy,
}

/// One kubectl, in one of its two ways.
#[derive(Clone)]
pub(super) struct Kubectl<'a> {
    home: &'a Home,
    program: PathBuf,
    pub(super) speech: Speech,
    /// For names of things that each of them needs for itself.
    pub(super) number: usize,
}

impl fmt::Debug for Kubectl<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} over {:?}", self.program.display(), self.speech)
    }
}

impl Home {
    /// The kubectl of this machine beside that of the lab, if there is one; and both of their ways, WebSocket first.
    pub(super) fn kubectls(&self) -> Vec<Kubectl<'_>> {
        static TOLD: Once = Once::new();
        let of_lab = PathBuf::from(self.computing().kubectl().as_std().get_program());
        let of_machine = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .map(|directory| directory.join("kubectl"))
            .find(|path| path.is_file());
        if of_machine.is_none() {
            TOLD.call_once(|| {
                // Not captured, as what `eprintln!` says would be.
                let _ = writeln!(
                    std::io::stderr(),
                    "NOT RUN: what a kubectl of this machine does with pods on virtual nodes; there is none in PATH"
                );
            });
        }
        let ways = [Speech::WebSocket, Speech::Spdy];
        let all = ways.into_iter().flat_map(|speech| {
            [Some(&of_lab), of_machine.as_ref()].into_iter().flatten().map(move |program| (program, speech))
        });
        all.enumerate()
            .map(|(number, (program, speech))| Kubectl {
                home: self,
                program: program.clone(),
                speech,
                number,
            })
            .collect()
    }

    /// Those for what is no stream, and the same in both ways.
    pub(super) fn plain_kubectls(&self) -> Vec<Kubectl<'_>> {
        let mut all = self.kubectls();
        all.retain(|kubectl| kubectl.speech == Speech::WebSocket);
        all
    }
}

impl Kubectl<'_> {
    /// Whether both are the same program.
    pub(super) fn is_of(&self, other: &Kubectl<'_>) -> bool {
        self.program == other.program
    }

    pub(super) fn command(&self, args: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(self.home.computing().kubeconfig_path());
        command.args(args.split_whitespace());
        let is_new = (self.speech == Speech::WebSocket).to_string();
        for variable in ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"] {
            command.env(variable, &is_new);
        }
        command
    }

    /// `args`, and then words that have spaces in them.
    pub(super) async fn say(&self, args: &str, last: &[&str], input: &[u8]) -> Said {
        let mut command = self.command(args);
        command.args(last);
        run(command, input).await
    }

    /// It must succeed: what it prints.
    pub(super) async fn good(&self, args: &str, last: &[&str]) -> String {
        let said = self.say(args, last, b"").await;
        assert_eq!(said.code, Some(0), "{self:?} {args} {last:?}: {}\n{}", said.err, self.home.how_it_is());
        said.text()
    }
}

/// Runs a command to its end.
pub(super) async fn run(mut command: Command, input: &[u8]) -> Said {
    let what = format!("{:?}", command.as_std());
    let mut child = spawn(command.stdin(Stdio::piped()));
    let mut stdin = child.stdin.take().unwrap();
    let feed = async {
        // Who reads no more has what it wants.
        let _ = stdin.write_all(input).await;
        let _ = stdin.shutdown().await;
        drop(stdin);
    };
    tokio::join!(end(child, &what, COMMAND_WITHIN), feed).0
}

/// The same with much to read, which takes its time.
pub(super) async fn run_with(mut command: Command, input: File, within: Duration) -> Said {
    let what = format!("{:?}", command.as_std());
    let child = spawn(command.stdin(input));
    end(child, &what, within).await
}

fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
}

/// Waits for what it says and how it ends.
pub(super) async fn end(child: Child, what: &str, within: Duration) -> Said {
    let output = tokio::time::timeout(within, child.wait_with_output()).await;
    let output = output.unwrap_or_else(|_| panic!("{what} did not end within {within:?}")).unwrap();
    Said {
        code: output.status.code(),
        out: output.stdout,
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

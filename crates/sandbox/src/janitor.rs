//! The janitor: a small process that removes what a sandbox leaves, whatever became of the sandbox.
//!
//! It waits on a pipe whose other end only we hold. Closing it, on purpose or by dying, is the signal.
//! So there is one way in which a sandbox goes, used on a good day, after a panic and after SIGKILL.

use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Error, io_error};
use crate::identity::Identity;

const SCRIPT: &str = include_str!("janitor.sh");

/// The waiting janitor of one sandbox.
#[derive(Debug)]
pub(crate) struct Janitor {
    process: Child,
    leash: ChildStdin,
    directory: PathBuf,
}

impl Janitor {
    /// Starts the janitor of a sandbox that has just been claimed, before anything else is started.
    pub(crate) fn start(directory: &Path, identity: &Identity) -> Result<Self, Error> {
        // A session of its own: signals for our terminal are not for it.
        let mut process = Command::new("setsid")
            .args(["sh", "-c", SCRIPT, "janitor"])
            .arg(directory)
            .args(arguments(identity, "wait"))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(io_error("starting setsid (Debian package util-linux) for", directory))?;
        let leash = process.stdin.take().ok_or_else(|| Error::Vanished { program: "janitor".into() })?;
        Ok(Self { process, leash, directory: directory.to_owned() })
    }

    /// Lets the janitor work, and waits until it is done. The caller has given up its claim.
    pub(crate) async fn finish(self, limit: Duration) -> Result<(), Error> {
        use std::io::Write as _;
        let Self { mut process, mut leash, directory } = self;
        // A janitor that was killed does not hear it; then we do its work below.
        let _ = leash.write_all(b"goodbye");
        drop(leash);
        let deadline = Instant::now() + limit;
        loop {
            match process.try_wait() {
                Ok(None) if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(10)).await,
                Ok(None) => {
                    return Err(Error::NotReady {
                        what: "the removal of the sandbox".into(),
                        limit,
                        last: format!("{} is still there", directory.display()),
                    });
                }
                Ok(Some(_)) => return remove(&directory),
                Err(error) => return Err(io_error("waiting for the janitor of", &directory)(error)),
            }
        }
    }
}

fn arguments(identity: &Identity, when: &str) -> [String; 4] {
    [identity.to_string(), identity.hardware_address(), identity.metric().to_string(), when.to_owned()]
}

/// Whether a janitor is removing this sandbox.
pub(crate) fn is_at_work(directory: &Path) -> bool {
    directory.join("closing").exists()
}

/// Removes a sandbox without an owner now; what is not a sandbox is left alone.
pub(crate) fn remove(directory: &Path) -> Result<(), Error> {
    let Some(identity) = Identity::of(directory) else { return Ok(()) };
    let status = Command::new("sh")
        .args(["-c", SCRIPT, "janitor"])
        .arg(directory)
        .args(arguments(&identity, "now"))
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(io_error("starting sh to remove", directory))?;
    if directory.exists() { Err(still_there(directory, status)) } else { Ok(()) }
}

fn still_there(directory: &Path, status: std::process::ExitStatus) -> Error {
    let failure = std::io::Error::other(format!(
        "the janitor ended with {status}; see what keeps it (`findmnt`, `lsof`), and remove it by hand"
    ));
    io_error("removing", directory)(failure)
}

//! What can go wrong with a sandbox, each with its fix.

use std::path::Path;
use std::time::Duration;

use crate::lab::LabError;

/// Everything that can go wrong. [`Error::kind`] groups it for exit codes.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum Error {
    #[error(
        "{name:?} is not a name for a sandbox: use 1 to 20 of a-z, 0-9 and -, beginning with a letter and not ending in -"
    )]
    InvalidName { name: String },
    #[error("{what}")]
    InvalidSpec { what: String },
    #[error(
        "sandbox {name} is already up: `kubeocean sandbox status {name}` shows it, `kubeocean sandbox down {name}` ends it"
    )]
    AlreadyUp { name: String },
    #[error("no sandbox {name} is up{others}: `kubeocean sandbox up {name}` starts it")]
    NotUp { name: String, others: String },
    #[error("sandbox {name} is dead, and what it left cannot be removed: {problem}")]
    Stale { name: String, problem: String },
    #[error(
        "{directory} is there and is not a sandbox: choose another name, or set KUBEOCEAN_SANDBOX_DIR to a directory of its own"
    )]
    NotASandbox { directory: String },
    #[error("{why}. It was removed: run the command again, and it is built anew")]
    CorruptProgram { why: String },
    #[error("sandbox {sandbox} has no cluster {cluster}: it has {known}")]
    UnknownCluster { sandbox: String, cluster: String, known: String },
    #[error("cluster {cluster} runs no {program}: it has {known}")]
    UnknownProgram { cluster: String, program: String, known: String },
    #[error("real nodes are not possible here:\n{}", list(.missing))]
    MissingPrerequisites { missing: Vec<String> },
    #[error(
        "{free} MiB are free on the disk of {path}, and a sandbox needs {needed} MiB: free some space, or set KUBEOCEAN_SANDBOX_DIR to a directory on a larger disk"
    )]
    DiskFull { free: u64, needed: u64, path: String },
    #[error("the path {path} is too long for a socket: set KUBEOCEAN_SANDBOX_DIR to a shorter directory")]
    PathTooLong { path: String },
    #[error(
        "no free address range: every /16 of 10.192.0.0/10 and 172.16.0.0/12 overlaps with a route of this machine. \
         End a sandbox (`kubeocean sandbox list`), or a VPN that takes them (`ip route`)"
    )]
    NoAddressRange,
    #[error("{program} of {cluster} ended ({status}). The end of its log:\n{tail}")]
    ProgramDied { cluster: String, program: String, status: String, log: String, tail: String },
    #[error("{program} vanished while it was being started: start it again")]
    Vanished { program: String },
    #[error("{what} was not ready within {limit:?}: {last}. If this machine is busy, try again")]
    NotReady { what: String, limit: Duration, last: String },
    #[error("`{command}` failed: {message}")]
    Command { command: String, message: String },
    #[error(
        "the image archive {archive} cannot be imported; is it what `docker save` or an OCI tool wrote? {message}"
    )]
    Image { archive: String, message: String },
    #[error("the sandbox was given up before it was ready; nothing of it is left")]
    GivenUp,
    #[error("the thread of the sandbox is gone: the sandbox has ended")]
    Ended,
    #[error("{doing} {path}: {source}{}", space_hint(.source))]
    Io {
        doing: &'static str,
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("making a certificate for {subject}")]
    Certificate {
        subject: String,
        #[source]
        source: rcgen::Error,
    },
    #[error("{doing} in {cluster}: {source}")]
    Api {
        cluster: String,
        doing: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("reading the kubeconfig of {cluster}")]
    Kubeconfig {
        cluster: String,
        #[source]
        source: kube::config::KubeconfigError,
    },
    #[error(transparent)]
    Lab(#[from] LabError),
}

/// Groups of errors: what a script can react to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request makes no sense.
    Usage,
    /// What was asked for is not there.
    NotFound,
    /// It is there already.
    AlreadyExists,
    /// The machine lacks something that the message names.
    Prerequisite,
    /// Anything else.
    Failure,
}

impl Error {
    /// There is no such cluster; these there are.
    pub(crate) fn unknown_cluster<'a>(
        sandbox: &str,
        cluster: &str,
        known: impl Iterator<Item = &'a str>,
    ) -> Self {
        let known = known.collect::<Vec<_>>().join(", ");
        Self::UnknownCluster { sandbox: sandbox.to_owned(), cluster: cluster.to_owned(), known }
    }

    /// There is no such program; these there are.
    pub(crate) fn unknown_program<'a>(
        cluster: &str,
        program: &str,
        known: impl Iterator<Item = &'a str>,
    ) -> Self {
        let known = known.collect::<Vec<_>>().join(", ");
        Self::UnknownProgram { cluster: cluster.to_owned(), program: program.to_owned(), known }
    }

    /// The group this error belongs to.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidName { .. } | Self::InvalidSpec { .. } | Self::PathTooLong { .. } => {
                ErrorKind::Usage
            }
            Self::NotUp { .. } | Self::UnknownCluster { .. } | Self::UnknownProgram { .. } => {
                ErrorKind::NotFound
            }
            Self::AlreadyUp { .. } | Self::NotASandbox { .. } => ErrorKind::AlreadyExists,
            Self::MissingPrerequisites { .. } | Self::DiskFull { .. } | Self::NoAddressRange => {
                ErrorKind::Prerequisite
            }
            Self::Lab(error) => match error {
                LabError::NoGo { .. } | LabError::WrongVersion { .. } | LabError::DiskFull { .. } => {
                    ErrorKind::Prerequisite
                }
                LabError::UnknownRelease { .. } => ErrorKind::Usage,
                _ => ErrorKind::Failure,
            },
            _ => ErrorKind::Failure,
        }
    }
}

pub(crate) fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.display().to_string();
    move |source| Error::Io { doing, path, source }
}

fn list(items: &[String]) -> String {
    items.iter().map(|item| format!("  - {item}")).collect::<Vec<_>>().join("\n")
}

fn space_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::StorageFull => {
            " (the disk is full: free some space, or set KUBEOCEAN_SANDBOX_DIR to a directory on a larger disk)"
        }
        std::io::ErrorKind::PermissionDenied => {
            " (set KUBEOCEAN_SANDBOX_DIR to a directory that you may write)"
        }
        _ => "",
    }
}

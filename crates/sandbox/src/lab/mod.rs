//! Where the real programs come from: etcd, kube-apiserver, kubelet and their friends.
//!
//! In this order: a directory named by the environment, `PATH` (right version only), the cache, and
//! else a build from pinned, checksummed Go modules into that cache. [`ensure`] is the whole surface:
//! it is asked for programs and answers with paths.
//!
//! Deliberately absent: how the programs are started, and prebuilt downloads from anywhere.

mod build;
mod cache;
mod catalog;
mod locate;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use build::{BuildEvent, BuildPlan, ensure, plan};
pub(crate) use cache::hex;
pub use cache::{cache_root, remove_corrupt};
pub use catalog::{KUBERNETES, Program, Release, release};
pub use locate::{Found, Origin, Rejected};

/// The programs of one sandbox: each found or built, and checked.
#[derive(Debug, Clone)]
pub struct Toolset {
    programs: BTreeMap<Program, PathBuf>,
}

impl Toolset {
    /// The executable of `program`.
    pub fn path(&self, program: Program) -> Result<&Path, LabError> {
        self.programs.get(&program).map(PathBuf::as_path).ok_or(LabError::NotAsked(program))
    }
}

/// Why a program is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// An internal contradiction: someone starts a program that was not requested.
    #[error("{0} was not requested from the lab: this is a bug in the sandbox")]
    NotAsked(Program),
    /// No such Kubernetes minor in the table.
    #[error("Kubernetes {asked} is not in the lab's table: it has {known}")]
    UnknownRelease {
        /// What was asked for.
        asked: String,
        /// What there is.
        known: String,
    },
    /// A directory from the environment holds a program of another version.
    #[error(
        "{variable} has {program} {found}, but {wanted} is needed: put the right one there, or unset {variable}"
    )]
    WrongVersion {
        /// The variable that named the directory.
        variable: &'static str,
        /// The program.
        program: Program,
        /// What it says it is.
        found: String,
        /// What we need.
        wanted: String,
    },
    /// There is no Go toolchain, so nothing can be built.
    #[error(
        "{programs} not found, and Go is not installed, so they cannot be built\n\
         Provide them in one of three ways:\n\
         \x20 1. install Go 1.26 or newer (`go version` must work) and run this again: they are built once, in about 15 minutes\n\
         \x20 2. put them into a directory and set KUBEOCEAN_LAB_BIN to it (needed: {wanted})\n\
         \x20 3. copy the cache {cache} from a machine that has built them"
    )]
    NoGo {
        /// What is missing.
        programs: String,
        /// Program and version of each.
        wanted: String,
        /// Where the cache is.
        cache: String,
    },
    /// `go build` failed.
    #[error(
        "building {program} failed{hint}\n{tail}\nThe whole output is in {log}.\n\
         Instead of building, the programs can come from a directory (set KUBEOCEAN_LAB_BIN) or from a \
         copy of {cache}."
    )]
    Build {
        /// The program.
        program: Program,
        /// What the output suggests.
        hint: &'static str,
        /// The last lines.
        tail: String,
        /// The log file.
        log: String,
        /// Where the cache is.
        cache: String,
    },
    /// The disk is too full to build on.
    #[error(
        "{free} MiB are free on the disk of {path}, and the build needs {needed} MiB: free some space, or set XDG_CACHE_HOME, GOCACHE and GOMODCACHE to a larger disk"
    )]
    DiskFull {
        /// Free space.
        free: u64,
        /// Needed space.
        needed: u64,
        /// Where.
        path: String,
    },
    /// A file operation failed.
    #[error("{doing} {path}")]
    Io {
        /// What we were doing, as in "writing".
        doing: &'static str,
        /// To what.
        path: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

impl LabError {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Io { doing, path, source }
    }
}

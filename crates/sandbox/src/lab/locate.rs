//! Finding programs that are already there: environment, `PATH`, cache.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::LabError;
use super::cache::{self, Depth, Entry};
use super::catalog::{Program, Release};

/// Directories that the user names, in the order in which they are asked.
const VARIABLES: [&str; 2] = ["KUBEOCEAN_LAB_BIN", "KUBEBUILDER_ASSETS"];

/// A program that is there.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Found {
    /// The executable.
    pub path: PathBuf,
    /// Who provides it.
    pub origin: Origin,
}

/// Who provides a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A directory named by an environment variable.
    Environment,
    /// The search path.
    Path,
    /// The lab's cache.
    Cache,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Environment => "environment",
            Self::Path => "PATH",
            Self::Cache => "cache",
        })
    }
}

/// A candidate that was looked at and not taken, and why.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Rejected {
    /// The executable.
    pub path: PathBuf,
    /// The reason, as a clause: "is v1.32.4, not v1.36".
    pub why: String,
}

/// The answer to "where is it?": maybe a program, and what was passed over on the way.
#[derive(Debug, Default)]
pub(super) struct Search {
    pub(super) found: Option<Found>,
    pub(super) rejected: Vec<Rejected>,
}

pub(super) fn locate(program: Program, release: &'static Release, depth: Depth) -> Result<Search, LabError> {
    let wanted = minor_of(program.recipe(release).module.version);
    for variable in VARIABLES {
        let Some(directory) = std::env::var_os(variable).filter(|value| !value.is_empty()) else { continue };
        let path = Path::new(&directory).join(program.name());
        if !path.is_file() {
            continue;
        }
        match version_of(program, &path) {
            Some(found) if minor_of(&found) == wanted => {
                return Ok(Search {
                    found: Some(Found { path, origin: Origin::Environment }),
                    rejected: Vec::new(),
                });
            }
            found => {
                return Err(LabError::WrongVersion {
                    variable,
                    program,
                    found: found.unwrap_or_else(|| "that does not tell its version".into()),
                    wanted: format!("v{wanted}"),
                });
            }
        }
    }
    let mut search = Search::default();
    for path in on_search_path(program, std::env::var_os("PATH").as_deref()) {
        match version_of(program, &path) {
            Some(found) if minor_of(&found) == wanted => {
                search.found = Some(Found { path, origin: Origin::Path });
                return Ok(search);
            }
            Some(found) => {
                search.rejected.push(Rejected { path, why: format!("is {found}, not v{wanted}") });
            }
            None => search.rejected.push(Rejected { path, why: "does not tell its version".into() }),
        }
    }
    match cache::look_up(program, release, depth) {
        Entry::Good(path) => search.found = Some(Found { path, origin: Origin::Cache }),
        Entry::Absent => {}
        Entry::Corrupt(why) => {
            let path = cache::directory(&program.recipe(release)).join(program.name());
            search.rejected.push(Rejected { path, why });
        }
    }
    Ok(search)
}

fn on_search_path(program: Program, path: Option<&OsStr>) -> Vec<PathBuf> {
    let Some(path) = path else { return Vec::new() };
    std::env::split_paths(path)
        .map(|directory| directory.join(program.name()))
        .filter(|candidate| candidate.is_file())
        .take(1)
        .collect()
}

fn version_of(program: Program, path: &Path) -> Option<String> {
    // A program that does not answer such a question is not the one we look for.
    let mut command = Command::new("timeout");
    command.arg("10").arg(path).args(program.version_args()).stdin(Stdio::null());
    let output = command.output().ok()?;
    parse_version(&String::from_utf8_lossy(&output.stdout))
}

/// The first thing in `text` that looks like a version: `Kubernetes v1.36.4` → `v1.36.4`,
/// `etcd Version: 3.6.16` → `v3.6.16`, `CoreDNS-1.12.4` → `v1.12.4`.
fn parse_version(text: &str) -> Option<String> {
    let words = text.split(|c: char| c.is_whitespace() || c == ',');
    words.flat_map(|word| word.split('-').take(2)).find_map(|word| {
        let digits = word.trim_start_matches('v');
        let mut parts = digits.split('.');
        let is_number =
            |part: Option<&str>| part.is_some_and(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
        (is_number(parts.next()) && is_number(parts.next()) && is_number(parts.next()))
            .then(|| format!("v{digits}"))
    })
}

/// `v1.36.4` → `1.36`.
fn minor_of(version: &str) -> String {
    version.trim_start_matches('v').split('.').take(2).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_programs_print() {
        for (printed, version) in [
            ("Kubernetes v1.36.4\n", Some("v1.36.4")),
            ("Client Version: v1.36.4\nKustomize Version: v5.7.1\n", Some("v1.36.4")),
            ("Client Version: v1.32.4-dispatcher\nKustomize Version: v5.5.0", Some("v1.32.4")),
            ("etcd Version: 3.6.16\nGit SHA: abc\n", Some("v3.6.16")),
            ("kwok version v0.8.0 go1.26.8 (linux/amd64)", Some("v0.8.0")),
            ("CoreDNS-1.12.4\nlinux/amd64, go1.26.8, \n", Some("v1.12.4")),
            ("nothing of the kind", None),
            ("", None),
        ] {
            assert_eq!(parse_version(printed).as_deref(), version, "{printed:?}");
        }
        assert_eq!(minor_of("v1.36.4"), "1.36");
    }

    #[test]
    fn only_the_first_on_the_search_path_counts_as_for_a_shell() {
        let (one, two) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
        for dir in [&one, &two] {
            std::fs::write(dir.path().join("etcd"), "").expect("writable");
        }
        let path = std::env::join_paths([one.path(), two.path()]).expect("joins");
        assert_eq!(on_search_path(Program::Etcd, Some(&path)), [one.path().join("etcd")]);
    }
}

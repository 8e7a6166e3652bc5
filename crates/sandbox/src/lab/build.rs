//! Building what is missing, once, with the Go toolchain.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::Command;

use super::cache::{self, Depth};
use super::catalog::{Module, Program, Release};
use super::locate::{Found, Rejected, locate};
use super::{LabError, Toolset, cache_root};
use crate::process::last_lines;

/// Module downloads, build cache and programs take about 8 GiB when all ten are built from nothing,
/// most of it in Go's own caches. Less than this is not worth beginning with.
const BUILD_NEEDS_MIB: u64 = 1024;
const PER_PROGRAM_MIB: u64 = 512;

/// How often a long build says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// What [`ensure`] would do.
#[derive(Debug)]
pub struct BuildPlan {
    /// Programs that are there.
    pub present: Vec<(Program, Found)>,
    /// Programs to build, with the version, in this order.
    pub missing: Vec<(Program, &'static str)>,
    /// Candidates that were passed over.
    pub rejected: Vec<Rejected>,
    pub(super) release: &'static Release,
}

/// What happens during a build, for a progress line.
#[derive(Debug)]
pub enum BuildEvent<'a> {
    /// A candidate was passed over.
    PassedOver(&'a Rejected),
    /// Another process builds; we wait for it.
    Waiting {
        /// The lock that it holds.
        lock: &'a Path,
    },
    /// A program is being built.
    Building {
        /// The program.
        program: Program,
        /// Its version.
        version: &'static str,
        /// 1-based.
        number: usize,
        /// How many there are to build.
        of: usize,
        /// Since this program was begun.
        elapsed: Duration,
    },
    /// A program is in the cache now.
    Built {
        /// The program.
        program: Program,
        /// Its version.
        version: &'static str,
        /// 1-based.
        number: usize,
        /// How many there are to build.
        of: usize,
        /// How long it took.
        elapsed: Duration,
        /// The programs still to build.
        left: Vec<Program>,
    },
}

/// Looks where `programs` are, and builds nothing. With `deep`, cached programs are read whole and
/// compared with the hash they were installed with.
pub fn plan(release: &'static Release, programs: &[Program], deep: bool) -> Result<BuildPlan, LabError> {
    let depth = if deep { Depth::Content } else { Depth::Size };
    let mut plan = BuildPlan { present: Vec::new(), missing: Vec::new(), rejected: Vec::new(), release };
    for program in Program::ALL.into_iter().filter(|program| programs.contains(program)) {
        let search = locate(program, release, depth)?;
        plan.rejected.extend(search.rejected);
        match search.found {
            Some(found) => plan.present.push((program, found)),
            None => plan.missing.push((program, program.recipe(release).module.version)),
        }
    }
    Ok(plan)
}

/// Finds or builds `programs`. Safe to call from several processes at once: one builds, the others wait.
/// Dropping the future ends the build; what was finished stays in the cache.
pub async fn ensure(
    release: &'static Release,
    programs: &[Program],
    report: &mut dyn FnMut(BuildEvent<'_>),
) -> Result<Toolset, LabError> {
    let look = async || {
        let programs = programs.to_vec();
        // Asking programs for their version may take seconds: whoever waits for us must be able to give up.
        let looked = tokio::task::spawn_blocking(move || plan(release, &programs, false)).await;
        looked
            .map_err(std::io::Error::other)
            .map_err(LabError::io("looking for programs in", &cache_root()))?
    };
    let mut current = look().await?;
    if !current.missing.is_empty() {
        for rejected in &current.rejected {
            report(BuildEvent::PassedOver(rejected));
        }
        let go = go_toolchain().ok_or_else(|| no_go(&current))?;
        let _lock = lock(report).await?;
        // Someone else may have built it while we waited.
        current = look().await?;
        build(&go, &current, report).await?;
        current = look().await?;
    }
    let programs = current.present.into_iter().map(|(program, found)| (program, found.path)).collect();
    Ok(Toolset { programs })
}

fn go_toolchain() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("go")).find(|go| go.is_file())
}

fn no_go(plan: &BuildPlan) -> LabError {
    let join = |part: &dyn Fn(&(Program, &str)) -> String| {
        plan.missing.iter().map(part).collect::<Vec<_>>().join(", ")
    };
    LabError::NoGo {
        programs: join(&|(program, _)| program.to_string()),
        wanted: join(&|(program, version)| format!("{program} {version}")),
        cache: cache_root().display().to_string(),
    }
}

/// One build at a time per cache: two would only take each other's cores.
async fn lock(report: &mut dyn FnMut(BuildEvent<'_>)) -> Result<File, LabError> {
    let root = cache_root();
    fs::create_dir_all(&root).map_err(LabError::io("creating", &root))?;
    let path = root.join("build.lock");
    let file = File::create(&path).map_err(LabError::io("creating", &path))?;
    if file.try_lock().is_ok() {
        return Ok(file);
    }
    report(BuildEvent::Waiting { lock: &path });
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        if file.try_lock().is_ok() {
            return Ok(file);
        }
    }
}

async fn build(go: &Path, plan: &BuildPlan, report: &mut dyn FnMut(BuildEvent<'_>)) -> Result<(), LabError> {
    check_space(plan.missing.len())?;
    let of = plan.missing.len();
    for (index, (program, version)) in plan.missing.iter().copied().enumerate() {
        let number = index + 1;
        let started = Instant::now();
        let mut job = Job::start(go, program, plan.release)?;
        loop {
            report(BuildEvent::Building { program, version, number, of, elapsed: started.elapsed() });
            if let Ok(status) = tokio::time::timeout(HEARTBEAT, job.go.wait()).await {
                let status = status.map_err(LabError::io("waiting for", go))?;
                job.finish(program, plan.release, status.success())?;
                break;
            }
        }
        let _ = fs::remove_dir_all(cache_root().join("tmp"));
        let left = plan.missing[number..].iter().map(|(p, _)| *p).collect();
        report(BuildEvent::Built { program, version, number, of, elapsed: started.elapsed(), left });
    }
    Ok(())
}

/// One `go build`.
struct Job {
    go: tokio::process::Child,
    output: PathBuf,
    log: PathBuf,
}

impl Job {
    fn start(go: &Path, program: Program, release: &'static Release) -> Result<Self, LabError> {
        let recipe = program.recipe(release);
        let directory = cache::directory(&recipe);
        let source = lay_out(recipe.module)?;
        let temporary = cache_root().join("tmp");
        let _ = fs::remove_dir_all(&temporary);
        fs::create_dir_all(&temporary).map_err(LabError::io("creating", &temporary))?;
        let output = directory.join(format!(".{program}.new"));
        let log = directory.join(format!("{program}.build.log"));
        let log_file = File::create(&log).map_err(LabError::io("creating", &log))?;
        let errors = log_file.try_clone().map_err(LabError::io("creating", &log))?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(go)
            .args(["build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags"])
            .arg(recipe.module.ldflags())
            .arg("-o")
            .arg(&output)
            .arg(recipe.package)
            .current_dir(&source)
            .env("CGO_ENABLED", "0")
            .env("GOWORK", "off")
            // Where a killed compiler leaves its files: emptied before each build.
            .env("GOTMPDIR", &temporary)
            // For this machine, whatever else is built on it.
            .env_remove("GOFLAGS")
            .env_remove("GOOS")
            .env_remove("GOARCH")
            // A group of its own: `go` and its compilers end together.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log_file)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .map_err(LabError::io("starting", go))?;
        Ok(Self { go: child, output, log })
    }

    fn finish(&self, program: Program, release: &'static Release, succeeded: bool) -> Result<(), LabError> {
        if succeeded {
            cache::install(&self.output, program, &program.recipe(release))?;
            // The log of a success is of no use to anyone; failing to remove it harms nobody.
            let _ = fs::remove_file(&self.log);
            return Ok(());
        }
        let _ = fs::remove_file(&self.output);
        let tail = last_lines(&self.log, 12);
        Err(LabError::Build {
            program,
            hint: hint_for(&tail),
            tail,
            log: self.log.display().to_string(),
            cache: cache_root().display().to_string(),
        })
    }
}

impl Drop for Job {
    /// Given up: the compilers that `go` has started would otherwise go on without it.
    fn drop(&mut self) {
        let group =
            self.go.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(group) = group {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// Writes the module's two files where `go` can work in them.
fn lay_out(module: &Module) -> Result<PathBuf, LabError> {
    let source = cache_root().join(module.directory()).join("src");
    fs::create_dir_all(&source).map_err(LabError::io("creating", &source))?;
    for (name, text) in [("go.mod", module.go_mod), ("go.sum", module.go_sum)] {
        let path = source.join(name);
        fs::write(&path, text).map_err(LabError::io("writing", &path))?;
    }
    Ok(source)
}

fn check_space(programs: usize) -> Result<(), LabError> {
    let root = cache_root();
    let free = crate::home::free_mib(&root);
    let needed = BUILD_NEEDS_MIB + PER_PROGRAM_MIB * programs as u64;
    if free < needed {
        return Err(LabError::DiskFull { free, needed, path: root.display().to_string() });
    }
    Ok(())
}

/// The usual reasons, in words.
fn hint_for(output: &str) -> &'static str {
    let has = |needle: &str| output.contains(needle);
    if has("no space left on device") {
        ": the disk is full; free some space, or set GOCACHE, GOMODCACHE and XDG_CACHE_HOME to a larger disk"
    } else if has("dial tcp")
        || has("GOPROXY=off")
        || has("no such host")
        || has("i/o timeout")
        || has("proxyconnect")
    {
        ": the Go module proxy cannot be reached; give this machine a network, or set GOPROXY to a mirror"
    } else if has("requires go >=") || has("toolchain not available") {
        ": this Go is too old for these versions; install a newer one"
    } else if has("checksum mismatch") {
        ": a module has other content than when it was pinned; do not trust that proxy"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_failures_are_named() {
        assert!(hint_for("dial tcp: lookup proxy: no such host").contains("cannot be reached"));
        assert!(hint_for("write /x: no space left on device").contains("disk is full"));
        assert!(hint_for("go.mod requires go >= 1.30").contains("too old"));
        assert_eq!(hint_for("undefined: x"), "");
    }
}

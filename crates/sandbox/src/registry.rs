//! The directory of sandboxes: who is up, who is stale, and who may take a name.
//!
//! A sandbox owns its directory by holding a lock on the file `lock` in it. The kernel drops the lock
//! when the owner dies, however it dies; so a sandbox whose lock is free is stale, and whoever finds it
//! removes it with the same script that the janitor runs (see `janitor`).
//!
//! Only what carries the file `identity` is a sandbox. It is there from the first moment on, because a
//! directory gets its name when it is complete. Whatever else lies beside sandboxes is left alone.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, io_error};
use crate::identity::{Identity, registry_tag};
use crate::state::{ProcessRef, SandboxState};
use crate::{home, janitor, net};

/// A janitor at work needs a second or two; a minute means that it hangs.
const REMOVAL_LIMIT: Duration = Duration::from_secs(60);

/// A directory that is being made; it gets its name when it is complete.
const UNFINISHED: &str = ".new-";

/// A directory that a janitor has emptied of everything but files.
pub(crate) const FINISHED: &str = ".gone-";

/// A name that is ours as long as this lives.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) directory: PathBuf,
    pub(crate) identity: Identity,
    lock: File,
}

impl Claim {
    /// Whether the directory is still there, and still ours: someone may have deleted it by hand.
    pub(crate) fn is_intact(&self) -> bool {
        is_same(&self.lock, &self.directory.join("lock"))
    }
}

/// A sandbox in the registry.
#[derive(Debug)]
pub struct Entry {
    /// The sandbox's name.
    pub name: String,
    /// Its directory.
    pub directory: PathBuf,
    /// What it says of itself, once it has written it.
    pub state: Option<SandboxState>,
    /// The process that runs it.
    pub supervisor: Option<ProcessRef>,
    /// Why a stale one could not be removed.
    pub problem: Option<String>,
}

/// What is known about a directory.
enum Ownership {
    Live,
    /// The owner is dead; the lock is ours now.
    Stale(File),
    /// Not there, or removed while we looked.
    Gone,
    /// Someone else's: not a sandbox.
    Foreign,
}

/// Takes `name`. A stale sandbox of that name is removed first.
pub(crate) async fn claim(name: &str) -> Result<Claim, Error> {
    let root = home::sandboxes();
    let directory = root.join(name);
    let deadline = Instant::now() + REMOVAL_LIMIT;
    loop {
        {
            let _registry = lock_registry(&root)?;
            match ownership(&directory) {
                Ownership::Live if !janitor::is_at_work(&directory) => {
                    return Err(Error::AlreadyUp { name: name.to_owned() });
                }
                Ownership::Live => {}
                Ownership::Stale(_lock) => janitor::remove(&directory)?,
                Ownership::Gone => return create(&root, name),
                Ownership::Foreign => {
                    return Err(Error::NotASandbox { directory: directory.display().to_string() });
                }
            }
        }
        if Instant::now() > deadline {
            return Err(Error::NotReady {
                what: format!("the removal of the former sandbox {name}"),
                limit: REMOVAL_LIMIT,
                last: format!("{} is still there", directory.display()),
            });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// All sandboxes that are up. Stale ones are removed on the way; one that resists is told, and is no
/// obstacle for the others.
pub fn list() -> Result<Vec<Entry>, Error> {
    let root = home::sandboxes();
    if !root.exists() {
        return Ok(Vec::new());
    }
    let _registry = lock_registry(&root)?;
    let mut entries = Vec::new();
    for entry in fs::read_dir(&root).map_err(io_error("reading", &root))?.flatten() {
        let directory = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let temporary = name.starts_with(UNFINISHED) || name.starts_with(FINISHED);
        let problem = match ownership(&directory) {
            Ownership::Stale(_lock) => match janitor::remove(&directory) {
                Ok(()) => continue,
                Err(error) => Some(error.to_string()),
            },
            Ownership::Live if !temporary && !janitor::is_at_work(&directory) => None,
            Ownership::Foreign if is_remainder(&root, &directory, &name) => {
                // Someone else may be removing it too.
                let _ = fs::remove_dir_all(&directory);
                continue;
            }
            _ => continue,
        };
        let supervisor = Identity::of(&directory).and_then(|identity| identity.owner());
        entries.push(Entry { name, state: SandboxState::read(&directory), supervisor, directory, problem });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    net::remove_orphans(&root);
    Ok(entries)
}

/// The sandbox `name`, if it is up.
pub fn find(name: &str) -> Result<Entry, Error> {
    crate::spec::check_name(name)?;
    let (mut up, stale): (Vec<_>, Vec<_>) = list()?.into_iter().partition(|entry| entry.problem.is_none());
    if let Some(index) = up.iter().position(|entry| entry.name == name) {
        return Ok(up.swap_remove(index));
    }
    if let Some(problem) = stale.into_iter().find(|entry| entry.name == name).and_then(|entry| entry.problem)
    {
        return Err(Error::Stale { name: name.to_owned(), problem });
    }
    let names: Vec<_> = up.iter().map(|entry| entry.name.as_str()).collect();
    let others = if names.is_empty() { String::new() } else { format!(" (up: {})", names.join(", ")) };
    Err(Error::NotUp { name: name.to_owned(), others })
}

/// Whether nothing of a sandbox's directory is left, also not what a janitor is about to remove.
pub fn has_ended(directory: &Path) -> bool {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let finished = format!(".{name}.");
    let siblings = directory.parent().map(fs::read_dir).into_iter().flatten().flatten().flatten();
    let mut names = siblings.map(|entry| entry.file_name().to_string_lossy().into_owned());
    !directory.exists() && !names.any(|name| name.starts_with(FINISHED) && name.contains(&finished))
}

/// Serialises creation and the verdict "stale": both look first and act then.
fn lock_registry(root: &Path) -> Result<File, Error> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(io_error("creating", root))?;
    let path = root.join(".lock");
    let file = open_lock(&path).map_err(io_error("opening", &path))?;
    file.lock().map_err(io_error("locking", &path))?;
    Ok(file)
}

fn ownership(directory: &Path) -> Ownership {
    if Identity::of(directory).is_none() {
        let there = fs::symlink_metadata(directory).is_ok();
        return if there { Ownership::Foreign } else { Ownership::Gone };
    }
    let path = directory.join("lock");
    let Ok(file) = open_lock(&path) else { return Ownership::Gone };
    if file.try_lock().is_err() {
        return Ownership::Live;
    }
    // A janitor may have removed the directory between our open and our lock.
    if is_same(&file, &path) { Ownership::Stale(file) } else { Ownership::Gone }
}

/// A directory that never got its identity, or has lost it already: its maker or its remover was killed
/// in between. The name, which only we give, and the owner tell. The caller holds the registry's lock, so
/// nobody is just making one.
fn is_remainder(root: &Path, directory: &Path, name: &str) -> bool {
    let tag = registry_tag(root);
    let named = [UNFINISHED, FINISHED].iter().any(|prefix| name.starts_with(&format!("{prefix}{tag}.")));
    let us = rustix::process::geteuid().as_raw();
    named
        && fs::symlink_metadata(directory).is_ok_and(|itself| itself.is_dir() && itself.uid() == us)
        && !directory.join("identity").exists()
}

/// Opens a lock file, or makes it; never what a link there leads to.
fn open_lock(path: &Path) -> std::io::Result<File> {
    let no_follow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default();
    OpenOptions::new().create(true).append(true).custom_flags(no_follow).open(path)
}

/// Whether `path` still leads to the open file.
fn is_same(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(there)) => ours.ino() == there.ino() && ours.dev() == there.dev(),
        _ => false,
    }
}

/// Makes the directory under another name, complete with lock and identity, and then gives it its own.
/// The caller holds the registry's lock.
fn create(root: &Path, name: &str) -> Result<Claim, Error> {
    let identity = Identity::new(root, name);
    let unfinished = root.join(format!("{UNFINISHED}{identity}"));
    fs::DirBuilder::new().mode(0o700).create(&unfinished).map_err(io_error("creating", &unfinished))?;
    let path = unfinished.join("lock");
    let lock = File::create(&path).map_err(io_error("creating", &path))?;
    lock.lock().map_err(io_error("locking", &path))?;
    let path = unfinished.join("identity");
    fs::write(&path, identity.as_str()).map_err(io_error("writing", &path))?;
    let directory = root.join(name);
    fs::rename(&unfinished, &directory).map_err(io_error("creating", &directory))?;
    Ok(Claim { directory, identity, lock })
}

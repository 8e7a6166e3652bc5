//! The directory of sandboxes: who is up, who is stale, and who may take a name.
//!
//! A sandbox owns its directory by holding a lock on the file `lock` in it. The kernel drops the lock
//! when the owner dies, however it dies; so a directory whose lock is free is stale, and whoever finds
//! it removes it with the same script that the janitor runs (see `janitor`).

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, io_error};
use crate::state::SandboxState;
use crate::{home, janitor};

/// A janitor at work needs a second or two; a minute means that it hangs.
const REMOVAL_LIMIT: Duration = Duration::from_secs(60);

/// A name that is ours as long as this lives.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) directory: PathBuf,
    /// Holds the lock.
    _lock: File,
}

/// A directory below the registry.
#[derive(Debug)]
pub struct Entry {
    /// The sandbox's name.
    pub name: String,
    /// Its directory.
    pub directory: PathBuf,
    /// What it says of itself, once it has written it.
    pub state: Option<SandboxState>,
}

/// What a lock tells about a directory.
enum Ownership {
    Live,
    /// The owner is dead; the lock is ours now.
    Stale(File),
    /// Removed while we looked.
    Gone,
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
                Ownership::Gone => {
                    return Ok(Claim { _lock: create(&directory)?, directory });
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

/// All sandboxes that are up. Stale ones are removed on the way.
pub fn list() -> Result<Vec<Entry>, Error> {
    let root = home::sandboxes();
    if !root.is_dir() {
        return Ok(Vec::new());
    }
    let _registry = lock_registry(&root)?;
    let mut entries = Vec::new();
    for entry in fs::read_dir(&root).map_err(io_error("reading", &root))?.flatten() {
        let directory = entry.path();
        if !directory.is_dir() {
            continue;
        }
        match ownership(&directory) {
            Ownership::Live if janitor::is_at_work(&directory) => {}
            Ownership::Live => entries.push(Entry {
                name: entry.file_name().to_string_lossy().into_owned(),
                state: SandboxState::read(&directory),
                directory,
            }),
            Ownership::Stale(_lock) => janitor::remove(&directory)?,
            Ownership::Gone => {}
        }
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    crate::net::remove_orphans(&root);
    Ok(entries)
}

/// The sandbox `name`, if it is up.
pub fn find(name: &str) -> Result<Entry, Error> {
    crate::spec::check_name(name)?;
    let entries = list()?;
    let names: Vec<_> = entries.iter().map(|entry| entry.name.clone()).collect();
    let others = match names.as_slice() {
        [] => String::new(),
        some => format!(" (up: {})", some.join(", ")),
    };
    entries
        .into_iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| Error::NotUp { name: name.to_owned(), others })
}

/// Whether the directory is no longer owned by anyone or is gone.
pub fn has_ended(directory: &Path) -> bool {
    !directory.exists()
}

/// Serialises creation and the verdict "stale": both look first and act then.
fn lock_registry(root: &Path) -> Result<File, Error> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(io_error("creating", root))?;
    let path = root.join(".lock");
    let file = File::create(&path).map_err(io_error("creating", &path))?;
    file.lock().map_err(io_error("locking", &path))?;
    Ok(file)
}

fn ownership(directory: &Path) -> Ownership {
    let path = directory.join("lock");
    if !directory.is_dir() {
        return Ownership::Gone;
    }
    // No lock file: its owner died before it was made, or a janitor died after it was removed.
    let Ok(file) = File::create(&path) else { return Ownership::Gone };
    if file.try_lock().is_err() {
        return Ownership::Live;
    }
    // A janitor may have removed the directory between our open and our lock.
    let same = match (file.metadata(), fs::metadata(&path)) {
        (Ok(ours), Ok(there)) => ours.ino() == there.ino(),
        _ => false,
    };
    if same { Ownership::Stale(file) } else { Ownership::Gone }
}

fn create(directory: &Path) -> Result<File, Error> {
    fs::DirBuilder::new().mode(0o700).create(directory).map_err(io_error("creating", directory))?;
    let path = directory.join("lock");
    let file = File::create(&path).map_err(io_error("creating", &path))?;
    file.lock().map_err(io_error("locking", &path))?;
    Ok(file)
}

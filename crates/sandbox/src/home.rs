//! Where things live on this machine: cache, sandbox directories, free space.

use std::path::{Path, PathBuf};

/// Directory of caches: `$XDG_CACHE_HOME`, else `~/.cache`.
pub(crate) fn cache_home() -> PathBuf {
    xdg("XDG_CACHE_HOME", ".cache")
}

/// Directory below which each sandbox has one of its own: `$KUBEOCEAN_SANDBOX_DIR`, else
/// `${XDG_STATE_HOME:-~/.local/state}/kubeocean/sandboxes`. However it is spelled, it is one directory:
/// links and trailing slashes are resolved.
pub fn sandboxes() -> PathBuf {
    let asked = match std::env::var_os("KUBEOCEAN_SANDBOX_DIR") {
        Some(directory) if !directory.is_empty() => {
            std::path::absolute(&directory).unwrap_or(directory.into())
        }
        _ => xdg("XDG_STATE_HOME", ".local/state").join("kubeocean").join("sandboxes"),
    };
    resolved(&asked)
}

/// `path` with everything resolved that exists already.
fn resolved(path: &Path) -> PathBuf {
    let mut rest = Vec::new();
    for ancestor in path.ancestors() {
        if let Ok(real) = ancestor.canonicalize() {
            return rest.iter().rev().fold(real, |path: PathBuf, part| path.join(part));
        }
        rest.extend(ancestor.file_name());
    }
    path.to_owned()
}

fn xdg(variable: &str, below_home: &str) -> PathBuf {
    match std::env::var_os(variable).map(PathBuf::from) {
        Some(directory) if directory.is_absolute() => directory,
        _ => std::env::home_dir().unwrap_or_else(|| PathBuf::from("/tmp")).join(below_home),
    }
}

/// Free space on the disk that holds `path`, or that will when it exists. Unknown counts as plenty:
/// the write itself will tell.
pub(crate) fn free_mib(path: &Path) -> u64 {
    path.ancestors()
        .find_map(|ancestor| rustix::fs::statvfs(ancestor).ok())
        .map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize) >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_the_same_however_it_is_spelled() {
        let directory = tempfile::tempdir().expect("a directory");
        let real = directory.path().canonicalize().expect("it exists").join("real");
        std::fs::create_dir(&real).expect("a directory");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&real, &link).expect("a link");
        for spelled in [real.join(""), link.clone(), link.join("../real"), directory.path().join("./real")] {
            assert_eq!(resolved(&spelled), real, "{}", spelled.display());
        }
        assert_eq!(resolved(&link.join("not/yet/")), real.join("not/yet"));
    }
}

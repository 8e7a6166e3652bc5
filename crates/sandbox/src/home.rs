//! Where things live on this machine: cache, sandbox directories, free space.

use std::path::{Path, PathBuf};

/// Directory of caches: `$XDG_CACHE_HOME`, else `~/.cache`.
pub(crate) fn cache_home() -> PathBuf {
    xdg("XDG_CACHE_HOME", ".cache")
}

/// Directory below which each sandbox has one of its own: `$KUBEOCEAN_SANDBOX_DIR`, else
/// `${XDG_STATE_HOME:-~/.local/state}/kubeocean/sandboxes`.
pub fn sandboxes() -> PathBuf {
    match std::env::var_os("KUBEOCEAN_SANDBOX_DIR") {
        Some(directory) if !directory.is_empty() => {
            std::path::absolute(&directory).unwrap_or(directory.into())
        }
        _ => xdg("XDG_STATE_HOME", ".local/state").join("kubeocean").join("sandboxes"),
    }
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

//! Looks for what a sandbox left behind. Nothing, one hopes: tests and benchmarks ask.

use std::fs;
use std::path::Path;

use crate::identity::registry_tag;
use crate::net::orphaned_routes;
use crate::registry::FINISHED;

/// Everything on this machine that belongs to the sandbox `name`: processes, mounts, interfaces,
/// control groups, its directory, and routes of sandboxes that are gone. Empty when it is down.
pub fn leftovers(name: &str) -> Vec<String> {
    leftovers_in(&crate::home::sandboxes(), name)
}

/// The same for a sandbox that was started with this `KUBEOCEAN_SANDBOX_DIR`.
pub fn leftovers_in(root: &Path, name: &str) -> Vec<String> {
    let directory = root.join(name);
    let identity = format!("{}.{name}.", registry_tag(root));
    let mut found = processes(&directory, &identity);
    let finished = root.join(format!("{FINISHED}{identity}"));
    let remains = entries(root).into_iter().filter(|path| {
        path.as_os_str().as_encoded_bytes().starts_with(finished.as_os_str().as_encoded_bytes())
    });
    found.extend(remains.map(|path| format!("directory {}", path.display())));
    if directory.exists() {
        found.push(format!("directory {}", directory.display()));
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let below = directory.display().to_string();
    found.extend(mounts.lines().filter(|line| line.contains(&below)).map(|line| format!("mount {line}")));
    for interface in entries(Path::new("/sys/class/net")) {
        let alias = fs::read_to_string(interface.join("ifalias")).unwrap_or_default();
        if alias.starts_with(&identity) {
            found.push(format!("interface {}", interface.display()));
        }
    }
    let hierarchies = std::iter::once("/sys/fs/cgroup".into()).chain(entries(Path::new("/sys/fs/cgroup")));
    for hierarchy in hierarchies {
        for group in entries(&hierarchy.join("kubeocean")) {
            if group.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&identity)) {
                found.push(format!("control group {}", group.display()));
            }
        }
    }
    found.extend(
        orphaned_routes(root).into_iter().map(|(range, metric)| format!("route {range} metric {metric}")),
    );
    found
}

fn processes(directory: &Path, identity: &str) -> Vec<String> {
    let directory = directory.display().to_string();
    let ours = |path: &Path, needle: &str| {
        fs::read(path).is_ok_and(|text| String::from_utf8_lossy(&text).contains(needle))
    };
    let myself = std::process::id().to_string();
    entries(Path::new("/proc"))
        .into_iter()
        .filter(|process| process.file_name().is_some_and(|pid| *pid != *myself))
        .filter(|process| {
            ours(&process.join("cmdline"), &directory) || ours(&process.join("cgroup"), identity)
        })
        .map(|process| {
            let command = fs::read(process.join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            format!("process {}: {}", process.display(), command.chars().take(120).collect::<String>())
        })
        .collect()
}

fn entries(directory: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

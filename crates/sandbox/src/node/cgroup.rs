//! Control groups of real nodes: one per node, below `kubeocean/<identity>`, so that what containers
//! leave behind is known to be ours.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, io_error};

const ROOT: &str = "/sys/fs/cgroup";

/// The control groups of one node.
#[derive(Debug, Clone)]
pub(super) struct Groups {
    /// `v1` or `v2`, as the machine script takes it.
    pub(super) hierarchy: &'static str,
    /// v1: the controllers of each hierarchy, as mount options.
    pub(super) controllers: Vec<String>,
    /// Files that a process writes its id to before it takes the group for its root.
    pub(super) join_machine: Vec<PathBuf>,
    /// Files that the machine's processes write theirs to.
    pub(super) join_program: Vec<PathBuf>,
}

/// Makes the groups of a node.
pub(super) fn create(identity: &str, node: &str) -> Result<Groups, Error> {
    let path = Path::new("kubeocean").join(identity).join(node);
    if Path::new(ROOT).join("cgroup.controllers").exists() {
        let group = create_v2(&path)?;
        // Where controllers are handed down, no process may be: all of them live one level below.
        make(&group.join("programs"))?;
        return Ok(Groups {
            hierarchy: "v2",
            controllers: Vec::new(),
            join_machine: vec![group.join("cgroup.procs")],
            join_program: vec![group.join("programs/cgroup.procs")],
        });
    }
    let mut groups = Groups {
        hierarchy: "v1",
        controllers: Vec::new(),
        join_machine: Vec::new(),
        join_program: Vec::new(),
    };
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for (mount_point, controllers) in v1_hierarchies(&mounts) {
        let procs = create_v1(Path::new(mount_point), &path)?.join("cgroup.procs");
        groups.controllers.push(controllers);
        groups.join_machine.push(procs.clone());
        groups.join_program.push(procs);
    }
    Ok(groups)
}

/// Mount point and controllers of each v1 hierarchy that has controllers. (A named one has none.)
fn v1_hierarchies(mounts: &str) -> Vec<(&str, String)> {
    const CONTROLLERS: [&str; 12] = [
        "blkio",
        "cpu",
        "cpuacct",
        "cpuset",
        "devices",
        "freezer",
        "hugetlb",
        "memory",
        "net_cls",
        "net_prio",
        "perf_event",
        "pids",
    ];
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (mount_point, kind, options) = (words.nth(1)?, words.next()?, words.next()?);
            let controllers: Vec<_> = options.split(',').filter(|word| CONTROLLERS.contains(word)).collect();
            (kind == "cgroup" && !controllers.is_empty()).then(|| (mount_point, controllers.join(",")))
        })
        .collect()
}

fn create_v1(hierarchy: &Path, path: &Path) -> Result<PathBuf, Error> {
    let mut group = hierarchy.to_owned();
    for part in path {
        let parent = group.clone();
        group.push(part);
        make(&group)?;
        // A new cpuset is empty, and an empty one takes no process.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if let Ok(inherited) = fs::read_to_string(parent.join(file)) {
                let file = group.join(file);
                fs::write(&file, inherited.trim()).map_err(io_error("writing", &file))?;
            }
        }
    }
    Ok(group)
}

fn create_v2(path: &Path) -> Result<PathBuf, Error> {
    let mut group = PathBuf::from(ROOT);
    for part in path {
        // Controllers are handed down one by one: one that the system keeps for itself is done without.
        for controller in
            fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default().split_whitespace()
        {
            let _ = fs::write(group.join("cgroup.subtree_control"), format!("+{controller}"));
        }
        group.push(part);
        make(&group)?;
    }
    Ok(group)
}

fn make(group: &Path) -> Result<(), Error> {
    match fs::create_dir(group) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(io_error("creating", group)(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_with_controllers_are_found() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
            cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
            cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
            cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,name=systemd 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        assert_eq!(
            v1_hierarchies(mounts),
            [
                ("/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct".to_owned()),
                ("/sys/fs/cgroup/memory", "memory".to_owned())
            ]
        );
    }
}

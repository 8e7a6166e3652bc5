//! What this machine can do, and what it lacks.

use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::image::BUSYBOX;
use crate::{home, lab};

/// Everything real nodes need, by Debian package. One command installs it.
pub const PACKAGES: &str = "containerd runc containernetworking-plugins iproute2 iptables nftables conntrack busybox-static util-linux";

/// One finding.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Check {
    /// What was looked at.
    pub what: String,
    /// What it is needed for.
    pub needed_for: Need,
    /// `None`: all is well. Else what is wrong, and the fix.
    pub problem: Option<String>,
    /// What was found, for the reader.
    pub found: String,
}

/// What a finding matters for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Any sandbox.
    Sandbox,
    /// Sandboxes with real nodes.
    RealNodes,
    /// Nothing: good to know.
    Information,
}

/// Looks at everything. Takes a few seconds: cached programs are read whole.
pub fn examine() -> Result<Vec<Check>, Error> {
    let mut checks = basics();
    checks.extend(real_node_checks());
    checks.push(inotify(3, 2));
    let release = lab::release(None)?;
    let plan = lab::plan(release, &lab::Program::ALL, true)?;
    let go = find("go");
    for (program, found) in &plan.present {
        checks.push(good(
            Need::Information,
            program.name(),
            format!("{} ({})", found.path.display(), found.origin),
        ));
    }
    for rejected in &plan.rejected {
        checks.push(good(
            Need::Information,
            "passed over",
            format!("{} {}", rejected.path.display(), rejected.why),
        ));
    }
    for (program, version) in &plan.missing {
        let found = "not there yet".to_owned();
        checks.push(match &go {
            Some(_) => good(
                Need::Information,
                program.name(),
                format!("not there yet: `kubeocean sandbox build {program}` builds {version}"),
            ),
            None => Check {
                what: program.name().to_owned(),
                needed_for: Need::Sandbox,
                problem: Some(
                    "install Go 1.26 or newer, or set KUBEOCEAN_LAB_BIN to a directory that has it".into(),
                ),
                found,
            },
        });
    }
    Ok(checks)
}

/// Fails with the whole list of what real nodes lack here. `clusters` and `nodes` say how many of each.
pub fn require_real_nodes(clusters: usize, nodes: usize) -> Result<(), Error> {
    let checks = real_node_checks().into_iter().chain([inotify(clusters, nodes)]);
    let missing: Vec<_> = checks.filter_map(|check| check.problem).collect();
    if missing.is_empty() { Ok(()) } else { Err(Error::MissingPrerequisites { missing }) }
}

fn basics() -> Vec<Check> {
    let mut checks = Vec::new();
    for program in ["setpriv", "setsid", "flock"] {
        checks.push(on_path(Need::Sandbox, program, "util-linux"));
    }
    let directory = home::sandboxes();
    let free = home::free_mib(&directory);
    checks.push(good(Need::Information, "disk", format!("{free} MiB free at {}", directory.display())));
    checks
}

fn real_node_checks() -> Vec<Check> {
    let mut checks = vec![Check {
        what: "root".into(),
        needed_for: Need::RealNodes,
        problem: (!rustix::process::geteuid().is_root()).then(|| {
            "you are not root: use `sudo`, or `--real-nodes 0` (simulated nodes need no rights)".to_owned()
        }),
        found: format!("uid {}", rustix::process::geteuid().as_raw()),
    }];
    for (program, package) in [
        ("containerd", "containerd"),
        ("ctr", "containerd"),
        ("runc", "runc"),
        ("ip", "iproute2"),
        ("iptables", "iptables"),
        ("nft", "nftables"),
        ("conntrack", "conntrack"),
        ("unshare", "util-linux"),
        ("nsenter", "util-linux"),
    ] {
        checks.push(on_path(Need::RealNodes, program, package));
    }
    for plugin in ["ptp", "host-local", "portmap", "loopback"] {
        checks.push(file(Path::new("/usr/lib/cni").join(plugin).as_path(), "containernetworking-plugins"));
    }
    checks.push(static_busybox());
    let filesystems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !filesystems.contains("\toverlay\n") {
        checks.push(good(
            Need::Information,
            "overlay",
            "the kernel offers no overlay file system yet; it may load the module when asked".into(),
        ));
    }
    checks
}

/// A kubelet that may not watch files ends at once. The kernel's usual limit of 128 watchers per user
/// is enough for one sandbox; several at a time, or other programs that watch, need more.
fn inotify(clusters: usize, nodes: usize) -> Check {
    /// Counted: API server 6, controller-manager 5.
    const PER_CONTROL_PLANE: usize = 11;
    /// Counted: kubelet 6, containerd 1, kube-proxy 1; and a few for pods.
    const PER_NODE: usize = 12;
    let setting = "/proc/sys/fs/inotify/max_user_instances";
    let limit: usize =
        fs::read_to_string(setting).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(usize::MAX);
    let (used, needed) = (watchers_in_use(), clusters * PER_CONTROL_PLANE + nodes * PER_NODE);
    Check {
        what: "inotify instances".into(),
        needed_for: Need::RealNodes,
        problem: (used + needed > limit).then(|| {
            format!(
                "{used} of {limit} inotify instances are in use and {needed} more are needed: \
                 `sysctl -w fs.inotify.max_user_instances=1024`"
            )
        }),
        found: format!("{used} of {limit} in use"),
    }
}

fn watchers_in_use() -> usize {
    let list = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten();
    list(Path::new("/proc"))
        .flat_map(|process| list(&process.path().join("fd")))
        .filter(|file| {
            fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == "anon_inode:inotify")
        })
        .count()
}

fn good(needed_for: Need, what: &str, found: String) -> Check {
    Check { what: what.to_owned(), needed_for, problem: None, found }
}

fn on_path(needed_for: Need, program: &str, package: &str) -> Check {
    let found = find(program);
    Check {
        what: program.to_owned(),
        needed_for,
        problem: found.is_none().then(|| format!("{program} is missing: `apt-get install {package}`")),
        found: found.map_or_else(|| "missing".into(), |path| path.display().to_string()),
    }
}

fn file(path: &Path, package: &str) -> Check {
    let there = path.is_file();
    Check {
        what: path.display().to_string(),
        needed_for: Need::RealNodes,
        problem: (!there).then(|| format!("{} is missing: `apt-get install {package}`", path.display())),
        found: if there { "there".into() } else { "missing".into() },
    }
}

/// Images hold busybox and nothing else: it must need no libraries.
fn static_busybox() -> Check {
    let mut check = file(Path::new(BUSYBOX), "busybox-static");
    if let Ok(bytes) = fs::read(BUSYBOX)
        && bytes.windows(9).take(4096).any(|window| window == b"/lib64/ld" || window == b"/lib/ld-l")
    {
        check.problem = Some(format!("{BUSYBOX} needs shared libraries: `apt-get install busybox-static`"));
    }
    check
}

fn find(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path)
        .chain(usual)
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}

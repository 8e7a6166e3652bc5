//! Who a sandbox is: a name that no other sandbox of this machine's uptime has.
//!
//! Everything that a sandbox puts outside of its directory is marked with it, or with something that
//! follows from it: processes by an environment variable, control groups by their path, the bridge by its
//! hardware address, routes by their metric. Whoever cleans up needs the identity and nothing else, and
//! believes no file about what may be removed.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::state::ProcessRef;

/// The environment variable that marks the processes of a sandbox.
pub(crate) const MARK: &str = "KUBEOCEAN_SANDBOX";

/// `<registry>.<name>.<pid>-<start time>-<number>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity(String);

impl Identity {
    /// A new one, owned by this process.
    pub(crate) fn new(root: &Path, name: &str) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let ProcessRef { pid, start_time } = ProcessRef::current();
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        Self(format!("{}.{name}.{pid}-{start_time}-{number}", registry_tag(root)))
    }

    /// The identity of a directory below `root`: only if it is a sandbox of that registry, under its own
    /// name, and of the user that we are. (Root must not believe what others have written.)
    pub(crate) fn of(directory: &Path) -> Option<Self> {
        let root = directory.parent()?;
        let file = fs::symlink_metadata(directory.join("identity")).ok().filter(fs::Metadata::is_file)?;
        let itself = fs::symlink_metadata(directory).ok().filter(fs::Metadata::is_dir)?;
        let us = rustix::process::geteuid().as_raw();
        let identity = Self(fs::read_to_string(directory.join("identity")).ok()?);
        let name = directory.file_name()?.to_str()?;
        let named = name == identity.name()? || name.strip_prefix('.')?.split_once('-')?.1 == identity.0;
        let ours = identity.0.starts_with(&format!("{}.", registry_tag(root)));
        (named && ours && identity.owner().is_some() && file.uid() == us && itself.uid() == us)
            .then_some(identity)
    }

    /// What an interface says it belongs to.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let identity = Self(text.to_owned());
        (identity.name().is_some() && identity.owner().is_some()).then_some(identity)
    }

    /// Neither the directory nor the owner is there any more.
    pub(crate) fn is_orphaned(&self, root: &Path) -> bool {
        let directory = self.name().map(|name| root.join(name));
        let there = directory.and_then(|directory| Self::of(&directory)).as_ref() == Some(self);
        !there && !self.owner().is_some_and(ProcessRef::is_alive)
    }

    /// Its three parts, if these and nothing else is in it.
    fn parts(&self) -> Option<[&str; 3]> {
        self.0.split('.').collect::<Vec<_>>().try_into().ok()
    }

    fn name(&self) -> Option<&str> {
        let [_, name, _] = self.parts()?;
        crate::spec::check_name(name).is_ok().then_some(name)
    }

    /// The process that runs the sandbox.
    pub(crate) fn owner(&self) -> Option<ProcessRef> {
        let [_, _, owner] = self.parts()?;
        let numbers: Vec<u64> = owner.split('-').map(|number| number.parse().ok()).collect::<Option<_>>()?;
        let [pid, start_time, _number] = numbers.try_into().ok()?;
        Some(ProcessRef { pid: u32::try_from(pid).ok()?, start_time })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// A locally administered unicast address that only this sandbox has.
    pub(crate) fn hardware_address(&self) -> String {
        let hash = Sha256::digest(&self.0);
        let bytes = hash.iter().take(5).map(|byte| format!(":{byte:02x}"));
        std::iter::once("02".to_owned()).chain(bytes).collect()
    }

    /// A metric that only this sandbox has: the upper sixteenth of all metrics is ours (nobody prefers
    /// such a route), then come 12 bits for the registry, and 16 for itself.
    pub(crate) fn metric(&self) -> u32 {
        metrics_of(self.0.split('.').next().unwrap_or_default()) | hash16(&self.0)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A short name for a registry directory: an interface alias holds 255 characters.
pub(crate) fn registry_tag(root: &Path) -> String {
    crate::lab::hex(&Sha256::digest(root.as_os_str().as_encoded_bytes())[..6])
}

/// What the metrics of all sandboxes in one registry begin with.
pub(crate) fn metrics_of(registry_tag: &str) -> u32 {
    0xf000_0000 | hash16(registry_tag) >> 4 << 16
}

fn hash16(text: &str) -> u32 {
    Sha256::digest(text).iter().take(2).fold(0, |number, byte| number << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(root: &Path, name: &str, identity: &str) -> std::path::PathBuf {
        let directory = root.join(name);
        fs::create_dir(&directory).expect("a directory");
        fs::write(directory.join("identity"), identity).expect("writable");
        directory
    }

    #[test]
    fn a_sandbox_is_known_by_registry_name_and_owner() {
        let root = tempfile::tempdir().expect("a directory");
        let identity = Identity::new(root.path(), "dev");
        assert_eq!(identity.owner(), Some(ProcessRef::current()));
        let found = Identity::of(&directory(root.path(), "dev", identity.as_str()));
        assert_eq!(found.as_ref(), Some(&identity));
        let gone = directory(root.path(), &format!(".gone-{identity}"), identity.as_str());
        assert_eq!(Identity::of(&gone), Some(identity));
    }

    #[test]
    fn what_only_pretends_to_be_a_sandbox_is_not_believed() {
        let (root, other) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
        let foreign = Identity::new(other.path(), "copied");
        assert_eq!(Identity::of(&directory(root.path(), "copied", foreign.as_str())), None);
        let misnamed = Identity::new(root.path(), "dev");
        assert_eq!(Identity::of(&directory(root.path(), "prod", misnamed.as_str())), None);
        let tag = registry_tag(root.path());
        for (name, wild) in [
            ("a", format!("{tag}.a.*")),
            ("b", "*".into()),
            ("c", String::new()),
            ("d", format!("{tag}.d.1-2")),
            ("e", format!("{tag}.e.1-2-3.*")),
            ("f", format!("{tag}.f.1-2-3/../g")),
        ] {
            assert_eq!(Identity::of(&directory(root.path(), name, &wild)), None, "{wild}");
        }
        fs::create_dir(root.path().join("photos")).expect("a directory");
        assert_eq!(Identity::of(&root.path().join("photos")), None);
    }

    #[test]
    fn marks_tell_registries_and_sandboxes_apart() {
        let identity = |text: &str| Identity(text.to_owned());
        let (one, other) = (identity("aaaa.dev.1-1-1"), identity("aaaa.dev.1-1-2"));
        assert_ne!(one.metric(), other.metric());
        assert_eq!(one.metric() & 0xffff_0000, other.metric() & 0xffff_0000);
        assert_ne!(one.metric() & 0xffff_0000, identity("bbbb.dev.1-1-1").metric() & 0xffff_0000);
        assert!(one.metric() >= 0xf000_0000);
        assert_ne!(one.hardware_address(), other.hardware_address());
        assert_eq!(one.hardware_address().len(), 17);
    }
}

//! The cache of built programs: one directory per pinned module, one manifest beside each program.
//!
//! A program enters by rename after its manifest is written, so a crash leaves either nothing or a
//! whole entry. An entry whose size or recipe does not match its manifest counts as absent.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::LabError;
use super::catalog::{Program, Recipe, Release};

/// `${XDG_CACHE_HOME:-~/.cache}/kubeocean/lab`.
pub fn cache_root() -> PathBuf {
    crate::home::cache_home().join("kubeocean").join("lab")
}

/// What was built, from what: lies beside the program as `<program>.json`.
#[derive(Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Manifest {
    version: String,
    /// Hash of everything that decides the bytes: modules, checksums, package, linker flags.
    recipe: String,
    size: u64,
    sha256: String,
}

/// What the cache says about a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Whole, and built by today's recipe.
    Good(PathBuf),
    /// Not there, or of an older recipe.
    Absent,
    /// There, but not what was installed.
    Corrupt(String),
}

/// How much an entry is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// Size and recipe: free, done at each start.
    Size,
    /// Every byte: half a second for all programs, done by `doctor` and `build`.
    Content,
}

pub(super) fn directory(recipe: &Recipe) -> PathBuf {
    cache_root().join(recipe.module.directory())
}

pub(super) fn look_up(program: Program, release: &'static Release, depth: Depth) -> Entry {
    let recipe = program.recipe(release);
    look_up_in(&directory(&recipe), program, &recipe_hash(&recipe), depth)
}

fn look_up_in(directory: &Path, program: Program, recipe: &str, depth: Depth) -> Entry {
    let path = directory.join(program.name());
    let Ok(file) = fs::metadata(&path) else { return Entry::Absent };
    let Some(manifest) = read_manifest(&manifest_path(directory, program)) else {
        return Entry::Corrupt("has no readable manifest".to_owned());
    };
    if manifest.recipe != recipe {
        return Entry::Absent;
    }
    if file.len() != manifest.size {
        return Entry::Corrupt(format!("has {} bytes instead of {}", file.len(), manifest.size));
    }
    if depth == Depth::Content && sha256_of(&path).ok().as_deref() != Some(manifest.sha256.as_str()) {
        return Entry::Corrupt("has another content than when it was built".to_owned());
    }
    Entry::Good(path)
}

/// Reads the cached ones of `programs` whole, and removes those that are not what was installed. Tells
/// about the first of them.
pub fn remove_corrupt(release: &'static Release, programs: &[Program]) -> Result<Option<String>, LabError> {
    let mut told = None;
    for program in programs {
        let Entry::Corrupt(why) = look_up(*program, release, Depth::Content) else { continue };
        let directory = directory(&program.recipe(release));
        let path = directory.join(program.name());
        fs::remove_file(&path).map_err(LabError::io("removing", &path))?;
        let _ = fs::remove_file(manifest_path(&directory, *program));
        told.get_or_insert(format!("{} {why}", path.display()));
    }
    Ok(told)
}

fn manifest_path(directory: &Path, program: Program) -> PathBuf {
    directory.join(format!("{program}.json"))
}

fn read_manifest(path: &Path) -> Option<Manifest> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Moves a freshly built file into its place.
pub(super) fn install(built: &Path, program: Program, recipe: &Recipe) -> Result<PathBuf, LabError> {
    let directory = directory(recipe);
    install_in(&directory, built, program, recipe.module.version, recipe_hash(recipe))
}

fn install_in(
    directory: &Path,
    built: &Path,
    program: Program,
    version: &str,
    recipe: String,
) -> Result<PathBuf, LabError> {
    let size = fs::metadata(built).map_err(LabError::io("reading", built))?.len();
    let sha256 = sha256_of(built).map_err(LabError::io("reading", built))?;
    let manifest = Manifest { version: version.to_owned(), recipe, size, sha256 };
    let path = manifest_path(directory, program);
    let text = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
    fs::write(&path, text).map_err(LabError::io("writing", &path))?;
    let target = directory.join(program.name());
    fs::rename(built, &target).map_err(LabError::io("installing", &target))?;
    Ok(target)
}

/// Changes whenever anything changes that decides a program's bytes.
pub(super) fn recipe_hash(recipe: &Recipe) -> String {
    let mut hash = Sha256::new();
    for part in [
        recipe.module.go_mod,
        recipe.module.go_sum,
        recipe.package,
        &recipe.module.ldflags(),
        std::env::consts::ARCH,
    ] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

fn sha256_of(path: &Path) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            n => hash.update(&buffer[..n]),
        }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installed(dir: &Path) {
        let built = dir.join("built");
        fs::write(&built, b"a program").expect("writable");
        install_in(dir, &built, Program::Etcd, "v1", "recipe".into()).expect("installs");
    }

    #[test]
    fn what_was_installed_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        installed(dir.path());
        assert_eq!(
            look_up_in(dir.path(), Program::Etcd, "recipe", Depth::Content),
            Entry::Good(dir.path().join("etcd"))
        );
        assert_eq!(look_up_in(dir.path(), Program::Kwok, "recipe", Depth::Size), Entry::Absent);
    }

    #[test]
    fn another_recipe_means_build_again() {
        let dir = tempfile::tempdir().expect("a directory");
        installed(dir.path());
        assert_eq!(look_up_in(dir.path(), Program::Etcd, "newer", Depth::Size), Entry::Absent);
    }

    #[test]
    fn a_truncated_program_is_corrupt_at_first_sight_and_a_changed_one_when_read() {
        let dir = tempfile::tempdir().expect("a directory");
        installed(dir.path());
        fs::write(dir.path().join("etcd"), b"a prograM").expect("writable");
        assert!(matches!(look_up_in(dir.path(), Program::Etcd, "recipe", Depth::Size), Entry::Good(_)));
        assert!(matches!(look_up_in(dir.path(), Program::Etcd, "recipe", Depth::Content), Entry::Corrupt(_)));
        fs::write(dir.path().join("etcd"), b"a pro").expect("writable");
        let Entry::Corrupt(why) = look_up_in(dir.path(), Program::Etcd, "recipe", Depth::Size) else {
            panic!("a truncated program was taken for good");
        };
        assert!(why.contains("has 5 bytes instead of 9"), "{why}");
    }
}

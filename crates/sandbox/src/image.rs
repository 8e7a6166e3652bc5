//! Container images made here: there is no registry in a sandbox.
//!
//! An image is one uncompressed layer in an OCI archive, which `ctr images import` takes as it is.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, io_error};
use crate::lab::hex;

/// The image of the demo and the tests: a static busybox with all its applets.
pub const BUSYBOX_IMAGE: &str = "kubeocean.local/busybox:lab";

/// What holds a pod's namespaces.
pub(crate) const PAUSE_IMAGE: &str = "kubeocean.local/pause:lab";

/// Where Debian's package busybox-static puts it.
pub(crate) const BUSYBOX: &str = "/bin/busybox";

/// Writes one archive with both images to `path`.
pub(crate) fn write_base_images(path: &Path) -> Result<(), Error> {
    let layer = busybox_layer().map_err(io_error("reading", Path::new(BUSYBOX)))?;
    let wait_for_term = "trap 'exit 0' TERM INT; sleep 2147483647 & wait";
    let images = [(BUSYBOX_IMAGE, vec!["sh"]), (PAUSE_IMAGE, vec!["/bin/sh", "-c", wait_for_term])];
    write_archive(path, &layer, &images).map_err(io_error("writing", path))
}

/// Writes an archive with one image to `path`: a program of this machine in `/bin`, and the libraries that it is linked to.
///
/// For [`Spec::image`](crate::Spec::image): so that the program under test runs in pods as it would anywhere.
pub fn write_program_image(path: &Path, name: &str, program: &Path) -> Result<(), Error> {
    let layer = program_layer(program).map_err(io_error("reading", program))?;
    let command = program.file_name().and_then(|name| name.to_str()).unwrap_or("sh");
    write_archive(path, &layer, &[(name, vec![command])]).map_err(io_error("writing", path))
}

fn program_layer(program: &Path) -> std::io::Result<Vec<u8>> {
    let mut layer = tar::Builder::new(Vec::new());
    let own = Path::new("bin").join(program.file_name().unwrap_or_default());
    let libraries = libraries(program)?;
    let files = [(own.as_path(), program)].into_iter();
    let beside = libraries.iter().map(|path| (path.strip_prefix("/").unwrap_or(path), path.as_path()));
    for (within, file) in files.chain(beside) {
        let content = fs::read(file)?;
        layer.append_data(&mut header(tar::EntryType::Regular, 0o755, content.len()), within, &*content)?;
    }
    layer.into_inner()
}

/// The shared libraries of a program, and what loads them. None if it is linked statically.
fn libraries(program: &Path) -> std::io::Result<Vec<PathBuf>> {
    let found = Command::new("ldd").arg(program).output()?;
    let told = String::from_utf8_lossy(&found.stdout);
    let paths = told.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}

/// busybox under its own name and under those of its applets.
fn busybox_layer() -> std::io::Result<Vec<u8>> {
    let mut layer = tar::Builder::new(Vec::new());
    for (directory, mode) in [
        ("bin", 0o755),
        ("dev", 0o755),
        ("etc", 0o755),
        ("proc", 0o755),
        ("root", 0o700),
        ("sys", 0o755),
        ("tmp", 0o1777),
        ("var", 0o755),
    ] {
        entry(&mut layer, &format!("{directory}/"), tar::EntryType::Directory, mode, &[])?;
    }
    entry(&mut layer, "bin/busybox", tar::EntryType::Regular, 0o755, &fs::read(BUSYBOX)?)?;
    entry(
        &mut layer,
        "etc/passwd",
        tar::EntryType::Regular,
        0o644,
        b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    )?;
    entry(&mut layer, "etc/group", tar::EntryType::Regular, 0o644, b"root:x:0:\nnobody:x:65534:\n")?;
    let applets = Command::new(BUSYBOX).arg("--list").output()?;
    for applet in String::from_utf8_lossy(&applets.stdout).lines().filter(|name| *name != "busybox") {
        let mut header = header(tar::EntryType::Symlink, 0o777, 0);
        layer.append_link(&mut header, format!("bin/{applet}"), "busybox")?;
    }
    layer.into_inner()
}

fn header(kind: tar::EntryType, mode: u32, size: usize) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn entry(
    archive: &mut tar::Builder<impl Write>,
    path: &str,
    kind: tar::EntryType,
    mode: u32,
    content: &[u8],
) -> std::io::Result<()> {
    archive.append_data(&mut header(kind, mode, content.len()), path, content)
}

fn write_archive(path: &Path, layer: &[u8], images: &[(&str, Vec<&str>)]) -> std::io::Result<()> {
    let mut archive = tar::Builder::new(File::create(path)?);
    entry(&mut archive, "oci-layout", tar::EntryType::Regular, 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let layer_digest = blob(&mut archive, layer)?;
    let mut manifests = Vec::new();
    for (name, command) in images {
        let config = json!({
            "architecture": go_architecture(),
            "os": "linux",
            "config": { "Cmd": command, "Env": ["PATH=/bin"], "WorkingDir": "/" },
            "rootfs": { "type": "layers", "diff_ids": [layer_digest] },
        });
        let config = config.to_string().into_bytes();
        let config_digest = blob(&mut archive, &config)?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config_digest, config.len()),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer_digest, layer.len())],
        });
        let manifest = manifest.to_string().into_bytes();
        let manifest_digest = blob(&mut archive, &manifest)?;
        let mut entry =
            descriptor("application/vnd.oci.image.manifest.v1+json", &manifest_digest, manifest.len());
        entry["annotations"] = json!({ "io.containerd.image.name": name });
        manifests.push(entry);
    }
    let index = json!({ "schemaVersion": 2, "manifests": manifests }).to_string();
    entry(&mut archive, "index.json", tar::EntryType::Regular, 0o644, index.as_bytes())?;
    archive.into_inner()?.flush()
}

fn descriptor(media_type: &str, digest: &str, size: usize) -> Value {
    json!({ "mediaType": media_type, "digest": digest, "size": size })
}

/// Adds a blob, and returns its digest.
fn blob(archive: &mut tar::Builder<File>, content: &[u8]) -> std::io::Result<String> {
    let hash = hex(&Sha256::digest(content));
    entry(archive, &format!("blobs/sha256/{hash}"), tar::EntryType::Regular, 0o644, content)?;
    Ok(format!("sha256:{hash}"))
}

fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

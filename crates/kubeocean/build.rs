//! Tells the binary which commit it was built from.

use std::process::Command;

fn main() {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // A source archive has no commit; whoever packages it may say which one it was.
    let commit = std::env::var("KUBEOCEAN_COMMIT")
        .ok()
        .or_else(|| git(&["rev-parse", "--short=12", "HEAD"]))
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=KUBEOCEAN_COMMIT={commit}");
    println!("cargo::rerun-if-env-changed=KUBEOCEAN_COMMIT");
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--path-format=absolute", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

//! The custom resources in front of a real API server.
//!
//! A schema is only as good as the verdicts it leads to, and only an API server gives those: it also
//! decides whether the rules may cost what they cost.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

#[rustfmt::skip] // a table: one case, one line
mod cases;
mod runner;

use kubeocean_sandbox::{COMPUTING, Sandbox, Spec};

#[tokio::test]
async fn an_api_server_gives_the_verdict_of_every_case() {
    let sandbox = Sandbox::start(Spec::new()).await.unwrap();
    let client = sandbox.cluster(COMPUTING).unwrap().client().await.unwrap();
    let failures = runner::run(client).await;
    sandbox.stop().await.unwrap();
    assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn the_table_is_in_order() {
    let cases = cases::all();
    assert!(cases.len() >= 60, "{} cases", cases.len());
    let mut names: Vec<_> = cases.iter().map(|case| case.name).collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all, "a failing case is found by its name");
}

#[test]
fn no_other_crate_spells_a_key() {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut directories: Vec<_> =
        std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path().join("src")).collect();
    let mut read = 0;
    while let Some(directory) = directories.pop() {
        if directory.ends_with("api/src") {
            continue;
        }
        for path in std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                read += 1;
                for key in ["kubeocean.io/", "cloud.tencent.com/"] {
                    let spelled = text.lines().find(|line| {
                        line.contains(key) && line.contains('"') && !line.contains("apiVersion")
                    });
                    assert_eq!(spelled, None, "{}: use the constant of kubeocean-api", path.display());
                }
            }
        }
    }
    assert!(read > 20, "only {read} files were read");
}

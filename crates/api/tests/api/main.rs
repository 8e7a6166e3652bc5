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

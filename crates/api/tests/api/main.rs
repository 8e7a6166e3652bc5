//! The custom resources in front of a real API server.
//!
//! A schema is only as good as the verdicts it leads to, and only an API server gives those: it also
//! decides whether the rules may cost what they cost.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

#[rustfmt::skip] // a table: one case, one line
mod cases;
mod runner;

/// A cluster to ask. To be replaced by a sandbox of our own; until then, a cluster that the caller
/// started, where definitions may be installed and replaced.
async fn client() -> kube::Client {
    let path =
        std::env::var("KUBEOCEAN_TEST_KUBECONFIG").expect("KUBEOCEAN_TEST_KUBECONFIG names a kubeconfig");
    let kubeconfig = kube::config::Kubeconfig::read_from(path).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

#[tokio::test]
#[ignore = "needs a cluster: set KUBEOCEAN_TEST_KUBECONFIG"]
async fn an_api_server_gives_the_verdict_of_every_case() {
    let failures = runner::run(client().await).await;
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

//! Good and bad custom resources get the verdicts here that kubeocean-api demands of a real server.

use kubeocean_testkit::{ApiServer, Options};

use crate::{cases, runner};

#[tokio::test(start_paused = true)]
async fn every_case_has_the_verdict_of_a_real_server() {
    let server = ApiServer::new(Options { with_crds: false, ..Options::default() });
    let failures = runner::run(server.client("test")).await;
    assert!(cases::all().len() > 250, "{} cases", cases::all().len());
    assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
}

//! What several of these tests do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kubeocean_cluster::apply::{Applier, Outcome};
use kubeocean_cluster::client::{Cluster, Settings};
use kubeocean_cluster::credentials::Credentials;
use kubeocean_cluster::metrics::Metrics;
use kubeocean_model::action::{Action, Dependents, Kind, Mark, Verb, kinds};
use kubeocean_model::key::{Key, Virtual};
use kubeocean_sandbox::{COMPUTING, Sandbox, Spec};
use serde_json::{Value, json};

/// A busy machine may be ten times slower than an idle one; what is right is right long before this.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Looks until `check` gives something.
pub(crate) async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(value) = check().await {
            return value;
        }
        assert!(Instant::now() < deadline, "{what} did not come true");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A control plane that all tests share which do not break it.
pub(crate) async fn shared() -> Arc<Sandbox> {
    Sandbox::shared("cluster", Spec::new).await.unwrap()
}

pub(crate) fn settings() -> Settings {
    Settings::new("virtual", "kubeocean-test", &Metrics::new("test"))
}

pub(crate) async fn connect(kubeconfig: &str, settings: Settings) -> Cluster<Virtual> {
    let credentials = Credentials::from_kubeconfig(kubeconfig.as_bytes()).await.unwrap();
    Cluster::connect(credentials, settings).unwrap()
}

/// The computing cluster of a sandbox, and someone who writes to it.
pub(crate) async fn computing(sandbox: &Sandbox) -> (Cluster<Virtual>, Applier) {
    let cluster = connect(&sandbox.cluster(COMPUTING).unwrap().kubeconfig(), settings()).await;
    let applier = Applier::new("kubeocean-test").virtually(&cluster);
    (cluster, applier)
}

pub(crate) fn key(namespace: &str, name: &str) -> Key<Virtual> {
    Key::new(namespace, name)
}

pub(crate) fn create(kind: Kind, key: &Key<Virtual>, body: Value) -> Action {
    Action::new(kind, key, Verb::Create { body, mark: Mark::default() }, "the test wants it")
}

pub(crate) fn delete(kind: Kind, key: &Key<Virtual>) -> Action {
    let verb = Verb::Delete { grace: Some(0), dependents: Dependents::Background };
    Action::new(kind, key, verb, "the test is done with it")
}

pub(crate) fn config_map(namespace: &str, name: &str, labels: &Value) -> Action {
    let body = json!({"metadata": {"labels": labels}, "data": {"a": "1"}});
    create(kinds::CONFIG_MAP, &key(namespace, name), body)
}

/// Does it, and tells what the server made of it if it did not.
pub(crate) async fn done(applier: &Applier, action: &Action) -> Value {
    match applier.apply(action).await {
        Outcome::Done(written) => written.answer,
        outcome => panic!("{action}: {outcome}"),
    }
}

/// A namespace of its own for one test.
pub(crate) async fn namespace(applier: &Applier, name: &str) {
    done(applier, &create(kinds::NAMESPACE, &Key::cluster_scoped(name), json!({}))).await;
}

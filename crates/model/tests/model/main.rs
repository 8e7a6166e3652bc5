//! What the model decides, against the shared vectors, laws, and a real API server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

mod bind;
mod lease_laws;
mod name_laws;
mod pod_laws;
mod pod_schema;
mod pods;
mod policies;
mod quantity_laws;
mod reflect;
mod reflect_laws;
mod server;
mod vectors;
mod vnode;
mod vnode_windows;
mod window_laws;

use kubeocean_api::ClusterBinding;
use kubeocean_model::binding::Binding;
use kubeocean_model::lease::{Ledger, User};
use kubeocean_model::resources::Resources;
use serde_json::json;

/// A binding like any other.
fn binding() -> Binding {
    let object: ClusterBinding = serde_json::from_value(json!({
        "apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding",
        "metadata": {"name": "w1", "uid": "b-1"},
        "spec": {"clusterID": "w1", "mountNamespace": "mount", "secretRef": {"name": "s", "namespace": "n"}},
    }))
    .unwrap();
    Binding::parse(&object).unwrap()
}

/// A node on which someone else uses so much.
fn used_by_others(used: &Resources) -> Ledger {
    let mut ledger = Ledger::default();
    ledger.put("theirs", User::Namespace("theirs".to_owned()), used.clone());
    ledger
}

/// Holds a text to the file that people have read.
fn is_golden(file: &str, text: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(file, text).unwrap();
    }
    let golden = std::fs::read_to_string(file).unwrap_or_default();
    for (number, (is, should)) in text.lines().zip(golden.lines()).enumerate() {
        assert_eq!(is, should, "line {} of {file}: UPDATE_GOLDEN=1 writes it anew", number + 1);
    }
    assert_eq!(text.lines().count(), golden.lines().count());
}

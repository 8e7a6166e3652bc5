use serde_json::{Value, json};

use super::*;

fn full_spec() -> Value {
    json!({
        "clusterID": "w1",
        "secretRef": {"name": "w1-kubeconfig", "namespace": "kubeocean-system"},
        "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
        ]}]},
        "mountNamespace": "borrowed",
        "serviceNamespaces": ["*"],
        "disableNodeDefaultTaint": true,
        "podPriorityClassName": "low",
        "runningDaemonsetByDefault": true,
        "directScheduling": true,
    })
}

fn full_status() -> Value {
    json!({
        "phase": "Ready",
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "SyncerReady", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }],
        "lastSyncTime": "2026-01-02T03:04:05Z",
        "observedGeneration": 3,
        "nodes": 2,
        "pods": 5,
        "workerUID": "7d9f",
    })
}

#[test]
fn every_field_is_spelled_as_users_write_it() {
    let spec: ClusterBindingSpec = serde_json::from_value(full_spec()).unwrap();
    assert_eq!(serde_json::to_value(&spec).unwrap(), full_spec());
    let status: ClusterBindingStatus = serde_json::from_value(full_status()).unwrap();
    assert_eq!(serde_json::to_value(&status).unwrap(), full_status());
}

#[test]
fn an_object_says_what_it_is() {
    let binding = ClusterBinding::new("w1", serde_json::from_value(full_spec()).unwrap());
    let object = serde_json::to_value(&binding).unwrap();
    assert_eq!(object["apiVersion"], format!("{}/{}", crate::GROUP, crate::VERSION));
    assert_eq!(object["kind"], "ClusterBinding");
    assert_eq!(serde_json::from_value::<ClusterBinding>(object).unwrap(), binding);
}

#[test]
fn what_was_left_out_stays_out_and_has_its_default() {
    let spec: ClusterBindingSpec = serde_json::from_value(json!({
        "clusterID": "w1",
        "secretRef": {"name": "s", "namespace": "n"},
        "mountNamespace": "m",
    }))
    .unwrap();
    assert_eq!(spec.node_selector, None);
    assert!(
        !spec.disable_node_default_taint && !spec.running_daemonset_by_default && !spec.direct_scheduling
    );
    let written = serde_json::to_value(&spec).unwrap();
    for absent in ["nodeSelector", "serviceNamespaces", "podPriorityClassName"] {
        assert_eq!(written.get(absent), None, "{absent}");
    }
}

#[test]
fn a_selector_without_terms_is_read() {
    let mut spec = full_spec();
    spec["nodeSelector"] = json!({});
    let spec: ClusterBindingSpec = serde_json::from_value(spec).unwrap();
    assert_eq!(spec.node_selector, Some(NodeSelector::default()));
}

#[test]
fn an_empty_status_claims_no_field() {
    assert_eq!(serde_json::to_value(ClusterBindingStatus::default()).unwrap(), json!({}));
}

#[test]
fn phases_are_spelled_as_existing_installations_spell_them() {
    let phases = [BindingPhase::Pending, BindingPhase::Ready, BindingPhase::Failed];
    assert_eq!(serde_json::to_value(phases).unwrap(), json!(["Pending", "Ready", "Failed"]));
}

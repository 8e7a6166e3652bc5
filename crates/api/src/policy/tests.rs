use serde_json::{Value, json};

use super::*;

fn full_spec() -> Value {
    json!({
        "cluster": "w1",
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}
        ]}]},
        "timeWindows": [{"start": "22:00", "end": "06:00", "days": ["Fri", "saturday"]}],
        "timeZone": "Europe/Berlin",
        "resourceLimits": [
            {"resource": "cpu", "quantity": "4", "percent": 50},
            {"resource": "memory", "percent": 80},
        ],
        "forceReclaim": true,
        "gracefulReclaimPeriodSeconds": 600,
    })
}

fn full_status() -> Value {
    json!({
        "phase": "Active",
        "conditions": [{
            "type": "Valid", "status": "True", "reason": "Valid", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }],
        "lastAppliedTime": "2026-01-02T03:04:05Z",
        "activeTimeWindow": true,
        "observedGeneration": 1,
        "nextTransitionTime": "2026-01-02T06:01:00Z",
        "bindings": [{"bindingUID": "b-1", "nodes": 3, "active": true}],
    })
}

#[test]
fn every_field_is_spelled_as_users_write_it() {
    let spec: ResourceLeasingPolicySpec = serde_json::from_value(full_spec()).unwrap();
    assert_eq!(serde_json::to_value(&spec).unwrap(), full_spec());
    let status: ResourceLeasingPolicyStatus = serde_json::from_value(full_status()).unwrap();
    assert_eq!(serde_json::to_value(&status).unwrap(), full_status());
}

#[test]
fn what_was_left_out_stays_out_and_has_its_default() {
    let spec: ResourceLeasingPolicySpec = serde_json::from_value(json!({"cluster": "w1"})).unwrap();
    assert!(spec.time_windows.is_empty() && spec.resource_limits.is_empty() && spec.time_zone.is_none());
    assert!(!spec.force_reclaim);
    assert_eq!(
        serde_json::to_value(&spec).unwrap(),
        json!({"cluster": "w1", "forceReclaim": false, "gracefulReclaimPeriodSeconds": 0})
    );
}

#[test]
fn a_quantity_may_be_written_as_a_number() {
    let limit: ResourceLimit = serde_json::from_value(json!({"resource": "cpu", "quantity": 4})).unwrap();
    assert_eq!(limit.quantity, Some(Quantity("4".into())));
}

#[test]
fn zero_is_a_limit_and_not_an_absent_one() {
    let limit = json!({"resource": "cpu", "percent": 0});
    let parsed: ResourceLimit = serde_json::from_value(limit.clone()).unwrap();
    assert_eq!(parsed.percent, Some(0));
    assert_eq!(serde_json::to_value(parsed).unwrap(), limit);
}

#[test]
fn an_empty_status_claims_no_field() {
    assert_eq!(serde_json::to_value(ResourceLeasingPolicyStatus::default()).unwrap(), json!({}));
}

#[test]
fn phases_are_spelled_as_existing_installations_spell_them() {
    let phases = [PolicyPhase::Pending, PolicyPhase::Active, PolicyPhase::Inactive, PolicyPhase::Failed];
    assert_eq!(serde_json::to_value(phases).unwrap(), json!(["Pending", "Active", "Inactive", "Failed"]));
}

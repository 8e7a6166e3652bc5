use serde_json::json;

use super::*;
use crate::key::Side;
use crate::object::Object;

fn binding(spec: &serde_json::Value) -> BindingObject {
    let mut all =
        json!({"clusterID": "w1", "mountNamespace": "mount", "secretRef": {"name": "s", "namespace": "n"}});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let object = json!({
        "apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding",
        "metadata": {"name": "w1", "uid": "b-1", "finalizers": [CLUSTER_BINDING_SYNCER]},
        "spec": all, "status": {"workerUID": "p-1"},
    });
    BindingObject::read(&Object::from_value(object).unwrap())
}

/// Whether nodes are leased, the reason, and the words.
fn said(tally: &Tally) -> (bool, &'static str, String) {
    let (holds, reason, message) = words(&binding(&json!({})), tally, false);
    (holds, reason.as_str(), message)
}

fn no_policy() -> NoLease {
    NoLease::NoPolicy { binding: "w1".to_owned(), side: Side::Physical }
}

#[test]
fn nodes_on_their_way_are_not_counted_as_leased() {
    let tally = |nodes, allowed| Tally { nodes, allowed, physical: 3, ..Tally::default() };
    let expected = |text: &str| (true, "Leasing", text.to_owned());
    assert_eq!(said(&tally(0, 3)), expected("0 of 3 nodes are leased; 3 more are on their way"));
    assert_eq!(said(&tally(2, 3)), expected("2 of 3 nodes are leased; 1 more is on its way"));
    assert_eq!(said(&tally(2, 2)), expected("2 of 3 nodes are leased"));
    // One that is looked at again after it was taken out, and before it was told to go.
    assert_eq!(said(&tally(3, 2)), expected("3 of 3 nodes are leased"));
}

#[test]
fn what_was_withdrawn_is_not_leased_though_its_nodes_are_there_for_their_grace() {
    let tally = Tally { nodes: 3, leaving: 3, physical: 3, refusal: Some(no_policy()), ..Tally::default() };
    let (holds, reason, message) = said(&tally);
    assert_eq!((holds, reason), (false, "NoPolicy"));
    assert!(message.contains("create one there with spec.cluster `w1`"), "{message}");
    assert!(message.ends_with("; 3 virtual nodes leave"), "{message}");
    // Not yet told, and no better for that.
    let (holds, _, message) = said(&Tally { leaving: 0, ..tally });
    assert!(!holds && message.ends_with("; 3 virtual nodes leave"), "{message}");
}

#[test]
fn of_what_is_withdrawn_in_part_the_rest_is_leased() {
    let tally = Tally {
        nodes: 3,
        leaving: 1,
        physical: 3,
        allowed: 2,
        refusal: Some(no_policy()),
        ..Tally::default()
    };
    let expected = "2 of 3 nodes are leased; 1 virtual node leaves";
    assert_eq!(said(&tally), (true, "Leasing", expected.to_owned()));
    // One that someone deleted by hand leaves, and comes back.
    let tally = Tally { allowed: 3, closed: true, ..tally };
    let expected = "2 of 3 nodes are leased, all of them outside of their windows; 1 more is on its way; 1 virtual node leaves";
    assert_eq!(said(&tally), (true, "Leasing", expected.to_owned()));
}

#[test]
fn a_binding_that_means_no_node_any_more_leases_none() {
    let tally = Tally { nodes: 2, leaving: 2, physical: 2, ..Tally::default() };
    let (holds, reason, message) = said(&tally);
    assert_eq!((holds, reason), (false, "NoPolicy"));
    assert!(message.contains("spec.nodeSelector of ClusterBinding `w1` means none"), "{message}");
    assert!(message.ends_with("; 2 virtual nodes leave"), "{message}");
    let gone = Tally { nodes: 1, leaving: 1, ..Tally::default() };
    let expected = "the worker cluster has no node; 1 virtual node leaves";
    assert_eq!(said(&gone), (false, "NoPolicy", expected.to_owned()));
}

#[test]
fn a_lender_whose_word_cannot_be_read_is_told_first() {
    let refusal = Some(NoLease::PermissionDenied { binding: "w1".to_owned() });
    let tally = Tally { nodes: 3, physical: 3, refusal, ..Tally::default() };
    let (holds, reason, _) = said(&tally);
    assert_eq!((holds, reason), (false, "PermissionDenied"));
}

#[test]
fn what_is_misspelt_is_told_with_what_goes_on() {
    let expressions = json!([{"key": "a", "operator": "In", "values": ["not a label!"]}]);
    let object =
        binding(&json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}));
    let tally = Tally { nodes: 3, physical: 3, allowed: 3, ..Tally::default() };
    let (holds, reason, message) = words(&object, &tally, false);
    assert_eq!((holds, reason.as_str()), (false, "ValidationFailed"));
    assert!(message.starts_with("spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0]"), "{message}");
    assert!(
        message.ends_with("nothing more is leased, and the 3 virtual nodes go on as the binding was before"),
        "{message}"
    );
}

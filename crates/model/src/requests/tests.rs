use serde_json::{Value, json};

use super::*;

fn requests(spec: &Value, status: &Value) -> String {
    of_pod(&spec.to_string(), Some(&status.to_string())).unwrap().to_string()
}

fn container(name: &str, requests: Value) -> Value {
    let mut container = json!({"name": name, "image": "x", "resources": {"limits": {"cpu": "99"}}});
    container["resources"]["requests"] = requests;
    container
}

fn sidecar(name: &str, requests: Value) -> Value {
    let mut container = container(name, requests);
    container["restartPolicy"] = json!("Always");
    container
}

#[test]
fn containers_run_together_and_init_containers_one_by_one() {
    let spec = json!({
        "initContainers": [container("i1", json!({"cpu": "2"})), container("i2", json!({"memory": "3Gi"}))],
        "containers": [container("a", json!({"cpu": "500m", "memory": "1Gi"})), container("b", json!({"cpu": "1"}))],
    });
    assert_eq!(requests(&spec, &json!({})), "cpu 2, memory 3Gi, pods 1");
}

#[test]
fn a_sidecar_counts_for_what_starts_after_it_and_for_all_containers() {
    let containers = json!([container("a", json!({"cpu": "1"}))]);
    let early = json!({"initContainers": [sidecar("s", json!({"cpu": "1"})), container("i", json!({"cpu": "1500m"}))], "containers": containers});
    assert_eq!(requests(&early, &json!({})), "cpu 2500m, pods 1");
    let late = json!({"initContainers": [container("i", json!({"cpu": "1500m"})), sidecar("s", json!({"cpu": "1"}))], "containers": containers});
    assert_eq!(requests(&late, &json!({})), "cpu 2, pods 1");
}

#[test]
fn requests_of_the_whole_pod_replace_those_of_its_containers() {
    let spec = json!({
        "containers": [container("a", json!({"cpu": "4", "memory": "1Gi", "example.com/dev": "1"}))],
        "resources": {"requests": {"cpu": "3", "hugepages-2Mi": "4Mi", "example.com/dev": "7"}},
        "overhead": {"cpu": "250m"},
    });
    assert_eq!(
        requests(&spec, &json!({})),
        "cpu 3250m, example.com/dev 1, hugepages-2Mi 4Mi, memory 1Gi, pods 1"
    );
}

#[test]
fn a_pod_that_is_being_resized_counts_with_the_larger_size() {
    let spec = json!({"containers": [container("a", json!({"cpu": "2", "memory": "1Gi"}))]});
    let status = |reason: &str| {
        json!({
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodResizePending", "status": "True", "reason": reason}],
            "containerStatuses": [{
                "name": "a",
                "resources": {"requests": {"cpu": "1", "memory": "2Gi"}},
                "allocatedResources": {"cpu": "1500m", "memory": "2Gi"},
            }],
        })
    };
    assert_eq!(requests(&spec, &status("Deferred")), "cpu 2, memory 2Gi, pods 1");
    assert_eq!(requests(&spec, &status("Infeasible")), "cpu 1500m, memory 2Gi, pods 1");
    let without_resources = json!({"containerStatuses": [{"name": "a", "allocatedResources": {"cpu": "9"}}]});
    assert_eq!(requests(&spec, &without_resources), "cpu 2, memory 1Gi, pods 1");
}

#[test]
fn only_sidecars_among_init_containers_are_resized() {
    let spec =
        json!({"initContainers": [container("i", json!({"cpu": "1"})), sidecar("s", json!({"cpu": "1"}))]});
    let status = json!({"initContainerStatuses": [
        {"name": "i", "resources": {"requests": {"cpu": "50"}}},
        {"name": "s", "resources": {"requests": {"cpu": "3"}}},
    ]});
    assert_eq!(requests(&spec, &status), "cpu 3, pods 1");
}

#[test]
fn a_pod_resized_as_a_whole_counts_with_the_larger_size() {
    let spec = json!({"containers": [container("a", json!({"cpu": "1"}))], "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}});
    let status =
        json!({"resources": {"requests": {"cpu": "4"}}, "allocatedResources": {"cpu": "3", "memory": "2Gi"}});
    assert_eq!(requests(&spec, &status), "cpu 4, memory 2Gi, pods 1");
    let mut infeasible = status.clone();
    infeasible["conditions"] = json!([{"type": "PodResizePending", "reason": "Infeasible"}]);
    infeasible["resources"] = json!({"requests": {}});
    infeasible["allocatedResources"] = json!({"cpu": "1"});
    assert_eq!(requests(&spec, &infeasible), "cpu 1, pods 1");
}

#[test]
fn a_pod_that_has_ended_asks_for_nothing() {
    let spec = json!({"containers": [container("a", json!({"cpu": "2"}))]});
    for phase in ["Succeeded", "Failed"] {
        assert_eq!(requests(&spec, &json!({"phase": phase})), "nothing");
    }
    for phase in ["Pending", "Running", "Unknown"] {
        assert_eq!(requests(&spec, &json!({"phase": phase})), "cpu 2, pods 1");
    }
}

#[test]
fn what_the_scheduler_rounds_up_is_rounded_up() {
    let spec = json!({"containers": [container("a", json!({"cpu": "100u", "memory": "1500m", "example.com/dev": "-4"}))]});
    assert_eq!(requests(&spec, &json!({})), "cpu 1m, memory 2, pods 1");
    let huge = json!({"containers": [container("a", json!({"memory": "1e100"}))]});
    assert_eq!(requests(&huge, &json!({})), format!("memory {}, pods 1", i64::MAX));
}

#[test]
fn a_pod_that_makes_no_sense_is_an_error_and_not_a_panic() {
    let bad = json!({"containers": [container("a", json!({"cpu": "many"}))]}).to_string();
    assert_eq!(
        of_pod(&bad, None).unwrap_err().to_string().split(" at line").next(),
        Some(
            "the pod's spec cannot be read: `many` is not a quantity: write a number such as 4, 500m or 16Gi"
        )
    );
    assert!(of_pod("[", None).is_err());
    assert!(of_pod("{}", Some("7")).unwrap_err().to_string().starts_with("the pod's status"));
    let nulls = r#"{"containers": null, "initContainers": null, "overhead": null, "resources": null}"#;
    assert_eq!(of_pod(nulls, Some("{}")).unwrap().to_string(), "pods 1");
    let inner = r#"{"containers": [{"name": "a", "resources": {"requests": {"cpu": null}}}, {"name": "b", "resources": null}]}"#;
    assert_eq!(of_pod(inner, None).unwrap().to_string(), "pods 1");
}

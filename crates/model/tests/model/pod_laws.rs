//! What holds for the twin of any pod: tried on every pod of the corpus, and on what a generator makes of them.

use std::collections::BTreeSet;

use kubeocean_api::keys::annotations;
use kubeocean_model::naming::{is_label_key, label_value};
use kubeocean_model::object::Object;
use kubeocean_model::project::{changes, needs, project, to_create};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::pods::{Around, corpus, object};

/// Where the objects in a value are.
fn objects(value: &Value, path: &str, into: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            into.push(path.to_owned());
            fields.iter().for_each(|(name, field)| {
                objects(field, &format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")), into);
            });
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| objects(item, &format!("{path}/{index}"), into));
        }
        _ => {}
    }
}

/// Whether a part of a spec is replaced as a whole, or dropped.
fn is_replaced(pod: &Value, path: &str) -> bool {
    const DROPPED: &[&str] = &[
        "affinity",
        "nodeSelector",
        "overhead",
        "readinessGates",
        "schedulingGates",
        "schedulingGroup",
        "topologySpreadConstraints",
        "workloadRef",
    ];
    let top = path.strip_prefix("/spec/").and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let source = path.find("/valueFrom").and_then(|at| path.get(..at + "/valueFrom".len()));
    let is_literal =
        source.and_then(|source| pod.pointer(source)).is_some_and(|source| !source["fieldRef"].is_null());
    DROPPED.contains(&top)
        || path.contains("/ephemeral/")
        || path.ends_with("/ephemeral")
        || path.contains("/serviceAccountToken")
        || is_literal
}

#[test]
fn a_field_that_is_newer_than_this_program_goes_through() {
    for case in corpus() {
        if case.around.project(&object(&case.pod)).is_err() {
            continue;
        }
        let mut places = Vec::new();
        objects(&case.pod["spec"], "/spec", &mut places);
        for place in places.iter().filter(|place| !is_replaced(&case.pod, place)) {
            let mut pod = case.pod.clone();
            pod.pointer_mut(place).unwrap()["ofNextYear"] = json!({"kept": ["as it is"]});
            let projected = case.around.project(&object(&pod)).unwrap();
            let text = projected["spec"].to_string();
            assert!(text.contains(r#""ofNextYear":{"kept":["as it is"]}"#), "{}: {place}", case.title);
        }
    }
}

/// Gives other names to everything that a pod refers to.
fn rename(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) if text == from => to.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, from, to)),
        Value::Object(fields) => fields.values_mut().for_each(|field| rename(field, from, to)),
        _ => {}
    }
}

/// Nasty values: all types where another is due, and long and odd texts.
fn nasty() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        "\\PC{0,12}".prop_map(Value::from),
        "[$()A-Z_]{0,8}".prop_map(Value::from),
        "[a-z.-]{60,70}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let field =
            prop_oneof!["name", "optional", "items", "sources", "secretRef", "fieldRef", "fieldPath", "env"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(field, inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

/// Every place in a value.
fn places(value: &Value, path: &str, into: &mut Vec<String>) {
    into.push(path.to_owned());
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, field)| {
            places(field, &format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")), into);
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| places(item, &format!("{path}/{index}"), into));
        }
        _ => {}
    }
}

thread_local! {
    static CORPUS: Vec<(Value, Around)> = corpus().into_iter().map(|case| (case.pod, case.around)).collect();
}

fn any_pod() -> impl Strategy<Value = (Value, Around)> {
    any::<prop::sample::Index>().prop_map(|index| CORPUS.with(|corpus| index.get(corpus).clone()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn no_name_of_the_computing_cluster_is_left(
        (pod, around) in any_pod(), names in prop::collection::btree_set("[a-z]{12}", 20), account in "[a-z]{13}"
    ) {
        let mut pod = pod;
        let Ok(known) = needs(&object(&pod)) else { return Ok(()) };
        prop_assume!(!pod.to_string().contains("spec.serviceAccountName"));
        pod["spec"]["serviceAccountName"] = account.as_str().into();
        let mut used = BTreeSet::new();
        for ((_, name), new) in known.references.keys().zip(&names) {
            // The claim of an ephemeral volume is called after the pod.
            if name.starts_with("a-") {
                continue;
            }
            rename(&mut pod["spec"], name, new);
            used.insert(new);
        }
        let Ok(projected) = around.project(&object(&pod)) else { return Ok(()) };
        let mut spec = projected["spec"].clone();
        // Volumes have names of their own.
        for volume in spec["volumes"].as_array_mut().into_iter().flatten() {
            volume.as_object_mut().unwrap().remove("name");
        }
        for container in spec["containers"].as_array_mut().into_iter().flatten() {
            container.as_object_mut().unwrap().remove("volumeMounts");
        }
        let text = spec.to_string();
        for name in used {
            prop_assert!(!text.contains(&format!("\"{name}\"")), "{name} in {text}");
        }
        prop_assert!(!text.contains(&account), "{account} in {text}");
    }

    #[test]
    fn the_same_pod_has_the_same_twin_and_a_twin_that_is_right_is_left_alone((pod, around) in any_pod(), foreign in "[a-z]{5}") {
        let Ok(projected) = around.project(&object(&pod)) else { return Ok(()) };
        prop_assert_eq!(&projected, &around.project(&object(&pod)).unwrap());
        let mut twin = projected.clone();
        twin["metadata"]["uid"] = "p-1".into();
        twin["metadata"]["labels"][format!("theirs/{foreign}")] = "kept".into();
        twin["metadata"]["annotations"][format!("theirs/{foreign}")] = "kept".into();
        prop_assert_eq!(changes(&projected, &object(&twin)), []);
        prop_assert!(to_create(projected)["spec"].get("ephemeralContainers").is_none());
    }

    #[test]
    fn labels_are_always_valid(
        name in "[a-z.-]{1,253}", namespace in "\\PC{0,70}", owner in "\\PC{0,80}", kind in "\\PC{0,20}",
        key in "\\PC{1,80}", value in "\\PC{0,80}"
    ) {
        let pod = json!({
            "metadata": {
                "name": name, "namespace": namespace, "uid": "u-1", "labels": {key.as_str(): value, "pod-template-hash": "x"},
                "ownerReferences": [{"kind": kind, "name": owner, "controller": true}],
            },
            "spec": {"containers": []},
        });
        let projected = Around::default().project(&object(&pod)).unwrap();
        for (key, value) in projected["metadata"]["labels"].as_object().unwrap() {
            prop_assert!(is_label_key(key) && label_value(value.as_str().unwrap()).is_some(), "{}={}", key, value);
        }
        let hostname = projected["spec"]["hostname"].as_str().unwrap();
        prop_assert!(kubeocean_model::naming::is_dns_label(hostname), "{}", hostname);
    }

    #[test]
    fn nothing_that_a_pod_may_hold_makes_us_fall((pod, around) in any_pod(), at in any::<prop::sample::Index>(), value in nasty()) {
        let mut pod = pod;
        let mut all = Vec::new();
        places(&pod["spec"], "/spec", &mut all);
        *pod.pointer_mut(at.get(&all).as_str()).unwrap() = value;
        let pod = object(&pod);
        let (known, projected) = (needs(&pod), around.project(&pod));
        prop_assert!(known.is_ok() || projected.is_err(), "who is refused has no twin");
        if let Ok(projected) = projected {
            // Also what its fields mean is the same to both: a twin of it wants nothing.
            if let Ok(twin) = Object::from_value(projected.clone()) {
                prop_assert_eq!(changes(&projected, &twin), []);
            }
            let keeps_a_token = projected["spec"].to_string().contains(r#""serviceAccountToken":{"#);
            prop_assert!(!keeps_a_token);
        }
    }

    #[test]
    fn whatever_a_twin_has_become_it_can_be_compared((pod, around) in any_pod(), at in any::<prop::sample::Index>(), value in nasty()) {
        let Ok(projected) = around.project(&object(&pod)) else { return Ok(()) };
        let mut twin = projected.clone();
        let mut all = Vec::new();
        places(&twin["spec"], "/spec", &mut all);
        *twin.pointer_mut(at.get(&all).as_str()).unwrap() = value;
        twin["metadata"]["annotations"][annotations::VIRTUAL_GENERATION] = "of another time".into();
        let wanted = changes(&projected, &object(&twin));
        prop_assert!(wanted.len() <= 4, "{wanted:?}");
    }
}

#[test]
fn a_service_is_known_by_the_variables_that_a_kubelet_sets_and_the_containers_own_come_after_them() {
    let pod = json!({
        "metadata": {"name": "a", "namespace": "web"},
        "spec": {"containers": [{"name": "a", "env": [
            {"name": "URL", "value": "http://$(DB_SERVICE_HOST):$(DB_SERVICE_PORT)"},
            {"name": "DB_SERVICE_PORT", "value": "1"},
            {"name": "DB_SERVICE_HOST", "value": "mine"},
            {"name": "DB_PORT", "value": "mine"},
        ]}]},
    });
    let around: Around = serde_json::from_value(json!({
        "services": [{"name": "db", "ip": "10.0.0.7", "ports": [["sql", 5432, "TCP"]]}],
    }))
    .unwrap();
    let projected = around.with(|around| project(&object(&pod), around)).unwrap();
    let env: Vec<_> = projected["spec"]["containers"][0]["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| format!("{}={}", one["name"].as_str().unwrap(), one["value"].as_str().unwrap()))
        .collect();
    assert_eq!(
        env,
        [
            // Set by the container too, but seen by a value before that.
            "DB_SERVICE_HOST=10.0.0.7",
            "DB_SERVICE_PORT=5432",
            "DB_SERVICE_PORT_SQL=5432",
            "DB_PORT_5432_TCP=tcp://10.0.0.7:5432",
            "DB_PORT_5432_TCP_PROTO=tcp",
            "DB_PORT_5432_TCP_PORT=5432",
            "DB_PORT_5432_TCP_ADDR=10.0.0.7",
            "URL=http://$(DB_SERVICE_HOST):$(DB_SERVICE_PORT)",
            "DB_SERVICE_PORT=1",
            "DB_SERVICE_HOST=mine",
            "DB_PORT=mine",
        ]
    );
}

#[test]
fn a_namespace_of_very_many_services_does_not_make_a_pod_too_large_to_exist() {
    let service = |index: usize| json!({"name": format!("service-{index}"), "ip": "10.0.0.7", "ports": [["http", 80, "TCP"]]});
    let around = |count| -> Around {
        serde_json::from_value(json!({
            "apiServer": ["10.0.0.1", 443], "services": (0..count).map(service).collect::<Vec<_>>(),
        }))
        .unwrap()
    };
    let variables = |count, containers| {
        let containers: Vec<_> = (0..containers).map(|index| json!({"name": format!("c{index}")})).collect();
        let pod = json!({"metadata": {"name": "a", "namespace": "web"}, "spec": {"containers": containers}});
        let projected = around(count).with(|around| project(&object(&pod), around)).unwrap();
        assert!(projected.to_string().len() < 512 * 1024);
        assert!(projected["spec"]["hostAliases"].as_array().unwrap().len() <= 64);
        projected["spec"]["containers"][0]["env"].as_array().unwrap().len()
    };
    assert_eq!((variables(10, 1), variables(1000, 1), variables(1000, 100)), (8 + 10 * 8, 8 + 1000 * 3, 8));
}

#[test]
fn annotations_that_would_be_too_large_in_the_worker_cluster_are_told() {
    let project = |size: usize| {
        let pod = json!({
            "metadata": {"name": "a", "namespace": "web", "annotations": {"note": "x".repeat(size)}}, "spec": {"containers": []},
        });
        Around::default().project(&object(&pod))
    };
    assert!(project(200 * 1024).is_ok());
    let refusal = project(256 * 1024 - 100).unwrap_err();
    assert!(refusal.to_string().starts_with("metadata.annotations: with our own they are 26"), "{refusal}");
}

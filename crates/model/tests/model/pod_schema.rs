//! The projection against the schema of Kubernetes: nothing in a pod is overlooked.
//!
//! A newer schema brings new fields. Each has to be thought about once: these tests fail until someone has.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::schemars::SchemaGenerator;
use kubeocean_api::keys::names::WORKLOAD_SERVICE_ACCOUNT;
use kubeocean_model::project::{Referent, needs, project};
use serde_json::{Map, Value, json};

use crate::pods::{Around, corpus, object};

fn schema() -> Value {
    SchemaGenerator::default().into_root_schema_for::<PodSpec>().to_value()
}

/// The schema that a schema refers to, and its name.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> (&'a Value, Option<&'a str>) {
    let reference = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix("#/$defs/"));
    reference.map_or((schema, None), |name| (&root["$defs"][name], Some(name)))
}

/// Visits every field of a schema: its path as in the projection's own table, and the type that it is a field of.
fn each_field(root: &Value, visit: &mut dyn FnMut(&str, &str, &Value)) {
    fn walk(
        root: &Value,
        schema: &Value,
        path: &str,
        type_: &str,
        visit: &mut dyn FnMut(&str, &str, &Value),
    ) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            let (inner, inner_type) = resolved(root, field);
            visit(&path, type_, inner);
            if inner["type"] == "array" {
                let (item, item_type) = resolved(root, &inner["items"]);
                walk(root, item, &format!("{path}/*"), item_type.unwrap_or_default(), visit);
            } else {
                walk(root, inner, &path, inner_type.unwrap_or_default(), visit);
            }
        }
    }
    walk(root, root, "", "io.k8s.api.core.v1.PodSpec", visit);
}

/// How each field of a spec is treated.
const FIELDS: &[(&str, &[&str])] = &[
    (
        "kept",
        &[
            "activeDeadlineSeconds",
            "hostIPC",
            "hostNetwork",
            "hostPID",
            "hostUsers",
            "hostnameOverride",
            "os",
            "resources",
            "restartPolicy",
            "securityContext",
            "shareProcessNamespace",
            "terminationGracePeriodSeconds",
            "tolerations",
        ],
    ),
    (
        "edited",
        &[
            "affinity",
            "automountServiceAccountToken",
            "containers",
            "dnsConfig",
            "dnsPolicy",
            "enableServiceLinks",
            "ephemeralContainers",
            "hostAliases",
            "hostname",
            "imagePullSecrets",
            "initContainers",
            "nodeName",
            "priorityClassName",
            "runtimeClassName",
            "serviceAccountName",
            "volumes",
        ],
    ),
    (
        "dropped",
        &[
            "nodeSelector",
            "overhead",
            "preemptionPolicy",
            "priority",
            "readinessGates",
            "schedulerName",
            "schedulingGates",
            "schedulingGroup",
            "serviceAccount",
            "setHostnameAsFQDN",
            "subdomain",
            "topologySpreadConstraints",
        ],
    ),
    ("refused", &["resourceClaims"]),
];

#[test]
fn every_field_of_a_pod_is_kept_edited_dropped_or_refused() {
    let schema = schema();
    let known: BTreeSet<&str> =
        schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    let classified: Vec<&str> = FIELDS.iter().flat_map(|(_, fields)| fields.iter().copied()).collect();
    assert_eq!(classified.len(), classified.iter().collect::<BTreeSet<_>>().len(), "one is there twice");
    assert_eq!(
        known,
        classified.into_iter().collect(),
        "say in FIELDS what becomes of it, and see to it in `project`"
    );

    let around = Around::default();
    for (treatment, fields) in FIELDS {
        for field in *fields {
            // Of its type, as far as that matters, and of a value that nothing else would give it.
            let (type_, _) = resolved(&schema, &schema["properties"][*field]);
            let value = match type_["type"].as_str().unwrap() {
                "string" => json!("mark"),
                "boolean" => json!(true),
                "integer" => json!(4711),
                "array" => json!([{"name": "mark", "conditionType": "mark", "ip": "1.2.3.4"}]),
                _ => json!({"mark": "mark"}),
            };
            let mut pod = json!({"metadata": {"name": "a", "namespace": "web"}, "spec": {"containers": []}});
            pod["spec"][*field] = value.clone();
            let projected = around.project(&object(&pod));
            match *treatment {
                "kept" => assert_eq!(projected.unwrap()["spec"][*field], value, "{field}"),
                "dropped" => assert!(projected.unwrap()["spec"].get(*field).is_none(), "{field}"),
                "refused" => assert!(projected.is_err(), "{field}"),
                _ => assert!(projected.is_ok(), "{field}"),
            }
        }
    }
}

/// Fields that name something which is not copied for a pod, and why that is right. A prefix ends in `/`.
const NAMES_OF_OTHER_THINGS: &[(&str, &str)] = &[
    // Only within the pod.
    ("containers/*/name", "its own name"),
    ("containers/*/ports/*/name", "its own name"),
    ("containers/*/env/*/name", "its own name"),
    ("containers/*/env/*/valueFrom/fileKeyRef/volumeName", "a volume of the pod"),
    ("containers/*/env/*/valueFrom/resourceFieldRef/containerName", "a container of the pod"),
    ("containers/*/volumeMounts/*/name", "a volume of the pod"),
    ("containers/*/volumeDevices/*/name", "a volume of the pod"),
    ("containers/*/resizePolicy/*/resourceName", "a resource"),
    ("ephemeralContainers/*/targetContainerName", "a container of the pod"),
    ("volumes/*/name", "its own name"),
    ("volumes/*/downwardAPI/items/*/resourceFieldRef/containerName", "a container of the pod"),
    (
        "volumes/*/projected/sources/*/downwardAPI/items/*/resourceFieldRef/containerName",
        "a container of the pod",
    ),
    // Words of protocols and machines.
    ("containers/*/lifecycle/", "words of protocols"),
    ("containers/*/livenessProbe/", "words of protocols"),
    ("containers/*/readinessProbe/", "words of protocols"),
    ("containers/*/startupProbe/", "words of protocols"),
    ("containers/*/securityContext/windowsOptions/", "Windows"),
    ("securityContext/windowsOptions/", "Windows"),
    ("securityContext/sysctls/*/name", "a parameter of the kernel"),
    ("os/name", "an operating system"),
    ("dnsConfig/options/*/name", "a word of DNS"),
    // Of storage systems, not of Kubernetes.
    ("volumes/*/azureDisk/diskName", "a disk"),
    ("volumes/*/azureFile/shareName", "a share"),
    ("volumes/*/flocker/datasetName", "a dataset"),
    ("volumes/*/gcePersistentDisk/pdName", "a disk"),
    ("volumes/*/iscsi/initiatorName", "an initiator"),
    ("volumes/*/scaleIO/volumeName", "a volume of ScaleIO"),
    ("volumes/*/storageos/volumeName", "a volume of StorageOS, with the namespace beside it"),
    ("volumes/*/vsphereVolume/storagePolicyName", "a policy of vSphere"),
    // Dropped with the field that they are in.
    ("schedulerName", "dropped"),
    ("schedulingGates/", "dropped"),
    ("schedulingGroup/", "dropped"),
    ("serviceAccount", "dropped"),
    ("volumes/*/ephemeral/", "replaced by the claim that V made of it"),
    // Refused with the field that they are in.
    ("resourceClaims/", "refused"),
    ("containers/*/resources/claims/*/name", "one of resourceClaims, which are refused"),
    ("resources/claims/*/name", "one of resourceClaims, which are refused"),
    ("volumes/*/glusterfs/", "refused"),
    ("volumes/*/projected/sources/*/clusterTrustBundle/", "refused"),
    ("volumes/*/projected/sources/*/podCertificate/", "refused"),
    // Replaced by names of P.
    ("nodeName", "the P node"),
    ("priorityClassName", "the binding's"),
    ("serviceAccountName", "ours"),
    ("runtimeClassName", "kept if P has it"),
    ("hostname", "a host name"),
];

/// Whether a field is where an object could be called by its name: by what it is called, or by the type that it is in.
fn may_refer(path: &str, type_: &str, field: &Value) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let by_name = name == "name" || name.ends_with("Name") || name == "endpoints" || name.ends_with("name");
    let by_type = ["Reference", "Selector", "EnvSource", "Projection"].iter().any(|end| type_.ends_with(end));
    field["type"] == "string" && (by_name || (by_type && name.contains("ame")))
        || name == "serviceAccount"
        || (name.ends_with("Ref") && field["properties"].is_null())
}

/// All three lists of containers are the same to the projection, and so they are here.
fn alike(path: &str) -> String {
    let lists = ["initContainers/", "ephemeralContainers/"];
    lists
        .iter()
        .find_map(|list| path.strip_prefix(list))
        .filter(|rest| *rest != "*/targetContainerName")
        .map_or_else(|| path.to_owned(), |rest| format!("containers/{rest}"))
}

/// A pod with `name` at `path`.
fn pod_with(path: &str, name: &str) -> Value {
    let mut value = json!(name);
    for field in path.split('/').rev() {
        value = if field == "*" {
            json!([value])
        } else {
            Value::Object(Map::from_iter([(field.to_owned(), value)]))
        };
    }
    value["containers"] = value.get("containers").cloned().unwrap_or_else(|| json!([]));
    json!({"metadata": {"name": "a", "namespace": "web", "uid": "u-1"}, "spec": value})
}

#[test]
fn every_field_that_may_name_an_object_is_renamed_or_names_something_else() {
    let schema = schema();
    let around = Around::default();
    let (mut renamed, mut others) = (BTreeMap::new(), BTreeSet::new());
    let mut unknown = Vec::new();
    each_field(&schema, &mut |path, type_, field| {
        if !may_refer(path, type_, field) {
            return;
        }
        let same = alike(path);
        let other = NAMES_OF_OTHER_THINGS.iter().find(|(known, _)| {
            *known == path || *known == same || (known.ends_with('/') && same.starts_with(known))
        });
        if let Some((known, _)) = other {
            others.insert(*known);
            return;
        }
        let pod = object(&pod_with(path, "theirs"));
        let Ok(found) = needs(&pod) else { return unknown.push(path.to_owned()) };
        let [(referent, name)] = found.references.keys().collect::<Vec<_>>()[..] else {
            return unknown.push(path.to_owned());
        };
        assert_eq!(name, "theirs", "{path}");
        let projected = around.project(&pod).unwrap();
        let pointer = format!("/spec/{}", path.replace('*', "0"));
        assert_eq!(projected.pointer(&pointer), Some(&json!("theirs-copy")), "{path}");
        renamed.insert(path.to_owned(), *referent);
    });
    assert_eq!(
        unknown, [""; 0],
        "add it to PLACES in `project::references`, or say here what it names instead"
    );
    let stale: Vec<_> = NAMES_OF_OTHER_THINGS.iter().filter(|(path, _)| !others.contains(path)).collect();
    assert!(stale.is_empty(), "no such field: {stale:?}");

    let count = |referent| renamed.values().filter(|one| **one == referent).count();
    assert_eq!(
        (count(Referent::ConfigMap), count(Referent::Secret), count(Referent::Claim)),
        (8, 18, 1),
        "{renamed:#?}"
    );
}

#[test]
fn every_field_of_a_pod_its_volumes_and_its_containers_is_in_the_corpus() {
    let schema = schema();
    let mut specs: Vec<Value> = Vec::new();
    for case in corpus() {
        specs.push(case.pod["spec"].clone());
    }
    let looked_at = [
        "PodSpec",
        "Volume",
        "VolumeProjection",
        "EnvVarSource",
        "EnvFromSource",
        "Container",
        "EphemeralContainer",
    ];
    let mut missing = Vec::new();
    each_field(&schema, &mut |path, type_, _| {
        let short = type_.rsplit('.').next().unwrap_or_default();
        // What init containers and ephemeral ones have in common with others is looked at once.
        if looked_at.contains(&short) && alike(path) == path && !specs.iter().any(|spec| has(spec, path)) {
            missing.push(path.to_owned());
        }
    });
    assert_eq!(missing, [""; 0], "add a pod with it to tests/pods");
}

fn has(value: &Value, path: &str) -> bool {
    let Some((field, rest)) = path.split_once('/') else { return value.get(path).is_some() };
    match rest.strip_prefix("*/") {
        Some(rest) => value[field].as_array().is_some_and(|items| items.iter().any(|item| has(item, rest))),
        None => value.get(field).is_some_and(|inner| has(inner, rest)),
    }
}

#[test]
fn no_pod_of_the_corpus_keeps_a_credential_or_an_identity_of_its_own() {
    for case in corpus() {
        let Ok(projected) = case.around.with(|around| project(&object(&case.pod), around)) else { continue };
        let spec = &projected["spec"];
        assert_eq!(spec["serviceAccountName"], WORKLOAD_SERVICE_ACCOUNT, "{}", case.title);
        assert_eq!(spec["automountServiceAccountToken"], false, "{}", case.title);
        assert_eq!(spec["enableServiceLinks"], false, "{}", case.title);
        assert!(!spec.to_string().contains("serviceAccountToken"), "{}", case.title);
    }
}

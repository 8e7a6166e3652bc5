//! What a kind's registry does to an object before it is stored, and after.
//!
//! Deliberately absent: refusing. See [`super::validation`] and [`super::admission`].

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Kind, metadata, pod_status, pods, services, signing};
use crate::clock;
use crate::rest::Call;
use crate::schema::crd;
use crate::server::State;
use crate::store::Shared;

/// Before an object is created.
pub(crate) fn prepare_create(state: &mut State, call: &Call<'_>, object: &mut Value) {
    let kind = &call.kind;
    if kind.generation {
        metadata::set(object, "generation", Some(1.into()));
    } else {
        metadata::set(object, "generation", None);
    }
    if kind.is_custom() {
        if kind.has_status()
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
        return;
    }
    match kind.kind.as_str() {
        "Pod" => pods::prepare_create(object, &clock::seconds(state.now())),
        "Namespace" => {
            object["status"] = json!({"phase": "Active"});
            let finalizers = object["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
            if !finalizers.contains(&"kubernetes".into()) {
                let mut finalizers = finalizers;
                finalizers.push("kubernetes".into());
                object["spec"]["finalizers"] = finalizers.into();
            }
        }
        "Deployment" | "Job" | "CronJob" | "ResourceQuota" => reset_status(object, json!({})),
        "Ingress" => reset_status(object, json!({"loadBalancer": {}})),
        "ReplicaSet" => reset_status(object, json!({"replicas": 0})),
        "StatefulSet" => reset_status(object, json!({"replicas": 0, "availableReplicas": 0})),
        "DaemonSet" => {
            reset_status(
                object,
                json!({"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0}),
            );
            super::defaults::or(&mut object["metadata"], "annotations", json!({}));
            object["metadata"]["annotations"]["deprecated.daemonset.template.generation"] = "1".into();
        }
        "PodDisruptionBudget" => {
            reset_status(
                object,
                json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}),
            );
        }
        "HorizontalPodAutoscaler" => {
            reset_status(object, json!({"desiredReplicas": 0, "currentMetrics": null}));
        }
        "PersistentVolumeClaim" => reset_status(object, json!({"phase": "Pending"})),
        "PersistentVolume" => {
            let now = clock::seconds(state.now());
            reset_status(object, json!({"phase": "Pending", "lastPhaseTransitionTime": now}));
        }
        "CertificateSigningRequest" => {
            let user = state.rights.user(&call.actor, &state.options.user);
            signing::prepare_create(object, &user, &crate::rest::rights::groups(&user));
        }
        "CustomResourceDefinition" => crd::prepare(object, &clock::seconds(state.now())),
        "Service" => services::prepare_create(state, object),
        _ => {}
    }
    if kind.is("Job") {
        job(object);
    }
    drop_gated(kind, object);
    drop_unknown(state, kind, object);
}

/// Fields behind feature gates that are closed by default.
fn drop_gated(kind: &Kind, object: &mut Value) {
    if kind.is("Lease")
        && let Some(spec) = object["spec"].as_object_mut()
    {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}

/// What an older server does not know.
fn drop_unknown(state: &State, kind: &Kind, object: &mut Value) {
    for (_, pointer) in state.options.unknown_fields.iter().filter(|(plural, _)| *plural == kind.plural) {
        let Some((parent, field)) = pointer.rsplit_once('/') else { continue };
        if let Some(parent) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
            parent.remove(field);
        }
    }
}

fn reset_status(object: &mut Value, status: Value) {
    object["status"] = status;
}

/// Pods of a job are found by the job's uid.
fn job(object: &mut Value) {
    if object["spec"]["manualSelector"] == true {
        return;
    }
    let uid = object["metadata"]["uid"].clone();
    let name = object["metadata"]["name"].clone();
    let mut labels =
        object["spec"]["template"]["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("job-name", &name),
    ] {
        labels.insert(key.into(), value.clone());
    }
    object["spec"]["template"]["metadata"]["labels"] = labels.clone().into();
    if object["metadata"].get("labels").is_none() {
        object["metadata"]["labels"] = labels.into();
    }
    object["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
}

/// Before an object is changed: what this endpoint does not write is put back.
pub(crate) fn prepare_update(state: &mut State, call: &Call<'_>, old: &Value, object: &mut Value) {
    let kind = &call.kind;
    let put_back = |object: &mut Value, key: &str| match old.get(key) {
        Some(value) => object[key] = value.clone(),
        None => {
            if let Some(map) = object.as_object_mut() {
                map.remove(key);
            }
        }
    };
    if call.place.subresource == "status" {
        prepare_status(kind, old, object, put_back);
    } else if kind.is_custom() {
        if kind.has_status() {
            put_back(object, "status");
        }
    } else if kind.has_status() && call.place.subresource.is_empty() {
        put_back(object, "status");
    }
    match kind.kind.as_str() {
        "Pod" if call.place.subresource == "ephemeralcontainers" => pods::prepare_ephemeral(old, object),
        "Pod" if call.place.subresource == "resize" => pods::prepare_resize(old, object),
        "Namespace" if call.place.subresource.is_empty() => {
            object["spec"]["finalizers"] = old["spec"]["finalizers"].clone();
        }
        "Namespace" if call.place.subresource == "finalize" => put_back(object, "status"),
        "DaemonSet" if call.place.subresource.is_empty() => {
            let template = &old["spec"]["template"];
            let mut generation: i64 =
                old["metadata"]["annotations"]["deprecated.daemonset.template.generation"]
                    .as_str()
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(1);
            if *template != object["spec"]["template"] {
                generation += 1;
            }
            super::defaults::or(&mut object["metadata"], "annotations", json!({}));
            object["metadata"]["annotations"]["deprecated.daemonset.template.generation"] =
                generation.to_string().into();
        }
        "Service" if call.place.subresource.is_empty() => services::prepare_update(state, old, object),
        "CertificateSigningRequest" => {
            let now = clock::seconds(state.now());
            signing::prepare_update(old, object, &call.place.subresource, &now);
        }
        "CustomResourceDefinition" if call.place.subresource.is_empty() => {
            crd::settle(object, &clock::seconds(state.now()));
        }
        _ => {}
    }
    drop_gated(kind, object);
    drop_unknown(state, kind, object);
    bump_generation(call, old, object);
}

fn prepare_status(kind: &Kind, old: &Value, object: &mut Value, put_back: impl Fn(&mut Value, &str)) {
    if kind.is_custom() {
        // Only the status, and who wrote it.
        let status = object.get("status").cloned();
        let managed = object["metadata"].get("managedFields").cloned();
        let version = object["metadata"]["resourceVersion"].clone();
        *object = old.clone();
        if let Some(map) = object.as_object_mut() {
            match status {
                Some(status) => map.insert("status".into(), status),
                None => map.remove("status"),
            };
        }
        metadata::set(object, "managedFields", managed);
        metadata::set(object, "resourceVersion", Some(version));
        return;
    }
    put_back(object, "spec");
    let keep = |object: &mut Value, key: &str| metadata::set(object, key, old["metadata"].get(key).cloned());
    match kind.kind.as_str() {
        "Pod" => pod_status::prepare(old, object),
        "Deployment" => keep(object, "labels"),
        "CustomResourceDefinition" | "VolumeAttachment" => {
            let managed = object["metadata"].get("managedFields").cloned();
            object["metadata"] = old["metadata"].clone();
            metadata::set(object, "managedFields", managed);
        }
        _ => {}
    }
}

fn bump_generation(call: &Call<'_>, old: &Value, object: &mut Value) {
    let kind = &call.kind;
    let main = call.place.subresource.is_empty();
    let changed = if kind.is("Pod") {
        call.place.subresource != "status" && old["spec"] != object["spec"]
    } else if kind.is_custom() {
        main && !crate::fields::managers::same_but(old, object, &["metadata", "status"])
    } else if kind.is("EndpointSlice") {
        main && (!crate::fields::managers::same_but(old, object, &["metadata"])
            || ["labels", "annotations"]
                .iter()
                .any(|key| old["metadata"].get(*key) != object["metadata"].get(*key)))
    } else {
        // A deployment also counts annotations: tools that roll back write there.
        let annotated = kind.is("Deployment")
            && old["metadata"].get("annotations") != object["metadata"].get("annotations");
        main && kind.generation && !kind.is("PriorityClass") && (old["spec"] != object["spec"] || annotated)
    };
    if changed {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        metadata::set(object, "generation", Some(generation.into()));
    }
}

/// After an object was created.
pub(crate) fn created(state: &mut State, call: &Call<'_>, object: &Shared) {
    if call.kind.is("CustomResourceDefinition") {
        install(state, &object.value);
    }
    if call.kind.is("Namespace") && state.options.default_service_accounts {
        welcome(state, &object.value);
    }
}

/// What the controller manager puts into every namespace.
fn welcome(state: &mut State, namespace: &Value) {
    let namespace = metadata::text(namespace, "name").to_owned();
    let Some(kind) = state.kinds.get("", "serviceaccounts").cloned() else { return };
    let (uid, now) = (state.uid(), clock::seconds(state.now()));
    let account = json!({
        "kind": "ServiceAccount", "apiVersion": "v1",
        "metadata": {"name": "default", "namespace": namespace, "uid": uid, "creationTimestamp": now},
    });
    let key = crate::store::Key::new(kind.id, &namespace, "default");
    if state.store.get(&key).is_none() {
        state.commit(key, Some(account), &crate::controllers::ACTOR.into());
    }
}

/// After an object was changed.
pub(crate) fn updated(state: &mut State, call: &Call<'_>, object: &Shared) {
    if call.kind.is("CustomResourceDefinition") {
        install(state, &object.value);
    }
}

/// After an object went.
pub(crate) fn deleted(state: &mut State, call: &Call<'_>, object: &Shared) {
    if call.kind.is("CustomResourceDefinition") {
        let spec = &object.value["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
        // What there is of a kind goes with its definition.
        let id = state.kinds.get(&group, &plural).map(|kind| kind.id);
        let all: Vec<_> =
            id.into_iter().flat_map(|id| state.store.live(id, None)).map(|(key, _)| key.clone()).collect();
        for key in all {
            state.commit(key, None, &crate::controllers::ACTOR.into());
        }
        state.kinds.remove(&group, &plural);
    }
}

/// Serves what a definition defines.
pub(crate) fn install(state: &mut State, definition: &Value) {
    if let Some(kind) = crd::kind(definition) {
        state.kinds.insert(kind);
    }
}

/// After etcd was restored: what is served is what is defined now.
pub(crate) fn reload_definitions(state: &mut State) {
    let custom: Vec<_> = state
        .kinds
        .all()
        .filter(|kind| kind.is_custom())
        .map(|kind| (kind.group.clone(), kind.plural.clone()))
        .collect();
    for (group, plural) in custom {
        state.kinds.remove(&group, &plural);
    }
    let Some(kind) = state.kinds.get("apiextensions.k8s.io", "customresourcedefinitions").map(|kind| kind.id)
    else {
        return;
    };
    let definitions: Vec<Arc<Value>> =
        state.store.live(kind, None).map(|(_, object)| object.value.clone()).collect();
    for definition in definitions {
        install(state, &definition);
    }
}

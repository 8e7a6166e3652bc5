//! What is reached through an object: its status, binding, scale.
//!
//! Deliberately absent: logs, exec and the like, which a node answers.

use serde_json::{Value, json};

use super::{Answer, Call, eviction, patching, read, shown, token, write};
use crate::clock;
use crate::kinds::metadata;
use crate::server::State;
use crate::status::{Cause, Failure, Result};

pub(crate) fn answer(state: &mut State, call: &Call<'_>, verb: &str) -> Result<Answer> {
    if !call.kind.subresources.contains(&call.place.subresource) {
        return Err(super::not_served());
    }
    match (call.place.subresource.as_str(), verb) {
        ("status" | "ephemeralcontainers" | "resize" | "approval", "get") => read::get(state, call),
        ("status" | "finalize" | "ephemeralcontainers" | "resize" | "approval", "update") => {
            node_exists(state, call)?;
            let (code, object) = write::update(state, call)?;
            finalized(state, call);
            Ok(shown(call, code, &object))
        }
        ("status" | "ephemeralcontainers" | "resize" | "approval", "patch") => {
            node_exists(state, call)?;
            let (code, object) = patching::patch(state, call)?;
            Ok(shown(call, code, &object))
        }
        ("binding", "create") => bind(state, call),
        ("eviction", "create") => eviction::create(state, call),
        ("token", "create") => token::create(state, call),
        ("scale", "get") => scale(state, call),
        ("scale", "update" | "patch") => rescale(state, call, verb),
        _ => Err(Failure::method_not_allowed()),
    }
}

/// A resize is refused if nobody could carry it out.
fn node_exists(state: &State, call: &Call<'_>) -> Result<()> {
    if call.place.subresource != "resize" {
        return Ok(());
    }
    let Some(pod) = state.store.get(&call.key()) else { return Ok(()) };
    let Some(node) = pod.value["spec"]["nodeName"].as_str() else { return Ok(()) };
    let kind = state.kinds.get("", "nodes").map_or(0, |kind| kind.id);
    if state.store.get(&crate::store::Key::new(kind, "", node)).is_none() {
        return Err(Failure::forbidden(&call.kind, &call.place.name, &format!("node {node:?} not found")));
    }
    Ok(())
}

/// A namespace whose last finalizer went is gone.
fn finalized(state: &mut State, call: &Call<'_>) {
    if call.place.subresource != "finalize" {
        return;
    }
    let Some(object) = state.store.get(&call.key()).cloned() else { return };
    let empty = object.value["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty);
    if empty && metadata::is_deleting(&object.value) && metadata::finalizers(&object.value).is_empty() {
        state.commit(call.key(), None, &call.actor);
    }
}

fn body(call: &Call<'_>) -> Result<Value> {
    if call.request.body.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(&call.request.body).map_err(|problem| Failure::bad_request(problem.to_string()))
}

/// The short answer for what leaves nothing behind.
pub(super) fn created() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

/// The scheduler's word.
fn bind(state: &mut State, call: &Call<'_>) -> Result<Answer> {
    let binding = body(call)?;
    let name = &call.place.name;
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    if node.is_empty() {
        let cause = Cause::required("target.name", "");
        return Err(Failure::invalid_as("", "Binding", name, &[cause]));
    }
    let old = state.store.get(&call.key()).cloned().ok_or_else(|| call.not_found())?;
    let mut pod = (*old.value).clone();
    let refuse = |why: &str| Failure::endpoint_conflict(&call.kind, "binding", name, why);
    let uid = binding["metadata"]["uid"].as_str().unwrap_or_default();
    if !uid.is_empty() && uid != metadata::text(&pod, "uid") {
        return Err(write::other_object(call, uid, metadata::text(&pod, "uid")));
    }
    if metadata::is_deleting(&pod) {
        return Err(refuse(&format!("pod {name} is being deleted, cannot be assigned to a host")));
    }
    if let Some(host) = pod["spec"]["nodeName"].as_str().filter(|host| !host.is_empty()) {
        return Err(refuse(&format!("pod {name} is already assigned to node {host:?}")));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return Err(refuse(&format!("pod {name} has non-empty .spec.schedulingGates")));
    }
    pod["spec"]["nodeName"] = node.into();
    // Room was made for it somewhere; that is over.
    if let Some(status) = pod["status"].as_object_mut() {
        status.remove("nominatedNodeName");
    }
    for (key, value) in binding["metadata"]["annotations"].as_object().into_iter().flatten() {
        crate::kinds::defaults::or(&mut pod["metadata"], "annotations", json!({}));
        pod["metadata"]["annotations"][key] = value.clone();
    }
    for (key, value) in binding["metadata"]["labels"].as_object().into_iter().flatten() {
        crate::kinds::defaults::or(&mut pod["metadata"], "labels", json!({}));
        pod["metadata"]["labels"][key] = value.clone();
    }
    let now = clock::seconds(state.now());
    set_condition(
        &mut pod,
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now}),
    );
    if !call.request.query.dry_run() {
        state.commit(call.key(), Some(pod), &call.actor);
    }
    Ok(Answer::Value(201, created()))
}

/// Puts a condition in the place of the one of its type.
pub(super) fn set_condition(object: &mut Value, condition: Value) {
    let mut conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    match conditions.iter_mut().find(|one| one["type"] == condition["type"]) {
        Some(place) => *place = condition,
        None => conditions.push(condition),
    }
    object["status"]["conditions"] = conditions.into();
}

fn scale_of(object: &Value) -> Value {
    let mut selector: Vec<String> = object["spec"]["selector"]["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    selector.sort();
    let meta = &object["metadata"];
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "creationTimestamp": meta["creationTimestamp"]},
        "spec": {}, "status": {"replicas": object["status"]["replicas"].as_i64().unwrap_or(0), "selector": selector.join(",")},
    });
    if let Some(replicas) = object["spec"]["replicas"].as_i64().filter(|replicas| *replicas != 0) {
        scale["spec"]["replicas"] = replicas.into();
    }
    scale
}

fn scale(state: &State, call: &Call<'_>) -> Result<Answer> {
    let object = state.store.get(&call.key()).ok_or_else(|| call.not_found())?;
    Ok(Answer::Value(200, scale_of(&object.value)))
}

fn rescale(state: &mut State, call: &Call<'_>, verb: &str) -> Result<Answer> {
    let old = state.store.get(&call.key()).cloned().ok_or_else(|| call.not_found())?;
    let wanted = if verb == "patch" {
        let patch: Value = serde_json::from_slice(&call.request.body)
            .map_err(|problem| Failure::bad_request(format!("error decoding patch: {problem}")))?;
        patching::patched_scale(call, &scale_of(&old.value), &patch)?
    } else {
        body(call)?
    };
    let name = &call.place.name;
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let cause = Cause::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
        return Err(Failure::invalid_as("autoscaling", "Scale", name, &[cause]));
    }
    let (uid, found) = (metadata::text(&wanted, "uid"), metadata::text(&old.value, "uid"));
    if !uid.is_empty() && uid != found {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {found}");
        return Err(Failure::endpoint_conflict(&call.kind, "scale", name, &why));
    }
    let version = metadata::text(&wanted, "resourceVersion");
    if !version.is_empty() && version != metadata::text(&old.value, "resourceVersion") {
        return Err(Failure::modified(&call.kind, name));
    }
    let mut object = (*old.value).clone();
    object["spec"]["replicas"] = replicas.into();
    if object == *old.value || call.request.query.dry_run() {
        return Ok(Answer::Value(200, scale_of(&object)));
    }
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
    metadata::set(&mut object, "generation", Some(generation.into()));
    let now = clock::seconds(state.now());
    write::note_owners(call, Some(&old.value), &mut object, &now);
    let entry = state.commit(call.key(), Some(object), &call.actor);
    let value = entry.new.as_ref().map(|object| scale_of(&object.value)).unwrap_or_default();
    Ok(Answer::Value(200, value))
}

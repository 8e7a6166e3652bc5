//! Patching and applying.
//!
//! Deliberately absent: how a patch changes an object ([`crate::patch`]) and who owns what
//! ([`crate::fields`]).

use serde_json::{Value, json};

use super::Call;
use super::body::{self, Strictness, check_name, settle_namespace};
use super::write::{create_decoded, note_owners, scope, store_update};
use crate::clock;
use crate::fields::managers::{self, Refusal};
use crate::kinds::{Kind, metadata};
use crate::patch::{self, strategic};
use crate::server::State;
use crate::status::{Cause, Failure, Result};
use crate::store::Shared;

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

pub(crate) fn patch(state: &mut State, call: &Call<'_>) -> Result<(u16, Shared)> {
    let kind = &call.kind;
    let content_type = call.request.content_type.split(';').next().unwrap_or_default().trim();
    let served: &[&str] = if kind.is_custom() {
        &[JSON_PATCH, MERGE_PATCH, APPLY_PATCH]
    } else {
        &[JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH]
    };
    if !served.contains(&content_type) {
        return Err(if kind.is_custom() {
            Failure::unsupported_media_type(served)
        } else {
            Failure::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").bare()
        });
    }
    check_patch_options(call, content_type)?;
    let strictness = Strictness::of(call)?;
    let patch: Value = serde_json::from_slice(&call.request.body)
        .map_err(|problem| Failure::bad_request(format!("error decoding patch: {problem}")))?;
    let now = clock::seconds(state.now());
    let old = state.store.get(&call.key()).cloned();
    if content_type == APPLY_PATCH {
        return apply(state, call, old, &patch, &now);
    }
    let old = old.ok_or_else(|| call.not_found())?;
    let mut object = patched(call, content_type, &old.value, &patch)?;
    let mut unknown = Vec::new();
    let invalid = |problem: &str| {
        // Patched again, because it was changed since.
        let text = patched(call, content_type, &old.value, &patch)
            .map(|object| object.to_string())
            .unwrap_or_default();
        Failure::invalid_as("", "", "", &[Cause::invalid("patch", &Value::String(text), problem)])
    };
    let identity = (object["kind"].clone(), object["apiVersion"].clone());
    if identity != (kind.kind.as_str().into(), kind.api_version().into()) {
        return Err(wrong_identity(kind, &object));
    }
    body::decode(kind, &mut object, &mut unknown).map_err(|problem| invalid(&problem))?;
    if strictness == Strictness::Strict && !unknown.is_empty() {
        return Err(invalid(&format!("strict decoding error: {}", unknown.join(", "))));
    }
    finish_patch(state, call, &old, object, &now).map(|object| (200, object))
}

/// A scale with a patch on it: it has no lists, so one way of merging is as good as another.
pub(crate) fn patched_scale(call: &Call<'_>, scale: &Value, patch: &Value) -> Result<Value> {
    let content_type = call.request.content_type.split(';').next().unwrap_or_default().trim();
    let content_type = if content_type == JSON_PATCH { JSON_PATCH } else { MERGE_PATCH };
    patched(call, content_type, scale, patch)
}

/// An object with a patch on it.
fn patched(call: &Call<'_>, content_type: &str, old: &Value, patch: &Value) -> Result<Value> {
    let mut object = old.clone();
    match content_type {
        JSON_PATCH => patch::json(&mut object, patch).map_err(|problem| match problem {
            patch::Wrong::Malformed(message) => {
                Failure::bad_request(format!("error decoding patch: {message}"))
            }
            // The server knows why, and does not tell.
            patch::Wrong::Failed => {
                Failure::new(422, "Invalid", "the server rejected our request due to an error in our request")
                    .bare()
            }
        })?,
        MERGE_PATCH if !patch.is_object() => {
            return Err(Failure::bad_request(
                "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ));
        }
        MERGE_PATCH => patch::merge(&mut object, patch),
        _ => strategic::merge(call.kind.ty(), &mut object, patch).map_err(Failure::bad_request)?,
    }
    Ok(object)
}

/// A patch that would make an object another kind of thing.
fn wrong_identity(kind: &Kind, object: &Value) -> Failure {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (found, version) = (text(&object["kind"]), text(&object["apiVersion"]));
    let problem = body::other_kind(kind, &found, &version);
    Failure::invalid_as("", "", "", &[Cause::invalid("patch", &Value::String(object.to_string()), &problem)])
}

fn finish_patch(
    state: &mut State,
    call: &Call<'_>,
    old: &Shared,
    mut object: Value,
    now: &str,
) -> Result<Shared> {
    metadata::dedup_owners(&mut object);
    note_owners(call, Some(&old.value), &mut object, now);
    settle_namespace(call, &mut object)?;
    check_name(call, &object)?;
    store_update(state, call, old, object)
}

fn check_patch_options(call: &Call<'_>, content_type: &str) -> Result<()> {
    let query = &call.request.query;
    let invalid = |cause| Err(Failure::invalid_as("meta.k8s.io", "PatchOptions", "", &[cause]));
    if content_type == APPLY_PATCH {
        if query.get("fieldManager").is_none() {
            return invalid(Cause::required("fieldManager", "is required for apply patch"));
        }
    } else if query.get("force").is_some() {
        return invalid(Cause::forbidden("force", "may not be specified for non-apply patch"));
    }
    Ok(())
}

fn apply(
    state: &mut State,
    call: &Call<'_>,
    old: Option<Shared>,
    applied: &Value,
    now: &str,
) -> Result<(u16, Shared)> {
    let kind = &call.kind;
    let (version, named) =
        (applied["apiVersion"].as_str().unwrap_or_default(), applied["kind"].as_str().unwrap_or_default());
    if version != kind.api_version() || named != kind.kind {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        return Err(Failure::bad_request(format!("invalid object type: {group}/{version}, Kind={named}")));
    }
    if applied["metadata"].get("managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    let Some(ty) = kind.ty() else { return Err(Failure::internal("no type")) };
    let manager = call.manager();
    let scope = scope(call, ty, version, &manager, now);
    if old.is_none() && !call.place.subresource.is_empty() {
        return Err(call.not_found());
    }
    let live = old.as_ref().map(|old| &*old.value);
    let merged = managers::apply(live, applied, &scope, call.request.query.flag("force"));
    let mut object = merged.map_err(|refusal| match refusal {
        Refusal::Conflicts(message, conflicts) => {
            let mut failure = Failure::new(409, "Conflict", message);
            let causes: Vec<_> = conflicts
                .iter()
                .map(|(manager, path)| json!({"reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": path}))
                .collect();
            failure.detail("causes", causes.into());
            failure
        }
        Refusal::Malformed(problem) => {
            let whose = format!("{}/{}; {}/{}, Kind={}", metadata::text(applied, "namespace"), metadata::text(applied, "name"), kind.group, kind.version, kind.kind);
            Failure::new(500, "", format!("failed to create typed patch object ({whose}): {problem}"))
        }
    })?;
    let mut unknown = Vec::new();
    body::decode(kind, &mut object, &mut unknown).map_err(|problem| {
        Failure::new(
            500,
            "",
            format!(
                "failed to convert new object ({}/{}; {}, Kind={}) to proper version: {problem}",
                call.place.namespace,
                call.place.name,
                kind.api_version(),
                kind.kind
            ),
        )
    })?;
    settle_namespace(call, &mut object)?;
    check_name(call, &object)?;
    if let Some(old) = old {
        return store_update(state, call, &old, object).map(|object| (200, object));
    }
    let uid = metadata::text(&object, "uid");
    if !uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(Failure::conflict(kind, &call.place.name, &why));
    }
    create_decoded(state, call, object).map(|object| (201, object))
}

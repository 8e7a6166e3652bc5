//! Creating, replacing, patching and applying.
//!
//! The order of steps is the server's: decode, note the owners of fields, admit, prepare, validate, and
//! only then look whether anything changed at all.
//!
//! Deliberately absent: what a kind does at each step; see [`crate::kinds`].

use serde_json::{Value, json};

use super::Call;
use crate::clock;
use crate::fields::Set;
use crate::fields::managers::{self, Refusal, Scope};
use crate::kinds::{Kind, admission, defaults, metadata, strategy, validation};
use crate::patch::{self, strategic};
use crate::schema::Type;
use crate::schema::decode::{self, Notes};
use crate::server::State;
use crate::status::{Cause, Failure, Result, go_quote};
use crate::store::{Key, Object, Shared};

/// How many names the server tries for a `generateName`.
const NAME_ATTEMPTS: usize = 8;

/// Where the server's types are registered; its messages say so.
const SCHEME: &str = "pkg/runtime/scheme.go:111";

/// What a client wants of unknown fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strictness {
    Strict,
    Lenient,
}

impl Strictness {
    pub(crate) fn of(call: &Call<'_>) -> Result<Self> {
        match call.request.query.get("fieldValidation") {
            Some("Strict") => Ok(Self::Strict),
            None | Some("Warn" | "Ignore") => Ok(Self::Lenient),
            Some(other) => {
                let cause =
                    Cause::unsupported("fieldValidation", &other.into(), &["", "Ignore", "Strict", "Warn"]);
                Err(Failure::invalid_as("meta.k8s.io", "CreateOptions", "", &[cause]))
            }
        }
    }
}

/// Reads an object of a kind: typed, pruned, with defaults. `Err` is what the decoder says.
pub(crate) fn decode(
    kind: &Kind,
    value: &mut Value,
    unknown: &mut Vec<String>,
) -> std::result::Result<(), String> {
    if !value.is_object() {
        return Err("json: cannot unmarshal into Go value".into());
    }
    value["apiVersion"] = kind.api_version().into();
    value["kind"] = kind.kind.clone().into();
    if value.get("metadata").is_none_or(Value::is_null) {
        value["metadata"] = json!({});
    }
    if let Some(custom) = &kind.custom {
        return crate::schema::crd::decode(custom, value, unknown);
    }
    let Some(ty) = kind.ty() else { return Ok(()) };
    let mut notes = Notes::default();
    decode::decode(ty, value, &mut notes)?;
    unknown.append(&mut notes.unknown);
    defaults::fill(kind, value);
    Ok(())
}

fn body(call: &Call<'_>) -> Result<Value> {
    let kind = &call.kind;
    let content_type = call.request.content_type.split(';').next().unwrap_or_default().trim();
    if !matches!(content_type, "" | "application/json" | "application/yaml") {
        return Err(Failure::unsupported_media_type(&[
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
        ]));
    }
    let value: Value = serde_json::from_slice(&call.request.body).map_err(|_| {
        Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: unexpected end of JSON input",
            kind.kind
        ))
    })?;
    if !value.is_object() {
        let found = if value.is_array() { "array" } else { "string" };
        let hex: String = call.request.body.iter().map(|byte| format!("{byte:02x}")).collect();
        return Err(Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }} ({hex})",
            kind.kind
        )));
    }
    let (version, named) =
        (value["apiVersion"].as_str().unwrap_or_default(), value["kind"].as_str().unwrap_or_default());
    if !named.is_empty() && named != kind.kind || !version.is_empty() && version != kind.api_version() {
        let version = if version.is_empty() { kind.version.as_str() } else { version };
        if kind.is_custom() {
            return Err(Failure::bad_request(format!(
                "the API version in the data ({version}) does not match the expected API version ({})",
                kind.api_version()
            )));
        }
        let short = version.rsplit('/').next().unwrap_or(version);
        return Err(Failure::bad_request(format!(
            "{named} in version {} cannot be handled as a {}: no kind {} is registered for version {} in scheme {SCHEME:?}",
            go_quote(short), kind.kind, go_quote(named), go_quote(version)
        )));
    }
    Ok(value)
}

/// Body to object, or 400.
fn decoded_body(call: &Call<'_>) -> Result<Value> {
    let mut value = body(call)?;
    let kind = &call.kind;
    let strictness = Strictness::of(call)?;
    let mut unknown = Vec::new();
    let handled = |problem: String| {
        Failure::bad_request(format!(
            "{} in version {} cannot be handled as a {}: {problem}",
            kind.kind,
            go_quote(&kind.version),
            kind.kind
        ))
    };
    decode(kind, &mut value, &mut unknown).map_err(handled)?;
    if strictness == Strictness::Strict && !unknown.is_empty() {
        return Err(handled(format!("strict decoding error: {}", unknown.join(", "))));
    }
    Ok(value)
}

/// `metadata.namespace` is that of the request, or there is none.
fn settle_namespace(call: &Call<'_>, object: &mut Value) -> Result<()> {
    let found = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let wanted = if call.kind.namespaced { call.place.namespace.as_str() } else { "" };
    if found.is_empty() && !wanted.is_empty() {
        object["metadata"]["namespace"] = wanted.into();
        return Ok(());
    }
    if !found.is_empty() && found != wanted {
        return Err(Failure::bad_request("the namespace of the provided object does not match the namespace sent on the request"));
    }
    Ok(())
}

/// What is left of an object that went through etcd: an empty list is no list.
fn store_form(kind: &Kind, object: &mut Value) {
    if let (None, Some(ty)) = (&kind.custom, kind.ty()) {
        decode::store_form(ty, object);
    }
}

fn drop_keys(object: &mut Value, keys: &[&str]) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        keys.iter().for_each(|key| drop(metadata.remove(*key)));
    }
}

pub(crate) fn create(state: &mut State, call: &Call<'_>) -> Result<Shared> {
    let mut object = decoded_body(call)?;
    drop_keys(
        &mut object,
        &["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"],
    );
    settle_namespace(call, &mut object)?;
    metadata::dedup_owners(&mut object);
    let now = clock::seconds(state.now());
    note_owners(call, None, &mut object, &now);
    create_decoded(state, call, object)
}

fn note_owners(call: &Call<'_>, live: Option<&Value>, object: &mut Value, now: &str) {
    let Some(ty) = call.kind.ty() else { return };
    let version = call.kind.api_version();
    let manager = call.manager();
    let scope = Scope {
        ty,
        api_version: &version,
        subresource: &call.place.subresource,
        ignored: if call.place.subresource == "status" {
            &call.kind.ignored_by_status
        } else {
            &call.kind.ignored
        },
        manager: &manager,
        now,
    };
    managers::update(live, object, &scope);
}

/// Notes a change that the server made by itself.
pub(crate) fn note_server(kind: &Kind, subresource: &str, old: &Value, object: &mut Value, now: &str) {
    let Some(ty) = kind.ty() else { return };
    let version = kind.api_version();
    let ignored = if subresource == "status" { &kind.ignored_by_status } else { &kind.ignored };
    managers::update(Some(old), object, &Scope { ty, api_version: &version, subresource, ignored, manager: crate::bootstrap::ACTOR, now });
}

/// Notes who sent an object that is answered and not kept.
pub(crate) fn note_review(ty: Type<'_>, api_version: &str, manager: &str, subresource: &str, object: &mut Value, now: &str) {
    managers::update(None, object, &Scope { ty, api_version, subresource, ignored: &Set::default(), manager, now });
}

/// The second half of a creation, which an apply or an upsert also ends in.
fn create_decoded(state: &mut State, call: &Call<'_>, object: Value) -> Result<Shared> {
    let kind = &call.kind;
    let mut object = object;
    admission::create(state, call, &mut object)?;
    metadata::dedup_owners(&mut object);
    if object["metadata"].get("resourceVersion").is_some_and(|version| version != "" && version != "0") {
        return Err(Failure::new(500, "", "resourceVersion should not be set on objects to be created"));
    }
    drop_keys(&mut object, &["resourceVersion"]);
    store_form(kind, &mut object);
    let now = clock::seconds(state.now());
    object["metadata"]["creationTimestamp"] = now.into();
    object["metadata"]["uid"] = state.uid().into();
    let generate = object["metadata"]["generateName"].as_str().unwrap_or_default().to_owned();
    let named = object["metadata"]["name"].as_str().is_some_and(|name| !name.is_empty());
    let mut attempts = 0;
    loop {
        if !named && !generate.is_empty() {
            // 63 less the suffix.
            let prefix: String = generate.chars().take(58).collect();
            object["metadata"]["name"] = format!("{prefix}{}", state.suffix()).into();
        }
        attempts += 1;
        strategy::prepare_create(state, call, &mut object)?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let causes = validation::create(state, kind, &object);
        if !causes.is_empty() {
            return Err(Failure::invalid(kind, &name, &causes));
        }
        admission::validate_create(state, call, &object)?;
        let key = Key::new(kind.id, object["metadata"]["namespace"].as_str().unwrap_or_default(), &name);
        if let Some(existing) = state.store.get(&key) {
            if !named && attempts < NAME_ATTEMPTS {
                continue;
            }
            let being_deleted = existing.value["metadata"].get("deletionTimestamp").is_some();
            return Err(Failure::already_exists(kind, &name, being_deleted));
        }
        if call.request.query.dry_run() {
            return Ok(Object::new(object));
        }
        let entry = state.commit(key, Some(object), &call.actor);
        let created = entry.new.clone().ok_or_else(|| Failure::internal("nothing was written"))?;
        strategy::created(state, call, &created);
        return Ok(created);
    }
}

pub(crate) fn update(state: &mut State, call: &Call<'_>) -> Result<(u16, Shared)> {
    let mut object = decoded_body(call)?;
    check_name(call, &mut object)?;
    settle_namespace(call, &mut object)?;
    let Some(old) = state.store.get(&call.key()).cloned() else {
        if !call.kind.upsert || !call.place.subresource.is_empty() {
            return Err(call.not_found());
        }
        drop_keys(
            &mut object,
            &["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"],
        );
        let now = clock::seconds(state.now());
        note_owners(call, None, &mut object, &now);
        drop_keys(&mut object, &["resourceVersion"]);
        return create_decoded(state, call, object).map(|object| (201, object));
    };
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let found = old.value["metadata"]["uid"].as_str().unwrap_or_default();
    if !uid.is_empty() && uid != found {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {found}",
            registry_key(call)
        );
        return Err(Failure::conflict(&call.kind, &call.place.name, &why));
    }
    metadata::dedup_owners(&mut object);
    let now = clock::seconds(state.now());
    note_owners(call, Some(&old.value), &mut object, &now);
    store_update(state, call, &old, object).map(|object| (200, object))
}

/// Where etcd keeps an object; the server tells.
fn registry_key(call: &Call<'_>) -> String {
    let kind = &call.kind;
    let place = match kind.plural.as_str() {
        _ if kind.is_custom() => format!("{}/{}", kind.group, kind.plural),
        "nodes" => "minions".into(),
        "services" => "services/specs".into(),
        "endpoints" => "services/endpoints".into(),
        other => other.to_owned(),
    };
    let namespace = if call.place.namespace.is_empty() { String::new() } else { format!("/{}", call.place.namespace) };
    format!("/registry/{place}{namespace}/{}", call.place.name)
}

fn check_name(call: &Call<'_>, object: &mut Value) -> Result<()> {
    let wanted = &call.place.name;
    match object["metadata"]["name"].as_str().filter(|name| !name.is_empty()) {
        Some(name) if name != wanted => Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        ))),
        Some(_) => Ok(()),
        None => Err(Failure::bad_request(
            format!("the name of the object ( based on URL) was undeterminable: name must be provided")
                .replace("( based on URL)", &format!("({wanted} based on URL)")),
        )),
    }
}

/// The second half of every change: versions, admission, validation, and whether anything changed.
pub(crate) fn store_update(
    state: &mut State,
    call: &Call<'_>,
    old: &Shared,
    mut object: Value,
) -> Result<Shared> {
    let kind = &call.kind;
    let name = &call.place.name;
    let before = &old.value;
    let current = before["metadata"]["resourceVersion"].clone();
    match object["metadata"]["resourceVersion"]
        .as_str()
        .filter(|version| !version.is_empty() && *version != "0")
    {
        None if kind.unconditional
            || !call.place.subresource.is_empty() && !kind.is_custom() && kind.unconditional => {}
        None => {
            let cause =
                Cause::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
            return Err(Failure::invalid_as(&kind.group, &kind.plural, name, &[cause]));
        }
        Some(version) if current != version => {
            if version.parse::<u64>().is_err() {
                let cause = Cause::invalid(
                    "metadata.resourceVersion",
                    &version.into(),
                    &format!("strconv.ParseUint: parsing {version:?}: invalid syntax"),
                );
                return Err(Failure::invalid_as("", "", "", &[cause]));
            }
            return Err(Failure::modified(kind, name));
        }
        Some(_) => {}
    }
    object["metadata"]["resourceVersion"] = current;
    store_form(kind, &mut object);
    admission::update(state, call, before, &mut object)?;
    metadata::dedup_owners(&mut object);
    let generation = before["metadata"].get("generation").cloned();
    metadata::set(&mut object, "generation", generation);
    strategy::prepare_update(state, call, before, &mut object);
    metadata::settle(before, &mut object);
    let causes = validation::update(state, call, before, &object);
    if !causes.is_empty() {
        return Err(Failure::invalid(kind, name, &causes));
    }
    if managers::only_times_differ(before, &object) {
        return Ok(old.clone());
    }
    if call.request.query.dry_run() {
        return Ok(Object::new(object));
    }
    if metadata::is_due(before, &object) {
        // The last finalizer went: the change itself is never seen.
        state.commit(call.key(), None, &call.actor);
        strategy::deleted(state, call, old);
        return Ok(Object::new(object));
    }
    let entry = state.commit(call.key(), Some(object), &call.actor);
    let updated = entry.new.clone().ok_or_else(|| Failure::internal("nothing was written"))?;
    strategy::updated(state, call, &updated);
    Ok(updated)
}

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
        return Err(Failure::unsupported_media_type(served));
    }
    check_patch_options(call, content_type)?;
    let strictness = Strictness::of(call)?;
    let patch: Value = serde_json::from_slice(&call.request.body)
        .map_err(|problem| Failure::bad_request(format!("error decoding patch: {problem}")))?;
    let now = clock::seconds(state.now());
    let old = state.store.get(&call.key()).cloned();
    if content_type == APPLY_PATCH {
        return apply(state, call, old, patch, &now);
    }
    let old = old.ok_or_else(|| call.not_found())?;
    let mut object = patched(call, content_type, &old.value, &patch)?;
    let mut unknown = Vec::new();
    let invalid = |problem: &str| {
        // Patched again, because it was changed since.
        let text = patched(call, content_type, &old.value, &patch).map(|object| object.to_string()).unwrap_or_default();
        Failure::invalid_as("", "", "", &[Cause::invalid("patch", &Value::String(text), problem)])
    };
    let identity = (object["kind"].clone(), object["apiVersion"].clone());
    if identity != (kind.kind.as_str().into(), kind.api_version().into()) {
        return Err(wrong_identity(&object));
    }
    decode(kind, &mut object, &mut unknown).map_err(|problem| invalid(&problem))?;
    if strictness == Strictness::Strict && !unknown.is_empty() {
        return Err(invalid(&format!("strict decoding error: {}", unknown.join(", "))));
    }
    finish_patch(state, call, &old, object, &now).map(|object| (200, object))
}

/// An object with a patch on it.
fn patched(call: &Call<'_>, content_type: &str, old: &Value, patch: &Value) -> Result<Value> {
    let mut object = old.clone();
    match content_type {
        JSON_PATCH => patch::json(&mut object, patch).map_err(|problem| match problem {
            patch::Wrong::Malformed(message) => Failure::bad_request(format!("error decoding patch: {message}")),
            // The server knows why, and does not tell.
            patch::Wrong::Failed => Failure::new(422, "Invalid", "the server rejected our request due to an error in our request").bare(),
        })?,
        MERGE_PATCH if !patch.is_object() => {
            return Err(Failure::bad_request("error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"));
        }
        MERGE_PATCH => patch::merge(&mut object, patch),
        _ => strategic::merge(call.kind.ty(), &mut object, patch).map_err(Failure::bad_request)?,
    }
    Ok(object)
}

fn wrong_identity(object: &Value) -> Failure {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (found, version) = (text(&object["kind"]), text(&object["apiVersion"]));
    let problem = format!("no kind {found:?} is registered for version {version:?} in scheme {SCHEME:?}");
    let cause = Cause::invalid("patch", &Value::String(object.to_string()), &problem);
    Failure::invalid_as("", "", "", &[cause])
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
    check_name(call, &mut object)?;
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
    applied: Value,
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
    let scope = Scope {
        ty,
        api_version: version,
        subresource: &call.place.subresource,
        ignored: if call.place.subresource == "status" { &kind.ignored_by_status } else { &kind.ignored },
        manager: &manager,
        now,
    };
    if old.is_none() && !call.place.subresource.is_empty() {
        return Err(call.not_found());
    }
    let live = old.as_ref().map(|old| &*old.value);
    let merged = managers::apply(live, &applied, &scope, call.request.query.flag("force"));
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
            let whose = format!("{}/{}; {}/{}, Kind={}", metadata::text(&applied, "namespace"), metadata::text(&applied, "name"), kind.group, kind.version, kind.kind);
            Failure::new(500, "", format!("failed to create typed patch object ({whose}): {problem}"))
        }
    })?;
    let mut unknown = Vec::new();
    decode(kind, &mut object, &mut unknown).map_err(|problem| {
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
    check_name(call, &mut object)?;
    match old {
        Some(old) => store_update(state, call, &old, object).map(|object| (200, object)),
        None => {
            if object["metadata"]["uid"].as_str().is_some_and(|uid| !uid.is_empty()) {
                let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(Failure::conflict(kind, &call.place.name, &why));
            }
            create_decoded(state, call, object).map(|object| (201, object))
        }
    }
}

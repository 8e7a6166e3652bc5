//! Creating and replacing, and the second half of everything else that writes.
//!
//! The order of steps is the server's: decode, note the owners of fields, admit, prepare, validate, and
//! only then look whether anything changed at all.
//!
//! Deliberately absent: what a kind does at each step; see [`crate::kinds`].

use std::sync::LazyLock;

use serde_json::Value;

use super::Call;
use super::body::{self, check_name, settle_namespace};
use crate::clock;
use crate::fields::Set;
use crate::fields::managers::{self, Scope};
use crate::kinds::{Kind, admission, metadata, strategy, validation};
use crate::schema::{Type, decode};
use crate::server::State;
use crate::status::{Cause, Failure, Result};
use crate::store::{Key, Object, Shared};

/// An approval writes conditions and nothing else.
static IGNORED_BY_APPROVAL: LazyLock<Set> = LazyLock::new(|| Set::of(&["spec", "status.certificate"]));

/// How many names the server tries for a `generateName`.
const NAME_ATTEMPTS: usize = 8;

/// What is left of an object that went through etcd: an empty list is no list.
fn store_form(kind: &Kind, object: &mut Value) {
    if let (None, Some(ty)) = (&kind.custom, kind.ty()) {
        decode::store_form(ty, object);
    }
}

fn drop_keys(object: &mut Value, keys: &[&str]) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for key in keys {
            metadata.remove(*key);
        }
    }
}

pub(crate) fn create(state: &mut State, call: &Call<'_>) -> Result<Shared> {
    let mut object = body::decoded(call)?;
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

/// Whose fields a request writes, and which it does not.
pub(crate) fn scope<'a>(
    call: &'a Call<'_>,
    ty: Type<'a>,
    api_version: &'a str,
    manager: &'a str,
    now: &'a str,
) -> Scope<'a> {
    let ignored = match call.place.subresource.as_str() {
        "status" => &call.kind.ignored_by_status,
        "approval" => &IGNORED_BY_APPROVAL,
        _ => &call.kind.ignored,
    };
    Scope { ty, api_version, subresource: &call.place.subresource, ignored, manager, now }
}

/// Notes who wrote what.
pub(crate) fn note_owners(call: &Call<'_>, live: Option<&Value>, object: &mut Value, now: &str) {
    let Some(ty) = call.kind.ty() else { return };
    let (version, manager) = (call.kind.api_version(), call.manager());
    managers::update(live, object, &scope(call, ty, &version, &manager, now));
}

/// Notes a change that the server made by itself.
pub(crate) fn note_server(kind: &Kind, subresource: &str, old: &Value, object: &mut Value, now: &str) {
    let Some(ty) = kind.ty() else { return };
    let version = kind.api_version();
    let ignored = if subresource == "status" { &kind.ignored_by_status } else { &kind.ignored };
    managers::update(
        Some(old),
        object,
        &Scope { ty, api_version: &version, subresource, ignored, manager: crate::bootstrap::ACTOR, now },
    );
}

/// Notes who sent an object that is answered and not kept.
pub(crate) fn note_review(
    ty: Type<'_>,
    api_version: &str,
    manager: &str,
    subresource: &str,
    object: &mut Value,
    now: &str,
) {
    managers::update(
        None,
        object,
        &Scope { ty, api_version, subresource, ignored: &Set::default(), manager, now },
    );
}

/// The second half of a creation, which an apply or an upsert also ends in.
pub(crate) fn create_decoded(state: &mut State, call: &Call<'_>, object: Value) -> Result<Shared> {
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
        strategy::prepare_create(state, call, &mut object);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let causes = validation::create(state, kind, &object);
        if !causes.is_empty() {
            return Err(Failure::invalid(kind, &name, &causes));
        }
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
    let mut object = body::decoded(call)?;
    check_name(call, &object)?;
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
        return Err(other_object(call, uid, found));
    }
    metadata::dedup_owners(&mut object);
    let now = clock::seconds(state.now());
    note_owners(call, Some(&old.value), &mut object, &now);
    store_update(state, call, &old, object).map(|object| (200, object))
}

/// Someone means another object of that name.
pub(crate) fn other_object(call: &Call<'_>, wanted: &str, found: &str) -> Failure {
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}",
        registry_key(call)
    );
    Failure::conflict(&call.kind, &call.place.name, &why)
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
    let namespace =
        if call.place.namespace.is_empty() { String::new() } else { format!("/{}", call.place.namespace) };
    format!("/registry/{place}{namespace}/{}", call.place.name)
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
        None if kind.unconditional => {}
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
    admission::update(state, call, &mut object)?;
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

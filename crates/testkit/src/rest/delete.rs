//! Deleting: at once, after a grace period, or after finalizers.
//!
//! Deliberately absent: what follows from a deletion elsewhere; see [`crate::controllers`].

use serde_json::{Value, json};

use super::read::Selection;
use super::{Answer, Call, shown};
use crate::clock;
use crate::kinds::{metadata, strategy};
use crate::server::State;
use crate::status::{Cause, Failure, Result};
use crate::store::{Object, Shared};

/// How something is to be deleted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    grace: Option<i64>,
    uid: Option<String>,
    version: Option<String>,
    propagation: Option<String>,
    orphan: Option<bool>,
    dry_run: bool,
}

impl Options {
    pub(crate) fn of(call: &Call<'_>) -> Result<Self> {
        let query = &call.request.query;
        let mut options = Self { dry_run: query.dry_run(), ..Self::default() };
        if call.request.body.is_empty() {
            options.grace = query.get("gracePeriodSeconds").and_then(|text| text.parse().ok());
            options.propagation = query.get("propagationPolicy").map(str::to_owned);
            options.orphan = query.get("orphanDependents").map(|_| query.flag("orphanDependents"));
        } else {
            let body: Value = serde_json::from_slice(&call.request.body).map_err(|_| {
                Failure::bad_request(
                    "couldn't get version/kind; json parse error: unexpected end of JSON input",
                )
            })?;
            options.read(&body);
        }
        let invalid = |cause| Err(Failure::invalid_as("meta.k8s.io", "DeleteOptions", "", &[cause]));
        if options.propagation.is_some() && options.orphan.is_some() {
            return invalid(Cause::invalid(
                "propagationPolicy",
                &options.propagation.clone().into(),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        if let Some(policy) = &options.propagation
            && !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan")
        {
            return invalid(Cause::unsupported(
                "propagationPolicy",
                &policy.as_str().into(),
                &["Foreground", "Background", "Orphan", "nil"],
            ));
        }
        Ok(options)
    }

    /// Nothing special, dry or not.
    pub(crate) fn asked(dry_run: bool) -> Self {
        Self { dry_run, ..Self::default() }
    }

    /// The version was looked at, and the object changed since by the one who looked.
    pub(crate) fn forget_version(&mut self) {
        self.version = None;
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// From a `DeleteOptions` object.
    pub(crate) fn read(&mut self, body: &Value) {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        self.grace = body["gracePeriodSeconds"].as_i64();
        self.uid = text(&body["preconditions"]["uid"]);
        self.version = text(&body["preconditions"]["resourceVersion"]);
        self.propagation = text(&body["propagationPolicy"]);
        self.orphan = body["orphanDependents"].as_bool();
        self.dry_run |= body["dryRun"].as_array().is_some_and(|list| !list.is_empty());
    }
}

/// What became of a deletion.
pub(crate) struct Deleted {
    object: Shared,
    /// It is gone already.
    gone: bool,
}

pub(crate) fn delete(state: &mut State, call: &Call<'_>) -> Result<Answer> {
    let options = Options::of(call)?;
    let deleted = delete_with(state, call, options.clone())?;
    let code = if !deleted.gone && options.orphan == Some(false) { 202 } else { 200 };
    if deleted.gone && !call.kind.returns_deleted {
        return Ok(Answer::Value(code, success(call, &deleted.object.value)));
    }
    Ok(shown(call, code, &deleted.object))
}

/// The short answer for an object that is gone.
fn success(call: &Call<'_>, object: &Value) -> Value {
    let mut details =
        json!({"name": call.place.name, "kind": call.kind.plural, "uid": object["metadata"]["uid"]});
    if !call.kind.group.is_empty() {
        details["group"] = call.kind.group.clone().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// Deletes one object.
pub(crate) fn delete_with(state: &mut State, call: &Call<'_>, mut options: Options) -> Result<Deleted> {
    let kind = &call.kind;
    let old = state.store.get(&call.key()).cloned().ok_or_else(|| call.not_found())?;
    let before = &old.value;
    if kind.is("Namespace") && matches!(call.place.name.as_str(), "default" | "kube-system" | "kube-public") {
        return Err(Failure::forbidden(kind, &call.place.name, "this namespace may not be deleted"));
    }
    check_preconditions(call, before, &options)?;
    if options.grace.is_some_and(|grace| grace < 0) {
        options.grace = Some(1);
    }
    if kind.is("Namespace") {
        return Ok(namespace(state, call, &old, &options));
    }
    let mut object = (**before).clone();
    let graceful = match if kind.is("Pod") { grace(state, &mut object, &mut options) } else { Grace::None } {
        Grace::Pending => return Ok(Deleted { object: old, gone: false }),
        Grace::None => false,
        Grace::Given => true,
    };
    settle_finalizers(&mut object, &options);
    let pending = !metadata::finalizers(&object).is_empty();
    if !graceful && pending {
        mark(state, &mut object);
    }
    if graceful || pending {
        let waits = pending || options.grace.unwrap_or(0) > 0;
        if options.dry_run {
            return Ok(Deleted { object: Object::new(object), gone: !waits });
        }
        let stored = if object == **before {
            old.clone()
        } else {
            let entry = state.commit(call.key(), Some(object), &call.actor);
            entry.new.clone().unwrap_or_else(|| old.clone())
        };
        if waits {
            return Ok(Deleted { object: stored, gone: false });
        }
    }
    if options.dry_run {
        return Ok(Deleted { object: old, gone: true });
    }
    let entry = state.commit(call.key(), None, &call.actor);
    strategy::deleted(state, call, &old);
    Ok(Deleted { object: entry.gone().cloned().unwrap_or(old), gone: true })
}

pub(crate) fn check_preconditions(call: &Call<'_>, object: &Value, options: &Options) -> Result<()> {
    let kind = &call.kind;
    let name = &call.place.name;
    let (uid, version) = (metadata::text(object, "uid"), metadata::text(object, "resourceVersion"));
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        );
        return Err(Failure::kind_conflict(kind, name, &why));
    }
    if let Some(wanted) = options.version.as_deref().filter(|wanted| *wanted != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        );
        return Err(Failure::kind_conflict(kind, name, &why));
    }
    Ok(())
}

enum Grace {
    /// There is none: it goes, or waits for finalizers only.
    None,
    /// It is already going, and this does not hurry it.
    Pending,
    /// It was noted in the object.
    Given,
}

/// The grace of a pod.
fn grace(state: &mut State, object: &mut Value, options: &mut Options) -> Grace {
    let now = state.now();
    if metadata::is_deleting(object) {
        let left = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        if left == 0 {
            return Grace::None;
        }
        let Some(mut period) = options.grace else {
            options.grace = Some(left);
            return Grace::Pending;
        };
        if period >= left {
            return Grace::Pending;
        }
        let at = metadata::text(object, "deletionTimestamp").parse::<jiff::Timestamp>().unwrap_or(now);
        let mut at = at.saturating_add(jiff::SignedDuration::from_secs(period - left)).unwrap_or(at);
        if at < now {
            at = now;
            if period != 0 {
                period = 1;
            }
        }
        metadata::set(object, "deletionTimestamp", Some(clock::seconds(at).into()));
        metadata::set(object, "deletionGracePeriodSeconds", Some(period.into()));
        return Grace::Given;
    }
    let mut period =
        options.grace.or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(0);
    let unscheduled = object["spec"]["nodeName"].as_str().is_none_or(str::is_empty);
    let finished = matches!(object["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    if unscheduled || finished {
        period = 0;
    }
    if period < 0 {
        period = 1;
    }
    options.grace = Some(period);
    let at = now.saturating_add(jiff::SignedDuration::from_secs(period)).unwrap_or(now);
    metadata::set(object, "deletionTimestamp", Some(clock::seconds(at).into()));
    metadata::set(object, "deletionGracePeriodSeconds", Some(period.into()));
    bump_generation(object);
    Grace::Given
}

fn bump_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|generation| *generation > 0) {
        object["metadata"]["generation"] = (generation + 1).into();
    }
}

/// Notes that an object is being deleted and only its finalizers are in the way.
fn mark(state: &mut State, object: &mut Value) {
    let now = state.now();
    if !metadata::is_deleting(object) {
        bump_generation(object);
        metadata::set(object, "deletionTimestamp", Some(clock::seconds(now).into()));
    }
    metadata::set(object, "deletionGracePeriodSeconds", Some(0.into()));
}

/// Puts in or takes out the finalizers of the garbage collector.
fn settle_finalizers(object: &mut Value, options: &Options) {
    let present: Vec<String> = metadata::finalizers(object).into_iter().map(str::to_owned).collect();
    let policy = match (options.orphan, options.propagation.as_deref()) {
        (Some(true), _) | (None, Some("Orphan")) => "orphan",
        (None, Some("Foreground")) => "foregroundDeletion",
        (Some(false), _) | (None, Some(_)) => "",
        (None, None) => present
            .iter()
            .map(String::as_str)
            .find(|one| matches!(*one, "orphan" | "foregroundDeletion"))
            .unwrap_or(""),
    };
    let mut finalizers: Vec<String> = present
        .iter()
        .filter(|one| !matches!(one.as_str(), "orphan" | "foregroundDeletion"))
        .cloned()
        .collect();
    if !policy.is_empty() {
        finalizers.push(policy.to_owned());
    }
    let (mut before, mut after) = (present, finalizers.clone());
    before.sort();
    after.sort();
    if before != after {
        metadata::set(object, "finalizers", (!finalizers.is_empty()).then(|| finalizers.into()));
    }
}

/// A namespace first says that it is going; its content goes, then its last finalizer, then itself.
fn namespace(state: &mut State, call: &Call<'_>, old: &Shared, options: &Options) -> Deleted {
    let mut object = (*old.value).clone();
    let finalizing = object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    if finalizing
        || !metadata::finalizers(&object).is_empty()
        || matches!(options.propagation.as_deref(), Some("Foreground" | "Orphan"))
    {
        if metadata::is_deleting(&object) && object["status"]["phase"] == "Terminating" {
            return Deleted { object: old.clone(), gone: false };
        }
        let now = clock::seconds(state.now());
        if !metadata::is_deleting(&object) {
            metadata::set(&mut object, "deletionTimestamp", Some(now.into()));
        }
        object["status"]["phase"] = "Terminating".into();
        settle_finalizers(&mut object, options);
        if options.dry_run {
            return Deleted { object: Object::new(object), gone: false };
        }
        let entry = state.commit(call.key(), Some(object), &call.actor);
        return Deleted { object: entry.new.clone().unwrap_or_else(|| old.clone()), gone: false };
    }
    if options.dry_run {
        return Deleted { object: old.clone(), gone: true };
    }
    let entry = state.commit(call.key(), None, &call.actor);
    Deleted { object: entry.gone().cloned().unwrap_or_else(|| old.clone()), gone: true }
}

/// Deletes everything that a selection names.
pub(crate) fn collection(state: &mut State, call: &Call<'_>) -> Result<Answer> {
    let options = Options::of(call)?;
    let selection = Selection::of(call)?;
    let namespace = Some(call.place.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let found = state.store.at(u64::MAX, call.kind.id, namespace, None);
    let mut items = Vec::new();
    for (key, object) in found.into_iter().filter(|(_, object)| selection.matches(&object.value)) {
        let mut place = call.place.clone();
        place.namespace = key.namespace.to_string();
        place.name = key.name.to_string();
        let one = Call { request: call.request, kind: call.kind.clone(), place, actor: call.actor.clone() };
        delete_with(state, &one, options.clone())?;
        let mut item = (*object.value).clone();
        if !call.kind.is_custom()
            && let Some(item) = item.as_object_mut()
        {
            item.remove("kind");
            item.remove("apiVersion");
        }
        items.push(item);
    }
    let mut list = json!({
        "kind": format!("{}List", call.kind.kind), "apiVersion": call.kind.api_version(),
        "metadata": {"resourceVersion": state.store.revision.to_string()}, "items": items,
    });
    if call.kind.is_custom() {
        list["metadata"]["continue"] = "".into();
    }
    Ok(Answer::Value(200, list))
}

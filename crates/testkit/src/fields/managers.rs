//! `metadata.managedFields`: kept up to date on every write, and obeyed on apply.
//!
//! Deliberately absent: the annotation of `kubectl apply` without `--server-side`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::{Set, typed};
use crate::schema::Type;

/// The server keeps this many updaters apart; older ones are merged.
const MOST_UPDATERS: usize = 10;

/// Who writes, in the words of an entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Manager {
    operation: &'static str,
    name: String,
    /// Empty for appliers: they are the same whatever version they applied.
    version: String,
    subresource: String,
}

#[derive(Debug, Clone)]
struct Owned {
    fields: Set,
    time: String,
    version: String,
}

type Owners = BTreeMap<Manager, Owned>;

/// What a write is about.
pub(crate) struct Scope<'a> {
    pub(crate) ty: Type<'a>,
    pub(crate) api_version: &'a str,
    pub(crate) subresource: &'a str,
    /// Fields that this endpoint does not write.
    pub(crate) ignored: &'a Set,
    pub(crate) manager: &'a str,
    pub(crate) now: &'a str,
}

/// Fields that belong to the server.
static OF_THE_SERVER: LazyLock<Set> = LazyLock::new(|| {
    Set::of(&[
        "apiVersion",
        "kind",
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "metadata.creationTimestamp",
        "metadata.selfLink",
        "metadata.uid",
        "metadata.clusterName",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.resourceVersion",
    ])
});

fn read(object: &Value) -> Owners {
    let mut out = Owners::new();
    for entry in object["metadata"]["managedFields"].as_array().into_iter().flatten() {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let operation = match entry["operation"].as_str() {
            Some("Apply") => "Apply",
            Some("Update") => "Update",
            _ => return Owners::new(),
        };
        let version = if operation == "Apply" { String::new() } else { text("apiVersion") };
        let manager = Manager { operation, name: text("manager"), version, subresource: text("subresource") };
        let owned = Owned {
            fields: Set::from_json(&entry["fieldsV1"]),
            time: text("time"),
            version: text("apiVersion"),
        };
        out.insert(manager, owned);
    }
    out
}

fn write(object: &mut Value, owners: &Owners) {
    let mut entries: Vec<_> = owners.iter().collect();
    entries.sort_by_key(|(manager, owned)| {
        (
            manager.operation,
            owned.time.clone(),
            manager.name.clone(),
            owned.version.clone(),
            manager.subresource.clone(),
        )
    });
    let entries: Vec<_> = entries
        .into_iter()
        .map(|(manager, owned)| {
            let mut entry = json!({
                "manager": manager.name, "operation": manager.operation, "apiVersion": owned.version,
                "time": owned.time, "fieldsType": "FieldsV1", "fieldsV1": owned.fields.to_json(),
            });
            if !manager.subresource.is_empty() {
                entry["subresource"] = manager.subresource.clone().into();
            }
            entry
        })
        .collect();
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".into(), entries.into());
    }
}

fn drop_entries(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// Someone sent an empty list to be rid of all owners.
fn is_reset(object: &Value) -> bool {
    match &object["metadata"]["managedFields"] {
        Value::Array(entries) => match entries.as_slice() {
            [] => true,
            [one] => one.as_object().is_some_and(Map::is_empty),
            _ => false,
        },
        _ => false,
    }
}

/// Notes that `scope.manager` made `new` out of `live`.
pub(crate) fn update(live: Option<&Value>, new: &mut Value, scope: &Scope<'_>) {
    let empty = crate::schema::decode::empty(scope.ty);
    let base = live.unwrap_or(&empty);
    let comparison = typed::compare(scope.ty, base, new).without(scope.ignored);
    let given = new["metadata"].get("managedFields");
    if let Some(live) = live
        && comparison.is_same()
        && (given.is_none() || given == live["metadata"].get("managedFields"))
    {
        // Nothing was written, so nobody owns more or less than before.
        if let Some(entries) = live["metadata"].get("managedFields") {
            new["metadata"]["managedFields"] = entries.clone();
        }
        return;
    }
    let mut owners = if !scope.subresource.is_empty() {
        read(base)
    } else if is_reset(new) {
        Owners::new()
    } else {
        let given = read(new);
        if given.is_empty() { read(base) } else { given }
    };
    drop_entries(new);
    if owners.is_empty() && live.is_some() {
        return;
    }
    if comparison.is_same() {
        return write(new, &owners);
    }
    let taken = comparison.modified.clone().union(&comparison.added);
    for owned in owners.values_mut() {
        owned.fields = owned.fields.difference(&taken).difference(&comparison.removed);
    }
    owners.retain(|_, owned| !owned.fields.is_empty());
    let fields = taken.difference(&OF_THE_SERVER);
    if !fields.is_empty() {
        let manager = Manager {
            operation: "Update",
            name: if scope.manager.is_empty() { "unknown".into() } else { scope.manager.into() },
            version: scope.api_version.into(),
            subresource: scope.subresource.into(),
        };
        let owned = owners.entry(manager).or_insert_with(|| Owned {
            fields: Set::default(),
            time: String::new(),
            version: scope.api_version.into(),
        });
        owned.fields = std::mem::take(&mut owned.fields).union(&fields);
        owned.time = scope.now.into();
    }
    cap(&mut owners);
    write(new, &owners);
}

fn cap(owners: &mut Owners) {
    let mut updaters: Vec<_> = owners
        .iter()
        .filter(|(manager, _)| manager.operation == "Update")
        .map(|(manager, owned)| (owned.time.clone(), manager.clone()))
        .collect();
    if updaters.len() <= MOST_UPDATERS {
        return;
    }
    updaters.sort();
    let mut first: BTreeMap<String, Manager> = BTreeMap::new();
    let mut count = updaters.len();
    for (_, manager) in updaters {
        if count <= MOST_UPDATERS {
            break;
        }
        let Some(owned) = owners.get(&manager).cloned() else { continue };
        let bucket = Manager {
            operation: "Update",
            name: "ancient-changes".into(),
            version: owned.version.clone(),
            subresource: String::new(),
        };
        let Some(earlier) = first.get(&owned.version) else {
            first.insert(owned.version.clone(), manager);
            continue;
        };
        if !owners.contains_key(&bucket)
            && let Some(earlier) = owners.remove(earlier)
        {
            owners.insert(bucket.clone(), earlier);
        }
        owners.remove(&manager);
        if let Some(into) = owners.get_mut(&bucket) {
            into.fields = std::mem::take(&mut into.fields).union(&owned.fields);
            into.time = owned.time;
        }
        count -= 1;
    }
}

/// A refused apply.
pub(crate) enum Refusal {
    /// Others own these fields: how it is said, and for each the owner and the path.
    Conflicts(String, Vec<(String, String)>),
    /// The object does not fit its schema.
    Malformed(String),
}

/// Applies `applied` to `live`, which is `None` for an object that does not exist.
pub(crate) fn apply(
    live: Option<&Value>,
    applied: &Value,
    scope: &Scope<'_>,
    force: bool,
) -> Result<Value, Refusal> {
    typed::check(Some(scope.ty), applied, "").map_err(Refusal::Malformed)?;
    let empty = crate::schema::decode::empty(scope.ty);
    let base = live.unwrap_or(&empty);
    let mut owners = read(base);
    if owners.is_empty() && live.is_some() {
        let before = Scope { manager: "before-first-apply", subresource: scope.subresource, ..*scope };
        let mut seen = base.clone();
        update(None, &mut seen, &before);
        owners = read(&seen);
    }
    let manager = Manager {
        operation: "Apply",
        name: scope.manager.into(),
        version: String::new(),
        subresource: scope.subresource.into(),
    };
    let merged = typed::merge(Some(scope.ty), Some(base), Some(applied)).unwrap_or_else(|| json!({}));
    let last = owners.get(&manager).map(|owned| owned.fields.clone());
    let fields = typed::field_set(scope.ty, applied).without_trees(scope.ignored);
    owners
        .insert(manager.clone(), Owned { fields, time: scope.now.into(), version: scope.api_version.into() });
    let result = match last {
        Some(last) if !last.is_empty() => prune(scope.ty, &merged, &last, &owners),
        _ => merged,
    };
    let comparison = typed::compare(scope.ty, base, &result).without(scope.ignored);
    let taken = comparison.modified.union(&comparison.added);
    let mut conflicts = Vec::new();
    for (other, owned) in owners.iter_mut().filter(|(other, _)| **other != manager) {
        let contested = owned.fields.intersection(&taken);
        if !contested.is_empty() {
            conflicts.push((printed(other, owned), contested.paths()));
            owned.fields = owned.fields.difference(&contested);
        }
        owned.fields = owned.fields.difference(&comparison.removed);
    }
    if !force && !conflicts.is_empty() {
        return Err(conflict(&conflicts));
    }
    if let Some(owned) = owners.get_mut(&manager) {
        owned.fields = owned.fields.difference(&OF_THE_SERVER);
    }
    owners.retain(|_, owned| !owned.fields.is_empty());
    let mut result = result;
    write(&mut result, &owners);
    Ok(result)
}

/// Takes away what the manager applied last time, not this time, and nobody else owns.
fn prune(ty: Type<'_>, merged: &Value, last: &Set, owners: &Owners) -> Value {
    let named = |set: &Set| set.with_named_fields(Some(ty));
    let less = |fields: &Set| typed::remove(Some(ty), merged, fields).unwrap_or_else(|| json!({}));
    let merged_set = typed::field_set(ty, merged);
    let mut pruned = less(&named(last));
    let owned = owners.values().fold(Set::default(), |all, owned| all.union(&owned.fields));
    let keep = named(&typed::field_set(ty, &pruned)).union(&named(&owned));
    pruned = less(&named(&merged_set).difference(&keep));
    let gone = named(&merged_set).difference(&named(&typed::field_set(ty, &pruned)));
    less(&gone.intersection(&named(last)))
}

fn printed(manager: &Manager, owned: &Owned) -> String {
    let mut text = format!("{:?}", manager.name);
    if !manager.subresource.is_empty() {
        let _ = write!(text, " with subresource {:?}", manager.subresource);
    }
    if manager.operation == "Update" {
        let _ = write!(text, " using {}", owned.version);
    }
    text
}

fn conflict(conflicts: &[(String, Vec<String>)]) -> Refusal {
    let mut flat: Vec<(String, String)> = conflicts
        .iter()
        .flat_map(|(manager, paths)| paths.iter().map(move |path| (manager.clone(), path.clone())))
        .collect();
    flat.sort();
    let message = match flat.as_slice() {
        [(manager, path)] => format!("Apply failed with 1 conflict: conflict with {manager}: {path}"),
        many => {
            let mut lines: Vec<String> = Vec::new();
            let mut current = "";
            for (manager, path) in many {
                if manager != current {
                    lines.push(format!("conflicts with {manager}:"));
                    current = manager;
                }
                lines.push(format!("- {path}"));
            }
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    Refusal::Conflicts(message, flat)
}

/// Whether two objects are the same but for the times in their `managedFields`; then nothing happened.
pub(crate) fn only_times_differ(old: &Value, new: &Value) -> bool {
    let entries = |object: &Value| object["metadata"]["managedFields"].as_array().map_or(0, Vec::len);
    if entries(old) != entries(new) {
        return false;
    }
    let bare = |entry: &Value| {
        let mut entry = entry.clone();
        if let Some(entry) = entry.as_object_mut() {
            entry.remove("time");
        }
        entry
    };
    let pairs = old["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .zip(new["metadata"]["managedFields"].as_array().into_iter().flatten());
    if pairs.clone().any(|(old, new)| old != new && bare(old) != bare(new)) {
        return false;
    }
    same_but(old, new, &["metadata"])
        && same_but(&old["metadata"], &new["metadata"], &["managedFields", "resourceVersion"])
}

/// Whether two maps agree on everything but some keys.
pub(crate) fn same_but(old: &Value, new: &Value, except: &[&str]) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return old == new };
    let relevant =
        |map: &Map<String, Value>| map.keys().filter(|key| !except.contains(&key.as_str())).count();
    relevant(old) == relevant(new)
        && old
            .iter()
            .filter(|(key, _)| !except.contains(&key.as_str()))
            .all(|(key, value)| new.get(key) == Some(value))
}

//! Patches: merge (RFC 7386), JSON (RFC 6902) and strategic merge.
//!
//! Deliberately absent: apply, which needs to know owners; see [`crate::fields::managers`].

pub(crate) mod strategic;

use serde_json::{Map, Value};

/// RFC 7386.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Why a JSON patch did not work.
pub(crate) enum Wrong {
    /// It is no JSON patch.
    Malformed(String),
    /// It does not fit the object.
    Failed,
}

/// RFC 6902.
pub(crate) fn json(target: &mut Value, operations: &Value) -> Result<(), Wrong> {
    let Some(operations) = operations.as_array() else {
        return Err(Wrong::Malformed(
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch".into(),
        ));
    };
    for operation in operations {
        let text = |key: &str| operation[key].as_str().unwrap_or_default();
        let (op, path, from) = (text("op"), text("path"), text("from"));
        let done = match op {
            "add" => add(target, path, operation["value"].clone()),
            "remove" => remove(target, path).map(drop),
            "replace" => replace(target, path, operation["value"].clone()),
            "move" => remove(target, from).and_then(|value| add(target, path, value)),
            "copy" => match target.pointer(from).cloned() {
                Some(value) => add(target, path, value),
                None => Err(missing("copy", from)),
            },
            "test" => match target.pointer(path) {
                Some(found) if *found == operation["value"] => Ok(()),
                None if operation["value"].is_null() => Ok(()),
                _ => Err(format!("testing value {path} failed: test failed")),
            },
            other => Err(format!("Unexpected kind: {other}")),
        };
        done.map_err(|_| Wrong::Failed)?;
    }
    Ok(())
}

fn missing(op: &str, path: &str) -> String {
    format!("{op} operation does not apply: doc is missing key: {path}: missing value")
}

fn split(path: &str) -> Option<(&str, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    Some((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let Some((parent, last)) = split(path) else {
        *target = value;
        return Ok(());
    };
    let problem = || format!("add operation does not apply: doc is missing path: \"{path}\": missing value");
    match target.pointer_mut(parent) {
        Some(Value::Object(map)) => {
            map.insert(last, value);
            Ok(())
        }
        Some(Value::Array(items)) => {
            let at = if last == "-" { items.len() } else { last.parse().map_err(|_| problem())? };
            if at > items.len() {
                return Err(format!(
                    "add operation does not apply: doc is missing path: \"{path}\": invalid index referenced"
                ));
            }
            items.insert(at, value);
            Ok(())
        }
        _ => Err(problem()),
    }
}

fn remove(target: &mut Value, path: &str) -> Result<Value, String> {
    let (parent, last) = split(path).ok_or_else(|| missing("remove", path))?;
    let gone = match target.pointer_mut(parent) {
        Some(Value::Object(map)) => map.remove(&last),
        Some(Value::Array(items)) => {
            last.parse::<usize>().ok().filter(|at| *at < items.len()).map(|at| items.remove(at))
        }
        _ => {
            return Err(format!(
                "remove operation does not apply: doc is missing path: \"{path}\": missing value"
            ));
        }
    };
    gone.ok_or_else(|| {
        format!("remove operation does not apply: doc is missing path: \"{path}\": missing value")
    })
}

fn replace(target: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if let Some(place) = target.pointer_mut(path) {
        *place = value;
        return Ok(());
    }
    // The server's library takes the replacement of a missing key for an addition.
    let in_object =
        split(path).is_some_and(|(parent, _)| target.pointer(parent).is_some_and(Value::is_object));
    if in_object { add(target, path, value) } else { Err(missing("replace", path)) }
}

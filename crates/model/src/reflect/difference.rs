//! What is new, and what of that is worth a write.
//!
//! A difference is worth a write if V would keep it. Everything counts that V has and the twin says otherwise; and what V lacks,
//! if every API server knows the field. What V lacks of other fields only rides along: an older server, or one with a feature
//! switched off, drops it, and would be told again for ever. Times of probes never count.
//!
//! Go does not tell what is empty from what is not there, so neither does this.

use serde_json::{Map, Value, json};

/// Whether there is nothing in it.
pub(super) fn is_void(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(is_void),
    }
}

/// Whether two values say the same.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            a.keys().chain(b.keys()).all(|key| is_same(&one[key], &other[key]))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        _ => one == other || is_void(one) && is_void(other),
    }
}

/// The fields of something that every API server keeps.
fn kept(field: &str) -> &'static [&'static str] {
    match field {
        "containerStatuses" | "initContainerStatuses" | "ephemeralContainerStatuses" => &[
            "name",
            "state",
            "lastState",
            "ready",
            "started",
            "restartCount",
            "image",
            "imageID",
            "containerID",
        ],
        "state" | "lastState" | "waiting" | "running" | "terminated" => &[
            "waiting",
            "running",
            "terminated",
            "reason",
            "message",
            "exitCode",
            "signal",
            "startedAt",
            "finishedAt",
            "containerID",
        ],
        "conditions" => &["status", "reason", "message", "lastTransitionTime"],
        "podIPs" => &["ip"],
        _ => &[],
    }
}

/// Fields of a status that every API server keeps, or that are there only where V has the feature.
const KEPT_AT_THE_TOP: &[&str] = &[
    "phase",
    "reason",
    "message",
    "startTime",
    "resize",
    "podIP",
    "podIPs",
    "hostIP",
    "containerStatuses",
    "initContainerStatuses",
    "ephemeralContainerStatuses",
];

/// Whether a difference in a field of the status is worth a write.
pub(super) fn is_material(field: &str, known: &Value, wish: &Value) -> bool {
    differs(field, KEPT_AT_THE_TOP.contains(&field), known, wish)
}

/// The same for a condition, as V has it and as it should be.
pub(super) fn is_material_condition(known: &Value, wish: &Value) -> bool {
    differs("conditions", true, known, wish)
}

fn differs(field: &str, is_kept: bool, known: &Value, wish: &Value) -> bool {
    match (known, wish) {
        _ if is_void(known) => is_kept && !is_void(wish),
        (Value::Object(a), Value::Object(b)) => {
            let kept = kept(field);
            a.keys()
                .chain(b.keys())
                .any(|key| differs(key, kept.contains(&key.as_str()), &known[key], &wish[key]))
        }
        // Items are of the kind that their list is of.
        (Value::Array(a), Value::Array(b)) => {
            a.len() != b.len() || a.iter().zip(b).any(|(a, b)| differs(field, true, a, b))
        }
        _ => !is_same(known, wish),
    }
}

/// What a strategic merge patch says to turn one value of a field into another.
pub(super) fn change(field: &str, known: &Value, wish: &Value) -> Value {
    match wish {
        _ if is_void(wish) => Value::Null,
        // These are merged by address, unless told otherwise.
        Value::Array(items) if matches!(field, "podIPs" | "hostIPs") => {
            [json!({"$patch": "replace"})].into_iter().chain(items.iter().cloned()).collect()
        }
        Value::Object(map) => {
            let gone = known.as_object().into_iter().flatten().map(|(key, _)| key);
            let gone = gone.filter(|key| !map.contains_key(*key)).map(|key| (key.clone(), Value::Null));
            let changed = map.iter().filter(|(key, value)| !is_same(&known[*key], value));
            let changed = changed.map(|(key, value)| (key.clone(), change("", &known[key], value)));
            gone.chain(changed).collect::<Map<_, _>>().into()
        }
        _ => wish.clone(),
    }
}

/// A value of the worker's without nulls, and without what a patch would take for a directive.
pub(super) fn clean(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(key, value)| !value.is_null() && !key.starts_with('$'))
            .map(|(key, value)| (key.clone(), clean(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(clean).collect(),
        _ => value.clone(),
    }
}

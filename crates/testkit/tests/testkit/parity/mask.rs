//! Takes out of an answer what no two servers share.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
        // Times of our own making are of 2001 and stay.
        (r"20(2|1)\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
        (r"kube-api-access-[a-z0-9]{5}", "kube-api-access-<suffix>"),
        (r"parity-[a-z0-9-]+-[0-9]{3}", "<namespace>"),
        (r"current: \d+", "current: <rv>"),
        (r"too old resource version: \d+ \(\d+\)", "too old resource version: <rv> (<rv>)"),
        (r"(?i)(resourceversion in (the precondition|record|object meta)[^0-9]*)\d+", "$1<rv>"),
        (r"10\.96\.\d+\.\d+", "<ip>"),
        // A name that was generated, and refused.
        (r"Bad_[a-z0-9]{5}", "Bad_<generated>"),
        // An object that is shown again: Go's order of fields, and sometimes Go's names.
        (r#"Invalid value: ("\{.*\}"|\{.*?\}|\[\{.*\}\]): "#, "Invalid value: <object>: "),
        (r"(Unsupported|Duplicate) value: \{[^}]*\}", "$1 value: <object>"),
        // A diff of Go structs.
        (r"previously negative\)\n[\s\S]*", "previously negative)"),
        (r"continue key is not valid: .*", "continue key is not valid"),
    ]
    .into_iter()
    .map(|(pattern, mask)| (Regex::new(pattern).unwrap(), mask))
    .collect()
});

pub(crate) fn text(text: &str) -> String {
    PATTERNS
        .iter()
        .fold(text.to_owned(), |text, (pattern, mask)| pattern.replace_all(&text, *mask).into_owned())
}

/// Masks an answer in place.
pub(crate) fn answer(value: &mut Value) {
    match value {
        Value::Object(map) => object(map),
        Value::Array(items) => items.iter_mut().for_each(answer),
        Value::String(found) => *found = text(found),
        _ => {}
    }
}

fn object(map: &mut Map<String, Value>) {
    let generated = map.get("generateName").and_then(Value::as_str).map(str::to_owned);
    if let (Some(prefix), Some(name)) = (generated, map.get_mut("name")) {
        let full = name.as_str().unwrap_or_default();
        *name = if full.len() == prefix.len() + 5 && full.starts_with(&prefix) {
            "<generated>".into()
        } else {
            format!("not generated: {full}").into()
        };
    }
    // What the apiserver's repair loops and caches decide by themselves.
    for (key, mask) in [
        ("resourceVersion", "<rv>"),
        ("continue", "<continue>"),
        ("token", "<token>"),
        ("serverAddress", "<address>"),
    ] {
        if let Some(Value::String(found)) = map.get_mut(key)
            && !found.is_empty()
        {
            *found = mask.into();
        }
    }
    // Who we are depends on how we got in.
    if map.contains_key("username") {
        map.insert("username".into(), "<user>".into());
        map.remove("groups");
        map.remove("extra");
    }
    // A hash of names, for the movers of storage; and what was built when, from what.
    map.remove("storageVersionHash");
    for key in ["buildDate", "gitCommit", "gitTreeState", "goVersion", "jti"] {
        if map.contains_key(key) {
            map.insert(key.into(), format!("<{key}>").into());
        }
    }
    if let Some(port @ Value::Number(_)) = map.get_mut("nodePort") {
        *port = "<port>".into();
    }
    if let Some(Value::Array(entries)) = map.get_mut("managedFields") {
        for entry in entries.iter_mut() {
            entry["time"] = "<time>".into();
        }
        entries.sort_by_key(|entry| {
            ["manager", "operation", "subresource"]
                .map(|key| entry[key].as_str().unwrap_or_default().to_owned())
        });
    }
    // Rules come from a map of Go's.
    for list in ["causes", "resourceRules", "nonResourceRules"] {
        if let Some(Value::Array(items)) = map.get_mut(list) {
            items.sort_by_key(Value::to_string);
        }
    }
    // Keys may carry uids too.
    let taken = std::mem::take(map);
    for (key, mut value) in taken {
        answer(&mut value);
        map.insert(text(&key), value);
    }
}

/// A message, with the parts of a list of causes in order: Go's maps are in none.
pub(crate) fn message(found: &str) -> String {
    let found = text(found);
    let Some((head, list)) = found.split_once(" is invalid: [") else { return found };
    let mut parts: Vec<_> = list.trim_end_matches(']').split(", ").collect();
    parts.sort_unstable();
    format!("{head} is invalid: [{}]", parts.join(", "))
}

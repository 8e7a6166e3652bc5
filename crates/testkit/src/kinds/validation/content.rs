//! What makes a map or a secret invalid.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::kinds::{Kind, metadata};
use crate::status::Cause;

const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// What all values together may weigh.
const MOST_BYTES: usize = 1024 * 1024;

/// Keys and sizes.
pub(super) fn content(kind: &Kind, object: &Value, causes: &mut Vec<Cause>) {
    let mut size = 0;
    for section in ["data", "binaryData"] {
        for (key, value) in object[section].as_object().into_iter().flatten() {
            let at = format!("{section}[{key}]");
            let shown = key.as_str().into();
            causes.extend(key_problems(key).into_iter().map(|why| Cause::invalid(at.clone(), &shown, why)));
            if section == "data" && object["binaryData"].get(key).is_some() {
                causes.push(Cause::invalid(at, &shown, "duplicate of key present in binaryData"));
            }
            let text = value.as_str().unwrap_or_default();
            let is_text = kind.is("ConfigMap") && section == "data";
            let padding = text.len() - text.trim_end_matches('=').len();
            size += if is_text { text.len() } else { (text.len() / 4 * 3).saturating_sub(padding) };
        }
    }
    if size > MOST_BYTES {
        let at = if kind.is("Secret") { "data" } else { "[]" };
        causes.push(Cause::too_long(at, MOST_BYTES as u64));
    }
    if kind.is("Secret") {
        secret(object, causes);
    }
}

fn key_problems(key: &str) -> Vec<&'static str> {
    let mut problems = Vec::new();
    if key.len() > 253 {
        problems.push("must be no more than 253 characters");
    }
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
        problems.push(KEY);
    }
    match key {
        "." => problems.push("must not be '.'"),
        ".." => problems.push("must not be '..'"),
        _ if key.starts_with("..") => problems.push("must not start with '..'"),
        _ => {}
    }
    problems
}

/// Some types promise what is in them.
fn secret(object: &Value, causes: &mut Vec<Cause>) {
    let has = |key: &str| object["data"].get(key).is_some();
    let mut required = |keys: &[&str]| {
        causes.extend(keys.iter().map(|key| Cause::required(format!("data[{key}]"), "")));
    };
    match object["type"].as_str().unwrap_or_default() {
        "kubernetes.io/tls" => {
            let missing: Vec<_> = ["tls.crt", "tls.key"].into_iter().filter(|key| !has(key)).collect();
            required(&missing);
        }
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            required(&["username", "password"]);
        }
        "kubernetes.io/ssh-auth" if object["data"]["ssh-privatekey"].as_str().is_none_or(str::is_empty) => {
            required(&["ssh-privatekey"]);
        }
        "kubernetes.io/dockercfg" => configuration(object, ".dockercfg", causes),
        "kubernetes.io/dockerconfigjson" => configuration(object, ".dockerconfigjson", causes),
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            if object["metadata"]["annotations"][name].as_str().is_none_or(str::is_empty) {
                causes.push(Cause::required(format!("metadata.annotations[{name}]"), ""));
            }
        }
        _ => {}
    }
}

/// A file of JSON.
fn configuration(object: &Value, key: &str, causes: &mut Vec<Cause>) {
    let at = format!("data[{key}]");
    let Some(encoded) = object["data"].get(key) else {
        causes.push(Cause::required(at, ""));
        return;
    };
    let bytes = STANDARD.decode(encoded.as_str().unwrap_or_default()).unwrap_or_default();
    if serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes).is_err() {
        let why = match bytes.iter().map(|byte| char::from(*byte)).find(|one| !one.is_whitespace()) {
            Some(first) => format!("invalid character {first:?} looking for beginning of value"),
            None => "unexpected end of JSON input".to_owned(),
        };
        causes.push(Cause::invalid(at, &"<secret contents redacted>".into(), &why));
    }
}

/// What may not change in content that is immutable, or ever.
pub(super) fn update(kind: &Kind, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if old["immutable"] == true {
        if new["immutable"] != true {
            causes.push(Cause::forbidden("immutable", "field is immutable when `immutable` is set"));
        }
        for section in ["data", "binaryData"] {
            if old.get(section) != new.get(section) {
                causes.push(Cause::forbidden(section, "field is immutable when `immutable` is set"));
            }
        }
    }
    if kind.is("Secret") && old["type"] != new["type"] {
        causes.push(Cause::invalid("type", &new["type"], "field is immutable"));
    }
}

/// An event speaks of something in its own namespace.
pub(super) fn event(object: &Value, causes: &mut Vec<Cause>) {
    let event = metadata::text(object, "namespace");
    let involved = object["involvedObject"]["namespace"].as_str().unwrap_or_default();
    if !involved.is_empty() && event != involved || involved.is_empty() && event != "default" {
        causes.push(Cause::invalid(
            "involvedObject.namespace",
            &involved.into(),
            "does not match event.namespace",
        ));
    }
}

/// A lease lasts, and never changed hands a negative number of times.
pub(super) fn lease(spec: &Value, causes: &mut Vec<Cause>) {
    for (key, least, why) in [
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ] {
        if spec[key].as_i64().is_some_and(|value| value < least) {
            causes.push(Cause::invalid(format!("spec.{key}"), &spec[key], why));
        }
    }
}

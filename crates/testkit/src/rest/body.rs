//! What was sent: is it an object of this kind, with this name, in this namespace?
//!
//! Deliberately absent: patches, which are no objects yet.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::Call;
use crate::kinds::{Kind, catalog, defaults};
use crate::schema::decode::{self, Notes};
use crate::status::{Cause, Failure, Result, go_quote};

/// Where the server's types are registered; its messages say so.
const SCHEME: &str = "pkg/runtime/scheme.go:111";

/// So much of a body is shown again.
const EXCERPT: usize = 30;

/// Why something of another kind is none of this one.
pub(crate) fn other_kind(kind: &Kind, named: &str, version: &str) -> String {
    if catalog::is_registered(named, version) {
        let package = kind.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
        let short = version.rsplit('/').next().unwrap_or(version);
        return format!("converting ({short}.{named}) to ({package}.{}): unknown conversion", kind.kind);
    }
    format!(
        "no kind {} is registered for version {} in scheme {SCHEME:?}",
        go_quote(named),
        go_quote(version)
    )
}

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
                let options = match call.request.method.as_str() {
                    "PATCH" => "PatchOptions",
                    "PUT" => "UpdateOptions",
                    _ => "CreateOptions",
                };
                Err(Failure::invalid_as("meta.k8s.io", options, "", &[cause]))
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

fn parsed(call: &Call<'_>) -> Result<Value> {
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
        let mut hex = String::new();
        for byte in &call.request.body {
            let _ = write!(hex, "{byte:02x}");
        }
        return Err(Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }} ({hex})",
            kind.kind
        )));
    }
    named_by_text(kind, &value)?;
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
            "{named} in version {} cannot be handled as a {}: {}",
            go_quote(short),
            kind.kind,
            other_kind(kind, named, version)
        )));
    }
    Ok(value)
}

/// Version and kind are texts where they are given; of a custom resource, both are.
fn named_by_text(kind: &Kind, value: &Value) -> Result<()> {
    let unrecognized = |why: String| {
        let expected = &kind.kind;
        Err(Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {expected}): {why}"
        )))
    };
    for field in ["apiVersion", "kind"] {
        let found = match &value[field] {
            Value::Null | Value::String(_) => continue,
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        return unrecognized(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go struct field .{field} of type string ({})",
            excerpt(value)
        ));
    }
    if !kind.is_custom() {
        return Ok(());
    }
    if value["kind"].as_str().unwrap_or_default().is_empty() {
        return unrecognized(format!("Object 'Kind' is missing in '{value}'"));
    }
    if value["apiVersion"].as_str().unwrap_or_default().is_empty() {
        return Err(Failure::bad_request(format!(
            "the API version in the data () does not match the expected API version ({})",
            kind.api_version()
        )));
    }
    Ok(())
}

/// The beginning of what was sent, as the server shows it.
fn excerpt(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text,
    }
}

/// Body to object, or 400.
pub(crate) fn decoded(call: &Call<'_>) -> Result<Value> {
    let mut value = parsed(call)?;
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
pub(crate) fn settle_namespace(call: &Call<'_>, object: &mut Value) -> Result<()> {
    let found = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let wanted = if call.kind.namespaced { call.place.namespace.as_str() } else { "" };
    if found.is_empty() && !wanted.is_empty() {
        object["metadata"]["namespace"] = wanted.into();
        return Ok(());
    }
    if !found.is_empty() && found != wanted {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// The name in the object is that of the path.
pub(crate) fn check_name(call: &Call<'_>, object: &Value) -> Result<()> {
    let wanted = &call.place.name;
    match object["metadata"]["name"].as_str().filter(|name| !name.is_empty()) {
        Some(name) if name != wanted => Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        ))),
        Some(_) => Ok(()),
        None => Err(Failure::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        ))),
    }
}

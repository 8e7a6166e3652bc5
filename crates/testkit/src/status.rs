//! Refusals in the words of the API server.
//!
//! Deliberately absent: when to refuse. This module only knows how it is said.

use serde_json::{Map, Value, json};

use crate::kinds::Kind;

/// One wrong field, as `details.causes` tells it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) field: String,
    pub(crate) body: String,
}

impl Cause {
    fn new(reason: &'static str, field: impl Into<String>, body: String) -> Self {
        Self { reason, field: field.into(), body }
    }

    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueRequired", field, with_detail("Required value".into(), detail))
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(
            "FieldValueInvalid",
            field,
            with_detail(format!("Invalid value: {}", quoted(value)), detail),
        )
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueForbidden", field, with_detail("Forbidden".into(), detail))
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueDuplicate", field, format!("Duplicate value: {}", quoted(value)))
    }

    /// With a reason, for those that rarely give one.
    pub(crate) fn because(mut self, detail: &str) -> Self {
        self.body = with_detail(self.body, detail);
        self
    }

    pub(crate) fn internal(field: impl Into<String>, detail: &str) -> Self {
        Self::new("InternalError", field, with_detail("Internal error".into(), detail))
    }

    pub(crate) fn unsupported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list: Vec<_> = supported.iter().map(|one| format!("{one:?}")).collect();
        let body = format!("Unsupported value: {}: supported values: {}", quoted(value), list.join(", "));
        Self::new("FieldValueNotSupported", field, body)
    }

    pub(crate) fn too_long(field: impl Into<String>, max: u64) -> Self {
        Self::new("FieldValueTooLong", field, format!("Too long: may not be more than {max} bytes"))
    }

    pub(crate) fn too_many(field: impl Into<String>, actual: usize, max: u64) -> Self {
        let body = format!("Too many: {actual}: must have at most {max} items");
        Self::new("FieldValueTooMany", field, body)
    }

    pub(crate) fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueNotFound", field, format!("Not found: {}", quoted(value)))
    }

    pub(crate) fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        let field = field.into();
        Self::new(
            "FieldValueTypeInvalid",
            field,
            with_detail(format!("Invalid value: {}", quoted(value)), detail),
        )
    }

    /// Invalid, without showing the value.
    pub(crate) fn omitted(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {detail}"))
    }

    pub(crate) fn said(&self) -> String {
        format!("{}: {}", self.field, self.body)
    }
}

fn with_detail(body: String, detail: &str) -> String {
    if detail.is_empty() { body } else { format!("{body}: {detail}") }
}

/// A value as a field error shows it: strings quoted, the rest as JSON.
fn quoted(value: &Value) -> String {
    match value {
        Value::String(text) => go_quote(text),
        Value::Null => "null".into(),
        other => other.to_string(),
    }
}

/// Go's `%q` for the characters that occur here.
pub(crate) fn go_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// An answer that is not what was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// Left out where the server says nothing, which is not the same as nothing to say.
    pub(crate) details: Option<Map<String, Value>>,
    /// How an expired list may go on.
    pub(crate) metadata_continue: Option<String>,
}

/// What every step of a request returns.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, metadata_continue: None }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                self.detail(key, value.into());
            }
        }
        self
    }

    /// Adds to the details.
    pub(crate) fn detail(&mut self, key: &str, value: Value) {
        self.details.get_or_insert_default().insert(key.into(), value);
    }

    /// With details that tell nothing.
    pub(crate) fn bare(mut self) -> Self {
        self.details.get_or_insert_default();
        self
    }

    fn resource(self, kind: &Kind, name: &str) -> Self {
        self.about(&kind.group, &kind.plural, name)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {} not found", kind.qualified(), go_quote(name));
        Self::new(404, "NotFound", message).resource(kind, name)
    }

    /// A path that nothing is served at.
    pub(crate) fn no_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").bare()
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str, being_deleted: bool) -> Self {
        let prefix = if being_deleted { "object is being deleted: " } else { "" };
        let message = format!("{prefix}{} {} already exists", kind.qualified(), go_quote(name));
        Self::new(409, "AlreadyExists", message).resource(kind, name)
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {}: {why}", kind.qualified(), go_quote(name));
        Self::new(409, "Conflict", message).resource(kind, name)
    }

    /// As [`Self::conflict`], where the server names the kind instead of the resource.
    pub(crate) fn kind_conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let qualified = kind.qualified_kind();
        let message = format!("Operation cannot be fulfilled on {qualified} {}: {why}", go_quote(name));
        Self::new(409, "Conflict", message).about(&kind.group, &kind.kind, name)
    }

    /// As [`Self::conflict`], where the server names the endpoint.
    pub(crate) fn endpoint_conflict(kind: &Kind, endpoint: &str, name: &str, why: &str) -> Self {
        let place = format!("{}/{endpoint}", kind.plural);
        let qualified = if kind.group.is_empty() { place.clone() } else { format!("{place}.{}", kind.group) };
        let message = format!("Operation cannot be fulfilled on {qualified} {}: {why}", go_quote(name));
        Self::new(409, "Conflict", message).about(&kind.group, &place, name)
    }

    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        Self::invalid_as(&kind.group, &kind.kind, name, causes)
    }

    pub(crate) fn invalid_as(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let said: Vec<_> = causes.iter().map(Cause::said).collect();
        // An aggregate says each thing once.
        let mut once: Vec<&String> = Vec::new();
        for line in &said {
            if !once.contains(&line) {
                once.push(line);
            }
        }
        let list = match once.as_slice() {
            [single] => (*single).clone(),
            many => format!("[{}]", many.iter().map(|one| one.as_str()).collect::<Vec<_>>().join(", ")),
        };
        let mut message = format!("{qualified} {} is invalid: {list}", go_quote(name));
        if qualified.is_empty() {
            message = format!(" {} is invalid: {list}", go_quote(name));
        }
        let mut failure = Self::new(422, "Invalid", message).about(group, kind, name);
        let causes: Vec<_> = causes
            .iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.body, "field": cause.field}))
            .collect();
        failure.detail("causes", causes.into());
        failure
    }

    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let subject = if name.is_empty() {
            kind.qualified()
        } else {
            format!("{} {}", kind.qualified(), go_quote(name))
        };
        Self::new(403, "Forbidden", format!("{subject} is forbidden: {why}")).resource(kind, name)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
            .bare()
    }

    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn too_large_revision(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut failure = Self::new(504, "Timeout", message);
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        failure.detail("causes", json!([cause]));
        failure.detail("retryAfterSeconds", 1.into());
        failure
    }

    pub(crate) fn internal(message: &str) -> Self {
        let mut failure = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        failure.detail("causes", json!([{"message": message}]));
        failure
    }

    /// The `Status` object.
    pub(crate) fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if let Some(token) = &self.metadata_continue {
            status["metadata"]["continue"] = token.clone().into();
        }
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone().into();
        }
        status
    }
}

//! What all objects have in common: names, labels, owners, finalizers, and the fields nobody may change.
//!
//! Deliberately absent: everything below `metadata`'s siblings.

use serde_json::{Value, json};

use super::Kind;
use crate::status::Cause;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const KEY: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// All annotations of an object together.
const MOST_ANNOTATION_BYTES: usize = 256 * 1024;

/// Sets a field of the metadata, or takes it away.
pub(crate) fn set(object: &mut Value, key: &str, value: Option<Value>) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    match value {
        Some(value) => drop(metadata.insert(key.into(), value)),
        None => drop(metadata.remove(key)),
    }
}

/// Text of a metadata field.
pub(crate) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"][key].as_str().unwrap_or_default()
}

/// Names of the finalizers.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether it is being deleted.
pub(crate) fn is_deleting(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some_and(|at| !at.is_null())
}

/// Whether a change leaves nothing to wait for: then the object goes instead.
pub(crate) fn is_due(old: &Value, new: &Value) -> bool {
    is_deleting(old)
        && finalizers(new).is_empty()
        && old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
}

/// Owners are named once.
pub(crate) fn dedup_owners(object: &mut Value) {
    let Some(owners) = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut) else {
        return;
    };
    let mut seen: Vec<Value> = Vec::with_capacity(owners.len());
    for owner in owners.drain(..) {
        if !seen.contains(&owner) {
            seen.push(owner);
        }
    }
    *owners = seen;
}

/// What an update cannot touch stays as it was.
pub(crate) fn settle(old: &Value, new: &mut Value) {
    let before = |key: &str| old["metadata"].get(key).cloned();
    if text(new, "uid").is_empty() {
        set(new, "uid", before("uid"));
    }
    set(new, "creationTimestamp", before("creationTimestamp"));
    if is_deleting(old) {
        set(new, "deletionTimestamp", before("deletionTimestamp"));
    }
    if before("deletionGracePeriodSeconds").is_some()
        && new["metadata"].get("deletionGracePeriodSeconds").is_none()
    {
        set(new, "deletionGracePeriodSeconds", before("deletionGracePeriodSeconds"));
    }
}

fn is_label(name: &str) -> bool {
    let edge =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = name.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}

pub(crate) fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

/// What is wrong with a DNS label.
pub(crate) fn label_problems(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 63 {
        problems.push("must be no more than 63 characters".to_owned());
    }
    if !is_label(name) {
        problems.push(if is_subdomain(name) { "must not contain dots".to_owned() } else { LABEL.to_owned() });
    }
    problems
}

pub(crate) fn subdomain_problems(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 253 {
        problems.push("must be no more than 253 characters".to_owned());
    }
    if !is_subdomain(name) {
        problems.push(SUBDOMAIN.to_owned());
    }
    problems
}

fn name_problems(kind: &Kind, name: &str, prefix: bool) -> Vec<String> {
    // A prefix may end in a dash: a suffix follows.
    let masked =
        if prefix && name.ends_with('-') { format!("{}a", &name[..name.len() - 1]) } else { name.to_owned() };
    if kind.group == "rbac.authorization.k8s.io" {
        let mut problems = Vec::new();
        if masked == "." || masked == ".." {
            problems.push(format!("may not be '{masked}'"));
        }
        problems.extend(
            ["/", "%"]
                .iter()
                .filter(|one| masked.contains(**one))
                .map(|one| format!("may not contain '{one}'")),
        );
        return problems;
    }
    if kind.is("Namespace") || kind.is("Service") {
        return label_problems(&masked);
    }
    subdomain_problems(&masked)
}

/// A label or annotation key.
pub(crate) fn key_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let (prefix, name) = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => (None, (*name).to_owned()),
        [prefix, name] => (Some((*prefix).to_owned()), (*name).to_owned()),
        _ => {
            problems.push("a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')".into());
            return problems;
        }
    };
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            problems.push("prefix part must be non-empty".to_owned());
        } else {
            problems.extend(
                subdomain_problems(&prefix).into_iter().map(|problem| format!("prefix part {problem}")),
            );
        }
    }
    if name.is_empty() {
        problems.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 characters".into());
    }
    if !is_word(&name) {
        problems.push(KEY.into());
    }
    problems
}

/// Letters, digits, and `-_.` inside.
fn is_word(name: &str) -> bool {
    let bytes = name.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// What is wrong with a map of labels.
pub(crate) fn label_causes(labels: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        causes.extend(
            key_problems(key).iter().map(|problem| Cause::invalid(path, &key.as_str().into(), problem)),
        );
        let problems = label_value_problems(value.as_str().unwrap_or_default());
        causes.extend(problems.iter().map(|problem| Cause::invalid(path, value, problem)));
    }
}

/// What is wrong with the value of a label.
pub(crate) fn label_value_problems(value: &str) -> Vec<&'static str> {
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push("must be no more than 63 characters");
    }
    if !value.is_empty() && !is_word(value) {
        problems.push(LABEL_VALUE);
    }
    problems
}

/// What is wrong with the metadata of an object.
pub(crate) fn causes(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let metadata = &object["metadata"];
    let generate = text(object, "generateName");
    if !generate.is_empty() {
        let problems = name_problems(kind, generate, true);
        causes.extend(
            problems
                .iter()
                .map(|problem| Cause::invalid("metadata.generateName", &metadata["generateName"], problem)),
        );
    }
    if text(object, "name").is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        let problems = name_problems(kind, text(object, "name"), false);
        causes.extend(
            problems.iter().map(|problem| Cause::invalid("metadata.name", &metadata["name"], problem)),
        );
    }
    label_causes(&metadata["labels"], "metadata.labels", &mut causes);
    let mut size = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        let problems = key_problems(&key.to_lowercase());
        causes.extend(
            problems
                .iter()
                .map(|problem| Cause::invalid("metadata.annotations", &key.as_str().into(), problem)),
        );
    }
    if size > MOST_ANNOTATION_BYTES {
        causes.push(Cause::too_long("metadata.annotations", MOST_ANNOTATION_BYTES as u64));
    }
    owner_causes(metadata, &mut causes);
    for (index, finalizer) in finalizers(object).into_iter().enumerate() {
        let problems = key_problems(finalizer);
        let path = format!("metadata.finalizers[{index}]");
        causes.extend(
            problems.iter().map(|problem| Cause::invalid("metadata.finalizers", &finalizer.into(), problem)),
        );
        if !finalizer.contains('/') && !matches!(finalizer, "orphan" | "foregroundDeletion" | "kubernetes") {
            causes.push(Cause::invalid(
                path,
                &finalizer.into(),
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    causes
}

fn owner_causes(metadata: &Value, causes: &mut Vec<Cause>) {
    let mut controller: Option<&Value> = None;
    for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
        let path = "metadata.ownerReferences";
        let empty = |key: &str| owner[key].as_str().is_none_or(str::is_empty);
        for (key, detail) in
            [("kind", "must not be empty"), ("name", "must not be empty"), ("uid", "must not be empty")]
        {
            if empty(key) {
                causes.push(Cause::invalid(
                    format!("{path}.{key}"),
                    &owner.get(key).cloned().unwrap_or_else(|| "".into()),
                    detail,
                ));
            }
        }
        if empty("apiVersion") {
            causes.push(Cause::invalid(
                format!("{path}.apiVersion"),
                &"".into(),
                "version must not be empty",
            ));
        }
        if owner["controller"] == true {
            if let Some(first) = controller {
                let shown = |owner: &Value| {
                    format!(
                        "{}/{}",
                        owner["kind"].as_str().unwrap_or_default(),
                        owner["name"].as_str().unwrap_or_default()
                    )
                };
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
                    shown(first),
                    shown(owner)
                );
                causes.push(Cause::invalid(
                    "metadata.ownerReferences",
                    &metadata["ownerReferences"],
                    &detail,
                ));
            } else {
                controller = Some(owner);
            }
        }
    }
}

/// What an update may not do to the metadata.
pub(crate) fn update_causes(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if is_deleting(old) {
        let before = finalizers(old);
        let added: Vec<_> = finalizers(new).into_iter().filter(|one| !before.contains(one)).collect();
        if !added.is_empty() {
            let list: Vec<_> = added.iter().map(|one| format!("{one:?}")).collect();
            causes.push(Cause::forbidden(
                "metadata.finalizers",
                &format!("no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}", list.join(", ")),
            ));
        }
    }
    for key in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        let (before, after) = (old["metadata"].get(key), new["metadata"].get(key));
        if before != after {
            let shown = after.cloned().unwrap_or_else(|| {
                if key == "deletionGracePeriodSeconds" || key == "deletionTimestamp" {
                    json!(null)
                } else {
                    "".into()
                }
            });
            causes.push(Cause::invalid(format!("metadata.{key}"), &shown, "field is immutable"));
        }
    }
    causes
}

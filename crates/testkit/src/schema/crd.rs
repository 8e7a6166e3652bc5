//! Custom resources: what their definition makes of an object.
//!
//! Deliberately absent: conversion, webhooks, several versions, and whether a definition is a good one.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::cel::{self, Rule};
use super::decode::{self, Notes};
use super::{Field, ListKind, Node, Scalar, Schema, Shape, Type};
use crate::fields::Set;
use crate::kinds::Kind;
use crate::kinds::defaults::or_text;
use crate::status::Cause;

/// What a schema demands of a value beyond its shape.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    kind: String,
    int_or_string: bool,
    nullable: bool,
    format: String,
    required: Vec<String>,
    options: Vec<Value>,
    pattern: Option<String>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    min_items: Option<u64>,
    max_items: Option<u64>,
    rules: Vec<Rule>,
}

/// Schemas that were seen before: thousands of servers are made, of few definitions.
static COMPILED: Mutex<Vec<(Value, Arc<Schema>)>> = Mutex::new(Vec::new());

fn compiled(source: &Value) -> Arc<Schema> {
    let known = COMPILED.lock().iter().find(|(known, _)| known == source).map(|(_, schema)| schema.clone());
    known.unwrap_or_else(|| {
        let schema = Arc::new(compile(source));
        COMPILED.lock().push((source.clone(), schema.clone()));
        schema
    })
}

/// What a definition adds to what is served.
pub(crate) fn kind(definition: &Value) -> Option<Kind> {
    let spec = &definition["spec"];
    let version = spec["versions"].as_array()?.iter().find(|version| version["served"] == true)?;
    let source = &version["schema"]["openAPIV3Schema"];
    let schema = compiled(source);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names = &spec["names"];
    let with_status = version["subresources"].get("status").is_some();
    let list = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    Some(Kind {
        id: 0,
        group: text(&spec["group"]),
        version: text(&version["name"]),
        kind: text(&names["kind"]),
        plural: text(&names["plural"]),
        singular: text(&names["singular"]),
        short_names: list(&names["shortNames"]),
        namespaced: spec["scope"] == "Namespaced",
        subresources: if with_status { vec!["status".into()] } else { Vec::new() },
        generation: true,
        unconditional: false,
        upsert: false,
        returns_deleted: false,
        selectable: version["selectableFields"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|field| text(&field["jsonPath"]).trim_start_matches('.').to_owned())
            .collect(),
        ignored: if with_status { Set::of(&["status"]) } else { Set::default() },
        ignored_by_status: Set::of(&["metadata", "spec"]),
        custom: Some(schema),
    })
}

fn compile(source: &Value) -> Schema {
    let mut schema = Schema::default();
    let meta = schema.import("meta.v1.ObjectMeta");
    let root = add(&mut schema, source);
    // Every object has these, whatever its schema says.
    let text = schema.add(Node { shape: Shape::Scalar(Scalar::String), ..Node::default() });
    if let Shape::Struct { fields, .. } = &mut schema.nodes[root as usize].shape {
        for (name, node) in [("apiVersion", text), ("kind", text), ("metadata", meta)] {
            fields.insert(name.into(), Field { node, pointer: true, ..Field::default() });
        }
    }
    schema.name_root("root", root);
    schema
}

fn add(schema: &mut Schema, source: &Value) -> u32 {
    let text = |key: &str| source[key].as_str().unwrap_or_default().to_owned();
    let number = |key: &str| source[key].as_u64().or_else(|| source[key].as_f64().map(|float| float as u64));
    let atomic = source["x-kubernetes-map-type"] == "atomic";
    let int_or_string = source["x-kubernetes-int-or-string"] == true;
    let preserve = source["x-kubernetes-preserve-unknown-fields"] == true;
    let shape = match source["type"].as_str() {
        _ if int_or_string => Shape::Scalar(Scalar::IntOrString),
        Some("object") => match (source["properties"].as_object(), &source["additionalProperties"]) {
            (Some(properties), _) => {
                let fields = properties.iter().map(|(name, property)| {
                    let field = Field {
                        node: add(schema, property),
                        pointer: true,
                        default: property.get("default").cloned(),
                        ..Field::default()
                    };
                    (name.clone(), field)
                });
                Shape::Struct { fields: fields.collect(), always: Vec::new(), atomic, open: preserve }
            }
            (None, values @ Value::Object(_)) => Shape::Map { values: add(schema, values), atomic },
            (None, _) => Shape::Struct { fields: BTreeMap::new(), always: Vec::new(), atomic, open: preserve || source["additionalProperties"] == true },
        },
        Some("array") => {
            let items = add(schema, &source["items"]);
            let kind = match source["x-kubernetes-list-type"].as_str() {
                Some("map") => ListKind::Map(
                    source["x-kubernetes-list-map-keys"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(|key| key.as_str().map(str::to_owned))
                        .collect(),
                ),
                Some("set") => ListKind::Set,
                _ => ListKind::Atomic,
            };
            Shape::List { items, kind, merge_key: None, merge: false }
        }
        Some("string") => Shape::Scalar(Scalar::String),
        Some("boolean") => Shape::Scalar(Scalar::Bool),
        Some("integer") => Shape::Scalar(Scalar::Int64),
        Some("number") => Shape::Scalar(Scalar::Float),
        _ => Shape::Any,
    };
    let rules = Rules {
        kind: text("type"),
        int_or_string,
        nullable: source["nullable"] == true,
        format: text("format"),
        required: source["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect(),
        options: source["enum"].as_array().cloned().unwrap_or_default(),
        pattern: source["pattern"].as_str().map(str::to_owned),
        minimum: source["minimum"].as_f64(),
        maximum: source["maximum"].as_f64(),
        min_length: number("minLength"),
        max_length: number("maxLength"),
        min_items: number("minItems"),
        max_items: number("maxItems"),
        rules: source["x-kubernetes-validations"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Rule::compile)
            .collect(),
    };
    schema.add(Node { shape, name: String::new(), rules: Some(Box::new(rules)) })
}

/// Prunes and defaults an object.
pub(crate) fn decode(schema: &Schema, object: &mut Value, unknown: &mut Vec<String>) -> Result<(), String> {
    let Some(root) = schema.root("root") else { return Ok(()) };
    let mut metadata = object["metadata"].take();
    if let Some(meta) = super::object_meta() {
        let mut notes = Notes::default();
        decode::decode(meta, &mut metadata, &mut notes)?;
        unknown.extend(
            notes.unknown.iter().map(|note| note.replace("unknown field \"", "unknown field \"metadata.")),
        );
    }
    prune(root, object, &mut String::new(), unknown);
    object["metadata"] = metadata;
    Ok(())
}

fn prune(ty: Type<'_>, value: &mut Value, path: &mut String, unknown: &mut Vec<String>) {
    let length = path.len();
    match (&ty.node().shape, value) {
        (Shape::Struct { fields, open, .. }, Value::Object(map)) => {
            if !open {
                map.retain(|key, _| {
                    let known = fields.contains_key(key);
                    if !known {
                        let dot = if path.is_empty() { "" } else { "." };
                        unknown.push(format!("unknown field \"{path}{dot}{key}\""));
                    }
                    known
                });
            }
            for (name, field) in fields {
                let child = ty.at(field.node);
                let nullable = child.node().rules.as_ref().is_none_or(|rules| rules.nullable);
                if map.get(name).is_some_and(Value::is_null) && !nullable {
                    map.remove(name);
                }
                if let Some(default) = &field.default
                    && !map.contains_key(name)
                {
                    map.insert(name.clone(), default.clone());
                }
                if let Some(value) = map.get_mut(name) {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(name);
                    prune(child, value, path, unknown);
                    path.truncate(length);
                }
            }
        }
        (Shape::Map { values, .. }, Value::Object(map)) => {
            for (key, value) in map.iter_mut() {
                path.push('.');
                path.push_str(key);
                prune(ty.at(*values), value, path, unknown);
                path.truncate(length);
            }
        }
        (Shape::List { items, .. }, Value::Array(list)) => {
            for (index, value) in list.iter_mut().enumerate() {
                path.push_str(&format!("[{index}]"));
                prune(ty.at(*items), value, path, unknown);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// What is wrong with an object, given what it was.
pub(crate) fn validate(schema: &Schema, old: Option<&Value>, object: &Value) -> Vec<Cause> {
    let Some(root) = schema.root("root") else { return Vec::new() };
    let mut causes = Vec::new();
    check(root, old, object, "", &mut causes);
    let blocking = |cause: &Cause| {
        matches!(cause.reason, "FieldValueNotSupported" | "FieldValueRequired" | "FieldValueTooLong" | "FieldValueTooMany" | "FieldValueTypeInvalid")
    };
    duplicates(root, object, "", &mut causes);
    if causes.iter().any(blocking) {
        causes.push(Cause::invalid(
            "<nil>",
            &Value::Null,
            "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
        ));
    } else {
        rules(root, &cel::context(), old, object, "", &mut causes);
    }
    causes
}

fn child_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The item of an old list that a new item continues.
fn counterpart<'a>(kind: &ListKind, old: Option<&'a Value>, item: &Value) -> Option<&'a Value> {
    let ListKind::Map(keys) = kind else { return None };
    old?.as_array()?.iter().find(|one| keys.iter().all(|key| one.get(key) == item.get(key)))
}

fn check(ty: Type<'_>, old: Option<&Value>, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    // What did not change was accepted before.
    if old == Some(value) {
        return;
    }
    let node = ty.node();
    let Some(rules) = &node.rules else { return };
    if value.is_null() && rules.nullable {
        return;
    }
    if !fits(rules, value, path, causes) {
        return;
    }
    bounds(rules, value, path, causes);
    match (&node.shape, value) {
        (Shape::Struct { fields, .. }, Value::Object(map)) => {
            for name in rules.required.iter().filter(|name| !map.contains_key(*name)) {
                causes.push(Cause::required(child_path(path, name), ""));
            }
            for (name, value) in map {
                if let Some(field) = fields.get(name) {
                    check(
                        ty.at(field.node),
                        old.and_then(|old| old.get(name)),
                        value,
                        &child_path(path, name),
                        causes,
                    );
                }
            }
        }
        (Shape::Map { values, .. }, Value::Object(map)) => {
            for (name, value) in map {
                check(
                    ty.at(*values),
                    old.and_then(|old| old.get(name)),
                    value,
                    &child_path(path, name),
                    causes,
                );
            }
        }
        (Shape::List { items, kind, .. }, Value::Array(list)) => {
            for (index, item) in list.iter().enumerate() {
                check(ty.at(*items), counterpart(kind, old, item), item, &format!("{path}[{index}]"), causes);
            }
        }
        _ => {}
    }
}

/// Whether a value is of the right type; says so if not.
fn fits(rules: &Rules, value: &Value, path: &str, causes: &mut Vec<Cause>) -> bool {
    let found = type_name(value);
    let whole = value.as_f64().is_some_and(|float| float.fract() == 0.0);
    let wanted = if rules.int_or_string { "integer,string" } else { rules.kind.as_str() };
    let fine = match wanted {
        "" => true,
        "integer,string" => found == "integer" || found == "string",
        "integer" => {
            if found == "number" && !whole {
                let format = if rules.format.is_empty() { "integer" } else { &rules.format };
                causes.push(Cause::type_invalid(
                    path,
                    &"float64".into(),
                    &format!("{path} in body must be of type {format}: \"float64\""),
                ));
                if !rules.format.is_empty() {
                    causes.push(Cause::invalid(
                        "<nil>",
                        &"".into(),
                        &format!("Checked value must be of type integer with format {format} in {path}"),
                    ));
                }
                return false;
            }
            found == "integer" || found == "number"
        }
        "number" => found == "integer" || found == "number",
        other => found == other,
    };
    if !fine {
        causes.push(Cause::type_invalid(
            path,
            &found.into(),
            &format!("{path} in body must be of type {wanted}: {found:?}"),
        ));
    }
    fine
}

fn bounds(rules: &Rules, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut say =
        |detail: String| causes.push(Cause::invalid(path, value, &format!("{path} in body {detail}")));
    if let Value::Number(number) = value {
        let number = number.as_f64().unwrap_or_default();
        if let Some(least) = rules.minimum.filter(|least| number < *least) {
            say(format!("should be greater than or equal to {least}"));
        }
        if let Some(most) = rules.maximum.filter(|most| number > *most) {
            say(format!("should be less than or equal to {most}"));
        }
    }
    if let Value::String(text) = value {
        let length = text.chars().count() as u64;
        if let Some(most) = rules.max_length.filter(|most| length > *most) {
            causes.push(Cause::too_long(path, most));
        } else if let Some(least) = rules.min_length.filter(|least| length < *least) {
            say(format!("should be at least {least} chars long"));
        } else if let Some(pattern) =
            rules.pattern.as_ref().filter(|pattern| cel::is_match(pattern, text) == Some(false))
        {
            say(format!("should match '{pattern}'"));
        }
        if rules.format == "date-time" && text.parse::<jiff::Timestamp>().is_err() {
            causes.push(Cause::type_invalid(
                path,
                value,
                &format!("{path} in body must be of type date-time: {text:?}"),
            ));
        }
    }
    if let Value::Array(items) = value {
        let count = items.len() as u64;
        if let Some(most) = rules.max_items.filter(|most| count > *most) {
            causes.push(Cause::too_many(path, items.len(), most));
        } else if let Some(least) = rules.min_items.filter(|least| count < *least) {
            causes.push(Cause::invalid(
                path,
                &count.into(),
                &format!("{path} in body should have at least {least} items"),
            ));
        }
    }
    if !rules.options.is_empty() && !rules.options.contains(value) {
        let options: Vec<_> = rules
            .options
            .iter()
            .map(|option| option.as_str().map_or_else(|| option.to_string(), str::to_owned))
            .collect();
        causes.push(Cause::unsupported(path, value, &options.iter().map(String::as_str).collect::<Vec<_>>()));
    }
}

/// Items of a list that have the same keys.
fn duplicates(ty: Type<'_>, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    match (&ty.node().shape, value) {
        (Shape::Struct { .. } | Shape::Map { .. }, Value::Object(map)) => {
            for (name, value) in map.iter().filter(|(name, _)| !path.is_empty() || *name != "metadata") {
                if let Some(child) = ty.child(name) {
                    duplicates(child, value, &child_path(path, name), causes);
                }
            }
        }
        (Shape::List { items, kind, .. }, Value::Array(list)) => {
            let mut seen: Vec<Value> = Vec::new();
            for (index, item) in list.iter().enumerate() {
                let id = match kind {
                    ListKind::Atomic => None,
                    ListKind::Set => Some(item.clone()),
                    ListKind::Map(keys) => Some(
                        keys.iter()
                            .filter_map(|key| Some((key.clone(), item.get(key)?.clone())))
                            .collect::<Map<_, _>>()
                            .into(),
                    ),
                };
                if let Some(id) = id {
                    if seen.contains(&id) {
                        causes.push(Cause::duplicate(format!("{path}[{index}]"), &id));
                    } else {
                        seen.push(id);
                    }
                }
                duplicates(ty.at(*items), item, &format!("{path}[{index}]"), causes);
            }
        }
        _ => {}
    }
}

/// The rules of every value that has some.
fn rules(
    ty: Type<'_>,
    context: &::cel::Context<'_, '_>,
    old: Option<&Value>,
    value: &Value,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    if old == Some(value) {
        return;
    }
    let node = ty.node();
    let own = node.rules.as_ref().map_or(&[][..], |rules| rules.rules.as_slice());
    if value.is_null() {
        return;
    }
    for rule in own {
        if rule.is_transition && old.is_none() {
            continue;
        }
        let place = if path.is_empty() { "<nil>" } else { path };
        match rule.holds(context, value, old) {
            Ok(true) => {}
            Ok(false) if value.is_object() || value.is_array() => {
                causes.push(Cause::omitted(place, &rule.message))
            }
            Ok(false) => causes.push(Cause::invalid(place, value, &rule.message)),
            Err(problem) => {
                let detail = format!("{problem} evaluating rule: {}", rule.message);
                causes.push(Cause::invalid(place, &type_name(value).into(), &detail));
            }
        }
    }
    match (&node.shape, value) {
        (Shape::Struct { .. } | Shape::Map { .. }, Value::Object(map)) => {
            for (name, value) in map.iter().filter(|(name, _)| !path.is_empty() || *name != "metadata") {
                if let Some(child) = ty.child(name) {
                    rules(
                        child,
                        context,
                        old.and_then(|old| old.get(name)),
                        value,
                        &child_path(path, name),
                        causes,
                    );
                }
            }
        }
        (Shape::List { items, kind, .. }, Value::Array(list)) => {
            for (index, item) in list.iter().enumerate() {
                rules(
                    ty.at(*items),
                    context,
                    counterpart(kind, old, item),
                    item,
                    &format!("{path}[{index}]"),
                    causes,
                );
            }
        }
        _ => {}
    }
}

/// A new definition: established at once.
pub(crate) fn prepare(object: &mut Value, now: &str) {
    object["status"] = json!({"conditions": [], "acceptedNames": {}, "storedVersions": []});
    settle(object, now);
}

/// What the server says about a definition.
pub(crate) fn settle(object: &mut Value, now: &str) {
    let spec = object["spec"].clone();
    let status = &mut object["status"];
    status["acceptedNames"] = spec["names"].clone();
    let stored = spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone());
    status["storedVersions"] = stored.collect::<Vec<_>>().into();
    if status["conditions"].as_array().is_none_or(Vec::is_empty) {
        status["conditions"] = json!([
            {"type": "NamesAccepted", "status": "True", "lastTransitionTime": now, "reason": "NoConflicts", "message": "no conflicts found"},
            {"type": "Established", "status": "True", "lastTransitionTime": now, "reason": "InitialNamesAccepted", "message": "the initial names have been accepted"},
        ]);
    }
    or_text(&mut status["acceptedNames"], "singular", "");
}

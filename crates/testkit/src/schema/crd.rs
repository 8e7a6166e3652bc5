//! Custom resources: what their definition makes of an object.
//!
//! Deliberately absent: conversion, webhooks, several versions, and whether a definition is a good one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::cel::Rule;
use super::decode::{self, Notes};
use super::validate::Rules;
use super::{Field, ListKind, Node, Scalar, Schema, Shape, Type};
use crate::fields::Set;
use crate::kinds::Kind;
use crate::kinds::defaults::or_text;

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
        categories: list(&names["categories"]),
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
    let number = |key: &str| {
        source[key]
            .as_u64()
            .or_else(|| source[key].as_f64().and_then(|float| format!("{float}").parse().ok()))
    };
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
            (None, _) => Shape::Struct {
                fields: BTreeMap::new(),
                always: Vec::new(),
                atomic,
                open: preserve || source["additionalProperties"] == true,
            },
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
        expressions: source["x-kubernetes-validations"]
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
                let _ = write!(path, "[{index}]");
                prune(ty.at(*items), value, path, unknown);
                path.truncate(length);
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

//! What reading JSON into Go types and writing it back does to an object.
//!
//! Unknown fields go, zero values go unless the type keeps them, quantities and times are rewritten, and
//! a value of the wrong type is refused in the words of Go's decoder.
//!
//! Deliberately absent: defaults that depend on more than one field ([`crate::kinds`]), and the
//! validation of custom resources ([`super::crd`]).

use std::fmt::Write as _;

use kubeocean_model::quantity::Quantity;
use serde_json::{Map, Value, json};

use super::{Scalar, Shape, Type};

/// What was found on the way.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Fields that no type has, in the words of a strict decoder.
    pub(crate) unknown: Vec<String>,
    path: String,
    /// Without indices, as Go's decoder names places.
    fields: Vec<String>,
}

/// Decodes in place.
pub(crate) fn decode(ty: Type<'_>, value: &mut Value, notes: &mut Notes) -> Result<(), String> {
    walk(ty, value, notes, "")
}

fn walk(ty: Type<'_>, value: &mut Value, notes: &mut Notes, owner: &str) -> Result<(), String> {
    let node = ty.node();
    match &node.shape {
        Shape::Any => Ok(()),
        Shape::Scalar(scalar) => leaf(*scalar, value).map_err(|problem| match problem {
            Wrong::Type(wanted) => mismatch(value, wanted, notes, owner),
            Wrong::Content(message) => message,
        }),
        Shape::List { items, .. } => {
            let item_type = ty.at(*items);
            let Value::Array(list) = value else {
                return if value.is_null() {
                    Ok(())
                } else {
                    Err(mismatch(value, &go_type(ty), notes, owner))
                };
            };
            for (index, item) in list.iter_mut().enumerate() {
                let length = notes.path.len();
                let _ = write!(notes.path, "[{index}]");
                if item.is_null() {
                    *item = empty(item_type);
                }
                walk(item_type, item, notes, owner)?;
                notes.path.truncate(length);
            }
            Ok(())
        }
        Shape::Map { values, .. } => {
            let value_type = ty.at(*values);
            let Value::Object(map) = value else {
                return if value.is_null() {
                    Ok(())
                } else {
                    Err(mismatch(value, &go_type(ty), notes, owner))
                };
            };
            for (key, item) in map.iter_mut() {
                // Go's decoder does not name the key.
                let length = notes.path.len();
                notes.path.push('.');
                notes.path.push_str(key);
                if item.is_null() {
                    *item = empty(value_type);
                }
                walk(value_type, item, notes, owner)?;
                notes.path.truncate(length);
            }
            Ok(())
        }
        Shape::Struct { fields, open, always, .. } => {
            let Value::Object(map) = value else {
                if value.is_null() {
                    *value = json!({});
                    return walk(ty, value, notes, owner);
                }
                return Err(mismatch(value, &format!("v1.{}", node.name), notes, owner));
            };
            let mut problem = None;
            map.retain(|name, value| {
                if problem.is_some() {
                    return true;
                }
                let Some(field) = fields.get(name) else {
                    if !open {
                        let dot = if notes.path.is_empty() { "" } else { "." };
                        notes.unknown.push(format!("unknown field \"{}{dot}{name}\"", notes.path));
                    }
                    return *open;
                };
                match present(ty.at(field.node), field, name, value, notes, &node.name) {
                    Ok(stays) => stays,
                    Err(message) => {
                        problem = Some(message);
                        true
                    }
                }
            });
            if let Some(problem) = problem {
                return Err(problem);
            }
            for name in always {
                if let Some(field) = fields.get(name)
                    && !map.contains_key(name)
                {
                    let child = ty.at(field.node);
                    let mut value = match &field.default {
                        Some(default) => default.clone(),
                        None if field.pointer => Value::Null,
                        None => empty(child),
                    };
                    if value.is_object() {
                        walk(child, &mut value, notes, &node.name)?;
                    }
                    map.insert(name.clone(), value);
                }
            }
            Ok(())
        }
    }
}

/// Decodes a field that is there; whether it stays.
fn present(
    ty: Type<'_>,
    field: &super::Field,
    name: &str,
    value: &mut Value,
    notes: &mut Notes,
    owner: &str,
) -> Result<bool, String> {
    if !value.is_null() {
        let length = enter(notes, name);
        walk(ty, value, notes, owner)?;
        leave(notes, length);
    }
    // An empty list of owners of fields asks for none of them.
    let reset = name == "managedFields" && value.is_array();
    let empty_here = value.is_null() || !field.pointer && !reset && is_zero(ty, value);
    if empty_here && let Some(default) = &field.default {
        *value = default.clone();
    } else if empty_here && !field.keep {
        return Ok(false);
    } else if value.is_null() && !field.pointer {
        *value = empty(ty);
    }
    Ok(true)
}

/// Empty lists and maps that are always written become null on their way through etcd.
pub(crate) fn store_form(ty: Type<'_>, value: &mut Value) {
    match (&ty.node().shape, value) {
        (Shape::Struct { fields, .. }, Value::Object(map)) => {
            for (name, value) in map.iter_mut() {
                let Some(field) = fields.get(name) else { continue };
                let empty = match &*value {
                    Value::Array(items) => items.is_empty(),
                    Value::Object(map) => {
                        map.is_empty() && matches!(ty.at(field.node).node().shape, Shape::Map { .. })
                    }
                    _ => continue,
                };
                if empty && field.keep && !field.pointer {
                    *value = Value::Null;
                } else if !empty {
                    store_form(ty.at(field.node), value);
                }
            }
        }
        (Shape::List { items, .. }, Value::Array(list)) => {
            let item = ty.at(*items);
            if matches!(item.node().shape, Shape::Struct { .. }) {
                for value in list {
                    store_form(item, value);
                }
            }
        }
        _ => {}
    }
}

fn enter(notes: &mut Notes, name: &str) -> usize {
    let length = notes.path.len();
    if length > 0 {
        notes.path.push('.');
    }
    notes.path.push_str(name);
    notes.fields.push(name.to_owned());
    length
}

fn leave(notes: &mut Notes, length: usize) {
    notes.path.truncate(length);
    notes.fields.pop();
}

/// Whether `omitempty` would leave it out.
fn is_zero(ty: Type<'_>, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(yes) => !yes,
        Value::Number(number) => {
            !matches!(ty.node().shape, Shape::Scalar(Scalar::IntOrString)) && number.as_f64() == Some(0.0)
        }
        Value::String(text) => {
            text.is_empty() && !matches!(ty.node().shape, Shape::Scalar(Scalar::IntOrString))
        }
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => {
            map.is_empty() && matches!(ty.node().shape, Shape::Map { .. } | Shape::Struct { .. })
        }
    }
}

/// What Go writes for the zero value of a type.
pub(crate) fn empty(ty: Type<'_>) -> Value {
    match &ty.node().shape {
        Shape::Any | Shape::List { .. } | Shape::Map { .. } => Value::Null,
        Shape::Scalar(scalar) => match scalar {
            Scalar::String => "".into(),
            Scalar::Bool => false.into(),
            Scalar::Int32 | Scalar::Int64 | Scalar::Float | Scalar::IntOrString => 0.into(),
            Scalar::Quantity => "0".into(),
            Scalar::Time | Scalar::MicroTime | Scalar::Bytes => Value::Null,
        },
        Shape::Struct { fields, always, .. } => {
            let kept =
                always.iter().filter_map(|name| fields.get_key_value(name)).filter(|(_, field)| field.keep);
            let of =
                |field: &super::Field| if field.pointer { Value::Null } else { empty(ty.at(field.node)) };
            Value::Object(kept.map(|(name, field)| (name.clone(), of(field))).collect::<Map<_, _>>())
        }
    }
}

enum Wrong {
    Type(&'static str),
    Content(String),
}

fn leaf(scalar: Scalar, value: &mut Value) -> Result<(), Wrong> {
    let wrong = |wanted| Err(Wrong::Type(wanted));
    match (scalar, &*value) {
        (_, Value::Null)
        | (Scalar::String | Scalar::IntOrString, Value::String(_))
        | (Scalar::Bool, Value::Bool(_))
        | (Scalar::Float, Value::Number(_)) => Ok(()),
        (Scalar::Int32 | Scalar::IntOrString, Value::Number(number)) => match number.as_i64() {
            Some(number) if i32::try_from(number).is_ok() => Ok(()),
            _ => wrong("int32"),
        },
        (Scalar::Int64, Value::Number(number)) => {
            if number.is_i64() {
                Ok(())
            } else {
                wrong("int64")
            }
        }
        (Scalar::Quantity, Value::String(_) | Value::Number(_)) => {
            let text = match &*value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let Ok(stored) = Quantity::as_stored(&text) else {
                let message = if text.is_empty() {
                    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                } else if text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
                    && !text.contains(' ')
                {
                    "unable to parse quantity's suffix"
                } else {
                    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                };
                return Err(Wrong::Content(message.into()));
            };
            *value = stored.into();
            Ok(())
        }
        (Scalar::Time | Scalar::MicroTime, Value::String(text)) => {
            let at = super::time::parse(text, scalar == Scalar::MicroTime).map_err(Wrong::Content)?;
            let format = if scalar == Scalar::Time { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S.%6fZ" };
            *value = at.strftime(format).to_string().into();
            Ok(())
        }
        (Scalar::Bytes, Value::String(text)) => {
            let ok = text.len() % 4 == 0
                && text
                    .trim_end_matches('=')
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
                && text.len() - text.trim_end_matches('=').len() <= 2;
            let at = text
                .bytes()
                .position(|b| !(b.is_ascii_alphanumeric() || b"+/=".contains(&b)))
                .unwrap_or(text.len() / 4 * 4);
            if ok { Ok(()) } else { Err(Wrong::Content(format!("illegal base64 data at input byte {at}"))) }
        }
        (Scalar::String | Scalar::Time | Scalar::MicroTime, _) => wrong("string"),
        (Scalar::Bool, _) => wrong("bool"),
        (Scalar::Float, _) => wrong("float64"),
        (Scalar::Int32 | Scalar::IntOrString, _) => wrong("int32"),
        (Scalar::Int64, _) => wrong("int64"),
        (Scalar::Bytes, _) => wrong("[]uint8"),
        (Scalar::Quantity, _) => Err(Wrong::Content(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                .into(),
        )),
    }
}

fn go_type(ty: Type<'_>) -> String {
    match &ty.node().shape {
        Shape::List { items, .. } => format!("[]{}", go_type(ty.at(*items))),
        Shape::Map { values, .. } => format!("map[string]{}", go_type(ty.at(*values))),
        Shape::Struct { .. } => format!("v1.{}", ty.node().name),
        Shape::Scalar(Scalar::Bool) => "bool".into(),
        Shape::Scalar(Scalar::Int32) => "int32".into(),
        Shape::Scalar(Scalar::Int64) => "int64".into(),
        Shape::Scalar(Scalar::Quantity) => "resource.Quantity".into(),
        _ => "string".into(),
    }
}

fn mismatch(value: &Value, wanted: &str, notes: &Notes, owner: &str) -> String {
    let found = match value {
        Value::Bool(_) => "bool".to_owned(),
        // Go's decoder names a number that does not fit.
        Value::Number(number) if wanted.starts_with("int") => format!("number {number}"),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Array(_) => "array".into(),
        _ => "object".into(),
    };
    if notes.fields.is_empty() {
        return format!("json: cannot unmarshal {found} into Go value of type {wanted}");
    }
    format!(
        "json: cannot unmarshal {found} into Go struct field {owner}.{} of type {wanted}",
        notes.fields.join(".")
    )
}

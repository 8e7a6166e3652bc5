//! What is wrong with a custom resource: types, bounds, duplicates and rules, in the server's words.
//!
//! What did not change was accepted once and is not looked at again.
//!
//! Deliberately absent: built-in kinds; see [`crate::kinds::validation`].

use serde_json::{Map, Value};

use super::cel::{self, Rule};
use super::{ListKind, Schema, Shape, Type};
use crate::status::Cause;

/// What a schema demands of a value beyond its shape.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) kind: String,
    pub(crate) int_or_string: bool,
    pub(crate) nullable: bool,
    pub(crate) format: String,
    pub(crate) required: Vec<String>,
    pub(crate) options: Vec<Value>,
    pub(crate) pattern: Option<String>,
    pub(crate) minimum: Option<f64>,
    pub(crate) maximum: Option<f64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) expressions: Vec<Rule>,
}

/// What is wrong with an object, given what it was.
pub(crate) fn validate(schema: &Schema, old: Option<&Value>, object: &Value) -> Vec<Cause> {
    let Some(root) = schema.root("root") else { return Vec::new() };
    let mut causes = Vec::new();
    check(root, old, object, "", &mut causes);
    let blocking = |cause: &Cause| {
        matches!(
            cause.reason,
            "FieldValueNotSupported"
                | "FieldValueRequired"
                | "FieldValueTooLong"
                | "FieldValueTooMany"
                | "FieldValueTypeInvalid"
        )
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
    let own = node.rules.as_ref().map_or(&[][..], |rules| rules.expressions.as_slice());
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
                causes.push(Cause::omitted(place, &rule.message));
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

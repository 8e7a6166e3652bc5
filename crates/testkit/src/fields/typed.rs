//! Objects under a schema: which fields they have, how two of them differ, how one is merged into
//! another, and what is left when fields are taken away.
//!
//! Deliberately absent: owners. See [`super::managers`].

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Set;
use crate::schema::{ListKind, Shape, Type, decode};

/// How one object differs from another.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) removed: Set,
    pub(crate) modified: Set,
    pub(crate) added: Set,
}

impl Comparison {
    pub(crate) fn without(self, ignored: &Set) -> Self {
        if ignored.is_empty() {
            return self;
        }
        Self {
            removed: self.removed.without_trees(ignored),
            modified: self.modified.without_trees(ignored),
            added: self.added.without_trees(ignored),
        }
    }

    pub(crate) fn is_same(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }
}

/// How a value is looked at: in one piece, or by its parts.
enum View<'a> {
    Leaf,
    Fields(Type<'a>),
    Items(Type<'a>, &'a ListKind),
}

fn view(ty: Option<Type<'_>>) -> View<'_> {
    let Some(ty) = ty else { return View::Leaf };
    match &ty.node().shape {
        Shape::Struct { atomic: false, .. } | Shape::Map { atomic: false, .. } => View::Fields(ty),
        Shape::List { items, kind: kind @ (ListKind::Set | ListKind::Map(_)), .. } => {
            View::Items(ty.at(*items), kind)
        }
        _ => View::Leaf,
    }
}

/// An item of a list, as a path element.
fn element(item_type: Type<'_>, kind: &ListKind, item: &Value) -> Result<String, String> {
    match kind {
        ListKind::Map(keys) => {
            let Value::Object(item) = item else {
                return Err("associative list with keys may not have non-map elements".into());
            };
            let mut found = Map::new();
            for key in keys {
                // A key that is always written counts as empty where it is missing.
                let value = item.get(key).cloned().or_else(|| {
                    let field = item_type.field(key)?;
                    field.default.clone().or_else(|| {
                        (field.keep && !field.pointer).then(|| decode::empty(item_type.at(field.node)))
                    })
                });
                if let Some(value) = value {
                    found.insert(key.clone(), value);
                }
            }
            if found.is_empty() {
                let keys: Vec<_> = keys.iter().map(|key| format!("{key:?}")).collect();
                return Err(format!(
                    "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                    keys.join(" ")
                ));
            }
            Ok(format!("k:{}", Value::Object(found)))
        }
        _ => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".into()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".into()),
            other => Ok(format!("v:{other}")),
        },
    }
}

fn elements<'v>(item_type: Type<'_>, kind: &ListKind, list: Option<&'v Value>) -> Vec<(String, &'v Value)> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| element(item_type, kind, item).ok().map(|element| (element, item))).collect()
}

/// Refuses what cannot be told apart: an item twice, or one without its keys.
pub(crate) fn check(ty: Option<Type<'_>>, value: &Value, path: &str) -> Result<(), String> {
    match (view(ty), value) {
        (View::Fields(ty), Value::Object(map)) => {
            for (name, value) in map {
                let child = ty.child(name);
                if child.is_none() && matches!(ty.node().shape, Shape::Struct { open: false, .. }) {
                    return Err(format!("{path}.{name}: field not declared in schema"));
                }
                check(child, value, &format!("{path}.{name}"))?;
            }
            Ok(())
        }
        (View::Items(item_type, kind), Value::Array(items)) => {
            let mut seen = std::collections::BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                let element = element(item_type, kind, item)
                    .map_err(|problem| format!("{path}: element {index}: {problem}"))?;
                let shown = super::shown(&element);
                check(Some(item_type), item, &format!("{path}{shown}"))?;
                if !seen.insert(element) {
                    return Err(format!("{path}: duplicate entries for key {shown}"));
                }
            }
            Ok(())
        }
        (View::Fields(_), other) if !other.is_null() => {
            Err(format!("{path}: expected map, got {}", go_value(other)))
        }
        (View::Items(..), other) if !other.is_null() => {
            Err(format!("{path}: expected list, got {}", go_value(other)))
        }
        _ => Ok(()),
    }
}

fn go_value(value: &Value) -> String {
    match value {
        Value::String(text) => format!("&{{{text}}}"),
        other => format!("&{{{other}}}"),
    }
}

/// The fields that an object has.
pub(crate) fn field_set(ty: Type<'_>, value: &Value) -> Set {
    let mut set = Set::default();
    collect(Some(ty), value, &mut Vec::new(), &mut set);
    set
}

fn collect(ty: Option<Type<'_>>, value: &Value, path: &mut Vec<String>, set: &mut Set) {
    match (view(ty), value) {
        (View::Leaf, _) => set.insert(path),
        (View::Fields(ty), Value::Object(map)) => {
            for (name, value) in map {
                path.push(format!("f:{name}"));
                collect(ty.child(name), value, path, set);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if empty || ty.field(name).is_none() {
                    set.insert(path);
                }
                path.pop();
            }
        }
        (View::Items(item_type, kind), list @ Value::Array(_)) => {
            for (element, item) in elements(item_type, kind, Some(list)) {
                path.push(element);
                collect(Some(item_type), item, path, set);
                set.insert(path);
                path.pop();
            }
        }
        _ => {}
    }
}

/// How `new` differs from `old`.
pub(crate) fn compare(ty: Type<'_>, old: &Value, new: &Value) -> Comparison {
    let mut comparison = Comparison::default();
    differ(Some(ty), Some(old), Some(new), &mut Vec::new(), &mut comparison);
    comparison
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(_) => false,
    }
}

fn differ(
    ty: Option<Type<'_>>,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &mut Vec<String>,
    out: &mut Comparison,
) {
    let leaf = |out: &mut Comparison, path: &[String]| match (old, new) {
        (None, Some(_)) => out.added.insert(path),
        (Some(_), None) => out.removed.insert(path),
        (Some(old), Some(new)) if old != new => out.modified.insert(path),
        _ => {}
    };
    if old == new {
        return;
    }
    match view(ty) {
        View::Leaf => return leaf(out, path),
        _ if is_empty(old) && is_empty(new) => return leaf(out, path),
        View::Fields(ty) => {
            let none = Map::new();
            let (left, right) = (
                old.and_then(Value::as_object).unwrap_or(&none),
                new.and_then(Value::as_object).unwrap_or(&none),
            );
            // Who owns what is nobody's.
            let at_metadata = matches!(path.as_slice(), [one] if one == "f:metadata");
            let counts = |name: &str| !(at_metadata && name == "managedFields");
            for (name, value) in left.iter().filter(|(name, _)| counts(name)) {
                if right.get(name) == Some(value) {
                    continue;
                }
                path.push(format!("f:{name}"));
                differ(ty.child(name), Some(value), right.get(name), path, out);
                path.pop();
            }
            for (name, value) in right.iter().filter(|(name, _)| counts(name) && !left.contains_key(*name)) {
                path.push(format!("f:{name}"));
                differ(ty.child(name), None, Some(value), path, out);
                path.pop();
            }
        }
        View::Items(item_type, kind) => {
            let left = elements(item_type, kind, old);
            let right: BTreeMap<_, _> = elements(item_type, kind, new).into_iter().collect();
            let mut seen = std::collections::BTreeSet::new();
            for (element, item) in &left {
                if seen.insert(element.clone()) {
                    path.push(element.clone());
                    differ(Some(item_type), Some(item), right.get(element).copied(), path, out);
                    path.pop();
                }
            }
            for (element, item) in right.iter().filter(|(element, _)| !seen.contains(*element)) {
                path.push(element.clone());
                differ(Some(item_type), None, Some(item), path, out);
                path.pop();
            }
        }
    }
    match (old, new) {
        (None, Some(_)) => out.added.insert(path),
        (Some(_), None) => out.removed.insert(path),
        _ => {}
    }
}

/// `applied` merged into `live`.
pub(crate) fn merge(ty: Option<Type<'_>>, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    let keep = || applied.or(live).cloned();
    match view(ty) {
        View::Leaf => keep(),
        _ if is_empty(live) && is_empty(applied) => keep(),
        View::Fields(ty) => {
            let none = Map::new();
            let left = live.and_then(Value::as_object).unwrap_or(&none);
            let right = applied.and_then(Value::as_object).unwrap_or(&none);
            let mut out = Map::new();
            let names = left.keys().chain(right.keys().filter(|name| !left.contains_key(*name)));
            for name in names {
                if let Some(value) = merge(ty.child(name), left.get(name), right.get(name)) {
                    out.insert(name.clone(), value);
                }
            }
            (!out.is_empty()).then_some(Value::Object(out))
        }
        View::Items(item_type, kind) => {
            let left = elements(item_type, kind, live);
            let right = elements(item_type, kind, applied);
            let out = merge_items(item_type, &left, &right);
            (!out.is_empty()).then_some(Value::Array(out))
        }
    }
}

/// Items of both, in the order of `right` where both have them, and of `left` around them.
fn merge_items(item_type: Type<'_>, left: &[(String, &Value)], right: &[(String, &Value)]) -> Vec<Value> {
    let lefts: BTreeMap<&str, &Value> =
        left.iter().map(|(element, item)| (element.as_str(), *item)).collect();
    let rights: BTreeMap<&str, &Value> =
        right.iter().map(|(element, item)| (element.as_str(), *item)).collect();
    let mut shared =
        right.iter().map(|(element, _)| element.as_str()).filter(|element| lefts.contains_key(element));
    let mut next = shared.next();
    let mut merged = std::collections::BTreeSet::new();
    let mut out = Vec::new();
    let mut push = |element: &str| {
        let item = merge(Some(item_type), lefts.get(element).copied(), rights.get(element).copied());
        out.extend(item);
    };
    let (mut at_left, mut at_right) = (0, 0);
    while at_left < left.len() || at_right < right.len() {
        if at_left < left.len() && at_right < right.len() {
            let element = left[at_left].0.as_str();
            if element == right[at_right].0 {
                merged.insert(element);
                push(element);
                at_left += 1;
                at_right += 1;
                next = shared.next();
                continue;
            }
            if rights.contains_key(element) && next.is_some_and(|next| next != element) {
                at_left += 1;
                continue;
            }
        }
        if at_left < left.len() {
            let element = left[at_left].0.as_str();
            if !rights.contains_key(element) {
                push(element);
                at_left += 1;
                continue;
            } else if merged.contains(element) {
                at_left += 1;
            }
        }
        if at_right < right.len() {
            let element = right[at_right].0.as_str();
            merged.insert(element);
            push(element);
            at_right += 1;
            if next == Some(element) {
                next = shared.next();
            }
        }
    }
    out
}

/// What is left of a value without some of its fields; `None` if nothing is.
pub(crate) fn remove(ty: Option<Type<'_>>, value: &Value, fields: &Set) -> Option<Value> {
    match (view(ty), value) {
        (View::Fields(ty), Value::Object(map)) => {
            let mut out = Map::new();
            for (name, value) in map {
                let element = format!("f:{name}");
                if fields.has(&element) {
                    continue;
                }
                let value = match fields.below(&element) {
                    Some(below) => remove(ty.child(name), value, below).unwrap_or(Value::Null),
                    None => value.clone(),
                };
                out.insert(name.clone(), value);
            }
            (!out.is_empty()).then_some(Value::Object(out))
        }
        (View::Items(item_type, kind), list @ Value::Array(_)) => {
            let mut out = Vec::new();
            for (element, item) in elements(item_type, kind, Some(list)) {
                if fields.has(&element) {
                    continue;
                }
                out.push(match fields.below(&element) {
                    Some(below) => remove(Some(item_type), item, below).unwrap_or(Value::Null),
                    None => item.clone(),
                });
            }
            (!out.is_empty()).then_some(Value::Array(out))
        }
        (View::Leaf, Value::Object(_) | Value::Array(_)) | (View::Fields(_) | View::Items(..), _) => None,
        (View::Leaf, scalar) => Some(scalar.clone()),
    }
}

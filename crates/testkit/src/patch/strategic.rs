//! Strategic merge patches: merge patches that know which lists have keys.
//!
//! Deliberately absent: custom resources. The server refuses these patches for them.

use serde_json::{Map, Value};

use crate::schema::{Shape, Type};

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Patches an object of a built-in type.
pub(crate) fn merge(ty: Option<Type<'_>>, target: &mut Value, patch: &Value) -> Result<(), String> {
    let (Value::Object(map), Value::Object(patch)) = (&mut *target, patch) else {
        *target = patch.clone();
        return Ok(());
    };
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        Some("replace") => {
            map.clone_from(patch);
            map.remove(DIRECTIVE);
            return Ok(());
        }
        Some("delete") => {
            map.clear();
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(format!("unknown patch type: {other}")),
    }
    if let Some(retain) = patch.get(RETAIN).and_then(Value::as_array) {
        map.retain(|key, _| retain.iter().any(|one| one == key.as_str()));
    }
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix(DELETE_FROM)
            && let Some(items) = map.get_mut(list).and_then(Value::as_array_mut)
            && let Some(gone) = value.as_array()
        {
            items.retain(|item| !gone.contains(item));
        }
    }
    for (key, value) in patch {
        if key == DIRECTIVE || key == RETAIN || key.starts_with(DELETE_FROM) || key.starts_with(ORDER) {
            continue;
        }
        if value.is_null() {
            map.remove(key);
            continue;
        }
        let child = ty.and_then(|ty| ty.child(key));
        let order = patch.get(&format!("{ORDER}{key}")).and_then(Value::as_array);
        match (map.get_mut(key), value) {
            (Some(current @ Value::Object(_)), Value::Object(_)) => merge(child, current, value)?,
            (current, Value::Array(items)) => {
                let merged =
                    list(child, current.as_ref().and_then(|current| current.as_array()), items, order)?;
                map.insert(key.clone(), merged.into());
            }
            _ => {
                let mut fresh = Value::Object(Map::new());
                if value.is_object() {
                    // Directives do not reach the object.
                    merge(child, &mut fresh, value)?;
                    map.insert(key.clone(), fresh);
                } else {
                    map.insert(key.clone(), value.clone());
                }
            }
        }
    }
    Ok(())
}

fn list(
    ty: Option<Type<'_>>,
    current: Option<&Vec<Value>>,
    patch: &[Value],
    order: Option<&Vec<Value>>,
) -> Result<Vec<Value>, String> {
    let merging = ty.and_then(|ty| match &ty.node().shape {
        Shape::List { merge: true, merge_key, .. } => Some((ty, merge_key.as_deref())),
        _ => None,
    });
    let Some((ty, key)) = merging else { return Ok(patch.to_vec()) };
    let current = current.map_or(&[][..], Vec::as_slice);
    let Some(key) = key else {
        let mut merged: Vec<Value> = Vec::new();
        for item in current.iter().chain(patch) {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        return Ok(ordered(merged, order.map_or(patch, Vec::as_slice), current, None));
    };
    if patch.iter().any(|item| item[DIRECTIVE] == "replace") {
        return Ok(patch.iter().filter(|item| item.get(DIRECTIVE).is_none()).cloned().collect());
    }
    let mut merged = current.to_vec();
    let mut plain = Vec::new();
    for item in patch {
        let Some(id) = item.get(key) else {
            return Err(format!("map: {} does not contain declared merge key: {key}", go_map(item)));
        };
        if item[DIRECTIVE] == "delete" {
            merged.retain(|one| one.get(key) != Some(id));
            continue;
        }
        plain.push(item.clone());
        if let Some(found) = merged.iter_mut().find(|one| one.get(key) == Some(id)) {
            merge(ty.item(), found, item)?;
        } else {
            let mut fresh = Value::Object(Map::new());
            merge(ty.item(), &mut fresh, item)?;
            merged.push(fresh);
        }
    }
    Ok(ordered(merged, order.map_or(&plain, |order| order), current, Some(key)))
}

/// Items of the patch in its order, and the others around them as they were.
fn ordered(merged: Vec<Value>, patch: &[Value], current: &[Value], key: Option<&str>) -> Vec<Value> {
    let same = |one: &Value, other: &Value| match key {
        Some(key) => one.get(key) == other.get(key),
        None => one == other,
    };
    let place = |list: &[Value], item: &Value| list.iter().position(|one| same(one, item));
    let (mut right, mut left): (Vec<_>, Vec<_>) =
        merged.into_iter().partition(|item| place(patch, item).is_some());
    right.sort_by_key(|item| place(patch, item));
    left.sort_by_key(|item| place(current, item));
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    let mut out = Vec::new();
    loop {
        match (left.peek(), right.peek()) {
            (None, None) => return out,
            (Some(_), None) => out.extend(left.next()),
            (None, Some(_)) => out.extend(right.next()),
            (Some(one), Some(other)) => match (place(current, one), place(current, other)) {
                (Some(one), Some(other)) if one < other => out.extend(left.next()),
                _ => out.extend(right.next()),
            },
        }
    }
}

/// Go's `%v` of a map, as far as a message needs it.
fn go_map(item: &Value) -> String {
    let parts = item.as_object().into_iter().flatten().map(|(key, value)| match value {
        Value::String(text) => format!("{key}:{text}"),
        other => format!("{key}:{other}"),
    });
    format!("map[{}]", parts.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::schema;

    fn patched(mut object: Value, patch: &Value) -> Value {
        super::merge(schema::built_in("Pod"), &mut object, patch).unwrap();
        object
    }

    #[test]
    fn conditions_are_merged_by_type() {
        let object = json!({"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]}});
        let patch = json!({"status": {"conditions": [{"type": "B", "status": "False"}]}});
        assert_eq!(
            patched(object, &patch)["status"]["conditions"],
            json!([{"type": "A", "status": "True"}, {"type": "B", "status": "False"}])
        );
    }

    #[test]
    fn an_item_is_deleted_by_its_key() {
        let object = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        let patch = json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}});
        assert_eq!(patched(object, &patch)["spec"]["containers"], json!([{"name": "b"}]));
    }

    #[test]
    fn finalizers_are_a_union_and_can_be_taken_out() {
        let object = json!({"metadata": {"finalizers": ["a", "b"]}});
        let patch = json!({"metadata": {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]}});
        let merged = patched(object, &patch);
        let mut names: Vec<_> = merged["metadata"]["finalizers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one.as_str().unwrap())
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["b", "c"]);
    }
}

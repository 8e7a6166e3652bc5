//! Who owns which field: sets of field paths, and server-side apply on top of them.
//!
//! A path element is kept in the very form that `managedFields` shows (`f:name`, `k:{…}`, `v:…`), so a
//! set and its JSON are the same tree.
//!
//! Deliberately absent: schema versions and schema changes. Every kind here has one version, whose lists and
//! maps do not become atomic later.

pub(crate) mod managers;
pub(crate) mod typed;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::schema::Type;

/// A set of field paths.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Set(BTreeMap<String, Child>);

#[derive(Debug, Clone, Default, PartialEq)]
struct Child {
    member: bool,
    below: Set,
}

impl Set {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a path; its parents are not added.
    pub(crate) fn insert(&mut self, path: &[String]) {
        match path {
            [] => {}
            [last] => match self.0.get_mut(last) {
                Some(child) => child.member = true,
                None => {
                    self.0.insert(last.clone(), Child { member: true, below: Self::default() });
                }
            },
            [first, rest @ ..] => {
                if let Some(child) = self.0.get_mut(first) {
                    child.below.insert(rest);
                } else {
                    let mut child = Child::default();
                    child.below.insert(rest);
                    self.0.insert(first.clone(), child);
                }
            }
        }
    }

    /// A set of plain field paths.
    pub(crate) fn of(paths: &[&str]) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(&path.split('.').map(|step| format!("f:{step}")).collect::<Vec<_>>());
        }
        set
    }

    pub(crate) fn has(&self, element: &str) -> bool {
        self.0.get(element).is_some_and(|child| child.member)
    }

    pub(crate) fn below(&self, element: &str) -> Option<&Self> {
        self.0.get(element).map(|child| &child.below).filter(|set| !set.is_empty())
    }

    pub(crate) fn union(mut self, other: &Self) -> Self {
        for (element, theirs) in &other.0 {
            let ours = self.0.entry(element.clone()).or_default();
            ours.member |= theirs.member;
            if !theirs.below.is_empty() {
                ours.below = std::mem::take(&mut ours.below).union(&theirs.below);
            }
        }
        self
    }

    fn combine(
        &self,
        other: &Self,
        keep: impl Fn(bool, bool) -> bool + Copy,
        alone: bool,
        whole: bool,
    ) -> Self {
        let mut out = BTreeMap::new();
        for (element, ours) in &self.0 {
            let Some(theirs) = other.0.get(element) else {
                if alone {
                    out.insert(element.clone(), ours.clone());
                }
                continue;
            };
            if whole && theirs.member {
                continue;
            }
            let member = keep(ours.member, theirs.member);
            let below = ours.below.combine(&theirs.below, keep, alone, whole);
            if member || !below.is_empty() {
                out.insert(element.clone(), Child { member, below });
            }
        }
        Self(out)
    }

    pub(crate) fn difference(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| ours && !theirs, true, false)
    }

    /// Without the other's members and everything below them.
    pub(crate) fn without_trees(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| ours && !theirs, true, true)
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| ours && theirs, false, false)
    }

    /// With every named field on the way to a member a member itself.
    pub(crate) fn with_named_fields(&self, ty: Option<Type<'_>>) -> Self {
        let mut out = BTreeMap::new();
        for (element, child) in &self.0 {
            let name = element.strip_prefix("f:");
            let is_field = name.is_some_and(|name| ty.is_some_and(|ty| ty.field(name).is_some()));
            let below_type = match name {
                Some(name) => ty.and_then(|ty| ty.child(name)),
                None => ty.and_then(Type::item),
            };
            let member = child.member || (is_field && !child.below.is_empty());
            out.insert(element.clone(), Child { member, below: child.below.with_named_fields(below_type) });
        }
        Self(out)
    }

    pub(crate) fn to_json(&self) -> Value {
        let write = |child: &Child| {
            let mut below = child.below.to_json();
            if child.member && !child.below.is_empty() {
                below["."] = Value::Object(Map::new());
            }
            below
        };
        Value::Object(self.0.iter().map(|(element, child)| (element.clone(), write(child))).collect())
    }

    pub(crate) fn from_json(value: &Value) -> Self {
        let mut out = BTreeMap::new();
        for (element, value) in value.as_object().into_iter().flatten().filter(|(element, _)| *element != ".")
        {
            let below = Self::from_json(value);
            let member = below.is_empty() || value.get(".").is_some();
            out.insert(element.clone(), Child { member, below });
        }
        Self(out)
    }

    /// Every member, as a conflict prints it.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect_paths("", &mut out);
        out
    }

    fn collect_paths(&self, prefix: &str, out: &mut Vec<String>) {
        for (element, child) in &self.0 {
            if child.member {
                out.push(format!("{prefix}{}", shown(element)));
            }
        }
        for (element, child) in &self.0 {
            child.below.collect_paths(&format!("{prefix}{}", shown(element)), out);
        }
    }
}

fn shown(element: &str) -> String {
    let (kind, rest) = element.split_at(element.len().min(2));
    match kind {
        "f:" => format!(".{rest}"),
        "v:" => format!("[={rest}]"),
        "k:" => {
            let keys: Map<String, Value> = serde_json::from_str(rest).unwrap_or_default();
            let keys: Vec<_> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        _ => format!("[{rest}]"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Set;

    #[test]
    fn a_set_reads_what_it_wrote() {
        let json =
            json!({"f:spec": {".": {}, "f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}}}}});
        assert_eq!(Set::from_json(&json).to_json(), json);
        assert_eq!(
            Set::from_json(&json).paths(),
            [".spec", ".spec.containers[name=\"a\"]", ".spec.containers[name=\"a\"].image"]
        );
    }

    #[test]
    fn a_difference_keeps_parents_and_drops_members() {
        let all = Set::from_json(&json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
        let some = Set::from_json(&json!({"f:a": {}}));
        assert_eq!(all.difference(&some).to_json(), json!({"f:a": {"f:b": {}}, "f:c": {}}));
        assert_eq!(all.without_trees(&some).to_json(), json!({"f:c": {}}));
        assert_eq!(all.intersection(&some).to_json(), json!({"f:a": {}}));
    }
}

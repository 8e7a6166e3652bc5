//! What a computing cluster does not keep of what is said of a node.
//!
//! An API server drops fields that it does not know, or whose feature is off, and says nothing of it. A worker cluster that is newer has such
//! fields; to write them again with every look would be a write that changes nothing, for ever. So what an answer lacks is not wished for
//! again.
//!
//! Deliberately absent: versions. Which field came with which one, and behind which gate, the answer knows best.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::action::{Action, Verb};

/// The only list among them.
const FEATURES: &str = "declaredFeatures";

/// Fields of a node's status that are not kept, by name; those of `nodeInfo` behind a slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unkept(BTreeSet<String>);

impl Unkept {
    /// What a write of a virtual node said, and what the answer to it lacks.
    pub fn of(action: &Action, answer: &Value) -> Self {
        let (Verb::Create { body, .. } | Verb::Patch { body, .. }) = &action.verb else {
            return Self::default();
        };
        let (said, kept) = (&body["status"], &answer["status"]);
        // An answer without a status says nothing about it.
        if !kept.is_object() {
            return Self::default();
        }
        let mut all = BTreeSet::new();
        let is_said = |value: &Value| value.as_array().is_some_and(|all| !all.is_empty());
        if is_said(&said[FEATURES]) && !is_said(&kept[FEATURES]) {
            all.insert(FEATURES.to_owned());
        }
        for (field, value) in said["nodeInfo"].as_object().into_iter().flatten() {
            if !is_nothing(value) && kept["nodeInfo"][field].is_null() {
                all.insert(format!("nodeInfo/{field}"));
            }
        }
        Self(all)
    }

    /// Learns more; whether there was more.
    pub fn learn(&mut self, more: Self) -> bool {
        let before = self.0.len();
        self.0.extend(more.0);
        self.0.len() > before
    }

    /// The fields.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Declared features, as far as they are kept.
    pub(super) fn features(&self, features: Vec<String>) -> Vec<String> {
        if self.0.contains(FEATURES) { Vec::new() } else { features }
    }

    /// What a node says of itself, as far as it is kept.
    pub(super) fn info(&self, info: &Value) -> Value {
        let mut info = info.clone();
        if let Value::Object(info) = &mut info {
            info.retain(|field, _| !self.0.contains(&format!("nodeInfo/{field}")));
        }
        info
    }
}

/// What no server keeps: an empty word is the same as none.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::action::{Mark, PatchForm, kinds};
    use crate::key::{Key, Virtual};

    fn action(verb: Verb) -> Action {
        Action::new(kinds::NODE, &Key::<Virtual>::cluster_scoped("vnode"), verb, "a test")
    }

    fn fields(verb: Verb, answer: &Value) -> Vec<String> {
        Unkept::of(&action(verb), answer).fields().map(str::to_owned).collect()
    }

    #[test]
    fn what_was_said_and_is_not_there_is_not_kept() {
        let status = json!({
            "declaredFeatures": ["One"],
            "nodeInfo": {"kubeletVersion": "v1.36.4", "bootID": "", "swap": {"capacity": 1}, "nothing": {}},
        });
        let create =
            || Verb::Create { body: json!({"status": status}), mark: Mark { labels: &[], annotations: &[] } };
        let patch = || Verb::Patch {
            form: PatchForm::Strategic,
            subresource: Some("status"),
            body: json!({"metadata": {"labels": {}}, "status": status}),
        };
        let older = json!({"status": {"nodeInfo": {"kubeletVersion": "v1.36.4", "bootID": ""}}});
        assert_eq!(fields(create(), &older), ["declaredFeatures", "nodeInfo/swap"]);
        assert_eq!(fields(patch(), &older), ["declaredFeatures", "nodeInfo/swap"]);
        assert!(fields(patch(), &json!({"status": status})).is_empty());
        // Not the whole answer: nothing is known.
        assert!(fields(patch(), &Value::Null).is_empty());
        assert!(fields(patch(), &json!({"metadata": {}})).is_empty());
    }

    #[test]
    fn what_was_not_said_is_not_missed() {
        let patch = |status: Value| Verb::Patch {
            form: PatchForm::Strategic,
            subresource: Some("status"),
            body: json!({"status": status}),
        };
        let answer = json!({"status": {"nodeInfo": {}}});
        assert!(fields(patch(json!({"declaredFeatures": []})), &answer).is_empty());
        assert!(fields(patch(json!({"conditions": []})), &answer).is_empty());
    }
}

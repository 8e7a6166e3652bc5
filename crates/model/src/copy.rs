//! What pods read in a worker cluster: copies of `ConfigMaps` and Secrets.
//!
//! V is the truth. A copy has the data of its original and our [`Stamp`], and nothing else of it: no labels, no annotations, no owners. Labels of
//! V mean nothing to the lender, and an annotation can ask the worker cluster for a credential of its own: so does the type of a
//! service account's token, which is why only types that are shapes of data are kept.
//!
//! `immutable` is not copied either. V's API server holds V's users to it; on the copy it would only stand in the way of the
//! next original of that name. Where someone in P has set it, a copy that has to change is made anew.
//!
//! Deliberately absent: who uses what, and content that has not been read. `None` means that there is no such object in V.

mod tokens;

use std::collections::BTreeMap;

use kubeocean_api::keys::{TRUE, labels};
use serde_json::{Map, Value, json};

use crate::action::{Action, Kind, kinds};
use crate::naming::PhysicalName;
use crate::object::Object;
use crate::project::Referent;
use crate::stamp::{Marks, OF_THE_SAME, Stamp, delete, patch};

pub use tokens::{Due, Tokens, plan_tokens, tokens_due};

const OPAQUE: &str = "Opaque";

/// Types that say how data is laid out, and make no server do anything.
const KEPT_TYPES: &[&str] = &[
    OPAQUE,
    "kubernetes.io/dockercfg",
    "kubernetes.io/dockerconfigjson",
    "kubernetes.io/basic-auth",
    "kubernetes.io/ssh-auth",
    "kubernetes.io/tls",
];

/// What is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Copied {
    /// A `ConfigMap`.
    ConfigMap,
    /// A Secret.
    Secret,
}

impl Copied {
    /// As API servers have it.
    pub const fn kind(self) -> Kind {
        match self {
            Self::ConfigMap => kinds::CONFIG_MAP,
            Self::Secret => kinds::SECRET,
        }
    }
}

impl From<Copied> for Referent {
    fn from(what: Copied) -> Self {
        match what {
            Copied::ConfigMap => Self::ConfigMap,
            Copied::Secret => Self::Secret,
        }
    }
}

/// Who needs a copy. Nobody: it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// A mapped pod of this binding refers to it.
    pub by_pods: bool,
    /// A volume of this binding refers to it, for its driver.
    pub by_volumes: bool,
}

impl Usage {
    /// Nobody.
    pub const NONE: Self = Self { by_pods: false, by_volumes: false };
    /// Pods only.
    pub const BY_PODS: Self = Self { by_pods: true, by_volumes: false };

    /// Whether anybody does.
    pub const fn is_any(self) -> bool {
        self.by_pods || self.by_volumes
    }
}

/// What has to be written so that the copy is what the original is, and there only while someone uses it. `name` is what a new copy is
/// called; one that is there keeps its name.
pub fn plan_copy(
    stamp: &Stamp<'_>,
    what: Copied,
    original: Option<&Object>,
    copy: Option<&Object>,
    name: &PhysicalName,
    usage: Usage,
) -> Vec<Action> {
    match (original, copy) {
        (_, Some(copy)) if !stamp.is_ours(&copy.meta) || copy.meta.is_deleting() => Vec::new(),
        (_, Some(copy)) if !usage.is_any() => {
            vec![delete(what.kind(), &copy.meta, "nobody uses it here any more")]
        }
        (None, Some(copy)) => vec![delete(what.kind(), &copy.meta, "its original is gone")],
        (Some(original), None) if usage.is_any() => create(stamp, what, original, name, usage),
        (Some(original), Some(copy)) => keep_in_step(stamp, what, original, copy, usage),
        (_, None) => Vec::new(),
    }
}

fn marks<'a>(stamp: &Stamp<'a>, original: &'a Object, usage: Usage) -> Marks<'a> {
    let mut marks = Marks::of(stamp, &original.meta);
    marks.labels.push((labels::USED_BY_PV, usage.by_volumes.then_some(TRUE)));
    marks
}

fn create(
    stamp: &Stamp<'_>,
    what: Copied,
    original: &Object,
    name: &PhysicalName,
    usage: Usage,
) -> Vec<Action> {
    let Some(content) = Content::wanted(what, original) else { return Vec::new() };
    let mut body = Map::new();
    body.insert("metadata".to_owned(), marks(stamp, original, usage).written());
    content.write(&mut body);
    vec![stamp.create(what.kind(), name, body.into(), OF_THE_SAME, "a pod here uses it")]
}

fn keep_in_step(
    stamp: &Stamp<'_>,
    what: Copied,
    original: &Object,
    copy: &Object,
    usage: Usage,
) -> Vec<Action> {
    // What cannot be read cannot be compared; no server gives such an object.
    let (Some(wanted), Some(is)) = (Content::wanted(what, original), Content::read(what, copy)) else {
        return Vec::new();
    };
    let mut body = wanted.differences(&is);
    if wanted.kind != is.kind || (is.is_immutable && !body.is_empty()) {
        let name = PhysicalName::existing(&copy.meta);
        let mut actions =
            vec![delete(what.kind(), &copy.meta, "it cannot be changed into what it has to be")];
        actions.extend(create(stamp, what, original, &name, usage));
        return actions;
    }
    let metadata = marks(stamp, original, usage).missing_on(&copy.meta);
    if !metadata.is_empty() {
        body.insert("metadata".to_owned(), metadata.into());
    }
    patch(what.kind(), &copy.meta, body, "its original differs").into_iter().collect()
}

/// Texts by key.
type Texts = BTreeMap<String, String>;

/// What a `ConfigMap` or a Secret says.
struct Content {
    data: Texts,
    binary: Texts,
    /// `None` for a `ConfigMap`.
    kind: Option<String>,
    is_immutable: bool,
}

impl Content {
    /// What an object says; `None` if that makes no sense.
    fn read(what: Copied, object: &Object) -> Option<Self> {
        let texts = |field: &str| -> Option<Texts> {
            let read = object.field::<Option<BTreeMap<String, Option<String>>>>(field).ok()?;
            let texts = read.flatten().unwrap_or_default().into_iter();
            Some(texts.map(|(key, value)| (key, value.unwrap_or_default())).collect())
        };
        let kind = (what == Copied::Secret).then(|| {
            let given = object.text("type", &[]).filter(|kind| !kind.is_empty());
            given.unwrap_or_else(|| OPAQUE.to_owned())
        });
        let binary = if what == Copied::ConfigMap { texts("binaryData")? } else { Texts::new() };
        let is_immutable =
            object.field::<Option<bool>>("immutable").ok().flatten().flatten().unwrap_or(false);
        Some(Self { data: texts("data")?, binary, kind, is_immutable })
    }

    /// What the copy of an object should say.
    fn wanted(what: Copied, original: &Object) -> Option<Self> {
        let mut content = Self::read(what, original)?;
        if let Some(kind) = content.kind.as_mut().filter(|kind| !KEPT_TYPES.contains(&kind.as_str())) {
            OPAQUE.clone_into(kind);
        }
        content.is_immutable = false;
        Some(content)
    }

    fn write(self, body: &mut Map<String, Value>) {
        for (field, texts) in [("data", self.data), ("binaryData", self.binary)] {
            if !texts.is_empty() {
                body.insert(field.to_owned(), json!(texts));
            }
        }
        if let Some(kind) = self.kind {
            body.insert("type".to_owned(), kind.into());
        }
    }

    /// What turns the data of `is` into ours, as a merge patch.
    fn differences(&self, is: &Self) -> Map<String, Value> {
        let mut body = Map::new();
        for (field, wanted, is) in [("data", &self.data, &is.data), ("binaryData", &self.binary, &is.binary)]
        {
            let differences = differences(wanted, is);
            if !differences.is_empty() {
                body.insert(field.to_owned(), differences.into());
            }
        }
        body
    }
}

fn differences(wanted: &Texts, is: &Texts) -> Map<String, Value> {
    let changed = wanted.iter().filter(|(key, value)| is.get(*key) != Some(value));
    let changed = changed.map(|(key, value)| (key.clone(), value.as_str().into()));
    let removed = is.keys().filter(|key| !wanted.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    changed.chain(removed).collect()
}

#[cfg(test)]
mod tests;

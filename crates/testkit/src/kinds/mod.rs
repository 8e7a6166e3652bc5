//! The kinds that are served, and how each is different from the others.
//!
//! Deliberately absent: requests. A kind says what becomes of an object; [`crate::rest`] asks.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fields::Set;
use crate::schema::{self, Schema, Type};

pub(crate) mod admission;
pub(crate) mod catalog;
pub(crate) mod defaults;
pub(crate) mod metadata;
pub(crate) mod pod_defaults;
pub(crate) mod pod_status;
pub(crate) mod pods;
pub(crate) mod services;
pub(crate) mod signing;
pub(crate) mod strategy;
pub(crate) mod validation;

/// What is served under one plural.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    clippy::struct_field_names,
    reason = "a row of a table; Kubernetes calls it kind"
)]
pub(crate) struct Kind {
    pub(crate) id: u32,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    /// What clients show it under, beside its own name.
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) subresources: Vec<String>,
    /// Starts at 1, and grows with the spec.
    pub(crate) generation: bool,
    /// An update may leave out the resource version.
    pub(crate) unconditional: bool,
    /// An update may create.
    pub(crate) upsert: bool,
    /// A delete answers with the object.
    pub(crate) returns_deleted: bool,
    /// Fields of a field selector beyond name and namespace.
    pub(crate) selectable: Vec<String>,
    /// Fields that the main endpoint does not write, and that the status endpoint does not.
    pub(crate) ignored: Set,
    pub(crate) ignored_by_status: Set,
    /// The schema of a custom resource.
    pub(crate) custom: Option<Arc<Schema>>,
}

impl Kind {
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// As messages name the resource.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    pub(crate) fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    pub(crate) fn ty(&self) -> Option<Type<'_>> {
        match &self.custom {
            Some(schema) => schema.root("root"),
            None => schema::built_in(&self.kind),
        }
    }

    pub(crate) fn is_custom(&self) -> bool {
        self.custom.is_some()
    }

    pub(crate) fn has_status(&self) -> bool {
        self.subresources.iter().any(|one| one == "status")
    }

    /// Built-in, with this name.
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.custom.is_none() && self.kind == kind
    }
}

/// All kinds, by group and plural.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kinds {
    by_name: BTreeMap<(String, String), Arc<Kind>>,
    by_id: BTreeMap<u32, Arc<Kind>>,
    /// Also of kinds that are not served any more: what is stored of them is there again when they are.
    ids: BTreeMap<(String, String), u32>,
}

impl Kinds {
    pub(crate) fn insert(&mut self, mut kind: Kind) -> Arc<Kind> {
        let name = (kind.group.clone(), kind.plural.clone());
        let next = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
        kind.id = *self.ids.entry(name.clone()).or_insert(next);
        let kind = Arc::new(kind);
        self.by_name.insert(name, kind.clone());
        self.by_id.insert(kind.id, kind.clone());
        kind
    }

    pub(crate) fn remove(&mut self, group: &str, plural: &str) {
        self.by_name.remove(&(group.to_owned(), plural.to_owned()));
    }

    pub(crate) fn get(&self, group: &str, plural: &str) -> Option<&Arc<Kind>> {
        // A tuple of references would need a map of its own; this one is small.
        self.by_name.get(&(group.to_owned(), plural.to_owned()))
    }

    pub(crate) fn id(&self, id: u32) -> Option<&Arc<Kind>> {
        self.by_id.get(&id)
    }

    /// By plural, singular or kind, optionally followed by `.group`.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Kind>> {
        let (short, group) = name.split_once('.').map_or((name, None), |(short, group)| (short, Some(group)));
        self.by_name.values().find(|kind| {
            group.is_none_or(|group| kind.group == group)
                && (kind.plural == short || kind.kind == short || kind.singular == short)
        })
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.by_name.values()
    }
}

//! What we wrote last, so that the same is not written again.
//!
//! Whether a patch changes an object cannot always be told from the object: server-side apply also owns
//! fields, and removes those that are left out. But the same body, applied to the version that it made, changes
//! nothing. That is all that is remembered: a hash and a version per object.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use kubeocean_model::action::{Action, Kind, PatchForm, Verb};
use kubeocean_model::key::Side;
use parking_lot::Mutex;

use super::outcome::Outcome;

/// Some 200 bytes each. When there are more, all are forgotten: the worst that follows is a write that
/// changes nothing, once per object.
const MOST: usize = 20_000;

#[derive(Default)]
pub(super) struct Memory(Mutex<BTreeMap<Place, Last>>);

/// What a patch is written to: two managers, or two subresources, do not know of each other.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    side: Side,
    kind: Kind,
    namespace: String,
    name: String,
    subresource: Option<&'static str>,
    manager: String,
}

struct Last {
    body: u64,
    version: String,
    /// The list that the version was known by. A restored etcd gives the same version to another object.
    list: u64,
}

impl Memory {
    /// Whether this very patch made the version that the object still has.
    pub(super) fn has_written(&self, action: &Action, known: Option<&str>, list: u64) -> bool {
        let (Some((place, body)), Some(known)) = (patch(action), known) else { return false };
        self.0
            .lock()
            .get(&place)
            .is_some_and(|last| last.body == body && last.version == known && last.list == list)
    }

    /// Remembers which version a patch made, or left as it was.
    pub(super) fn note(&self, action: &Action, outcome: &Outcome, known: Option<&str>, list: u64) {
        let Some((place, body)) = patch(action) else { return };
        let version = match outcome {
            Outcome::Done(written) => written.resource_version.clone(),
            Outcome::Unchanged { .. } => known.map(str::to_owned),
            _ => None,
        };
        let Some(version) = version else { return };
        let mut memory = self.0.lock();
        if memory.len() >= MOST {
            memory.clear();
        }
        memory.insert(place, Last { body, version, list });
    }
}

fn patch(action: &Action) -> Option<(Place, u64)> {
    let Verb::Patch { form, subresource, body } = &action.verb else { return None };
    let manager = match form {
        PatchForm::Apply { manager, .. } => manager.to_string(),
        PatchForm::Merge | PatchForm::Strategic => String::new(),
    };
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    let place = Place {
        side: action.side,
        kind: action.kind.clone(),
        namespace: action.namespace.clone(),
        name: action.name.clone(),
        subresource: *subresource,
        manager,
    };
    Some((place, hasher.finish()))
}

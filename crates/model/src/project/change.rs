//! From what a twin is to what it should be by now, as far as a pod that exists can be changed.
//!
//! Labels and annotations are compared with every look: other people's keys are left, and those that V dropped are taken away. The
//! spec is compared once for every generation of the V pod. What P's own admission made of it since (another registry, other
//! requests) is the lender's word, and writing ours over it again and again would change nothing.
//!
//! Deliberately absent: everything that no API server lets anyone change. Such a pod is another pod.

use kubeocean_api::keys::annotations;
use serde_json::{Map, Value, json};

use super::metadata::Expected;
use super::{items, text};
use crate::action::PatchForm;
use crate::object::{Object, Pairs};
use crate::quantity::Quantity;

/// What can be resized while a container runs.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// A patch of a twin.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// `None`: of the pod itself.
    pub subresource: Option<&'static str>,
    /// How the body is to be read.
    pub form: PatchForm,
    /// The fields.
    pub body: Value,
}

impl Change {
    fn new(subresource: Option<&'static str>, body: Value) -> Self {
        Self { subresource, form: PatchForm::Strategic, body }
    }
}

/// What has to be written, in this order, so that `twin` is as `wanted`, which [`project`](super::project()) made of the V pod as
/// it is now. Whether the twin is ours to change is for the caller to know. The generation that they bring is written with the last of them, so that what failed is tried again.
pub fn changes(wanted: &Value, twin: &Object) -> Vec<Change> {
    let expected = twin.meta.annotations.get(annotations::EXPECTED_METADATA);
    let known: Expected = expected.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let labels = pairs(&wanted["metadata"]["labels"], &twin.meta.labels, &known.labels);
    let mut notes = pairs(&wanted["metadata"]["annotations"], &twin.meta.annotations, &known.annotations);
    let generation = wanted["metadata"]["annotations"][annotations::VIRTUAL_GENERATION].as_str();
    // An old API server counts no generations of pods.
    let is_new = generation.is_none_or(|generation| generation == "0")
        || twin.meta.annotations.get(annotations::VIRTUAL_GENERATION) != generation;

    let nothing = Map::new();
    let target = wanted["spec"].as_object().unwrap_or(&nothing);
    let current = twin.field::<Value>("spec").ok().flatten().unwrap_or_default();
    let (mut spec, mut later) = (Map::new(), Vec::new());
    if let Some(current) = current.as_object() {
        // They can only be added, and not with the pod: a twin may lack them from its first day.
        later.extend(ephemeral(target, current));
        if is_new {
            spec = mutable(target, current);
            later.extend(resize(target, current));
        }
    }
    let last = if later.is_empty() { None } else { notes.remove(annotations::VIRTUAL_GENERATION) };
    let mut changes = Vec::new();
    let mut metadata = Map::new();
    put(&mut metadata, "labels", labels);
    put(&mut metadata, "annotations", notes);
    let mut body = Map::new();
    put(&mut body, "metadata", metadata);
    put(&mut body, "spec", spec);
    if !body.is_empty() {
        changes.push(Change::new(None, body.into()));
    }
    changes.append(&mut later);
    if let Some(generation) = last {
        let body = json!({"metadata": {"annotations": {annotations::VIRTUAL_GENERATION: generation}}});
        changes.push(Change::new(None, body));
    }
    changes
}

fn put(into: &mut Map<String, Value>, field: &str, changes: Map<String, Value>) {
    if !changes.is_empty() {
        into.insert(field.to_owned(), changes.into());
    }
}

/// The labels or annotations to put and, as null, to take away.
fn pairs(wanted: &Value, existing: &Pairs, known: &[String]) -> Map<String, Value> {
    let mut changes = Map::new();
    for (key, value) in wanted.as_object().into_iter().flatten() {
        if existing.get(key) != value.as_str() {
            changes.insert(key.clone(), value.clone());
        }
    }
    for key in known.iter().filter(|key| wanted.get(key.as_str()).is_none()) {
        if existing.get(key).is_some() {
            changes.insert(key.clone(), Value::Null);
        }
    }
    changes
}

/// What the pod itself takes: images, more tolerations, less time.
fn mutable(wanted: &Map<String, Value>, twin: &Map<String, Value>) -> Map<String, Value> {
    let mut spec = Map::new();
    for field in ["initContainers", "containers"] {
        let image = |(container, known): (&Map<String, Value>, &Map<String, Value>)| {
            let image = text(container, "image")?;
            let differs = text(known, "image") != Some(image);
            differs.then(|| json!({"name": container.get("name"), "image": image}))
        };
        let images: Vec<Value> = both(wanted, twin, field).filter_map(image).collect();
        if !images.is_empty() {
            spec.insert(field.to_owned(), images.into());
        }
    }
    if let Some(tolerations) = tolerations(wanted, twin) {
        spec.insert("tolerations".to_owned(), tolerations.into());
    }
    let deadline = |spec: &Map<String, Value>| spec.get("activeDeadlineSeconds").and_then(Value::as_i64);
    // Nobody may make it longer.
    if let Some(seconds) = deadline(wanted)
        && deadline(twin).is_none_or(|known| seconds < known)
    {
        spec.insert("activeDeadlineSeconds".to_owned(), seconds.into());
    }
    spec
}

/// Containers that are on both sides: the wanted one, and the one that is.
fn both<'a>(
    wanted: &'a Map<String, Value>,
    twin: &'a Map<String, Value>,
    field: &'a str,
) -> impl Iterator<Item = (&'a Map<String, Value>, &'a Map<String, Value>)> {
    items(wanted, field).filter_map(move |container| {
        let name = text(container, "name")?;
        items(twin, field).find(|known| text(known, "name") == Some(name)).map(|known| (container, known))
    })
}

/// All tolerations, if some have to be added. The list has no keys, so that it is written whole; P's own stay.
fn tolerations(wanted: &Map<String, Value>, twin: &Map<String, Value>) -> Option<Vec<Value>> {
    let of = |spec: &Map<String, Value>| -> Vec<Value> {
        items(spec, "tolerations").map(|one| Value::Object(one.clone())).collect()
    };
    let is_same = |one: &Value, other: &Value| {
        ["key", "operator", "value", "effect"].iter().all(|field| {
            let word = |value: &Value| value[*field].as_str().unwrap_or_default().to_owned();
            word(one) == word(other)
        })
    };
    let known = of(twin);
    let mut all = known.clone();
    for toleration in of(wanted) {
        // For how long may change, too.
        match all.iter_mut().find(|one| is_same(one, &toleration)) {
            Some(one) if one["tolerationSeconds"] == toleration["tolerationSeconds"] => {}
            Some(one) => *one = toleration,
            None => all.push(toleration),
        }
    }
    (all != known).then_some(all)
}

/// Containers to look around with, which can only be added.
fn ephemeral(wanted: &Map<String, Value>, twin: &Map<String, Value>) -> Option<Change> {
    let field = "ephemeralContainers";
    let is_missing = |container: &&Map<String, Value>| {
        let name = text(container, "name");
        name.is_some() && items(twin, field).all(|known| text(known, "name") != name)
    };
    let missing: Vec<&Map<String, Value>> = items(wanted, field).filter(is_missing).collect();
    (!missing.is_empty()).then(|| Change::new(Some("ephemeralcontainers"), json!({"spec": {field: missing}})))
}

/// Other amounts of what can be resized. What P alone has, such as the defaults of its namespace, stays.
fn resize(wanted: &Map<String, Value>, twin: &Map<String, Value>) -> Option<Change> {
    let mut spec = Map::new();
    for field in ["initContainers", "containers"] {
        let resized = |(container, known): (&Map<String, Value>, &Map<String, Value>)| {
            let resources = amounts(container, known)?;
            Some(json!({"name": container.get("name"), "resources": resources}))
        };
        let resized: Vec<Value> = both(wanted, twin, field).filter_map(resized).collect();
        if !resized.is_empty() {
            spec.insert(field.to_owned(), resized.into());
        }
    }
    if let Some(resources) = amounts(wanted, twin) {
        spec.insert("resources".to_owned(), resources);
    }
    (!spec.is_empty()).then(|| Change::new(Some("resize"), json!({"spec": spec})))
}

/// The amounts of `resources` that differ, of a container or of a pod.
fn amounts(wanted: &Map<String, Value>, twin: &Map<String, Value>) -> Option<Value> {
    let mut changes = Map::new();
    for list in ["requests", "limits"] {
        let mut differing = Map::new();
        for resource in RESIZABLE {
            let of = |side: &Map<String, Value>| side.get("resources")?.get(list)?.get(resource).cloned();
            let Some(amount) = of(wanted) else { continue };
            let is_same = match (quantity(&amount), of(twin).as_ref().map(quantity)) {
                (Some(wanted), Some(known)) => Some(wanted) == known,
                // What cannot be read cannot be compared.
                (None, _) => true,
                (Some(_), None) => false,
            };
            if !is_same {
                differing.insert(resource.to_owned(), amount);
            }
        }
        put(&mut changes, list, differing);
    }
    (!changes.is_empty()).then(|| changes.into())
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

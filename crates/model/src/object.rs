//! Objects as we keep them: the metadata that we use, and the rest as the JSON it came in.
//!
//! A typed pod costs ten times the memory and five times the decoding, and drops the fields that are
//! newer than our types. Who needs a field of `spec` parses that field.
//!
//! Deliberately absent: kinds. An object knows what it says, not what it is.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use crate::key::Key;

/// Not worth its memory: a copy of the object in one of its own annotations, which kubectl leaves.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An object of any kind.
#[derive(Clone)]
pub struct Object {
    /// What every object has.
    pub meta: Meta,
    /// `spec`, `status`, `data` and whatever else it has at the top.
    fields: Box<[(Box<str>, Box<RawValue>)]>,
}

/// The metadata that we use.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// `metadata.name`.
    #[serde(default)]
    pub name: Box<str>,
    /// Empty for cluster-scoped objects.
    #[serde(default)]
    pub namespace: Box<str>,
    /// `metadata.uid`.
    #[serde(default)]
    pub uid: Box<str>,
    /// `metadata.resourceVersion`.
    #[serde(default)]
    pub resource_version: Box<str>,
    /// `metadata.generation`; 0 where a kind has none.
    #[serde(default)]
    pub generation: i64,
    /// When it was made.
    #[serde(default)]
    pub creation_timestamp: Option<Timestamp>,
    /// When it is to be gone; set means that it is being deleted.
    #[serde(default)]
    pub deletion_timestamp: Option<Timestamp>,
    /// Seconds it was given to end.
    #[serde(default)]
    pub deletion_grace_period_seconds: Option<i64>,
    /// Labels.
    #[serde(default)]
    pub labels: Pairs,
    /// Annotations, without the copy of the object that kubectl leaves there.
    #[serde(default)]
    pub annotations: Pairs,
    /// Who owns it.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub owner_references: Box<[Owner]>,
    /// Who has to be asked before it goes.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub finalizers: Box<[Box<str>]>,
}

/// Some servers write `null` for a list without entries.
fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Box<[T]>, D::Error> {
    Ok(Option::<Box<[T]>>::deserialize(deserializer)?.unwrap_or_default())
}

/// One owner of an object.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// `group/version`.
    #[serde(default)]
    pub api_version: Box<str>,
    /// Kind of the owner.
    #[serde(default)]
    pub kind: Box<str>,
    /// Name of the owner.
    #[serde(default)]
    pub name: Box<str>,
    /// Uid of the owner.
    #[serde(default)]
    pub uid: Box<str>,
    /// Whether it is the one that manages the object.
    #[serde(default)]
    pub controller: bool,
}

impl Meta {
    /// Whether someone asked for its deletion.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The owner that manages it.
    pub fn controller(&self) -> Option<&Owner> {
        self.owner_references.iter().find(|owner| owner.controller)
    }

    /// The version as a number: versions of one kind in one cluster are ordered. `None` where a server
    /// counts in another way.
    pub fn version(&self) -> Option<u64> {
        self.resource_version.parse().ok()
    }
}

impl Object {
    /// Its namespace and name. The caller says which side it came from.
    pub fn key<S>(&self) -> Key<S> {
        Key::new(&*self.meta.namespace, &*self.meta.name)
    }

    /// A top-level field as it came.
    pub fn raw(&self, field: &str) -> Option<&RawValue> {
        self.fields.iter().find(|(name, _)| &**name == field).map(|(_, value)| &**value)
    }

    /// A top-level field, parsed; `Ok(None)` where the object has none.
    pub fn field<T: DeserializeOwned>(&self, field: &str) -> Result<Option<T>, serde_json::Error> {
        self.raw(field).map(|raw| serde_json::from_str(raw.get())).transpose()
    }

    /// One value inside of a top-level field, such as `["nodeName"]` in `spec`, if it is there and a string.
    /// What lies beside it is skipped, not parsed.
    pub fn text(&self, field: &str, path: &[&str]) -> Option<String> {
        let mut raw = self.raw(field)?;
        for name in path {
            raw = serde_json::Deserializer::from_str(raw.get()).deserialize_map(Member(name)).ok()??;
        }
        serde_json::from_str(raw.get()).ok()
    }

    /// The same object without some of its fields, for stores that do not need them.
    #[must_use]
    pub fn without(mut self, fields: &[&str]) -> Self {
        self.fields = std::mem::take(&mut self.fields)
            .into_iter()
            .filter(|(name, _)| !fields.contains(&&**name))
            .collect();
        self
    }

    /// An object of which nothing but its metadata is known.
    pub fn of_meta(meta: Meta) -> Self {
        Self { meta, fields: Box::default() }
    }

    /// The object from JSON that is already parsed.
    pub fn from_value(value: Value) -> Result<Self, serde_json::Error> {
        let Value::Object(mut map) = value else {
            return Err(serde::de::Error::custom("an object must be a JSON object"));
        };
        let meta = map.remove("metadata").map(serde_json::from_value).transpose()?.unwrap_or_default();
        let fields = map
            .into_iter()
            .filter(|(name, _)| name != "kind" && name != "apiVersion")
            .map(|(name, value)| Ok((name.into_boxed_str(), to_raw_value(&value)?)))
            .collect::<Result<_, serde_json::Error>>()?;
        Ok(Self { meta, fields })
    }

    /// All top-level fields but `metadata`, `kind` and `apiVersion`, parsed.
    pub fn content(&self) -> Result<Map<String, Value>, serde_json::Error> {
        self.fields
            .iter()
            .map(|(name, raw)| Ok((name.to_string(), serde_json::from_str(raw.get())?)))
            .collect()
    }

    /// Bytes on the heap, without the allocator's own.
    pub fn heap_size(&self) -> usize {
        let fields: usize = self.fields.iter().map(|(name, raw)| name.len() + raw.get().len() + 32).sum();
        let Meta { name, namespace, uid, resource_version, labels, annotations, .. } = &self.meta;
        let words: usize = [name, namespace, uid, resource_version].iter().map(|word| word.len()).sum();
        let owners: usize = self
            .meta
            .owner_references
            .iter()
            .map(|o| size_of::<Owner>() + o.api_version.len() + o.kind.len() + o.name.len() + o.uid.len())
            .sum();
        let finalizers: usize = self.meta.finalizers.iter().map(|finalizer| finalizer.len() + 16).sum();
        fields + words + owners + finalizers + labels.heap_size() + annotations.heap_size()
    }
}

impl fmt::Debug for Object {
    /// Names of fields only: an object may be a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<&str> = self.fields.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("Object")
            .field("namespace", &self.meta.namespace)
            .field("name", &self.meta.name)
            .field("uid", &self.meta.uid)
            .field("version", &self.meta.resource_version)
            .field("fields", &fields)
            .finish_non_exhaustive()
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a Kubernetes object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut meta = Meta::default();
                let mut fields = Vec::with_capacity(2);
                while let Some(name) = map.next_key::<Box<str>>()? {
                    match &*name {
                        "metadata" => meta = map.next_value()?,
                        "kind" | "apiVersion" => drop(map.next_value::<IgnoredAny>()?),
                        _ => fields.push((name, map.next_value()?)),
                    }
                }
                Ok(Object { meta, fields: fields.into_boxed_slice() })
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// Finds one member of a JSON object.
struct Member<'a>(&'a str);

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            if name == self.0 {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Labels or annotations: few, looked up by name, and kept small.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(Box<[(Box<str>, Box<str>)]>);

impl Pairs {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| &**name == key).map(|(_, value)| &**value)
    }

    /// All of them, in the order in which the server gave them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn heap_size(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
    }
}

impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl<'de> Visitor<'de> for Words {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }

            fn visit_unit<E>(self) -> Result<Pairs, E> {
                Ok(Pairs::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Pairs, A::Error> {
                Err(serde::de::Error::custom("labels and annotations are maps"))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::with_capacity(map.size_hint().unwrap_or(4));
                while let Some(key) = map.next_key::<Box<str>>()? {
                    if &*key == LAST_APPLIED {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        pairs.push((key, map.next_value()?));
                    }
                }
                Ok(Pairs(pairs.into_boxed_slice()))
            }
        }
        deserializer.deserialize_any(Words)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {
                "name": "a", "namespace": "web", "uid": "u-1", "resourceVersion": "42", "generation": 3,
                "creationTimestamp": "2026-11-20T08:00:00Z", "labels": {"app": "a"},
                "annotations": {LAST_APPLIED: "{}", "note": "kept"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "r-1", "controller": true}],
                "managedFields": [{"manager": "someone", "fieldsV1": {"f:spec": {}}}],
            },
            "spec": {"nodeName": "n1", "a-field-of-next-year": {"kept": [1, 2]}},
            "status": {"phase": "Running"},
        })
    }

    #[test]
    fn an_object_keeps_what_we_use_and_every_unknown_field() {
        for object in
            [serde_json::from_str::<Object>(&pod().to_string()).unwrap(), Object::from_value(pod()).unwrap()]
        {
            assert_eq!(
                (&*object.meta.name, object.meta.version(), object.meta.generation),
                ("a", Some(42), 3)
            );
            assert_eq!(object.meta.labels.get("app"), Some("a"));
            assert_eq!(object.meta.annotations.iter().collect::<Vec<_>>(), [("note", "kept")]);
            assert_eq!(object.meta.controller().map(|owner| &*owner.kind), Some("ReplicaSet"));
            assert_eq!(object.text("spec", &["nodeName"]).as_deref(), Some("n1"));
            assert_eq!(object.text("spec", &["nodeName", "deeper"]), None);
            assert_eq!(object.text("spec", &["a-field-of-next-year"]), None, "not a string");
            assert_eq!(object.content().unwrap()["spec"], pod()["spec"]);
            assert!(object.raw("kind").is_none() && object.raw("data").is_none());
            assert!(!object.meta.is_deleting());
            assert!(object.without(&["spec"]).raw("spec").is_none());
        }
    }

    #[test]
    fn what_an_object_holds_is_not_printed_by_accident() {
        let secret =
            json!({"metadata": {"name": "a", "annotations": {"note": "hunter2"}}, "data": {"k": "hunter2"}});
        let object = Object::from_value(secret.clone()).unwrap();
        let key = Key::<crate::key::Virtual>::new("web", "a");
        let verb = crate::action::Verb::Create { body: secret, mark: crate::action::Mark::default() };
        let action = crate::action::Action::new(crate::action::kinds::SECRET, &key, verb.clone(), "the test");
        let printed = format!("{object:?} {action:?} {verb:?} {action}");
        assert!(printed.contains("data") && !printed.contains("hunter2"), "{printed}");
    }

    #[test]
    fn odd_objects_are_read_or_refused_but_never_panic() {
        let null =
            r#"{"metadata":{"name":"a","labels":null,"ownerReferences":null,"finalizers":null},"data":null}"#;
        assert!(serde_json::from_str::<Object>(null).unwrap().meta.labels.is_empty());
        for text in
            ["[]", "1", r#"{"metadata":{"labels":[]}}"#, r#"{"metadata":{"deletionTimestamp":"soon"}}"#]
        {
            assert!(serde_json::from_str::<Object>(text).is_err(), "{text}");
        }
    }
}

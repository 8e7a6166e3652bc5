//! What an answer says: an object, or a page of a list.
//!
//! One object that cannot be read costs itself. A list that is none is never taken for an empty one.

use std::fmt;

use kubeocean_model::object::Object;
use serde::Deserializer as _;
use serde_json::Value;

use crate::error::CallError;

pub(crate) fn parse<'de, T: serde::Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, CallError> {
    serde_json::from_slice(bytes).map_err(|error| CallError::Malformed { cause: error.to_string() })
}

/// An object, unless it cannot be read: then it costs itself, and not those that came with it.
pub(crate) fn readable(json: &str) -> Option<Object> {
    match serde_json::from_str(json) {
        Ok(object) => Some(object),
        Err(error) => {
            tracing::warn!(%error, "an object cannot be read and is left out");
            None
        }
    }
}

/// One page of a list.
#[derive(serde::Deserialize)]
pub(crate) struct Page {
    #[serde(default)]
    pub(crate) metadata: PageMeta,
    #[serde(default = "Vec::new", deserialize_with = "null_is_empty")]
    pub(crate) items: Vec<Object>,
    /// Namespaces and names of those that are there, and cannot be read.
    #[serde(skip)]
    pub(crate) unreadable: Vec<(String, String)>,
}

impl Page {
    /// How many objects it has, readable or not.
    pub(crate) fn len(&self) -> usize {
        self.items.len() + self.unreadable.len()
    }

    /// Reads a page. An object that cannot be read costs itself, not the others.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, CallError> {
        #[derive(serde::Deserialize)]
        struct Raw<'a> {
            #[serde(default)]
            metadata: PageMeta,
            #[serde(default, borrow)]
            items: Option<Vec<&'a serde_json::value::RawValue>>,
        }
        let page = if let Ok(page) = serde_json::from_slice::<Self>(bytes) {
            page
        } else {
            let Raw { metadata, items } = parse(bytes)?;
            let mut page = Self { metadata, items: Vec::new(), unreadable: Vec::new() };
            for item in items.unwrap_or_default() {
                match readable(item.get()) {
                    Some(object) => page.items.push(object),
                    None => page.unreadable.extend(name_of(item.get())),
                }
            }
            page
        };
        // Whatever it is, it is not a list: to take it for an empty one would be to take all for gone.
        if page.metadata.resource_version.is_empty() {
            return Err(CallError::Malformed { cause: "a list without a version".to_owned() });
        }
        Ok(page)
    }
}

impl Page {
    /// Where the list goes on, as far as that can be told without reading the items: servers say so before them. `None`: only
    /// the whole page tells.
    pub(crate) fn more_after(bytes: &[u8]) -> Option<String> {
        struct UpTo<'a>(&'a mut Option<PageMeta>);
        impl<'de> serde::de::Visitor<'de> for UpTo<'_> {
            type Value = ();
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_map<M: serde::de::MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
                while let Some(field) = map.next_key::<String>()? {
                    match field.as_str() {
                        "metadata" => {
                            *self.0 = Some(map.next_value()?);
                            return Ok(());
                        }
                        "items" => return Ok(()),
                        _ => drop(map.next_value::<serde::de::IgnoredAny>()?),
                    }
                }
                Ok(())
            }
        }
        let mut metadata = None;
        // It stops in the middle, which the reader takes for a mistake.
        drop(serde_json::Deserializer::from_slice(bytes).deserialize_map(UpTo(&mut metadata)));
        metadata.map(|metadata| metadata.more).filter(|more| !more.is_empty())
    }
}

/// Namespace and name of an object of which not even the metadata may be right.
pub(crate) fn name_of(json: &str) -> Option<(String, String)> {
    let object: Value = serde_json::from_str(json).ok()?;
    let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
    Some((text("namespace").unwrap_or_default(), text("name")?))
}

#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageMeta {
    #[serde(default)]
    pub(crate) resource_version: String,
    #[serde(default, rename = "continue")]
    pub(crate) more: String,
    #[serde(default, rename = "remainingItemCount")]
    pub(crate) remaining: usize,
}

/// An empty list of some kinds is `null`.
fn null_is_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Object>, D::Error> {
    serde::Deserialize::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn more_after(page: &str) -> Option<String> {
        Page::more_after(page.as_bytes())
    }

    #[test]
    fn where_a_list_goes_on_is_known_before_its_items_are_read() {
        let page =
            r#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"abc"},"items":[{"not":"#;
        assert_eq!(more_after(page), Some("abc".to_owned()));
    }

    #[test]
    fn a_last_page_and_one_that_says_so_behind_its_items_are_read_whole() {
        assert_eq!(more_after(r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#), None);
        assert_eq!(more_after(r#"{"items":[],"metadata":{"continue":"abc"}}"#), None);
        assert_eq!(more_after("[]"), None);
        assert_eq!(more_after(""), None);
    }

    const GOOD: &str = r#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"abc","remainingItemCount":3},
        "items":[{"metadata":{"name":"a","labels":{"b":"c"}},"spec":{"d":[1,-2.5e9,null,true]}},{"metadata":{"name":"e"}}]}"#;

    proptest::proptest! {
        #[test]
        fn no_bytes_end_the_process(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            Page::more_after(&bytes);
            drop(Page::read(&bytes));
        }

        #[test]
        fn a_mutilated_page_without_a_version_is_no_empty_list(at in 0..GOOD.len(), length in 0..80_usize, put in "[ -~]{0,6}") {
            let mut text = GOOD.as_bytes().to_vec();
            text.splice(at..(at + length).min(GOOD.len()), put.into_bytes());
            Page::more_after(&text);
            if let Ok(page) = Page::read(&text) {
                proptest::prop_assert!(!page.metadata.resource_version.is_empty());
            }
        }
    }
}

//! A request, taken apart: what is asked of which resource.
//!
//! Deliberately absent: whether it is served. That needs to know the kinds.

use std::collections::BTreeMap;

use bytes::Bytes;

/// An HTTP request as the server needs it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub(crate) actor: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: Query,
    pub(crate) accept: String,
    pub(crate) content_type: String,
    pub(crate) user_agent: String,
    pub(crate) body: Bytes,
}

/// Query parameters; of a repeated one the last counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(key), decode(value))
                })
                .collect(),
        )
    }

    /// A parameter that is there and not empty.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        self.0
            .get(key)
            .is_some_and(|value| matches!(value.as_str(), "1" | "t" | "T" | "true" | "TRUE" | "True"))
    }

    pub(crate) fn dry_run(&self) -> bool {
        self.get("dryRun").is_some()
    }
}

/// Percent-decoding of a query component.
fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let hex = |from: usize| {
            bytes
                .get(from..from + 2)
                .and_then(|two| std::str::from_utf8(two).ok())
                .and_then(|two| u8::from_str_radix(two, 16).ok())
        };
        match bytes[at] {
            b'%' if hex(at + 1).is_some() => {
                out.extend(hex(at + 1));
                at += 2;
            }
            b'+' => out.push(b' '),
            other => out.push(other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A path below `/api` or `/apis`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
}

impl Place {
    /// `None` for paths that name no resource.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
        let (group, version) = match parts.first()?.as_str() {
            "api" if parts.len() > 2 => (String::new(), parts[1].clone()),
            "apis" if parts.len() > 3 => (parts[1].clone(), parts[2].clone()),
            _ => return None,
        };
        parts.drain(..if parts[0] == "api" { 2 } else { 3 });
        let mut place = Self { group, version, ..Self::default() };
        if parts[0] == "namespaces"
            && place.group.is_empty()
            && (parts.len() < 3 || matches!(parts[2].as_str(), "status" | "finalize"))
        {
            // The namespace itself.
        } else if parts[0] == "namespaces" && parts.len() > 2 {
            place.namespace.clone_from(&parts[1]);
            parts.drain(..2);
        }
        let mut parts = parts.into_iter();
        place.plural = parts.next()?;
        place.name = parts.next().unwrap_or_default();
        place.subresource = parts.collect::<Vec<_>>().join("/");
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn paths_are_taken_apart() {
        let place = |path: &str| {
            let place = Place::parse(path).unwrap();
            [place.group, place.version, place.plural, place.namespace, place.name, place.subresource]
                .join("|")
        };
        assert_eq!(place("/api/v1/namespaces/a/pods/b/status"), "|v1|pods|a|b|status");
        assert_eq!(place("/api/v1/namespaces/a/status"), "|v1|namespaces||a|status");
        assert_eq!(place("/api/v1/namespaces/a"), "|v1|namespaces||a|");
        assert_eq!(place("/apis/apps/v1/deployments"), "apps|v1|deployments|||");
        assert_eq!(place("/apis/apps/v1/namespaces/a/deployments/b"), "apps|v1|deployments|a|b|");
        assert_eq!(Place::parse("/version"), None);
    }
}

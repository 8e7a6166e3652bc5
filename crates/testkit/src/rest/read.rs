//! Gets and lists: by selector, in pages, and at which revision.
//!
//! Deliberately absent: staleness. What is read is what was last written, unless an older revision was
//! asked for; a layer above may answer late.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::{Answer, Call, partial, shown, wants_metadata};
use crate::kinds::Kind;
use crate::selector::{Fields, Labels};
use crate::server::State;
use crate::status::{Cause, Failure, Result};
use crate::store::{Key, Shared};

pub(crate) fn get(state: &State, call: &Call<'_>) -> Result<Answer> {
    if let Some(version) = call.request.query.get("resourceVersion") {
        let asked = revision(version)?;
        if asked > state.store.revision {
            return Err(Failure::too_large_revision(asked, state.store.revision));
        }
    }
    let object = state.store.get(&call.key()).ok_or_else(|| call.not_found())?;
    Ok(shown(call, 200, object))
}

/// Which objects are meant.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    pub(crate) labels: Labels,
    pub(crate) fields: Fields,
}

impl Selection {
    pub(crate) fn of(call: &Call<'_>) -> Result<Self> {
        let labels = call.request.query.get("labelSelector").unwrap_or_default();
        let labels = Labels::parse(labels).map_err(|problem| {
            Failure::bad_request(
                format!("unable to parse requirement: {problem}")
                    .replace("unable to parse requirement: unable", "unable"),
            )
        })?;
        let fields = call.request.query.get("fieldSelector").unwrap_or_default();
        let fields = Fields::parse(fields).map_err(Failure::bad_request)?;
        for (field, ..) in &fields.0 {
            let known = field == "metadata.name"
                || (field == "metadata.namespace"
                    && (call.kind.namespaced || call.kind.is_custom() || call.kind.is("Namespace")))
                || call.kind.selectable.iter().any(|one| one == field);
            if !known {
                return Err(unknown_field(&call.kind, field));
            }
        }
        Ok(Self { labels, fields })
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        (self.labels.is_everything() || self.labels.matches(object))
            && (self.fields.is_everything() || self.fields.matches(object))
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }
}

fn unknown_field(kind: &Kind, field: &str) -> Failure {
    let message = if kind.is_custom()
        || kind.is("Pod")
        || kind.is("Node")
        || kind.is("Event")
        || kind.is("Namespace")
        || kind.is("Secret")
        || kind.is("Service")
        || kind.is("ReplicaSet")
        || kind.is("Job")
        || kind.is("CertificateSigningRequest")
    {
        if kind.is("Job") {
            format!("field label {field:?} not supported for Job")
        } else {
            format!("field label not supported: {field}")
        }
    } else {
        format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    };
    Failure::bad_request(message)
}

pub(crate) fn revision(text: &str) -> Result<u64> {
    text.parse().map_err(|_| {
        let cause = Cause::invalid(
            "resourceVersion",
            &text.into(),
            &format!("strconv.ParseUint: parsing {text:?}: invalid syntax"),
        );
        Failure::bad_request(format!("invalid resource version: {}", cause.said()))
    })
}

/// Where a page ended.
struct Continue {
    revision: u64,
    namespace: String,
    name: String,
}

impl Continue {
    fn write(&self) -> String {
        let start = if self.namespace.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        };
        let token = json!({"v": "meta.k8s.io/v1", "rv": self.revision, "start": format!("{start}\u{0}")});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn read(token: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let token: Value = serde_json::from_slice(&bytes).ok()?;
        let start = token["start"].as_str()?.trim_end_matches('\u{0}');
        let (namespace, name) = start.split_once('/').unwrap_or(("", start));
        Some(Self { revision: token["rv"].as_u64()?, namespace: namespace.into(), name: name.into() })
    }
}

/// The objects of a list, the revision they are of, and how it goes on.
struct Page {
    items: Vec<Shared>,
    revision: u64,
    token: Option<String>,
    remaining: Option<usize>,
}

fn page(state: &State, call: &Call<'_>) -> Result<Page> {
    let query = &call.request.query;
    let selection = Selection::of(call)?;
    let limit: usize = query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(0);
    let version = query.get("resourceVersion");
    let how = query.get("resourceVersionMatch");
    check_options(version, how, query.get("continue"), query.get("sendInitialEvents"))?;
    let current = state.store.revision;
    let mut after = None;
    let mut at = current;
    if let Some(token) = query.get("continue") {
        let token = Continue::read(token).ok_or_else(|| {
            Failure::bad_request(
                "invalid continue token: continue key is not valid: illegal base64 data at input byte 0",
            )
        })?;
        if token.revision < state.store.compacted {
            return Err(expired_continue(call, state, &token));
        }
        at = token.revision;
        after = Some(Key::new(call.kind.id, &token.namespace, &token.name));
    } else if let Some(version) = version {
        let asked = revision(version)?;
        if asked > current {
            return Err(Failure::too_large_revision(asked, current));
        }
        if how == Some("Exact") {
            if asked < state.store.compacted {
                return Err(Failure::expired("The resourceVersion for the provided list is too old."));
            }
            at = asked;
        }
    }
    let namespace = Some(call.place.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let found = state.store.at(at, call.kind.id, namespace, after.as_ref());
    let everything = selection.is_everything();
    let mut matching = found.into_iter().filter(|(_, object)| everything || selection.matches(&object.value));
    // Version 0 is answered from the cache, which has no pages.
    let limit = if limit == 0 || (version == Some("0") && how.is_none() && after.is_none()) {
        usize::MAX
    } else {
        limit
    };
    let mut items = Vec::new();
    let mut last = None;
    for (key, object) in matching.by_ref().take(limit) {
        items.push(object);
        last = Some(key);
    }
    let more = matching.count();
    let token = last.filter(|_| more > 0).map(|key| {
        let namespace = if namespace.is_some() { String::new() } else { key.namespace.to_string() };
        // Within one namespace the token names no namespace.
        Continue {
            revision: at,
            namespace: if namespace.is_empty() { key.namespace.to_string() } else { namespace },
            name: key.name.to_string(),
        }
        .write()
    });
    let remaining = (more > 0 && everything).then_some(more);
    Ok(Page { items, revision: at, token, remaining })
}

fn check_options(
    version: Option<&str>,
    how: Option<&str>,
    token: Option<&str>,
    initial: Option<&str>,
) -> Result<()> {
    const MATCH: &str = "resourceVersionMatch";
    let mut causes = Vec::new();
    match how {
        Some(_) if token.is_some() => {
            causes
                .push(Cause::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
        Some(_) if version.is_none() => {
            let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.push(Cause::forbidden(MATCH, detail));
        }
        Some("Exact") if version == Some("0") => {
            let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            causes.push(Cause::forbidden(MATCH, detail));
        }
        None | Some("Exact" | "NotOlderThan") => {}
        Some(other) => causes.push(Cause::unsupported(MATCH, &other.into(), &["Exact", "NotOlderThan", ""])),
    }
    if initial.is_some() {
        causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    if !causes.is_empty() {
        return Err(Failure::invalid_as("meta.k8s.io", "ListOptions", "", &causes));
    }
    if token.is_some() && version.is_some_and(|version| version != "0") {
        return Err(Failure::bad_request("specifying resource version is not allowed when using continue"));
    }
    Ok(())
}

fn expired_continue(call: &Call<'_>, state: &State, token: &Continue) -> Failure {
    let mut failure = Failure::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    let _ = call;
    let token = Continue {
        revision: state.store.revision,
        namespace: token.namespace.clone(),
        name: token.name.clone(),
    };
    failure.metadata_continue = Some(token.write());
    failure
}

pub(crate) fn list(state: &State, call: &Call<'_>) -> Result<Answer> {
    let page = page(state, call)?;
    let metadata_only = wants_metadata(&call.request.accept, "PartialObjectMetadataList");
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if call.kind.is_custom() {
        metadata["continue"] = "".into();
    }
    if let Some(token) = page.token {
        metadata["continue"] = token.into();
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    let (kind, version) = if metadata_only {
        ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned())
    } else {
        (format!("{}List", call.kind.kind), call.kind.api_version())
    };
    let mut out = Vec::with_capacity(page.items.len() * 512 + 128);
    let head = json!({"kind": kind, "apiVersion": version, "metadata": metadata}).to_string();
    out.extend_from_slice(&head.as_bytes()[..head.len() - 1]);
    out.extend_from_slice(b",\"items\":[");
    for (index, object) in page.items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        if metadata_only {
            out.extend_from_slice(partial(&object.value).to_string().as_bytes());
        } else if call.kind.is_custom() {
            out.extend_from_slice(object.bytes());
        } else {
            out.extend_from_slice(object.item());
        }
    }
    out.extend_from_slice(b"]}");
    Ok(Answer::Bytes(200, out.into()))
}

//! Watches: what is sent first, what is sent when something changes, and how they end.
//!
//! A watch is a position in the log. It holds no copy and no queue: when it is polled it reads on.
//!
//! Deliberately absent: losing, doubling or delaying events. A layer above may.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;

use super::read::{Selection, revision};
use super::{Call, partial, wants_metadata};
use crate::kinds::Kind;
use crate::server::{ApiServer, State};
use crate::status::{Cause, Failure, Result};
use crate::store::{Entry, Shared};

/// A watch that nobody limited ends by itself; the server draws from half an hour to an hour.
const LONGEST: Duration = Duration::from_secs(45 * 60);

/// The mark that ends the first part of a streamed list.
pub(crate) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// A watch that was granted.
pub(crate) struct Watch {
    kind: Arc<Kind>,
    namespace: Option<String>,
    selection: Selection,
    metadata_only: bool,
    bookmarks: bool,
    bookmark_every: Duration,
    /// Everything up to here was sent.
    position: u64,
    ready: VecDeque<Bytes>,
    ends: Option<Instant>,
    next_bookmark: Option<Instant>,
    limit: Duration,
    finished: bool,
    /// Watches of an earlier epoch were cut.
    epoch: u64,
}

pub(crate) fn start(state: &State, call: &Call<'_>) -> Result<Watch> {
    let query = &call.request.query;
    let selection = Selection::of(call)?;
    let invalid = |cause| Failure::invalid_as("meta.k8s.io", "ListOptions", "", &[cause]);
    let initial = query.get("sendInitialEvents").is_some().then(|| query.flag("sendInitialEvents"));
    let how = query.get("resourceVersionMatch");
    match (initial, how) {
        (Some(_), None) => {
            return Err(invalid(Cause::forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )));
        }
        (Some(_), Some(other)) if other != "NotOlderThan" => {
            return Err(Failure::invalid_as(
                "meta.k8s.io",
                "ListOptions",
                "",
                &[
                    Cause::forbidden(
                        "resourceVersionMatch",
                        "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                    ),
                    Cause::unsupported("resourceVersionMatch", &other.into(), &["NotOlderThan"]),
                ],
            ));
        }
        (None, Some(_)) => {
            return Err(invalid(Cause::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )));
        }
        _ => {}
    }
    let seconds: u64 = query.get("timeoutSeconds").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut watch = Watch {
        kind: call.kind.clone(),
        namespace: Some(call.place.namespace.clone()).filter(|namespace| !namespace.is_empty()),
        selection,
        metadata_only: wants_metadata(&call.request.accept, "PartialObjectMetadata"),
        bookmarks: query.flag("allowWatchBookmarks"),
        bookmark_every: state.options.bookmark_every,
        position: state.store.revision,
        ready: VecDeque::new(),
        ends: None,
        next_bookmark: None,
        limit: if seconds == 0 { LONGEST } else { Duration::from_secs(seconds) },
        finished: false,
        epoch: state.epoch,
    };
    let asked = query.get("resourceVersion").map(revision).transpose().map_err(|failure| {
        Failure::new(500, "", failure.message.replace("invalid resource version: ", ""))
    })?;
    match asked {
        None | Some(0) if initial != Some(false) => watch.send_all(state, initial == Some(true)),
        Some(asked) if initial == Some(true) => {
            if asked > state.store.revision {
                return Err(Failure::too_large_revision(asked, state.store.revision));
            }
            watch.send_all(state, true);
        }
        None | Some(0) => {}
        Some(asked) if asked < state.store.compacted => {
            let failure =
                Failure::expired(format!("too old resource version: {asked} ({})", state.store.compacted));
            watch
                .ready
                .push_back(line("ERROR", &serde_json::to_vec(&failure.to_value()).unwrap_or_default()));
            watch.finished = true;
        }
        Some(asked) => watch.position = asked,
    }
    Ok(watch)
}

impl Watch {
    /// Everything there is, as if it were new.
    fn send_all(&mut self, state: &State, marked: bool) {
        for (_, object) in state.store.live(self.kind.id, self.namespace.as_deref()) {
            if self.selection.matches(&object.value) {
                self.ready.push_back(event("ADDED", object, self.metadata_only));
            }
        }
        if marked && self.bookmarks {
            self.ready.push_back(self.bookmark(true));
        }
    }

    fn bookmark(&self, initial_end: bool) -> Bytes {
        let mut object = if self.metadata_only {
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {}})
        } else {
            json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": {}})
        };
        object["metadata"]["resourceVersion"] = self.position.to_string().into();
        if initial_end {
            object["metadata"]["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        line("BOOKMARK", object.to_string().as_bytes())
    }

    /// Reads on in the log.
    fn advance(&mut self, state: &State) {
        if self.epoch != state.epoch {
            self.finished = true;
            return;
        }
        for entry in state.store.since_of(self.kind.id, self.position) {
            if self.namespace.as_deref().is_some_and(|namespace| namespace != &*entry.key.namespace) {
                continue;
            }
            self.ready.extend(seen(entry, &self.selection, self.metadata_only));
        }
        self.position = self.position.max(state.store.revision);
    }

    /// The next lines, or `None` at the end.
    pub(crate) async fn next(&mut self, server: &ApiServer) -> Option<Bytes> {
        let now = Instant::now();
        let ends = *self.ends.get_or_insert(now + self.limit);
        let mut bookmark_at = *self.next_bookmark.get_or_insert(now + self.bookmark_every);
        let mut changes = server.changes_of(self.kind.id);
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            if self.finished {
                return None;
            }
            // Marked before the look, so that no change falls between the look and the wait.
            changes.look();
            server.with(|state| self.advance(state));
            if !self.ready.is_empty() || self.finished {
                continue;
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(ends) => {
                    self.finished = true;
                    if self.bookmarks {
                        self.ready.push_back(self.bookmark(false));
                    }
                }
                () = changes.changed() => {}
                () = tokio::time::sleep_until(bookmark_at), if self.bookmarks => {
                    bookmark_at += self.bookmark_every;
                    self.next_bookmark = Some(bookmark_at);
                    self.ready.push_back(self.bookmark(false));
                }
            }
        }
    }
}

/// What a change looks like through a selection.
fn seen(entry: &Entry, selection: &Selection, metadata_only: bool) -> Option<Bytes> {
    let before = entry.old.as_ref().is_some_and(|object| selection.matches(&object.value));
    let after = entry.new.as_ref().is_some_and(|object| selection.matches(&object.value));
    let (kind, object) = match (before, after) {
        (false, false) => return None,
        (false, true) => ("ADDED", entry.new.as_ref()?),
        (true, true) => ("MODIFIED", entry.new.as_ref()?),
        (true, false) => ("DELETED", entry.gone()?),
    };
    Some(event(kind, object, metadata_only))
}

fn event(kind: &str, object: &Shared, metadata_only: bool) -> Bytes {
    if metadata_only {
        line(kind, partial(&object.value).to_string().as_bytes())
    } else {
        line(kind, object.bytes())
    }
}

fn line(kind: &str, object: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(object.len() + 40);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
    out.into()
}

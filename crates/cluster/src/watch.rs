//! The wire format of a watch: one JSON document per line.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kubeocean_model::object::Object;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::client::{name_of, readable};
use crate::error::{CallError, Status};

/// etcd takes objects of 1.5 MiB, aggregated servers somewhat more. Beyond this it is not an event.
const LONGEST_LINE: usize = 32 << 20;

/// Set on the bookmark that ends the initial events of a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What a watch says.
pub(crate) enum Event {
    /// Added or modified: the reader knows what it knew before.
    Put(Object),
    /// Gone, with its last state.
    Gone(Object),
    /// About an object that cannot be read.
    Unreadable { namespace: String, name: String, gone: bool },
    /// Everything up to here was sent.
    Bookmark { version: Box<str>, initial_events_end: bool },
    /// The server ends the watch.
    Error(Status),
}

/// Events as they come.
pub(crate) struct Events {
    body: Body,
    buffer: BytesMut,
    /// Up to where the buffer was searched for the end of a line.
    searched: usize,
}

impl Events {
    pub(crate) fn new(body: Body) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0 }
    }

    /// The next event; `None` when the server ended the stream.
    pub(crate) async fn next(&mut self) -> Option<Result<Event, CallError>> {
        loop {
            if let Some(line) = self.line() {
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                match read(&line) {
                    // One bad object costs itself, not the watch.
                    Ok(None) => continue,
                    Ok(Some(event)) => return Some(Ok(event)),
                    Err(error) => return Some(Err(error)),
                }
            }
            if self.buffer.len() > LONGEST_LINE {
                return Some(Err(CallError::Malformed { cause: "an event of more than 32 MiB".to_owned() }));
            }
            match self.body.frame().await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Err(error) => return Some(Err(CallError::unreachable(&error))),
            }
        }
    }

    fn line(&mut self) -> Option<Bytes> {
        let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + end + 1);
        self.searched = 0;
        Some(line.freeze())
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

fn read(line: &[u8]) -> Result<Option<Event>, CallError> {
    let malformed = |error: serde_json::Error| CallError::Malformed { cause: format!("an event: {error}") };
    let Line { kind, object } = serde_json::from_slice(line).map_err(malformed)?;
    let object = object.get();
    match kind {
        "ADDED" | "MODIFIED" => Ok(readable(object).map(Event::Put).or_else(|| unreadable(object, false))),
        "DELETED" => Ok(readable(object).map(Event::Gone).or_else(|| unreadable(object, true))),
        "BOOKMARK" => {
            let object: Object = serde_json::from_str(object).map_err(malformed)?;
            Ok(Some(Event::Bookmark {
                initial_events_end: object.meta.annotations.get(INITIAL_EVENTS_END) == Some("true"),
                version: object.meta.resource_version,
            }))
        }
        "ERROR" => {
            let code = serde_json::from_str::<Status>(object).map_err(malformed)?.code;
            Ok(Some(Event::Error(Status::read(code, None, object.as_bytes()))))
        }
        other => Err(CallError::Malformed { cause: format!("an event of type {other}") }),
    }
}

fn unreadable(object: &str, gone: bool) -> Option<Event> {
    let (namespace, name) = name_of(object)?;
    Some(Event::Unreadable { namespace, name, gone })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(text: &str) -> Vec<String> {
        let mut events = Events::new(Body::from(text.as_bytes().to_vec()));
        let mut seen = Vec::new();
        while let Some(event) = events.next().await {
            seen.push(match event {
                Ok(Event::Put(object)) => format!("put {}", object.meta.name),
                Ok(Event::Gone(object)) => format!("gone {}", object.meta.name),
                Ok(Event::Bookmark { version, initial_events_end }) => {
                    format!("bookmark {version} {initial_events_end}")
                }
                Ok(Event::Unreadable { name, gone, .. }) => format!("unreadable {name} {gone}"),
                Ok(Event::Error(status)) => format!("error {}", status.code),
                Err(error) => error.to_string(),
            });
        }
        seen
    }

    #[tokio::test]
    async fn every_kind_of_line_is_understood() {
        let text = concat!(
            r#"{"type":"ADDED","object":{"metadata":{"name":"a"},"spec":{"x":1}}}"#,
            "\n\n",
            r#"{"type":"MODIFIED","object":{"metadata":{"name":"poisoned","labels":[]}}}"#,
            "\n",
            r#"{"type":"DELETED","object":{"metadata":{"name":"b"}}}"#,
            "\n",
            r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
            "\n",
            r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#,
            "\n",
            r#"{"type":"ADDED","object":{"metadata":{"name":"cut o"#,
        );
        assert_eq!(
            all(text).await,
            ["put a", "unreadable poisoned false", "gone b", "bookmark 7 true", "error 410"],
            "half a line is no event"
        );
    }

    #[tokio::test]
    async fn nonsense_is_an_error_and_not_a_panic() {
        for text in ["{}\n", "nonsense\n", "[1]\n", "{\"type\":\"NEW\",\"object\":{}}\n", "\u{0}\n"] {
            let seen = all(text).await;
            assert!(seen.len() == 1 && seen[0].starts_with("not understood"), "{text:?}: {seen:?}");
        }
    }

    const GOOD: &str = r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"7","labels":{"b":"c"}},"spec":{"d":[1,null]}}}"#;

    fn all_of(bytes: Vec<u8>) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut events = Events::new(Body::from(bytes));
            let mut seen = 0;
            while events.next().await.is_some() {
                seen += 1;
            }
            seen
        })
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_end_the_process(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            let lines = bytes.split(|byte| *byte == b'\n').count() - 1;
            proptest::prop_assert!(all_of(bytes) <= lines);
        }

        #[test]
        fn a_mutilated_line_is_at_most_one_event(at in 0..GOOD.len(), length in 0..80_usize, put in "[ -~]{0,6}", kind in 0..4_usize) {
            let mut text = GOOD.replace("MODIFIED", ["ADDED", "DELETED", "BOOKMARK", "ERROR"][kind]).into_bytes();
            let at = at.min(text.len());
            let end = (at + length).min(text.len());
            text.splice(at..end, put.into_bytes());
            text.push(b'\n');
            proptest::prop_assert!(all_of(text) <= 1);
        }
    }
}

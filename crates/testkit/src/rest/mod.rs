//! From a request to an answer.
//!
//! Deliberately absent: HTTP and time passing. A request is answered at once; a watch is answered with
//! what to watch, and [`watch`] lets it run.

pub(crate) mod body;
pub(crate) mod delete;
mod eviction;
pub(crate) mod patching;
pub(crate) mod read;
pub(crate) mod refusal;
pub(crate) mod request;
pub(crate) mod review;
pub(crate) mod rights;
pub(crate) mod subresource;
mod token;
pub(crate) mod watch;
pub(crate) mod write;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use self::request::{Place, Request};
use crate::discovery;
use crate::kinds::Kind;
use crate::server::State;
use crate::status::{Failure, Result};
use crate::store::{Key, Shared};

/// What is answered.
pub(crate) enum Answer {
    Bytes(u16, Bytes),
    Value(u16, Value),
    /// Not even a status object.
    Text(u16, &'static str),
    Watch(Box<watch::Watch>),
}

/// A request for a resource that is served.
pub(crate) struct Call<'r> {
    pub(crate) request: &'r Request,
    pub(crate) kind: Arc<Kind>,
    pub(crate) place: Place,
    pub(crate) actor: Arc<str>,
}

impl Call<'_> {
    pub(crate) fn key(&self) -> Key {
        Key::new(self.kind.id, &self.place.namespace, &self.place.name)
    }

    pub(crate) fn not_found(&self) -> Failure {
        Failure::not_found(&self.kind, &self.place.name)
    }

    /// Who is noted as the writer of fields.
    pub(crate) fn manager(&self) -> String {
        match self.request.query.get("fieldManager") {
            Some(manager) => manager.to_owned(),
            None => self.request.user_agent.split('/').next().unwrap_or_default().to_owned(),
        }
    }
}

/// Answers a request.
pub(crate) fn answer(state: &mut State, request: &Request) -> Answer {
    match dispatch(state, request) {
        Ok(answer) => answer,
        Err(failure) => Answer::Value(failure.code, failure.to_value()),
    }
}

fn dispatch(state: &mut State, request: &Request) -> Result<Answer> {
    let Some(place) = Place::parse(&request.path) else {
        return discovery::answer(state, request);
    };
    if let Some(answer) = review::answer(state, request, &place)? {
        return Ok(answer);
    }
    let Some(kind) = state.kinds.get(&place.group, &place.plural).cloned() else {
        let known = state.kinds.all().any(|kind| kind.group == place.group && kind.version == place.version);
        return if known { Err(not_served()) } else { Ok(Answer::Text(404, NOT_FOUND)) };
    };
    if kind.version != place.version || (!place.namespace.is_empty() && !kind.namespaced) {
        return Err(not_served());
    }
    let call = Call { request, kind, place, actor: request.actor.as_str().into() };
    let verb = verb(&call)?;
    rights::authorize(state, &call, verb)?;
    if !call.place.subresource.is_empty() {
        return subresource::answer(state, &call, verb);
    }
    match verb {
        "get" => read::get(state, &call),
        "list" => read::list(state, &call),
        "watch" => refusal::check(state, &call, "watch", "")
            .and_then(|()| watch::start(state, &call))
            .map(|watch| Answer::Watch(Box::new(watch))),
        "create" => write::create(state, &call).map(|object| shown(&call, 201, &object)),
        "update" => write::update(state, &call).map(|(code, object)| shown(&call, code, &object)),
        "patch" => patching::patch(state, &call).map(|(code, object)| shown(&call, code, &object)),
        "delete" => delete::delete(state, &call),
        _ => delete::collection(state, &call),
    }
}

/// What is said where no group answers.
pub(crate) const NOT_FOUND: &str = "404 page not found\n";

/// What a group says of a resource that it does not have.
pub(crate) fn not_served() -> Failure {
    Failure::no_path()
}

fn verb(call: &Call<'_>) -> Result<&'static str> {
    let named = !call.place.name.is_empty();
    match (call.request.method.as_str(), named) {
        ("GET", false) if call.request.query.flag("watch") => Ok("watch"),
        ("GET", true) if call.request.query.flag("watch") && call.place.subresource.is_empty() => Ok("get"),
        ("GET", true) => Ok("get"),
        ("GET", false) => Ok("list"),
        ("POST", _) if named == call.place.subresource.is_empty() => Err(Failure::method_not_allowed()),
        ("POST", _) if !named && call.kind.namespaced && call.place.namespace.is_empty() => {
            Err(Failure::method_not_allowed())
        }
        ("POST", _) => Ok("create"),
        ("PUT", true) => Ok("update"),
        ("PATCH", true) => Ok("patch"),
        ("DELETE", true) => Ok("delete"),
        ("DELETE", false) if !call.kind.namespaced || !call.place.namespace.is_empty() => {
            if call.kind.is("Namespace") {
                Err(Failure::method_not_allowed())
            } else {
                Ok("deletecollection")
            }
        }
        _ => Err(Failure::method_not_allowed()),
    }
}

/// An object as the caller wants to see it.
pub(crate) fn shown(call: &Call<'_>, code: u16, object: &Shared) -> Answer {
    if wants_metadata(&call.request.accept, "PartialObjectMetadata") {
        return Answer::Value(code, partial(&object.value));
    }
    Answer::Bytes(code, object.bytes().clone())
}

/// Whether the caller asked for metadata only.
pub(crate) fn wants_metadata(accept: &str, what: &str) -> bool {
    accept
        .split(',')
        .next()
        .is_some_and(|first| first.split(';').any(|part| part.trim() == format!("as={what}")))
}

/// Metadata only.
pub(crate) fn partial(object: &Value) -> Value {
    serde_json::json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

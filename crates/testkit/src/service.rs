//! The server as a `tower` service, which is all that kube's client needs.
//!
//! Deliberately absent: delays and failures. Wrap it in a layer for those.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use tower::{BoxError, Service};

use crate::rest::Answer;
use crate::rest::request::{Query, Request};
use crate::server::ApiServer;

/// The body of an answer: whole, or the lines of a watch.
pub type SimBody = UnsyncBoxBody<Bytes, BoxError>;

/// The server as one actor reaches it.
#[derive(Clone, Debug)]
pub struct SimService {
    server: ApiServer,
    actor: String,
}

impl SimService {
    pub(crate) fn new(server: ApiServer, actor: &str) -> Self {
        Self { server, actor: actor.to_owned() }
    }

    fn answer(&self, request: &Request) -> http::Response<SimBody> {
        let (code, body) = match self.server.answer(request) {
            Answer::Bytes(code, bytes) => (code, whole(bytes)),
            Answer::Value(code, value) => {
                (code, whole(serde_json::to_vec(&value).unwrap_or_default().into()))
            }
            Answer::Text(code, text) => (code, whole(text.into())),
            Answer::Watch(watch) => {
                let server = self.server.clone();
                let lines = stream::unfold((watch, server), |(mut watch, server)| async move {
                    let line = watch.next(&server).await?;
                    Some((Ok::<_, BoxError>(Frame::data(line)), (watch, server)))
                });
                (200, StreamBody::new(lines).boxed_unsync())
            }
        };
        let mut response = http::Response::new(body);
        *response.status_mut() =
            http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        response
    }
}

fn whole(bytes: Bytes) -> SimBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

impl Service<http::Request<Body>> for SimService {
    type Response = http::Response<SimBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let header = |name| {
                parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
            };
            let request = Request {
                actor: service.actor.clone(),
                method: parts.method.as_str().to_owned(),
                path: parts.uri.path().to_owned(),
                query: Query::parse(parts.uri.query().unwrap_or_default()),
                accept: header(ACCEPT),
                content_type: header(CONTENT_TYPE),
                // Without a name of its own, a client is known by its actor.
                user_agent: Some(header(USER_AGENT))
                    .filter(|agent| !agent.is_empty())
                    .unwrap_or_else(|| service.actor.clone()),
                body: body.collect().await?.to_bytes(),
            };
            Ok(service.answer(&request))
        })
    }
}

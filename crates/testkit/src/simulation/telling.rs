//! A service that tells of its answers: who has to know when a controller heard what.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Service};

/// A request that was answered.
#[derive(Debug)]
pub struct Answered<'a> {
    /// When it was sent.
    pub asked_at: Instant,
    /// How.
    pub method: &'a Method,
    /// Where to, without the query.
    pub path: &'a str,
    /// What more was asked for, as it was sent.
    pub query: &'a str,
    /// What came of it.
    pub status: StatusCode,
}

/// See the module.
#[derive(Clone)]
pub(super) struct Telling<S, T> {
    inner: S,
    tell: T,
}

impl<S, T> Telling<S, T> {
    pub(super) fn new(inner: S, tell: T) -> Self {
        Self { inner, tell }
    }
}

impl<S, T, B> Service<Request<Body>> for Telling<S, T>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    T: Fn(&Answered<'_>) + Clone + Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (asked_at, method, uri) = (Instant::now(), request.method().clone(), request.uri().clone());
        let (answer, tell) = (self.inner.call(request), self.tell.clone());
        Box::pin(async move {
            let answer = answer.await?;
            let (path, query) = (uri.path(), uri.query().unwrap_or_default());
            tell(&Answered { asked_at, method: &method, path, query, status: answer.status() });
            Ok(answer)
        })
    }
}

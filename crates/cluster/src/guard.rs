//! The last moment at which a write can be held back.
//!
//! Between the question whether this process leads and the first byte on the wire, a connection may have to be opened. A process that
//! is stopped just there goes on when someone else leads, and would send what is out of date. So it is asked once more when the
//! connection takes the body of the request: all that follows is encrypting it and one call to the kernel.
//!
//! That needs a body which can refuse. The one of `kube` cannot, so the client beneath gets this one.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use http_body::{Frame, SizeHint};
use kube::client::Body;
use tower::BoxError;

use crate::leader::Leadership;

/// Goes with a request, as an extension: it is sent while this leads, or not at all.
#[derive(Clone)]
pub(crate) struct WhileLeading {
    leadership: Leadership,
    held_back: Arc<AtomicBool>,
}

impl WhileLeading {
    pub(crate) fn new(leadership: Leadership) -> Self {
        Self { leadership, held_back: Arc::default() }
    }

    /// Whether the request was held back: then no server has seen the whole of it.
    pub(crate) fn held_back(&self) -> bool {
        self.held_back.load(Ordering::Relaxed)
    }
}

/// A body that is given away only while this process leads, where that was asked for.
pub(crate) struct Guarded {
    body: Body,
    only: Option<WhileLeading>,
}

impl Guarded {
    /// The request with its body guarded as its extension says.
    pub(crate) fn request(request: Request<Body>) -> Request<Self> {
        let only = request.extensions().get::<WhileLeading>().cloned();
        request.map(|body| Self { body, only })
    }
}

impl http_body::Body for Guarded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(WhileLeading { leadership, held_back }) = &self.only
            && !leadership.holds()
        {
            held_back.store(true, Ordering::Relaxed);
            return Poll::Ready(Some(Err("this process does not lead any more".into())));
        }
        Pin::new(&mut self.body).poll_frame(context).map_err(BoxError::from)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use hyper_util::client::legacy;
    use hyper_util::client::legacy::connect::HttpConnector;
    use hyper_util::rt::TokioExecutor;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;
    use tower::ServiceExt as _;

    use super::*;

    /// Sends a write to a server that notes what it hears; the lead is lost while the connection is opened, or not at all.
    async fn heard(loses_lead: bool) -> (String, bool) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let leadership = Leadership::always();
        let ends = leadership.clone();
        let connector = HttpConnector::new().map_request(move |address| {
            if loses_lead {
                ends.end();
            }
            address
        });
        let client = legacy::Client::builder(TokioExecutor::new()).build(connector);
        let only = WhileLeading::new(leadership);
        let request = Request::post(format!("http://{address}/writes"))
            .extension(only.clone())
            .body(Body::from(b"what was planned".to_vec()))
            .unwrap();
        let call = tokio::spawn(client.request(Guarded::request(request)));
        let (mut server, _) = listener.accept().await.unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"what was planned") && server.read_buf(&mut heard).await.unwrap() > 0 {}
        drop(server);
        assert!(call.await.unwrap().is_err(), "the server answers nothing");
        (String::from_utf8(heard).unwrap(), only.held_back())
    }

    #[tokio::test]
    async fn a_write_leaves_while_this_process_leads() {
        let (text, held_back) = heard(false).await;
        assert!(text.starts_with("POST /writes") && text.ends_with("what was planned"), "{text}");
        assert!(!held_back);
    }

    #[tokio::test]
    async fn a_lead_that_is_lost_while_the_connection_is_opened_costs_the_write() {
        assert_eq!(heard(true).await, (String::new(), true));
    }
}

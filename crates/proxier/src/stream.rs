//! Streams that last: how many there may be, when they count as forgotten, and how they end with us.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kubeocean_model::kubelet::Refusal;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// As kubelets have it.
pub(crate) const IDLE: Duration = Duration::from_secs(4 * 3600);

/// One direction of one stream. Both, the buffers of two TLS connections and of two HTTP connections are below 64 KiB.
const BUFFER: usize = 8 << 10;

/// The body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, Broken>;

/// A body that ended before it was complete: whoever reads it must not take it for all there is.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Broken(String);

/// A body that is there.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A piece of a long answer: enough for a call to the kernel.
const PIECE: usize = 64 << 10;

/// A body that is there, given piece by piece, and something that is held for as long as it takes memory.
pub(crate) fn whole_with<T: Send + 'static>(bytes: Bytes, held: T) -> Body {
    Whole { left: bytes, _held: held }.boxed_unsync()
}

struct Whole<T> {
    left: Bytes,
    _held: T,
}

// What is held is not looked at.
impl<T> Unpin for Whole<T> {}

impl<T> http_body::Body for Whole<T> {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let length = self.left.len().min(PIECE);
        let piece = self.left.split_to(length);
        Poll::Ready((length > 0).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(u64::try_from(self.left.len()).unwrap_or(u64::MAX))
    }
}

/// How many streams there may be at a time. Clones are the same.
#[derive(Clone)]
pub(crate) struct Streams {
    all: Arc<Semaphore>,
    most: usize,
    per_node: usize,
    nodes: Arc<Mutex<BTreeMap<Arc<str>, Arc<Semaphore>>>>,
}

/// The place of one stream, for as long as it is held.
#[derive(Debug)]
pub(crate) struct Place {
    _of_all: OwnedSemaphorePermit,
    _of_node: OwnedSemaphorePermit,
    /// Whoever waits for what is under way waits for it.
    _counted: TaskTrackerToken,
}

impl Streams {
    pub(crate) fn new(most: usize, per_node: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(most)), most, per_node, nodes: Arc::default() }
    }

    /// A place, counted among these tasks; or who has them all.
    pub(crate) fn take(&self, vnode: &Arc<str>, tasks: &TaskTracker) -> Result<Place, Refusal> {
        let of_node = {
            let mut nodes = self.nodes.lock();
            // What nobody holds a place of is not kept.
            nodes.retain(|_, places| places.available_permits() < self.per_node);
            let places =
                nodes.entry(Arc::clone(vnode)).or_insert_with(|| Arc::new(Semaphore::new(self.per_node)));
            Arc::clone(places).try_acquire_owned()
        };
        let of_node = of_node.map_err(|_| {
            Refusal::new(
                429,
                format!(
                    "node {vnode} has {} streams, and may not have more: end some, or try later",
                    self.per_node
                ),
            )
        })?;
        let of_all = Arc::clone(&self.all).try_acquire_owned().map_err(|_| {
            Refusal::new(
                429,
                format!(
                    "this proxier has {} streams, and may not have more: end some, or try later",
                    self.most
                ),
            )
        })?;
        Ok(Place { _of_all: of_all, _of_node: of_node, _counted: tasks.token() })
    }

    /// How many there are of some virtual nodes.
    pub(crate) fn count_of(&self, is_one: impl Fn(&str) -> bool) -> usize {
        let nodes = self.nodes.lock();
        let of = nodes.iter().filter(|(vnode, _)| is_one(vnode));
        of.map(|(_, places)| self.per_node.saturating_sub(places.available_permits())).sum()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.most.saturating_sub(self.all.available_permits())
    }
}

/// The body of the worker cluster's answer, passed on as it comes. Who stops reading stops the worker; who is gone ends it.
pub(crate) fn passed_on(body: kube::client::Body, place: Place, ends: CancellationToken) -> Body {
    let frames = futures::stream::unfold(Some((BodyStream::new(body), place, ends)), |left| async move {
        let (mut frames, place, ends) = left?;
        let next = tokio::time::timeout(IDLE, frames.next());
        match ends.run_until_cancelled(next).await {
            Some(Ok(Some(Ok(frame)))) => Some((Ok(frame), Some((frames, place, ends)))),
            Some(Ok(None)) => None,
            Some(Ok(Some(Err(error)))) => Some((Err(Broken(error.to_string())), None)),
            Some(Err(_)) => Some((Err(Broken("nothing was said for too long".to_owned())), None)),
            None => Some((Err(Broken("it was ended here".to_owned())), None)),
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

/// When something was last heard on a stream, in either direction.
#[derive(Clone)]
struct Heard(Arc<Mutex<Instant>>);

impl Heard {
    fn now() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    /// Waits until nothing was heard for too long.
    async fn silence(&self, limit: Duration) {
        loop {
            let until = *self.0.lock() + limit;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

/// One end of a stream: notes when something comes.
struct Listened {
    end: TokioIo<Upgraded>,
    heard: Heard,
}

impl AsyncRead for Listened {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.end).poll_read(context, buffer);
        if read.is_ready() {
            *self.heard.0.lock() = Instant::now();
        }
        read
    }
}

impl AsyncWrite for Listened {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.end).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.end).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.end).poll_shutdown(context)
    }
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Both sides were through, or one broke off.
    Done { received: u64, sent: u64 },
    /// One side broke off.
    Broken,
    /// Nothing was heard for too long.
    Idle,
    /// This process ends, or the worker cluster is another one.
    Stopped,
}

/// Carries bytes both ways, until both sides are through. A side that has said all may still listen.
pub(crate) async fn carry(caller: Upgraded, worker: Upgraded, ends: &CancellationToken) -> End {
    let heard = Heard::now();
    let listened = |end: Upgraded| Listened { end: TokioIo::new(end), heard: heard.clone() };
    let (mut caller, mut worker) = (listened(caller), listened(worker));
    let copied = tokio::io::copy_bidirectional_with_sizes(&mut caller, &mut worker, BUFFER, BUFFER);
    tokio::select! {
        copied = copied => match copied {
            Ok((received, sent)) => End::Done { received, sent },
            Err(_) => End::Broken,
        },
        () = heard.silence(IDLE) => End::Idle,
        () = ends.cancelled() => End::Stopped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_with_too_many_streams_costs_the_others_nothing() {
        let (streams, tasks) = (Streams::new(3, 2), TaskTracker::new());
        let (one, other): (Arc<str>, Arc<str>) = ("n1".into(), "n2".into());
        let first = streams.take(&one, &tasks).unwrap();
        let second = streams.take(&one, &tasks).unwrap();
        let refused = streams.take(&one, &tasks).unwrap_err();
        assert!(refused.code == 429 && refused.message.contains("node n1 has 2 streams"), "{refused}");
        let third = streams.take(&other, &tasks).unwrap();
        assert!(streams.take(&other, &tasks).unwrap_err().message.contains("this proxier has 3 streams"));
        assert_eq!(streams.count(), 3);
        drop((first, third));
        streams.take(&one, &tasks).unwrap();
        drop(second);
        assert_eq!(streams.count(), 0);
    }
}

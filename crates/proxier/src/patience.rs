//! A connection whose other end does not take what is written to it: for how long that is borne.
//!
//! A timer inside of what is written does not run while nothing can be written. This one does.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long nothing may be taken. Clones are the same, and it may change while a connection lives: a reader of a log that is followed may pause for hours, one of
/// an answer that is held in memory may not.
#[derive(Clone)]
pub(crate) struct Patience(Arc<Mutex<Duration>>);

impl Patience {
    pub(crate) fn new(limit: Duration) -> Self {
        Self(Arc::new(Mutex::new(limit)))
    }

    pub(crate) fn set(&self, limit: Duration) {
        *self.0.lock() = limit;
    }
}

/// A connection that ends when its patience does.
pub(crate) struct Patient<S> {
    end: S,
    patience: Patience,
    /// Since when nothing was taken, with the patience of that moment.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(crate) fn new(end: S, patience: Patience) -> Self {
        Self { end, patience, stuck: None }
    }

    fn judge<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let patience = &self.patience;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep(*patience.0.lock())));
        match stuck.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the other end does not take what is written",
            ))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.end).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.end).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.end).poll_flush(context);
        self.judge(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.end).poll_shutdown(context);
        self.judge(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_left_and_a_slow_one_is_not() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = Patient::new(near, Patience::new(MINUTE));
        let slow = async {
            let mut piece = [0; 16];
            for _ in 0..4 {
                tokio::time::sleep(MINUTE / 2).await;
                far.read_exact(&mut piece).await.unwrap();
            }
            far
        };
        let (written, _far) = tokio::join!(near.write_all(&[0; 64]), slow);
        written.unwrap();
        near.write_all(&[0; 16]).await.unwrap();
        let start = tokio::time::Instant::now();
        let error = near.write_all(&[0; 16]).await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed().as_secs()), (io::ErrorKind::TimedOut, 60));
    }
}

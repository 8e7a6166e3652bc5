//! Ctrl-C, `kill`, and a terminal that closes: heard from the first moment on, and never lost.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Whether someone wants us to end. Made once, before anything is started; asked as often as needed.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// Listens from now on.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let (tell, told) = watch::channel(false);
        tokio::spawn(async move {
            loop {
                tokio::select! { _ = interrupt.recv() => (), _ = terminate.recv() => (), _ = hangup.recv() => () }
                // A second Ctrl-C finds us ending already.
                tell.send_replace(true);
            }
        });
        Ok(Self(told))
    }

    /// Completes when someone wants us to end, also if that was before the call.
    pub(crate) async fn wait(&self) {
        let mut told = self.0.clone();
        // The sender lives as long as the runtime.
        if told.wait_for(|interrupted| *interrupted).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

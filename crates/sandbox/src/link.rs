//! A link that can be cut: a relay between a component and an API server.
//!
//! A component that is given a link's kubeconfig reaches its cluster only through it. Cutting the link
//! is the network failing, with the API server in good health.

use std::net::{Ipv4Addr, SocketAddr};

use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::error::{Error, io_error};

/// How a link behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Whole,
    Silent,
    Reset,
}

/// A way to one API server. Dropping it ends the relay and its connections.
#[derive(Debug)]
pub struct Link {
    mode: watch::Sender<Mode>,
    kubeconfig: String,
}

impl Link {
    /// A kubeconfig, with full access, that leads through this link.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Bytes stop without a word, as when a router fails: connections stay open and nothing arrives.
    /// After [`Self::heal`] they go on, as TCP does.
    pub fn cut_silently(&self) {
        self.mode.send_replace(Mode::Silent);
    }

    /// Connections end, and new ones are closed at once, as when a load balancer lost its backend.
    pub fn cut_with_reset(&self) {
        self.mode.send_replace(Mode::Reset);
    }

    /// The link works again.
    pub fn heal(&self) {
        self.mode.send_replace(Mode::Whole);
    }
}

/// An open relay, before it knows the kubeconfig that leads to it.
pub(crate) struct Relay {
    mode: watch::Sender<Mode>,
    pub(crate) address: SocketAddr,
}

impl Relay {
    /// Listens on loopback and relays to `target`. Runs on the sandbox's own runtime.
    pub(crate) async fn open(target: SocketAddr) -> Result<Self, Error> {
        let failed = || io_error("opening a link to", std::path::Path::new("the API server"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed())?;
        let address = listener.local_addr().map_err(failed())?;
        let (mode, watched) = watch::channel(Mode::Whole);
        tokio::spawn(accept(listener, target, watched));
        Ok(Self { mode, address })
    }

    pub(crate) fn into_link(self, kubeconfig: String) -> Link {
        Link { mode: self.mode, kubeconfig }
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, mut mode: watch::Receiver<Mode>) {
    loop {
        let incoming = tokio::select! {
            incoming = listener.accept() => incoming,
            // The link was dropped.
            () = gone(&mut mode) => return,
        };
        let Ok((client, _)) = incoming else { continue };
        if *mode.borrow() != Mode::Reset {
            tokio::spawn(relay(client, target, mode.clone()));
        }
    }
}

async fn gone(mode: &mut watch::Receiver<Mode>) {
    while mode.changed().await.is_ok() {}
}

async fn relay(client: TcpStream, target: SocketAddr, mut mode: watch::Receiver<Mode>) {
    // Towards a silent link, a connection is established and then hears nothing.
    if until_whole(&mut mode).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(target).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut forth: BoxFuture<'_, Result<(), Cut>> = Box::pin(copy(from_client, to_server, mode.clone()));
    let mut back: BoxFuture<'_, Result<(), Cut>> = Box::pin(copy(from_server, to_client, mode));
    // A half that ended well (half-close) leaves the other half running; one that was cut ends both.
    let rest = tokio::select! {
        end = &mut forth => end.map(|()| back),
        end = &mut back => end.map(|()| forth),
    };
    if let Ok(rest) = rest {
        let _ = rest.await;
    }
}

/// The link was reset or dropped.
struct Cut;

async fn until_whole(mode: &mut watch::Receiver<Mode>) -> Result<(), Cut> {
    match mode.wait_for(|mode| *mode != Mode::Silent).await {
        Ok(mode) if *mode == Mode::Whole => Ok(()),
        _ => Err(Cut),
    }
}

async fn copy(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut mode: watch::Receiver<Mode>,
) -> Result<(), Cut> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        until_whole(&mut mode).await?;
        let read = tokio::select! {
            read = from.read(&mut buffer) => read.map_err(|_| Cut)?,
            changed = mode.changed() => { changed.map_err(|_| Cut)?; continue }
        };
        // What arrived while the link was being cut is held back, not lost.
        until_whole(&mut mode).await?;
        if read == 0 {
            return to.shutdown().await.map_err(|_| Cut);
        }
        to.write_all(&buffer[..read]).await.map_err(|_| Cut)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("binds");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        address
    }

    async fn round_trip(stream: &mut TcpStream, byte: u8) -> std::io::Result<u8> {
        stream.write_all(&[byte]).await?;
        stream.read_u8().await
    }

    #[tokio::test]
    async fn a_silent_cut_holds_bytes_back_and_a_healed_link_delivers_them() {
        let relay = Relay::open(echo().await).await.expect("opens");
        let address = relay.address;
        let link = relay.into_link(String::new());
        let mut stream = TcpStream::connect(address).await.expect("connects");
        assert_eq!(round_trip(&mut stream, 1).await.expect("whole"), 1);
        link.cut_silently();
        let answer = tokio::time::timeout(Duration::from_millis(200), round_trip(&mut stream, 2)).await;
        assert!(answer.is_err(), "a cut link answered");
        link.heal();
        assert_eq!(stream.read_u8().await.expect("healed"), 2);
    }

    #[tokio::test]
    async fn a_reset_ends_connections_and_a_healed_link_takes_new_ones() {
        let relay = Relay::open(echo().await).await.expect("opens");
        let address = relay.address;
        let link = relay.into_link(String::new());
        let mut stream = TcpStream::connect(address).await.expect("connects");
        assert_eq!(round_trip(&mut stream, 1).await.expect("whole"), 1);
        link.cut_with_reset();
        assert!(round_trip(&mut stream, 2).await.is_err());
        let mut late = TcpStream::connect(address).await.expect("accepted, then closed");
        assert!(round_trip(&mut late, 3).await.is_err());
        link.heal();
        let mut stream = TcpStream::connect(address).await.expect("connects");
        assert_eq!(round_trip(&mut stream, 4).await.expect("healed"), 4);
    }
}

//! One connection after the other: taken, guarded against those who only want to hold it, and answered.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kubeocean_cluster::dial::{ASKED_AFTER, ASKED_AT_MOST, ASKED_EVERY};
use parking_lot::Mutex;
use rustls::ServerConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::desk::{ANSWER_TAKEN_WITHIN, Desk, Door, Peer};
use crate::house::Stranger;
use crate::patience::{Patience, Patient};
use crate::tell::Line;

/// Two round trips, also around the world.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// From the connection, or from the answer before, to the last header. A scraper's connection is idle for as long as its interval, mostly 15
/// or 30 s, and is opened again beyond.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);

/// A command of 64 KiB, which is the longest address there may be, and 32 KiB of headers.
const LONGEST_HEAD: usize = 96 << 10;

/// So many more are told that there are too many; the others are closed.
const TOLD_SO: usize = 64;

/// For an accept that fails: for want of file descriptors, which other connections will give back.
const AFTER_ACCEPT_ERROR: Duration = Duration::from_millis(100);

/// The first byte of every handshake.
const HANDSHAKE: u8 = 22;

/// As the servers that we stand in for say it.
const PLAIN: &[u8] = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
    Client sent an HTTP request to an HTTPS server.\n";

/// Takes connections, until told to stop. Those that are there go on.
pub(crate) async fn accept(
    desk: Arc<Desk>,
    door: Door,
    listener: TcpListener,
    config: Arc<ServerConfig>,
    stop: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(config);
    let house = &desk.house;
    let places = Arc::new(Semaphore::new(house.caps.connections_per_node));
    // Those that came by the shared door are nobody's, and outlive the one that let them in.
    let tasks = match door {
        Door::Node(_) => &desk.tasks,
        Door::Shared => &house.visitors,
    };
    let told_so = Arc::new(Semaphore::new(TOLD_SO));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                tokio::time::sleep(AFTER_ACCEPT_ERROR).await;
                continue;
            }
        };
        let of_all = Arc::clone(&house.connections).try_acquire_owned();
        let of_node = Arc::clone(&places).try_acquire_owned();
        let (held, stranger) = match (of_all, of_node, house.strangers.meet(address)) {
            (Ok(of_all), Ok(of_node), Some(stranger)) => (vec![of_all, of_node], Some(stranger)),
            _ => match Arc::clone(&told_so).try_acquire_owned() {
                Ok(held) => (vec![held], None),
                Err(_) => continue,
            },
        };
        let conversation = Conversation {
            desk: Arc::clone(&desk),
            door: door.clone(),
            address,
            is_too_much: stranger.is_none(),
            stranger: Arc::new(Mutex::new(stranger)),
            until: stop.clone(),
        };
        let acceptor = acceptor.clone();
        tasks.spawn(async move {
            let _held = held;
            conversation.hold(acceptor, stream).await;
        });
    }
}

/// Whether the machine at the other end still is there is asked while nothing is said. What cannot be set is the system's affair.
fn prepare(stream: &TcpStream) {
    // What is typed should arrive as it is typed.
    drop(stream.set_nodelay(true));
    let keepalive = TcpKeepalive::new().with_time(ASKED_AFTER).with_interval(ASKED_EVERY);
    drop(SockRef::from(stream).set_tcp_keepalive(&keepalive.with_retries(ASKED_AT_MOST)));
}

/// One connection.
struct Conversation {
    desk: Arc<Desk>,
    door: Door,
    address: SocketAddr,
    is_too_much: bool,
    stranger: Arc<Mutex<Option<Stranger>>>,
    /// The port is another's from then on, or nobody's.
    until: CancellationToken,
}

impl Conversation {
    /// From its first byte to its last.
    async fn hold(self, acceptor: TlsAcceptor, stream: TcpStream) {
        prepare(&stream);
        let shaken = tokio::time::timeout(HANDSHAKE_WITHIN, self.shake_hands(acceptor, stream));
        let Ok(Some(stream)) = shaken.await else { return };
        let Self { desk, door, address, is_too_much, stranger, until } = self;
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let chain = certificates.iter().map(|one| one.clone().into_owned()).collect();
        let patience = Patience::new(ANSWER_TAKEN_WITHIN);
        let stream = TokioIo::new(Patient::new(stream, patience.clone()));
        let peer = Peer { address, chain, is_too_much, stranger, patience, until: until.clone() };
        // Streams of others may have come by the shared door; each desk ends its own.
        let ends = match door {
            Door::Node(_) => desk.ends.clone(),
            Door::Shared => CancellationToken::new(),
        };
        let service = service_fn(move |request| {
            let answer = Arc::clone(&desk).answer(door.clone(), peer.clone(), request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS_WITHIN)
            .max_buf_size(LONGEST_HEAD)
            .keep_alive(!is_too_much)
            .serve_connection(stream, service)
            .with_upgrades();
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            // What is under way goes on; nothing follows it.
            () = until.cancelled() => {
                connection.as_mut().graceful_shutdown();
                ends.run_until_cancelled(connection.as_mut()).await
            }
        };
        if let Some(Err(error)) = ended {
            tracing::debug!(%error, %address, "a connection broke");
        }
    }

    /// The handshake. Whoever speaks plainly is told so, and not listened to.
    async fn shake_hands(
        &self,
        acceptor: TlsAcceptor,
        mut stream: TcpStream,
    ) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
        let mut first = [0];
        if stream.peek(&mut first).await.ok()? == 0 {
            return None;
        }
        if first != [HANDSHAKE] {
            self.line().tell(400, Some("plain HTTP, or no HTTP at all: only https is spoken here"));
            drop(stream.write_all(PLAIN).await);
            drop(stream.shutdown().await);
            return None;
        }
        match acceptor.accept(stream).await {
            Ok(stream) => Some(stream),
            Err(error) => {
                tracing::debug!(%error, address = %self.address, "a handshake failed");
                None
            }
        }
    }

    fn line(&self) -> Line {
        Line {
            binding: self.desk.world.subject.binding.name.as_str().into(),
            method: String::new(),
            path: String::new(),
            peer: self.address.to_string(),
            caller: None,
            vnode: match &self.door {
                Door::Node(vnode) => Some(Arc::clone(vnode)),
                Door::Shared => None,
            },
            route: None,
            protocol: None,
        }
    }
}

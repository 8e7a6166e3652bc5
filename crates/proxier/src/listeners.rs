//! The ports of virtual nodes: opened and closed as nodes come and go, and guarded against those who only want to hold them.
//!
//! Every replica listens for every virtual node of the binding. Which replica a node names as its address is the syncer's choice, and one
//! that changes it finds the port open.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kubeocean_model::naming::Port;
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::conflicts::Conflicts;
use crate::desk::{Desk, Door, Peer};
use crate::tell::Line;

/// Two round trips, also around the world.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// From the connection, or from the answer before, to the last header. A scraper's connection is idle for as long as its interval, mostly 15
/// or 30 s, and is opened again beyond.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);

/// A command of 64 KiB, which is the longest address there may be, and 32 KiB of headers.
const LONGEST_HEAD: usize = 96 << 10;

/// Connections to one virtual node: its streams, and those who come and go.
const CONNECTIONS_PER_NODE: usize = 2048;

/// So many more are told that there are too many; the others are closed.
const TOLD_SO: usize = 64;

/// A port that is taken may be another program's for a moment: that of a connection that it opened.
const TAKEN_FOR: Duration = Duration::from_secs(10);

/// How soon what could not be bound is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// For an accept that fails: for want of file descriptors, which other connections will give back.
const AFTER_ACCEPT_ERROR: Duration = Duration::from_millis(100);

/// The first byte of every handshake.
const HANDSHAKE: u8 = 22;

/// As the servers that we stand in for say it.
const PLAIN: &[u8] = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
    Client sent an HTTP request to an HTTPS server.\n";

/// Opens and closes ports.
pub(crate) struct Listeners {
    pub(crate) desk: Arc<Desk>,
    pub(crate) config: Arc<ServerConfig>,
    /// Where this process is reached.
    pub(crate) address: IpAddr,
    /// The port of all virtual nodes; `None`: there is none.
    pub(crate) shared_port: Option<u16>,
    pub(crate) conflicts: Conflicts,
    pub(crate) trouble: Trouble,
}

/// Which ports cannot be bound, and why. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Trouble(Arc<Mutex<BTreeMap<u16, Taken>>>);

#[derive(Clone)]
struct Taken {
    since: Instant,
    why: String,
    told: bool,
}

impl Trouble {
    /// The port of all virtual nodes is the one that nobody hands out anew.
    pub(crate) fn of(&self, port: u16) -> Result<(), String> {
        match self.0.lock().get(&port) {
            Some(taken) => Err(format!("port {port} cannot be bound: {}", taken.why)),
            None => Ok(()),
        }
    }

    fn note(&self, port: u16, error: &io::Error) -> bool {
        let mut known = self.0.lock();
        let taken = known.entry(port).or_insert_with(|| {
            tracing::warn!(port, %error, "a port cannot be bound");
            Taken { since: Instant::now(), why: String::new(), told: false }
        });
        taken.why = error.to_string();
        let is_news =
            error.kind() == io::ErrorKind::AddrInUse && !taken.told && taken.since.elapsed() >= TAKEN_FOR;
        taken.told |= is_news;
        is_news
    }
}

struct Open {
    vnode: Arc<str>,
    stop: CancellationToken,
}

impl Listeners {
    /// Keeps ports open until told to stop.
    pub(crate) async fn run_until(self, stop: CancellationToken) {
        let mut open: BTreeMap<u16, Open> = BTreeMap::new();
        let mut tasks = JoinSet::new();
        if let Some(port) = self.shared_port {
            tasks.spawn(self.clone_for_door().keep_door(port, stop.child_token()));
        }
        while !stop.is_cancelled() {
            while tasks.try_join_next().is_some() {}
            self.keep_in_step(&mut open, &mut tasks, &stop).await;
            let is_through = self.trouble.0.lock().is_empty();
            let rest = if is_through { Duration::from_secs(60) } else { TRY_AGAIN };
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.desk.world.moved.notified() => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn keep_in_step(
        &self,
        open: &mut BTreeMap<u16, Open>,
        tasks: &mut JoinSet<()>,
        stop: &CancellationToken,
    ) {
        let vnodes = self.desk.world.vnodes.all();
        let wanted: BTreeMap<u16, Arc<str>> = vnodes
            .iter()
            .filter_map(|(key, seen)| Some((seen.port?.number(), Arc::clone(&key.name))))
            .collect();
        open.retain(|port, listener| {
            let is_wanted = wanted.get(port) == Some(&listener.vnode);
            if !is_wanted {
                listener.stop.cancel();
            }
            is_wanted
        });
        let shared = self.shared_port;
        self.trouble.0.lock().retain(|port, _| wanted.contains_key(port) || shared == Some(*port));
        for (port, vnode) in wanted {
            if open.contains_key(&port) {
                continue;
            }
            match bind(self.address, port).await {
                Ok(listener) => {
                    self.trouble.0.lock().remove(&port);
                    tracing::debug!(port, %vnode, "answering for a virtual node");
                    let until = stop.child_token();
                    let (desk, config) = (Arc::clone(&self.desk), Arc::clone(&self.config));
                    let door = Door::Node(Arc::clone(&vnode));
                    tasks.spawn(accept(desk, door, listener, config, until.clone()));
                    open.insert(port, Open { vnode, stop: until });
                }
                Err(error) => {
                    if self.trouble.note(port, &error)
                        && let Some(port) = Port::new(port)
                    {
                        self.conflicts.tell(port).await;
                    }
                }
            }
        }
    }

    fn clone_for_door(&self) -> Self {
        Self {
            desk: Arc::clone(&self.desk),
            config: Arc::clone(&self.config),
            address: self.address,
            shared_port: self.shared_port,
            conflicts: self.conflicts.clone(),
            trouble: self.trouble.clone(),
        }
    }

    /// Listens on the port of all virtual nodes. In a process with several proxiers, one does it for all.
    async fn keep_door(self, port: u16, stop: CancellationToken) {
        let door = Arc::clone(&self.desk.house.door);
        let Some(_held) = stop.run_until_cancelled(door.lock_owned()).await else { return };
        while !stop.is_cancelled() {
            match bind(self.address, port).await {
                Ok(listener) => {
                    self.trouble.0.lock().remove(&port);
                    let (desk, config) = (Arc::clone(&self.desk), Arc::clone(&self.config));
                    accept(desk, Door::Shared, listener, config, stop.clone()).await;
                }
                Err(error) => {
                    self.trouble.note(port, &error);
                    stop.run_until_cancelled(tokio::time::sleep(TRY_AGAIN)).await;
                }
            }
        }
    }
}

/// Where this process is reached; where that address is not this machine's own, everywhere.
async fn bind(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((address, port)).await {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            TcpListener::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)).await
        }
        bound => bound,
    }
}

/// Takes connections, until told to stop. Those that are there go on.
async fn accept(
    desk: Arc<Desk>,
    door: Door,
    listener: TcpListener,
    config: Arc<ServerConfig>,
    stop: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(config);
    let places = Arc::new(Semaphore::new(CONNECTIONS_PER_NODE));
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
        let of_all = Arc::clone(&desk.house.connections).try_acquire_owned();
        let of_node = Arc::clone(&places).try_acquire_owned();
        let (held, is_too_much) = match (of_all, of_node) {
            (Ok(of_all), Ok(of_node)) => (vec![of_all, of_node], false),
            _ => match Arc::clone(&told_so).try_acquire_owned() {
                Ok(held) => (vec![held], true),
                Err(_) => continue,
            },
        };
        let (desk_of_it, door, acceptor) = (Arc::clone(&desk), door.clone(), acceptor.clone());
        desk.tasks.spawn(async move {
            let _held = held;
            converse(desk_of_it, door, acceptor, stream, address, is_too_much).await;
        });
    }
}

/// One connection, from its first byte to its last.
async fn converse(
    desk: Arc<Desk>,
    door: Door,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    address: SocketAddr,
    is_too_much: bool,
) {
    // What is typed should arrive as it is typed.
    drop(stream.set_nodelay(true));
    let shaken = tokio::time::timeout(HANDSHAKE_WITHIN, shake_hands(&desk, &door, acceptor, stream, address));
    let Ok(Some(stream)) = shaken.await else { return };
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let chain = certificates.iter().map(|one| one.clone().into_owned()).collect();
    let peer = Peer { address, chain, is_too_much };
    let answering = Arc::clone(&desk);
    let service = service_fn(move |request| {
        let answer = Arc::clone(&answering).answer(door.clone(), peer.clone(), request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(LONGEST_HEAD)
        .keep_alive(!is_too_much)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = desk.closes.cancelled() => {
            connection.as_mut().graceful_shutdown();
            desk.ends.run_until_cancelled(connection.as_mut()).await
        }
    };
    if let Some(Err(error)) = ended {
        tracing::debug!(%error, %address, "a connection broke");
    }
}

/// The handshake. Whoever speaks plainly is told so, and not listened to.
async fn shake_hands(
    desk: &Desk,
    door: &Door,
    acceptor: TlsAcceptor,
    mut stream: TcpStream,
    address: SocketAddr,
) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
    let mut first = [0];
    if stream.peek(&mut first).await.ok()? == 0 {
        return None;
    }
    if first != [HANDSHAKE] {
        line(desk, door, address).tell(400, Some("plain HTTP, or no HTTP at all: only https is spoken here"));
        drop(stream.write_all(PLAIN).await);
        drop(stream.shutdown().await);
        return None;
    }
    match acceptor.accept(stream).await {
        Ok(stream) => Some(stream),
        Err(error) => {
            tracing::debug!(%error, %address, "a handshake failed");
            None
        }
    }
}

fn line(desk: &Desk, door: &Door, address: SocketAddr) -> Line {
    Line {
        binding: desk.world.subject.binding.name.as_str().into(),
        method: String::new(),
        path: String::new(),
        peer: address.to_string(),
        caller: None,
        vnode: match door {
            Door::Node(vnode) => Some(Arc::clone(vnode)),
            Door::Shared => None,
        },
        route: None,
    }
}

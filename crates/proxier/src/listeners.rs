//! The ports of virtual nodes: opened and closed as nodes come and go.
//!
//! Every replica listens for every virtual node of the binding. Which replica a node names as its address is the syncer's choice, and one
//! that changes it finds the port open.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use kubeocean_model::naming::Port;
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::conflicts::Conflicts;
use crate::connection::accept;
use crate::desk::{Desk, Door};

/// A port that is taken may be another program's for a moment: that of a connection that it opened.
const TAKEN_FOR: Duration = Duration::from_secs(10);

/// How soon what could not be bound is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);

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
    why: String,
    told: Told,
}

/// Whether whoever hands out ports knows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Not yet; not to be tried before then.
    NotBefore(Instant),
    UnderWay,
    Yes,
}

impl Trouble {
    /// The port of all virtual nodes is the one that nobody hands out anew.
    pub(crate) fn of(&self, port: u16) -> Result<(), String> {
        match self.0.lock().get(&port) {
            Some(taken) => Err(format!("port {port} cannot be bound: {}", taken.why)),
            None => Ok(()),
        }
    }

    /// Whether somebody has to be told now.
    fn note(&self, port: u16, error: &io::Error) -> bool {
        let mut known = self.0.lock();
        let now = Instant::now();
        let taken = known.entry(port).or_insert_with(|| {
            tracing::warn!(port, %error, "a port cannot be bound");
            Taken { why: String::new(), told: Told::NotBefore(now + TAKEN_FOR) }
        });
        taken.why = error.to_string();
        let is_due = matches!(taken.told, Told::NotBefore(at) if at <= now);
        let is_news = is_due && error.kind() == io::ErrorKind::AddrInUse;
        if is_news {
            taken.told = Told::UnderWay;
        }
        is_news
    }

    /// What came of it.
    fn was_told(&self, port: u16, was_heard: bool) {
        if let Some(taken) = self.0.lock().get_mut(&port) {
            taken.told = if was_heard { Told::Yes } else { Told::NotBefore(Instant::now() + TAKEN_FOR) };
        }
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
        for listener in open.values() {
            listener.stop.cancel();
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
                    let until = self.desk.closes.child_token();
                    let (desk, config) = (Arc::clone(&self.desk), Arc::clone(&self.config));
                    let door = Door::Node(Arc::clone(&vnode));
                    tasks.spawn(accept(desk, door, listener, config, until.clone()));
                    open.insert(port, Open { vnode, stop: until });
                }
                Err(error) => {
                    if self.trouble.note(port, &error)
                        && let Some(taken) = Port::new(port)
                    {
                        // Other ports do not wait for whoever is told, nor does the end.
                        let (conflicts, trouble) = (self.conflicts.clone(), self.trouble.clone());
                        let until = stop.clone();
                        tasks.spawn(async move {
                            let told = until.run_until_cancelled(conflicts.tell(taken)).await;
                            trouble.was_told(port, told == Some(true));
                        });
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
        while !stop.is_cancelled() && !self.desk.closes.is_cancelled() {
            match bind(self.address, port).await {
                Ok(listener) => {
                    self.trouble.0.lock().remove(&port);
                    let (desk, config) = (Arc::clone(&self.desk), Arc::clone(&self.config));
                    let until = self.desk.closes.child_token();
                    let taking = accept(desk, Door::Shared, listener, config, until.clone());
                    stop.run_until_cancelled(taking).await;
                    until.cancel();
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
            TcpListener::bind((anywhere(address), port)).await
        }
        bound => bound,
    }
}

/// All addresses of this machine, of the family of one: on those of the other, nobody looks for us.
const fn anywhere(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_taken_port_is_told_again_until_somebody_has_heard_it() {
        let (trouble, taken) = (Trouble::default(), io::Error::from(io::ErrorKind::AddrInUse));
        let note_after = async |seconds| {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            trouble.note(1, &taken)
        };
        assert!(!note_after(0).await, "it may be free again in a moment");
        assert!(note_after(10).await);
        assert!(!note_after(20).await, "it is being told");
        trouble.was_told(1, false);
        assert!(!note_after(0).await);
        assert!(note_after(10).await, "nobody has heard it");
        trouble.was_told(1, true);
        assert!(!note_after(1000).await);
    }

    #[tokio::test]
    async fn an_address_that_is_not_of_this_machine_is_answered_for_in_its_own_family() {
        for (address, bound) in [("192.0.2.1", "0.0.0.0"), ("2001:db8::1", "::")] {
            let listener = bind(address.parse().unwrap(), 0).await.unwrap();
            assert_eq!(listener.local_addr().unwrap().ip().to_string(), bound);
        }
    }
}

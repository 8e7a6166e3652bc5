//! What all that answer in one process share: who answers for which binding, and how much there may be of anything.
//!
//! Deliberately absent: what is answered.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use kubeocean_model::kubelet::PodRoute;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::desk::Desk;
use crate::stream::Streams;

/// How much there may be at a time.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// Streams. At 64 KiB each, a quarter of a gigabyte.
    pub streams: usize,
    /// Streams of one virtual node. A thousand people with `kubectl logs -f` on one node are a mistake.
    pub streams_per_node: usize,
    /// Connections. Twice the streams: scrapers and those who come and go.
    pub connections: usize,
    /// Connections to one virtual node: its streams, and those who come and go.
    pub connections_per_node: usize,
    /// Connections from one address over which nobody has said yet who he is. API servers are a few addresses with thousands of connections, and each says
    /// so in the first moment: this many begin in the same one only where all streams of a node do. It is an eighth of what there is: who says nothing
    /// cannot shut the others out.
    pub strangers_per_address: usize,
    /// Tokens that the computing cluster is asked about at a time. Anybody can make up any number of them, and the manager that runs us may ask the same
    /// server by the same 32 places: a quarter of those.
    pub reviews: usize,
    /// Lists of pods that are read or written at a time. Each may take [`LONGEST_LIST`](crate::desk::LONGEST_LIST) of memory.
    pub lists: usize,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            streams: 4096,
            streams_per_node: 1024,
            connections: 8192,
            connections_per_node: 2048,
            strangers_per_address: 1024,
            reviews: 8,
            lists: 4,
        }
    }
}

/// Everything that answers in one process. Clones are the same.
#[derive(Clone)]
pub struct House {
    /// Who answers for which binding.
    desks: Arc<RwLock<Vec<Arc<Desk>>>>,
    pub(crate) caps: Caps,
    pub(crate) streams: Streams,
    pub(crate) connections: Arc<Semaphore>,
    pub(crate) strangers: Strangers,
    pub(crate) reviews: Arc<Semaphore>,
    pub(crate) lists: Arc<Semaphore>,
    /// Who listens on the port that all virtual nodes share.
    pub(crate) door: Arc<tokio::sync::Mutex<()>>,
    /// The connections that came through it. They are nobody's: what they ask for may be any desk's, and outlives the one that let them in.
    pub(crate) visitors: TaskTracker,
}

impl Default for House {
    fn default() -> Self {
        Self::with(Caps::default())
    }
}

impl House {
    /// With these limits.
    pub fn with(caps: Caps) -> Self {
        Self {
            desks: Arc::default(),
            caps,
            streams: Streams::new(caps.streams, caps.streams_per_node),
            connections: Arc::new(Semaphore::new(caps.connections)),
            strangers: Strangers { most: caps.strangers_per_address, known: Arc::default() },
            reviews: Arc::new(Semaphore::new(caps.reviews)),
            lists: Arc::new(Semaphore::new(caps.lists)),
            door: Arc::default(),
            visitors: TaskTracker::new(),
        }
    }

    /// Calls find this desk, for as long as it is held.
    pub(crate) fn join(&self, desk: &Arc<Desk>) -> Joined {
        self.desks.write().push(Arc::clone(desk));
        self.visitors.reopen();
        Joined(Arc::clone(desk))
    }

    /// Calls find it no more.
    pub(crate) fn leave(&self, desk: &Arc<Desk>) {
        let mut desks = self.desks.write();
        desks.retain(|one| !Arc::ptr_eq(one, desk));
        if desks.is_empty() {
            self.visitors.close();
        }
    }

    /// Waits until nobody is left who came by the shared door, where nobody else answers.
    pub(crate) async fn emptied(&self) {
        if self.desks.read().is_empty() {
            self.visitors.wait().await;
        }
    }

    /// Who answers for a pod, and as which virtual node.
    pub(crate) fn desk_of(&self, route: &PodRoute) -> Option<(Arc<Desk>, Arc<str>)> {
        let desks = self.desks.read().clone();
        desks.into_iter().find_map(|desk| desk.world.vnode_of(&route.pod).map(|vnode| (desk, vnode)))
    }
}

/// A desk that answers. One that is dropped, in whatever way, answers no more: a panic must not leave it in front of its successor, with stores that nobody
/// keeps current and streams that nobody ends.
pub(crate) struct Joined(Arc<Desk>);

impl Drop for Joined {
    fn drop(&mut self) {
        let desk = &self.0;
        desk.house.leave(desk);
        for token in [&desk.closes, &desk.ends, &desk.over] {
            token.cancel();
        }
    }
}

/// Connections over which nobody has said yet who he is, by address. Clones are the same.
#[derive(Clone)]
pub(crate) struct Strangers {
    most: usize,
    known: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
}

/// One of them, until it is dropped.
pub(crate) struct Stranger {
    of: Strangers,
    address: IpAddr,
}

impl Strangers {
    /// Another one; `None`: that address has too many.
    pub(crate) fn meet(&self, peer: SocketAddr) -> Option<Stranger> {
        let address = peer.ip().to_canonical();
        let mut known = self.known.lock();
        let count = known.entry(address).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Stranger { of: self.clone(), address })
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut known = self.of.known.lock();
        if let Some(count) = known.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                known.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_full_of_strangers_costs_the_others_nothing() {
        let house = House::with(Caps { strangers_per_address: 2, ..Caps::default() });
        let from = |address: &str| house.strangers.meet(address.parse().unwrap());
        let (first, second) = (from("10.0.0.1:1").unwrap(), from("[::ffff:10.0.0.1]:2").unwrap());
        assert!(from("10.0.0.1:3").is_none());
        assert!(from("10.0.0.2:1").is_some());
        // Who says who he is counts no more.
        drop(first);
        assert!(from("10.0.0.1:3").is_some());
        drop(second);
        assert!(house.strangers.known.lock().is_empty());
    }
}

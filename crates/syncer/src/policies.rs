//! The policies of both sides, and what is said about them.
//!
//! Whether the worker cluster has policies at all is found out, and found out again: it decides whose word counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kubeocean_cluster::error::CallError;
use kubeocean_cluster::store::Entry;
use kubeocean_model::key::Side;
use kubeocean_model::lease;
use kubeocean_model::object::Object;
use kubeocean_model::policies::SeenPolicy;
use kubeocean_model::window::Zone;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::world::World;

/// Longer than between two tries of an informer: what was there is not taken for gone at one word.
const DOUBTED_FOR: Duration = Duration::from_secs(60);

/// Whether the worker cluster has policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Nobody has found out yet.
    Unknown,
    /// There is no such resource.
    NotServed,
    /// It may not be read.
    Unreadable,
    /// Yes, these.
    Served,
}

/// All policies there are, read once for each edit. Clones are the same.
#[derive(Clone)]
pub(crate) struct Policies {
    world: World,
    zone: Zone,
    state: Arc<Mutex<State>>,
}

struct State {
    access: Access,
    /// What it seems to be otherwise, and since when.
    doubt: Option<(Access, Instant)>,
    read: Option<Arc<Read>>,
}

/// The policies at one moment.
pub(crate) struct Read {
    edits: u64,
    access: Access,
    /// By side and name.
    pub(crate) seen: BTreeMap<(Side, String), Arc<SeenPolicy>>,
    /// As leases are judged by them.
    pub(crate) all: lease::Policies,
    /// Where the lender's may not be read any more: as they were when they last could be.
    pub(crate) last_word: Option<lease::Policies>,
}

impl Policies {
    pub(crate) fn new(world: &World, zone: Zone) -> Self {
        let state = State { access: Access::Unknown, doubt: None, read: None };
        Self { world: world.clone(), zone, state: Arc::new(Mutex::new(state)) }
    }

    /// Whether it is known which policies count.
    pub(crate) fn is_known(&self) -> bool {
        self.state.lock().access != Access::Unknown
            || self.world.physical_policies.progress().is_synced()
            || self.heard().is_some()
    }

    /// Whether the lender's word counts.
    pub(crate) fn are_served(&self) -> bool {
        self.state.lock().access == Access::Served
    }

    /// What counts for who has only just come: a lender who showed all its policies has a word, whatever becomes of the watch on them in the next
    /// moment. To take that for silence would end every lease that nobody else grants, and lease what the lender forbids.
    fn heard_first(&self) -> Option<Access> {
        let was_listed = self.world.physical_policies.progress().is_synced();
        if was_listed { Some(Access::Served) } else { self.heard() }
    }

    /// What the worker cluster says now, where that is an answer.
    fn heard(&self) -> Option<Access> {
        let progress = self.world.physical_policies.progress();
        match progress.trouble() {
            Some(CallError::Refused(status)) if status.code == 404 => Some(Access::NotServed),
            Some(CallError::Refused(status)) if status.code == 403 => Some(Access::Unreadable),
            None if progress.is_synced() => Some(Access::Served),
            _ => None,
        }
    }

    /// Looks whether the worker cluster has policies. What was there is not taken for gone at the first word: a server that has just started
    /// does not know its own resources. Says whether something else counts now than before.
    pub(crate) fn judge_access(&self) -> bool {
        let mut state = self.state.lock();
        let before = state.access;
        let heard = if before == Access::Unknown { self.heard_first() } else { self.heard() };
        let Some(heard) = heard else { return false };
        let lasts =
            state.doubt.is_some_and(|(doubt, since)| doubt == heard && since.elapsed() >= DOUBTED_FOR);
        if heard == state.access || state.access != Access::Served || lasts {
            state.access = heard;
            state.doubt = None;
        } else if state.doubt.is_none_or(|(doubt, _)| doubt != heard) {
            state.doubt = Some((heard, Instant::now()));
        }
        state.access != before
    }

    /// The policies as they are.
    pub(crate) fn read(&self) -> Arc<Read> {
        let edits = self.world.policy_edits.load(Ordering::Relaxed);
        {
            let mut state = self.state.lock();
            if state.access == Access::Unknown
                && let Some(heard) = self.heard_first()
            {
                state.access = heard;
            }
            let access = state.access;
            if let Some(read) =
                state.read.as_ref().filter(|read| read.edits == edits && read.access == access)
            {
                return Arc::clone(read);
            }
        }
        let access = self.state.lock().access;
        let read_all = |objects: Vec<(String, Arc<Entry<Object>>)>| -> Vec<(String, Arc<SeenPolicy>)> {
            let read = |object: &Object| Arc::new(SeenPolicy::read(object, &self.zone));
            objects.into_iter().map(|(name, object)| (name, read(&object))).collect()
        };
        let candidates = |policies: &[(String, Arc<SeenPolicy>)]| -> Vec<lease::Candidate> {
            let standing = policies.iter().filter(|(_, policy)| !policy.meta.is_deleting());
            standing.map(|(_, policy)| policy.candidate.clone()).collect()
        };
        let virtually = self.world.virtual_policies.all().into_iter();
        let virtually = read_all(virtually.map(|(key, object)| (key.name.to_string(), object)).collect());
        let physically = self.world.physical_policies.all().into_iter();
        let physically = read_all(physically.map(|(key, object)| (key.name.to_string(), object)).collect());
        let computing = candidates(&virtually);
        let lenders = || lease::WorkerPolicies::Served(candidates(&physically));
        let was_heard = self.world.physical_policies.progress().is_synced();
        let (worker, last) = match access {
            Access::Unknown | Access::NotServed => (lease::WorkerPolicies::NotServed, None),
            Access::Unreadable => (lease::WorkerPolicies::Unreadable, was_heard.then(lenders)),
            Access::Served => (lenders(), None),
        };
        let on = |side: Side| move |(name, policy)| ((side, name), policy);
        let mut seen: BTreeMap<_, _> = virtually.into_iter().map(on(Side::Virtual)).collect();
        if access == Access::Served {
            seen.extend(physically.into_iter().map(on(Side::Physical)));
        }
        let last_word = last.map(|worker| lease::Policies { worker, computing: computing.clone() });
        let all = lease::Policies { worker, computing };
        let read = Arc::new(Read { edits, access, seen, all, last_word });
        self.state.lock().read = Some(Arc::clone(&read));
        read
    }
}

//! How far a store has come, so that nobody plans on what it has not seen yet.
//!
//! The events of one watch come in the order of their versions. A store that saw any event, bookmark or
//! list at version 7 has seen everything of its kind up to 7, and therefore our own write that made
//! version 6. That is the whole fence: one number.
//!
//! A restored etcd counts from a lower number again. A list that began after our write is as good as the
//! number, so a fence never waits for a version that will not come.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::CallError;

/// Servers say something each minute, if only how far they are, and watches are renewed every two.
const LONGEST_SILENCE: Duration = Duration::from_secs(300);

/// Shared by a store, its informer, and whoever waits for it. Clones are the same.
#[derive(Clone)]
pub struct Progress {
    state: Arc<Mutex<State>>,
    synced: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    seen: Option<u64>,
    lists_begun: u64,
    list_ended: Listed,
    /// Something of a list was taken in that is not complete.
    half_listed: bool,
    heard_at: Option<Instant>,
    trouble: Option<CallError>,
    listeners: Vec<Listener>,
}

/// Called each time; one that returns false is forgotten.
type Listener = Arc<dyn Fn(&Step<'_>) -> bool + Send + Sync>;

/// What brought a store further.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// An event or a bookmark.
    Event {
        /// The version up to which everything was seen.
        seen: Option<u64>,
        /// Namespace and name of what the event was about.
        object: Option<(&'a str, &'a str)>,
    },
    /// A list is complete.
    List,
}

/// A list that is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Each has a higher number than the one before; 0: there was none.
    pub number: u64,
    /// Which connection of the cluster it came over.
    pub connection: u64,
}

/// A write of ours that a store has to see before it may be planned on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    version: u64,
    lists_begun: u64,
}

impl Progress {
    /// Whether the store was complete once.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits until the store is complete for the first time.
    pub async fn synced(&self) {
        // The sender is our own: it cannot be gone.
        drop(self.synced.subscribe().wait_for(|synced| *synced).await);
    }

    /// When the server was last heard of: an event, a bookmark, or a list.
    pub fn heard_at(&self) -> Option<Instant> {
        self.state.lock().heard_at
    }

    /// Why the server cannot be watched at the moment: the last error since it was last heard of.
    pub fn trouble(&self) -> Option<CallError> {
        self.state.lock().trouble.clone()
    }

    /// Whether the store is complete, and can be kept so; or why not, in words for `/readyz`.
    pub fn is_well(&self) -> Result<(), String> {
        match (self.is_synced(), self.trouble()) {
            (true, None) => match self.heard_at().map(|at| at.elapsed()) {
                Some(silence) if silence > LONGEST_SILENCE => {
                    Err(format!("nothing was heard of it for {} s", silence.as_secs()))
                }
                _ => Ok(()),
            },
            (true, Some(error)) => Err(format!("cannot be watched: {error}")),
            (false, None) => Err("not listed yet".to_owned()),
            (false, Some(error)) => Err(format!("not listed yet: {error}")),
        }
    }

    /// The server lets us watch again, though it has said nothing yet.
    pub(crate) fn recovered(&self) {
        self.state.lock().trouble = None;
    }

    pub(crate) fn failed(&self, error: &CallError) {
        self.state.lock().trouble = Some(error.clone());
    }

    /// The version up to which everything was seen.
    pub fn seen(&self) -> Option<u64> {
        self.state.lock().seen
    }

    /// A write of ours made this version.
    pub fn ticket(&self, version: u64) -> Ticket {
        Ticket { version, lists_begun: self.state.lock().lists_begun }
    }

    /// Whether the store has seen that write, or what became of it.
    pub fn has_passed(&self, ticket: Ticket) -> bool {
        let state = self.state.lock();
        state.seen.is_some_and(|seen| seen >= ticket.version) || state.list_ended.number > ticket.lists_begun
    }

    /// The last list that is complete.
    pub fn list(&self) -> Listed {
        self.state.lock().list_ended
    }

    /// Whether the store is between two lists: some of the last one was taken in, and it is not complete. Who acts on what is absent has
    /// to wait.
    pub fn is_half_listed(&self) -> bool {
        self.state.lock().half_listed
    }

    /// Something of a list is about to be taken in.
    pub(crate) fn take_in_list(&self) {
        self.state.lock().half_listed = true;
    }

    /// Tells stores apart for as long as they live.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.state).addr()
    }

    /// Calls `listener` each time the store has come further, until it returns false. It must be quick.
    pub fn listen(&self, listener: impl Fn(&Step<'_>) -> bool + Send + Sync + 'static) {
        self.state.lock().listeners.push(Arc::new(listener));
    }

    pub(crate) fn begin_list(&self) -> u64 {
        let mut state = self.state.lock();
        state.lists_begun += 1;
        state.lists_begun
    }

    /// A list is complete at this version. Only a list can take the count back.
    pub(crate) fn end_list(&self, list: Listed, version: Option<u64>) {
        self.advance(|state| {
            state.seen = version;
            state.list_ended = list;
            state.half_listed = false;
            Step::List
        });
        self.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
    }

    /// An event or bookmark of this version was taken in, about this object.
    pub(crate) fn saw(&self, version: Option<u64>, object: Option<(&str, &str)>) {
        self.advance(|state| {
            state.seen = state.seen.max(version);
            Step::Event { seen: state.seen, object }
        });
    }

    fn advance<'a>(&self, change: impl FnOnce(&mut State) -> Step<'a>) {
        let (listeners, step) = {
            let mut state = self.state.lock();
            let step = change(&mut state);
            state.heard_at = Some(Instant::now());
            state.trouble = None;
            (state.listeners.clone(), step)
        };
        let deaf: Vec<_> = listeners.into_iter().filter(|listener| !listener(&step)).collect();
        if !deaf.is_empty() {
            self.state.lock().listeners.retain(|known| !deaf.iter().any(|gone| Arc::ptr_eq(known, gone)));
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self { state: Arc::default(), synced: watch::Sender::new(false) }
    }
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Progress")
            .field("seen", &state.seen)
            .field("lists", &state.list_ended.number)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(progress: &Progress, number: u64, version: u64) {
        progress.end_list(Listed { number, connection: 0 }, Some(version));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_passed_by_its_version_or_by_a_later_list() {
        let progress = Progress::default();
        let list = progress.begin_list();
        end(&progress, list, 5);
        assert!(progress.is_synced());
        let ticket = progress.ticket(7);
        assert!(!progress.has_passed(ticket));
        progress.saw(Some(6), None);
        assert!(!progress.has_passed(ticket));
        progress.saw(Some(9), None);
        assert!(progress.has_passed(ticket), "everything up to 9 was seen");
    }

    #[tokio::test(start_paused = true)]
    async fn a_restored_etcd_does_not_close_a_fence_for_ever() {
        let progress = Progress::default();
        end(&progress, progress.begin_list(), 100);
        let running = progress.begin_list();
        let ticket = progress.ticket(120);
        end(&progress, running, 90);
        assert!(!progress.has_passed(ticket), "that list may have been read before the write");
        end(&progress, progress.begin_list(), 95);
        assert!(progress.has_passed(ticket));
    }
}

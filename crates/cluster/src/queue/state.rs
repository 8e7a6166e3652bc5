//! Which key waits where: in a line, for its time, or under someone's hands.
//!
//! Deliberately absent: locks, tasks and metrics. The queue around it has them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::{QueueKey, Retry};
use crate::backoff::Backoff;

pub(super) struct State<K> {
    /// One line per class; whose turn it is next stands first.
    pub(super) lines: VecDeque<(&'static str, VecDeque<(K, Instant)>)>,
    pub(super) waiting: BTreeSet<K>,
    pub(super) delayed: BTreeMap<(Instant, u64), K>,
    pub(super) due: BTreeMap<K, (Instant, u64)>,
    /// What is being worked on, and whether it was added again meanwhile.
    pub(super) active: BTreeMap<K, bool>,
    pub(super) failures: BTreeMap<K, u32>,
    /// What a server said about when to come back: it counts more than news.
    pub(super) not_before: BTreeMap<K, Instant>,
    pub(super) sequence: u64,
    pub(super) closing: bool,
    /// Nobody will work on it for a while, and whoever does begins with everything.
    pub(super) rests: bool,
    /// Since when someone works on it. What waited longer waited for nobody.
    pub(super) run_since: Option<Instant>,
}

impl<K> Default for State<K> {
    fn default() -> Self {
        Self {
            lines: VecDeque::new(),
            waiting: BTreeSet::new(),
            delayed: BTreeMap::new(),
            due: BTreeMap::new(),
            active: BTreeMap::new(),
            failures: BTreeMap::new(),
            not_before: BTreeMap::new(),
            sequence: 0,
            closing: false,
            rests: false,
            run_since: None,
        }
    }
}

impl<K> State<K> {
    pub(super) fn oldest(&self) -> Duration {
        let Some(run_since) = self.run_since else { return Duration::ZERO };
        let fronts = self.lines.iter().filter_map(|(_, line)| line.front());
        fronts.map(|(_, since)| (*since).max(run_since).elapsed()).max().unwrap_or_default()
    }
}

impl<K: QueueKey> State<K> {
    /// Forgets all that waits; what is being worked on comes back by itself.
    pub(super) fn forget_waiting(&mut self) {
        self.lines.iter_mut().for_each(|(_, line)| line.clear());
        self.waiting.clear();
        self.delayed.clear();
        self.due.clear();
        self.failures.clear();
        self.not_before.clear();
    }

    /// Whether it is being worked on.
    pub(super) fn add(&mut self, key: K) -> bool {
        if self.rests {
            return false;
        }
        if let Some(again) = self.active.get_mut(&key) {
            *again = true;
            return true;
        }
        if self.waiting.insert(key.clone()) {
            let class = key.class();
            let entry = (key, Instant::now());
            match self.lines.iter_mut().find(|(known, _)| *known == class) {
                Some((_, line)) => line.push_back(entry),
                None => self.lines.push_back((class, VecDeque::from([entry]))),
            }
        }
        false
    }

    /// The earlier of two times counts.
    pub(super) fn add_at(&mut self, key: K, at: Instant) {
        if self.rests
            || self.waiting.contains(&key)
            || self.due.get(&key).is_some_and(|(known, _)| *known <= at)
        {
            return;
        }
        self.forget_delay(&key);
        self.sequence += 1;
        self.delayed.insert((at, self.sequence), key.clone());
        self.due.insert(key, (at, self.sequence));
    }

    pub(super) fn forget_delay(&mut self, key: &K) {
        if let Some(place) = self.due.remove(key) {
            self.delayed.remove(&place);
        }
    }

    pub(super) fn wake_due(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let key = entry.remove();
            self.due.remove(&key);
            self.add(key);
        }
    }

    pub(super) fn next_retry(&mut self, key: &K, retry: Retry) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        let failures = *failures;
        // Another salt each time: those that failed together do not come back together.
        self.sequence += 1;
        Backoff { first: retry.first, most: retry.most }.delay(failures, retry.seed ^ self.sequence)
    }
}

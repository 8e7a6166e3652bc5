//! What a syncer remembers of pods only as long as it leads: another leader has to find it out itself.

use std::collections::{BTreeSet, HashMap, HashSet};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::references::Original;
use crate::twins::Seen;
use crate::unheard::Unheard;
use crate::world::Duty;

/// See above.
#[derive(Default)]
pub(crate) struct Term {
    /// Who was not looked at yet in this term.
    pub(crate) unheard: Unheard,
    /// Pods that were let in and whose twin was not seen yet.
    pub(crate) admitted: Mutex<HashSet<String>>,
    /// Pods, by uid, that say that they may have run, and of which we know that they have not: whoever was asked for their twin said no.
    pub(crate) unborn: Mutex<BTreeSet<String>>,
    /// Pods and twins that were found to agree.
    pub(crate) in_step: Mutex<HashMap<String, Seen>>,
    /// Pods, by uid, whose twin was seen without a node: which twin, and since when.
    pub(crate) unplaced: Mutex<HashMap<String, (String, Instant)>>,
    /// Since when we see twins end whose pods are no more.
    pub(crate) ending_since: Mutex<HashMap<String, Instant>>,
    /// What is used of V, and was not there when V was asked.
    pub(crate) absent: Mutex<BTreeSet<Original>>,
}

impl Term {
    /// A new one: nothing is known, and these pods are to be heard.
    pub(crate) fn begin(&self, pods: impl Iterator<Item = Duty>) {
        let Self { unheard, admitted, unborn, in_step, unplaced, ending_since, absent } = self;
        unheard.begin(pods);
        admitted.lock().clear();
        unborn.lock().clear();
        in_step.lock().clear();
        unplaced.lock().clear();
        ending_since.lock().clear();
        absent.lock().clear();
    }

    /// A pod is no more.
    pub(crate) fn forget(&self, pod: &str) {
        self.admitted.lock().remove(pod);
        self.unborn.lock().remove(pod);
        self.in_step.lock().remove(pod);
        self.unplaced.lock().remove(pod);
    }
}

//! People who edit policies in the very moment in which a window opens or closes.

use std::time::Duration;

use jiff::SignedDuration;
use rand::{Rng, RngExt as _};

use crate::offers::candidates;
use crate::scene::Scene;

/// So many milliseconds before or after the edge.
const AROUND: i64 = 1500;

/// Where no window opens or closes, someone may write one soon.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

impl Scene {
    /// Edits policies at edges, for ever: `edit` gets a draw.
    pub(crate) async fn edit_at_edges(&self, mut random: impl Rng, edit: impl Fn(u64)) {
        loop {
            let now = self.clock.now();
            let policies = [&self.virt, &self.phys].into_iter().flat_map(candidates);
            let edges = policies.filter_map(|policy| policy.ok()?.schedule.next_edge(now));
            let Some(edge) = edges.map(|edge| edge.at).min() else {
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            };
            let by = SignedDuration::from_millis(random.random_range(-AROUND..=AROUND));
            tokio::time::sleep(self.until(edge.checked_add(by).unwrap_or(edge))).await;
            edit(random.random());
            tokio::time::sleep(self.until(edge) + Duration::from_millis(1)).await;
        }
    }
}

//! What happened, in order: commits, faults and world events, for whoever reads a failed seed.
//!
//! Deliberately absent: judgement. Everything is noted, and the last of it is shown; all of it where one seed is replayed.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::simulation::is_replay;

/// What fits on some screens; what led to a violation is rarely older.
const LINES: usize = 150;

/// More than a run has.
const ALL_LINES: usize = 1_000_000;

/// A log of the run. Clones are the same.
#[derive(Clone)]
pub struct Story(Arc<Mutex<Lines>>);

struct Lines {
    began: Instant,
    last: VecDeque<(Instant, Line)>,
    told: u64,
    kept: usize,
}

type Line = Box<dyn Fn() -> String + Send>;

impl Story {
    /// An empty one that begins now.
    pub fn new() -> Self {
        let kept = if is_replay() { ALL_LINES } else { LINES };
        Self(Arc::new(Mutex::new(Lines { began: Instant::now(), last: VecDeque::new(), told: 0, kept })))
    }

    /// Notes something. It is put into words only if someone reads it.
    pub fn tell(&self, line: impl Fn() -> String + Send + 'static) {
        let mut lines = self.0.lock();
        if lines.last.len() == lines.kept {
            lines.last.pop_front();
        }
        lines.told += 1;
        lines.last.push_back((Instant::now(), Box::new(line)));
    }

    /// How much was told, with what was forgotten.
    pub fn len(&self) -> u64 {
        self.0.lock().told
    }

    /// Whether nothing was told.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Story {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.0.lock();
        for (at, line) in &lines.last {
            writeln!(f, "{:>9.3}s  {}", at.duration_since(lines.began).as_secs_f64(), line())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Story").field("lines", &self.len()).finish()
    }
}

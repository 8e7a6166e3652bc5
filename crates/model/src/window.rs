//! The lease clock: when may a borrowed node be used?
//!
//! A window belongs to the day it *starts* on. Fri 22:00–06:00 is open from Friday evening to Saturday
//! morning, and closed on Friday at dawn. The end minute is part of the window; `24:00` is midnight. All
//! arithmetic is civil time in the policy's zone; instants leave this module only as [`Timestamp`]s.
//!
//! A day on which clocks jump: a start that does not exist is the jump, one that happens twice is the first;
//! an end that does not exist is the jump, one that happens twice is the first. A window that lies wholly
//! in the skipped time does not open.
//!
//! Deliberately absent: timers, the current time, policy objects. Callers bring `now`. The time zones are
//! those this was built with, never the machine's: two replicas must not disagree about an edge.

mod hours;
mod overlap;
mod zone;

use std::sync::Arc;

use jiff::{Timestamp, ToSpan as _};
use kubeocean_api::TimeWindow;

use hours::Week;
use overlap::Overlap;

pub use zone::{UnknownZone, Zone};

/// What is wrong with the windows of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// A start that is no time of day.
    #[error(
        "timeWindows[{index}].start: `{given}` is not a time of day: write HH:MM from 00:00 to 23:59, such as 08:30"
    )]
    Start {
        /// Which window.
        index: usize,
        /// What was written.
        given: String,
    },
    /// An end that is no time of day.
    #[error(
        "timeWindows[{index}].end: `{given}` is not a time of day: write HH:MM from 00:00 to 24:00, such as 18:00"
    )]
    End {
        /// Which window.
        index: usize,
        /// What was written.
        given: String,
    },
    /// Start and end are the same.
    #[error(
        "timeWindows[{index}]: start and end are both {given}: for a whole day write start 00:00 and end 24:00"
    )]
    NoLength {
        /// Which window.
        index: usize,
        /// What was written twice.
        given: String,
    },
    /// A day that the week does not have.
    #[error("timeWindows[{index}].days: `{given}` is not a day: write an English name such as Mon or monday")]
    Day {
        /// Which window.
        index: usize,
        /// What was written.
        given: String,
    },
    /// A time zone that nobody knows.
    #[error("timeZone: {0}")]
    Zone(#[from] UnknownZone),
}

/// From one instant to another, the second excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The first instant of it.
    pub from: Timestamp,
    /// The first instant after it.
    pub to: Timestamp,
}

/// An instant at which a schedule opens or closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// When.
    pub at: Timestamp,
    /// Whether it is open from then on.
    pub opens: bool,
}

/// When something is allowed: always, or while a window of each of its weeks is open.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// All must be open. None: always.
    weeks: Vec<Arc<Week>>,
}

impl Schedule {
    /// Open at all times.
    pub fn always() -> Self {
        Self::default()
    }

    /// Reads the windows of a policy; every fault is named. No windows: always.
    pub fn parse(
        windows: &[TimeWindow],
        zone: Option<&str>,
        default_zone: &Zone,
    ) -> Result<Self, Vec<WindowError>> {
        let mut faults = Vec::new();
        let zone = match zone.map(Zone::parse).transpose() {
            Ok(zone) => zone.unwrap_or_else(|| default_zone.clone()),
            Err(unknown) => {
                faults.push(unknown.into());
                default_zone.clone()
            }
        };
        let mut week = Week::new(zone);
        for (index, window) in windows.iter().enumerate() {
            week.add(index, window, &mut faults);
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let always = windows.is_empty() || week.is_always_open();
        Ok(Self { weeks: if always { Vec::new() } else { vec![Arc::new(week.joined())] } })
    }

    /// Open only while both are.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self { weeks: self.weeks.iter().chain(&other.weeks).cloned().collect() }
    }

    /// Whether it is open.
    pub fn active(&self, now: Timestamp) -> bool {
        self.weeks.iter().all(|week| week.is_open(now))
    }

    /// The next instant at which that changes; none if it never does.
    pub fn next_edge(&self, now: Timestamp) -> Option<Edge> {
        let span = self.spans(now, now).find(|span| span.to.is_none_or(|to| to > now))?;
        if span.from <= now {
            span.to.map(|at| Edge { at, opens: false })
        } else {
            Some(Edge { at: span.from, opens: true })
        }
    }

    /// When the window that is open now closes; none if it never does, or if none is open.
    pub fn closes_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.next_edge(now).filter(|edge| !edge.opens).map(|edge| edge.at)
    }

    /// Since when, and until when, it is open; none if it is not, or never closes.
    pub fn open_span(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let span = self.spans(now, now).find(|span| span.to.is_none_or(|to| to > now))?;
        span.to.filter(|_| span.from <= now).map(|to| (span.from, to))
    }

    /// When it last closed, after `from` and not after `now`.
    pub fn last_closed(&self, from: Timestamp, now: Timestamp) -> Option<Timestamp> {
        // What recurs weekly recurs within the last weeks, however long nobody looked.
        let since = now.checked_sub((LOOK_BACK_DAYS * 24).hours()).unwrap_or(from).max(from);
        let ends = self.spans(since, now).take_while(|span| span.from < now).filter_map(|span| span.to);
        ends.filter(|end| *end > from && *end <= now).last()
    }

    /// When it is open between two instants. Neighbours do not touch.
    pub fn calendar(&self, from: Timestamp, to: Timestamp) -> Vec<Interval> {
        let clipped =
            |span: Span| Interval { from: span.from.max(from), to: span.to.map_or(to, |end| end.min(to)) };
        self.spans(from, to)
            .take_while(|span| span.from < to)
            .map(clipped)
            .filter(|interval| interval.from < interval.to)
            .collect()
    }

    /// Every span that matters from `from` on, and on to well past `to`.
    fn spans(&self, from: Timestamp, to: Timestamp) -> Overlap<'_> {
        let until = to.checked_add((HORIZON_DAYS * 24).hours()).unwrap_or(Timestamp::MAX);
        Overlap::of(self.weeks.iter().map(|week| week.spans(from, until)).collect())
    }
}

/// Two weeks: a window that falls into the hour that a clock skips is there a week before.
const LOOK_BACK_DAYS: i64 = 15;

/// Windows recur weekly and clocks change yearly: what does not change within a year and some weeks never does.
const HORIZON_DAYS: i64 = 400;

/// A maximal time of being open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    from: Timestamp,
    /// `None`: it does not end before the horizon.
    to: Option<Timestamp>,
}

impl Span {
    const ALWAYS: Self = Self { from: Timestamp::MIN, to: None };
}

#[cfg(test)]
mod tests;

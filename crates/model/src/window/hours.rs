//! The windows of a week in one zone, and when they are open as instants.

use std::iter::Peekable;

use jiff::civil::{Date, Weekday};
use jiff::tz::AmbiguousOffset;
use jiff::{Timestamp, ToSpan as _};
use kubeocean_api::TimeWindow;

use super::{Span, WindowError, Zone};

/// A window lasts at most a day, and a zone that changes sides of the date line skips or repeats one.
const LOOK_BACK_DAYS: i64 = 3;

const MINUTES_OF_DAY: u16 = 24 * 60;

/// The windows that open on each day of the week.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Week {
    zone: Zone,
    /// From Monday on; those of a day in the order in which they open.
    days: [Vec<Hours>; 7],
}

/// One window, on the day it opens: minutes since midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Hours {
    opens: u16,
    /// The last minute, or [`MINUTES_OF_DAY`] for midnight. Before `opens`: on the next day.
    ends: u16,
}

impl Hours {
    const WHOLE_DAY: Self = Self { opens: 0, ends: MINUTES_OF_DAY };
}

impl Week {
    pub(super) fn new(zone: Zone) -> Self {
        Self { zone, days: Default::default() }
    }

    pub(super) fn add(&mut self, index: usize, window: &TimeWindow, faults: &mut Vec<WindowError>) {
        let before = faults.len();
        let opens = minute_of_day(&window.start).filter(|minute| *minute < MINUTES_OF_DAY);
        if opens.is_none() {
            faults.push(WindowError::Start { index, given: window.start.clone() });
        }
        let ends = minute_of_day(&window.end);
        if ends.is_none() {
            faults.push(WindowError::End { index, given: window.end.clone() });
        }
        if opens.is_some() && opens == ends {
            faults.push(WindowError::NoLength { index, given: window.start.clone() });
        }
        let mut named = [window.days.is_empty(); 7];
        for day in &window.days {
            match day_of_week(day).and_then(|place| named.get_mut(place)) {
                Some(is_named) => *is_named = true,
                None => faults.push(WindowError::Day { index, given: day.clone() }),
            }
        }
        let (Some(opens), Some(ends), true) = (opens, ends, faults.len() == before) else { return };
        for (day, _) in self.days.iter_mut().zip(named).filter(|(_, named)| *named) {
            day.push(Hours { opens, ends });
            day.sort_unstable();
        }
    }

    /// Whole days touch whatever clocks do, because the end of one and the start of the next are the same
    /// midnight. (Others need not: an end that happens twice is the first.)
    pub(super) fn is_always_open(&self) -> bool {
        self.days.iter().all(|day| day.contains(&Hours::WHOLE_DAY))
    }

    pub(super) fn is_open(&self, now: Timestamp) -> bool {
        self.openings(now, now).any(|(from, to)| from <= now && now < to)
    }

    /// Maximal spans from a few days before `from` to `until`, in order.
    pub(super) fn spans(&self, from: Timestamp, until: Timestamp) -> Spans<'_> {
        let openings = self.openings(from, until).take_while(move |(opens, _)| *opens <= until);
        Spans { openings: (Box::new(openings) as Openings<'_>).peekable(), until }
    }

    /// Each window by itself, in the order in which they open.
    fn openings(&self, from: Timestamp, until: Timestamp) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        let today = self.zone.rules.to_datetime(from).date();
        let first = today.checked_sub(LOOK_BACK_DAYS.days()).unwrap_or(Date::MIN);
        let last = self.zone.rules.to_datetime(until).date();
        std::iter::successors(Some(first), |day| day.tomorrow().ok())
            .take_while(move |day| *day <= last)
            .flat_map(move |day| {
                self.on(day.weekday()).iter().filter_map(move |hours| self.opening(day, *hours))
            })
    }

    fn on(&self, day: Weekday) -> &[Hours] {
        let place = usize::try_from(day.to_monday_zero_offset()).unwrap_or(0);
        self.days.get(place).map_or(&[], Vec::as_slice)
    }

    fn opening(&self, day: Date, hours: Hours) -> Option<(Timestamp, Timestamp)> {
        let from = self.moment(day, hours.opens)?.instant();
        let last_day = if hours.ends < hours.opens { day.tomorrow().ok()? } else { day };
        let to = if hours.ends == MINUTES_OF_DAY {
            self.moment(last_day.tomorrow().ok()?, 0)?.instant()
        } else {
            match self.moment(last_day, hours.ends)? {
                Moment::Real(last_minute) => last_minute.checked_add(1.minute()).ok()?,
                Moment::Skipped { jump } => jump,
            }
        };
        (from < to).then_some((from, to))
    }

    /// When it is that minute of that day: the first time, if there are two.
    fn moment(&self, day: Date, minute: u16) -> Option<Moment> {
        let (hour, minute) = (i8::try_from(minute / 60).ok()?, i8::try_from(minute % 60).ok()?);
        let civil = day.at(hour, minute, 0, 0);
        Some(match self.zone.rules.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => Moment::Real(offset.to_timestamp(civil).ok()?),
            AmbiguousOffset::Fold { before, .. } => Moment::Real(before.to_timestamp(civil).ok()?),
            AmbiguousOffset::Gap { before, .. } => {
                // Had clocks not jumped, it would be this moment: at the jump or soon after it.
                let unjumped = before.to_timestamp(civil).ok()?.checked_add(1.nanosecond()).ok()?;
                Moment::Skipped { jump: self.zone.rules.preceding(unjumped).next()?.timestamp() }
            }
        })
    }
}

/// A minute of a day, as an instant.
enum Moment {
    Real(Timestamp),
    /// Clocks jumped over it.
    Skipped {
        jump: Timestamp,
    },
}

impl Moment {
    const fn instant(&self) -> Timestamp {
        match self {
            Self::Real(instant) | Self::Skipped { jump: instant } => *instant,
        }
    }
}

type Openings<'a> = Box<dyn Iterator<Item = (Timestamp, Timestamp)> + 'a>;

/// Windows that touch or overlap, as one.
pub(super) struct Spans<'a> {
    openings: Peekable<Openings<'a>>,
    until: Timestamp,
}

impl Iterator for Spans<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        let (from, mut to) = self.openings.next()?;
        while let Some((_, later)) = self.openings.next_if(|(opens, _)| *opens <= to) {
            to = to.max(later);
        }
        Some(Span { from, to: (to <= self.until).then_some(to) })
    }
}

/// `HH:MM` from `00:00` to `24:00`.
fn minute_of_day(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let two_digits = |part: &str| {
        let digits = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| part.parse::<u16>().ok()).flatten()
    };
    let (hour, minute) = (two_digits(hour)?, two_digits(minute)?);
    let minutes = hour * 60 + minute;
    (minute < 60 && minutes <= MINUTES_OF_DAY).then_some(minutes)
}

/// Days since Monday.
fn day_of_week(text: &str) -> Option<usize> {
    const NAMES: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    let short = |name: &str| name.get(..3).is_some_and(|short| text.eq_ignore_ascii_case(short));
    NAMES.iter().position(|name| text.eq_ignore_ascii_case(name) || short(name))
}

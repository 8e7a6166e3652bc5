//! The windows of a week in one zone, and when they are open as instants.

use std::iter::Peekable;

use jiff::civil::{Date, Weekday};
use jiff::tz::AmbiguousOffset;
use jiff::{Timestamp, ToSpan as _};
use kubeocean_api::TimeWindow;

use super::{Span, WindowError, Zone};

/// A window ends on the next day at the latest, and a zone that changes sides of the date line skips or repeats one.
const LOOK_BACK_DAYS: i64 = 3;

const MINUTES_OF_DAY: u16 = 24 * 60;

/// What [`Hours::last`] calls the first minute of the next day: one more than midnight.
const NEXT_DAY: u16 = MINUTES_OF_DAY + 1;

/// The windows that open on each day of the week.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Week {
    zone: Zone,
    /// From Monday on; those of a day in the order in which they open. No two have a minute in common.
    days: [Vec<Hours>; 7],
    /// The same for days on which no clock is changed: those that touch are one.
    steady: [Vec<Hours>; 7],
}

/// One window, on the day it opens: minutes since midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Hours {
    opens: u16,
    /// The last minute; [`MINUTES_OF_DAY`] for midnight; from [`NEXT_DAY`] on, a minute of the next day.
    last: u16,
}

impl Hours {
    fn new(opens: u16, ends: u16) -> Self {
        Self { opens, last: if ends < opens { NEXT_DAY + ends } else { ends } }
    }

    const fn is_whole_day(self) -> bool {
        self.opens == 0 && self.last >= MINUTES_OF_DAY
    }

    /// Minutes from midnight to its end, where no clock is changed.
    const fn end(self) -> u16 {
        if self.last < MINUTES_OF_DAY { self.last + 1 } else { self.last }
    }

    /// Those of one day as one where `meet` says so of an earlier and a later one.
    fn joined(day: &[Self], meet: impl Fn(Self, Self) -> bool) -> Vec<Self> {
        let mut day = day.to_vec();
        day.sort_unstable();
        day.dedup_by(|later, earlier| {
            let is_one = meet(*earlier, *later);
            if is_one {
                earlier.last = earlier.last.max(later.last);
            }
            is_one
        });
        day
    }
}

impl Week {
    pub(super) fn new(zone: Zone) -> Self {
        Self { zone, days: Default::default(), steady: Default::default() }
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
            day.push(Hours::new(opens, ends));
        }
    }

    /// When all windows are in: what overlaps is one, so that a policy of a hundred windows costs what its hours cost.
    #[must_use]
    pub(super) fn joined(mut self) -> Self {
        // Windows that have a minute in common are one whatever clocks do: the later one opens in the earlier one.
        self.days = self.days.map(|day| Hours::joined(&day, |earlier, later| later.opens <= earlier.last));
        // Those that only touch can be torn apart, between an end that happens twice and a start that happens once.
        self.steady =
            self.days.each_ref().map(|day| Hours::joined(day, |earlier, later| later.opens <= earlier.end()));
        self
    }

    /// Whole days touch whatever clocks do, because the end of one and the start of the next are the same
    /// midnight. (Others need not: an end that happens twice is the first.)
    pub(super) fn is_always_open(&self) -> bool {
        self.days.iter().all(|day| day.iter().any(|hours| hours.is_whole_day()))
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
    pub(super) fn openings(
        &self,
        from: Timestamp,
        until: Timestamp,
    ) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        let today = self.zone.rules.to_datetime(from).date();
        let first = today.checked_sub(LOOK_BACK_DAYS.days()).unwrap_or(Date::MIN);
        let last = self.zone.rules.to_datetime(until).date();
        let mut clocks = Clocks { week: self, next_change: None };
        std::iter::successors(Some(first), |day| day.tomorrow().ok())
            .take_while(move |day| *day <= last)
            .flat_map(move |day| {
                let days = if clocks.stand_still(day) { &self.steady } else { &self.days };
                of(days, day.weekday()).iter().filter_map(move |hours| self.opening(day, *hours))
            })
    }

    fn opening(&self, day: Date, hours: Hours) -> Option<(Timestamp, Timestamp)> {
        let from = self.moment(day, hours.opens)?.instant();
        let to = match hours.last {
            MINUTES_OF_DAY => self.moment(day.tomorrow().ok()?, 0)?.instant(),
            last => {
                let (day, minute) = match last.checked_sub(NEXT_DAY) {
                    Some(minute) => (day.tomorrow().ok()?, minute),
                    None => (day, last),
                };
                match self.moment(day, minute)? {
                    Moment::Real(last_minute) => last_minute.checked_add(1.minute()).ok()?,
                    Moment::Skipped { jump } => jump,
                }
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

/// The windows of a day of the week.
fn of(days: &[Vec<Hours>; 7], day: Weekday) -> &[Hours] {
    let place = usize::try_from(day.to_monday_zero_offset()).unwrap_or(0);
    days.get(place).map_or(&[], Vec::as_slice)
}

/// When clocks change, asked day by day.
struct Clocks<'a> {
    week: &'a Week,
    /// At or after the day that was asked for last; [`Timestamp::MAX`] if they never change again.
    next_change: Option<Timestamp>,
}

impl Clocks<'_> {
    /// Whether no clock is changed on a day or the next one: as long as its windows last.
    fn stand_still(&mut self, day: Date) -> bool {
        let midnight = |day: Date| self.week.moment(day, 0).map(|moment| moment.instant());
        let after = day.checked_add(2.days()).ok().and_then(midnight);
        let (Some(from), Some(to)) = (midnight(day), after) else { return false };
        if self.next_change.is_none_or(|change| change < from) {
            let Ok(before) = from.checked_sub(1.nanosecond()) else { return false };
            let change = self.week.zone.rules.following(before).next();
            self.next_change = Some(change.map_or(Timestamp::MAX, |change| change.timestamp()));
        }
        self.next_change.is_some_and(|change| change > to)
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

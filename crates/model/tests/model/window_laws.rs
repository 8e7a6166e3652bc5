//! The lease clock against a second, naive one that looks at every minute of two years.
//!
//! The naive clock knows the zone only through the offset of each instant. It writes down what every
//! minute is called, finds a time of day by looking for it, and paints the minutes of each window.

use jiff::civil::Weekday;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use kubeocean_api::TimeWindow;
use kubeocean_model::window::{Edge, Schedule, Zone};

/// Each with a start, and what is odd about it in the two years from then.
const ZONES: [(&str, &str); 6] = [
    ("Europe/Berlin", "2026-01-01T00:00:00Z"),       // an hour, at night
    ("America/New_York", "2026-01-01T00:00:00Z"),    // behind UTC
    ("Australia/Lord_Howe", "2026-01-01T00:00:00Z"), // half an hour
    ("Asia/Shanghai", "2026-01-01T00:00:00Z"),       // nothing
    ("Africa/Casablanca", "2026-01-01T00:00:00Z"),   // back for Ramadan
    ("Pacific/Apia", "2011-01-01T00:00:00Z"),        // a day skipped
];

const DAYS: i64 = 2 * 365;
const MINUTES_OF_DAY: i64 = 24 * 60;
/// Painted beyond both ends, because windows reach in from there.
const MARGIN: i64 = 4 * MINUTES_OF_DAY;

fn window(start: &str, end: &str, days: &[&str]) -> TimeWindow {
    let days = days.iter().map(|day| (*day).to_owned()).collect();
    TimeWindow { start: start.into(), end: end.into(), days }
}

fn schedules() -> Vec<Vec<TimeWindow>> {
    let weekdays = &["mon", "tue", "wed", "thu", "fri"][..];
    vec![
        vec![window("22:00", "06:00", &["fri"])],
        vec![window("02:10", "02:40", &["sun"]), window("01:59", "02:00", &[])],
        vec![window("00:00", "02:59", &[]), window("03:00", "24:00", &[])],
        vec![window("20:00", "06:00", weekdays), window("00:00", "24:00", &["sat", "sun"])],
        vec![
            window("01:30", "01:29", &["sat", "wed"]),
            window("23:59", "00:00", &[]),
            window("12:00", "24:00", &["tue"]),
        ],
        vec![window("02:30", "04:00", &[]), window("00:00", "01:45", &["sun"])],
        // A chain that is longer than a day, and one within the other.
        vec![
            window("00:00", "02:30", &[]),
            window("02:10", "01:59", &["sat"]),
            window("02:15", "02:20", &[]),
            window("23:00", "24:00", &["sun"]),
        ],
        // A day in pieces, so that an end is within every change of a clock.
        (0..47).map(|piece| window(&time(31 * piece), &time((31 * piece + 30).min(1439)), &[])).collect(),
    ]
}

fn time(minute: u16) -> String {
    format!("{:02}:{:02}", minute / 60, minute % 60)
}

#[test]
fn walking_from_edge_to_edge_is_looking_at_every_minute() {
    for (number, (zone, start)) in ZONES.into_iter().enumerate() {
        let start: Timestamp = start.parse().unwrap();
        let naive = Naive::new(zone, start);
        for (schedule_number, windows) in schedules().into_iter().enumerate() {
            let schedule = Schedule::parse(&windows, Some(zone), &Zone::utc()).unwrap();
            let painted = naive.paint(&windows);
            walk(&schedule, start, &painted, zone);
            // Each zone and each schedule is asked for every minute once; all pairs would take a minute.
            let step = if number == schedule_number { 1 } else { 997 };
            ask(&schedule, &naive, &painted, zone, step);
        }
    }
}

#[test]
fn two_schedules_together_are_open_when_both_are() {
    let (zone, start) = ZONES[0];
    let start: Timestamp = start.parse().unwrap();
    let schedules = schedules();
    for (one, other) in schedules.iter().zip(schedules.iter().skip(1)) {
        let (here, there) = (Naive::new(zone, start), Naive::new("America/New_York", start));
        let both: Vec<bool> =
            here.paint(one).iter().zip(there.paint(other)).map(|(one, other)| *one && other).collect();
        let parse = |windows: &[_], zone| Schedule::parse(windows, Some(zone), &Zone::utc()).unwrap();
        let schedule = parse(one, zone).and(&parse(other, "America/New_York"));
        walk(&schedule, start, &both, zone);
    }
}

/// From edge to edge, comparing every minute between them; and the calendar says the same.
fn walk(schedule: &Schedule, start: Timestamp, painted: &[bool], zone: &str) {
    let end = start.checked_add((DAYS * 24).hours()).unwrap();
    let index_of = |at: Timestamp| {
        let seconds = at.as_second() - start.as_second();
        assert!(seconds % 60 == 0 && at.subsec_nanosecond() == 0, "{zone} {at}: edges are on whole minutes");
        usize::try_from(seconds / 60).unwrap()
    };
    let mut calendar = Vec::new();
    let (mut from, mut open) = (start, schedule.active(start));
    loop {
        let edge = schedule.next_edge(from).filter(|edge| edge.at < end);
        let to = edge.map_or(end, |edge| edge.at);
        for (index, expected) in (index_of(from)..).zip(&painted[index_of(from)..index_of(to)]) {
            assert_eq!(open, *expected, "{zone}, minute {index} from {start}");
        }
        if open {
            calendar.push((from, to));
        }
        let Some(Edge { at, opens }) = edge else { break };
        assert_ne!(opens, open, "{zone} {at}: an edge where nothing changes");
        assert_eq!(schedule.closes_at(from), (!opens).then_some(at));
        (from, open) = (at, opens);
    }
    let said: Vec<_> =
        schedule.calendar(start, end).into_iter().map(|interval| (interval.from, interval.to)).collect();
    assert_eq!(said, calendar, "{zone}");
}

/// Asks for single minutes: each one near a change of clocks, and every `step`th of all.
fn ask(schedule: &Schedule, naive: &Naive, painted: &[bool], zone: &str, step: usize) {
    let now_and_then = (0..painted.len()).step_by(step);
    for index in now_and_then.chain(naive.near_changes.iter().copied()) {
        let minute = naive.start.checked_add(i64::try_from(index).unwrap().minutes()).unwrap();
        let within = minute.checked_add(59.seconds()).unwrap();
        let asked = if index % 2 == 0 { minute } else { within };
        assert_eq!(schedule.active(asked), painted[index], "{zone} {asked}");
    }
}

struct Naive {
    start: Timestamp,
    /// What each minute is called, from the margin before the start on: minutes of civil time since 1970.
    called: Vec<i64>,
    /// For each civil minute from `called[0]` on, the first minute that has that name, or a later one.
    found: Vec<usize>,
    /// Minutes from the start that are near a change of clocks.
    near_changes: Vec<usize>,
}

/// More than the longest change within a day, on both sides of it.
const NEAR: usize = 80;

impl Naive {
    fn new(zone: &str, start: Timestamp) -> Self {
        let zone = TimeZone::get(zone).unwrap();
        let first = start.as_second() / 60 - MARGIN;
        let count = DAYS * MINUTES_OF_DAY + 2 * MARGIN;
        let offset = |minute: i64| {
            let seconds = zone.to_offset(Timestamp::from_second(minute * 60).unwrap()).seconds();
            i64::from(seconds) / 60
        };
        let mut called = Vec::new();
        for hour in (first..first + count).step_by(60) {
            // An offset that is the same at both ends of an hour was the same all through it.
            let same = (offset(hour) == offset(hour + 60)).then(|| offset(hour));
            called.extend((hour..hour + 60).map(|minute| minute + same.unwrap_or_else(|| offset(minute))));
        }
        let mut found = Vec::new();
        for (index, name) in called.iter().enumerate() {
            while i64::try_from(found.len()).unwrap() <= name - called[0] {
                found.push(index);
            }
        }
        let margin = usize::try_from(MARGIN).unwrap();
        let changes = (margin..called.len() - margin).filter(|index| called[index + 1] != called[*index] + 1);
        let near_changes = changes.flat_map(|index| index - NEAR - margin..index + NEAR - margin).collect();
        Self { start, called, found, near_changes }
    }

    /// The first minute with that name, and whether there is one; else the first with a later name.
    fn find(&self, name: i64) -> Option<(usize, bool)> {
        let index = *self.found.get(usize::try_from(name - self.called[0]).ok()?)?;
        Some((index, self.called[index] == name))
    }

    fn paint(&self, windows: &[TimeWindow]) -> Vec<bool> {
        let minute = |text: &str| {
            let (hour, minute) = text.split_once(':').unwrap();
            hour.parse::<i64>().unwrap() * 60 + minute.parse::<i64>().unwrap()
        };
        let mut painted = vec![false; self.called.len()];
        let first_day = self.called[0] / MINUTES_OF_DAY + 1;
        let last_day = self.called[self.called.len() - 1] / MINUTES_OF_DAY;
        for day in first_day..last_day {
            // 1970 began on a Thursday.
            let weekday = Weekday::Thursday.wrapping_add(day);
            for window in windows.iter().filter(|window| is_on(window, weekday)) {
                let (start, end) = (minute(&window.start), minute(&window.end));
                let midnight = day * MINUTES_OF_DAY;
                let last = midnight + end + if end < start { MINUTES_OF_DAY } else { 0 };
                let (Some((from, _)), Some((to, exists))) = (self.find(midnight + start), self.find(last))
                else {
                    continue;
                };
                let to = if exists && end != MINUTES_OF_DAY { to + 1 } else { to };
                painted[from..to].fill(true);
            }
        }
        let margin = usize::try_from(MARGIN).unwrap();
        painted[margin..painted.len() - margin].to_vec()
    }
}

fn is_on(window: &TimeWindow, weekday: Weekday) -> bool {
    let short = format!("{weekday:?}")[..3].to_lowercase();
    window.days.is_empty() || window.days.contains(&short)
}

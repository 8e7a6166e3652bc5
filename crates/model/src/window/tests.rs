use super::*;

fn window(start: &str, end: &str, days: &[&str]) -> TimeWindow {
    TimeWindow {
        start: start.into(),
        end: end.into(),
        days: days.iter().map(|day| (*day).to_owned()).collect(),
    }
}

fn schedule(zone: &str, windows: &[TimeWindow]) -> Schedule {
    Schedule::parse(windows, Some(zone), &Zone::utc()).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn a_policy_without_zone_uses_the_default() {
    let evening = [window("20:00", "21:00", &[])];
    let utc = Schedule::parse(&evening, None, &Zone::utc()).unwrap();
    let berlin = Schedule::parse(&evening, None, &Zone::parse("Europe/Berlin").unwrap()).unwrap();
    assert!(utc.active(at("2026-01-05T20:30:00Z")) && !berlin.active(at("2026-01-05T20:30:00Z")));
    assert!(berlin.active(at("2026-01-05T19:30:00Z")));
}

#[test]
fn windows_that_touch_have_no_edge_between_them() {
    let day = schedule("UTC", &[window("08:00", "11:59", &[]), window("12:00", "17:59", &[])]);
    assert_eq!(
        day.next_edge(at("2026-01-05T09:00:00Z")),
        Some(Edge { at: at("2026-01-05T18:00:00Z"), opens: false })
    );
    let overlapping = schedule("UTC", &[window("08:00", "15:00", &[]), window("09:00", "10:00", &[])]);
    assert_eq!(overlapping.closes_at(at("2026-01-05T09:30:00Z")), Some(at("2026-01-05T15:01:00Z")));
}

#[test]
fn a_weekend_is_one_window() {
    let weekend = schedule(
        "Europe/Berlin",
        &[window("20:00", "24:00", &["fri"]), window("00:00", "24:00", &["sat", "sun"])],
    );
    assert_eq!(weekend.closes_at(at("2026-01-02T20:00:00Z")), Some(at("2026-01-04T23:00:00Z")));
    assert_eq!(weekend.closes_at(at("2026-01-05T20:00:00Z")), None);
}

#[test]
fn what_never_changes_has_no_edge() {
    let now = at("2026-01-05T09:00:00Z");
    for always in [
        Schedule::always(),
        schedule("Europe/Berlin", &[]),
        schedule("Europe/Berlin", &[window("00:00", "24:00", &[])]),
        schedule("UTC", &[window("08:01", "08:00", &[])]),
        schedule("UTC", &[window("00:00", "23:59", &[])]),
    ] {
        assert!(always.active(now));
        assert_eq!(always.next_edge(now), None);
        assert_eq!(always.closes_at(now), None);
        let (from, to) = (now, at("2027-01-05T09:00:00Z"));
        assert_eq!(always.calendar(from, to), [Interval { from, to }]);
    }
}

#[test]
fn a_hole_that_only_the_end_of_summer_time_makes_is_found_months_ahead() {
    let nearly_always =
        schedule("Europe/Berlin", &[window("00:00", "02:59", &[]), window("03:00", "24:00", &[])]);
    let now = at("2026-01-05T09:00:00Z");
    assert_eq!(nearly_always.next_edge(now), Some(Edge { at: at("2026-10-25T01:00:00Z"), opens: false }));
    assert!(!nearly_always.active(at("2026-10-25T01:30:00Z")));
    assert!(nearly_always.active(at("2026-10-25T02:00:00Z")));
}

#[test]
fn a_hundred_windows_that_never_close_cost_what_one_costs() {
    let time = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
    let tiles: Vec<_> = (0..120).map(|tile| window(&time(12 * tile), &time(12 * tile + 11), &[])).collect();
    let heap: Vec<_> = (0..120).map(|hour| window(&time(hour), &time(hour + 1300), &[])).collect();
    let now = at("2026-01-05T09:00:00Z");
    for windows in [tiles, heap] {
        let many = schedule("UTC", &windows);
        let openings: usize = many.weeks.iter().map(|week| week.openings(now, now).count()).sum();
        assert_eq!(openings, 4, "today, and the days that are looked back at");
    }
}

#[test]
fn two_schedules_are_open_only_together() {
    let night = schedule("UTC", &[window("20:00", "05:59", &[])]);
    let weekend = schedule("UTC", &[window("00:00", "24:00", &["sat", "sun"])]);
    let both = night.and(&weekend);
    let calendar = both.calendar(at("2026-01-02T00:00:00Z"), at("2026-01-06T00:00:00Z"));
    let expected = [
        ("2026-01-03T00:00:00Z", "2026-01-03T06:00:00Z"),
        ("2026-01-03T20:00:00Z", "2026-01-04T06:00:00Z"),
        ("2026-01-04T20:00:00Z", "2026-01-05T00:00:00Z"),
    ];
    assert_eq!(calendar, expected.map(|(from, to)| Interval { from: at(from), to: at(to) }));
    let day = schedule("UTC", &[window("06:00", "19:59", &[])]);
    assert_eq!(night.and(&day).next_edge(at("2026-01-02T00:00:00Z")), None, "never open together");
    assert_eq!(night.and(&Schedule::always()), night);
}

#[test]
fn a_calendar_is_cut_to_what_was_asked_for() {
    let day = schedule("UTC", &[window("08:00", "18:00", &[])]);
    let calendar = day.calendar(at("2026-01-05T09:00:00Z"), at("2026-01-05T10:00:00Z"));
    assert_eq!(calendar, [Interval { from: at("2026-01-05T09:00:00Z"), to: at("2026-01-05T10:00:00Z") }]);
    assert_eq!(day.calendar(at("2026-01-05T20:00:00Z"), at("2026-01-05T21:00:00Z")), []);
    assert_eq!(day.calendar(at("2026-01-05T20:00:00Z"), at("2026-01-05T08:00:00Z")), []);
}

#[test]
fn a_day_that_samoa_skipped_opens_no_window() {
    let friday = schedule("Pacific/Apia", &[window("08:00", "18:00", &["fri"])]);
    assert_eq!(
        friday.next_edge(at("2011-12-25T00:00:00Z")),
        Some(Edge { at: at("2012-01-05T18:00:00Z"), opens: true }),
        "there was no Friday 30 December"
    );
}

#[test]
fn every_fault_is_named() {
    let windows = [window("8:00", "25:00", &["someday"]), window("08:00", "08:00", &[])];
    let faults = Schedule::parse(&windows, Some("Mars/Olympus"), &Zone::utc()).unwrap_err();
    let messages: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "timeZone: `Mars/Olympus` is not a time zone: write an IANA name such as Europe/Berlin or UTC",
            "timeWindows[0].start: `8:00` is not a time of day: write HH:MM from 00:00 to 23:59, such as 08:30",
            "timeWindows[0].end: `25:00` is not a time of day: write HH:MM from 00:00 to 24:00, such as 18:00",
            "timeWindows[0].days: `someday` is not a day: write an English name such as Mon or monday",
            "timeWindows[1]: start and end are both 08:00: for a whole day write start 00:00 and end 24:00",
        ]
    );
    assert!(["", "+02:00", "Etc/Unknown"].iter().all(|name| Zone::parse(name).is_err()));
}

#[test]
fn the_ends_of_time_are_no_reason_to_panic() {
    let day = schedule("Europe/Berlin", &[window("08:00", "18:00", &[])]);
    for now in [Timestamp::MIN, Timestamp::MAX] {
        let _ = (day.active(now), day.next_edge(now), day.calendar(now, now));
    }
    assert!(day.calendar(Timestamp::MAX, Timestamp::MIN).is_empty());
}

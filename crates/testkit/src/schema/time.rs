//! Times as Go reads them: to the letter, and with its complaints.
//!
//! Deliberately absent: other formats. A server takes one for times and one for exact times.

use jiff::Timestamp;

/// Reads a time. An exact one has six digits after the point, a plain one any number or no point.
pub(super) fn parse(text: &str, exact: bool) -> Result<Timestamp, String> {
    let layout = if exact { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    let complaint = |(rest, element): (&str, &str)| {
        format!("parsing time \"{text}\" as \"{layout}\": cannot parse \"{rest}\" as \"{element}\"")
    };
    check(text, exact).map_err(complaint)?;
    text.parse().map_err(|_| format!("parsing time \"{text}\": day out of range"))
}

/// Takes a layout's elements off the front; the rest and the element that it does not begin with.
fn check(text: &str, exact: bool) -> Result<(), (&str, &'static str)> {
    let mut rest = text;
    for element in ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"] {
        rest = if element.bytes().all(|byte| byte.is_ascii_digit()) {
            digits(rest, element.len()).ok_or((rest, element))?
        } else {
            rest.strip_prefix(element).ok_or((rest, element))?
        };
    }
    if exact {
        let fraction = rest.strip_prefix('.').and_then(|fraction| digits(fraction, 6));
        rest = fraction.ok_or((rest, ".000000"))?;
    } else if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let after = fraction.trim_start_matches(|one: char| one.is_ascii_digit());
        if after.len() < fraction.len() {
            rest = after;
        }
    }
    if rest == "Z" {
        return Ok(());
    }
    let zone = rest
        .strip_prefix(['+', '-'])
        .and_then(|zone| digits(zone, 2)?.strip_prefix(':'))
        .and_then(|minutes| digits(minutes, 2));
    if zone == Some("") { Ok(()) } else { Err((rest, "Z07:00")) }
}

fn digits(text: &str, count: usize) -> Option<&str> {
    let (first, rest) = text.split_at_checked(count)?;
    first.bytes().all(|byte| byte.is_ascii_digit()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn times_are_read_as_go_reads_them() {
        for good in ["2001-01-01T00:00:00Z", "2001-01-01T00:00:00.5Z", "2001-01-01T00:00:00+02:00"] {
            assert!(parse(good, false).is_ok(), "{good}");
        }
        for bad in
            ["", "now", "2001-01-01", "2001-01-01 00:00:00Z", "2001-01-01T00:00:00", "2001-13-01T00:00:00Z"]
        {
            assert!(parse(bad, false).is_err(), "{bad}");
        }
        assert!(parse("2001-01-01T00:00:00.123456Z", true).is_ok());
        assert_eq!(
            parse("2001-01-01T00:00:00.123Z", true).unwrap_err(),
            "parsing time \"2001-01-01T00:00:00.123Z\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \".123Z\" as \".000000\""
        );
    }
}

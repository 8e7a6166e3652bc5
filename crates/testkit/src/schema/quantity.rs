//! Kubernetes quantities: are they well formed, how large are they, how does the server write them.
//!
//! Deliberately absent: arithmetic. The server here only compares and rewrites.

use std::cmp::Ordering;

/// A quantity in billionths, and the family of its suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quantity {
    nano: i128,
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

const NANO: i128 = 1_000_000_000;
/// 2^63-1, the largest that the server keeps.
const MAX: i128 = i64::MAX as i128 * NANO;

const DECIMAL: [(&str, i128); 10] = [
    ("n", 1),
    ("u", 1_000),
    ("m", 1_000_000),
    ("", NANO),
    ("k", 1_000 * NANO),
    ("M", 1_000_000 * NANO),
    ("G", 1_000_000_000 * NANO),
    ("T", 1_000_000_000_000 * NANO),
    ("P", 1_000_000_000_000_000 * NANO),
    ("E", 1_000_000_000_000_000_000 * NANO),
];
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl Quantity {
    /// Reads one; `None` if it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let (unit, format) = unit(suffix)?;
        let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<i128>().ok() };
        // Longer numbers are beyond the cap, or below a billionth.
        if whole.trim_start_matches('0').len() > 19 {
            return Some(Self { nano: if negative { -MAX } else { MAX }, format });
        }
        let mut nano = digits(whole)?.checked_mul(unit).unwrap_or(MAX);
        if !fraction.is_empty() {
            let fraction = &fraction[..fraction.len().min(15)];
            let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
            let part = digits(fraction)?.checked_mul(unit)?;
            // Rounded up, away from zero.
            nano = nano.checked_add((part + scale - 1) / scale)?;
        }
        let nano = nano.min(MAX);
        Some(Self { nano: if negative { -nano } else { nano }, format })
    }

    /// As the server writes it back.
    pub(crate) fn canonical(self) -> String {
        let Self { nano, format } = self;
        if nano == 0 {
            return "0".into();
        }
        match format {
            Format::Binary if nano.abs() >= 1024 * NANO => {
                let mut value = (nano.abs() + NANO - 1) / NANO * nano.signum();
                let mut suffix = "";
                for next in BINARY {
                    if value % 1024 != 0 {
                        break;
                    }
                    value /= 1024;
                    suffix = next;
                }
                format!("{value}{suffix}")
            }
            Format::Decimal | Format::Binary => {
                let (suffix, unit) =
                    DECIMAL.iter().rev().find(|(_, unit)| nano % unit == 0).unwrap_or(&DECIMAL[0]);
                format!("{}{suffix}", nano / unit)
            }
            Format::Exponent => {
                let at = DECIMAL.iter().rposition(|(_, unit)| nano % unit == 0).unwrap_or(0);
                let exponent = i32::try_from(at).unwrap_or(0) * 3 - 9;
                let mantissa = nano / DECIMAL[at].1;
                if exponent == 0 { mantissa.to_string() } else { format!("{mantissa}e{exponent}") }
            }
        }
    }

    pub(crate) fn compare(self, other: Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

fn unit(suffix: &str) -> Option<(i128, Format)> {
    if let Some((_, unit)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((*unit, Format::Decimal));
    }
    if let Some(at) = BINARY.iter().position(|name| *name == suffix) {
        return Some((NANO << (10 * (at + 1)), Format::Binary));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let exponent: i32 = exponent.parse().ok()?;
    let unit = if exponent >= 0 {
        10_i128.checked_pow(exponent.unsigned_abs()).and_then(|power| power.checked_mul(NANO)).unwrap_or(MAX)
    } else {
        (NANO / 10_i128.checked_pow(exponent.unsigned_abs()).unwrap_or(i128::MAX)).max(1)
    };
    Some((unit, Format::Exponent))
}

#[cfg(test)]
mod tests {
    use super::Quantity;

    #[test]
    fn a_quantity_is_written_as_short_as_it_can_be() {
        for (given, written) in [
            ("1", "1"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1024Ki", "1Mi"),
            ("1000Ki", "1000Ki"),
            ("100Mi", "100Mi"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("1500", "1500"),
            ("2000", "2k"),
            ("0", "0"),
            ("-1", "-1"),
            ("0.1m", "100u"),
            ("512Ki", "512Ki"),
            ("+3", "3"),
            (".5", "500m"),
            ("5.", "5"),
        ] {
            assert_eq!(Quantity::parse(given).map(Quantity::canonical).as_deref(), Some(written), "{given}");
        }
        for wrong in ["", "4 cores", "16gi", "1..2", "Gi", "-", "1e", "0x10"] {
            assert_eq!(Quantity::parse(wrong), None, "{wrong}");
        }
    }
}

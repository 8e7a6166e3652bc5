//! From text to number, as API servers read it.
//!
//! They have two readers: a short one for texts of up to 18 digits, and a long one for the rest. The two
//! differ in what they make of a text without digits and in whether they keep the text itself; the
//! numbers are the same. Here is one reader that knows which of theirs would have been used.

use super::{Format, NANOS_PER_UNIT, Quantity};

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    /// There is nothing.
    #[error("the quantity is empty: write a number such as 4, 500m or 16Gi")]
    Empty,
    /// It does not look like a number with a suffix.
    #[error("`{0}` is not a quantity: write a number such as 4, 500m or 16Gi")]
    NotAQuantity(String),
    /// A suffix, and no number before it.
    #[error("`{0}` has no digits: write a number such as 4, 500m or 16Gi")]
    NoDigits(String),
    /// A number, followed by what is no suffix.
    #[error(
        "`{text}` ends in the unknown suffix `{suffix}`: use one of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an \
         exponent such as e3"
    )]
    UnknownSuffix {
        /// The whole text.
        text: String,
        /// What follows the number.
        suffix: String,
    },
}

pub(super) struct Read {
    pub(super) quantity: Quantity,
    /// An API server does not print such a text anew: it keeps it as it is.
    pub(super) kept_verbatim: bool,
    /// The power of ten of the last digit that was written.
    pub(super) last_digit: i64,
}

/// A text, cut into its parts. Leading zeros are gone from `whole`.
struct Parts<'a> {
    negative: bool,
    has_digits: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

/// What a suffix multiplies by.
#[derive(Clone, Copy)]
enum Factor {
    /// 10 to this power.
    Ten(i32),
    /// 1024 to this power.
    Kibi(u32),
}

pub(super) fn read(text: &str) -> Result<Read, ParseQuantityError> {
    if text.is_empty() {
        return Err(ParseQuantityError::Empty);
    }
    let parts = cut(text)?;
    let (factor, format) = interpret(parts.suffix).ok_or_else(|| ParseQuantityError::UnknownSuffix {
        text: text.to_owned(),
        suffix: parts.suffix.to_owned(),
    })?;
    let short = is_short(&parts, factor);
    if !parts.has_digits && !short {
        return Err(ParseQuantityError::NoDigits(text.to_owned()));
    }
    let magnitude = match factor {
        Factor::Ten(exponent) => decimal(&parts, exponent),
        Factor::Kibi(power) => binary(&parts, power),
    };
    let below_one = format == Format::BinarySi && (1..NANOS_PER_UNIT).contains(&magnitude);
    let quantity = Quantity::of_nanos(
        if parts.negative { -magnitude } else { magnitude },
        if below_one { Format::DecimalSi } else { format },
    );
    let last_digit = match factor {
        Factor::Ten(exponent) => last_digit(&parts, exponent),
        Factor::Kibi(_) => 0,
    };
    Ok(Read { quantity, kept_verbatim: short && looks_canonical(&parts, factor), last_digit })
}

fn cut(text: &str) -> Result<Parts<'_>, ParseQuantityError> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, rest) = split_digits(unsigned);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => split_digits(rest),
        None => ("", rest),
    };
    let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let exponent = letters.strip_prefix(['+', '-']).unwrap_or(letters);
    if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ParseQuantityError::NotAQuantity(text.to_owned()));
    }
    Ok(Parts {
        negative,
        has_digits: !(whole.is_empty() && fraction.is_empty()),
        whole: whole.trim_start_matches('0'),
        fraction,
        suffix,
    })
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn interpret(suffix: &str) -> Option<(Factor, Format)> {
    let decimal = |exponent| (Factor::Ten(exponent), Format::DecimalSi);
    let binary = |power| (Factor::Kibi(power), Format::BinarySi);
    Some(match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            #[expect(clippy::cast_possible_truncation, reason = "so does the API server")]
            let exponent = exponent as i32;
            (Factor::Ten(exponent), Format::DecimalExponent)
        }
    })
}

/// Digits before the point, as API servers count them: nothing is one zero.
fn whole_digits(parts: &Parts<'_>) -> usize {
    parts.whole.len().max(1)
}

/// The power of ten of the last digit.
fn last_digit(parts: &Parts<'_>, exponent: i32) -> i64 {
    i64::from(exponent) - i64::try_from(parts.fraction.len()).unwrap_or(i64::MAX)
}

/// Whether an API server takes the short way: the digits surely fit into 64 bits, and none is below nano.
fn is_short(parts: &Parts<'_>, factor: Factor) -> bool {
    match factor {
        Factor::Ten(exponent) => {
            whole_digits(parts) + parts.fraction.len() <= 18 && last_digit(parts, exponent) >= -9
        }
        // Each power of 1024 costs three digits of fourteen.
        Factor::Kibi(power) => parts.fraction.is_empty() && whole_digits(parts) + 3 * power as usize <= 14,
    }
}

fn looks_canonical(parts: &Parts<'_>, factor: Factor) -> bool {
    match factor {
        Factor::Ten(exponent) => {
            let digits = [parts.whole, parts.fraction].concat();
            last_digit(parts, exponent) % 3 == 0 && !digits.ends_with("000") && !parts.whole.is_empty()
        }
        Factor::Kibi(_) => parts.whole.parse::<u64>().is_ok_and(|number| number % 8 != 0),
    }
}

/// Nano-units of a decimal number, what is finer rounded up: who asks for little gets a little.
fn decimal(parts: &Parts<'_>, exponent: i32) -> i128 {
    let digits = [parts.whole, parts.fraction].concat();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let power = last_digit(parts, exponent).saturating_add(9);
    if let Ok(zeros) = u32::try_from(power) {
        let scaled = || digits.parse::<i128>().ok()?.checked_mul(10_i128.checked_pow(zeros)?);
        return scaled().unwrap_or(i128::MAX);
    }
    if power > 0 {
        return i128::MAX;
    }
    let too_fine = usize::try_from(power.unsigned_abs()).unwrap_or(usize::MAX);
    let (kept, cut) = digits.split_at(digits.len().saturating_sub(too_fine));
    let number = if kept.is_empty() { 0 } else { kept.parse().unwrap_or(i128::MAX) };
    number.saturating_add(i128::from(cut.bytes().any(|digit| digit != b'0')))
}

/// Nano-units of a number times a power of 1024, at most those of the largest `i64`.
fn binary(parts: &Parts<'_>, power: u32) -> i128 {
    const CAP: i128 = i64::MAX as i128;
    // Nineteen digits are less than 2^64; times 2^60 they still fit.
    if parts.whole.len() > 19 {
        return CAP * NANOS_PER_UNIT;
    }
    let mut units: i128 = parts.whole.parse().unwrap_or(0);
    let mut fraction: Vec<u32> = parts.fraction.bytes().map(|byte| u32::from(byte - b'0')).collect();
    for _ in 0..power {
        let mut carry = 0;
        for digit in fraction.iter_mut().rev() {
            let product = *digit * 1024 + carry;
            (*digit, carry) = (product % 10, product / 10);
        }
        units = units * 1024 + i128::from(carry);
    }
    let mut digits = fraction.into_iter();
    let nanos = (0..9).fold(0, |sum, _| sum * 10 + i128::from(digits.next().unwrap_or(0)));
    let rounded_up = i128::from(digits.any(|digit| digit != 0));
    if units >= CAP { CAP * NANOS_PER_UNIT } else { units * NANOS_PER_UNIT + nanos + rounded_up }
}

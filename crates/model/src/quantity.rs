//! Kubernetes quantities, exactly: `500m`, `16Gi`, `1e3`.
//!
//! A quantity is a whole number of nano-units and the family of suffixes it was written in. It is
//! read as API servers read it, quirks included, and printed in the form that they keep.
//!
//! Numbers whose magnitude passes [`Quantity::MAX`] (about 1.7 × 10²⁹) stop there instead of
//! overflowing: no cluster has as much of anything.
//!
//! Deliberately absent: floating point (but for metrics), and what the numbers are numbers of.

mod parse;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::ser::{Serialize, Serializer};

pub use parse::ParseQuantityError;

const NANOS_PER_UNIT: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;

/// The family of suffixes that a quantity was written in, and is printed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Powers of ten by letter: `n u m k M G T P E`.
    #[default]
    DecimalSi,
    /// Powers of 1024: `Ki Mi Gi Ti Pi Ei`.
    BinarySi,
    /// Powers of ten by number: `e3`.
    DecimalExponent,
}

/// An amount of a resource. Equality, order and hash are those of the number; the format only
/// decides how it is printed.
#[derive(Clone, Copy, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// The largest quantity; what would be larger is this.
    pub const MAX: Self = Self { nanos: i128::MAX, format: Format::DecimalSi };

    /// So many units, printed in decimal.
    pub const fn whole(units: i64) -> Self {
        Self::of_nanos(units as i128 * NANOS_PER_UNIT, Format::DecimalSi)
    }

    /// So many thousandths, printed in decimal.
    pub const fn milli(thousandths: i64) -> Self {
        Self::of_nanos(thousandths as i128 * NANOS_PER_MILLI, Format::DecimalSi)
    }

    /// So many units, printed in powers of 1024 where they are.
    pub const fn bytes(bytes: i64) -> Self {
        Self::of_nanos(bytes as i128 * NANOS_PER_UNIT, Format::BinarySi)
    }

    /// The smallest number is the negative of the largest, so that every number has its negative.
    const fn of_nanos(nanos: i128, format: Format) -> Self {
        Self { nanos: if nanos == i128::MIN { -i128::MAX } else { nanos }, format }
    }

    /// In which family of suffixes it is printed, as far as the number allows.
    pub const fn format(self) -> Format {
        self.format
    }

    /// Whether it is nothing.
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is less than nothing.
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// This, or nothing where it is less than nothing.
    #[must_use]
    pub fn at_least_zero(self) -> Self {
        Self { nanos: self.nanos.max(0), ..self }
    }

    /// So many per cent of it, rounded towards zero to a nano-unit: a share is never more than it says.
    #[must_use]
    pub const fn percent(self, percent: u8) -> Self {
        let percent = percent as i128;
        // The hundredth first, so that the product of a large number stays in range.
        let (hundredths, rest) = (self.nanos / 100, self.nanos % 100);
        let share = match hundredths.checked_mul(percent) {
            Some(share) => share.saturating_add(rest * percent / 100),
            None if self.nanos > 0 => i128::MAX,
            None => -i128::MAX,
        };
        Self::of_nanos(share, self.format)
    }

    /// The largest whole number of units that is not more.
    #[must_use]
    pub const fn floor_to_whole(self) -> Self {
        self.floor_to(NANOS_PER_UNIT)
    }

    /// The largest whole number of thousandths that is not more.
    #[must_use]
    pub const fn floor_to_milli(self) -> Self {
        self.floor_to(NANOS_PER_MILLI)
    }

    /// The smallest whole number of units that is not less.
    #[must_use]
    pub const fn ceil_to_whole(self) -> Self {
        self.ceil_to(NANOS_PER_UNIT)
    }

    /// The smallest whole number of thousandths that is not less.
    #[must_use]
    pub const fn ceil_to_milli(self) -> Self {
        self.ceil_to(NANOS_PER_MILLI)
    }

    const fn floor_to(self, step: i128) -> Self {
        let down = self.nanos.saturating_sub(self.nanos.rem_euclid(step));
        // Near the lower end of the range there is no such number: the end will do.
        Self::of_nanos(down, self.format)
    }

    const fn ceil_to(self, step: i128) -> Self {
        let above = self.nanos.rem_euclid(step);
        let up = if above == 0 { self.nanos } else { self.nanos.saturating_add(step - above) };
        Self::of_nanos(up, self.format)
    }

    /// Between two others.
    #[must_use]
    pub fn between(self, low: Self, high: Self) -> Self {
        Self { nanos: self.nanos.min(high.nanos).max(low.nanos), ..self }
    }

    /// The number, for metrics: as near as floating point comes.
    #[expect(clippy::cast_precision_loss, reason = "that is what floating point does")]
    pub fn as_f64(self) -> f64 {
        self.nanos as f64 / NANOS_PER_UNIT as f64
    }

    /// What an API server keeps for `text`: mostly the same as parsing and printing it. But a text that
    /// looks canonical at a glance is kept letter by letter (`1.500`, `+5`, `1E3`), and read again each time.
    pub fn as_stored(text: &str) -> Result<Cow<'_, str>, ParseQuantityError> {
        let text = text.trim();
        let read = parse::read(text)?;
        Ok(if read.kept_verbatim { Cow::Borrowed(text) } else { Cow::Owned(read.quantity.to_string()) })
    }
}

impl Quantity {
    /// What an API server keeps for `text` in a list of core resources (requests, limits, capacity,
    /// allocatable): as anywhere else, but what is finer than a thousandth is rounded away from zero.
    pub fn as_listed(text: &str) -> Result<Cow<'_, str>, ParseQuantityError> {
        let text = text.trim();
        let read = parse::read(text)?;
        if read.kept_verbatim && read.last_digit >= -3 {
            return Ok(Cow::Borrowed(text));
        }
        let quantity = read.quantity;
        let rounded =
            if quantity.is_negative() { quantity.floor_to_milli() } else { quantity.ceil_to_milli() };
        Ok(Cow::Owned(rounded.to_string()))
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    /// Space around it is not part of it, as in JSON documents that API servers read.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse::read(text.trim()).map(|read| read.quantity)
    }
}

impl TryFrom<&Written> for Quantity {
    type Error = ParseQuantityError;

    fn try_from(written: &Written) -> Result<Self, Self::Error> {
        written.0.parse()
    }
}

impl From<Quantity> for Written {
    fn from(quantity: Quantity) -> Self {
        Self(quantity.to_string())
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

/// Stops at [`Quantity::MAX`]. Nothing takes the format of what is added to it.
impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self::of_nanos(self.nanos.saturating_add(other.nanos), format)
    }
}

/// Stops at the negative of [`Quantity::MAX`]. Nothing takes the format of what is taken from it.
impl Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self::of_nanos(self.nanos.saturating_sub(other.nanos), format)
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Self::add)
    }
}

impl fmt::Display for Quantity {
    /// Canonical: no fraction, the largest suffix that leaves none, no sign unless negative.
    ///
    /// Where an API server would print another number than it has (it drops suffixes beyond `E` and `Ei`),
    /// this prints one that is read as what it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = self.nanos / NANOS_PER_UNIT;
        let whole = self.nanos % NANOS_PER_UNIT == 0;
        let text = match self.format {
            _ if self.is_zero() => "0".to_owned(),
            // What is less than 1024 is clearer in decimal; what is more than an i64 would be capped when read.
            Format::BinarySi if whole && (1024..=i128::from(i64::MAX)).contains(&units.abs()) => {
                in_powers_of_1024(units)
            }
            Format::BinarySi | Format::DecimalSi => in_powers_of_ten(self.nanos, true),
            Format::DecimalExponent => in_powers_of_ten(self.nanos, false),
        };
        f.pad(&text)
    }
}

impl fmt::Debug for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn in_powers_of_1024(mut units: i128) -> String {
    let mut suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter();
    let mut suffix = suffixes.next();
    while units % 1024 == 0 {
        units /= 1024;
        suffix = suffixes.next();
    }
    format!("{units}{}", suffix.unwrap_or(&""))
}

fn in_powers_of_ten(nanos: i128, by_letter: bool) -> String {
    let (mut number, mut exponent) = (nanos, -9);
    while number % 10 == 0 {
        number /= 10;
        exponent += 1;
    }
    while exponent % 3 != 0 {
        number *= 10; // a digit that was taken away above
        exponent -= 1;
    }
    let letter = match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        0 => "",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => return format!("{number}e{exponent}"),
    };
    if by_letter || exponent == 0 { format!("{number}{letter}") } else { format!("{number}e{exponent}") }
}

impl<'de> Deserialize<'de> for Quantity {
    /// From a string or a number. Null is nothing, as API servers take it.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as \"500m\" or 4")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity::whole(number))
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity::of_nanos(i128::from(number) * NANOS_PER_UNIT, Format::DecimalSi))
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Quantity, E> {
                number.to_string().parse().map_err(E::custom)
            }

            fn visit_unit<E: serde::de::Error>(self) -> Result<Quantity, E> {
                Ok(Quantity::ZERO)
            }
        }

        deserializer.deserialize_any(Text).map_err(D::Error::custom)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests;

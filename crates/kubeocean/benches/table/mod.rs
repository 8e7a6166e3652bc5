//! What was measured, beside what it may be: the table that is printed.

use serde::Serialize;

/// One line.
#[derive(Serialize)]
pub(crate) struct Row {
    what: String,
    value: f64,
    unit: &'static str,
    budget: Option<Budget>,
}

#[derive(Clone, Copy, Serialize)]
enum Budget {
    AtMost(f64),
    AtLeast(f64),
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { what: what.into(), value, unit, budget: None }
    }

    pub(crate) fn at_most(self, limit: f64) -> Self {
        Self { budget: Some(Budget::AtMost(limit)), ..self }
    }

    pub(crate) fn at_least(self, limit: f64) -> Self {
        Self { budget: Some(Budget::AtLeast(limit)), ..self }
    }
}

pub(crate) fn print(rows: &[Row]) {
    println!("{:<52}{:>12} {:<8}{:>10}", "what", "measured", "", "budget");
    for Row { what, value, unit, budget } in rows {
        let (limit, holds) = match budget {
            None => (String::new(), ""),
            Some(Budget::AtMost(limit)) => (format!("≤ {limit}"), verdict(value <= limit)),
            Some(Budget::AtLeast(limit)) => (format!("≥ {limit}"), verdict(value >= limit)),
        };
        println!("{what:<52}{value:>12.2} {unit:<8}{limit:>10}  {holds}");
    }
}

fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "DOES NOT HOLD" }
}

pub(crate) fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

/// The one in the middle: a server that collects its garbage once says nothing about us.
pub(crate) fn median(samples: impl Iterator<Item = f64>) -> f64 {
    percentile(&samples.collect::<Vec<_>>(), 50)
}

/// So many of a hundred are not greater.
pub(crate) fn percentile(samples: &[f64], of_hundred: usize) -> f64 {
    let mut samples = samples.to_vec();
    samples.sort_unstable_by(f64::total_cmp);
    let rank = (samples.len() * of_hundred).div_ceil(100).max(1);
    samples.get(rank - 1).copied().unwrap_or(f64::NAN)
}

//! Conditions: what is true of an object, and since when.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

/// An API server takes messages of 32768 bytes; nobody reads more than this.
const LONGEST: usize = 4096;

/// What is to be said.
#[derive(Clone, Debug)]
pub(crate) struct Said<'a> {
    /// The condition's type.
    pub(crate) about: &'static str,
    /// `None`: not known.
    pub(crate) holds: Option<bool>,
    /// One word.
    pub(crate) reason: &'static str,
    /// For people.
    pub(crate) message: &'a str,
}

impl Said<'_> {
    /// As it is written. What was so before is so since then.
    pub(crate) fn written(&self, known: &[Condition], generation: i64, now: Timestamp) -> Value {
        let status = word(self.holds);
        let since = find(known, self.about).filter(|known| known.status == status);
        let since = since.map_or(now, |known| known.last_transition_time.0);
        json!({
            "type": self.about, "status": status, "reason": self.reason, "message": cut(self.message),
            "observedGeneration": generation, "lastTransitionTime": whole_seconds(since),
        })
    }
}

/// A condition that is there, in the same form.
pub(crate) fn as_written(known: &Condition) -> Value {
    json!({
        "type": known.type_, "status": known.status, "reason": known.reason, "message": known.message,
        "observedGeneration": known.observed_generation.unwrap_or_default(),
        "lastTransitionTime": whole_seconds(known.last_transition_time.0),
    })
}

/// The condition of a type.
pub(crate) fn find<'a>(known: &'a [Condition], about: &str) -> Option<&'a Condition> {
    known.iter().find(|condition| condition.type_ == about)
}

/// True, False or Unknown.
pub(crate) const fn word(holds: Option<bool>) -> &'static str {
    match holds {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    }
}

/// A message that is not too long.
pub(crate) fn cut(message: &str) -> String {
    if message.len() <= LONGEST {
        return message.to_owned();
    }
    let end = (0..=LONGEST).rev().find(|end| message.is_char_boundary(*end)).unwrap_or_default();
    format!("{}…", &message[..end])
}

/// API servers keep times of conditions in seconds.
pub(crate) fn whole_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

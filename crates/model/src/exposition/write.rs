//! Writes the format.

use std::fmt::Write as _;

/// Adds lines to a text. Names and kinds are the caller's, and right; values of labels may be anything.
#[derive(Debug)]
pub struct Writer<'a> {
    text: &'a mut String,
}

impl<'a> Writer<'a> {
    /// Adds to this text.
    pub fn new(text: &'a mut String) -> Self {
        Self { text }
    }

    /// What a family is, in words of our own.
    pub fn help(&mut self, name: &str, help: &str) {
        self.words(&["# HELP ", name, " "]);
        for letter in help.chars() {
            match letter {
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                _ => self.text.push(letter),
            }
        }
        self.text.push('\n');
    }

    /// What a family is, as someone else wrote it.
    pub fn help_as_written(&mut self, name: &str, help: &str) {
        self.words(&["# HELP ", name, " ", help, "\n"]);
    }

    /// Of which kind a family is.
    pub fn kind(&mut self, name: &str, kind: &str) {
        self.words(&["# TYPE ", name, " ", kind, "\n"]);
    }

    /// A number of a series, and when it was taken.
    pub fn sample<L: AsRef<str>, V: AsRef<str>>(
        &mut self,
        name: &str,
        labels: impl IntoIterator<Item = (L, V)>,
        value: f64,
        at: Option<i64>,
    ) {
        self.text.push_str(name);
        let mut before = '{';
        for (label, words) in labels {
            self.text.push(before);
            self.words(&[label.as_ref(), "=\""]);
            for letter in words.as_ref().chars() {
                match letter {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    _ => self.text.push(letter),
                }
            }
            self.text.push('"');
            before = ',';
        }
        if before == ',' {
            self.text.push('}');
        }
        self.text.push(' ');
        self.number(value);
        if let Some(at) = at {
            let _ = write!(self.text, " {at}");
        }
        self.text.push('\n');
    }

    /// The shortest that is read as the same number; with an exponent where it would be a row of zeros.
    fn number(&mut self, value: f64) {
        let size = value.abs();
        let _ = if value.is_nan() {
            self.text.write_str("NaN")
        } else if value.is_infinite() {
            self.text.write_str(if value > 0.0 { "+Inf" } else { "-Inf" })
        } else if size != 0.0 && !(1e-6..1e21).contains(&size) {
            write!(self.text, "{value:e}")
        } else {
            write!(self.text, "{value}")
        };
    }

    fn words(&mut self, words: &[&str]) {
        self.text.extend(words.iter().copied());
    }
}

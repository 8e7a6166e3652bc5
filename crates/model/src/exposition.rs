//! The Prometheus text format, line by line: what kubelets say of what they run.
//!
//! A kubelet's answer may have 20 MB, so nothing is kept of it but the line that is looked at: [`Lines`] cuts chunks into lines, [`parse`] borrows
//! from one, [`Writer`] adds one. What is not in the format is [`Nonsense`], to be dropped and counted: a counter that is read wrongly is worse
//! than one that is missing. That includes a label that is given twice, which would be one pod's for one reader and another's for the next.
//!
//! By hand, because the crates that read this format make an object of every sample and keep them all.
//!
//! Deliberately absent: what the series mean; exemplars, names in quotes and times in seconds (`OpenMetrics`), which nobody sends who was asked for
//! `text/plain`. Only its `# EOF` is understood.

use std::borrow::Cow;

mod lines;
#[cfg(test)]
mod tests;
mod write;

pub use lines::Lines;
pub use write::Writer;

/// The longest line of a kubelet has some 600 bytes; names of images are what makes it longer.
pub const MAX_LINE: usize = 16 * 1024;

/// cadvisor gives a series at most 12 labels.
pub const MAX_LABELS: usize = 64;

/// One line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Line<'a> {
    /// Nothing, or a remark.
    Blank,
    /// `# HELP name text`; the text is as it was written, escapes and all.
    Help {
        /// The family.
        name: &'a str,
        /// What it is.
        text: &'a str,
    },
    /// `# TYPE name kind`.
    Type {
        /// The family.
        name: &'a str,
        /// `counter`, `gauge`, ...
        kind: &'a str,
    },
    /// `# EOF`.
    End,
    /// A sample of a series.
    Sample(Sample<'a>),
}

/// One number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// Of which family.
    pub name: &'a str,
    /// Of which series.
    pub labels: Labels<'a>,
    /// The number.
    pub value: f64,
    /// When it was taken, in milliseconds since 1970.
    pub at: Option<i64>,
}

/// What is not in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nonsense {
    /// Its bytes are not text.
    #[error("not UTF-8")]
    NotText,
    /// It is longer than [`MAX_LINE`].
    #[error("longer than {MAX_LINE} bytes")]
    TooLong,
    /// It has more than [`MAX_LABELS`].
    #[error("more than {MAX_LABELS} labels")]
    TooManyLabels,
    /// A name has letters that names do not have.
    #[error("not a name")]
    Name,
    /// Labels are not closed, not in quotes, or have an unknown escape.
    #[error("not labels")]
    Labels,
    /// A label is there twice.
    #[error("a label is given twice")]
    Twice,
    /// The number is none.
    #[error("not a number")]
    Value,
    /// The time is none, or something follows it.
    #[error("not a time in milliseconds")]
    Time,
    /// A kind of family that there is not.
    #[error("not a kind of metric")]
    Kind,
}

/// Labels of a series, checked when their line was parsed, and read from it when they are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Labels<'a>(&'a str);

impl<'a> Labels<'a> {
    /// All of them, in the order in which they came.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, Cow<'a, str>)> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (name, quoted, after) = next_label(rest).ok()??;
            rest = after;
            Some((name, unescaped(quoted)))
        })
    }

    /// The value of one.
    pub fn get(self, wanted: &str) -> Option<Cow<'a, str>> {
        let mut rest = self.0;
        loop {
            let (name, quoted, after) = next_label(rest).ok()??;
            if name == wanted {
                return Some(unescaped(quoted));
            }
            rest = after;
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.iter().next().is_none()
    }
}

/// Reads a line, which [`Lines`] has cut.
pub fn parse(line: &[u8]) -> Result<Line<'_>, Nonsense> {
    if line.len() > MAX_LINE {
        return Err(Nonsense::TooLong);
    }
    let line = std::str::from_utf8(line).map_err(|_| Nonsense::NotText)?.trim_matches(BLANK);
    match line.strip_prefix('#') {
        _ if line.is_empty() => Ok(Line::Blank),
        Some(remark) => comment(remark.trim_start_matches(BLANK)),
        None => sample(line).map(Line::Sample),
    }
}

const BLANK: [char; 2] = [' ', '\t'];

fn comment(remark: &str) -> Result<Line<'_>, Nonsense> {
    let (word, rest) = remark.split_once(BLANK).unwrap_or((remark, ""));
    let (name, rest) =
        rest.trim_start_matches(BLANK).split_once(BLANK).unwrap_or((rest.trim_matches(BLANK), ""));
    let rest = rest.trim_start_matches(BLANK);
    match word {
        "EOF" if name.is_empty() => Ok(Line::End),
        "HELP" | "TYPE" if !is_metric_name(name) => Err(Nonsense::Name),
        "HELP" => Ok(Line::Help { name, text: rest }),
        "TYPE" if KINDS.contains(&rest) => Ok(Line::Type { name, kind: rest }),
        "TYPE" => Err(Nonsense::Kind),
        _ => Ok(Line::Blank),
    }
}

const KINDS: [&str; 9] =
    ["counter", "gauge", "histogram", "summary", "untyped", "unknown", "info", "stateset", "gaugehistogram"];

fn sample(line: &str) -> Result<Sample<'_>, Nonsense> {
    let end = line.find(|letter| letter == '{' || BLANK.contains(&letter)).ok_or(Nonsense::Value)?;
    let (name, rest) = line.split_at(end);
    if !is_metric_name(name) {
        return Err(Nonsense::Name);
    }
    let rest = rest.trim_start_matches(BLANK);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => checked_labels(rest)?,
        None => (Labels(""), rest),
    };
    let mut words = rest.split(BLANK).filter(|word| !word.is_empty());
    let value = words.next().and_then(|word| word.parse().ok()).ok_or(Nonsense::Value)?;
    let at = words.next().map(str::parse).transpose().map_err(|_| Nonsense::Time)?;
    if words.next().is_some() {
        return Err(Nonsense::Time);
    }
    Ok(Sample { name, labels, value, at })
}

/// What stands between the braces, and what follows them.
fn checked_labels(text: &str) -> Result<(Labels<'_>, &str), Nonsense> {
    let mut names = [""; MAX_LABELS];
    let mut count = 0;
    let mut rest = text;
    while let Some((name, _, after)) = next_label(rest)? {
        if names.iter().take(count).any(|seen| *seen == name) {
            return Err(Nonsense::Twice);
        }
        *names.get_mut(count).ok_or(Nonsense::TooManyLabels)? = name;
        count += 1;
        rest = after;
    }
    let after = rest.trim_start_matches(BLANK).strip_prefix('}').ok_or(Nonsense::Labels)?;
    let inside = text.len() - rest.len();
    Ok((Labels(text.get(..inside).ok_or(Nonsense::Labels)?), after))
}

/// The first label of the rest: its name, its value as it was written, and what follows. `None` at the end, or at the brace.
fn next_label(rest: &str) -> Result<Option<(&str, &str, &str)>, Nonsense> {
    let rest = rest.trim_start_matches(BLANK);
    if rest.is_empty() || rest.starts_with('}') {
        return Ok(None);
    }
    let (name, rest) = rest.split_once('=').ok_or(Nonsense::Labels)?;
    let name = name.trim_end_matches(BLANK);
    if !is_label_name(name) {
        return Err(Nonsense::Name);
    }
    let rest = rest.trim_start_matches(BLANK).strip_prefix('"').ok_or(Nonsense::Labels)?;
    let end = end_of_value(rest).ok_or(Nonsense::Labels)?;
    let (value, rest) = (rest.get(..end).ok_or(Nonsense::Labels)?, rest.get(end + 1..).unwrap_or_default());
    let rest = rest.trim_start_matches(BLANK);
    match rest.strip_prefix(',') {
        Some(after) => Ok(Some((name, value, after))),
        None if rest.is_empty() || rest.starts_with('}') => Ok(Some((name, value, rest))),
        None => Err(Nonsense::Labels),
    }
}

/// Where the closing quote is; `None` if there is none, or an escape is unknown.
fn end_of_value(text: &str) -> Option<usize> {
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some(at),
            b'\\' => {
                let (_, escaped) = bytes.next()?;
                if !matches!(escaped, b'\\' | b'"' | b'n') {
                    return None;
                }
            }
            _ => {}
        }
    }
    None
}

fn unescaped(quoted: &str) -> Cow<'_, str> {
    if !quoted.contains('\\') {
        return Cow::Borrowed(quoted);
    }
    let mut text = String::with_capacity(quoted.len());
    let mut letters = quoted.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => text.extend(letters.next().map(|escaped| if escaped == 'n' { '\n' } else { escaped })),
            _ => text.push(letter),
        }
    }
    Cow::Owned(text)
}

fn is_metric_name(name: &str) -> bool {
    is_name(name, |byte| byte == b':')
}

fn is_label_name(name: &str) -> bool {
    is_name(name, |_| false)
}

fn is_name(name: &str, also: impl Fn(u8) -> bool) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || also(byte);
    let mut bytes = name.bytes();
    bytes.next().is_some_and(&letter) && bytes.all(|byte| letter(byte) || byte.is_ascii_digit())
}

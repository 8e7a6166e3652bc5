//! Named checks, and how a probe reads them.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::RwLock;

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;
type Note = Arc<dyn Fn() -> String + Send + Sync>;

#[derive(Clone)]
enum Entry {
    Check(Check),
    Note(Note),
}

/// Checks that together answer one question: is it alive, is it ready? Clones share them.
///
/// A check is asked at every probe: it looks at what others have written down, and neither waits nor calls.
#[derive(Clone, Default)]
pub struct Health(Arc<RwLock<Vec<(String, Entry)>>>);

impl Health {
    /// Without checks, all is well.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check, or replaces that of the same name. An error says why not, to a person.
    pub fn check(&self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.put(name, Entry::Check(Arc::new(check)));
    }

    /// Adds something worth knowing that fails no probe.
    pub fn note(&self, name: &str, note: impl Fn() -> String + Send + Sync + 'static) {
        self.put(name, Entry::Note(Arc::new(note)));
    }

    /// Removes a check or a note.
    pub fn forget(&self, name: &str) {
        self.0.write().retain(|(existing, _)| existing != name);
    }

    fn put(&self, name: &str, entry: Entry) {
        let mut entries = self.0.write();
        match entries.iter_mut().find(|(existing, _)| existing == name) {
            Some((_, existing)) => *existing = entry,
            None => entries.push((name.to_owned(), entry)),
        }
    }

    /// Asks every check whose name `asked` takes.
    pub fn report(&self, asked: impl Fn(&str) -> bool) -> Report {
        // Checks may take locks of their own: none of ours is held while they run.
        let entries: Vec<_> = self.0.read().iter().filter(|(name, _)| asked(name)).cloned().collect();
        Report(
            entries
                .into_iter()
                .map(|(name, entry)| match entry {
                    Entry::Check(check) => (name, Line::Checked(check())),
                    Entry::Note(note) => (name, Line::Noted(note())),
                })
                .collect(),
        )
    }

    /// The failures, with their reasons, or nothing.
    pub fn failures(&self) -> Vec<(String, String)> {
        let Report(lines) = self.report(|_| true);
        lines
            .into_iter()
            .filter_map(|(name, line)| match line {
                Line::Checked(Err(reason)) => Some((name, reason)),
                _ => None,
            })
            .collect()
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.read().iter().map(|(name, _)| name)).finish()
    }
}

enum Line {
    Checked(Result<(), String>),
    Noted(String),
}

/// What the checks said.
pub struct Report(Vec<(String, Line)>);

impl Report {
    /// Whether no check failed.
    pub fn passed(&self) -> bool {
        !self.0.iter().any(|(_, line)| matches!(line, Line::Checked(Err(_))))
    }

    /// Whether nobody was asked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As the API server answers `?verbose`, with our reasons.
    pub fn text(&self, question: &str) -> String {
        let mut text = String::new();
        for (name, line) in &self.0 {
            // A String takes everything.
            let _ = match line {
                Line::Checked(Ok(())) => writeln!(text, "[+]{name} ok"),
                Line::Checked(Err(reason)) => writeln!(text, "[-]{name} failed: {reason}"),
                Line::Noted(note) => writeln!(text, "[.]{name}: {note}"),
            };
        }
        let _ = writeln!(text, "{question} check {}", if self.passed() { "passed" } else { "failed" });
        text
    }
}

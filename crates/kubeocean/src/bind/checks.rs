//! What was looked at, one line each: ✓, ! or ✗ with what to do about it.

use std::fmt::Display;

use crate::terminal::note;

/// Wide enough for the longest subject, so that the sentences stand in a column.
const SUBJECTS: usize = 18;

/// What was made of something that can be one or the other.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// As it should be.
    Good(String),
    /// Worth a thought.
    Worth(String),
    /// Wrong, with the fix.
    Wrong(String),
}

impl Judgement {
    pub(super) const fn mark(&self) -> char {
        match self {
            Self::Good(_) => '✓',
            Self::Worth(_) => '!',
            Self::Wrong(_) => '✗',
        }
    }

    pub(super) fn says(&self) -> &str {
        match self {
            Self::Good(says) | Self::Worth(says) | Self::Wrong(says) => says,
        }
    }
}

/// Tells as it goes, and counts what is wrong.
#[derive(Debug, Default)]
pub(super) struct Checks {
    wrong: usize,
}

impl Checks {
    /// As it should be.
    pub(super) fn good(&mut self, subject: &str, says: impl Display) {
        self.line('✓', subject, says);
    }

    /// Not wrong, and yet worth a thought.
    pub(super) fn warn(&mut self, subject: &str, says: impl Display) {
        self.line('!', subject, says);
    }

    /// Wrong: nothing will be written. The sentence names the fix.
    pub(super) fn bad(&mut self, subject: &str, says: impl Display) {
        self.line('✗', subject, says);
    }

    /// Nobody can tell from here.
    pub(super) fn unknown(&mut self, subject: &str, says: impl Display) {
        self.line('?', subject, says);
    }

    /// As it was judged.
    pub(super) fn judged(&mut self, subject: &str, judgement: &Judgement) {
        self.line(judgement.mark(), subject, judgement.says());
    }

    /// An error, if anything is wrong.
    pub(super) fn verdict(&self) -> anyhow::Result<()> {
        match self.wrong {
            0 => Ok(()),
            1 => anyhow::bail!("one thing has to be repaired first (✗ above); nothing was written"),
            wrong => {
                anyhow::bail!("{wrong} things have to be repaired first (✗ above); nothing was written")
            }
        }
    }

    fn line(&mut self, mark: char, subject: &str, says: impl Display) {
        self.wrong += usize::from(mark == '✗');
        note(&format!("{mark} {subject:<SUBJECTS$} {says}"));
    }
}

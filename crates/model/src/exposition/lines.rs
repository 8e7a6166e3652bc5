//! Cuts what comes over the wire into lines.

use super::{Line, MAX_LINE, Nonsense, parse};

/// Holds the beginning of the line that a chunk ended in, and nothing else. A line that is too long is not gathered, only reported.
#[derive(Debug, Default)]
pub struct Lines {
    begun: Vec<u8>,
    too_long: bool,
}

impl Lines {
    /// Nothing has come yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `each` with every line that ends in this chunk.
    pub fn feed(&mut self, chunk: &[u8], mut each: impl FnMut(Result<Line<'_>, Nonsense>)) {
        let mut pieces = chunk.split(|byte| *byte == b'\n');
        let last = pieces.next_back().unwrap_or_default();
        for piece in pieces {
            if self.begun.is_empty() && !self.too_long {
                each(parse(piece));
            } else {
                self.gather(piece);
                self.end(&mut each);
            }
        }
        self.gather(last);
    }

    /// Calls `each` with the line that was not ended, if there is one.
    pub fn finish(&mut self, mut each: impl FnMut(Result<Line<'_>, Nonsense>)) {
        if self.too_long || !self.begun.is_empty() {
            self.end(&mut each);
        }
    }

    fn gather(&mut self, piece: &[u8]) {
        if self.too_long || self.begun.len() + piece.len() > MAX_LINE {
            self.too_long = true;
            self.begun.clear();
        } else {
            self.begun.extend_from_slice(piece);
        }
    }

    fn end(&mut self, each: &mut impl FnMut(Result<Line<'_>, Nonsense>)) {
        each(if self.too_long { Err(Nonsense::TooLong) } else { parse(&self.begun) });
        self.begun.clear();
        self.too_long = false;
    }
}

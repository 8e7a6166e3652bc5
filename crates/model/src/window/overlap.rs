//! When several weeks are open at once.

use super::Span;
use super::hours::Spans;

/// What all streams of spans have in common, in order.
pub(super) struct Overlap<'a> {
    /// Each with its current span. Empty: always.
    streams: Vec<(Spans<'a>, Span)>,
    ended: bool,
}

impl<'a> Overlap<'a> {
    pub(super) fn of(streams: Vec<Spans<'a>>) -> Self {
        let heads: Option<Vec<_>> =
            streams.into_iter().map(|mut stream| stream.next().map(|head| (stream, head))).collect();
        Self { ended: heads.is_none(), streams: heads.unwrap_or_default() }
    }

    /// Moves on the stream whose span ends first; without one that ends, nothing comes any more.
    fn advance(&mut self) {
        let first_to_end = self
            .streams
            .iter_mut()
            .filter_map(|stream| stream.1.to.map(|to| (to, stream)))
            .min_by_key(|(to, _)| *to);
        match first_to_end.and_then(|(_, stream)| stream.0.next().map(|next| (stream, next))) {
            Some((stream, next)) => stream.1 = next,
            None => self.ended = true,
        }
    }
}

impl Iterator for Overlap<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        while !self.ended {
            let heads = || self.streams.iter().map(|(_, head)| head);
            let common = Span {
                from: heads().map(|head| head.from).max().unwrap_or(Span::ALWAYS.from),
                to: heads().filter_map(|head| head.to).min(),
            };
            self.advance();
            if common.to.is_none_or(|to| common.from < to) {
                return Some(common);
            }
        }
        None
    }
}

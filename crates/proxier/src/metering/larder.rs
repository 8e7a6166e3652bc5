//! Answers that are still good, of all nodes, and not more of them than there is room for.

use std::collections::VecDeque;
use std::time::Duration;

use kubeocean_cluster::kubelet::Page;
use tokio::time::Instant;

use super::{Answer, Refused};

/// Oldest first.
pub(super) struct Larder {
    kept_for: Duration,
    room: usize,
    used: usize,
    jars: VecDeque<Jar>,
}

struct Jar {
    vnode: Box<str>,
    page: Page,
    since: Instant,
    outcome: Result<Answer, Refused>,
}

impl Jar {
    fn size(&self) -> usize {
        size(&self.outcome)
    }
}

fn size(outcome: &Result<Answer, Refused>) -> usize {
    match outcome {
        Ok(answer) => answer.body.len(),
        Err(refused) => refused.message.len(),
    }
}

impl Larder {
    pub(super) fn new(kept_for: Duration, room: usize) -> Self {
        Self { kept_for, room, used: 0, jars: VecDeque::new() }
    }

    /// What was said of a page, if that is still good.
    pub(super) fn take(&mut self, vnode: &str, page: Page, now: Instant) -> Option<Result<Answer, Refused>> {
        self.throw_away(now);
        let jar = self.jars.iter().rev().find(|jar| jar.page == page && &*jar.vnode == vnode);
        jar.map(|jar| jar.outcome.clone())
    }

    /// Keeps what was said, and lets go of the oldest where there is no room for it.
    pub(super) fn put(&mut self, vnode: &str, page: Page, outcome: &Result<Answer, Refused>, now: Instant) {
        self.throw_away(now);
        if size(outcome) > self.room {
            return;
        }
        self.used += size(outcome);
        self.jars.push_back(Jar { vnode: vnode.into(), page, since: now, outcome: outcome.clone() });
        while self.used > self.room {
            self.drop_oldest();
        }
    }

    fn throw_away(&mut self, now: Instant) {
        while self.jars.front().is_some_and(|jar| now.duration_since(jar.since) >= self.kept_for) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(jar) = self.jars.pop_front() {
            self.used -= jar.size();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_size(size: usize) -> Answer {
        Answer { body: vec![b'x'; size].into(), content_type: "text/plain" }
    }

    #[test]
    fn an_answer_is_good_for_a_moment() {
        let start = Instant::now();
        let mut larder = Larder::new(Duration::from_secs(5), 1000);
        larder.put("a", Page::Resource, &Ok(of_size(10)), start);
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(larder.take("a", Page::Resource, after(4)).is_some());
        assert!(larder.take("a", Page::Cadvisor, after(4)).is_none());
        assert!(larder.take("b", Page::Resource, after(4)).is_none());
        assert!(larder.take("a", Page::Resource, after(5)).is_none());
        assert_eq!((larder.used, larder.jars.len()), (0, 0));
    }

    #[test]
    fn a_thousand_nodes_do_not_fill_the_memory() {
        let now = Instant::now();
        let mut larder = Larder::new(Duration::from_secs(5), 1000);
        for node in 0..1000 {
            larder.put(&node.to_string(), Page::Cadvisor, &Ok(of_size(300)), now);
            assert!(larder.used <= 1000);
        }
        assert!(larder.take("999", Page::Cadvisor, now).is_some(), "the newest is there");
        assert!(larder.take("990", Page::Cadvisor, now).is_none());
        larder.put("large", Page::Cadvisor, &Ok(of_size(1001)), now);
        assert!(
            larder.take("999", Page::Cadvisor, now).is_some(),
            "nothing goes for what has no room at all"
        );
    }
}

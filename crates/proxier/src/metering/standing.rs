//! How it stands with a kubelet: one that cannot be asked is not asked each time, and its trouble is told once.

use std::time::Duration;

use tokio::time::Instant;

use super::trouble::Trouble;

/// What came of the last questions.
#[derive(Debug, Default)]
pub(super) struct Standing {
    trouble: Option<Failing>,
}

#[derive(Debug)]
struct Failing {
    trouble: Trouble,
    /// Other credentials may do better: they need not wait.
    connection: u64,
    delay: Duration,
    until: Instant,
}

impl Standing {
    /// Why it is better left alone, if it is.
    pub(super) fn keeps_off(&self, connection: u64, now: Instant) -> Option<Trouble> {
        let failing = self.trouble.as_ref()?;
        (failing.connection == connection && now < failing.until).then(|| failing.trouble.clone())
    }

    /// Takes what came of a question.
    pub(super) fn learn(
        &mut self,
        vnode: &str,
        connection: u64,
        trouble: Option<&Trouble>,
        ask_again: (Duration, Duration),
        now: Instant,
    ) {
        let before = self.trouble.take();
        let Some(trouble) = trouble else {
            if before.is_some() {
                tracing::info!(vnode, "the kubelet of the worker node answers again");
            }
            return;
        };
        let same = before.as_ref().is_some_and(|before| before.trouble.to_string() == trouble.to_string());
        if !same {
            tracing::warn!(vnode, %trouble, "the kubelet of the worker node cannot be asked for metrics");
        }
        let delay = match before.filter(|before| before.connection == connection) {
            Some(before) => (before.delay * 2).min(ask_again.1),
            None => ask_again.0,
        };
        self.trouble = Some(Failing { trouble: trouble.clone(), connection, delay, until: now + delay });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGAIN: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(300));

    fn after(seconds: u64, start: Instant) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_kubelet_in_trouble_is_asked_less_and_less_often() {
        let start = Instant::now();
        let mut standing = Standing::default();
        let (mut now, mut waits) = (0, Vec::new());
        for _ in 0..7 {
            standing.learn("v", 1, Some(&Trouble::NoAddress), AGAIN, after(now, start));
            let asked = (now..now + 1000)
                .find(|second| standing.keeps_off(1, after(*second, start)).is_none())
                .unwrap();
            waits.push(asked - now);
            now = asked;
        }
        assert_eq!(waits, [15, 30, 60, 120, 240, 300, 300]);
        standing.learn("v", 1, None, AGAIN, after(now, start));
        assert!(standing.keeps_off(1, after(now, start)).is_none());
    }

    #[test]
    fn other_credentials_are_tried_at_once() {
        let start = Instant::now();
        let mut standing = Standing::default();
        standing.learn("v", 1, Some(&Trouble::NoAddress), AGAIN, start);
        assert!(standing.keeps_off(1, start).is_some());
        assert!(standing.keeps_off(2, start).is_none());
    }
}

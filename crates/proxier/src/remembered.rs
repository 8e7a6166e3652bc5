//! Answers that stay true for a little while, and of which there are never too many.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Answers by question.
pub(crate) struct Remembered<K, V> {
    most: usize,
    answers: Mutex<BTreeMap<K, (V, Instant)>>,
}

impl<K: Ord + Clone, V: Clone> Remembered<K, V> {
    /// None yet, and at most so many.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, answers: Mutex::default() }
    }

    /// The answer, if it is still good.
    pub(crate) fn get(&self, question: &K) -> Option<V> {
        let answers = self.answers.lock();
        answers.get(question).filter(|(_, until)| Instant::now() < *until).map(|(answer, _)| answer.clone())
    }

    /// The answer is good for so long.
    pub(crate) fn put(&self, question: K, answer: V, good_for: Duration) {
        let mut answers = self.answers.lock();
        if answers.len() >= self.most && !answers.contains_key(&question) {
            let now = Instant::now();
            answers.retain(|_, (_, until)| now < *until);
            if answers.len() >= self.most {
                let first = answers.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| key.clone());
                if let Some(first) = first {
                    answers.remove(&first);
                }
            }
        }
        answers.insert(question, (answer, Instant::now() + good_for));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_forgotten_in_time() {
        let known = Remembered::new(2);
        known.put("a", 1, Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(known.get(&"a"), Some(1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(known.get(&"a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn many_questions_cost_the_oldest_answer_and_no_memory() {
        let known = Remembered::new(2);
        for (question, seconds) in [("a", 30), ("b", 10), ("c", 20)] {
            known.put(question, (), Duration::from_secs(seconds));
        }
        assert!(known.get(&"a").is_some() && known.get(&"b").is_none() && known.get(&"c").is_some());
    }
}

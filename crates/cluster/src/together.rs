//! Several loops as one future. Each is looked at only when something has happened to it.
//!
//! `join!` and `select!` look at all of their futures at every event of any of them; with two dozen watches that is most of the work.
//! Those that something happened to are looked at in the order in which they were given, not in which it happened: wakers of others come in
//! any order, and a simulation is to be the same each time.
//!
//! Deliberately absent: tasks. What is dropped here has ended.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;

/// Waits for the end of all of them.
pub async fn all<F: Future<Output = ()> + Unpin>(parts: impl IntoIterator<Item = F>) {
    Together::new(parts).await;
}

/// Waits for the end of one of them, and drops the others.
pub async fn until_one_ends<F: Future<Output = ()> + Unpin>(parts: impl IntoIterator<Item = F>) {
    let mut together = Together::new(parts);
    let Some(others) = together.parts.len().checked_sub(1) else { return };
    together.may_be_left = others;
    together.await;
}

/// See the module.
struct Together<F> {
    parts: Vec<Part<F>>,
    /// Who is told when something happens to any of them.
    whole: Arc<AtomicWaker>,
    /// When no more than so many are left, it ends.
    may_be_left: usize,
}

struct Part<F> {
    future: F,
    news: Arc<News>,
    waker: Waker,
}

/// Whether something has happened to a part.
struct News {
    has_come: AtomicBool,
    whole: Arc<AtomicWaker>,
}

impl Wake for News {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_come.store(true, Ordering::Release);
        self.whole.wake();
    }
}

impl<F: Future<Output = ()> + Unpin> Together<F> {
    fn new(parts: impl IntoIterator<Item = F>) -> Self {
        let whole: Arc<AtomicWaker> = Arc::default();
        let part = |future| {
            let news = Arc::new(News { has_come: AtomicBool::new(true), whole: Arc::clone(&whole) });
            Part { future, waker: Arc::clone(&news).into(), news }
        };
        Self { parts: parts.into_iter().map(part).collect(), whole, may_be_left: 0 }
    }
}

impl<F: Future<Output = ()> + Unpin> Future for Together<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Before the look, so that nothing that happens meanwhile is missed.
        self.whole.register(context.waker());
        // Those that are left keep their order.
        self.parts.retain_mut(|part| {
            !part.news.has_come.swap(false, Ordering::AcqRel)
                || Pin::new(&mut part.future).poll(&mut Context::from_waker(&part.waker)).is_pending()
        });
        if self.parts.len() <= self.may_be_left { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt as _;
    use futures::future::LocalBoxFuture;
    use parking_lot::Mutex;
    use tokio::sync::Notify;

    use super::{all, until_one_ends};

    #[derive(Clone, Default)]
    struct Scene {
        told: Arc<Notify>,
        seen: Arc<Mutex<Vec<&'static str>>>,
    }

    impl Scene {
        /// Waits for a word, and counts how often it is looked at meanwhile.
        fn listener(&self, name: &'static str, word: &Arc<Notify>) -> LocalBoxFuture<'static, ()> {
            let (seen, word) = (Arc::clone(&self.seen), Arc::clone(word));
            async move {
                let mut word = std::pin::pin!(word.notified());
                std::future::poll_fn(|context| {
                    seen.lock().push(name);
                    word.as_mut().poll(context)
                })
                .await;
            }
            .boxed_local()
        }
    }

    #[tokio::test]
    async fn only_what_something_happened_to_is_looked_at_in_the_order_given() {
        let (scene, other) = (Scene::default(), Arc::new(Notify::new()));
        let parts =
            [scene.listener("a", &scene.told), scene.listener("b", &other), scene.listener("c", &scene.told)];
        let mut whole = std::pin::pin!(all(parts));
        assert!(futures::poll!(&mut whole).is_pending());
        assert_eq!(std::mem::take(&mut *scene.seen.lock()), ["a", "b", "c"]);
        assert!(futures::poll!(&mut whole).is_pending());
        assert!(scene.seen.lock().is_empty(), "nothing has happened");
        scene.told.notify_waiters();
        assert!(futures::poll!(&mut whole).is_pending());
        assert_eq!(std::mem::take(&mut *scene.seen.lock()), ["a", "c"]);
        other.notify_one();
        whole.await;
    }

    #[tokio::test]
    async fn one_that_ends_ends_the_others() {
        let scene = Scene::default();
        let never = Arc::new(Notify::new());
        scene.told.notify_one();
        until_one_ends([scene.listener("a", &never), scene.listener("b", &scene.told)]).await;
        assert_eq!(*scene.seen.lock(), ["a", "b"]);
        assert_eq!(Arc::strong_count(&never), 1, "what waited for it is gone");
    }
}

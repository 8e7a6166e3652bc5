use std::cell::RefCell;
use std::collections::BTreeSet;

use super::*;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Pod(u32),
    Node(u32),
}

impl QueueKey for Key {
    fn class(&self) -> &'static str {
        match self {
            Self::Pod(_) => "pods",
            Self::Node(_) => "nodes",
        }
    }
}

fn queue() -> Queue<Key> {
    let retry = Retry { first: Duration::from_millis(100), most: Duration::from_secs(10), seed: 1 };
    Queue::new("test", retry, &Metrics::new("test"))
}

/// Runs until nothing is left to do within `limit`, and returns what was looked at, in order.
async fn drain(
    queue: &Queue<Key>,
    at_a_time: usize,
    limit: Duration,
    verdict: impl Fn(&Key) -> Verdict,
) -> Vec<Key> {
    let seen = RefCell::new(Vec::new());
    let work = |key: Key| {
        seen.borrow_mut().push(key.clone());
        let verdict = verdict(&key);
        async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            verdict
        }
    };
    drop(tokio::time::timeout(limit, queue.run(at_a_time, work)).await);
    seen.into_inner()
}

#[tokio::test(start_paused = true)]
async fn a_queue_at_rest_keeps_nothing_and_takes_keys_in_again_afterwards() {
    let queue: Queue<String> = Queue::new("test", Retry::default(), &Metrics::new("test"));
    queue.add("before".to_owned());
    queue.add_after("later".to_owned(), Duration::from_secs(1));
    queue.rest();
    queue.add("meanwhile".to_owned());
    queue.add_after("meanwhile later".to_owned(), Duration::from_secs(1));
    assert_eq!(queue.sizes(), Sizes::default());
    queue.attend();
    queue.add("after".to_owned());
    assert_eq!(queue.sizes(), Sizes { ready: 1, ..Sizes::default() });
}

#[tokio::test(start_paused = true)]
async fn a_key_that_waits_is_there_once() {
    let queue = queue();
    for _ in 0..5 {
        queue.add(Key::Pod(1));
        queue.add_after(Key::Pod(1), Duration::from_secs(1));
    }
    assert_eq!(queue.sizes(), Sizes { ready: 1, ..Sizes::default() });
    assert_eq!(drain(&queue, 4, Duration::from_secs(60), |_| Verdict::Done).await, [Key::Pod(1)]);
}

#[tokio::test(start_paused = true)]
async fn kinds_take_turns() {
    let queue = queue();
    (0..100).for_each(|n| queue.add(Key::Pod(n)));
    queue.add(Key::Node(1));
    queue.add(Key::Node(2));
    let seen = drain(&queue, 1, Duration::from_secs(60), |_| Verdict::Done).await;
    assert_eq!(&seen[..4], [Key::Pod(0), Key::Node(1), Key::Pod(1), Key::Node(2)]);
    assert_eq!(seen.len(), 102);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_never_worked_on_twice_at_once_and_news_are_not_lost() {
    let queue = queue();
    let active = RefCell::new(BTreeSet::new());
    let looks = RefCell::new(0);
    queue.add(Key::Pod(1));
    let work = |key: Key| {
        assert!(active.borrow_mut().insert(key.clone()), "twice at once");
        *looks.borrow_mut() += 1;
        let first = *looks.borrow() == 1;
        let (queue, active) = (&queue, &active);
        async move {
            if first {
                queue.add(key.clone());
                queue.add(key.clone());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            active.borrow_mut().remove(&key);
            Verdict::Done
        }
    };
    drop(tokio::time::timeout(Duration::from_secs(30), queue.run(8, work)).await);
    assert_eq!(*looks.borrow(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_fails_for_ever_waits_longer_and_longer_and_delays_nobody() {
    let queue = queue();
    queue.add(Key::Pod(0));
    (1..50).for_each(|n| queue.add(Key::Pod(n)));
    let verdict = |key: &Key| if *key == Key::Pod(0) { Verdict::Failed("refused") } else { Verdict::Done };
    let seen = drain(&queue, 1, Duration::from_secs(600), verdict).await;
    assert_eq!(seen[1..50].iter().filter(|key| **key == Key::Pod(0)).count(), 0, "the others came first");
    let tries = seen.iter().filter(|key| **key == Key::Pod(0)).count();
    assert!((60..140).contains(&tries), "{tries} tries in ten minutes, at most one per 5 to 10 seconds");
}

#[tokio::test(start_paused = true)]
async fn success_and_reset_start_the_delays_anew() {
    let queue = queue();
    queue.add(Key::Pod(1));
    drain(&queue, 1, Duration::from_secs(60), |_| Verdict::Failed("refused")).await;
    assert_eq!(queue.sizes().failing, 1);
    let asked = Instant::now();
    queue.reset(Key::Pod(1));
    drain(&queue, 1, Duration::from_millis(10), |_| Verdict::Failed("refused")).await;
    assert!(asked.elapsed() < Duration::from_millis(50));
    let seen = drain(&queue, 1, Duration::from_millis(150), |_| Verdict::Done).await;
    assert_eq!(seen.len(), 1, "the delay after a reset is the first one again");
    assert_eq!(queue.sizes(), Sizes::default());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_time_gets_it() {
    let queue = queue();
    queue.add(Key::Pod(1));
    let verdict = |_: &Key| Verdict::NotBefore("throttled", Duration::from_secs(20));
    assert_eq!(drain(&queue, 1, Duration::from_secs(19), verdict).await.len(), 1);
    assert_eq!(drain(&queue, 1, Duration::from_secs(2), |_| Verdict::Done).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_key_a_delay() {
    let queue = queue();
    queue.add(Key::Pod(1));
    queue.add(Key::Pod(2));
    let first = RefCell::new(true);
    let work = |key: Key| {
        let panics = key == Key::Pod(1) && first.replace(false);
        async move {
            assert!(!panics, "a bug");
            Verdict::Done
        }
    };
    drop(tokio::time::timeout(Duration::from_secs(5), queue.run(2, work)).await);
    assert_eq!(queue.sizes(), Sizes::default());
}

#[tokio::test(start_paused = true)]
async fn what_was_interrupted_is_ready_for_the_next_run() {
    let queue = queue();
    queue.add(Key::Pod(1));
    let stuck = queue.run(1, |_| async { std::future::pending::<Verdict>().await });
    drop(tokio::time::timeout(Duration::from_secs(1), stuck).await);
    assert_eq!(drain(&queue, 1, Duration::from_secs(1), |_| Verdict::Done).await, [Key::Pod(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_closed_queue_finishes_what_it_began() {
    let queue = queue();
    (0..10).for_each(|n| queue.add(Key::Pod(n)));
    let done = RefCell::new(0);
    let work = |_| {
        let done = &done;
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            *done.borrow_mut() += 1;
            Verdict::Done
        }
    };
    let close = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        queue.close();
    };
    tokio::join!(queue.run(3, work), close);
    assert_eq!((*done.borrow(), queue.sizes().ready), (3, 7));
}

#[tokio::test(start_paused = true)]
async fn blocked_keys_wait_for_whoever_unblocks_them() {
    let queue = queue();
    queue.add(Key::Pod(1));
    assert_eq!(drain(&queue, 1, Duration::from_secs(600), |_| Verdict::Blocked).await.len(), 1);
    queue.add(Key::Pod(1));
    assert_eq!(drain(&queue, 1, Duration::from_secs(1), |_| Verdict::Done).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_makes_its_own_news_does_not_spin() {
    let queue = queue();
    queue.add(Key::Pod(1));
    let tries = RefCell::new(0);
    let work = |key: Key| {
        *tries.borrow_mut() += 1;
        let queue = &queue;
        async move {
            queue.add(key);
            Verdict::Failed("refused")
        }
    };
    drop(tokio::time::timeout(Duration::from_secs(60), queue.run(1, work)).await);
    assert!((50..70).contains(&*tries.borrow()), "{} tries in a minute", tries.borrow());
    queue.reset(Key::Pod(1));
    assert_eq!(queue.sizes().ready, 1, "who knows that it is mended is believed");
}

#[tokio::test(start_paused = true)]
async fn a_closing_queue_waits_for_its_work_and_does_not_spin() {
    let queue = queue();
    queue.add(Key::Pod(1));
    queue.add_after(Key::Pod(2), Duration::from_millis(600));
    let seen = RefCell::new(Vec::new());
    let work = |key: Key| {
        seen.borrow_mut().push(key);
        async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Verdict::Done
        }
    };
    let close = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        queue.close();
    };
    tokio::join!(queue.run(3, work), close);
    assert_eq!(*seen.borrow(), [Key::Pod(1)]);
    queue.close();
    queue.run(3, |_| async { Verdict::Done }).await;
    assert_eq!(queue.sizes().delayed, 1, "closed before it was run is closed");
}

#[tokio::test(start_paused = true)]
async fn news_do_not_overrule_a_server_that_asked_for_time() {
    let queue = queue();
    queue.add(Key::Pod(1));
    let verdict = |_: &Key| Verdict::NotBefore("throttled", Duration::from_secs(20));
    drain(&queue, 1, Duration::from_secs(1), verdict).await;
    for _ in 0..10 {
        queue.add(Key::Pod(1));
        assert!(drain(&queue, 1, Duration::from_secs(1), verdict).await.is_empty());
    }
    assert_eq!(drain(&queue, 1, Duration::from_secs(10), |_| Verdict::Done).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn keys_that_failed_together_do_not_come_back_together() {
    let queue = queue();
    (0..100).for_each(|n| queue.add(Key::Pod(n)));
    drain(&queue, 100, Duration::from_millis(20), |_| Verdict::Failed("unreachable")).await;
    let early = drain(&queue, 100, Duration::from_millis(55), |_| Verdict::Done).await.len();
    assert!((20..80).contains(&early), "{early} of 100 came in the first half of the delays");
}

#[tokio::test(start_paused = true)]
async fn no_delay_is_too_long_to_be_counted() {
    let queue = queue();
    queue.add_after(Key::Pod(1), Duration::MAX);
    queue.add(Key::Pod(2));
    drain(&queue, 1, Duration::from_secs(1), |_| Verdict::NotBefore("throttled", Duration::MAX)).await;
    assert_eq!(queue.sizes(), Sizes { delayed: 2, failing: 1, ..Sizes::default() });
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_cut_short_while_it_closes_can_be_run_again() {
    let queue = queue();
    queue.add(Key::Pod(1));
    let started = std::cell::Cell::new(0);
    let look = |_| async {
        started.set(started.get() + 1);
        std::future::pending::<Verdict>().await
    };
    let closing = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        queue.close();
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    tokio::select! {
        () = queue.run(1, look) => unreachable!("it waits for what it began"),
        () = closing => {}
    }
    drop(tokio::time::timeout(Duration::from_secs(1), queue.run(1, look)).await);
    assert_eq!(started.get(), 2, "the next term begins with what the last one left");
}

#[tokio::test(start_paused = true)]
async fn work_that_news_overtakes_can_be_given_up() {
    let queue = queue();
    queue.add(Key::Pod(1));
    let (began, given_up) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let look = |key: Key| {
        let (queue, began, given_up) = (&queue, &began, &given_up);
        async move {
            began.set(began.get() + 1);
            tokio::select! {
                biased;
                () = queue.overtaken(&key) => given_up.set(given_up.get() + 1),
                () = tokio::time::sleep(Duration::from_secs(30)) => {}
            }
            Verdict::Done
        }
    };
    let news = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        queue.add(Key::Pod(2));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((began.get(), given_up.get()), (2, 0), "news of another is none of this one");
        queue.reset(Key::Pod(1));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((began.get(), given_up.get()), (3, 1), "given up, and begun again");
    };
    tokio::select! {
        () = queue.run(4, look) => unreachable!("it is not closed"),
        () = news => {}
    }
}

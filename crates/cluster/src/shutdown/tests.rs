use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::*;

/// What happened, in order.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn write(&self, line: impl Into<String>) {
        self.0.lock().push(line.into());
    }

    fn read(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    /// A loop that ends when it is asked to.
    fn obedient(
        &self,
        name: &'static str,
    ) -> impl FnMut(CancellationToken) -> BoxFuture<()> + Send + 'static {
        let diary = self.clone();
        move |stop| {
            let diary = diary.clone();
            Box::pin(async move {
                diary.write(format!("{name} starts"));
                stop.cancelled().await;
                diary.write(format!("{name} ends"));
            })
        }
    }
}

async fn deaf(_: CancellationToken) {
    std::future::pending::<()>().await;
}

fn failures(health: &Health) -> Vec<String> {
    health.failures().into_iter().map(|(name, why)| format!("{name}: {why}")).collect()
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn writers_end_first_and_what_others_need_ends_last() {
    let diary = Diary::default();
    let (first, second) = (diary.clone(), diary.clone());
    Supervisor::new(&Health::new())
        .always("admin", diary.obedient("admin"))
        .always("world", diary.obedient("world"))
        .leading("pods", diary.obedient("pods"))
        .after("hold", move || async move { first.write("hold released") })
        .after("traces", move || async move { second.write("traces flushed") })
        .until(sleep(MINUTE))
        .await
        .unwrap();
    let diary = diary.read();
    assert_eq!(diary[..3], ["admin starts", "world starts", "pods starts"]);
    assert_eq!(diary[3..], ["pods ends", "world ends", "admin ends", "hold released", "traces flushed"]);
}

#[tokio::test(start_paused = true)]
async fn leading_loops_follow_the_lead() {
    let diary = Diary::default();
    let (lead, leads) = watch::channel(false);
    let seen = diary.clone();
    let story = async move {
        sleep(MINUTE).await;
        for leading in [true, false, true] {
            seen.write(if leading { "gained" } else { "lost" });
            lead.send_replace(leading);
            sleep(MINUTE).await;
        }
        drop(lead);
        sleep(MINUTE).await;
        seen.write("stop");
    };
    Supervisor::new(&Health::new())
        .leadership(leads)
        .always("world", diary.obedient("world"))
        .leading("pods", diary.obedient("pods"))
        .until(story)
        .await
        .unwrap();
    let expected = [
        "world starts",
        "gained",
        "pods starts",
        "lost",
        "pods ends",
        "gained",
        "pods starts",
        "pods ends",
        "stop",
        "world ends",
    ];
    assert_eq!(diary.read(), expected, "a lead without an elector is lost too");
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_ends_ends_the_process_with_its_name() {
    let health = Health::new();
    let diary = Diary::default();
    let error = Supervisor::new(&health)
        .always("world", diary.obedient("world"))
        .always("proof", |_| async { sleep(MINUTE).await })
        .until(std::future::pending())
        .await
        .unwrap_err();
    assert!(error.to_string().starts_with("the loop proof ended by itself"), "{error}");
    assert_eq!(failures(&health), ["loops: proof: ended by itself"]);
    assert_eq!(diary.read(), ["world starts", "world ends"], "the others are ended in order all the same");
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_told_with_what_it_said() {
    let health = Health::new();
    let error = Supervisor::new(&health)
        .leading("pods", |_| async { assert_eq!(1, 2, "the map is not injective") })
        .until(std::future::pending())
        .await
        .unwrap_err();
    let SupervisorError::Panicked { name, message } = &error else { panic!("{error:?}") };
    assert_eq!(&**name, "pods");
    assert!(message.contains("the map is not injective"), "{message}");
    assert!(failures(&health)[0].starts_with("loops: pods: panicked: "));
}

#[tokio::test(start_paused = true)]
async fn a_failure_keeps_its_cause() {
    let error = Supervisor::new(&Health::new())
        .always("hold", |_| async { Err::<(), _>(io::Error::other("403 on leases")) })
        .until(std::future::pending())
        .await
        .unwrap_err();
    assert_eq!(error.source().unwrap().to_string(), "403 on leases");
}

#[tokio::test(start_paused = true)]
async fn a_deaf_loop_is_aborted_at_the_deadline_and_named() {
    let diary = Diary::default();
    let started = Instant::now();
    let error = Supervisor::new(&Health::new())
        .stage_within(Duration::from_secs(7))
        .always("world", diary.obedient("world"))
        .leading("pods", deaf)
        .after("hook", std::future::pending)
        .until(sleep(MINUTE))
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "did not stop within 7s and was aborted: pods, hook");
    assert_eq!(started.elapsed(), MINUTE + Duration::from_secs(14));
    assert_eq!(diary.read(), ["world starts", "world ends"]);
}

#[tokio::test(start_paused = true)]
async fn a_deaf_leading_loop_does_not_outlive_the_lead() {
    let (alive, gone) = oneshot::channel::<()>();
    let mut alive = Some(alive);
    let (lead, leads) = watch::channel(true);
    let story = async move {
        sleep(MINUTE).await;
        lead.send_replace(false);
        timeout(MINUTE, gone).await.expect("it is dropped").unwrap_err();
    };
    Supervisor::new(&Health::new())
        .leadership(leads)
        .leading("pods", move |_| {
            let alive = alive.take();
            async move {
                std::future::pending::<()>().await;
                drop(alive);
            }
        })
        .until(story)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_dies_while_the_lead_is_lost_is_not_overlooked() {
    let (lead, leads) = watch::channel(true);
    let story = async move {
        sleep(MINUTE).await;
        lead.send_replace(false);
        std::future::pending::<()>().await;
    };
    let error = Supervisor::new(&Health::new())
        .leadership(leads)
        .always("world", |_| sleep(MINUTE + Duration::from_secs(1)))
        .leading("pods", |stop| async move {
            stop.cancelled().await;
            sleep(Duration::from_secs(3)).await;
        })
        .until(story)
        .await
        .unwrap_err();
    assert!(error.to_string().starts_with("the loop world ended by itself"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_fails_because_the_lead_is_lost_is_no_failure() {
    let (lead, leads) = watch::channel(true);
    let loses = lead.clone();
    Supervisor::new(&Health::new())
        .leadership(leads)
        .leading("pods", move |_| {
            let loses = loses.clone();
            async move {
                sleep(MINUTE).await;
                loses.send_replace(false);
                Err::<(), _>("fenced")
            }
        })
        .until(sleep(MINUTE * 2))
        .await
        .unwrap();
    drop(lead);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_panics_stops_no_other() {
    let diary = Diary::default();
    let last = diary.clone();
    Supervisor::new(&Health::new())
        .after("first", || async { panic!("no") })
        .after("last", move || async move { last.write("flushed") })
        .until(sleep(MINUTE))
        .await
        .unwrap();
    assert_eq!(diary.read(), ["flushed"]);
}

#[tokio::test(start_paused = true)]
async fn hurry_waits_for_nobody() {
    let started = Instant::now();
    let error = Supervisor::new(&Health::new())
        .always("world", deaf)
        .after("hook", || async { panic!("not in a hurry") })
        .run(sleep(MINUTE), sleep(MINUTE + Duration::from_secs(1)))
        .await
        .unwrap_err();
    assert!(matches!(error, SupervisorError::Interrupted), "{error:?}");
    assert_eq!(started.elapsed(), MINUTE + Duration::from_secs(1));
}

#[tokio::test]
async fn sigterm_ends_a_component_in_order() {
    let diary = Diary::default();
    let started = diary.clone();
    let supervisor = Supervisor::new(&Health::new()).always("world", diary.obedient("world"));
    let running = tokio::spawn(supervisor.until_signal());
    while started.read().is_empty() {
        sleep(Duration::from_millis(5)).await;
    }
    // To this process only: its handler is installed, since the loop has started.
    let own = std::process::id().to_string();
    assert!(tokio::process::Command::new("kill").args(["-TERM", &own]).status().await.unwrap().success());
    timeout(MINUTE, running).await.unwrap().unwrap().unwrap();
    assert_eq!(diary.read(), ["world starts", "world ends"]);
}

#[tokio::test(start_paused = true)]
async fn a_crashing_binding_is_restarted_and_touches_no_other() {
    let health = Health::new();
    let diary = Diary::default();
    let starts = Arc::new(AtomicU32::new(0));
    let (count, noted, told) = (starts.clone(), health.clone(), diary.clone());
    let story = async move {
        sleep(Duration::from_millis(500)).await;
        told.write(noted.report(|name| name == "binding-a").text("x"));
        sleep(Duration::from_secs(10)).await;
        told.write(noted.report(|name| name == "binding-a").text("x"));
    };
    Supervisor::new(&health)
        .isolated("binding-a", move |stop| {
            let start = count.fetch_add(1, Ordering::Relaxed);
            async move {
                match start {
                    0 => panic!("poisoned object"),
                    1 => Err(io::Error::other("no route to w1")),
                    _ => {
                        stop.cancelled().await;
                        Ok(())
                    }
                }
            }
        })
        .isolated("binding-b", diary.obedient("binding-b"))
        .isolated("once", |_| async {})
        .until(story)
        .await
        .unwrap();
    assert_eq!(starts.load(Ordering::Relaxed), 3);
    assert!(failures(&health).is_empty());
    assert_eq!(
        diary.read(),
        [
            "binding-b starts",
            "[.]binding-a: starts again in 0 s, after 0 restarts: panicked: poisoned object\nx check passed\n",
            "[.]binding-a: running after 2 restarts; last: no route to w1\nx check passed\n",
            "binding-b ends",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_hopeless_binding_is_tried_ever_more_rarely() {
    let starts = Arc::new(AtomicU32::new(0));
    let count = starts.clone();
    Supervisor::new(&Health::new())
        .isolated("binding-a", move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            async { Err::<(), _>("no") }
        })
        .until(sleep(MINUTE * 60))
        .await
        .unwrap();
    // 1 + 2 + 4 … + 256 s are 10 starts in 8.5 minutes, then one every 5 minutes.
    assert_eq!(starts.load(Ordering::Relaxed), 20);
}

//! Many bindings at once.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kubeocean_api::keys::names::INSTALL_NAMESPACE;

use super::place::{Place, apply, namespace};
use crate::access::until;

/// The budget is for two hundred: `KUBEOCEAN_BINDINGS=200`.
const USUALLY: usize = 40;

/// Of all that a manager keeps and does for two hundred bindings whose workers are Deployments.
const MOST_MEMORY: u64 = 60 << 10;

/// Calls of the test itself at a time.
const AT_A_TIME: usize = 16;

#[tokio::test]
async fn many_bindings_at_once_become_ready_in_little_memory() {
    let wanted = std::env::var("KUBEOCEAN_BINDINGS").ok().and_then(|text| text.parse().ok());
    let names: Vec<String> = (1..=wanted.unwrap_or(USUALLY)).map(|number| format!("w{number}")).collect();
    let place = Place::new(1).await;
    let worker = place.worker("worker-1");
    let (lender, kubeconfig) = (worker.client().await.unwrap(), worker.kubeconfig());
    let prepared = futures::stream::iter(&names).for_each_concurrent(AT_A_TIME, async |name: &String| {
        apply(&lender, "/api/v1/namespaces", &namespace(name)).await;
        place.secret(name, &kubeconfig).await;
    });
    prepared.await;
    let manager = place.manager("manager-a", &["--leader-elect"]);
    until("it leads", async || if manager.leads() { Ok(()) } else { Err(manager.said()) }).await;
    let idle = manager.memory("VmRSS");

    let began = Instant::now();
    let bound = futures::stream::iter(&names)
        .for_each_concurrent(AT_A_TIME, async |name: &String| place.bind(name, name, name).await);
    bound.await;
    let written = began.elapsed();
    // Conditions of a hundred bindings are not all looked at all the time: this machine has other things to do.
    let all = loop {
        let bindings = place.bindings().await.unwrap();
        let ready = bindings.values().filter(|one| one["status"]["phase"] == "Ready").count();
        if ready == names.len() {
            break place.all_ready(names.iter().map(String::as_str)).await;
        }
        assert!(began.elapsed() < Duration::from_secs(600), "{ready} of {} are Ready", names.len());
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    let took = began.elapsed();
    // And they are looked at once more, each.
    let looks = || manager.metric("kubeocean_requests_total", "cluster=\"workers\"");
    let (before, more) = (looks(), f64::from(u32::try_from(names.len()).unwrap()));
    until("all are looked at again", async || match looks() - before {
        looked if looked >= more => Ok(()),
        looked => Err(format!("{looked} looks")),
    })
    .await;
    let (rss, most) = (manager.memory("VmRSS"), manager.memory("VmHWM"));
    println!(
        "{} bindings: written in {written:.1?}, all Ready after {took:.1?}; resident {rss} kB, at most {most} kB, {idle} kB \
         before the first; in {INSTALL_NAMESPACE}: {} objects",
        all.len(),
        place.ours().await.unwrap().len()
    );
    assert!(most <= MOST_MEMORY, "at most {most} kB");
    drop(manager);
    place.stop().await;
}

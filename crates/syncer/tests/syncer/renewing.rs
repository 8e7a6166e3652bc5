//! The Leases of virtual nodes: few small writes, one after the other, and none too late.

use std::time::Duration;

use jiff::Timestamp;
use kubeocean_api::keys::names::NODE_LEASE_NAMESPACE;
use kubeocean_api::keys::taints;
use kubeocean_model::leasing::SYNCER;
use kubeocean_testkit::chaos::Partition;
use serde_json::json;
use tokio::time::Instant;

use crate::scene::{Scene, Setting, has_taint, text};
use crate::simulated::{calm, calm_in, counted, wait};

#[test]
fn a_machine_that_slept_or_whose_clock_is_set_catches_up_at_once() {
    calm(
        async |scene| {
            let window = json!({"start": "09:00", "end": "16:59"});
            scene.policy(&scene.phys, "days", json!({"timeWindows": [window]}));
            wait(scene, "three nodes", 20, || match scene.vnodes().len() {
                3 => Ok(()),
                others => Err(format!("{others} nodes")),
            })
            .await;
            let is_open = || {
                let nodes = scene.server().list("nodes", None);
                nodes.iter().all(|node| !has_taint(node, taints::OUT_OF_TIME_WINDOWS_KEY))
            };
            let set = |time: &str| {
                let now = scene.clock.now();
                let wanted: Timestamp = format!("{}T{time}:30Z", now.strftime("%F")).parse().unwrap();
                scene.clock.jump(wanted.duration_since(now));
            };
            for (time, open) in
                [("12:00", true), ("16:58", true), ("17:00", false), ("10:00", true), ("03:00", false)]
            {
                set(time);
                tokio::time::sleep(Duration::from_secs(2)).await;
                assert_eq!(is_open(), open, "at {time}");
                for lease in scene.server().list("leases", Some(NODE_LEASE_NAMESPACE)) {
                    let renewed: Timestamp = text(&lease, "/spec/renewTime").parse().unwrap();
                    let age = scene.clock.now().duration_since(renewed);
                    assert!(age.abs() <= jiff::SignedDuration::from_secs(2), "renewed {age:#} ago at {time}");
                }
                let policy = scene.lenders_policy("days");
                assert_eq!(policy["status"]["activeTimeWindow"], open, "at {time}");
            }
        },
        true,
    );
}

/// The most requests for Leases that were sent within one second.
fn most_in_a_second(sent: &[Instant]) -> usize {
    let within = |index: usize| {
        let later = sent[index..].iter();
        later.take_while(|at| at.duration_since(sent[index]) < Duration::from_secs(1)).count()
    };
    (0..sent.len()).map(within).max().unwrap_or_default()
}

fn are_leased(scene: &Scene, count: usize) -> Result<(), String> {
    match scene.server().list("leases", None).len() {
        leases if leases == count => Ok(()),
        leases => Err(format!("{leases} Leases")),
    }
}

#[test]
fn a_thousand_nodes_cost_a_hundred_requests_a_second_at_most_and_their_first_lease_one() {
    calm_in(
        Setting { nodes: &[], lender_has_policies: false, ..Setting::default() },
        |scene| {
            scene.policy(&scene.virt, "all", json!({}));
            (0..1000).for_each(|number| scene.add_node(&format!("many-{number}")));
        },
        async |scene| {
            let sent = || -> Vec<Instant> { scene.renewals.lock().iter().map(|(at, ..)| *at).collect() };
            wait(scene, "a Lease each", 30, || are_leased(scene, 1000)).await;
            let asked = scene.renewals.lock().clone();
            let refused = asked.iter().filter(|(_, _, status)| !status.is_success()).count();
            let made = asked.iter().filter(|(_, method, _)| method == http::Method::POST).count();
            assert_eq!((made, refused), (1000, 0), "a Lease that is not there is not asked for first");
            tokio::time::sleep(Duration::from_secs(25)).await;
            assert!(sent().len() >= 1000 + 15 * 90, "{} in half a minute", sent().len() - 1000);
            // A clock that was set asks for all of them at once.
            scene.clock.jump(jiff::SignedDuration::from_mins(1));
            tokio::time::sleep(Duration::from_secs(15)).await;
            let most = most_in_a_second(&sent());
            assert!(most <= 100, "{most} in one second");
            let in_time = counted(scene, "lease_renewal_interval_seconds_bucket", r#"le="12.0""#);
            assert_eq!(in_time, counted(scene, "lease_renewal_interval_seconds_count", ""));
        },
    );
}

#[test]
fn leases_are_renewed_one_after_the_other_at_a_start_and_when_a_worker_is_back() {
    calm(
        async |scene| {
            for number in 0..200 {
                scene.add_node(&format!("many-{number}"));
            }
            scene.policy(&scene.virt, "all", json!({}));
            wait(scene, "leased", 60, || scene.at_rest()).await;
            scene.phys.chaos.partition(Partition::Resets);
            tokio::time::sleep(Duration::from_secs(120)).await;
            scene.phys.chaos.heal();
            tokio::time::sleep(Duration::from_secs(60)).await;
            let mut seconds = std::collections::BTreeMap::<i64, usize>::new();
            for commit in scene.server().history(0) {
                if commit.plural == "leases" && commit.actor == SYNCER {
                    *seconds.entry(commit.at.as_second()).or_default() += 1;
                }
            }
            let most = seconds.values().max().copied().unwrap_or_default();
            assert!(seconds.len() > 30 && most <= 101, "{most} in one second: {seconds:?}");
        },
        false,
    );
}

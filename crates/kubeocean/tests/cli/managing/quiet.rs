//! A manager that has nothing to do.

use std::collections::BTreeMap;
use std::time::Duration;

use kubeocean_api::keys::names::{INSTALL_NAMESPACE, MANAGER_LEADER, WORKER_NAMESPACE};
use serde_json::Value;

use super::place::{Ours, Place, text};
use crate::access::until;

/// The budget is five minutes: `KUBEOCEAN_STEADY_SECONDS=300`.
const USUALLY: u64 = 60;

/// Nothing of what a start or a binding brings along comes later than this after the last.
const SETTLED_AFTER: Duration = Duration::from_secs(10);

fn is_renewal(write: &Value) -> bool {
    write["resource"] == "leases"
        && write["object"] == format!("{INSTALL_NAMESPACE}/{MANAGER_LEADER}").as_str()
}

async fn versions(place: &Place) -> Result<BTreeMap<String, String>, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for Ours { kind, name, version, .. } in place.ours().await? {
        all.insert(format!("{kind}/{name}"), version);
    }
    for (name, binding) in place.bindings().await? {
        all.insert(name, text(&binding["metadata"]["resourceVersion"]));
    }
    Ok(all)
}

#[tokio::test]
async fn in_steady_state_nothing_is_written_but_the_hold() {
    let seconds = std::env::var("KUBEOCEAN_STEADY_SECONDS").ok().and_then(|text| text.parse().ok());
    let period = Duration::from_secs(seconds.unwrap_or(USUALLY));
    let place = Place::new(1).await;
    let mut manager = place.manager("manager-a", &["--leader-elect"]);
    let mut standby = place.manager("manager-b", &["--leader-elect"]);
    place.secret("w1", &place.worker("worker-1").kubeconfig()).await;
    for name in ["one", "two", "three"] {
        place.bind(name, "w1", WORKER_NAMESPACE).await;
    }
    place.all_ready(["one", "two", "three"]).await;
    let others = || {
        let writes = [manager.writes(), standby.writes()].concat();
        writes.into_iter().filter(|write| !is_renewal(write)).collect::<Vec<_>>()
    };
    until("everything has settled", async || {
        let before = (others().len(), versions(&place).await?);
        tokio::time::sleep(SETTLED_AFTER).await;
        let after = (others().len(), versions(&place).await?);
        if before == after { Ok(()) } else { Err(format!("{before:?} became {after:?}")) }
    })
    .await;

    let before = versions(&place).await.unwrap();
    let written =
        |manager: &crate::manager::Manager| manager.metric("kubeocean_writes_total", "cluster=\"virtual\"");
    let counted = written(&manager) + written(&standby);
    let (wrote, renewals) = (others().len(), manager.writes().len() + standby.writes().len());
    // Not to wait for anything: the time that is judged.
    tokio::time::sleep(period).await;
    let new = others().split_off(wrote);
    assert!(new.is_empty(), "written in {period:?}: {new:#?}");
    assert_eq!(versions(&place).await.unwrap(), before, "changed in {period:?}");
    let renewals = manager.writes().len() + standby.writes().len() - renewals;
    let counted = written(&manager) + written(&standby) - counted;
    println!("in {period:?}: {renewals} renewals of the hold, and nothing else; {counted} writes counted");
    // What dashboards see is what the audit log says; one may lie between the two looks, at each end.
    let lines = f64::from(u32::try_from(renewals).unwrap());
    assert!((counted - lines).abs() <= 2.0, "{counted} writes are counted, and {lines} told");
    // Every two seconds; a busy machine may be late.
    let expected = period.as_secs() / 2;
    assert!(u64::try_from(renewals).unwrap() * 2 >= expected, "{renewals} renewals in {period:?}");
    assert!(u64::try_from(renewals).unwrap() <= expected + 2, "{renewals} renewals in {period:?}");
    assert!(manager.is_running() && standby.is_running());
    drop((manager, standby));
    place.stop().await;
}

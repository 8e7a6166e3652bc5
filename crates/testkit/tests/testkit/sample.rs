//! A correct controller survives everything.

use std::collections::BTreeMap;

use kubeocean_testkit::crash::{Ending, enumerate};
use kubeocean_testkit::simulation::{hunt, run, seeds};
use kubeocean_testkit::test;
use parking_lot::Mutex;

use crate::mirror::{ACTOR, mirror};
use crate::scenario::{full_chaos, steps};

/// Of those that an honest client can meet: it never asks for old answers.
const FAULTS: usize = 11;

#[test]
fn a_thousand_seeds_of_chaos_leave_the_mirror_right() {
    let faults = Mutex::new(BTreeMap::new());
    let report = hunt(test!(), &seeds(1_000), |world| async {
        let scene = full_chaos(world, mirror).await;
        for (fault, count) in scene.virt.chaos.faults().into_iter().chain(scene.phys.chaos.faults()) {
            *faults.lock().entry(fault).or_insert(0) += count;
        }
    });
    let faults = faults.into_inner();
    println!("mirror under full chaos: {report}; {faults:?}");
    assert!(report.seeds < 100 || faults.len() >= FAULTS, "some fault never came: {faults:?}");
}

#[test]
fn a_crash_at_any_write_changes_nothing_in_the_end() {
    let enumerated = enumerate(|crash| {
        let (ending, violations) = run(7, |world| async move {
            let scene = steps(world, mirror, crash).await;
            let servers = [("V", &scene.virt.server), ("P", &scene.phys.server)];
            Ending::of(&servers, &["configmaps"], ACTOR)
        });
        violations.first().map_or(Ok(ending), |violation| Err(violation.to_string()))
    })
    .unwrap();
    println!("crash points of the mirror: {} of {} writes", enumerated.points, enumerated.writes);
    assert!(enumerated.writes >= 8, "{enumerated:?}");
    for (point, lines) in &enumerated.differences {
        println!("{point}:\n  {}", lines.join("\n  "));
    }
    assert!(enumerated.differences.is_empty(), "{} points end otherwise", enumerated.differences.len());
}

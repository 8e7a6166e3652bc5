//! A correct controller survives everything.

use std::collections::BTreeMap;
use std::panic::catch_unwind;

use kubeocean_testkit::crash::{self, Crash, Ending};
use kubeocean_testkit::simulation::{World, hunt, run, seeds};
use kubeocean_testkit::test;
use parking_lot::Mutex;

use crate::mirror::{ACTOR, mirror};
use crate::scenario::{full_chaos, steps};

/// Of those that an honest client can meet: it never asks for old answers.
const FAULTS: usize = 11;

#[test]
fn a_thousand_seeds_of_chaos_leave_the_mirror_right() {
    let (faults, deeds) = (Mutex::new(BTreeMap::new()), Mutex::new(BTreeMap::new()));
    let report = hunt(test!(), &seeds(1_000), |world| async {
        let scene = full_chaos(world, mirror).await;
        for (deed, count) in scene.world.deeds() {
            *deeds.lock().entry(deed).or_insert(0) += count;
        }
        for (fault, count) in scene.virt.chaos.faults().into_iter().chain(scene.phys.chaos.faults()) {
            *faults.lock().entry(fault).or_insert(0) += count;
        }
    });
    let faults = faults.into_inner();
    let deeds = deeds.into_inner();
    println!("mirror under full chaos: {report}; {faults:?}; {deeds:?}");
    assert!(report.seeds < 100 || faults.len() >= FAULTS, "some fault never came: {faults:?}");
    for deed in [
        "compaction",
        "watches break",
        "partition or heal",
        "etcd is restored",
        "the clock jumps",
        "foreign hands",
        "other credentials",
        "the controller dies",
        "the user",
    ] {
        assert!(report.seeds < 100 || deeds.contains_key(deed), "{deed} never came: {deeds:?}");
    }
}

#[test]
fn a_seed_that_fails_is_told_with_the_command_that_runs_it_again() {
    let broken = |world: World| async move {
        if world.seed == 3 {
            world.oracle.report("nothing is wrong", "something is".to_owned());
        }
    };
    let told = catch_unwind(|| drop(hunt(test!(), &seeds(10), broken))).unwrap_err();
    let told = told.downcast_ref::<String>().unwrap();
    let command = "KUBEOCEAN_SEED=3 cargo test -p kubeocean-testkit --test testkit \
                   sample::a_seed_that_fails_is_told_with_the_command_that_runs_it_again -- --exact --nocapture";
    assert!(told.contains(command) && told.contains("violated: nothing is wrong"), "{told}");
}

#[test]
fn a_crash_that_changes_something_is_told_with_the_command_that_runs_it_again() {
    let broken = |crash: Crash| {
        let scene = |world| steps(world, mirror, crash.clone());
        drop(run(7, scene));
        let count = u64::from(crash.has_happened());
        Ok(Ending { summary: [("create a grave".to_owned(), count)].into(), ..Ending::default() })
    };
    let told = catch_unwind(|| crash::hunt(test!(), broken)).unwrap_err();
    let told = told.downcast_ref::<String>().unwrap();
    let command = "KUBEOCEAN_CRASH=1:before cargo test -p kubeocean-testkit --test testkit \
                   sample::a_crash_that_changes_something_is_told_with_the_command_that_runs_it_again -- --exact --nocapture";
    let line = "a crash after write 1, unanswered:\n  create a grave: 1 times, in the reference 0";
    assert!(told.contains(command) && told.contains(line), "{told}");
}

#[test]
fn a_crash_at_any_write_changes_nothing_in_the_end() {
    let enumerated = crash::hunt(test!(), |crash| {
        let (ending, violations) = run(7, |world| async move {
            let scene = steps(world, mirror, crash).await;
            let servers = [("V", &scene.virt.server), ("P", &scene.phys.server)];
            Ending::of(&servers, &["configmaps"], ACTOR)
        });
        violations.first().map_or(Ok(ending), |violation| Err(violation.to_string()))
    });
    println!("crash points of the mirror: {} of {} writes", enumerated.points, enumerated.writes);
    assert!(enumerated.writes >= 8, "{enumerated:?}");
}

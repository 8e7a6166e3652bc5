//! Bindings whose finalizers someone took away: nobody saw them go, and what there was of them is nobody's.

use std::sync::atomic::Ordering;

use kubeocean_testkit::chaos::Profile;
use kubeocean_testkit::simulation::run;
use tokio::sync::Notify;

use crate::residents::text;
use crate::rules::SWEPT;
use crate::scene::{CHILDREN, Scene, is_ours};
use crate::simulated::beside;
use crate::stories::{rest, seconds};

/// What is younger might be of a binding that is not known yet.
const SURE_AFTER: u64 = 200;

/// Everything of ours that there is.
fn everything(scene: &Scene) -> Vec<String> {
    let all = CHILDREN.into_iter().chain(SWEPT).flat_map(|plural| {
        let objects = scene.virt.server.list(plural, None);
        let is_hold = move |name: &str| plural == "leases" && name.starts_with("kubeocean-syncer-");
        let ours =
            objects.into_iter().filter(move |one| is_ours(one) || is_hold(text(one, "/metadata/name")));
        ours.map(move |one| format!("{plural} {}", text(&one, "/metadata/name")))
    });
    all.collect()
}

#[test]
fn what_is_left_of_a_binding_that_vanished_while_nobody_was_running_goes_when_a_manager_starts() {
    for (inline, while_nobody_runs) in [(false, true), (false, false), (true, true), (true, false)] {
        let ((), violations) = run(7, |world| async move {
            let scene = Scene::new(&world, |_| Profile::calm());
            scene.inline.store(inline, Ordering::Relaxed);
            beside(&scene, &Notify::new(), async {
                scene.bind("w1", "c1", "s1");
                rest(&scene).await;
                seconds(20).await;
                let made = everything(&scene);
                for plural in SWEPT {
                    assert!(made.iter().any(|one| one.starts_with(plural)), "{plural} in {made:?}");
                }
                if !while_nobody_runs {
                    scene.vanish("w1");
                    seconds(SURE_AFTER).await;
                    assert_eq!(everything(&scene), [""; 0], "inline: {inline}");
                }
            })
            .await;
            if while_nobody_runs {
                scene.vanish("w1");
                beside(&scene, &Notify::new(), async {
                    seconds(SURE_AFTER).await;
                    assert_eq!(everything(&scene), [""; 0], "inline: {inline}");
                })
                .await;
            }
        });
        assert!(violations.is_empty(), "inline: {inline}: {violations:#?}");
    }
}

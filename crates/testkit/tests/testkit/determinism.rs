//! The same seed twice is the same run.

use kubeocean_testkit::simulation::{fingerprint, run};

use crate::mirror::mirror;
use crate::scenario::full_chaos;

#[test]
fn the_same_seed_gives_the_same_commits_under_full_chaos() {
    let commits = |seed| {
        let (print, _) = run(seed, |world| async move {
            let scene = full_chaos(world, mirror).await;
            (fingerprint([&scene.virt.server, &scene.phys.server]), scene.traffic.counts())
        });
        print
    };
    let mut prints = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let (first, second) = (commits(seed), commits(seed));
        assert_eq!(first, second, "seed {seed}");
        prints.insert(first.0);
    }
    assert_eq!(prints.len(), 60, "different seeds are different runs");
}

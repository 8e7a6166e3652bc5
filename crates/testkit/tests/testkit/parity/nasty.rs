//! What the generators draw: taken as a real server takes it, with the same defaults; and what is no object any more, refused alike.
//!
//! Nothing is stored: names are drawn, and would meet those of other scripts.

use kubeocean_testkit::generators::Nasty;
use serde_json::Value;

use super::script::{Script, Step, post, script};

/// Four objects each.
const SEEDS: u64 = 75;

pub(crate) fn scripts() -> Vec<Script> {
    vec![
        script("nasty objects", (0..SEEDS).flat_map(|seed| drawn(seed, |_, object| object)).collect()),
        script(
            "maimed objects",
            (0..SEEDS).flat_map(|seed| drawn(seed, Nasty::maimed)).map(Step::verdict_only).collect(),
        ),
    ]
}

fn drawn(seed: u64, change: impl Fn(&mut Nasty, Value) -> Value) -> Vec<Step> {
    let mut nasty = Nasty::new(seed);
    let mut draw = |plural: &str, draw: &dyn Fn(&mut Nasty) -> Value| {
        let object = draw(&mut nasty);
        post(&format!("{plural}?dryRun=All"), change(&mut nasty, object))
    };
    vec![
        draw("nodes", &Nasty::node),
        draw("pods", &|nasty| nasty.pod("{ns}")),
        draw("clusterbindings", &Nasty::binding),
        draw("resourceleasingpolicies", &|nasty| nasty.policy("some-binding")),
    ]
}

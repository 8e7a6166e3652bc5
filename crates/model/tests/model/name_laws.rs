//! What holds for all names.

use std::collections::HashSet;

use kubeocean_model::naming::{
    ClusterId, Origin, Port, VnodeName, free_port, is_dns_label, is_dns_subdomain, label_value,
};
use proptest::prelude::*;

/// Names as API servers allow them, with much sameness: long, dotted, dashed.
fn subdomain() -> impl Strategy<Value = String> {
    let label = "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?";
    prop::collection::vec(label, 1..6).prop_map(|labels| labels.join("."))
}

fn cluster() -> impl Strategy<Value = ClusterId> {
    "[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?".prop_map(|text| ClusterId::parse(&text).unwrap())
}

fn assert_valid(name: &str) {
    assert!(is_dns_subdomain(name) && name.len() <= 63 && label_value(name).is_some(), "{name}");
}

proptest! {
    #[test]
    fn a_name_is_valid_wherever_it_is_used(
        cluster in cluster(), name in subdomain(), namespace in "[a-z]{1,63}", uid in "[0-9a-f-]{36}"
    ) {
        let origins = [
            Origin::Object { namespace: &namespace, name: &name },
            Origin::Volume { name: &name },
            Origin::Tokens { pod: &name, uid: &uid },
        ];
        for origin in origins {
            assert_valid(origin.physical_name().as_str());
            assert_valid(origin.fallback_name(&uid).as_str());
            if !name.contains('.') {
                prop_assert!(is_dns_label(origin.physical_name().as_str()));
            }
        }
        assert_valid(VnodeName::of(&cluster, &name).as_str());
        assert_valid(VnodeName::disambiguated(&cluster, &name).as_str());
        for component in [cluster.syncer(), cluster.proxier(), cluster.proxier_service()] {
            prop_assert!(is_dns_label(&component), "{component}");
        }
    }

    #[test]
    fn whatever_the_input_the_name_is_valid(cluster in cluster(), name in "\\PC{0,80}", namespace in "\\PC{0,10}") {
        assert_valid(Origin::Object { namespace: &namespace, name: &name }.physical_name().as_str());
        assert_valid(VnodeName::of(&cluster, &name).as_str());
        assert_valid(VnodeName::disambiguated(&cluster, &name).as_str());
    }

    #[test]
    fn a_label_value_is_judged_as_a_regular_expression_would(text in "[aA0._/ä-]{0,8}") {
        let alphanumeric = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let valid = text.is_empty()
            || (alphanumeric(text.chars().next())
                && alphanumeric(text.chars().last())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)));
        prop_assert_eq!(label_value(&text).is_some(), valid);
    }

    #[test]
    fn a_preferred_port_is_in_the_range_and_probing_finds_a_free_one(cluster in cluster(), name in subdomain()) {
        let preferred = VnodeName::of(&cluster, &name).preferred_port();
        prop_assert!(preferred.number() >= Port::FIRST);
        let taken = |port: Port| (port.number() ^ preferred.number()) < 8;
        let free = free_port(preferred, taken).unwrap();
        prop_assert!(!taken(free));
        prop_assert_eq!(free_port(free, taken), Some(free));
    }
}

/// A small generator of its own, so that the inputs never change.
struct Nasty(u64);

impl Nasty {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    /// Few words, so that many names share beginnings, cuts, dashes and dots.
    fn name(&mut self, separators: &[&str]) -> String {
        const WORDS: [&str; 8] =
            ["a", "b", "node", "web-0", "0", "xxxxxxxxxxxxxxxxxxxxxxxxxxxx", "a-b", "token"];
        let mut name = WORDS[self.next(WORDS.len())].to_owned();
        for _ in 0..self.next(7) {
            name += separators[self.next(separators.len())];
            name += WORDS[self.next(WORDS.len())];
        }
        name
    }
}

#[test]
fn no_two_objects_share_a_name() {
    let mut nasty = Nasty(1);
    let (mut inputs, mut names) = (HashSet::new(), HashSet::new());
    while inputs.len() < 100_000 {
        let (namespace, name) = (nasty.name(&["-"]), nasty.name(&["-", ".", "--"]));
        if inputs.insert((namespace.clone(), name.clone())) {
            let origin = Origin::Object { namespace: &namespace, name: &name };
            let physical = origin.physical_name();
            assert_valid(physical.as_str());
            assert!(names.insert(physical), "{namespace}/{name}");
            assert!(names.insert(origin.fallback_name("5b0b7c34")), "{namespace}/{name}");
        }
        if inputs.insert((String::new(), name.clone())) {
            assert!(names.insert(Origin::Volume { name: &name }.physical_name()), "/{name}");
        }
    }
}

#[test]
fn no_two_nodes_share_a_second_name_nor_those_of_one_cluster_a_first() {
    let mut nasty = Nasty(2);
    let (mut inputs, mut first, mut second) = (HashSet::new(), HashSet::new(), HashSet::new());
    while inputs.len() < 100_000 {
        let cluster = ["a", "a-b", "c-9"][nasty.next(3)];
        let node = nasty.name(&["-", ".", "--"]);
        if inputs.insert((cluster, node.clone())) {
            let cluster_id = ClusterId::parse(cluster).unwrap();
            assert!(first.insert((cluster, VnodeName::of(&cluster_id, &node))), "{cluster} {node}");
            assert!(second.insert(VnodeName::disambiguated(&cluster_id, &node)), "{cluster} {node}");
        }
    }
}

#[test]
fn names_do_not_change_from_release_to_release() {
    let cluster = ClusterId::parse("a").unwrap();
    let tokens = Origin::Tokens { pod: "web-0", uid: "7c3f9f0e-8f1a-4c55-9b39-0d7d0a5e0b11" };
    let object = Origin::Object { namespace: "web", name: "a" };
    let pinned = [
        (
            VnodeName::disambiguated(&cluster, "b-c").to_string(),
            "vnode-a-b-c-f5b72991d3b92803b056ce9ea9a239eb",
        ),
        (tokens.physical_name().to_string(), "web-0-dcd39e47a40218928239a673ace3dfde"),
        (object.fallback_name("b-1").to_string(), "a-0d42c6fa9d8cf4faaf04e8183bea8b3a"),
        (VnodeName::of(&cluster, "b").preferred_port().to_string(), "44412"),
    ];
    for (name, expected) in pinned {
        assert_eq!(name, expected);
    }
}

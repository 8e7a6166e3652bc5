//! What holds for all leases.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use kubeocean_model::lease::{
    Candidate, Cap, Explanation, Invalid, Lease, Ledger, Limit, Node, Policies, Policy, PolicyFault, User,
    WorkerPolicies,
};
use kubeocean_model::quantity::Quantity;
use kubeocean_model::resources::Resources;
use kubeocean_model::selector::NodeSelector;
use kubeocean_model::window::{Schedule, Zone};
use proptest::prelude::*;
use serde_json::json;

use crate::{binding, used_by_others};

const RESOURCES: [&str; 5] = ["cpu", "memory", "pods", "ephemeral-storage", "nvidia.com/gpu"];

fn amount() -> impl Strategy<Value = Quantity> {
    prop_oneof![
        (0_i64..200_000).prop_map(Quantity::milli),
        (0_i64..64).prop_map(Quantity::whole),
        (0_i64..1 << 40).prop_map(Quantity::bytes),
    ]
}

fn resources() -> impl Strategy<Value = Resources> {
    prop::collection::vec((prop::sample::select(&RESOURCES[..]), amount()), 0..6)
        .prop_map(|list| list.into_iter().collect())
}

fn limit() -> impl Strategy<Value = Limit> {
    let cap = prop_oneof![
        amount().prop_map(Cap::Quantity),
        (0_u8..=100).prop_map(Cap::Percent),
        (amount(), 0_u8..=100).prop_map(|(quantity, percent)| Cap::Either { quantity, percent }),
    ];
    (prop::sample::select(&RESOURCES[..]), cap)
        .prop_map(|(resource, cap)| Limit { resource: resource.to_owned(), cap })
}

fn schedule() -> impl Strategy<Value = Schedule> {
    (0_u8..24, 0_u8..24).prop_map(|(start, end)| {
        let window = json!({"start": format!("{start:02}:00"), "end": format!("{end:02}:30")});
        Schedule::parse(&[serde_json::from_value(window).unwrap()], None, &Zone::utc()).unwrap()
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    let selector = prop::sample::select(vec![None, Some("a"), Some("b")]).prop_map(|zone| {
        let selector = zone.map(|zone| {
            json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]})
        });
        let selector = selector.map(|selector| serde_json::from_value(selector).unwrap());
        NodeSelector::parse(selector.as_ref()).unwrap()
    });
    let limits = prop::collection::vec(limit(), 0..5);
    let binding = prop::sample::select(vec!["w1", "w1", "w1", "w2"]);
    ("[a-e]{1,2}", 0_i64..4, selector, limits, schedule(), binding).prop_map(
        |(name, created, selector, limits, schedule, binding)| Policy {
            uid: String::new(),
            name,
            created: Timestamp::from_second(created).unwrap(),
            binding: binding.to_owned(),
            selector,
            schedule,
            limits,
            force_reclaim: false,
            grace_seconds: 0,
        },
    )
}

/// With names of their own, as objects of one cluster have.
fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
    prop::collection::vec((policy(), prop::bool::weighted(0.8)), 0..6).prop_map(|list| {
        let unique: HashMap<String, _> =
            list.into_iter().map(|(policy, valid)| (policy.name.clone(), (policy, valid))).collect();
        let invalid = |policy: Policy| Invalid {
            name: policy.name,
            binding: policy.binding,
            faults: vec![PolicyFault::NoAge],
        };
        unique
            .into_values()
            .map(|(policy, valid)| if valid { Ok(Arc::new(policy)) } else { Err(Arc::new(invalid(policy))) })
            .collect()
    })
}

fn node() -> impl Strategy<Value = Node> {
    (resources(), resources(), prop::sample::select(vec!["a", "b", "c"])).prop_map(
        |(allocatable, capacity, zone)| {
            let labels = [("zone".to_owned(), zone.to_owned())].into();
            Node { name: "n1".into(), labels, allocatable, capacity }
        },
    )
}

fn now() -> Timestamp {
    "2026-06-01T12:00:00Z".parse().unwrap()
}

fn leased(policies: &Policies, node: &Node, used: &Resources) -> Option<Lease> {
    Explanation::of(&binding(), policies, node, &used_by_others(used), now()).lease().cloned()
}

proptest! {
    #[test]
    fn an_offer_exceeds_neither_what_is_left_nor_any_cap(
        worker in candidates(), computing in candidates(), node in node(), used in resources()
    ) {
        let policies = Policies { worker: WorkerPolicies::Served(worker), computing };
        let Some(lease) = leased(&policies, &node, &used) else { return Ok(()) };
        for (resource, offer) in &lease.offers {
            prop_assert!(!offer.offer.is_negative() && offer.offer <= offer.remaining);
            prop_assert!(offer.remaining.is_zero() || offer.remaining + used.get(resource) == node.base().get(resource));
            for (_, policy) in lease.winners.iter() {
                for cap in policy.limits_on(resource) {
                    prop_assert!(offer.offer <= cap.of(offer.remaining));
                }
            }
            let whole = if resource == "cpu" { offer.offer.floor_to_milli() } else { offer.offer.floor_to_whole() };
            prop_assert_eq!(offer.offer, whole);
        }
    }

    #[test]
    fn the_more_others_use_the_less_is_offered(
        worker in candidates(), node in node(), used in resources(), more in resources()
    ) {
        let policies = Policies { worker: WorkerPolicies::Served(worker), computing: Vec::new() };
        let mut used_more = used.clone();
        used_more.add(&more);
        let (Some(before), Some(after)) = (leased(&policies, &node, &used), leased(&policies, &node, &used_more))
        else {
            return Ok(());
        };
        for (resource, offer) in &after.offers {
            prop_assert!(offer.offer <= before.offers[resource].offer);
        }
    }

    #[test]
    fn the_order_in_which_policies_are_listed_does_not_matter(
        (worker, shuffled) in candidates().prop_flat_map(|list| (Just(list.clone()), Just(list).prop_shuffle())),
        node in node(), used in resources()
    ) {
        let explain = |candidates: Vec<Candidate>| {
            let policies = Policies { worker: WorkerPolicies::Served(candidates.clone()), computing: candidates };
            Explanation::of(&binding(), &policies, &node, &used_by_others(&used), now())
        };
        prop_assert_eq!(explain(worker), explain(shuffled));
    }

    #[test]
    fn both_sides_together_offer_the_smaller_and_are_open_when_both_are(
        worker in candidates(), computing in candidates(), node in node(), used in resources()
    ) {
        let served = |list: &[Candidate]| WorkerPolicies::Served(list.to_vec());
        let lender = leased(&Policies { worker: served(&worker), computing: Vec::new() }, &node, &used);
        let alone = Policies { worker: WorkerPolicies::NotServed, computing: computing.clone() };
        let borrower = leased(&alone, &node, &used);
        let both = leased(&Policies { worker: served(&worker), computing }, &node, &used);
        match (lender, borrower) {
            (None, _) => prop_assert_eq!(both, None, "the lender's word is required"),
            (Some(lender), None) => prop_assert_eq!(both, Some(lender)),
            (Some(lender), Some(borrower)) => {
                let both = both.unwrap();
                prop_assert_eq!(both.active, lender.active && borrower.active);
                for (resource, offer) in &both.offers {
                    let smaller = lender.offers[resource].offer.min(borrower.offers[resource].offer);
                    prop_assert_eq!(offer.offer, smaller);
                }
            }
        }
    }

    #[test]
    fn a_ledger_kept_pod_by_pod_is_the_sum_of_its_pods(
        steps in prop::collection::vec((0_u8..6, 0_u8..4, prop::option::of(resources())), 0..60)
    ) {
        let user = |number| match number {
            0 => User::Ours,
            1 => User::Binding("b-2".into()),
            _ => User::Namespace(format!("ns-{number}")),
        };
        let mut ledger = Ledger::default();
        let mut pods: HashMap<String, (User, Resources)> = HashMap::new();
        for (uid, number, requests) in steps {
            let uid = format!("uid-{uid}");
            // As pods ask: what is nothing is not listed.
            let requests = requests.map(|requests| -> Resources {
                requests.iter().filter(|(_, quantity)| !quantity.is_zero()).collect()
            });
            match requests {
                Some(requests) if !requests.is_empty() => {
                    let changed = pods.get(&uid) != Some(&(user(number), requests.clone()));
                    prop_assert_eq!(ledger.put(&uid, user(number), requests.clone()), changed);
                    pods.insert(uid, (user(number), requests));
                }
                Some(nothing) => {
                    prop_assert_eq!(ledger.put(&uid, user(number), nothing), pods.remove(&uid).is_some());
                }
                None => prop_assert_eq!(ledger.remove(&uid), pods.remove(&uid).is_some()),
            }
            let mut again = Ledger::default();
            for (uid, (user, requests)) in &pods {
                again.put(uid, user.clone(), requests.clone());
            }
            prop_assert_eq!(&ledger, &again);
        }
        let mut used = Resources::default();
        pods.values().filter(|(user, _)| *user != User::Ours).for_each(|(_, requests)| used.add(requests));
        prop_assert_eq!(ledger.used(), used);
        prop_assert_eq!(ledger.len(), pods.len());
    }
}

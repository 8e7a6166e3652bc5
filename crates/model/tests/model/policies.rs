//! Several borrowers and one policy of a lender's: each says its own, one speaks for all, and all come to rest.

use jiff::Timestamp;
use kubeocean_model::action::Verb;
use kubeocean_model::binding::Binding;
use kubeocean_model::key::Physical;
use kubeocean_model::object::Object;
use kubeocean_model::policies::{SeenPolicy, Use, plan};
use kubeocean_model::window::Zone;
use serde_json::{Value, json};

/// Who reads the policy, which zone it takes for windows without one, and what it makes of the policy.
struct Borrower {
    binding: Binding,
    zone: Zone,
    used: Use,
}

fn borrower(uid: &str, zone: &str, nodes: usize) -> Borrower {
    let binding = Binding { uid: uid.to_owned(), ..crate::binding() };
    Borrower { binding, zone: Zone::parse(zone).unwrap(), used: Use { nodes, ..Use::default() } }
}

/// What a server makes of a status that is applied: entries of others stay.
fn apply(policy: &mut Value, said: &Value, uid: &str) {
    let mut entries = policy["status"]["bindings"].as_array().cloned().unwrap_or_default();
    entries.retain(|one| one["bindingUID"] != uid);
    entries.extend(said["bindings"].as_array().cloned().unwrap_or_default());
    policy["status"] = said.clone();
    policy["status"]["bindings"] = entries.into();
}

/// Lets them speak in turn until nobody has anything to say; gives how often something was written.
fn settle(policy: &mut Value, borrowers: &[Borrower], now: Timestamp) -> usize {
    let mut writes = 0;
    loop {
        let before = writes;
        for one in borrowers {
            let object = Object::from_value(policy.clone()).unwrap();
            let seen = SeenPolicy::read(&object, &one.zone);
            let (action, _) = plan::<Physical>(&seen, &one.binding, &one.used, now);
            let Some(Verb::Patch { body, .. }) = action.map(|action| action.verb) else { continue };
            apply(policy, &body["status"], &one.binding.uid);
            writes += 1;
        }
        if writes == before {
            return writes;
        }
        assert!(writes < 20, "they take the word from each other: {policy:#}");
    }
}

#[test]
fn borrowers_who_see_a_policy_in_different_ways_do_not_take_the_word_from_each_other() {
    let borrowers =
        [borrower("b-2", "Asia/Shanghai", 7), borrower("b-1", "UTC", 3), borrower("b-3", "UTC", 0)];
    let mut policy = json!({
        "metadata": {"name": "nights", "uid": "p-1", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1, "resourceVersion": "1"},
        "spec": {"cluster": "w1", "timeWindows": [{"start": "20:00", "end": "23:00"}]},
    });
    let noon = "2026-11-20T12:00:00Z".parse().unwrap();
    assert!(settle(&mut policy, &borrowers, noon) <= 6);
    let said = policy["status"].clone();
    // Eight in the evening in Shanghai, but who speaks reads the clock otherwise.
    assert_eq!(said["phase"], "Inactive", "{said:#}");
    assert!(said["conditions"][2]["message"].as_str().unwrap().contains("3 nodes"), "{said:#}");
    let mut entries = said["bindings"].as_array().cloned().unwrap();
    entries.sort_by_key(|one| one["bindingUID"].to_string());
    let expected = [("b-1", 3, false), ("b-2", 7, true), ("b-3", 0, false)]
        .map(|(uid, nodes, active)| json!({"active": active, "bindingUID": uid, "nodes": nodes}));
    assert_eq!(entries, expected);

    // An edit and an edge are told of, also if the one who speaks is no more.
    policy["metadata"]["generation"] = 2.into();
    assert!(settle(&mut policy, &borrowers[2..], noon) <= 2);
    assert_eq!(policy["status"]["observedGeneration"], 2);
    assert!(settle(&mut policy, &borrowers, noon) <= 4);
    let evening = "2026-11-20T20:00:01Z".parse().unwrap();
    assert!(settle(&mut policy, &borrowers[2..], evening) <= 2);
    assert_eq!(policy["status"]["phase"], "Active");
    assert_eq!(policy["status"]["nextTransitionTime"], "2026-11-20T23:01:00Z");
    assert!(settle(&mut policy, &borrowers, evening) <= 6);
    assert_eq!(policy["status"]["phase"], "Active");
}

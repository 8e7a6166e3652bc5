//! Controllers that are wrong in one way each, and the rule by which each is caught.
//!
//! Each toy is a mirror with one part exchanged; with the right part in its place the same machinery finds
//! nothing. Should a change to the testkit let one of them pass, it has become blind in that way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kubeocean_cluster::reconcile::Plan;
use kubeocean_model::action::kinds::CONFIG_MAP;
use kubeocean_model::action::{Action, PatchForm, Verb};
use kubeocean_model::key::{Key, Physical, Virtual};
use kubeocean_testkit::chaos::Profile;
use kubeocean_testkit::oracle::{HOT_LOOP, LIVENESS, NO_EMPTY_WRITE};
use kubeocean_testkit::simulation::{Report, Seeds, explore};
use serde_json::{Value, json};

use crate::mirror::{
    ACTOR, BY, BY_ORIGINAL, NAMESPACE, OF, Stores, UID, copy_name, create, data, mirror_by, place, plan,
};
use crate::poller::{self, COPIES, ORIGINALS, Poller};
use crate::scenario::{Controller, NOT_YET, ONE_COPY, ONLY_OURS, Scene, busy_user, full_chaos};

/// A wrong controller must be caught within so many seeds. Most are caught by one of the first ten; who deletes
/// without a uid has to meet a stranger of the same name in the moment between a look and a write.
const WITHIN: u64 = 600;

fn under_full_chaos(controller: Controller) -> Report {
    explore(&Seeds::first(WITHIN), |world| async move {
        full_chaos(world, controller).await;
    })
}

#[track_caller]
#[expect(clippy::panic, clippy::print_stdout, reason = "part of a test")]
fn is_caught(report: &Report, rule: &'static str) {
    let (seed, violation) =
        report.broken(rule).unwrap_or_else(|| panic!("{report}, {:?} broken", report.rules()));
    println!("caught by seed {seed}: {}: {}", violation.invariant, violation.what);
}

#[test]
fn a_careful_poller_breaks_no_rule() {
    let report = under_full_chaos(|wiring| Poller::default().run(wiring));
    assert!(report.failures.is_empty(), "{}", report.failures[0]);
}

#[test]
fn deleting_without_a_uid_is_caught() {
    fn hasty(stores: &Stores, key: &Key<Virtual>) -> Plan {
        let mut plan = plan(stores, key);
        for action in plan.actions.iter_mut().filter(|action| matches!(action.verb, Verb::Delete { .. })) {
            action.precondition = kubeocean_model::action::Precondition::default();
        }
        plan
    }
    is_caught(&under_full_chaos(|wiring| mirror_by(wiring, hasty, true)), ONLY_OURS);
}

#[test]
fn deleting_what_a_stale_list_does_not_show_is_caught() {
    const STALE: &str = "/api/v1/configmaps?labelSelector=mirror%3Dyes&resourceVersion=0";
    assert!(STALE.starts_with(ORIGINALS));
    is_caught(
        &under_full_chaos(|wiring| Poller { originals: STALE, ..Poller::default() }.run(wiring)),
        NOT_YET,
    );
}

#[test]
fn creating_again_after_a_lost_answer_is_caught() {
    fn anew(original: &Value) -> poller::Write {
        let (method, path, mut body) = poller::create(original);
        if let Some(meta) = body["metadata"].as_object_mut() {
            meta.remove("name");
            meta.insert("generateName".to_owned(), "m-".into());
        }
        (method, path, body)
    }
    let toy: Controller = |wiring| Poller { create: anew, attempts: 3, ..Poller::default() }.run(wiring);
    is_caught(&under_full_chaos(toy), ONE_COPY);
}

#[test]
fn ignoring_that_a_version_expired_is_caught() {
    is_caught(
        &under_full_chaos(|wiring| Poller { watches: true, ..Poller::default() }.run(wiring)),
        LIVENESS,
    );
}

#[test]
fn asking_without_end_is_caught() {
    is_caught(
        &under_full_chaos(|wiring| Poller { pause: Duration::ZERO, ..Poller::default() }.run(wiring)),
        HOT_LOOP,
    );
}

#[test]
fn writing_what_is_so_already_is_caught() {
    fn eager(stores: &Stores, key: &Key<Virtual>) -> Plan {
        let mut plan = plan(stores, key);
        let original = stores.originals.get(key);
        let copies = stores.copies.by(&BY_ORIGINAL, &key.to_string());
        if let (true, Some(original), Some(copy)) = (plan.actions.is_empty(), original, copies.first()) {
            let body = json!({"data": data(&original)});
            let verb = Verb::Patch { form: PatchForm::Merge, subresource: None, body };
            plan.actions.push(Action::new(CONFIG_MAP, &copy.key::<Physical>(), verb, "to be sure"));
        }
        plan
    }
    is_caught(&under_full_chaos(|wiring| mirror_by(wiring, eager, true)), NO_EMPTY_WRITE);
}

#[test]
fn removing_what_belongs_to_others_is_caught() {
    fn grabby(object: &Value) -> poller::Write {
        ("DELETE", poller::path(object), json!({"preconditions": {"uid": object["metadata"]["uid"]}}))
    }
    let toy: Controller = |wiring| {
        let is_ours = |object: &Value| !place(object).ends_with("kube-root-ca.crt");
        Poller { is_ours, remove: grabby, ..Poller::default() }.run(wiring)
    };
    is_caught(&under_full_chaos(toy), ONLY_OURS);
}

/// Copies get a number, so that only the store says whether there is one already.
fn numbered(stores: &Stores, key: &Key<Virtual>) -> Plan {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let original = stores.originals.get(key);
    let copies = stores.copies.by(&BY_ORIGINAL, &key.to_string());
    match original {
        Some(original) if copies.is_empty() => {
            let mut action = create(key, &original);
            action.name = format!("{}-{}", copy_name(key), NUMBER.fetch_add(1, Ordering::Relaxed));
            Plan::of(vec![action])
        }
        _ => Plan::rest(),
    }
}

#[test]
fn planning_on_what_the_store_has_not_seen_yet_is_caught() {
    let late = || Profile { event_late: 1.0, latest: Duration::from_secs(5), ..Profile::calm() };
    let under_late_events = |controller: Controller| {
        explore(&Seeds::first(WITHIN), move |world| async move {
            let scene = Scene::new(&world, |_| late());
            busy_user(&scene, controller).await;
        })
    };
    is_caught(&under_late_events(|wiring| mirror_by(wiring, numbered, false)), ONE_COPY);
    let fenced = under_late_events(|wiring| mirror_by(wiring, numbered, true));
    assert!(fenced.broken(ONE_COPY).is_none(), "{}", fenced.failures[0]);
}

#[test]
fn a_stamp_is_what_the_toys_take_it_for() {
    let (_, path, body) =
        poller::create(&json!({"metadata": {"namespace": "web", "name": "a", "uid": "u-1"}}));
    assert_eq!((path.as_str(), &body["metadata"]["labels"][BY]), (COPIES, &json!(ACTOR)));
    assert_eq!(body["metadata"]["annotations"], json!({OF: "web/a", UID: "u-1"}));
    assert!(COPIES.contains(NAMESPACE));
}

//! What bindings that no longer exist have left in V.
//!
//! A syncer that was removed by force, or whose binding vanished while nobody was running, leaves virtual nodes, their
//! Leases and `CSINodes`, placeholder pods and certificate requests. Each carries the uid of its binding; those of older
//! installations carry its name.
//!
//! Deliberately absent: which kinds are looked at, and bindings that are being deleted, which are
//! [`bind`](crate::bind)'s.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubeocean_api::keys::labels;
use kubeocean_api::keys::names::SYNCER_PREFIX;

use crate::action::Action;
use crate::bind::{Leftover, Served, remove_hold, served};
use crate::object::Object;

/// An object may be seen before the binding that it was made for: watches of two kinds are not in step. One that was dropped without a
/// word is noticed after twice a minute, when it is renewed at the latest, and 15 s of patience: 135 s. Younger objects are not
/// even asked about; nobody misses what goes a minute later.
const NOT_YOUNGER_THAN: Duration = Duration::from_secs(150);

/// What becomes of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// Its binding lives, or it is not ours to judge.
    Stays,
    /// To be looked at again then.
    Young(Timestamp),
    /// To be removed.
    Goes(Vec<Action>),
}

/// Judges one object. What stores know is enough for one that stays; whoever removes one asks the API server itself who lives. `cluster` is the uid of this computing cluster, `lives` says whether there is a binding with this uid,
/// `named` whether there is one of this name.
pub fn judge(
    leftover: &Leftover,
    cluster: &str,
    lives: impl Fn(&str) -> bool,
    named: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Fate {
    // This cluster may be a worker cluster of others, too.
    let theirs = leftover.meta.labels.get(labels::VIRTUAL_CLUSTER_UID).is_some_and(|uid| uid != cluster);
    let stays = match served(&leftover.meta) {
        _ if theirs => true,
        None => true,
        Some(Served::Uid(uid)) => lives(uid),
        Some(Served::Name(name)) => named(name),
    };
    if stays {
        return Fate::Stays;
    }
    match young_until(leftover.meta.creation_timestamp, now) {
        Some(due) => Fate::Young(due),
        None => Fate::Goes(leftover.remove("its binding no longer exists")),
    }
}

/// The `clusterID` of the syncers that hold the lead by a Lease of this name. Nothing else tells whose it is.
pub fn cluster_of_hold(name: &str) -> Option<&str> {
    name.strip_prefix(SYNCER_PREFIX).filter(|id| !id.is_empty())
}

/// Judges what the syncers of a binding hold the lead by; `bound` says whether there is a binding with this `clusterID`. One that was
/// renewed lately may be that of a syncer that is still ending.
pub fn judge_hold(hold: &Object, bound: impl Fn(&str) -> bool, now: Timestamp) -> Fate {
    if cluster_of_hold(&hold.meta.name).is_none_or(bound) {
        return Fate::Stays;
    }
    let renewed = hold.text("spec", &["renewTime"]).and_then(|time| time.parse().ok());
    match young_until(renewed.or(hold.meta.creation_timestamp), now) {
        Some(due) => Fate::Young(due),
        // Whoever takes it in the meantime is a syncer that lives.
        None => Fate::Goes(vec![remove_hold(&hold.meta).if_version(&*hold.meta.resource_version)]),
    }
}

/// Until when something is too young to be judged.
fn young_until(since: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    let least = SignedDuration::try_from(NOT_YOUNGER_THAN).unwrap_or_default();
    let since = since.unwrap_or(now);
    // Made in the time to come: a clock was set back, and its age says nothing. Whoever removes it asks who lives, all the same.
    since.checked_add(least).ok().filter(|due| *due > now && since <= now)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::action::kinds;
    use crate::object::Object;

    fn node(labels: &serde_json::Value, age: i64) -> (Leftover, Timestamp) {
        let now: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
        let made = now.checked_sub(SignedDuration::from_secs(age)).unwrap();
        let object = json!({"metadata": {
            "name": "vnode-a", "uid": "n-1", "resourceVersion": "7", "labels": labels,
            "creationTimestamp": made.to_string(), "finalizers": [kubeocean_api::keys::finalizers::VNODE, "other"],
        }});
        (Leftover { kind: kinds::NODE, meta: Object::from_value(object).unwrap().meta }, now)
    }

    fn fate(labels: &serde_json::Value, age: i64) -> String {
        let (node, now) = node(labels, age);
        match judge(&node, "v-1", |uid| uid == "b-1", |name| name == "w1", now) {
            Fate::Stays => "stays".to_owned(),
            Fate::Young(due) => format!("young until {due}"),
            Fate::Goes(actions) => actions.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        }
    }

    #[test]
    fn a_placeholder_that_someone_asked_to_end_is_ended() {
        let labels = json!({labels::MANAGED_BY: labels::MANAGED_BY_VALUE, labels::BINDING_UID: "gone"});
        let fate = |grace: i64, finalizers: &[&str]| {
            let object = json!({"metadata": {
                "finalizers": finalizers,
                "namespace": "kubeocean-fake", "name": "a", "uid": "p-1", "labels": labels,
                "creationTimestamp": "2026-11-20T08:00:00Z", "deletionTimestamp": "2026-11-20T08:00:30Z",
                "deletionGracePeriodSeconds": grace,
            }});
            let pod = Leftover { kind: kinds::POD, meta: Object::from_value(object).unwrap().meta };
            let now = "2026-11-20T12:00:00Z".parse().unwrap();
            match judge(&pod, "v-1", |_| false, |_| false, now) {
                Fate::Goes(actions) => actions.len(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((fate(30, &["other"]), fate(0, &[])), (1, 1), "nobody else would");
        assert_eq!(fate(0, &["other"]), 0, "it waits for someone");
    }

    #[test]
    fn the_lead_of_syncers_goes_when_nobody_is_bound_as_their_cluster_and_they_have_ended() {
        let fate = |name: &str, renewed: &str| {
            let object = json!({
                "metadata": {
                    "namespace": "n", "name": name, "uid": "l-1", "resourceVersion": "7",
                    "creationTimestamp": "2026-11-20T08:00:00Z",
                },
                "spec": {"renewTime": renewed},
            });
            let now = "2026-11-20T12:00:00Z".parse().unwrap();
            match judge_hold(&Object::from_value(object).unwrap(), |id| id == "c1", now) {
                Fate::Stays => "stays".to_owned(),
                Fate::Young(due) => format!("young until {due}"),
                Fate::Goes(actions) => actions.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            }
        };
        let long_ago = "2026-11-20T11:00:00.000000Z";
        assert_eq!(fate("kubeocean-syncer-c1", long_ago), "stays");
        assert_eq!(fate("kubeocean-manager-leader", long_ago), "stays");
        assert_eq!(
            fate("kubeocean-syncer-c2", "2026-11-20T11:59:50.000000Z"),
            "young until 2026-11-20T12:02:20Z",
            "it still ends"
        );
        assert_eq!(
            fate("kubeocean-syncer-c2", long_ago),
            "delete virtual leases n/kubeocean-syncer-c2 if uid=l-1 if version=7 (nobody leads any more)"
        );
    }

    #[test]
    fn what_belongs_to_nobody_goes_and_nothing_else() {
        let ours = labels::MANAGED_BY_VALUE;
        let by = |key: &str, value: &str| json!({labels::MANAGED_BY: ours, key: value});
        assert_eq!(fate(&by(labels::BINDING_UID, "b-1"), 999), "stays");
        assert_eq!(fate(&by(labels::CLUSTER_BINDING, "w1"), 999), "stays");
        assert_eq!(
            fate(&json!({labels::BINDING_UID: "gone"}), 999),
            "stays",
            "it does not say that it is ours"
        );
        assert_eq!(fate(&by("other", "x"), 999), "stays", "nobody knows whose it is");
        let theirs = json!({labels::MANAGED_BY: ours, labels::BINDING_UID: "gone", labels::VIRTUAL_CLUSTER_UID: "v-2"});
        assert_eq!(fate(&theirs, 999), "stays", "another computing cluster made it here");
        assert_eq!(fate(&by(labels::BINDING_UID, "gone"), 10), "young until 2026-11-20T12:02:20Z");
        assert_eq!(
            fate(&by(labels::BINDING_UID, "gone"), 135),
            "young until 2026-11-20T12:00:15Z",
            "a store may be that late"
        );
        let removed = "patch virtual nodes vnode-a if uid=n-1 if version=7 (its binding no longer exists); \
                       delete virtual nodes vnode-a if uid=n-1 (its binding no longer exists)";
        assert_eq!(fate(&by(labels::BINDING_UID, "gone"), 151), removed);
        assert_eq!(fate(&by(labels::BINDING_UID, "gone"), -3600), removed, "the clock was set back");
        assert_eq!(
            fate(&by(labels::CLUSTER_BINDING, "gone"), 151),
            removed,
            "as older installations mark them"
        );
    }
}

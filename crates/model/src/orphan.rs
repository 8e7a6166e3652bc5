//! What is left in a worker cluster of what is no more.
//!
//! The mirror image of [`sweep`](crate::sweep). An object of P is judged by whom its labels name: this computing cluster, and a binding of
//! it. While that binding lives, only its own syncer says which of its objects have lost their counterpart; what a binding that is gone has left behind is removed by
//! whoever comes by.
//!
//! Deliberately absent: who lives. Nothing may be judged before both sides have been listed.

use kubeocean_api::keys::labels;

use crate::action::{Action, Kind};
use crate::object::Meta;
use crate::stamp::{Stamp, delete};

/// Removes an object of P that has outlived what it was made for. `counterpart_lives` says whether the V object that it serves is still there and mapped,
/// `binding_lives` whether the binding that its label names is.
pub fn orphan(
    stamp: &Stamp<'_>,
    kind: &Kind,
    meta: &Meta,
    counterpart_lives: bool,
    binding_lives: bool,
) -> Option<Action> {
    let is = |key: &str, value: &str| !value.is_empty() && meta.labels.get(key) == Some(value);
    let of_this_cluster = is(labels::MANAGED_BY, labels::MANAGED_BY_VALUE)
        && is(labels::VIRTUAL_CLUSTER_UID, stamp.virtual_cluster);
    let made_for = meta.labels.get(labels::BINDING_UID).filter(|uid| !uid.is_empty())?;
    if !of_this_cluster || meta.is_deleting() {
        return None;
    }
    let is_ours = made_for == stamp.binding.uid;
    match (is_ours, binding_lives, counterpart_lives) {
        (_, false, _) => Some(delete(kind.clone(), meta, "its binding no longer exists")),
        (true, true, false) => Some(delete(kind.clone(), meta, "what it was made for no longer exists")),
        (_, true, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::action::kinds;
    use crate::pretend::{binding, object};

    fn judged(labels: &serde_json::Value, counterpart: bool, binding_lives: bool) -> String {
        let meta = json!({"metadata": {"namespace": "mount", "name": "a", "uid": "p-1", "labels": labels}});
        let binding = binding("b-1");
        let stamp = Stamp { binding: &binding, virtual_cluster: "v-1" };
        let action = orphan(&stamp, &kinds::SECRET, &object(&meta).meta, counterpart, binding_lives);
        action.map_or_else(|| "stays".to_owned(), |action| action.to_string())
    }

    #[test]
    fn what_has_outlived_its_original_or_its_binding_goes_and_nothing_else() {
        let stamped = |binding: &str, cluster: &str| {
            json!({
                labels::MANAGED_BY: labels::MANAGED_BY_VALUE, labels::BINDING_UID: binding,
                labels::VIRTUAL_CLUSTER_UID: cluster,
            })
        };
        let gone = "delete physical secrets mount/a if uid=p-1";
        let ours = stamped("b-1", "v-1");
        assert_eq!(judged(&ours, true, true), "stays");
        assert_eq!(judged(&ours, false, true), format!("{gone} (what it was made for no longer exists)"));
        assert_eq!(judged(&ours, true, false), format!("{gone} (its binding no longer exists)"));
        let of_another = stamped("b-2", "v-1");
        assert_eq!(judged(&of_another, false, true), "stays", "its own syncer judges it");
        assert_eq!(judged(&of_another, true, false), format!("{gone} (its binding no longer exists)"));
        for foreign in [
            stamped("b-1", "v-2"),
            stamped("b-1", ""),
            stamped("", "v-1"),
            json!({labels::BINDING_UID: "b-1", labels::VIRTUAL_CLUSTER_UID: "v-1"}),
            json!({labels::MANAGED_BY: labels::MANAGED_BY_VALUE, labels::VIRTUAL_CLUSTER_UID: "v-1"}),
            json!({}),
            serde_json::Value::Null,
        ] {
            assert_eq!(judged(&foreign, false, false), "stays", "{foreign}");
        }
    }

    #[test]
    fn what_is_going_already_is_not_asked_twice() {
        let meta = json!({"metadata": {
            "name": "a", "uid": "p-1", "deletionTimestamp": "2026-11-20T08:00:00Z",
            "labels": {
                labels::MANAGED_BY: labels::MANAGED_BY_VALUE, labels::BINDING_UID: "b-1",
                labels::VIRTUAL_CLUSTER_UID: "v-1",
            },
        }});
        let binding = binding("b-1");
        let stamp = Stamp { binding: &binding, virtual_cluster: "v-1" };
        assert_eq!(orphan(&stamp, &kinds::VOLUME, &object(&meta).meta, false, false), None);
    }
}

//! What a manager never does, whatever happens.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kubeocean_api::keys::names::SYNCER_PREFIX;
use kubeocean_api::keys::{annotations, finalizers, labels};
use kubeocean_model::bind::MANAGER;
use kubeocean_testkit::chaos::Profile;
use kubeocean_testkit::simulation::run;
use kubeocean_testkit::{Commit, Verb};
use serde_json::{Value, json};

use crate::certificates::{FORGED, is_approved, user_of};
use crate::residents::{collection, has_finalizer, is_deleting, label, text};
use crate::scene::{CHILDREN, MERGE, NAMESPACE, Scene, is_ours};

const ONLY_OURS: &str = "nothing of others is touched";
const NOT_OF_THE_LIVING: &str = "nothing that the syncer of a living binding made is removed";
const WHOSE_IT_WAS: &str = "what runs the workers of a binding stays that binding's";
const RUNS_THE_LIVING: &str = "what runs the workers of a living binding is not removed";
const ONE_EACH: &str = "never two Deployments of one role";
const SYNCER_LIVES: &str = "a syncer is not taken away before its work is done";
const APPROVED: &str =
    "a certificate is approved only for the proxier of a binding, by its own service account";
const CONFIRMED: &str = "a binding goes after its Deployments";

/// What syncers and proxiers make, and the manager removes when their bindings go.
pub(crate) const SWEPT: [&str; 5] = ["nodes", "leases", "csinodes", "pods", "certificatesigningrequests"];

impl Scene {
    pub(crate) fn rules(&self) {
        let oracle = &self.world.oracle;
        let server = self.virt.server.clone();
        oracle.always("V", &self.virt.server, ONLY_OURS, |commit| {
            let Some(old) = commit.old.as_deref().filter(|_| commit.actor == MANAGER) else { return Ok(()) };
            let held = commit.plural == "leases" && commit.namespace == NAMESPACE;
            if held || !CHILDREN.contains(&&*commit.plural) && !SWEPT.contains(&&*commit.plural) {
                return Ok(());
            }
            if is_ours(old) { Ok(()) } else { Err(format!("{} {} is not ours", commit.plural, commit.name)) }
        });
        let (bindings, restored) = (server.clone(), Arc::clone(&self.restored));
        oracle.always("V", &self.virt.server, NOT_OF_THE_LIVING, move |commit| {
            let goes = commit.actor == MANAGER && SWEPT.contains(&&*commit.plural) && begins_to_go(commit);
            // Who came back with an older etcd was gone a moment ago.
            let Some(old) = commit.old.as_deref().filter(|_| goes && !*restored.read()) else {
                return Ok(());
            };
            let all = bindings.list_at(commit.revision, "clusterbindings", None);
            let held = commit.plural == "leases" && commit.namespace == NAMESPACE;
            let is_whose = |binding: &Value| {
                if held {
                    let id = text(binding, "/spec/clusterID");
                    *commit.name == format!("{SYNCER_PREFIX}{id}")
                        && !text(binding, "/status/workerUID").is_empty()
                } else {
                    text(binding, "/metadata/uid") == label(old, labels::BINDING_UID)
                }
            };
            match all.iter().find(|one| is_whose(one) && !is_deleting(one)) {
                Some(binding) => {
                    let whose = text(binding, "/metadata/name");
                    Err(format!("{} {} of {whose}, which lives", commit.plural, commit.name))
                }
                None => Ok(()),
            }
        });
        self.rules_for_children();
        self.rule_for_certificates();
        for (name, site) in [("p1", &self.workers[0]), ("p2", &self.workers[1])] {
            oracle.always(name, &site.server, ONLY_OURS, |commit| {
                if commit.actor == MANAGER { Err("nothing of P is the manager's".to_owned()) } else { Ok(()) }
            });
        }
        let deployments = server.clone();
        oracle.always("V", &self.virt.server, ONE_EACH, move |commit| {
            let Some(new) = commit.new.as_deref().filter(|_| commit.plural == "deployments") else {
                return Ok(());
            };
            let whose = |object: &Value| {
                (label(object, labels::BINDING_UID).to_owned(), label(object, labels::COMPONENT).to_owned())
            };
            let all = deployments.list_at(commit.revision, "deployments", None);
            let same = all.iter().filter(|one| whose(one) == whose(new) && !whose(new).0.is_empty()).count();
            if same > 1 { Err(format!("{same} of {:?}", whose(new))) } else { Ok(()) }
        });
        let (bindings, was_inline) = (server.clone(), Arc::clone(&self.was_inline));
        oracle.always("V", &self.virt.server, SYNCER_LIVES, move |commit| {
            // The manager took its work over.
            if was_inline.load(Ordering::Relaxed) {
                return Ok(());
            }
            let goes = commit.actor == MANAGER && commit.plural == "deployments" && begins_to_go(commit);
            let Some(old) = commit.old.as_deref().filter(|_| goes) else { return Ok(()) };
            let uid = label(old, labels::BINDING_UID);
            let all = bindings.list_at(commit.revision, "clusterbindings", None);
            let Some(binding) = all.iter().find(|one| text(one, "/metadata/uid") == uid) else {
                return Ok(());
            };
            let forced = !binding["metadata"]["annotations"][annotations::FORCE_UNBIND].is_null();
            let done = !has_finalizer(binding, finalizers::CLUSTER_BINDING_SYNCER);
            if is_deleting(binding) && (forced || done) {
                return Ok(());
            }
            Err(format!("{} while {} needs it", commit.name, text(binding, "/metadata/name")))
        });
        oracle.always("V", &self.virt.server, CONFIRMED, move |commit| {
            let (Some(old), true) = (commit.old.as_deref(), commit.plural == "clusterbindings") else {
                return Ok(());
            };
            let ours = finalizers::CLUSTER_BINDING_MANAGER;
            let dropped = commit.actor == MANAGER
                && has_finalizer(old, ours)
                && !commit.new.as_deref().is_some_and(|new| has_finalizer(new, ours));
            if !dropped {
                return Ok(());
            }
            let uid = text(old, "/metadata/uid");
            let all = server.list_at(commit.revision, "deployments", None);
            match all.iter().find(|one| label(one, labels::BINDING_UID) == uid) {
                Some(left) => Err(format!("{} is still there", text(left, "/metadata/name"))),
                None => Ok(()),
            }
        });
    }

    fn rule_for_certificates(&self) {
        let (bindings, restored) = (self.virt.server.clone(), Arc::clone(&self.restored));
        self.world.oracle.always("V", &self.virt.server, APPROVED, move |commit| {
            let by_us = commit.actor == MANAGER && commit.plural == "certificatesigningrequests";
            let Some(new) = commit.new.as_deref().filter(|new| by_us && is_approved(new)) else {
                return Ok(());
            };
            let all = bindings.list_at(commit.revision, "clusterbindings", None);
            let asks = |binding: &Arc<Value>| {
                user_of(text(binding, "/spec/clusterID")) == text(new, "/spec/username")
            };
            // Who came back with an older etcd was gone a moment ago.
            let bound = all.iter().any(asks) || *restored.read();
            if bound && !commit.name.starts_with(FORGED) {
                return Ok(());
            }
            Err(format!("{} of {}", commit.name, text(new, "/spec/username")))
        });
    }

    /// What the manager may do to what runs the workers of bindings. Whoever else edits labels is not judged: whose an object is
    /// counts from what the manager found.
    fn rules_for_children(&self) {
        let oracle = &self.world.oracle;
        let is_child = |commit: &Commit| commit.actor == MANAGER && CHILDREN.contains(&&*commit.plural);
        let bindings = self.virt.server.clone();
        oracle.always("V", &self.virt.server, WHOSE_IT_WAS, move |commit| {
            let (Some(old), Some(new), true) =
                (commit.old.as_deref(), commit.new.as_deref(), is_child(commit))
            else {
                return Ok(());
            };
            let stamp = label(old, labels::BINDING_UID);
            if !stamp.is_empty() && stamp == label(new, labels::BINDING_UID) {
                return Ok(());
            }
            let all = bindings.list_at(commit.revision, "clusterbindings", None);
            let (was, is) = (whose(&all, old), whose(&all, new));
            if was == is {
                return Ok(());
            }
            Err(format!("{} {} was of {was:?} and is now of {is:?}", commit.plural, commit.name))
        });
        let (bindings, restored) = (self.virt.server.clone(), Arc::clone(&self.restored));
        let was_inline = Arc::clone(&self.was_inline);
        oracle.always("V", &self.virt.server, RUNS_THE_LIVING, move |commit| {
            // A manager that runs the workers itself replaces it, and what it wrote may be done after its end. Who came back with an older
            // etcd was gone a moment ago.
            let judged = is_child(commit)
                && begins_to_go(commit)
                && !was_inline.load(Ordering::Relaxed)
                && !*restored.read();
            // What older installations made may not be what can be changed into ours.
            let stamped = |old: &&Value| label(old, labels::MANAGED_BY) == labels::MANAGED_BY_VALUE && judged;
            let Some(old) = commit.old.as_deref().filter(stamped) else { return Ok(()) };
            let all = bindings.list_at(commit.revision, "clusterbindings", None);
            let uid = whose(&all, old);
            match all.iter().find(|one| text(one, "/metadata/uid") == uid && !is_deleting(one)) {
                Some(binding) => {
                    let whose = text(binding, "/metadata/name");
                    Err(format!("{} {} of {whose}, which lives", commit.plural, commit.name))
                }
                None => Ok(()),
            }
        });
    }
}

fn begins_to_go(commit: &Commit) -> bool {
    let was = commit.old.as_deref().is_some_and(is_deleting);
    let is = commit.verb == Verb::Delete || commit.new.as_deref().is_some_and(is_deleting);
    is && !was
}

/// The uid of the binding that an object serves: by its label, as older installations said it by its owner, or by its name.
fn whose(bindings: &[Arc<Value>], object: &Value) -> String {
    let stamp = label(object, labels::BINDING_UID);
    if !stamp.is_empty() {
        return stamp.to_owned();
    }
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    if let Some(owner) = owners.into_iter().find(|owner| owner["kind"] == "ClusterBinding") {
        return text(owner, "/uid").to_owned();
    }
    let name = label(object, labels::CLUSTER_BINDING);
    let named = bindings.iter().find(|one| text(one, "/metadata/name") == name && !name.is_empty());
    named.map(|binding| text(binding, "/metadata/uid").to_owned()).unwrap_or_default()
}

#[test]
fn a_manager_that_touches_what_is_of_another_binding_is_caught() {
    let caught = |deed: &dyn Fn(&Scene, &str)| -> Vec<&'static str> {
        let ((), violations) = run(7, |world| async move {
            let scene = Scene::new(&world, |_| Profile::calm());
            scene.bind("w1", "c1", "s1");
            let binding = scene.virt.server.get("clusterbindings", "", "w1").unwrap();
            let stamp = json!({labels::MANAGED_BY: labels::MANAGED_BY_VALUE, labels::BINDING_UID: text(&binding, "/metadata/uid")});
            let body = json!({"metadata": {"name": "a", "labels": stamp}});
            let place = collection("serviceaccounts", NAMESPACE);
            scene.virt.server.call(MANAGER, "POST", &place, None, Some(body));
            deed(&scene, &format!("{place}/a"));
        });
        violations.iter().map(|violation| violation.invariant).collect()
    };
    let relabel = json!({"metadata": {"labels": {labels::BINDING_UID: "another"}}});
    let patch = |actor: &'static str| {
        let body = relabel.clone();
        move |scene: &Scene, place: &str| {
            scene.virt.server.call(actor, "PATCH", place, MERGE, Some(body.clone()));
        }
    };
    let delete = |scene: &Scene, place: &str| {
        scene.virt.server.call(MANAGER, "DELETE", place, None, None);
    };
    assert_eq!(caught(&patch(MANAGER)), [WHOSE_IT_WAS]);
    assert_eq!(caught(&delete), [RUNS_THE_LIVING]);
    assert!(caught(&patch("someone")).is_empty(), "what others do is not judged");
    let after_unbinding = |scene: &Scene, place: &str| {
        scene.virt.server.call(
            "user",
            "DELETE",
            &format!("{}/w1", collection("clusterbindings", "")),
            None,
            None,
        );
        delete(scene, place);
    };
    assert!(caught(&after_unbinding).is_empty());
}

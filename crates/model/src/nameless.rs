//! Policies of V that name no binding: nobody else would say that they do nothing.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kubeocean_api::keys::conditions::Policy as ConditionType;
use kubeocean_api::keys::reasons::Policy as Reason;
use kubeocean_api::{PolicyPhase, ResourceLeasingPolicyStatus};
use serde_json::json;

use crate::action::{Action, PatchForm, Verb, kinds};
use crate::bind::MANAGER;
use crate::condition::Said;
use crate::key::{Key, Virtual};
use crate::object::{Meta, Object};

/// A policy of V, as far as the manager reads it.
#[derive(Clone, Debug)]
pub struct PolicyObject {
    /// Its metadata.
    pub meta: Meta,
    /// The binding that it names.
    pub cluster: String,
    /// What was last said about it.
    pub status: ResourceLeasingPolicyStatus,
}

impl PolicyObject {
    /// Reads an object.
    pub fn read(object: &Object) -> Self {
        Self {
            meta: object.meta.clone(),
            cluster: object.text("spec", &["cluster"]).unwrap_or_default(),
            status: object.field("status").ok().flatten().unwrap_or_default(),
        }
    }

    fn complaint(&self) -> Option<&Condition> {
        let conditions = &self.status.conditions;
        conditions.iter().find(|one| {
            one.type_ == ConditionType::Valid.as_str() && one.reason == Reason::NoSuchBinding.as_str()
        })
    }
}

/// What should be written about a policy. `is_bound` says whether there is a binding of that name.
pub fn plan(policy: &PolicyObject, is_bound: impl Fn(&str) -> bool, now: Timestamp) -> Option<Action> {
    if policy.meta.is_deleting() {
        return None;
    }
    let status = match (is_bound(&policy.cluster), policy.complaint()) {
        (true, None) => return None,
        // What we said is taken back; the rest is for the binding's syncer to say.
        (true, Some(_)) => json!({}),
        (false, known) => {
            let message = format!(
                "there is no ClusterBinding named '{0}', so this policy leases nothing: create the binding (kubeocean bind \
                 {0}), or name one of `kubectl get clusterbindings` in spec.cluster",
                policy.cluster
            );
            let generation = policy.meta.generation;
            if known.is_some_and(|known| {
                known.message == message && known.observed_generation == Some(generation)
            }) {
                return None;
            }
            let said = Said {
                about: ConditionType::Valid.as_str(),
                holds: Some(false),
                reason: Reason::NoSuchBinding.as_str(),
                message: &message,
            };
            let condition = said.written(&policy.status.conditions, generation, now);
            json!({"phase": PolicyPhase::Failed, "observedGeneration": generation, "conditions": [condition]})
        }
    };
    let form = PatchForm::Apply { manager: MANAGER.into(), force: true };
    let verb = Verb::Patch { form, subresource: Some("status"), body: json!({"status": status}) };
    let key = Key::<Virtual>::cluster_scoped(&*policy.meta.name);
    let why = "whether a binding has the name that it names";
    let action = Action::new(kinds::POLICY, &key, verb, why).if_uid(&*policy.meta.uid);
    Some(action.if_version(&*policy.meta.resource_version))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn policy(status: &Value) -> PolicyObject {
        let object = json!({
            "metadata": {"name": "nights", "uid": "p-1", "generation": 2},
            "spec": {"cluster": "w1"}, "status": status,
        });
        PolicyObject::read(&Object::from_value(object).unwrap())
    }

    fn body(action: &Action) -> &Value {
        let Verb::Patch { body, subresource: Some("status"), .. } = &action.verb else { panic!("{action}") };
        &body["status"]
    }

    #[test]
    fn a_policy_that_names_no_binding_is_told_so_once_and_not_any_more_when_it_does() {
        let now = "2026-11-20T12:00:00Z".parse().unwrap();
        assert_eq!(plan(&policy(&json!({})), |name| name == "w1", now), None);
        let complaint = plan(&policy(&json!({})), |_| false, now).unwrap();
        let said = body(&complaint);
        assert_eq!((&said["phase"], &said["conditions"][0]["status"]), (&json!("Failed"), &json!("False")));
        assert!(said["conditions"][0]["message"].as_str().unwrap().contains("kubeocean bind w1"), "{said}");
        assert_eq!(plan(&policy(said), |_| false, now), None, "it is said already");
        let taken_back = plan(&policy(said), |_| true, now).unwrap();
        assert_eq!(*body(&taken_back), json!({}));
    }
}

//! Who may do what: a policy that allows everything until a test forbids something, and the reviews that
//! ask for it.
//!
//! Deliberately absent: reading roles. Rights are tested on real servers, with the rules that ship.

use serde_json::{Value, json};

use super::request::{Place, Request};
use super::{Answer, Call};
use crate::server::State;
use crate::status::{Failure, Result};

/// What is forbidden.
#[derive(Debug, Clone, Default)]
pub(crate) struct Policy {
    rules: Vec<[String; 4]>,
}

impl Policy {
    pub(crate) fn forbid(&mut self, actor: &str, verb: &str, group: &str, resource: &str) {
        self.rules.push([actor, verb, group, resource].map(str::to_owned));
    }

    /// `resource` may carry a subresource: `pods/status`.
    pub(crate) fn allows(&self, actor: &str, verb: &str, group: &str, resource: &str) -> bool {
        let asked = [actor, verb, group, resource];
        !self
            .rules
            .iter()
            .any(|rule| rule.iter().zip(asked).all(|(rule, asked)| rule == "*" || rule == asked))
    }
}

/// Refuses what the policy forbids, in the words of RBAC.
pub(crate) fn authorize(state: &State, call: &Call<'_>, verb: &str) -> Result<()> {
    let place = &call.place;
    let resource = if place.subresource.is_empty() {
        place.plural.clone()
    } else {
        format!("{}/{}", place.plural, place.subresource)
    };
    if state.policy.allows(&call.actor, verb, &place.group, &resource) {
        return Ok(());
    }
    let whereabouts = if place.namespace.is_empty() {
        if call.kind.is("Namespace") && !place.name.is_empty() {
            format!(" in the namespace {:?}", place.name)
        } else {
            " at the cluster scope".to_owned()
        }
    } else {
        format!(" in the namespace {:?}", place.namespace)
    };
    let why = format!(
        "User {:?} cannot {verb} resource {resource:?} in API group {:?}{whereabouts}",
        &*call.actor, place.group
    );
    Err(Failure::forbidden(&call.kind, &place.name, &why))
}

/// Answers reviews; `None` for everything else.
pub(crate) fn answer(state: &mut State, request: &Request, place: &Place) -> Result<Option<Answer>> {
    let kind = match (place.group.as_str(), place.plural.as_str()) {
        ("authorization.k8s.io", "selfsubjectaccessreviews") => "SelfSubjectAccessReview",
        ("authorization.k8s.io", "subjectaccessreviews") => "SubjectAccessReview",
        ("authorization.k8s.io", "localsubjectaccessreviews") => "LocalSubjectAccessReview",
        ("authorization.k8s.io", "selfsubjectrulesreviews") => "SelfSubjectRulesReview",
        ("authentication.k8s.io", "selfsubjectreviews") => "SelfSubjectReview",
        ("authentication.k8s.io", "tokenreviews") => "TokenReview",
        _ => return Ok(None),
    };
    if request.method != "POST" {
        return Err(Failure::method_not_allowed());
    }
    let mut review: Value =
        serde_json::from_slice(&request.body).map_err(|problem| Failure::bad_request(problem.to_string()))?;
    review["kind"] = kind.into();
    review["apiVersion"] = format!("{}/{}", place.group, place.version).into();
    if review.get("metadata").is_none() {
        review["metadata"] = json!({});
    }
    if let Some(ty) = crate::schema::built_in(kind) {
        let now = crate::clock::seconds(state.now());
        let version = format!("{}/{}", place.group, place.version);
        let manager = request
            .query
            .get("fieldManager")
            .unwrap_or_else(|| request.user_agent.split('/').next().unwrap_or_default());
        super::write::note_review(ty, &version, manager, "", &mut review, &now);
        if kind == "SelfSubjectReview" {
            review["metadata"]["creationTimestamp"] = now.into();
        }
    }
    review["status"] = match kind {
        "SelfSubjectReview" => {
            json!({"userInfo": {"username": request.actor, "groups": ["system:authenticated"]}})
        }
        "SelfSubjectRulesReview" => {
            json!({"resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}], "nonResourceRules": [], "incomplete": false})
        }
        "TokenReview" => token_status(&review["spec"]),
        _ => {
            let user = review["spec"]["user"].as_str().unwrap_or(&request.actor).to_owned();
            access_status(state, &user, &review["spec"])
        }
    };
    Ok(Some(Answer::Value(201, review)))
}

fn access_status(state: &State, user: &str, spec: &Value) -> Value {
    let attributes = &spec["resourceAttributes"];
    if attributes.is_null() {
        return json!({"allowed": true});
    }
    let text = |key: &str| attributes[key].as_str().unwrap_or_default();
    let resource = if text("subresource").is_empty() {
        text("resource").to_owned()
    } else {
        format!("{}/{}", text("resource"), text("subresource"))
    };
    if state.policy.allows(user, text("verb"), text("group"), &resource) {
        json!({"allowed": true})
    } else {
        json!({"allowed": false})
    }
}

/// A token that this server issued tells whose it is; any other names the user itself, as `user:<name>`.
fn token_status(spec: &Value) -> Value {
    use base64::Engine as _;
    let token = spec["token"].as_str().unwrap_or_default();
    let audiences = spec["audiences"].clone();
    if let Some(name) = token.strip_prefix("user:") {
        return json!({"authenticated": true, "user": {"username": name, "groups": ["system:authenticated"]}, "audiences": audiences});
    }
    let claims = token
        .split('.')
        .nth(1)
        .and_then(|part| base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).ok());
    let claims: Option<Value> = claims.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    match claims {
        Some(claims) => json!({
            "authenticated": true, "audiences": claims["aud"],
            "user": {"username": claims["sub"], "groups": ["system:serviceaccounts", "system:authenticated"]},
        }),
        None => json!({"user": {}, "error": "[invalid bearer token, unknown]"}),
    }
}

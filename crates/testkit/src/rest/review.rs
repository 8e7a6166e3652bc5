//! Reviews: who am I, what may I, what may others. They are answered, and not kept.
//!
//! Deliberately absent: what is allowed ([`super::rights`]).

use serde_json::{Value, json};

use super::request::{Place, Request};
use super::rights::{Asked, groups};
use super::{Answer, Call, body, write};
use crate::kinds::catalog;
use crate::server::State;
use crate::status::{Cause, Failure, Result};

/// Answers reviews; `None` for everything else.
pub(crate) fn answer(state: &mut State, request: &Request, place: &Place) -> Result<Option<Answer>> {
    let Some(kind) = catalog::review(&place.group, &place.plural) else { return Ok(None) };
    if request.method != "POST" || !place.name.is_empty() {
        return Err(Failure::method_not_allowed());
    }
    let call = Call { request, kind, place: place.clone(), actor: request.actor.as_str().into() };
    let mut review = body::decoded(&call)?;
    body::settle_namespace(&call, &mut review)?;
    let name = call.kind.kind.clone();
    let now = crate::clock::seconds(state.now());
    if let Some(ty) = call.kind.ty() {
        write::note_review(ty, &call.kind.api_version(), &call.manager(), "", &mut review, &now);
    }
    let user = state.rights.user(&call.actor, &state.options.user);
    match name.as_str() {
        "SelfSubjectReview" => {
            review["metadata"]["creationTimestamp"] = now.into();
            review["status"] = json!({"userInfo": {"username": user, "groups": groups(&user)}});
        }
        "SelfSubjectRulesReview" => {
            if review["spec"]["namespace"].as_str().is_none_or(str::is_empty) {
                return Err(Failure::bad_request("no namespace on request"));
            }
            review = rules(state, &call);
        }
        "TokenReview" => review["status"] = token_status(&review["spec"]),
        _ => {
            check(&call, &review)?;
            let who = review["spec"]["user"].as_str().unwrap_or(&call.actor).to_owned();
            review["status"] = json!({"allowed": is_allowed(state, &who, &review["spec"])});
        }
    }
    Ok(Some(Answer::Value(201, review)))
}

/// A review of access asks one question.
fn check(call: &Call<'_>, review: &Value) -> Result<()> {
    let spec = &review["spec"];
    let mut causes = Vec::new();
    let given = |key: &str| spec.get(key).is_some_and(|value| !value.is_null());
    match (given("resourceAttributes"), given("nonResourceAttributes")) {
        (true, true) => causes.push(Cause::invalid(
            "spec.nonResourceAttributes",
            &spec["nonResourceAttributes"],
            "cannot be specified in combination with resourceAttributes",
        )),
        (false, false) => causes.push(Cause::invalid(
            "spec.resourceAttributes",
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
    let is_self = call.kind.is("SelfSubjectAccessReview");
    let empty = |key: &str| spec[key].as_array().is_none_or(Vec::is_empty);
    if !is_self && spec["user"].as_str().is_none_or(str::is_empty) && empty("groups") {
        causes.push(Cause::invalid(
            "spec.user",
            &"".into(),
            "at least one of user or group must be specified",
        ));
    }
    // Only a local one is in a namespace, and none has a name.
    let local = call.kind.namespaced;
    let mut named = review["metadata"].clone();
    if let Some(metadata) = named.as_object_mut() {
        metadata.retain(|key, _| key != "managedFields" && (!local || key != "namespace"));
        if !metadata.is_empty() {
            causes.push(Cause::invalid("metadata", &named, "must be empty"));
        }
    }
    let asked = &spec["resourceAttributes"]["namespace"];
    if local && asked.as_str().unwrap_or_default() != call.place.namespace {
        causes.push(Cause::invalid(
            "spec.resourceAttributes.namespace",
            asked,
            "must match metadata.namespace",
        ));
    }
    if causes.is_empty() { Ok(()) } else { Err(Failure::invalid_as(&call.place.group, "", "", &causes)) }
}

fn is_allowed(state: &State, who: &str, spec: &Value) -> bool {
    let attributes = &spec["resourceAttributes"];
    if attributes.is_null() {
        let text = |key: &str| spec["nonResourceAttributes"][key].as_str().unwrap_or_default();
        let asked = Asked { verb: text("verb"), group: "", resource: text("path"), namespace: "" };
        return state.rights.allows(who, &asked);
    }
    let text = |key: &str| attributes[key].as_str().unwrap_or_default();
    let resource = if text("subresource").is_empty() {
        text("resource").to_owned()
    } else {
        format!("{}/{}", text("resource"), text("subresource"))
    };
    let asked =
        Asked { verb: text("verb"), group: text("group"), resource: &resource, namespace: text("namespace") };
    state.rights.allows(who, &asked)
}

/// What an administrator of a real server is told. Denials cannot be said in rules, so the list is then
/// said to be incomplete: ask for each right instead.
fn rules(state: &State, call: &Call<'_>) -> Value {
    let everything = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    let health = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let discovery = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    json!({
        "kind": call.kind.kind, "apiVersion": call.kind.api_version(), "metadata": {}, "spec": {},
        "status": {
            "resourceRules": [
                everything,
                {"verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]},
                {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
            ],
            "nonResourceRules": [
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
                {"verbs": ["get"], "nonResourceURLs": discovery},
                {"verbs": ["get"], "nonResourceURLs": health},
            ],
            "incomplete": !state.rights.is_unlimited(&call.actor),
        },
    })
}

/// A token that this server issued tells whose it is; any other names the user itself, as `user:<name>`.
fn token_status(spec: &Value) -> Value {
    use base64::Engine as _;
    let token = spec["token"].as_str().unwrap_or_default();
    let audiences = spec["audiences"].clone();
    if let Some(name) = token.strip_prefix("user:") {
        return json!({"authenticated": true, "user": {"username": name, "groups": groups(name)}, "audiences": audiences});
    }
    let claims = token
        .split('.')
        .nth(1)
        .and_then(|part| base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).ok());
    let claims: Option<Value> = claims.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    match claims {
        Some(claims) => json!({
            "authenticated": true, "audiences": claims["aud"],
            "user": {"username": claims["sub"], "groups": groups(claims["sub"].as_str().unwrap_or_default())},
        }),
        None => json!({"user": {}, "error": "[invalid bearer token, unknown]"}),
    }
}

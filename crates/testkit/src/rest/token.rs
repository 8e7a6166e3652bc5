//! Tokens of service accounts: unsigned, but shaped and refused as real ones are.
//!
//! Deliberately absent: signatures. Nobody here checks one.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Answer, Call, body, write};
use crate::clock;
use crate::kinds::{catalog, metadata};
use crate::server::State;
use crate::status::{Cause, Failure, Result};
use crate::store::{Key, Shared};

/// The server itself, as an issuer and as an audience.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// A pod's token for the server that is asked to live this long is one that the server put into the pod
/// by itself; clients that never read it again shall go on for a year.
const INJECTED_SECONDS: i64 = 3607;
const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;

pub(super) fn create(state: &mut State, call: &Call<'_>) -> Result<Answer> {
    let kind = catalog::TOKEN_REQUEST.clone();
    let sent = Call { request: call.request, kind, place: call.place.clone(), actor: call.actor.clone() };
    let mut request = body::decoded(&sent)?;
    body::settle_namespace(call, &mut request)?;
    let name = &call.place.name;
    let found = metadata::text(&request, "name");
    if !found.is_empty() && found != name {
        let why = "must match the service account name if specified";
        let cause = Cause::invalid("metadata.name", &found.into(), why);
        return Err(Failure::invalid(&sent.kind, name, &[cause]));
    }
    let account = state.store.get(&call.key()).cloned().ok_or_else(|| call.not_found())?;
    let (uid, wanted) = (metadata::text(&account.value, "uid"), metadata::text(&request, "uid"));
    if !wanted.is_empty() && wanted != uid {
        let why = format!(
            "the UID in the token request ({wanted}) does not match the UID of the service account ({uid})"
        );
        return Err(Failure::kind_conflict(&sent.kind, name, &why));
    }
    let seconds = lifetime(&sent, &request)?;
    if request["spec"]["audiences"].as_array().is_none_or(Vec::is_empty) {
        request["spec"]["audiences"] = json!([ISSUER]);
    }
    let bound = bound_object(state, call, &request["spec"]["boundObjectRef"])?;
    let now = state.now();
    let token = signed(state, call, &account, &request["spec"], bound.as_ref(), now);
    request["metadata"] = json!({"name": name, "namespace": call.place.namespace});
    if let Some(ty) = sent.kind.ty() {
        // Noted as it was sent: who leaves out the audience did not write it.
        let mut noted = body::decoded(&sent)?;
        noted["metadata"] = request["metadata"].clone();
        let version = sent.kind.api_version();
        write::note_review(ty, &version, &call.manager(), "token", &mut noted, &clock::seconds(now));
        metadata::set(&mut request, "managedFields", noted["metadata"].get("managedFields").cloned());
    }
    request["metadata"]["creationTimestamp"] = clock::seconds(now).into();
    request["metadata"]["uid"] = uid.into();
    let expires = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
    request["status"] = json!({"token": token, "expirationTimestamp": clock::seconds(expires)});
    Ok(Answer::Value(201, request))
}

fn lifetime(sent: &Call<'_>, request: &Value) -> Result<i64> {
    let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(0);
    let why = match seconds {
        ..600 => "may not specify a duration less than 10 minutes",
        0x1_0000_0001.. => "may not specify a duration larger than 2^32 seconds",
        _ => return Ok(seconds),
    };
    let cause = Cause::invalid("spec.expirationSeconds", &seconds.into(), why);
    Err(Failure::invalid(&sent.kind, "", &[cause]))
}

/// What a token may be bound to.
struct Bound {
    kind: &'static str,
    object: Shared,
}

fn bound_object(state: &State, call: &Call<'_>, reference: &Value) -> Result<Option<Bound>> {
    if reference.is_null() {
        return Ok(None);
    }
    let text = |key: &str| reference[key].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let (plural, namespace, word) = match (group, text("kind")) {
        ("", "Pod") => ("pods", call.place.namespace.as_str(), "pod"),
        ("", "Secret") => ("secrets", call.place.namespace.as_str(), "secret"),
        ("", "Node") => ("nodes", "", "node"),
        (_, kind) => {
            let type_ = format!("{group}/{version}, Kind={kind}");
            return Err(Failure::bad_request(format!("cannot bind token to object of type {type_}")));
        }
    };
    let Some(kind) = state.kinds.get("", plural) else { return Ok(None) };
    let found = state.store.get(&Key::new(kind.id, namespace, text("name")));
    let object = found.cloned().ok_or_else(|| Failure::not_found(kind, text("name")))?;
    if word == "pod" && object.value["spec"]["serviceAccountName"] != *call.place.name {
        return Err(Failure::bad_request(format!(
            "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
            call.place.name
        )));
    }
    let wanted = text("uid");
    if !wanted.is_empty() && wanted != metadata::text(&object.value, "uid") {
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Failure::kind_conflict(kind, text("name"), &why));
    }
    Ok(Some(Bound { kind: word, object }))
}

fn signed(
    state: &mut State,
    call: &Call<'_>,
    account: &Shared,
    spec: &Value,
    bound: Option<&Bound>,
    now: jiff::Timestamp,
) -> String {
    let place = &call.place;
    let reference = |object: &Value| json!({"name": metadata::text(object, "name"), "uid": metadata::text(object, "uid")});
    let mut own = json!({"namespace": place.namespace, "serviceaccount": reference(&account.value)});
    let mut seconds = spec["expirationSeconds"].as_i64().unwrap_or(0);
    if let Some(bound) = bound {
        own[bound.kind] = reference(&bound.object.value);
        if bound.kind == "pod" {
            if let Some(node) = bound.object.value["spec"]["nodeName"].as_str() {
                let kind = state.kinds.get("", "nodes").map_or(0, |kind| kind.id);
                let known = state.store.get(&Key::new(kind, "", node));
                own["node"] = known.map_or_else(|| json!({"name": node}), |known| reference(&known.value));
            }
            if seconds == INJECTED_SECONDS && spec["audiences"] == json!([ISSUER]) {
                own["warnafter"] = (now.as_second() + seconds).into();
                seconds = EXTENDED_SECONDS;
            }
        }
    }
    let claims = json!({
        "aud": spec["audiences"], "exp": now.as_second() + seconds, "iat": now.as_second(), "nbf": now.as_second(),
        "jti": state.uid(), "iss": ISSUER, "kubernetes.io": own,
        "sub": format!("system:serviceaccount:{}:{}", place.namespace, place.name),
    });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.c2ltdWxhdGVk", part(&json!({"alg": "RS256", "kid": "testkit"})), part(&claims))
}

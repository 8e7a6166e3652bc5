//! What is reached through an object: its status, binding, eviction, tokens, scale.
//!
//! Deliberately absent: logs, exec and the like, which a node answers.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::delete::{self, Options};
use super::{Answer, Call, patching, read, shown, write};
use crate::clock;
use crate::kinds::metadata;
use crate::selector::Labels;
use crate::server::State;
use crate::status::{Cause, Failure, Result};

pub(crate) fn answer(state: &mut State, call: &Call<'_>, verb: &str) -> Result<Answer> {
    if !call.kind.subresources.contains(&call.place.subresource) {
        return Err(super::not_served());
    }
    match (call.place.subresource.as_str(), verb) {
        ("status" | "ephemeralcontainers" | "resize" | "approval", "get") => read::get(state, call),
        ("status" | "finalize" | "ephemeralcontainers" | "resize" | "approval", "update") => {
            node_exists(state, call)?;
            let (code, object) = write::update(state, call)?;
            finalized(state, call);
            Ok(shown(call, code, &object))
        }
        ("status" | "ephemeralcontainers" | "resize" | "approval", "patch") => {
            node_exists(state, call)?;
            let (code, object) = patching::patch(state, call)?;
            Ok(shown(call, code, &object))
        }
        ("binding", "create") => bind(state, call),
        ("eviction", "create") => evict(state, call),
        ("token", "create") => token(state, call),
        ("scale", "get") => scale(state, call),
        ("scale", "update" | "patch") => rescale(state, call),
        _ => Err(Failure::method_not_allowed()),
    }
}

/// A resize is refused if nobody could carry it out.
fn node_exists(state: &State, call: &Call<'_>) -> Result<()> {
    if call.place.subresource != "resize" {
        return Ok(());
    }
    let Some(pod) = state.store.get(&call.key()) else { return Ok(()) };
    let Some(node) = pod.value["spec"]["nodeName"].as_str() else { return Ok(()) };
    let kind = state.kinds.get("", "nodes").map_or(0, |kind| kind.id);
    if state.store.get(&crate::store::Key::new(kind, "", node)).is_none() {
        return Err(Failure::forbidden(&call.kind, &call.place.name, &format!("node {node:?} not found")));
    }
    Ok(())
}

/// A namespace whose last finalizer went is gone.
fn finalized(state: &mut State, call: &Call<'_>) {
    if call.place.subresource != "finalize" {
        return;
    }
    let Some(object) = state.store.get(&call.key()).cloned() else { return };
    let empty = object.value["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty);
    if empty && metadata::is_deleting(&object.value) && metadata::finalizers(&object.value).is_empty() {
        state.commit(call.key(), None, &call.actor);
    }
}

fn body(call: &Call<'_>) -> Result<Value> {
    if call.request.body.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(&call.request.body).map_err(|problem| Failure::bad_request(problem.to_string()))
}

fn created() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

/// The scheduler's word.
fn bind(state: &mut State, call: &Call<'_>) -> Result<Answer> {
    let binding = body(call)?;
    let name = &call.place.name;
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    if node.is_empty() {
        let cause = Cause::required("target.name", "");
        return Err(Failure::invalid_as("", "Binding", name, &[cause]));
    }
    let old = state.store.get(&call.key()).cloned().ok_or_else(|| call.not_found())?;
    let mut pod = (*old.value).clone();
    let refuse = |why: &str| {
        let mut failure = Failure::conflict(&call.kind, name, why);
        failure.message = failure.message.replace("pods", "pods/binding");
        failure.detail("kind", "pods/binding".into());
        failure
    };
    let uid = binding["metadata"]["uid"].as_str().unwrap_or_default();
    if !uid.is_empty() && uid != metadata::text(&pod, "uid") {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            metadata::text(&pod, "uid")
        );
        return Err(refuse(&why));
    }
    if metadata::is_deleting(&pod) {
        return Err(refuse(&format!("pod {name} is being deleted, cannot be assigned to a host")));
    }
    if let Some(host) = pod["spec"]["nodeName"].as_str().filter(|host| !host.is_empty()) {
        return Err(refuse(&format!("pod {name} is already assigned to node {host:?}")));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return Err(refuse(&format!("pod {name} has non-empty .spec.schedulingGates")));
    }
    pod["spec"]["nodeName"] = node.into();
    for (key, value) in binding["metadata"]["annotations"].as_object().into_iter().flatten() {
        crate::kinds::defaults::or(&mut pod["metadata"], "annotations", json!({}));
        pod["metadata"]["annotations"][key] = value.clone();
    }
    for (key, value) in binding["metadata"]["labels"].as_object().into_iter().flatten() {
        crate::kinds::defaults::or(&mut pod["metadata"], "labels", json!({}));
        pod["metadata"]["labels"][key] = value.clone();
    }
    let now = clock::seconds(state.now());
    set_condition(
        &mut pod,
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now}),
    );
    if !call.request.query.dry_run() {
        state.commit(call.key(), Some(pod), &call.actor);
    }
    Ok(Answer::Value(201, created()))
}

/// A deletion that asks the budgets first.
fn evict(state: &mut State, call: &Call<'_>) -> Result<Answer> {
    let eviction = body(call)?;
    let named = metadata::text(&eviction, "name");
    if !named.is_empty() && named != call.place.name {
        return Err(Failure::bad_request("name in URL does not match name in Eviction object"));
    }
    let pod = state.store.get(&call.key()).cloned().ok_or_else(|| call.not_found())?;
    let mut options = Options::default();
    options.read(&eviction["deleteOptions"]);
    let phase = pod.value["status"]["phase"].as_str().unwrap_or_default();
    let harmless = matches!(phase, "Succeeded" | "Failed" | "Pending") || metadata::is_deleting(&pod.value);
    if !harmless {
        ask_budgets(state, call, &pod.value)?;
        if !options.is_dry_run() {
            let now = clock::seconds(state.now());
            let mut pod = (*pod.value).clone();
            set_condition(
                &mut pod,
                json!({
                    "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
                    "lastProbeTime": null, "lastTransitionTime": now,
                }),
            );
            state.commit(call.key(), Some(pod), &call.actor);
        }
    }
    delete::delete_with(state, call, options)?;
    Ok(Answer::Value(201, created()))
}

fn ask_budgets(state: &mut State, call: &Call<'_>, pod: &Value) -> Result<()> {
    let Some(kind) = state.kinds.get("policy", "poddisruptionbudgets").cloned() else { return Ok(()) };
    let budgets: Vec<_> = state
        .store
        .live(kind.id, Some(&call.place.namespace))
        .filter(|(_, budget)| {
            let selector = &budget.value["spec"]["selector"];
            !selector.is_null() && Labels::of(selector).matches(pod)
        })
        .map(|(key, budget)| (key.clone(), budget.clone()))
        .collect();
    let (key, budget) = match budgets.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        _ => {
            return Err(Failure::internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    let ready = pod["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|one| one["type"] == "Ready" && one["status"] == "True");
    let status = &budget.value["status"];
    if !ready
        && status["currentHealthy"].as_i64() >= status["desiredHealthy"].as_i64()
        && status["desiredHealthy"].as_i64() > Some(0)
    {
        return Ok(());
    }
    let name = key.name.to_string();
    let refuse = |message: String, detail: String| {
        let mut failure = Failure::new(429, "TooManyRequests", message);
        failure.detail("causes", json!([{"reason": "DisruptionBudget", "message": detail}]));
        failure
    };
    let observed = status["observedGeneration"].as_i64().unwrap_or(0);
    if observed < budget.value["metadata"]["generation"].as_i64().unwrap_or(0) {
        let mut failure = refuse(
            "Cannot evict pod as it would violate the pod's disruption budget.".into(),
            format!("The disruption budget {name} is still being processed by the server."),
        );
        failure.detail("retryAfterSeconds", 10.into());
        return Err(failure);
    }
    if status["disruptionsAllowed"].as_i64().unwrap_or(0) <= 0 {
        let (wanted, healthy) =
            (status["desiredHealthy"].as_i64().unwrap_or(0), status["currentHealthy"].as_i64().unwrap_or(0));
        return Err(refuse(
            "Cannot evict pod as it would violate the pod's disruption budget.".into(),
            format!("The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"),
        ));
    }
    let now = clock::seconds(state.now());
    let old = budget.value.clone();
    let mut budget = (*old).clone();
    let left = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(1) - 1;
    budget["status"]["disruptionsAllowed"] = left.into();
    crate::kinds::defaults::or(&mut budget["status"], "disruptedPods", json!({}));
    budget["status"]["disruptedPods"][&call.place.name] = now.clone().into();
    let generation = budget["metadata"]["generation"].clone();
    let (state_now, reason) =
        if left > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    set_condition(
        &mut budget,
        json!({
            "type": "DisruptionAllowed", "status": state_now, "reason": reason, "message": "", "observedGeneration": generation, "lastTransitionTime": now,
        }),
    );
    write::note_server(&kind, "status", &old, &mut budget, &now);
    state.commit(key, Some(budget), &call.actor);
    Ok(())
}

/// Puts a condition in the place of the one of its type.
fn set_condition(object: &mut Value, condition: Value) {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mut conditions: Vec<Value> =
        conditions.into_iter().filter(|one| one["type"] != condition["type"]).collect();
    conditions.push(condition);
    object["status"]["conditions"] = conditions.into();
}

/// A token for a service account: unsigned, but shaped like one.
fn token(state: &mut State, call: &Call<'_>) -> Result<Answer> {
    let mut request = body(call)?;
    let account = state.store.get(&call.key()).cloned().ok_or_else(|| call.not_found())?;
    let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(3600);
    if seconds < 600 {
        let cause = Cause::invalid(
            "spec.expirationSeconds",
            &seconds.into(),
            "may not specify a duration less than 10 minutes",
        );
        return Err(Failure::invalid_as("authentication.k8s.io", "TokenRequest", "", &[cause]));
    }
    let audiences = match request["spec"]["audiences"].as_array() {
        Some(audiences) if !audiences.is_empty() => Value::from(audiences.clone()),
        _ => json!(["https://kubernetes.default.svc.cluster.local"]),
    };
    check_bound_object(state, call, &request["spec"]["boundObjectRef"])?;
    let now = state.now();
    let expires = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
    let subject = format!("system:serviceaccount:{}:{}", call.place.namespace, call.place.name);
    let claims = json!({
        "aud": audiences, "exp": expires.as_second(), "iat": now.as_second(), "nbf": now.as_second(), "jti": state.uid(),
        "iss": "https://kubernetes.default.svc.cluster.local", "sub": subject,
        "kubernetes.io": {"namespace": call.place.namespace, "serviceaccount": {"name": call.place.name, "uid": account.value["metadata"]["uid"]}},
    });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let token =
        format!("{}.{}.c2ltdWxhdGVk", part(&json!({"alg": "RS256", "kid": "testkit"})), part(&claims));
    request["kind"] = "TokenRequest".into();
    request["apiVersion"] = "authentication.k8s.io/v1".into();
    request["metadata"] = json!({"name": call.place.name, "namespace": call.place.namespace});
    request["spec"]["expirationSeconds"] = seconds.into();
    if let Some(ty) = crate::schema::built_in("TokenRequest") {
        write::note_review(
            ty,
            "authentication.k8s.io/v1",
            call.manager().as_str(),
            "token",
            &mut request,
            &clock::seconds(now),
        );
    }
    request["metadata"]["creationTimestamp"] = clock::seconds(now).into();
    request["metadata"]["uid"] = state.uid().into();
    request["spec"]["audiences"] = audiences;
    if request["spec"].get("boundObjectRef").is_none() {
        request["spec"]["boundObjectRef"] = Value::Null;
    }
    request["status"] = json!({"token": token, "expirationTimestamp": clock::seconds(expires)});
    Ok(Answer::Value(201, request))
}

fn check_bound_object(state: &State, call: &Call<'_>, bound: &Value) -> Result<()> {
    if bound.is_null() {
        return Ok(());
    }
    let (kind, name) =
        (bound["kind"].as_str().unwrap_or_default(), bound["name"].as_str().unwrap_or_default());
    let plural = match kind {
        "Pod" => "pods",
        "Secret" => "secrets",
        "Node" => "nodes",
        other => {
            return Err(Failure::bad_request(format!(
                "cannot bind token to object of type /v1, Kind={other}"
            )));
        }
    };
    let Some(kind) = state.kinds.get("", plural) else { return Ok(()) };
    let namespace = if plural == "nodes" { "" } else { call.place.namespace.as_str() };
    let found = state.store.get(&crate::store::Key::new(kind.id, namespace, name));
    let found = found.ok_or_else(|| Failure::not_found(kind, name))?;
    let (uid, wanted) = (metadata::text(&found.value, "uid"), bound["uid"].as_str().unwrap_or_default());
    if !wanted.is_empty() && wanted != uid {
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Failure::kind_conflict(kind, name, &why));
    }
    Ok(())
}

fn scale_of(object: &Value) -> Value {
    let mut selector: Vec<String> = object["spec"]["selector"]["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    selector.sort();
    let meta = &object["metadata"];
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "creationTimestamp": meta["creationTimestamp"]},
        "spec": {}, "status": {"replicas": object["status"]["replicas"].as_i64().unwrap_or(0), "selector": selector.join(",")},
    });
    if let Some(replicas) = object["spec"]["replicas"].as_i64().filter(|replicas| *replicas != 0) {
        scale["spec"]["replicas"] = replicas.into();
    }
    scale
}

fn scale(state: &State, call: &Call<'_>) -> Result<Answer> {
    let object = state.store.get(&call.key()).ok_or_else(|| call.not_found())?;
    Ok(Answer::Value(200, scale_of(&object.value)))
}

fn rescale(state: &mut State, call: &Call<'_>) -> Result<Answer> {
    let wanted = body(call)?;
    let old = state.store.get(&call.key()).cloned().ok_or_else(|| call.not_found())?;
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let cause = Cause::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
        return Err(Failure::invalid_as("autoscaling", "Scale", &call.place.name, &[cause]));
    }
    if let Some(version) =
        wanted["metadata"]["resourceVersion"].as_str().filter(|version| !version.is_empty())
        && *version != *metadata::text(&old.value, "resourceVersion")
    {
        return Err(Failure::modified(&call.kind, &call.place.name));
    }
    let mut object = (*old.value).clone();
    object["spec"]["replicas"] = replicas.into();
    if object == *old.value {
        return Ok(Answer::Value(200, scale_of(&object)));
    }
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
    metadata::set(&mut object, "generation", Some(generation.into()));
    let entry = state.commit(call.key(), Some(object), &call.actor);
    let value = entry.new.as_ref().map(|object| scale_of(&object.value)).unwrap_or_default();
    Ok(Answer::Value(200, value))
}

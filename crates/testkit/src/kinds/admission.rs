//! The admission plugins that every cluster runs: namespaces, service accounts, priorities, tolerations,
//! taints of new nodes, protection and growth of storage.
//!
//! Deliberately absent: webhooks, quotas, pod security levels. What a test wants refused is refused after all of these.

use kubeocean_model::quantity::Quantity;
use serde_json::{Value, json};

use super::defaults::{each, or};
use super::metadata;
use crate::rest::{Call, refusal};
use crate::server::State;
use crate::status::{Failure, Result};
use crate::store::Key;

const TOKEN_MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What happens to every new object.
pub(crate) fn create(state: &mut State, call: &Call<'_>, object: &mut Value) -> Result<()> {
    let kind = &call.kind;
    if kind.namespaced {
        namespace_lives(state, call, object)?;
    }
    if kind.is_custom() {
        return refusal::check(state, call, "create", metadata::text(object, "name"));
    }
    match kind.kind.as_str() {
        "Pod" => {
            service_account(state, call, object)?;
            priority(state, call, object)?;
            tolerations(&mut object["spec"]);
        }
        "Node" => {
            or(&mut object["spec"], "taints", json!([]));
            let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
            if let Some(taints) = object["spec"]["taints"].as_array_mut()
                && !taints.iter().any(|one| one["key"] == taint["key"] && one["effect"] == taint["effect"])
            {
                taints.push(taint);
            }
        }
        "PersistentVolumeClaim" => {
            default_storage_class(state, object);
            protect(object, "kubernetes.io/pvc-protection");
        }
        "PersistentVolume" => protect(object, "kubernetes.io/pv-protection"),
        _ => {}
    }
    refusal::check(state, call, "create", metadata::text(object, "name"))
}

/// What happens to every changed object.
pub(crate) fn update(state: &mut State, call: &Call<'_>, object: &mut Value) -> Result<()> {
    if call.kind.namespaced {
        let key = namespace_key(state, &call.place.namespace);
        if state.store.get(&key).is_none() {
            return Err(namespace_missing(state, &call.place.namespace));
        }
    }
    if call.kind.is("Pod") && call.place.subresource.is_empty() {
        tolerations(&mut object["spec"]);
    }
    if call.kind.is("PersistentVolumeClaim") && call.place.subresource.is_empty() {
        growth(state, call, object)?;
    }
    refusal::check(state, call, "update", metadata::text(object, "name"))
}

/// A claim may ask for more once it has a volume, if the class that made that allows it.
fn growth(state: &State, call: &Call<'_>, object: &Value) -> Result<()> {
    let asked = |object: &Value| -> Option<Quantity> {
        object["spec"]["resources"]["requests"]["storage"].as_str()?.parse().ok()
    };
    let name = metadata::text(object, "name");
    let key = Key::new(call.kind.id, &call.place.namespace, name);
    let Some(old) = state.store.get(&key).filter(|old| asked(&old.value) < asked(object)) else {
        return Ok(());
    };
    // What has no volume yet cannot grow, either: that is refused before anyone asks here.
    if old.value["status"]["phase"] != "Bound" {
        return Ok(());
    }
    let kind = state.kinds.get("storage.k8s.io", "storageclasses").map_or(0, |kind| kind.id);
    let class = object["spec"]["storageClassName"].as_str().unwrap_or_default();
    let class = state.store.get(&Key::new(kind, "", class));
    if class.is_none_or(|class| class.value["allowVolumeExpansion"] != true) {
        let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
        return Err(Failure::forbidden(&call.kind, name, why));
    }
    Ok(())
}

fn namespace_key(state: &State, namespace: &str) -> Key {
    Key::new(state.kinds.get("", "namespaces").map_or(0, |kind| kind.id), "", namespace)
}

fn namespace_missing(state: &State, namespace: &str) -> Failure {
    match state.kinds.get("", "namespaces") {
        Some(kind) => Failure::not_found(kind, namespace),
        None => Failure::no_path(),
    }
}

fn namespace_lives(state: &State, call: &Call<'_>, object: &Value) -> Result<()> {
    let namespace = &call.place.namespace;
    let Some(found) = state.store.get(&namespace_key(state, namespace)) else {
        return Err(namespace_missing(state, namespace));
    };
    if found.value["status"]["phase"] == "Terminating" || metadata::is_deleting(&found.value) {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut failure = Failure::forbidden(&call.kind, metadata::text(object, "name"), &why);
        let cause = json!({
            "reason": "NamespaceTerminating", "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        });
        failure.detail("causes", json!([cause]));
        return Err(failure);
    }
    Ok(())
}

fn service_account(state: &mut State, call: &Call<'_>, object: &mut Value) -> Result<()> {
    let namespace = &call.place.namespace;
    super::defaults::or_text(&mut object["spec"], "serviceAccountName", "default");
    let name = object["spec"]["serviceAccountName"].as_str().unwrap_or_default().to_owned();
    object["spec"]["serviceAccount"] = name.clone().into();
    let kind = state.kinds.get("", "serviceaccounts").map_or(0, |kind| kind.id);
    let Some(account) = state.store.get(&Key::new(kind, namespace, &name)).cloned() else {
        let why =
            format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        return Err(Failure::forbidden(&call.kind, metadata::text(object, "name"), &why));
    };
    let automount = object["spec"]["automountServiceAccountToken"]
        .as_bool()
        .or_else(|| account.value["automountServiceAccountToken"].as_bool());
    if automount != Some(false) {
        mount_token(state, &mut object["spec"]);
    }
    let secrets = account.value["imagePullSecrets"].as_array().filter(|secrets| !secrets.is_empty());
    if let Some(secrets) = secrets
        && object["spec"].get("imagePullSecrets").is_none()
    {
        object["spec"]["imagePullSecrets"] = secrets.clone().into();
    }
    Ok(())
}

fn mount_token(state: &mut State, spec: &mut Value) {
    let prefix = "kube-api-access-";
    let existing = spec["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|volume| volume["name"].as_str())
        .find(|name| name.starts_with(prefix))
        .map(str::to_owned);
    let name = existing.clone().unwrap_or_else(|| format!("{prefix}{}", state.suffix()));
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        for container in each(spec, list) {
            or(container, "volumeMounts", json!([]));
            if let Some(mounts) = container["volumeMounts"].as_array_mut()
                && !mounts.iter().any(|mount| mount["mountPath"] == TOKEN_MOUNT)
            {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": TOKEN_MOUNT}));
                needed = true;
            }
        }
    }
    if needed && existing.is_none() {
        or(spec, "volumes", json!([]));
        if let Some(volumes) = spec["volumes"].as_array_mut() {
            volumes.push(json!({"name": name, "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
            ]}}));
        }
    }
}

fn priority(state: &State, call: &Call<'_>, object: &mut Value) -> Result<()> {
    let kind = state.kinds.get("scheduling.k8s.io", "priorityclasses").map_or(0, |kind| kind.id);
    let name = object["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
    let class = if name.is_empty() {
        state
            .store
            .live(kind, None)
            .map(|(_, class)| class.clone())
            .find(|class| class.value["globalDefault"] == true)
    } else {
        let found = state.store.get(&Key::new(kind, "", &name)).cloned();
        if found.is_none() {
            let why = format!("no PriorityClass with name {name} was found");
            return Err(Failure::forbidden(&call.kind, metadata::text(object, "name"), &why));
        }
        found
    };
    let (value, policy) = match &class {
        Some(class) => (class.value["value"].clone(), class.value["preemptionPolicy"].clone()),
        None => (0.into(), "PreemptLowerPriority".into()),
    };
    if let Some(given) = object["spec"]["priority"].as_i64()
        && value != given
    {
        let why = "the integer value of priority (".to_owned()
            + &given.to_string()
            + ") must not be provided in pod spec; priority admission controller computed "
            + &value.to_string()
            + " from the given PriorityClass name";
        return Err(Failure::forbidden(&call.kind, metadata::text(object, "name"), &why));
    }
    if name.is_empty()
        && let Some(class) = &class
    {
        object["spec"]["priorityClassName"] = class.value["metadata"]["name"].clone();
    }
    object["spec"]["priority"] = value;
    or(&mut object["spec"], "preemptionPolicy", policy);
    Ok(())
}

/// A pod stays five minutes on a node that is not ready or not reachable, unless it says otherwise.
fn tolerations(spec: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = spec["tolerations"].as_array().into_iter().flatten().any(|toleration| {
            let text = |name: &str| toleration[name].as_str().unwrap_or_default();
            (text("key") == key || text("key").is_empty()) && matches!(text("effect"), "" | "NoExecute")
        });
        if !tolerated {
            or(spec, "tolerations", json!([]));
            if let Some(tolerations) = spec["tolerations"].as_array_mut() {
                tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
            }
        }
    }
}

fn protect(object: &mut Value, finalizer: &str) {
    or(&mut object["metadata"], "finalizers", json!([]));
    if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut()
        && !finalizers.iter().any(|one| one == finalizer)
    {
        finalizers.push(finalizer.into());
    }
}

fn default_storage_class(state: &State, object: &mut Value) {
    if object["spec"].get("storageClassName").is_some() {
        return;
    }
    let kind = state.kinds.get("storage.k8s.io", "storageclasses").map_or(0, |kind| kind.id);
    let default = state.store.live(kind, None).find(|(_, class)| {
        class.value["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true"
    });
    if let Some((_, class)) = default {
        object["spec"]["storageClassName"] = class.value["metadata"]["name"].clone();
    }
}

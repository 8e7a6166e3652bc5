//! Volumes that are not what they were: claims that V's controllers made for a pod, tokens of V, and files that tell the pod who
//! it is.

use serde_json::{Map, Value, json};

use super::{CONTAINERS, TokenSource, inner_mut, items, items_mut, metadata, text};

/// How long a token lives at most. Longer ones are of no use, since they are refreshed. 3607 seconds above all, which is what V's
/// own admission writes: the API server makes a year of them, for clients that cannot read a file twice.
const LONGEST_TOKEN: i64 = 3600;

/// How long a token lives at least: API servers refuse less.
const SHORTEST_TOKEN: i64 = 600;

/// Owner may write, all may read.
const READABLE_BY_ALL: i64 = 0o644;

/// The claim of a generic ephemeral volume exists: V's controller made it, and called it after pod and volume.
pub(super) fn claim_ephemeral(spec: &mut Map<String, Value>, pod: &str) {
    for volume in items_mut(spec, "volumes") {
        if volume.get("ephemeral").is_some_and(|one| !one.is_null()) {
            volume.remove("ephemeral");
            let claim = format!("{pod}-{}", text(volume, "name").unwrap_or_default());
            volume.insert("persistentVolumeClaim".to_owned(), json!({"claimName": claim}));
        }
    }
}

/// The tokens that a pod wants.
pub(super) fn tokens(spec: &Map<String, Value>) -> Vec<TokenSource> {
    let mut tokens = Vec::new();
    for volume in items(spec, "volumes") {
        let Some(projected) = volume.get("projected").and_then(Value::as_object) else { continue };
        let sources = projected.get("sources").and_then(Value::as_array).into_iter().flatten();
        for (index, source) in sources.enumerate() {
            let Some(token) = source.get("serviceAccountToken").and_then(Value::as_object) else { continue };
            let wanted = token.get("expirationSeconds").and_then(Value::as_i64).unwrap_or(LONGEST_TOKEN);
            tokens.push(TokenSource {
                key: key(text(volume, "name").unwrap_or_default(), index),
                audience: text(token, "audience").map(str::to_owned),
                seconds: wanted.clamp(SHORTEST_TOKEN, LONGEST_TOKEN),
            });
        }
    }
    tokens
}

fn key(volume: &str, index: usize) -> String {
    format!("{volume}.{index}")
}

/// Tokens come from a Secret, which is kept fresh. A source that P could fill must not be left: it would be filled with a
/// credential of P.
pub(super) fn mount_tokens(spec: &mut Map<String, Value>, secret: &str) {
    let is_shared_with_a_user = runs_as_someone(spec) && !has_group(spec);
    for volume in items_mut(spec, "volumes") {
        let name = text(volume, "name").unwrap_or_default().to_owned();
        let Some(projected) = inner_mut(volume, "projected") else { continue };
        let default = projected.get("defaultMode").and_then(Value::as_i64).unwrap_or(READABLE_BY_ALL);
        // A kubelet gives a token to the user that the containers run as; a Secret it gives to root.
        let is_unreadable = is_shared_with_a_user && default & 0o004 == 0;
        let Some(sources) = projected.get_mut("sources").and_then(Value::as_array_mut) else { continue };
        for (index, source) in sources.iter_mut().enumerate() {
            let Some(source) = source.as_object_mut() else { continue };
            let Some(token) = source.remove("serviceAccountToken").filter(|token| !token.is_null()) else {
                continue;
            };
            let mut item = json!({"key": key(&name, index), "path": token["path"]});
            if is_unreadable {
                item["mode"] = READABLE_BY_ALL.into();
            }
            source.insert("secret".to_owned(), json!({"name": secret, "items": [item]}));
        }
    }
}

fn runs_as_someone(spec: &Map<String, Value>) -> bool {
    let names_a_user = |object: &Map<String, Value>| {
        object.get("securityContext").and_then(|context| context.get("runAsUser")).is_some_and(Value::is_i64)
    };
    names_a_user(spec) || CONTAINERS.iter().flat_map(|field| items(spec, field)).any(names_a_user)
}

fn has_group(spec: &Map<String, Value>) -> bool {
    spec.get("securityContext").and_then(|context| context.get("fsGroup")).is_some_and(Value::is_i64)
}

/// Files that say who the pod is read it from annotations of the twin, which are the V pod's words.
pub(super) fn tell_the_virtual_truth(spec: &mut Map<String, Value>) {
    for volume in items_mut(spec, "volumes") {
        if let Some(files) = inner_mut(volume, "downwardAPI") {
            tell(files);
        }
        let Some(projected) = inner_mut(volume, "projected") else { continue };
        for source in items_mut(projected, "sources") {
            if let Some(files) = inner_mut(source, "downwardAPI") {
                tell(files);
            }
        }
    }
}

fn tell(files: &mut Map<String, Value>) {
    for file in items_mut(files, "items") {
        let Some(field) = inner_mut(file, "fieldRef") else { continue };
        if let Some(annotation) = text(field, "fieldPath").and_then(metadata::truth) {
            field.insert("fieldPath".to_owned(), format!("metadata.annotations['{annotation}']").into());
        }
    }
}

//! Where in a pod's spec an object of its namespace is called by its name.
//!
//! One table, read by whoever looks for what a pod needs and by whoever renames it, so that both mean the same. A test holds it
//! against the schema of Kubernetes.

use serde_json::{Map, Value};

use super::Referent::{self, Claim, ConfigMap, Secret};

/// A place: the path to the name (`*` means every item of a list), and of what. Where a field `optional` beside the name is true,
/// the pod can do without it.
pub(super) const PLACES: &[(&str, Referent)] = &[
    ("volumes/*/configMap/name", ConfigMap),
    ("volumes/*/secret/secretName", Secret),
    ("volumes/*/persistentVolumeClaim/claimName", Claim),
    ("volumes/*/projected/sources/*/configMap/name", ConfigMap),
    ("volumes/*/projected/sources/*/secret/name", Secret),
    ("volumes/*/csi/nodePublishSecretRef/name", Secret),
    ("volumes/*/azureFile/secretName", Secret),
    ("volumes/*/cephfs/secretRef/name", Secret),
    ("volumes/*/cinder/secretRef/name", Secret),
    ("volumes/*/flexVolume/secretRef/name", Secret),
    ("volumes/*/iscsi/secretRef/name", Secret),
    ("volumes/*/rbd/secretRef/name", Secret),
    ("volumes/*/scaleIO/secretRef/name", Secret),
    ("volumes/*/storageos/secretRef/name", Secret),
    (IMAGE_PULL_SECRETS, Secret),
    ("initContainers/*/env/*/valueFrom/configMapKeyRef/name", ConfigMap),
    ("initContainers/*/env/*/valueFrom/secretKeyRef/name", Secret),
    ("initContainers/*/envFrom/*/configMapRef/name", ConfigMap),
    ("initContainers/*/envFrom/*/secretRef/name", Secret),
    ("containers/*/env/*/valueFrom/configMapKeyRef/name", ConfigMap),
    ("containers/*/env/*/valueFrom/secretKeyRef/name", Secret),
    ("containers/*/envFrom/*/configMapRef/name", ConfigMap),
    ("containers/*/envFrom/*/secretRef/name", Secret),
    ("ephemeralContainers/*/env/*/valueFrom/configMapKeyRef/name", ConfigMap),
    ("ephemeralContainers/*/env/*/valueFrom/secretKeyRef/name", Secret),
    ("ephemeralContainers/*/envFrom/*/configMapRef/name", ConfigMap),
    ("ephemeralContainers/*/envFrom/*/secretRef/name", Secret),
];

/// A kubelet starts a pod without them: the image may be there, or be anybody's.
const IMAGE_PULL_SECRETS: &str = "imagePullSecrets/*/name";

/// Visits every name: of what, the name, and whether the pod cannot start without it. Empty names refer to nothing.
pub(super) fn each(spec: &mut Map<String, Value>, visit: &mut dyn FnMut(Referent, &mut String, bool)) {
    for (path, referent) in PLACES {
        let is_waited_for = *path != IMAGE_PULL_SECRETS;
        walk(spec, path, &mut |name, optional| visit(*referent, name, is_waited_for && !optional));
    }
}

fn walk(object: &mut Map<String, Value>, path: &str, visit: &mut dyn FnMut(&mut String, bool)) {
    let Some((field, rest)) = path.split_once('/') else {
        let optional = super::is_true(object, "optional");
        if let Some(Value::String(name)) = object.get_mut(path)
            && !name.is_empty()
        {
            visit(name, optional);
        }
        return;
    };
    if let Some(rest) = rest.strip_prefix("*/") {
        super::items_mut(object, field).for_each(|item| walk(item, rest, visit));
    } else if let Some(inner) = super::inner_mut(object, field) {
        walk(inner, rest, visit);
    }
}

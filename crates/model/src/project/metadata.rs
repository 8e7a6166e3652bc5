//! By what a twin is known, and what it takes over of its pod's labels and annotations.
//!
//! Never copied: names that a server would make up, owners, finalizers, and everything under our own prefix, which a tenant may
//! have written to look like us. Annotations on which a network, a mesh or a device of P would act are withheld unless the
//! operator allowed them: they ask for something of *this* cluster, and were written for another one.

use std::collections::BTreeMap;

use kubeocean_api::keys::{annotations, is_ours, labels};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Refusal, Surroundings};
use crate::naming::{is_label_key, label_value};
use crate::object::{Meta, Object};

/// API servers take so much in all annotations of an object together, keys and values.
const LARGEST_ANNOTATIONS: usize = 256 * 1024;

/// Domains whose annotations are withheld, with all their subdomains: whoever acts on them acts on a pod's network, puts
/// containers into it, or gives it devices.
const WITHHELD_DOMAINS: &[&str] = &[
    // Networks.
    "cni.cncf.io",
    "v1.cni.cncf.io",
    "multus-cni.io",
    "projectcalico.org",
    "cilium.io",
    "antrea.io",
    "ovn.org",
    "ovn.kubernetes.io",
    "kube-router.io",
    "danm.k8s.io",
    "nsm.io",
    "submariner.io",
    "networking.gke.io",
    "vpc.amazonaws.com",
    "networking.k8s.aws",
    "network.alibabacloud.com",
    "k8s.aliyun.com",
    "tke.cloud.tencent.com",
    "cloud.tencent.com",
    // Meshes, and others who put containers into pods.
    "istio.io",
    "linkerd.io",
    "kuma.io",
    "hashicorp.com",
    "openservicemesh.io",
    "appmesh.k8s.aws",
    "mesh.traefik.io",
    "dapr.io",
    "opentelemetry.io",
    // Devices and runtimes.
    "cdi.k8s.io",
    "nri.io",
    "noderesource.dev",
    "crio.io",
    "nvidia.com",
    "amd.com",
    "intel.com",
    "huawei.com",
    "cambricon.com",
    "hami.io",
    "4pd.io",
    "volcano.sh",
    "tencent.com",
    "aliyun.com",
];

/// The same for keys that have no domain before a slash.
const WITHHELD_PREFIXES: &[&str] =
    &["io.cilium.", "io.kubernetes.cri-o.", "io.katacontainers.", "dev.gvisor.", "run.oci."];

/// A pod with one of these is taken for the mirror of a file on a node: its kubelet does not run it, and admission looks away.
const MIRROR_PREFIX: &str = "kubernetes.io/config.";

/// What is withheld whatever is allowed.
fn is_never_copied(key: &str) -> bool {
    is_ours(key) || key.starts_with(MIRROR_PREFIX)
}

/// Whether an annotation of a V pod stays in V.
pub(super) fn is_withheld(key: &str, allowed: &[String]) -> bool {
    if is_never_copied(key) {
        return true;
    }
    let is_meant = |entry: &String| {
        entry == key
            || entry.strip_suffix('*').is_some_and(|prefix| !prefix.is_empty() && key.starts_with(prefix))
    };
    acts_on_the_cluster(key) && !allowed.iter().any(is_meant)
}

fn acts_on_the_cluster(key: &str) -> bool {
    let is_of = |domain: &str, under: &str| {
        domain.strip_suffix(under).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    key.split_once('/').is_some_and(|(domain, _)| WITHHELD_DOMAINS.iter().any(|under| is_of(domain, under)))
        || WITHHELD_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// The annotation of the twin that says of the V pod what a field would say of the twin.
pub(super) fn truth(field: &str) -> Option<&'static str> {
    match field {
        "metadata.name" => Some(annotations::VIRTUAL_POD_NAME),
        "metadata.namespace" => Some(annotations::VIRTUAL_POD_NAMESPACE),
        "metadata.uid" => Some(annotations::VIRTUAL_POD_UID),
        "spec.nodeName" => Some(annotations::VIRTUAL_NODE_NAME),
        "spec.serviceAccountName" => Some(annotations::VIRTUAL_SERVICE_ACCOUNT),
        _ => None,
    }
}

/// What we put on a twin, by key: so that we take back our own, and leave what others put there.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Expected {
    pub(super) labels: Vec<String>,
    pub(super) annotations: Vec<String>,
}

/// Labels and annotations of a twin.
pub(super) struct Metadata {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// Those of the twin of `pod`.
pub(super) fn of(
    pod: &Object,
    around: &Surroundings<'_>,
    service_account: &str,
) -> Result<Metadata, Refusal> {
    let labels = labels_of(&pod.meta, around);
    let mut annotations: BTreeMap<String, String> = pod
        .meta
        .annotations
        .iter()
        .filter(|(key, _)| !is_withheld(key, around.allowed_annotations))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let ours = [
        (annotations::VIRTUAL_POD_NAMESPACE, &*pod.meta.namespace),
        (annotations::VIRTUAL_POD_NAME, &*pod.meta.name),
        (annotations::VIRTUAL_POD_UID, &*pod.meta.uid),
        (annotations::VIRTUAL_NODE_NAME, around.vnode),
        (annotations::VIRTUAL_SERVICE_ACCOUNT, service_account),
        (annotations::VIRTUAL_GENERATION, &pod.meta.generation.to_string()),
    ];
    annotations.extend(ours.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let expected = Expected {
        labels: labels.keys().cloned().collect(),
        annotations: annotations.keys().cloned().collect(),
    };
    annotations.insert(annotations::EXPECTED_METADATA.to_owned(), json!(expected).to_string());
    let bytes = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > LARGEST_ANNOTATIONS {
        return Err(Refusal::TooManyAnnotations { bytes, limit: LARGEST_ANNOTATIONS });
    }
    Ok(Metadata { labels, annotations })
}

fn labels_of(meta: &Meta, around: &Surroundings<'_>) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> = meta
        .labels
        .iter()
        .filter(|(key, value)| !is_ours(key) && is_label_key(key) && label_value(value).is_some())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let (kind, name) = workload(meta).unzip();
    let ours = [
        (labels::MANAGED_BY, Some(labels::MANAGED_BY_VALUE)),
        (labels::BINDING_UID, Some(around.binding.uid.as_str())),
        (labels::VIRTUAL_CLUSTER_UID, Some(around.virtual_cluster)),
        (labels::VIRTUAL_NAMESPACE, Some(&*meta.namespace)),
        (labels::WORKLOAD_TYPE, kind),
        (labels::WORKLOAD_NAME, name),
    ];
    for (key, value) in ours {
        // What is no value, such as a workload's name of a hundred characters, is left out.
        if let Some(value) = value.and_then(label_value) {
            labels.insert(key.to_owned(), value.as_str().to_owned());
        }
    }
    labels
}

/// Kind and name of the workload that a pod belongs to. A `ReplicaSet` belongs to a Deployment if it is called after one.
fn workload(meta: &Meta) -> Option<(&str, &str)> {
    let owner = meta.controller()?;
    let hash = meta.labels.get("pod-template-hash").filter(|hash| !hash.is_empty());
    let deployment = hash
        .filter(|_| &*owner.kind == "ReplicaSet")
        .and_then(|hash| owner.name.strip_suffix(hash)?.strip_suffix('-'))
        .filter(|name| !name.is_empty());
    Some(deployment.map_or((&*owner.kind, &*owner.name), |name| ("Deployment", name)))
}

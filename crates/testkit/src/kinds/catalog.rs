//! The table of built-in kinds.
//!
//! Deliberately absent: behaviour. Columns are facts of the server's registry; code is elsewhere.

use std::sync::{Arc, LazyLock};

use super::{Kind, Kinds};
use crate::fields::Set;

/// Generation is kept.
const GENERATION: u8 = 1;
/// An update may leave out the resource version.
const UNCONDITIONAL: u8 = 2;
/// An update may create.
const UPSERT: u8 = 4;
/// A delete answers with the object.
const RETURNS: u8 = 8;
const CLUSTER: u8 = 16;

/// Group, version, kind, plural, short names, subresources, flags, selectable fields.
type Row =
    (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str, u8, &'static str);

#[rustfmt::skip]
const TABLE: &[Row] = &[
    ("", "v1", "Pod", "pods", "po", "status binding eviction ephemeralcontainers resize", GENERATION | UNCONDITIONAL | RETURNS,
        "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork status.phase status.podIP status.nominatedNodeName"),
    ("", "v1", "Node", "nodes", "no", "status", UNCONDITIONAL | CLUSTER, "spec.unschedulable"),
    ("", "v1", "Namespace", "namespaces", "ns", "status finalize", UNCONDITIONAL | CLUSTER | RETURNS, "status.phase"),
    ("", "v1", "ConfigMap", "configmaps", "cm", "", UNCONDITIONAL, ""),
    ("", "v1", "Secret", "secrets", "", "", UNCONDITIONAL, "type"),
    ("", "v1", "Service", "services", "svc", "status", UNCONDITIONAL | UPSERT | RETURNS, "spec.clusterIP spec.type"),
    ("", "v1", "ServiceAccount", "serviceaccounts", "sa", "token", UNCONDITIONAL | RETURNS, ""),
    ("", "v1", "Event", "events", "ev", "", UNCONDITIONAL | UPSERT,
        "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason reportingComponent source type"),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", "status", UNCONDITIONAL | RETURNS, ""),
    ("", "v1", "PersistentVolume", "persistentvolumes", "pv", "status", UNCONDITIONAL | CLUSTER | RETURNS, ""),
    ("", "v1", "Endpoints", "endpoints", "ep", "", UNCONDITIONAL | UPSERT, ""),
    ("", "v1", "ResourceQuota", "resourcequotas", "quota", "status", UNCONDITIONAL | RETURNS, ""),
    ("", "v1", "LimitRange", "limitranges", "limits", "", UNCONDITIONAL | UPSERT, ""),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "", "", GENERATION | UNCONDITIONAL, ""),
    ("coordination.k8s.io", "v1", "Lease", "leases", "", "", UPSERT, ""),
    ("storage.k8s.io", "v1", "CSINode", "csinodes", "", "", CLUSTER | RETURNS, ""),
    ("storage.k8s.io", "v1", "CSIDriver", "csidrivers", "", "", CLUSTER | RETURNS, ""),
    ("storage.k8s.io", "v1", "StorageClass", "storageclasses", "sc", "", UNCONDITIONAL | CLUSTER | RETURNS, ""),
    ("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", "", "status", CLUSTER | RETURNS, ""),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "pc", "", GENERATION | UNCONDITIONAL | CLUSTER, ""),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", "status", GENERATION, ""),
    ("apps", "v1", "Deployment", "deployments", "deploy", "status scale", GENERATION | UNCONDITIONAL, ""),
    ("apps", "v1", "ReplicaSet", "replicasets", "rs", "status scale", GENERATION | UNCONDITIONAL, "status.replicas"),
    ("apps", "v1", "DaemonSet", "daemonsets", "ds", "status", GENERATION | UNCONDITIONAL, ""),
    ("apps", "v1", "StatefulSet", "statefulsets", "sts", "status scale", GENERATION | UNCONDITIONAL, ""),
    ("batch", "v1", "Job", "jobs", "", "status", GENERATION | UNCONDITIONAL, "status.successful"),
    ("batch", "v1", "CronJob", "cronjobs", "cj", "status", GENERATION | UNCONDITIONAL, ""),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", "", "", UNCONDITIONAL | UPSERT, ""),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", "", "", UNCONDITIONAL | UPSERT, ""),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", "", "", UNCONDITIONAL | UPSERT | CLUSTER, ""),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", "", "", UNCONDITIONAL | UPSERT | CLUSTER, ""),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", "crd crds", "status", GENERATION | CLUSTER, ""),
    ("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests", "csr", "status approval", UNCONDITIONAL | CLUSTER, "spec.signerName"),
    ("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", "status", UNCONDITIONAL, ""),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", "netpol", "", GENERATION | UNCONDITIONAL, ""),
    ("networking.k8s.io", "v1", "Ingress", "ingresses", "ing", "status", GENERATION | UNCONDITIONAL, ""),
];

/// What is sent to be answered, and never kept: group, kind, plural, whether it is in a namespace.
#[rustfmt::skip]
const REVIEWS: &[(&str, &str, &str, bool)] = &[
    ("authorization.k8s.io", "LocalSubjectAccessReview", "localsubjectaccessreviews", true),
    ("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews", false),
    ("authorization.k8s.io", "SelfSubjectRulesReview", "selfsubjectrulesreviews", false),
    ("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews", false),
    ("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews", false),
    ("authentication.k8s.io", "TokenReview", "tokenreviews", false),
];

static REVIEW_KINDS: LazyLock<Vec<Arc<Kind>>> = LazyLock::new(|| {
    let mut kinds = Vec::new();
    for &(group, kind, plural, namespaced) in REVIEWS {
        let flags = if namespaced { 0 } else { CLUSTER };
        kinds.push(Arc::new(of_row(&(group, "v1", kind, plural, "", "", flags, ""))));
    }
    kinds
});

/// What is posted to a service account's `token`.
pub(crate) static TOKEN_REQUEST: LazyLock<Arc<Kind>> =
    LazyLock::new(|| Arc::new(of_row(&("authentication.k8s.io", "v1", "TokenRequest", "", "", "", 0, ""))));

/// What is posted to a pod's `eviction`.
pub(crate) static EVICTION: LazyLock<Arc<Kind>> =
    LazyLock::new(|| Arc::new(of_row(&("policy", "v1", "Eviction", "", "", "", 0, ""))));

/// What is sent to a collection to be answered at once.
pub(crate) fn review(group: &str, plural: &str) -> Option<Arc<Kind>> {
    reviews(group).find(|kind| kind.plural == plural).cloned()
}

/// All reviews of a group.
pub(crate) fn reviews(group: &str) -> impl Iterator<Item = &'static Arc<Kind>> {
    REVIEW_KINDS.iter().filter(move |kind| kind.group == group)
}

/// Whether the server has a type of this name.
pub(crate) fn is_registered(kind: &str, api_version: &str) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    TABLE.iter().any(|row| row.0 == group && row.1 == version && row.2 == kind)
        || REVIEWS.iter().any(|row| row.0 == group && version == "v1" && row.1 == kind)
}

/// Every built-in kind.
pub(crate) fn built_in() -> Kinds {
    let mut kinds = Kinds::default();
    for row in TABLE {
        kinds.insert(of_row(row));
    }
    kinds
}

fn of_row(row: &Row) -> Kind {
    let &(group, version, kind, plural, short_names, subresources, flags, selectable) = row;
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let has = |flag: u8| flags & flag != 0;
    let with_status = subresources.contains("status");
    Kind {
        id: 0,
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        plural: plural.into(),
        singular: kind.to_lowercase(),
        short_names: words(short_names),
        categories: words(categories(group, kind)),
        namespaced: !has(CLUSTER),
        subresources: words(subresources),
        generation: has(GENERATION),
        unconditional: has(UNCONDITIONAL),
        upsert: has(UPSERT),
        returns_deleted: has(RETURNS),
        selectable: words(selectable),
        ignored: match kind {
            "CertificateSigningRequest" => Set::of(&["spec", "status"]),
            _ if with_status => Set::of(&["status"]),
            _ => Set::default(),
        },
        ignored_by_status: ignored_by_status(kind),
        custom: None,
    }
}

/// What `kubectl get all` shows, and the like.
fn categories(group: &str, kind: &str) -> &'static str {
    match (group, kind) {
        ("", "Pod" | "Service") | ("apps" | "batch" | "autoscaling", _) => "all",
        ("apiextensions.k8s.io", _) => "api-extensions",
        _ => "",
    }
}

/// What the status endpoint of a kind leaves as it was.
fn ignored_by_status(kind: &str) -> Set {
    match kind {
        "Pod" => Set::of(&["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"]),
        "Deployment" => Set::of(&["spec", "metadata.labels"]),
        "CertificateSigningRequest" => Set::of(&["spec", "status.conditions"]),
        "CustomResourceDefinition" => Set::of(&["metadata", "spec"]),
        _ => Set::of(&["spec"]),
    }
}

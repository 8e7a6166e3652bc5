//! What a plan wants done, as values: each write with its reason and its precondition.
//!
//! Deliberately absent: the doing. `cluster::apply` takes these and says what came of them.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use crate::key::{Key, OnSide, Side};
use crate::object::{Meta, Pairs};

/// A kind of object, as an API server's paths need it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// Version within the group.
    pub version: Cow<'static, str>,
    /// The kind's name in objects.
    pub kind: Cow<'static, str>,
    /// The kind's name in paths.
    pub plural: Cow<'static, str>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

impl Kind {
    const fn fixed(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
        namespaced: bool,
    ) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            kind: Cow::Borrowed(kind),
            plural: Cow::Borrowed(plural),
            namespaced,
        }
    }

    /// A kind whose objects live in namespaces.
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self::fixed(group, version, kind, plural, true)
    }

    /// A kind whose objects do not live in namespaces.
    pub const fn cluster_scoped(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self::fixed(group, version, kind, plural, false)
    }

    /// `group/version`, or the version alone in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The path of its group and version.
    pub fn version_path(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }

    /// The path of the collection; of all namespaces where `namespace` is `None`.
    pub fn collection_path(&self, namespace: Option<&str>) -> String {
        let root = self.version_path();
        match namespace {
            Some(namespace) if self.namespaced => format!("{root}/namespaces/{namespace}/{}", self.plural),
            _ => format!("{root}/{}", self.plural),
        }
    }
}

/// The kinds that Kubeocean reads or writes.
pub mod kinds {
    use super::Kind;

    /// `v1` Pod.
    pub const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");
    /// `v1` Node.
    pub const NODE: Kind = Kind::cluster_scoped("", "v1", "Node", "nodes");
    /// `v1` Namespace.
    pub const NAMESPACE: Kind = Kind::cluster_scoped("", "v1", "Namespace", "namespaces");
    /// `v1` `ConfigMap`.
    pub const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");
    /// `v1` Secret.
    pub const SECRET: Kind = Kind::namespaced("", "v1", "Secret", "secrets");
    /// `v1` Service.
    pub const SERVICE: Kind = Kind::namespaced("", "v1", "Service", "services");
    /// `v1` `ServiceAccount`.
    pub const SERVICE_ACCOUNT: Kind = Kind::namespaced("", "v1", "ServiceAccount", "serviceaccounts");
    /// `v1` Event.
    pub const EVENT: Kind = Kind::namespaced("", "v1", "Event", "events");
    /// `v1` `PersistentVolumeClaim`.
    pub const CLAIM: Kind = Kind::namespaced("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");
    /// `v1` `PersistentVolume`.
    pub const VOLUME: Kind = Kind::cluster_scoped("", "v1", "PersistentVolume", "persistentvolumes");
    /// `coordination.k8s.io/v1` Lease: of a node, or a leader's hold.
    pub const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases");
    /// `storage.k8s.io/v1` `CSINode`.
    pub const CSI_NODE: Kind = Kind::cluster_scoped("storage.k8s.io", "v1", "CSINode", "csinodes");
    /// `discovery.k8s.io/v1` `EndpointSlice`.
    pub const ENDPOINT_SLICE: Kind =
        Kind::namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");
    /// `scheduling.k8s.io/v1` `PriorityClass`.
    pub const PRIORITY_CLASS: Kind =
        Kind::cluster_scoped("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses");
    /// `node.k8s.io/v1` `RuntimeClass`.
    pub const RUNTIME_CLASS: Kind =
        Kind::cluster_scoped("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses");
    /// `policy/v1` `PodDisruptionBudget`.
    pub const DISRUPTION_BUDGET: Kind =
        Kind::namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
    /// `apps/v1` Deployment.
    pub const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment", "deployments");
    /// `rbac.authorization.k8s.io/v1` Role.
    pub const ROLE: Kind = Kind::namespaced("rbac.authorization.k8s.io", "v1", "Role", "roles");
    /// `rbac.authorization.k8s.io/v1` `RoleBinding`.
    pub const ROLE_BINDING: Kind =
        Kind::namespaced("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings");
    /// `rbac.authorization.k8s.io/v1` `ClusterRoleBinding`.
    pub const CLUSTER_ROLE_BINDING: Kind =
        Kind::cluster_scoped("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings");
    /// `autoscaling/v2` `HorizontalPodAutoscaler`.
    pub const AUTOSCALER: Kind =
        Kind::namespaced("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
    /// `certificates.k8s.io/v1` `CertificateSigningRequest`.
    pub const SIGNING_REQUEST: Kind = Kind::cluster_scoped(
        "certificates.k8s.io",
        "v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
    );
    /// `authorization.k8s.io/v1` `SelfSubjectAccessReview`: may we?
    pub const ACCESS_REVIEW: Kind = Kind::cluster_scoped(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
    );
    /// `authentication.k8s.io/v1` `SelfSubjectReview`: who are we?
    pub const SELF_REVIEW: Kind =
        Kind::cluster_scoped("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews");
    /// `metrics.k8s.io/v1beta1` `PodMetrics`: what pods use. Made when it is asked for.
    pub const POD_METRICS: Kind = Kind::namespaced("metrics.k8s.io", "v1beta1", "PodMetrics", "pods");
    /// `authentication.k8s.io/v1` `TokenReview`: who is that?
    pub const TOKEN_REVIEW: Kind =
        Kind::cluster_scoped("authentication.k8s.io", "v1", "TokenReview", "tokenreviews");
    /// `authorization.k8s.io/v1` `SubjectAccessReview`: may they?
    pub const SUBJECT_ACCESS_REVIEW: Kind =
        Kind::cluster_scoped("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews");
    /// Our `ClusterBinding`.
    pub const BINDING: Kind = Kind::cluster_scoped(
        kubeocean_api::GROUP,
        kubeocean_api::VERSION,
        "ClusterBinding",
        "clusterbindings",
    );
    /// Our `ResourceLeasingPolicy`.
    pub const POLICY: Kind = Kind::cluster_scoped(
        kubeocean_api::GROUP,
        kubeocean_api::VERSION,
        "ResourceLeasingPolicy",
        "resourceleasingpolicies",
    );
}

/// One write: where, what, on which condition, and why.
#[derive(Clone, PartialEq)]
pub struct Action {
    /// Whose API server.
    pub side: Side,
    /// The kind of the object.
    pub kind: Kind,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// What to do to it.
    pub verb: Verb,
    /// What must still be true of it.
    pub precondition: Precondition,
    /// Why, in the audit log.
    pub why: Cow<'static, str>,
}

impl Action {
    /// A write without a precondition.
    pub fn new<S: OnSide>(kind: Kind, key: &Key<S>, verb: Verb, why: impl Into<Cow<'static, str>>) -> Self {
        Self {
            side: S::SIDE,
            kind,
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            verb,
            precondition: Precondition::default(),
            why: why.into(),
        }
    }

    /// What is written to, with its subresource: `pods`, `pods/status`.
    pub fn resource(&self) -> String {
        let subresource = match &self.verb {
            Verb::Patch { subresource, .. } => *subresource,
            Verb::Post { subresource, .. } => Some(*subresource),
            Verb::Evict { .. } => Some("eviction"),
            Verb::Create { .. } | Verb::Delete { .. } => None,
        };
        match subresource {
            Some(subresource) => format!("{}/{subresource}", self.kind.plural),
            None => self.kind.plural.to_string(),
        }
    }

    /// Only if the object still is the one with this uid.
    #[must_use]
    pub fn if_uid(mut self, uid: impl Into<String>) -> Self {
        self.precondition.uid = Some(uid.into());
        self
    }

    /// Whether it changes an object of this kind, whatever its version.
    pub fn is_unversioned_patch_of(&self, kind: &Kind) -> bool {
        self.kind == *kind
            && matches!(self.verb, Verb::Patch { .. })
            && self.precondition.resource_version.is_none()
    }

    /// Only if nobody wrote the object since this version.
    #[must_use]
    pub fn if_version(mut self, resource_version: impl Into<String>) -> Self {
        self.precondition.resource_version = Some(resource_version.into());
        self
    }
}

impl fmt::Debug for Action {
    /// As it is displayed: a body may be a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Action {
    /// As it stands in golden scripts: `delete physical pods web/a if uid=… (the pod has ended)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} ", self.verb.name(), self.side, self.resource())?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        write!(f, "{}", self.name)?;
        if let Verb::Delete { dependents, .. } = &self.verb {
            f.write_str(match dependents {
                Dependents::Background => "",
                Dependents::Foreground => " after its dependents",
                Dependents::Orphan => " without its dependents",
            })?;
        }
        if let Some(uid) = &self.precondition.uid {
            write!(f, " if uid={uid}")?;
        }
        if let Some(version) = &self.precondition.resource_version {
            write!(f, " if version={version}")?;
        }
        write!(f, " ({})", self.why)
    }
}

/// What must still be true of an object when it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Precondition {
    /// `metadata.uid`.
    pub uid: Option<String>,
    /// `metadata.resourceVersion`.
    pub resource_version: Option<String>,
}

/// What to do to an object.
#[derive(Clone, PartialEq)]
pub enum Verb {
    /// Make it. If there is one of that name already, `mark` tells whether it is ours.
    Create {
        /// The whole object; kind, name and namespace are filled in.
        body: Value,
        /// By what we would know our own.
        mark: Mark,
    },
    /// Change some of its fields.
    Patch {
        /// How the body is to be read.
        form: PatchForm,
        /// `status` and the like; `None` for the object itself.
        subresource: Option<&'static str>,
        /// The fields.
        body: Value,
    },
    /// Ask a subresource for something, such as a `token` of a service account.
    Post {
        /// Which.
        subresource: &'static str,
        /// The question.
        body: Value,
    },
    /// Remove a pod as far as its disruption budget allows.
    Evict {
        /// Seconds to end in; `None`: the pod's own.
        grace: Option<u32>,
    },
    /// Remove it.
    Delete {
        /// Seconds to end in; `None`: the object's own.
        grace: Option<u32>,
        /// What becomes of its dependents.
        dependents: Dependents,
    },
}

impl fmt::Debug for Verb {
    /// Without the body: it may be a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Verb {
    /// A word for logs and metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Patch { form: PatchForm::Apply { .. }, .. } => "apply",
            Self::Patch { .. } => "patch",
            Self::Post { .. } => "post",
            Self::Evict { .. } => "evict",
            Self::Delete { .. } => "delete",
        }
    }
}

/// How the body of a patch is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchForm {
    /// JSON merge patch: lists are replaced.
    Merge,
    /// Strategic merge patch: lists are merged by their keys. Built-in kinds only.
    Strategic,
    /// Server-side apply: what this manager applied before and leaves out now is removed.
    Apply {
        /// The field manager.
        manager: Cow<'static, str>,
        /// Take fields from other managers.
        force: bool,
    },
}

/// What becomes of the dependents of a deleted object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dependents {
    /// They go after it.
    #[default]
    Background,
    /// They go before it.
    Foreground,
    /// They stay.
    Orphan,
}

impl Dependents {
    /// The spelling on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// The labels and annotations by which we know an object as the one that we would have made: it must
/// carry each of these with the value of our own body. Without any, every object is foreign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Keys of labels.
    pub labels: &'static [&'static str],
    /// Keys of annotations.
    pub annotations: &'static [&'static str],
}

impl Mark {
    /// Whether an existing object is what `body` wanted to be.
    pub fn is_on(&self, existing: &Meta, body: &Value) -> bool {
        let same = |map: &str, keys: &[&str], existing: &Pairs| {
            keys.iter().all(|key| {
                let wanted = body["metadata"][map][*key].as_str();
                wanted.is_some() && existing.get(key) == wanted
            })
        };
        !(self.labels.is_empty() && self.annotations.is_empty())
            && same("labels", self.labels, &existing.labels)
            && same("annotations", self.annotations, &existing.annotations)
    }
}

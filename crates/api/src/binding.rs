//! `ClusterBinding`: one worker cluster, as the computing cluster knows it.
//!
//! Deliberately absent: what a binding does. This is the form that a user fills in, and the form in
//! which the answer is given.

#![expect(unreachable_pub, reason = "KubeSchema repeats each struct inside a function, `pub` and all")]

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::schema::{self, dns_label, self_matches};

/// What a user asks for: bind this worker cluster, with these rules.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "cloud.tencent.com",
    version = "v1beta1",
    kind = "ClusterBinding",
    plural = "clusterbindings",
    shortname = "cb",
    category = "kubeocean",
    status = "ClusterBindingStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A ClusterBinding lives in the computing cluster and names a worker cluster whose nodes may be leased.",
    validation = schema::rule(
        "self.metadata.name.size() <= 63",
        "metadata.name must be at most 63 characters, because it is used as a label value: choose a shorter name"
    ),
    printcolumn(name = "ClusterID", type_ = "string", json_path = ".spec.clusterID"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(name = "Pods", type_ = "integer", json_path = ".status.pods"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::tidy)]
pub struct ClusterBindingSpec {
    /// Identifies the worker cluster in names and labels, for example in the names of its virtual
    /// nodes. Lower-case letters, digits and `-`, at most 24 characters. Unique among all
    /// `ClusterBindings`: of two with the same value the older one keeps it. Cannot be changed.
    /// Example: `gpu-berlin`.
    #[serde(rename = "clusterID")]
    #[schemars(length(min = 1, max = 24))]
    #[x_kube(validation = schema::rule(
        schema::self_matches!(schema::dns_label!()),
        "clusterID must consist of lower-case letters, digits and '-', and start and end with a letter or digit; \
         for example 'worker-1'"
    ))]
    #[x_kube(validation = schema::rule(
        "self == oldSelf",
        "clusterID cannot be changed: delete this ClusterBinding and create another one"
    ))]
    pub cluster_id: String,

    /// The Secret in the computing cluster that holds the worker cluster's kubeconfig, under the key
    /// `kubeconfig`.
    pub secret_ref: SecretRef,

    /// Which nodes of the worker cluster may be leased. Missing or empty: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::node_selector")]
    pub node_selector: Option<NodeSelector>,

    /// The namespace of the worker cluster that everything is created in. It has to exist: the
    /// lender makes it. Cannot be changed. Example: `kubeocean-worker`.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = schema::rule(
        schema::self_matches!(schema::dns_label!()),
        "mountNamespace must be a namespace name: lower-case letters, digits and '-', starting and ending with a \
         letter or digit; for example 'kubeocean-worker'"
    ))]
    #[x_kube(validation = schema::rule(
        "self == oldSelf",
        "mountNamespace cannot be changed: delete this ClusterBinding and create another one"
    ))]
    pub mount_namespace: String,

    /// Namespaces of the computing cluster whose Services are mirrored into the worker cluster. `*`
    /// stands for all namespaces except system namespaces. Missing or empty: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "service_namespaces")]
    pub service_namespaces: Vec<String>,

    /// True: virtual nodes do not get the taint `kubeocean.io/vnode`, so that pods need no toleration
    /// to be scheduled there. Default: false.
    #[serde(default)]
    pub disable_node_default_taint: bool,

    /// The `PriorityClass` that pods get in the worker cluster. Missing or empty: `kubeocean-default`,
    /// which yields to everything of the lender's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::rule(
        concat!("self == '' || ", schema::self_matches!(schema::dns_subdomain!())),
        "podPriorityClassName must be empty or the name of a PriorityClass: lower-case letters, digits, '-' and '.', \
         starting and ending with a letter or digit"
    ))]
    pub pod_priority_class_name: String,

    /// True: pods of `DaemonSets` run on virtual nodes without asking for it. False: only those with the
    /// annotation `kubeocean.io/running-daemonset: "true"` do. Default: false.
    #[serde(default)]
    pub running_daemonset_by_default: bool,

    /// True: a pod is put on its node by name, past the worker cluster's scheduler. False: the
    /// scheduler places it, with a required affinity to that one node. Default: false.
    #[serde(default)]
    pub direct_scheduling: bool,
}

/// Where the kubeconfig of the worker cluster is kept.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::tidy)]
pub struct SecretRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = schema::rule(
        schema::self_matches!(schema::dns_subdomain!()),
        "secretRef.name must be the name of a Secret: lower-case letters, digits, '-' and '.', starting and ending \
         with a letter or digit"
    ))]
    pub name: String,

    /// Namespace of the Secret.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = schema::rule(
        schema::self_matches!(schema::dns_label!()),
        "secretRef.namespace must be a namespace name: lower-case letters, digits and '-', starting and ending with \
         a letter or digit"
    ))]
    pub namespace: String,
}

/// What is true of the binding now. Two writers apply it, each only its own fields: hence everything
/// is optional.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::tidy)]
pub struct ClusterBindingStatus {
    /// The state in one word: Pending while it is being set up, Ready, or Failed when something has to
    /// be repaired. The conditions say why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<BindingPhase>,

    /// What is true now, by type: Ready, Connected, `SyncerReady`, `ProxierReady`, Leasing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// When nodes and pods were last counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub last_sync_time: Option<Time>,

    /// The `metadata.generation` that this status speaks about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// How many virtual nodes exist through this binding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub nodes: Option<i32>,

    /// How many pods run in the worker cluster through this binding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub pods: Option<i32>,

    /// The identity of the worker cluster: the uid of the mount namespace there. A kubeconfig that
    /// leads to another one is refused until the annotation `kubeocean.io/accept-worker` names that uid.
    #[serde(default, rename = "workerUID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub worker_uid: Option<String>,
}

/// The state of a binding in one word.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BindingPhase {
    /// Being set up.
    #[default]
    Pending,
    /// Connected, and both its workers are available.
    Ready,
    /// Something has to be repaired; the conditions say what.
    Failed,
}

/// Namespaces by name are a short list; who wants more than a thousand writes `*`.
const SERVICE_NAMESPACES: u32 = 1024;

fn service_namespaces(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": SERVICE_NAMESPACES,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "string",
            "minLength": 1,
            "maxLength": schema::LABEL_LENGTH,
            "x-kubernetes-validations": [schema::rule(
                concat!("self == '*' || ", self_matches!(dns_label!())),
                "serviceNamespaces entries must be '*' or a namespace name: lower-case letters, digits and '-', \
                 starting and ending with a letter or digit",
            )],
        },
    })
}

#[cfg(test)]
mod tests;

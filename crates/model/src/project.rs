//! What a pod of the computing cluster looks like in a worker cluster: its twin.
//!
//! A projection is a set of edits on the pod's own JSON. What we do not know, because it is newer than this program, goes through
//! as it is. What is known is in one of four groups: kept, edited, dropped, refused; a test holds that list against the schema of
//! Kubernetes.
//!
//! - **Identity** (`metadata`): our labels and annotations, and V's own but for those that networks, meshes and devices act on.
//! - **References** (`references`): every `ConfigMap`, Secret and claim is called by the name of its copy.
//! - **Credentials** (`volumes`): tokens of V come from a Secret. No token of P is ever mounted: the service account is one
//!   without rights, and none of its tokens is asked for.
//! - **Surroundings** (`environment`, `network`): variables, host names and DNS of the computing cluster.
//! - **Placement** (here): the P node, the binding's priority, and nothing of V's scheduling.
//!
//! What the lender's admission thinks of host networks, host paths and privileges is the lender's affair: they are passed on.
//!
//! Deliberately absent: whether a pod is admitted, what its copies contain, its status, and all writing.

mod change;
mod environment;
mod metadata;
mod network;
mod references;
mod refusal;
mod volumes;

use std::collections::BTreeMap;

use kubeocean_api::keys::names::{DEFAULT_PRIORITY_CLASS, WORKLOAD_SERVICE_ACCOUNT};
use serde_json::{Map, Value, json};

use crate::action::{Kind, kinds};
use crate::binding::Binding;
use crate::naming::Origin;
use crate::object::Object;

pub use change::{Change, changes};
pub use refusal::Refusal;

/// The fields of a spec that are lists of containers, in the order in which they run.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// What V's scheduler and controllers wanted of V's nodes. P has its own, and its own admission fills in the rest.
const DROPPED: &[&str] = &[
    "nodeName",
    "nodeSelector",
    "affinity",
    "schedulerName",
    "topologySpreadConstraints",
    "priority",
    "preemptionPolicy",
    "overhead",
    "schedulingGates",
    "schedulingGroup",
    "workloadRef",
    "readinessGates",
    "serviceAccount",
];

/// A kind of object that a pod refers to by name, and that is copied for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Referent {
    /// A `ConfigMap`.
    ConfigMap,
    /// A Secret.
    Secret,
    /// A `PersistentVolumeClaim`.
    Claim,
}

impl Referent {
    /// Its kind.
    pub const fn kind(self) -> Kind {
        match self {
            Self::ConfigMap => kinds::CONFIG_MAP,
            Self::Secret => kinds::SECRET,
            Self::Claim => kinds::CLAIM,
        }
    }
}

/// A token of its service account that a pod wants to find in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSource {
    /// Key in the Secret of the pod's tokens: `<volume>.<index of the source>`.
    pub key: String,
    /// For whom it is meant; `None`: for V's API server.
    pub audience: Option<String>,
    /// How long it is to live.
    pub seconds: i64,
}

/// Everything that a V pod refers to by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Objects of its namespace, and whether it cannot start without them.
    pub references: BTreeMap<(Referent, String), bool>,
    /// Its tokens, in the order of its volumes.
    pub tokens: Vec<TokenSource>,
    /// Whose tokens.
    pub service_account: String,
    /// Its `RuntimeClass`.
    pub runtime_class: Option<String>,
}

/// What a pod finds around it in P.
pub struct Surroundings<'a> {
    /// The binding.
    pub binding: &'a Binding,
    /// Uid that stands for the computing cluster.
    pub virtual_cluster: &'a str,
    /// Name of the virtual node that the pod is bound to.
    pub vnode: &'a str,
    /// Name of the P node behind it.
    pub physical_node: &'a str,
    /// Name of the twin.
    pub name: &'a str,
    /// What the copy of an object is called in P. `None`: there is none, and the pod can do without it. It then gets a name that
    /// only this binding could ever give to a copy: not the usual one, which another computing cluster may have given to its own.
    pub names: &'a dyn Fn(Referent, &str) -> Option<String>,
    /// The Secret with its tokens. `None`: the name that it would have.
    pub tokens: Option<&'a str>,
    /// Whether P has the `RuntimeClass` that the pod asks for.
    pub keeps_runtime_class: bool,
    /// Whether the lender allows volumes of CSI drivers that are spelled out in a pod.
    pub allows_inline_csi: bool,
    /// The computing cluster, as it is reached from P.
    pub computing: &'a Computing,
    /// Keys of annotations that go to P although a network, a mesh or a device acts on them; `prefix/*` means all under a prefix.
    pub allowed_annotations: &'a [String],
}

/// The computing cluster, as pods in P reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Computing {
    /// Host name or address, and port, of its API server.
    pub api_server: Option<(String, u16)>,
    /// Addresses of its DNS servers.
    pub dns: Vec<String>,
    /// Its DNS domain.
    pub cluster_domain: String,
    /// Services of the pod's namespace and of others that are listed, sorted.
    pub services: Vec<ServiceEntry>,
}

/// A Service, as a pod sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceEntry {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The address at which pods in P reach it; `None`: it is headless, and only DNS knows it.
    pub cluster_ip: Option<String>,
    /// Name, number and protocol of each port.
    pub ports: Vec<(Option<String>, u16, String)>,
}

impl ServiceEntry {
    /// Reads a Service.
    pub fn read(object: &Object) -> Self {
        let spec = object.field::<Value>("spec").ok().flatten().unwrap_or_default();
        let word = |value: &Value| value.as_str().filter(|word| !word.is_empty()).map(str::to_owned);
        let port = |port: &Value| {
            let number = port["port"].as_u64().and_then(|number| u16::try_from(number).ok())?;
            let protocol = word(&port["protocol"]).unwrap_or_else(|| "TCP".to_owned());
            Some((word(&port["name"]), number, protocol))
        };
        Self {
            namespace: object.meta.namespace.to_string(),
            name: object.meta.name.to_string(),
            cluster_ip: word(&spec["clusterIP"]).filter(|address| address != "None"),
            ports: spec["ports"].as_array().into_iter().flatten().filter_map(port).collect(),
        }
    }
}

/// Everything that a V pod refers to by name in its namespace; or why it cannot run in any worker cluster.
pub fn needs(pod: &Object) -> Result<Needs, Refusal> {
    let mut spec = refusal::readable(pod)?;
    refusal::check(&spec)?;
    volumes::claim_ephemeral(&mut spec, &pod.meta.name);
    let mut references = BTreeMap::new();
    references::each(&mut spec, &mut |referent, name, required| {
        *references.entry((referent, name.clone())).or_default() |= required;
    });
    let tokens = volumes::tokens(&spec);
    let service_account = service_account(&spec);
    let runtime_class = text(&spec, "runtimeClassName").map(str::to_owned);
    Ok(Needs { references, tokens, service_account, runtime_class })
}

/// The whole twin, metadata and spec. It holds ephemeral containers too, which nobody may create a pod with: see [`to_create`].
pub fn project(pod: &Object, around: &Surroundings<'_>) -> Result<Value, Refusal> {
    let mut spec = refusal::readable(pod)?;
    refusal::check(&spec)?;
    if !around.allows_inline_csi {
        refusal::check_csi(&spec)?;
    }
    let service_account = service_account(&spec);
    let metadata = metadata::of(pod, around, &service_account)?;

    volumes::claim_ephemeral(&mut spec, &pod.meta.name);
    references::each(&mut spec, &mut |referent, name, _| {
        *name = (around.names)(referent, name).unwrap_or_else(|| {
            let origin = Origin::Object { namespace: &pod.meta.namespace, name };
            origin.fallback_name(&around.binding.uid).to_string()
        });
    });
    let tokens = around.tokens.map_or_else(
        || Origin::Tokens { pod: &pod.meta.name, uid: &pod.meta.uid }.physical_name().to_string(),
        str::to_owned,
    );
    volumes::mount_tokens(&mut spec, &tokens);
    volumes::tell_the_virtual_truth(&mut spec);
    environment::edit(&mut spec, pod, around, &metadata);
    network::edit(&mut spec, pod, around.computing);
    place(&mut spec, around);
    identify(&mut spec);
    Ok(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": around.name, "namespace": around.binding.mount_namespace,
            "labels": metadata.labels, "annotations": metadata.annotations,
        },
        "spec": spec,
    }))
}

/// What a twin is created with: all that was projected but ephemeral containers, which API servers take only for a pod that
/// exists. [`changes`] brings them after it.
#[must_use]
pub fn to_create(mut wanted: Value) -> Value {
    if let Some(spec) = wanted.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("ephemeralContainers");
    }
    wanted
}

/// Puts it on its node, below all that the lender runs.
fn place(spec: &mut Map<String, Value>, around: &Surroundings<'_>) {
    for field in DROPPED {
        spec.remove(*field);
    }
    if !around.keeps_runtime_class {
        spec.remove("runtimeClassName");
    }
    if around.binding.schedules_directly {
        spec.insert("nodeName".to_owned(), around.physical_node.into());
    } else {
        // By field, not by label: a label may be missing, or be on two nodes.
        let term = json!({"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [around.physical_node]},
        ]});
        let required = json!({"nodeSelectorTerms": [term]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        spec.insert("affinity".to_owned(), affinity);
    }
    let class = around.binding.priority_class.as_deref().unwrap_or(DEFAULT_PRIORITY_CLASS);
    spec.insert("priorityClassName".to_owned(), class.into());
}

/// To P it is nobody.
fn identify(spec: &mut Map<String, Value>) {
    spec.insert("serviceAccountName".to_owned(), WORKLOAD_SERVICE_ACCOUNT.into());
    spec.insert("automountServiceAccountToken".to_owned(), false.into());
    spec.insert("enableServiceLinks".to_owned(), false.into());
}

/// The V pod's `ServiceAccount`; older objects have it in a field of another name.
fn service_account(spec: &Map<String, Value>) -> String {
    text(spec, "serviceAccountName").or_else(|| text(spec, "serviceAccount")).unwrap_or("default").to_owned()
}

/// A field that is a text and not empty.
fn text<'a>(object: &'a Map<String, Value>, field: &str) -> Option<&'a str> {
    object.get(field).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Whether a field is there, and true.
fn is_true(object: &Map<String, Value>, field: &str) -> bool {
    object.get(field).and_then(Value::as_bool).unwrap_or_default()
}

/// The objects in a list; what is no object is left alone.
fn items<'a>(object: &'a Map<String, Value>, field: &str) -> impl Iterator<Item = &'a Map<String, Value>> {
    object.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

/// The same, to be edited.
fn items_mut<'a>(
    object: &'a mut Map<String, Value>,
    field: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> + use<'a> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// An object inside of another one, to be edited.
fn inner_mut<'a>(object: &'a mut Map<String, Value>, field: &str) -> Option<&'a mut Map<String, Value>> {
    object.get_mut(field).and_then(Value::as_object_mut)
}

//! A `ClusterBinding`, read once: every later function takes this and never the raw object.
//!
//! API servers refuse most of what is refused here; older ones with older definitions may not.

use kubeocean_api::ClusterBinding;

use crate::naming::{BadClusterId, ClusterId, is_dns_label, is_dns_subdomain};
use crate::selector::{NodeSelector, SelectorError};

/// One worker cluster, as the computing cluster knows it.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "so many switches does a binding have")]
pub struct Binding {
    /// Name of the object.
    pub name: String,
    /// Uid of the object: what our objects are stamped with.
    pub uid: String,
    /// Which worker cluster, in names and keys.
    pub cluster_id: ClusterId,
    /// Namespace of the Secret with the kubeconfig.
    pub secret_namespace: String,
    /// Name of the Secret with the kubeconfig.
    pub secret_name: String,
    /// Which P nodes may be leased.
    pub selector: NodeSelector,
    /// P namespace of everything we make there.
    pub mount_namespace: String,
    /// V namespaces whose Services are mirrored.
    pub service_namespaces: ServiceNamespaces,
    /// Whether virtual nodes get the taint that keeps out who does not tolerate it.
    pub has_default_taint: bool,
    /// `PriorityClass` of P pods; `None`: ours.
    pub priority_class: Option<String>,
    /// Whether pods of `DaemonSets` are mapped without asking for it.
    pub maps_daemon_sets: bool,
    /// Whether P pods are put on their node by name.
    pub schedules_directly: bool,
    /// Whether the object is on its way out.
    pub is_deleting: bool,
}

/// V namespaces whose Services are mirrored into P.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceNamespaces {
    /// All that are not system namespaces.
    All,
    /// These.
    Listed(Vec<String>),
}

/// What is wrong with a binding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindingFault {
    /// Fields of other types than ours.
    #[error(
        "the object cannot be read: {0}; apply the CustomResourceDefinitions of this version (kubeocean crds)"
    )]
    Unreadable(String),
    /// The object does not come from an API server.
    #[error("metadata.{0} is empty: read the object from the API server")]
    NoIdentity(&'static str),
    /// A bad `clusterID`.
    #[error("spec.clusterID: {0}")]
    ClusterId(#[from] BadClusterId),
    /// No name or namespace of the Secret.
    #[error("spec.secretRef.{0} is empty: name the Secret that holds the kubeconfig")]
    SecretRef(&'static str),
    /// No name that a Secret or a namespace could have.
    #[error(
        "spec.secretRef.{field}: `{given}` cannot be the name of a Secret or a namespace; for example 'berlin-kubeconfig' in 'kubeocean-system'"
    )]
    SecretName {
        /// Which of the two.
        field: &'static str,
        /// What was written.
        given: String,
    },
    /// No namespace's name.
    #[error("spec.mountNamespace: `{0}` is not a namespace name; for example 'kubeocean-worker'")]
    MountNamespace(String),
    /// A namespace that Kubernetes itself lives in.
    #[error(
        "spec.mountNamespace: borrowed pods may not run in `{0}`, where Kubernetes itself lives: the lender makes a namespace for them, for \
         example 'kubeocean-worker'"
    )]
    SystemNamespace(String),
    /// Neither `*` nor a namespace's name.
    #[error("spec.serviceNamespaces[{index}]: `{given}` is neither '*' nor a namespace name")]
    ServiceNamespace {
        /// Which entry.
        index: usize,
        /// What was written.
        given: String,
    },
    /// A selector that cannot be followed.
    #[error("spec.nodeSelector.{0}")]
    Selector(SelectorError),
}

impl BindingFault {
    /// Whether a worker cluster can be given back all the same: what is to be leased there is nothing any more.
    const fn is_forgiven_who_goes(&self) -> bool {
        matches!(self, Self::Selector(_) | Self::ServiceNamespace { .. })
    }
}

/// Whether Kubernetes itself lives in a namespace: it is nobody's to lend.
pub fn is_of_kubernetes(namespace: &str) -> bool {
    namespace.starts_with("kube-")
}

impl Binding {
    /// Reads an object; every fault is named.
    pub fn parse(object: &ClusterBinding) -> Result<Self, Vec<BindingFault>> {
        match Self::read(object) {
            (Some(binding), faults) if faults.is_empty() => Ok(binding),
            (_, faults) => Err(faults),
        }
    }

    /// Reads an object, and what is wrong with it. One that is on its way out need not say right what it wants: its worker cluster is to
    /// be given back, and for that its selector means no node.
    pub fn parse_unless_it_goes(
        object: &ClusterBinding,
    ) -> (Result<Self, Vec<BindingFault>>, Vec<BindingFault>) {
        match Self::read(object) {
            (Some(binding), faults)
                if binding.is_deleting && faults.iter().all(BindingFault::is_forgiven_who_goes) =>
            {
                (Ok(binding), faults)
            }
            (Some(binding), faults) if faults.is_empty() => (Ok(binding), faults),
            (_, faults) => (Err(faults.clone()), faults),
        }
    }

    /// What one stands for that was followed and cannot be any more, to who does not know what it said before: the nodes that it has are
    /// those that it meant.
    pub(crate) fn stand_in(object: &ClusterBinding) -> Option<Self> {
        let (binding, faults) = Self::read(object);
        let mut binding = binding.filter(|_| faults.iter().all(BindingFault::is_forgiven_who_goes))?;
        if faults.iter().any(|fault| matches!(fault, BindingFault::Selector(_))) {
            binding.selector = NodeSelector::default();
        }
        Some(binding)
    }

    /// What can be made of an object, and everything that is wrong with it.
    fn read(object: &ClusterBinding) -> (Option<Self>, Vec<BindingFault>) {
        let spec = &object.spec;
        let mut faults = Vec::new();
        let mut identity = |field, value: &Option<String>| {
            let value = value.clone().unwrap_or_default();
            if value.is_empty() {
                faults.push(BindingFault::NoIdentity(field));
            }
            value
        };
        let name = identity("name", &object.metadata.name);
        let uid = identity("uid", &object.metadata.uid);
        // They become part of a path.
        let secret = &spec.secret_ref;
        let looks = [
            ("name", &secret.name, is_dns_subdomain(&secret.name)),
            ("namespace", &secret.namespace, is_dns_label(&secret.namespace)),
        ];
        for (field, given, is_right) in looks {
            if given.is_empty() {
                faults.push(BindingFault::SecretRef(field));
            } else if !is_right {
                faults.push(BindingFault::SecretName { field, given: given.clone() });
            }
        }
        if !is_dns_label(&spec.mount_namespace) {
            faults.push(BindingFault::MountNamespace(spec.mount_namespace.clone()));
        } else if is_of_kubernetes(&spec.mount_namespace) {
            faults.push(BindingFault::SystemNamespace(spec.mount_namespace.clone()));
        }
        for (index, given) in spec.service_namespaces.iter().enumerate() {
            if given != "*" && !is_dns_label(given) {
                faults.push(BindingFault::ServiceNamespace { index, given: given.clone() });
            }
        }
        let selector = NodeSelector::parse(spec.node_selector.as_ref()).unwrap_or_else(|errors| {
            faults.extend(errors.into_iter().map(BindingFault::Selector));
            NodeSelector::nothing()
        });
        let cluster_id = match ClusterId::parse(&spec.cluster_id) {
            Ok(cluster_id) => cluster_id,
            Err(error) => {
                faults.push(error.into());
                return (None, faults);
            }
        };
        let binding = Self {
            name,
            uid,
            cluster_id,
            secret_namespace: spec.secret_ref.namespace.clone(),
            secret_name: spec.secret_ref.name.clone(),
            selector,
            mount_namespace: spec.mount_namespace.clone(),
            service_namespaces: if spec.service_namespaces.iter().any(|one| one == "*") {
                ServiceNamespaces::All
            } else {
                ServiceNamespaces::Listed(spec.service_namespaces.clone())
            },
            has_default_taint: !spec.disable_node_default_taint,
            priority_class: Some(spec.pod_priority_class_name.clone()).filter(|name| !name.is_empty()),
            maps_daemon_sets: spec.running_daemonset_by_default,
            schedules_directly: spec.direct_scheduling,
            is_deleting: object.metadata.deletion_timestamp.is_some(),
        };
        (Some(binding), faults)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_binding_is_read_once() {
        let object = serde_json::from_value(json!({
            "apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding",
            "metadata": {"name": "w1", "uid": "b-1"},
            "spec": {
                "clusterID": "w1", "mountNamespace": "mount", "secretRef": {"name": "s", "namespace": "n"},
                "serviceNamespaces": ["web", "*"],
            },
        }))
        .unwrap();
        let binding = Binding::parse(&object).unwrap();
        assert_eq!(binding.cluster_id.as_str(), "w1");
        assert_eq!(binding.service_namespaces, ServiceNamespaces::All);
        assert!(binding.has_default_taint && binding.priority_class.is_none());
        assert!(binding.selector.matches("any", &crate::selector::Labels::new()));
    }

    #[test]
    fn who_goes_need_not_say_right_what_it_wants() {
        let read = |spec: serde_json::Value, deleting: bool| {
            let mut object = json!({
                "apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding",
                "metadata": {"name": "w1", "uid": "b-1"},
                "spec": {"clusterID": "w1", "mountNamespace": "mount", "secretRef": {"name": "s", "namespace": "n"}},
            });
            object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            if deleting {
                object["metadata"]["deletionTimestamp"] = "2026-11-20T08:00:00Z".into();
            }
            Binding::parse_unless_it_goes(&serde_json::from_value(object).unwrap())
        };
        let expression = json!({"key": "a", "operator": "In", "values": ["not a label!"]});
        let misspelt = json!({
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}, "serviceNamespaces": ["web", "A b"],
        });
        let (living, faults) = read(misspelt.clone(), false);
        assert_eq!((living, faults.len()), (Err(faults.clone()), 2));
        let (leaving, faults) = read(misspelt, true);
        let leaving = leaving.unwrap();
        assert_eq!((leaving.mount_namespace.as_str(), faults.len()), ("mount", 2), "said all the same");
        assert!(
            !leaving.selector.matches("any", &crate::selector::Labels::new()),
            "nothing is leased any more"
        );
        assert!(
            read(json!({"mountNamespace": "kube-system"}), true).0.is_err(),
            "nobody knows where to clear up"
        );
        assert!(read(json!({"clusterID": "A B"}), true).0.is_err());
        assert_eq!(read(json!({}), true).1, []);
    }

    #[test]
    fn every_fault_is_named() {
        let mut object = ClusterBinding::default();
        object.spec.service_namespaces = vec![String::new()];
        object.spec.node_selector = serde_json::from_value(
            json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Is"}]}]}),
        )
        .unwrap();
        let faults = Binding::parse(&object).unwrap_err();
        let messages: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(messages.len(), 8, "{messages:#?}");
        assert_eq!(messages[0], "metadata.name is empty: read the object from the API server");
        assert!(
            messages[6].starts_with("spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].operator")
        );
    }
}

//! What Kubeocean may do in a cluster, and why: the one list.
//!
//! Roles are generated from it, a worker cluster is asked about it when it is bound, and the documentation
//! prints it. A right that is not here is not granted; a call that needs one starts with a line here.
//!
//! Our door to API servers creates, patches and deletes. It never sends `update` or `deletecollection`, so nobody
//! is granted those.
//!
//! Not listed is what every identity has by default: discovery, and reviews about itself.
//!
//! Deliberately absent: objects (see [`manifest`](crate::manifest)), and asking.

mod computing;
mod worker;

use std::fmt;

use serde_json::{Value, json};

pub use computing::{Component, in_computing, own_role};
pub use worker::{WorkerWishes, in_worker};

/// Where a right holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// In the whole cluster: objects without a namespace, or those of every namespace.
    Cluster,
    /// In the namespace of a worker cluster that everything is created in.
    MountNamespace,
    /// In the namespace of the computing cluster that we are installed in.
    InstallNamespace,
    /// In this namespace of the computing cluster.
    Namespace(&'static str),
}

/// One right: verbs on a resource, and why it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// The resource, with its subresource: `pods`, `pods/log`.
    pub resource: &'static str,
    /// What may be done to it.
    pub verbs: &'static [&'static str],
    /// Names of the only objects it holds for; none: for all.
    pub names: &'static [&'static str],
    /// Where it holds.
    pub scope: Scope,
    /// Why it is needed: a clause that completes "so that we can …".
    pub why: &'static str,
}

impl Right {
    const fn new(
        scope: Scope,
        group: &'static str,
        resource: &'static str,
        verbs: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self { group, resource, verbs, names: &[], scope, why }
    }

    const fn named(mut self, names: &'static [&'static str]) -> Self {
        self.names = names;
        self
    }

    /// One question for each verb and name. `namespace` is the one that the scope leaves open: the mount
    /// namespace of a worker cluster, the install namespace of the computing cluster.
    pub fn questions(&self, namespace: &str) -> Vec<Question> {
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource)),
            None => (self.resource, None),
        };
        let namespace = match self.scope {
            Scope::Cluster => None,
            Scope::MountNamespace | Scope::InstallNamespace => Some(namespace),
            Scope::Namespace(fixed) => Some(fixed),
        };
        let names: Vec<_> = match self.names {
            [] => vec![None],
            names => names.iter().copied().map(Some).collect(),
        };
        let question = |verb, name| Question {
            verb,
            group: self.group,
            resource,
            subresource,
            namespace: namespace.map(str::to_owned),
            name,
        };
        names.iter().flat_map(|name| self.verbs.iter().map(move |verb| question(verb, *name))).collect()
    }
}

/// One question for a `SelfSubjectAccessReview`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Question {
    /// What would be done.
    pub verb: &'static str,
    /// API group; empty for the core group.
    pub group: &'static str,
    /// The resource, without its subresource.
    pub resource: &'static str,
    /// The subresource.
    pub subresource: Option<&'static str>,
    /// The namespace; `None`: in the whole cluster.
    pub namespace: Option<String>,
    /// The name of the object; `None`: of any.
    pub name: Option<&'static str>,
}

impl Question {
    /// The body of a `SelfSubjectAccessReview`.
    pub fn review(&self) -> Value {
        let mut attributes = json!({ "verb": self.verb, "group": self.group, "resource": self.resource });
        let optional = [
            ("subresource", self.subresource),
            ("namespace", self.namespace.as_deref()),
            ("name", self.name),
        ];
        for (field, value) in optional {
            if let Some(value) = value {
                attributes[field] = value.into();
            }
        }
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": attributes },
        })
    }
}

impl fmt::Display for Question {
    /// As people say it: `create pods/exec in namespace kubeocean-worker`, `list nodes cluster-wide`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(subresource) = self.subresource {
            write!(f, "/{subresource}")?;
        }
        if let Some(name) = self.name {
            write!(f, " {name}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => f.write_str(" cluster-wide"),
        }
    }
}

/// The rights as `PolicyRule`s, in their order. Resources that may be treated alike share a rule. Scopes are not
/// looked at: a Role has only one.
pub fn rules(rights: &[Right]) -> Vec<Value> {
    let mut merged: Vec<(Right, Vec<&'static str>)> = Vec::new();
    for right in rights {
        let alike = merged.iter_mut().find(|(first, _)| {
            (first.group, first.verbs, first.names) == (right.group, right.verbs, right.names)
        });
        match alike {
            Some((_, resources)) if resources.contains(&right.resource) => {}
            Some((_, resources)) => resources.push(right.resource),
            None => merged.push((*right, vec![right.resource])),
        }
    }
    merged
        .into_iter()
        .map(|(right, resources)| rule(right.group, &resources, right.names, right.verbs))
        .collect()
}

fn rule(group: &str, resources: &[&str], names: &[&str], verbs: &[&str]) -> Value {
    let mut rule = json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
    if !names.is_empty() {
        rule["resourceNames"] = names.into();
    }
    rule
}

/// To know what is there.
const READ: &[&str] = &["get", "list", "watch"];
/// To make objects and keep them right.
const KEEP: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];
/// To change a part of what is there.
const PATCH: &[&str] = &["patch"];
/// To make objects, or to ask.
const CREATE: &[&str] = &["create"];
/// To tell people. An Event that comes again is counted up.
const TELL: &[&str] = &["create", "patch"];

/// API groups that have more than one line.
mod groups {
    pub(super) const CORE: &str = "";
    pub(super) const COORDINATION: &str = "coordination.k8s.io";
    pub(super) const DISCOVERY: &str = "discovery.k8s.io";
    pub(super) const STORAGE: &str = "storage.k8s.io";
    pub(super) const SCHEDULING: &str = "scheduling.k8s.io";
    pub(super) const CERTIFICATES: &str = "certificates.k8s.io";
    pub(super) const RBAC: &str = "rbac.authorization.k8s.io";
    pub(super) const OURS: &str = kubeocean_api::GROUP;
}

#[cfg(test)]
mod tests;

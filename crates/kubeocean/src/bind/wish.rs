//! What is asked for, and the two objects that say so: a Secret and a `ClusterBinding`.
//!
//! A binding that is there already keeps what the command line does not name.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubeocean_api::keys::labels::{CLUSTER_BINDING, MANAGED_BY, MANAGED_BY_VALUE};
use kubeocean_api::keys::names::{
    INSTALL_NAMESPACE, KUBECONFIG_KEY, KUBECONFIG_SECRET_SUFFIX, WORKER_NAMESPACE,
};
use kubeocean_model::action::{Action, Kind, PatchForm, Verb, kinds};
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::naming::ClusterId;
use kubeocean_model::object::{Meta, Object};
use serde_json::{Value, json};

use super::Args;
use crate::computing::CLI;
use crate::exit::Senseless;

/// What stands for the kubeconfig where it is not to be seen.
const REDACTED: &str = "(not shown: --show-secrets shows it)";

/// One binding, as it is to be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wish {
    pub(super) name: String,
    pub(super) cluster_id: String,
    pub(super) mount_namespace: String,
    pub(super) secret: Key<Virtual>,
    node_selector: Option<Value>,
    service_namespaces: Option<Value>,
}

/// How a wish and a binding that is there already go together.
#[derive(Debug, PartialEq)]
pub(super) enum Change {
    /// There is none yet.
    New,
    /// It says the same.
    None,
    /// These fields change.
    Of(Vec<&'static str>),
    /// This cannot be changed; what it is, and the flag that says otherwise.
    Impossible { field: &'static str, is: String, flag: &'static str },
}

impl Wish {
    /// What the command line asks for.
    pub(super) fn of(args: &Args) -> anyhow::Result<Self> {
        let cluster_id = match &args.cluster_id {
            Some(given) => given.clone(),
            None => match ClusterId::parse(&args.name) {
                Ok(id) => id.as_str().to_owned(),
                Err(error) => {
                    let why = format!(
                        "{} cannot be the clusterID too ({error}): give one with --cluster-id",
                        args.name
                    );
                    return Err(Senseless(why).into());
                }
            },
        };
        let namespace = args.namespace.as_deref().unwrap_or(INSTALL_NAMESPACE);
        let expressions: Vec<Value> = args
            .node_selector
            .iter()
            .map(|(key, value)| json!({ "key": key, "operator": "In", "values": [value] }))
            .collect();
        let node_selector = (!expressions.is_empty())
            .then(|| json!({ "nodeSelectorTerms": [{ "matchExpressions": expressions }] }));
        Ok(Self {
            name: args.name.clone(),
            cluster_id,
            mount_namespace: args.mount_namespace.clone().unwrap_or_else(|| WORKER_NAMESPACE.to_owned()),
            secret: Key::new(namespace, format!("{}{KUBECONFIG_SECRET_SUFFIX}", args.name)),
            node_selector,
            service_namespaces: (!args.service_namespaces.is_empty())
                .then(|| args.service_namespaces.clone().into()),
        })
    }

    /// What the binding that is there says is kept, where the command line says nothing.
    pub(super) fn keep(&mut self, existing: &Object, args: &Args) {
        let spec: Value = existing.field("spec").ok().flatten().unwrap_or_default();
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        if let (None, Some(id)) = (&args.cluster_id, text(&spec["clusterID"])) {
            self.cluster_id = id;
        }
        if let (None, Some(namespace)) = (&args.mount_namespace, text(&spec["mountNamespace"])) {
            self.mount_namespace = namespace;
        }
        let secret = (text(&spec["secretRef"]["namespace"]), text(&spec["secretRef"]["name"]));
        if let (None, (Some(namespace), Some(name))) = (&args.namespace, secret) {
            self.secret = Key::new(namespace, name);
        }
        for (wanted, field) in
            [(&mut self.node_selector, "nodeSelector"), (&mut self.service_namespaces, "serviceNamespaces")]
        {
            if wanted.is_none() {
                *wanted = Some(spec[field].clone()).filter(|value| !value.is_null());
            }
        }
    }

    /// What would become of a binding that is there.
    pub(super) fn change(&self, existing: Option<&Object>) -> Change {
        let Some(existing) = existing else { return Change::New };
        let is: Value = existing.field("spec").ok().flatten().unwrap_or_default();
        for (field, flag) in [("clusterID", "--cluster-id"), ("mountNamespace", "--mount-namespace")] {
            let wanted = if field == "clusterID" { &self.cluster_id } else { &self.mount_namespace };
            if is[field] != wanted.as_str() {
                let is = is[field].as_str().unwrap_or_default().to_owned();
                return Change::Impossible { field, is, flag };
            }
        }
        let wanted = self.spec();
        let fields: Vec<_> = ["secretRef", "nodeSelector", "serviceNamespaces"]
            .into_iter()
            .filter(|field| wanted[field] != is[field])
            .collect();
        if fields.is_empty() { Change::None } else { Change::Of(fields) }
    }

    fn spec(&self) -> Value {
        let mut spec = json!({
            "clusterID": self.cluster_id,
            "mountNamespace": self.mount_namespace,
            "secretRef": { "namespace": &*self.secret.namespace, "name": &*self.secret.name },
        });
        for (field, value) in
            [("nodeSelector", &self.node_selector), ("serviceNamespaces", &self.service_namespaces)]
        {
            if let Some(value) = value {
                spec[field] = value.clone();
            }
        }
        spec
    }

    pub(super) fn key(&self) -> Key<Virtual> {
        Key::cluster_scoped(self.name.as_str())
    }

    /// Writes the kubeconfig into its Secret.
    pub(super) fn write_secret(&self, kubeconfig: &[u8]) -> Action {
        let body = self.secret_body(&STANDARD.encode(kubeconfig));
        apply(kinds::SECRET, &self.secret, body, "the kubeconfig of a worker cluster to bind")
    }

    /// Writes the binding, if it still is the one that was looked at.
    pub(super) fn write_binding(&self, existing: Option<&Object>) -> Action {
        let action =
            apply(kinds::BINDING, &self.key(), json!({ "spec": self.spec() }), "a worker cluster to bind");
        match existing {
            Some(existing) => action.if_uid(&*existing.meta.uid),
            None => action,
        }
    }

    fn secret_body(&self, encoded: &str) -> Value {
        json!({
            "metadata": { "labels": { MANAGED_BY: MANAGED_BY_VALUE, CLUSTER_BINDING: self.name } },
            "type": "Opaque",
            "data": { KUBECONFIG_KEY: encoded },
        })
    }

    /// Both objects, as they would be written.
    pub(super) fn objects(&self, kubeconfig: Option<&[u8]>) -> [Value; 2] {
        let encoded = kubeconfig.map_or_else(|| REDACTED.to_owned(), |bytes| STANDARD.encode(bytes));
        let secret = whole(&kinds::SECRET, &self.secret, self.secret_body(&encoded));
        let binding = whole(&kinds::BINDING, &self.key(), json!({ "spec": self.spec() }));
        [secret, binding]
    }
}

/// Whether `kubeocean bind` made this Secret, for this binding.
pub(crate) fn is_made_by_bind(secret: &Meta, binding: &str) -> bool {
    secret.labels.get(MANAGED_BY) == Some(MANAGED_BY_VALUE)
        && secret.labels.get(CLUSTER_BINDING) == Some(binding)
}

/// What whoever runs the command asks for, they get: fields are taken from others.
fn apply(kind: Kind, key: &Key<Virtual>, body: Value, why: &'static str) -> Action {
    let form = PatchForm::Apply { manager: CLI.into(), force: true };
    Action::new(kind, key, Verb::Patch { form, subresource: None, body }, why)
}

fn whole(kind: &Kind, key: &Key<Virtual>, body: Value) -> Value {
    let mut object = json!({
        "apiVersion": kind.api_version(), "kind": &*kind.kind, "metadata": { "name": &*key.name },
    });
    if !key.namespace.is_empty() {
        object["metadata"]["namespace"] = (&*key.namespace).into();
    }
    let Value::Object(fields) = body else { return object };
    for (field, value) in fields {
        match (field.as_str(), value) {
            ("metadata", Value::Object(more)) => {
                for (name, value) in more {
                    object["metadata"][name] = value;
                }
            }
            (_, value) => object[field] = value,
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(line: &str) -> Box<Args> {
        let words = format!("kubeocean bind berlin --worker-kubeconfig f {line}");
        match Cli::try_parse_from(words.split_whitespace()).unwrap().command {
            Command::Bind(args) => args,
            other => panic!("{other:?}"),
        }
    }

    fn existing(spec: &Value) -> Object {
        Object::from_value(json!({ "metadata": { "name": "berlin", "uid": "b-1" }, "spec": spec })).unwrap()
    }

    #[test]
    fn what_is_not_named_stays_as_it_is() {
        let there = existing(&json!({
            "clusterID": "b", "mountNamespace": "m", "secretRef": { "namespace": "n", "name": "s" },
            "serviceNamespaces": ["web"], "directScheduling": true,
        }));
        let again = |line: &str| {
            let args = args(line);
            let mut wish = Wish::of(&args).unwrap();
            wish.keep(&there, &args);
            wish.change(Some(&there))
        };
        assert_eq!(again(""), Change::None);
        assert_eq!(again("--service-namespaces web"), Change::None);
        assert_eq!(again("--service-namespaces web,db"), Change::Of(vec!["serviceNamespaces"]));
        assert_eq!(again("--node-selector lend=yes"), Change::Of(vec!["nodeSelector"]));
        let fixed = Change::Impossible { field: "clusterID", is: "b".into(), flag: "--cluster-id" };
        assert_eq!(again("--cluster-id berlin"), fixed);
    }

    #[test]
    fn a_name_that_is_no_cluster_id_needs_one() {
        let mut long = args("");
        long.name = "a-cluster-with-a-name-of-27".to_owned();
        let error = Wish::of(&long).unwrap_err();
        assert!(error.downcast_ref::<Senseless>().is_some() && error.to_string().contains("--cluster-id"));
        long.cluster_id = Some("short".to_owned());
        assert_eq!(Wish::of(&long).unwrap().cluster_id, "short");
    }

    #[test]
    fn a_kubeconfig_is_shown_only_when_asked_for() {
        let wish = Wish::of(&args("--node-selector lend=yes,zone=a")).unwrap();
        let [secret, binding] = wish.objects(None);
        assert_eq!(secret["data"][KUBECONFIG_KEY], REDACTED);
        assert_eq!(secret["metadata"]["namespace"], INSTALL_NAMESPACE);
        assert_eq!(
            binding["spec"]["nodeSelector"]["nodeSelectorTerms"][0]["matchExpressions"][1],
            json!({ "key": "zone", "operator": "In", "values": ["a"] })
        );
        assert_eq!(wish.objects(Some(b"x"))[0]["data"][KUBECONFIG_KEY], "eA==");
    }
}

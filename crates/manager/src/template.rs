//! The objects that run a syncer and a proxier, from templates.
//!
//! Templates are YAML with [minijinja](https://docs.rs/minijinja) in it, one directory per role, built in or from
//! `KUBEOCEAN_{SYNCER,PROXIER}_TEMPLATE_DIR`. A variable that does not exist is an error, and so is a kind that the manager
//! does not watch. `values.yaml` beside the templates sets what most people want to set: [`Values`].
//!
//! What makes an object ours (labels, owner, hash) is added here and cannot be left out by a template.

mod size;
mod source;

use kubeocean_api::keys::annotations::{SIZE_CLASS, TEMPLATE_HASH};
use kubeocean_api::keys::labels;
use kubeocean_model::action::kinds;
use kubeocean_model::bind::{CHILD_KINDS, Child, Role, TemplateFault};
use kubeocean_model::binding::Binding;
use kubeocean_model::rights::{Component, own_role};
use minijinja::{AutoEscape, Environment, UndefinedBehavior, context};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

pub use size::SizeClass;
pub use source::{Autoscaling, Source, SourceError, Templates, Values};

/// What all bindings of an installation have in common.
#[derive(Clone, Debug)]
pub struct Installation {
    /// The namespace of the manager, and of everything it makes.
    pub namespace: String,
    /// Uid of V's `kube-system`.
    pub virtual_cluster_uid: String,
    /// The image of syncers and proxiers, where `values.yaml` names none.
    pub image: String,
    /// `cluster.local`, mostly.
    pub cluster_domain: String,
}

/// What a binding's objects depend on.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// The binding.
    pub binding: &'a Binding,
    /// How large its workers are.
    pub size: SizeClass,
    /// Whether the binding owns its objects. It does not while it is deleted: a foreground deletion would take its syncer
    /// away before its work is done.
    pub owned: bool,
}

impl Templates {
    /// All objects of a binding.
    pub fn render(&self, installation: &Installation, wish: &Wish<'_>) -> Result<Vec<Child>, TemplateFault> {
        let mut made: Vec<(Child, String)> = Vec::new();
        for role in Role::ALL {
            let source = self.of(role);
            for (file, text) in &source.files {
                let place = source.place(file);
                let fault = |message: String| TemplateFault { role, message: format!("{place}: {message}") };
                let rendered = fill_in(text, file, role, source, installation, wish).map_err(fault)?;
                for body in documents(&rendered).map_err(fault)? {
                    made.push((finish(role, body, installation, wish).map_err(fault)?, place.clone()));
                }
            }
        }
        for role in Role::ALL {
            if !made.iter().any(|(child, _)| child.role == role && child.kind == kinds::DEPLOYMENT) {
                let source = self.of(role);
                let files: Vec<String> = source.files.keys().map(|file| source.place(file)).collect();
                let message = format!(
                    "{}: the templates of the {role} make no Deployment: nothing would run",
                    files.join(", ")
                );
                return Err(TemplateFault { role, message });
            }
        }
        // What others need comes first.
        let rank = |child: &Child| CHILD_KINDS.iter().position(|kind| *kind == child.kind);
        made.sort_by_key(|(child, _)| (child.role == Role::Syncer, rank(child)));
        let same =
            |a: &Child, b: &Child| (&a.kind, &a.namespace, &a.name) == (&b.kind, &b.namespace, &b.name);
        for (index, (child, place)) in made.iter().enumerate() {
            if let Some((_, other)) = made[..index].iter().find(|(earlier, _)| same(earlier, child)) {
                let also = if other == place { String::new() } else { format!(", also by {other}") };
                let message = format!(
                    "{place}: {} {} is made twice{also}: give each its own name",
                    child.kind.kind, child.name
                );
                return Err(TemplateFault { role: child.role, message });
            }
        }
        Ok(made.into_iter().map(|(child, _)| child).collect())
    }
}

fn fill_in(
    text: &str,
    file: &str,
    role: Role,
    source: &Source,
    installation: &Installation,
    wish: &Wish<'_>,
) -> Result<String, String> {
    if let Some((line, go)) = go_template(text) {
        return Err(format!(
            "line {line}: `{go}` is a Go template: write the variables of docs/templates.md instead, \
             {{{{ cluster_id }}}} for {{{{ .ClusterID }}}}"
        ));
    }
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // Quoted strings could not be parts of longer ones. What is filled in was checked by its parser.
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    let words = |error: &minijinja::Error| {
        let line = error.line().map_or_else(String::new, |line| format!("line {line}: "));
        let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
        format!("{line}{detail}")
    };
    environment.add_template(file, text).map_err(|error| words(&error))?;
    let template = environment.get_template(file).map_err(|error| words(&error))?;
    let Values { image, image_pull_policy, replicas, resources, tolerations, priority_class, autoscaling } =
        &source.values;
    let Binding { name, uid, cluster_id, secret_namespace, secret_name, mount_namespace, .. } = wish.binding;
    template
        .render(context! {
            binding => name,
            binding_uid => uid,
            cluster_id => cluster_id.as_str(),
            name => if role == Role::Syncer { cluster_id.syncer() } else { cluster_id.proxier() },
            namespace => installation.namespace,
            mount_namespace,
            secret_namespace,
            secret_name,
            cluster_domain => installation.cluster_domain,
            image => image.as_deref().unwrap_or(&installation.image),
            image_pull_policy => image_pull_policy.as_deref().unwrap_or("IfNotPresent"),
            replicas => replicas.unwrap_or(2),
            size => wish.size.as_str(),
            resources => resources.clone().unwrap_or_else(|| wish.size.resources()),
            tolerations => tolerations.clone().unwrap_or_default(),
            priority_class => priority_class.as_deref().unwrap_or_default(),
            autoscaling,
            rules => own_rules(role, installation, wish.binding),
        })
        .map_err(|error| words(&error))
}

/// What the Role of a syncer or proxier says.
fn own_rules(role: Role, installation: &Installation, binding: &Binding) -> Vec<Value> {
    let component = match role {
        Role::Syncer => Component::Syncer,
        Role::Proxier => Component::Proxier,
    };
    // A Secret elsewhere is for its owner to show.
    let secret = Some(&*binding.secret_name).filter(|_| binding.secret_namespace == installation.namespace);
    own_role(component, binding.cluster_id.as_str(), secret.as_slice())
}

/// The first place that looks like `{{ .Name }}`.
fn go_template(text: &str) -> Option<(usize, &str)> {
    text.lines().enumerate().find_map(|(number, line)| {
        let start = line.find("{{")?;
        let inner = line[start + 2..].trim_start_matches('-').trim_start();
        let is_go = inner.starts_with('.') || inner.starts_with('$') || inner.starts_with("range ");
        let end = line[start..].find("}}").map_or(line.len(), |end| start + end + 2);
        is_go.then(|| (number + 1, &line[start..end]))
    })
}

/// The YAML documents of a rendered template; empty ones are left out.
fn documents(text: &str) -> Result<Vec<Value>, String> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
        let line = error.location().map_or_else(String::new, |at| format!("line {} of ", at.line()));
        format!("{line}what it renders is not YAML: {}", one_line(&error.to_string()))
    })?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Checks a document, and makes it ours.
fn finish(
    role: Role,
    mut body: Value,
    installation: &Installation,
    wish: &Wish<'_>,
) -> Result<Child, String> {
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let (api_version, kind_name) =
        (text("/apiVersion").unwrap_or_default(), text("/kind").unwrap_or_default());
    let kind =
        CHILD_KINDS.into_iter().find(|kind| kind.api_version() == api_version && kind.kind == kind_name);
    let Some(kind) = kind else {
        let known: Vec<String> =
            CHILD_KINDS.iter().map(|kind| format!("{}/{}", kind.api_version(), kind.kind)).collect();
        return Err(format!(
            "{api_version}/{kind_name} cannot be made by a template: only {}",
            known.join(", ")
        ));
    };
    let Some(name) = text("/metadata/name").filter(|name| !name.is_empty()) else {
        return Err(format!("a {kind_name} without metadata.name: name it"));
    };
    let namespace = text("/metadata/namespace");
    if namespace.as_ref().is_some_and(|namespace| !kind.namespaced || *namespace != installation.namespace) {
        return Err(format!(
            "{kind_name} {name}: leave metadata.namespace out, everything is made in {}",
            installation.namespace
        ));
    }
    if !body["metadata"].is_object() || !body["metadata"]["ownerReferences"].is_null() {
        return Err(format!(
            "{kind_name} {name}: leave metadata.ownerReferences out, the binding is the owner"
        ));
    }
    if let Some(pod) = body.pointer_mut("/spec/template/spec").filter(|_| kind == kinds::DEPLOYMENT) {
        keep_off_virtual_nodes(pod);
    }
    let hash = hash_of(&body);
    let Binding { name: binding, uid, .. } = wish.binding;
    let stamp = [
        (labels::MANAGED_BY, labels::MANAGED_BY_VALUE),
        (labels::BINDING_UID, uid),
        (labels::VIRTUAL_CLUSTER_UID, &installation.virtual_cluster_uid),
        (labels::CLUSTER_BINDING, binding),
        (labels::COMPONENT, role.as_str()),
    ];
    put(&mut body["metadata"]["labels"], &stamp);
    put(&mut body["metadata"]["annotations"], &[(TEMPLATE_HASH, &hash), (SIZE_CLASS, wish.size.as_str())]);
    if kind == kinds::DEPLOYMENT && !body["spec"]["template"]["metadata"].is_object() {
        return Err(format!("{kind_name} {name}: spec.template.metadata is missing: its pods need labels"));
    }
    if kind == kinds::DEPLOYMENT {
        // Its pods are found by whom they serve.
        put(&mut body["spec"]["template"]["metadata"]["labels"], &stamp[1..]);
    }
    if wish.owned {
        body["metadata"]["ownerReferences"] = json!([{
            "apiVersion": kinds::BINDING.api_version(), "kind": kinds::BINDING.kind, "name": binding, "uid": uid,
            "controller": true, "blockOwnerDeletion": false,
        }]);
    }
    if let Some(metadata) = body["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
    let namespace = if kind.namespaced { installation.namespace.clone() } else { String::new() };
    Ok(Child { role, kind, namespace, name, body })
}

/// A syncer on its own virtual node would wait for itself. Every way to a node gets the condition that it is a real one.
fn keep_off_virtual_nodes(pod: &mut Value) {
    let expression =
        json!({"key": labels::TYPE, "operator": "NotIn", "values": [labels::TYPE_VIRTUAL_KUBELET]});
    let path =
        ["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"];
    // What has another form is refused by the API server, in its own words.
    let Some(terms) = descend(pod, &path) else { return };
    if terms.is_null() || terms.as_array().is_some_and(Vec::is_empty) {
        *terms = json!([{}]);
    }
    for term in terms.as_array_mut().into_iter().flatten() {
        let Some(expressions) = descend(term, &["matchExpressions"]) else { continue };
        if expressions.is_null() {
            *expressions = json!([]);
        }
        if let Some(expressions) = expressions.as_array_mut().filter(|all| !all.contains(&expression)) {
            expressions.push(expression.clone());
        }
    }
}

/// A field of a field, made where it is missing; `None` where something else is in the way.
fn descend<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |at, field| {
        if at.is_null() {
            *at = json!({});
        }
        Some(at.as_object_mut()?.entry(*field).or_insert(Value::Null))
    })
}

fn put(map: &mut Value, entries: &[(&str, &str)]) {
    if !map.is_object() {
        *map = Value::Object(Map::new());
    }
    for (key, value) in entries {
        map[*key] = (*value).into();
    }
}

/// Sixteen digits tell any two wishes of one object apart.
fn hash_of(body: &Value) -> String {
    let digest = Sha256::digest(body.to_string().as_bytes());
    let first = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{first:016x}")
}

#[cfg(test)]
mod tests;

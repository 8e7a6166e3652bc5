//! Paths and queries. Names come from tenants: none may reach beyond its place.

use kubeocean_model::action::Kind;
use kubeocean_model::escape::escaped;

/// The path of a collection; of all namespaces where `namespace` is empty.
pub(crate) fn collection_path(kind: &Kind, namespace: &str) -> String {
    let namespace = escaped(namespace);
    kind.collection_path((!namespace.is_empty()).then_some(&namespace))
}

/// The path of an object or of one of its subresources.
pub(crate) fn object_path(kind: &Kind, namespace: &str, name: &str, subresource: Option<&str>) -> String {
    let mut path = format!("{}/{}", collection_path(kind, namespace), escaped(name));
    if let Some(subresource) = subresource {
        path.push('/');
        path.push_str(subresource);
    }
    path
}

/// The part of a path after `?`.
#[derive(Default)]
pub(crate) struct Query(String);

impl Query {
    pub(crate) fn add(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.0.push(if self.0.is_empty() { '?' } else { '&' });
            self.0.push_str(name);
            self.0.push('=');
            self.0.push_str(&escaped(value));
        }
    }
}

impl std::fmt::Display for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

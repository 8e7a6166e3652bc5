//! Kubeconfigs as text: one user, one or many clusters, all credentials inside.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::pki::Identity;

/// How to reach one cluster as one user.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    /// Name of cluster, context and user.
    pub(crate) name: String,
    pub(crate) server: String,
    pub(crate) authority_pem: String,
    pub(crate) identity: Identity,
}

/// A kubeconfig with one context per entry; the first is the current one.
pub(crate) fn render(entries: &[Access]) -> String {
    let each = |part: fn(&Access) -> String| entries.iter().map(part).collect::<String>();
    let clusters = each(|Access { name, server, authority_pem, .. }| {
        let authority = STANDARD.encode(authority_pem);
        format!(
            "- name: {name}\n  cluster:\n    server: {server}\n    certificate-authority-data: {authority}\n"
        )
    });
    let contexts = each(|Access { name, .. }| {
        format!("- name: {name}\n  context:\n    cluster: {name}\n    user: {name}\n")
    });
    let users = each(|Access { name, identity, .. }| {
        let certificate = STANDARD.encode(&identity.certificate_pem);
        let key = STANDARD.encode(&identity.key_pem);
        format!(
            "- name: {name}\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n"
        )
    });
    let current = entries.first().map_or("", |entry| entry.name.as_str());
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: {current}\nclusters:\n{clusters}contexts:\n{contexts}users:\n{users}"
    )
}

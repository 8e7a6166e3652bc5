//! What a pod is called, and which names it can resolve.
//!
//! Its host name is the V pod's. Its `subdomain` is not kept: P's kubelet would make a domain of it that ends in the mount
//! namespace, which no DNS knows, and `hostname -f` would say that. Without it, `hostname -f` says the short name; in V's DNS the pod
//! has its whole name, as before. A pod whose host name is to be the whole name (`setHostnameAsFQDN`) gets the true one.
//!
//! Names of Services are resolved twice: from `/etc/hosts`, as they were when the pod started, and by V's DNS where it is known.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::environment::address;
use super::{Computing, ServiceEntry, is_true, items, text};
use crate::naming::{is_dns_label, is_dns_subdomain};
use crate::object::Object;

/// A DNS label has so many characters.
const LABEL_LENGTH: usize = 63;

/// A host name has so many in Linux, and `hostnameOverride` in Kubernetes.
const HOSTNAME_LENGTH: usize = 64;

/// So many lines of ours does a pod get in its `/etc/hosts`; who has more Services needs DNS.
const MOST_HOSTS: usize = 64;

/// What Kubernetes accepts in a `dnsConfig`.
const MOST_NAMESERVERS: usize = 3;
const MOST_SEARCHES: usize = 32;
const LONGEST_SEARCHES: usize = 2048;

/// Where the name of a Service ends, if nobody said otherwise.
const DEFAULT_DOMAIN: &str = "cluster.local";

/// Edits host name, hosts and DNS.
pub(super) fn edit(spec: &mut Map<String, Value>, pod: &Object, computing: &Computing) {
    let domain = if computing.cluster_domain.is_empty() { DEFAULT_DOMAIN } else { &computing.cluster_domain };
    let namespace = &*pod.meta.namespace;
    let is_on_the_host = is_true(spec, "hostNetwork");
    name(spec, &pod.meta.name, namespace, domain, is_on_the_host);
    if !is_on_the_host {
        add_hosts(spec, namespace, domain, computing);
    }
    resolve(spec, namespace, domain, computing, is_on_the_host);
}

fn name(spec: &mut Map<String, Value>, pod: &str, namespace: &str, domain: &str, is_on_the_host: bool) {
    let own = text(spec, "hostname").map_or_else(|| label(pod), str::to_owned);
    let subdomain = spec.remove("subdomain");
    let wants_whole_name = is_true(spec, "setHostnameAsFQDN");
    spec.remove("setHostnameAsFQDN");
    let subdomain = subdomain.as_ref().and_then(Value::as_str).filter(|subdomain| !subdomain.is_empty());
    if let (true, Some(subdomain), false) = (wants_whole_name, subdomain, is_on_the_host) {
        let whole = format!("{own}.{subdomain}.{namespace}.svc.{domain}");
        if whole.len() <= HOSTNAME_LENGTH && is_dns_subdomain(&whole) {
            spec.insert("hostnameOverride".to_owned(), whole.into());
        }
    }
    spec.insert("hostname".to_owned(), own.into());
}

/// A pod's name as a host name. It may be longer, and have dots.
fn label(name: &str) -> String {
    let name = name.replace('.', "-");
    let end = name.char_indices().nth(LABEL_LENGTH).map_or(name.len(), |(at, _)| at);
    let label = name.get(..end).unwrap_or_default().trim_end_matches('-').to_owned();
    if is_dns_label(&label) { label } else { "pod".to_owned() }
}

/// Lines of `/etc/hosts`: the API server and Services, after the pod's own lines, and without names that the pod itself defines.
fn add_hosts(spec: &mut Map<String, Value>, namespace: &str, domain: &str, computing: &Computing) {
    if spec.get("hostAliases").is_some_and(|own| !own.is_array() && !own.is_null()) {
        return;
    }
    let own: BTreeSet<String> = items(spec, "hostAliases")
        .filter_map(|alias| alias.get("hostnames")?.as_array())
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let api_server = computing.api_server.as_ref().map(|(host, _)| ServiceEntry {
        namespace: "default".to_owned(),
        name: "kubernetes".to_owned(),
        cluster_ip: Some(host.clone()),
        ports: Vec::new(),
    });
    let is_known = |service: &&ServiceEntry| {
        api_server
            .as_ref()
            .is_none_or(|one| (&one.namespace, &one.name) != (&service.namespace, &service.name))
    };
    // The pod's own namespace first: if there are too many, those are the ones to know.
    let (near, far): (Vec<_>, Vec<_>) =
        computing.services.iter().filter(is_known).partition(|service| service.namespace == namespace);
    let line = |service: &ServiceEntry| {
        let address: IpAddr = address(service)?.parse().ok()?;
        let ServiceEntry { namespace: its, name, .. } = service;
        let whole = [
            name.clone(),
            format!("{name}.{its}"),
            format!("{name}.{its}.svc"),
            format!("{name}.{its}.svc.{domain}"),
        ];
        let names: Vec<&String> = whole
            .iter()
            .skip(usize::from(its != namespace))
            .filter(|name| is_dns_subdomain(name) && !own.contains(*name))
            .collect();
        (!names.is_empty()).then(|| json!({"ip": address.to_string(), "hostnames": names}))
    };
    let lines: Vec<Value> =
        api_server.iter().chain(near).chain(far).filter_map(line).take(MOST_HOSTS).collect();
    if lines.is_empty() {
        return;
    }
    match spec.get_mut("hostAliases") {
        Some(Value::Array(aliases)) => aliases.extend(lines),
        _ => drop(spec.insert("hostAliases".to_owned(), lines.into())),
    }
}

/// Resolves by V's DNS what P's kubelet would resolve by P's.
fn resolve(
    spec: &mut Map<String, Value>,
    namespace: &str,
    domain: &str,
    computing: &Computing,
    is_on_the_host: bool,
) {
    let servers: Vec<String> =
        computing.dns.iter().filter(|server| server.parse::<IpAddr>().is_ok()).cloned().collect();
    // On the host's network, `ClusterFirst` means the host's DNS.
    let by_cluster = match spec.get("dnsPolicy").and_then(Value::as_str) {
        None | Some("" | "ClusterFirst") => !is_on_the_host,
        Some(policy) => policy == "ClusterFirstWithHostNet",
    };
    if servers.is_empty() || !by_cluster {
        return;
    }
    let searches = [format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.to_owned()];
    let mut config = match spec.remove("dnsConfig") {
        Some(Value::Object(config)) => config,
        _ => Map::new(),
    };
    let nameservers = merged(servers, config.get("nameservers"));
    config.insert("nameservers".to_owned(), nameservers.into_iter().take(MOST_NAMESERVERS).collect());
    let mut length = 0;
    let fits = |search: &String| {
        length += search.len() + 1;
        length <= LONGEST_SEARCHES + 1
    };
    let searches = merged(searches.to_vec(), config.get("searches"));
    let searches: Value = searches.into_iter().take(MOST_SEARCHES).take_while(fits).collect();
    config.insert("searches".to_owned(), searches);
    let mut options = vec![json!({"name": "ndots", "value": "5"})];
    if let Some(Value::Array(own)) = config.remove("options") {
        options.retain(|option| own.iter().all(|one| one["name"] != option["name"]));
        options.extend(own);
    }
    config.insert("options".to_owned(), options.into());
    spec.insert("dnsPolicy".to_owned(), "None".into());
    spec.insert("dnsConfig".to_owned(), config.into());
}

/// Ours, then the pod's own that are not among them.
fn merged(ours: Vec<String>, own: Option<&Value>) -> Vec<String> {
    let mut all = ours;
    for one in own.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if !all.iter().any(|known| known == one) {
            all.push(one.to_owned());
        }
    }
    all
}

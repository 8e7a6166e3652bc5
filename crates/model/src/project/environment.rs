//! The variables of containers: what a kubelet of the computing cluster would have set.
//!
//! A kubelet sets variables for the Services of a pod's namespace, and for the API server always. P's kubelet would do so with P's
//! Services, so the twin is told not to (`enableServiceLinks: false`) and gets V's as plain values, before its own. That keeps two
//! things: what a container sets itself wins, and `$(NAME)` in a value means what it meant.
//!
//! One thing is lost: a variable that comes from `envFrom` does not win over one of a Service with the same name.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv6Addr;

use serde_json::{Map, Value, json};

use super::metadata::{self, Metadata};
use super::{CONTAINERS, Computing, ServiceEntry, Surroundings, inner_mut, items, items_mut, text};
use crate::object::{Object, Pairs};

/// An API server takes objects of a megabyte and a half. A namespace with very many Services, in a pod of very many containers,
/// must not make the twin too large to exist: beyond this, only the newer half of the variables is set, then only the API server's.
const LARGEST_ENVIRONMENT: usize = 256 * 1024;

/// The API server, as every pod knows it.
const API_SERVER: (&str, &str) = ("default", "kubernetes");

/// Edits the variables of all containers.
pub(super) fn edit(
    spec: &mut Map<String, Value>,
    pod: &Object,
    around: &Surroundings<'_>,
    metadata: &Metadata,
) {
    let has_links = spec.get("enableServiceLinks").and_then(Value::as_bool).unwrap_or(true);
    let containers = CONTAINERS.iter().map(|field| items(spec, field).count()).sum();
    let services = variables(&pod.meta.namespace, has_links, around.computing, containers);
    for field in CONTAINERS {
        for container in items_mut(spec, field) {
            tell_the_virtual_truth(container, pod, around.allowed_annotations, &metadata.annotations);
            add(container, &services);
        }
    }
}

/// What a variable would say of the twin, it says of the pod.
fn tell_the_virtual_truth(
    container: &mut Map<String, Value>,
    pod: &Object,
    allowed: &[String],
    truths: &BTreeMap<String, String>,
) {
    for variable in items_mut(container, "env") {
        let field = inner_mut(variable, "valueFrom").and_then(|source| inner_mut(source, "fieldRef"));
        let Some(path) = field.as_deref().and_then(|field| text(field, "fieldPath")) else { continue };
        let literal = match metadata::truth(path) {
            Some(annotation) => truths.get(annotation).cloned(),
            None => withheld(path, pod, allowed).map(|value| value.replace('$', "$$")),
        };
        if let Some(literal) = literal {
            variable.remove("valueFrom");
            variable.insert("value".to_owned(), literal.into());
        }
    }
}

/// The value of a label or annotation that the twin does not have, if that is what `path` means.
fn withheld<'a>(path: &str, pod: &'a Object, allowed: &[String]) -> Option<&'a str> {
    let key = |map: &str| path.strip_prefix(map)?.strip_prefix("['")?.strip_suffix("']");
    let value = |pairs: &'a Pairs, key: &str| pairs.get(key).unwrap_or_default();
    if let Some(key) = key("metadata.annotations") {
        return metadata::is_withheld(key, allowed).then(|| value(&pod.meta.annotations, key));
    }
    let key = key("metadata.labels")?;
    kubeocean_api::keys::is_ours(key).then(|| value(&pod.meta.labels, key))
}

/// Puts variables before those of a container. One that the container sets itself is put only if a value before that refers to it.
fn add(container: &mut Map<String, Value>, variables: &[(String, String)]) {
    if variables.is_empty() {
        return;
    }
    let mut own: HashMap<&str, usize> = HashMap::new();
    let mut values: Vec<&str> = Vec::new();
    for (index, variable) in items(container, "env").enumerate() {
        values.push(text(variable, "value").unwrap_or_default());
        if let Some(name) = text(variable, "name") {
            own.entry(name).or_insert(index);
        }
    }
    let is_seen = |name: &str| {
        own.get(name).is_none_or(|first| {
            let reference = format!("$({name})");
            values.iter().take(first + 1).any(|value| value.contains(&reference))
        })
    };
    let mut env: Vec<Value> = variables
        .iter()
        .filter(|(name, _)| is_seen(name))
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    match container.get_mut("env") {
        Some(Value::Array(known)) => {
            env.append(known);
            *known = env;
        }
        None | Some(Value::Null) => drop(container.insert("env".to_owned(), env.into())),
        // Not a list of variables. P's API server will say so.
        Some(_) => {}
    }
}

/// The variables of Services, for a pod of `namespace`.
fn variables(
    namespace: &str,
    has_links: bool,
    computing: &Computing,
    containers: usize,
) -> Vec<(String, String)> {
    let api_server = computing.api_server.as_ref().map(|(host, port)| ServiceEntry {
        namespace: API_SERVER.0.to_owned(),
        name: API_SERVER.1.to_owned(),
        cluster_ip: Some(host.clone()),
        ports: vec![(Some("https".to_owned()), *port, "TCP".to_owned())],
    });
    let is_linked = |service: &&ServiceEntry| {
        let is_api_server = (service.namespace.as_str(), service.name.as_str()) == API_SERVER;
        has_links && service.namespace == namespace && !(is_api_server && api_server.is_some())
    };
    let linked: Vec<&ServiceEntry> = computing.services.iter().filter(is_linked).collect();
    let of = |with_docker: bool| {
        let mut variables = Vec::new();
        for service in &linked {
            of_service(service, with_docker, &mut variables);
        }
        variables
    };
    let mut services = of(true);
    if size(&services, containers) > LARGEST_ENVIRONMENT {
        services = of(false);
    }
    if size(&services, containers) > LARGEST_ENVIRONMENT {
        services = Vec::new();
    }
    let mut variables = Vec::new();
    if let Some(api_server) = &api_server {
        of_service(api_server, true, &mut variables);
        as_on_the_usual_port(&mut variables);
    }
    // As a kubelet has it: a Service of that name in the pod's own namespace is nearer.
    variables.retain(|(name, _)| services.iter().all(|(other, _)| other != name));
    variables.extend(services);
    variables
}

/// P's kubelet tells every container where P's API server is, and its Service has port 443. Those names must be taken, whatever
/// port V's API server has.
fn as_on_the_usual_port(variables: &mut Vec<(String, String)>) {
    let usual = |(name, value): &(String, String)| {
        let (_, rest) = name.strip_prefix("KUBERNETES_PORT_")?.split_once("_TCP")?;
        Some((format!("KUBERNETES_PORT_443_TCP{rest}"), value.clone()))
    };
    for (name, value) in variables.iter().filter_map(usual).collect::<Vec<_>>() {
        if variables.iter().all(|(known, _)| *known != name) {
            variables.push((name, value));
        }
    }
}

fn size(variables: &[(String, String)], containers: usize) -> usize {
    let around = r#"{"name":"","value":""},"#.len();
    containers * variables.iter().map(|(name, value)| name.len() + value.len() + around).sum::<usize>()
}

/// The variables of one Service: those that Kubernetes thought of, then those that Docker's links had.
fn of_service(service: &ServiceEntry, with_docker: bool, into: &mut Vec<(String, String)>) {
    let Some(address) = address(service) else { return };
    let prefix = variable_name(&service.name);
    // Older API servers take no variable whose name begins with a digit.
    if !prefix.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return;
    }
    let mut put = |name: String, value: String| into.push((name, value));
    put(format!("{prefix}_SERVICE_HOST"), address.to_owned());
    if let Some((_, port, _)) = service.ports.first() {
        put(format!("{prefix}_SERVICE_PORT"), port.to_string());
    }
    for (name, port, _) in &service.ports {
        if let Some(name) = name.as_deref().filter(|name| !name.is_empty()) {
            put(format!("{prefix}_SERVICE_PORT_{}", variable_name(name)), port.to_string());
        }
    }
    let docker = if with_docker { service.ports.as_slice() } else { &[] };
    for (index, (_, port, protocol)) in docker.iter().enumerate() {
        let protocol = if protocol.is_empty() { "TCP" } else { protocol.as_str() };
        let scheme = protocol.to_lowercase();
        let url = if address.parse::<Ipv6Addr>().is_ok() {
            format!("{scheme}://[{address}]:{port}")
        } else {
            format!("{scheme}://{address}:{port}")
        };
        if index == 0 {
            put(format!("{prefix}_PORT"), url.clone());
        }
        let port_prefix = format!("{prefix}_PORT_{port}_{}", protocol.to_uppercase());
        put(port_prefix.clone(), url);
        put(format!("{port_prefix}_PROTO"), scheme);
        put(format!("{port_prefix}_PORT"), port.to_string());
        put(format!("{port_prefix}_ADDR"), address.to_owned());
    }
}

/// The address of a Service that is not headless.
pub(super) fn address(service: &ServiceEntry) -> Option<&str> {
    service.cluster_ip.as_deref().filter(|address| !address.is_empty() && *address != "None")
}

fn variable_name(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

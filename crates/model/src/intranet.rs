//! Where pods in a worker cluster reach the computing cluster: its API server and its DNS.
//!
//! Cluster addresses of V mean nothing outside of it. Two Services of type `LoadBalancer` say where both are reached from elsewhere; what someone
//! gave by hand counts before them. What nobody says is not known, which is no reason not to start a pod.
//!
//! Deliberately absent: what a pod is told of it. That is for `project`.

use std::net::IpAddr;

use kubeocean_api::keys::names::{INTRANET_API_SERVER, INTRANET_DNS};
use kubeocean_api::keys::reasons::Event as EventReason;
use serde_json::Value;

use crate::bind::Telling;
use crate::naming::is_dns_subdomain;
use crate::object::Object;

/// Where API servers are, if nothing else is said.
const HTTPS: u16 = 443;

/// Host name or address, and port.
pub type Place = (String, u16);

/// What is known of both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intranet {
    /// The API server.
    pub api_server: Option<Place>,
    /// Addresses of DNS servers.
    pub dns: Vec<String>,
}

impl Intranet {
    /// What was given by hand, and else what the two Services say.
    #[must_use]
    pub fn or_found(&self, api_server: Option<&Object>, dns: Option<&Object>) -> Self {
        let found = || dns.map(addresses).unwrap_or_default();
        let is_address = |address: &String| address.parse::<IpAddr>().is_ok();
        Self {
            api_server: self.api_server.clone().or_else(|| place(api_server?)),
            dns: if self.dns.is_empty() {
                found().into_iter().filter(is_address).collect()
            } else {
                self.dns.clone()
            },
        }
    }

    /// What people should hear of: pods start, and do not know where the computing cluster is.
    pub fn telling(&self) -> Option<Telling> {
        let service = |(namespace, name): (&str, &str)| format!("{namespace}/{name}");
        let (what, services, flags) = match (&self.api_server, self.dns.is_empty()) {
            (Some(_), false) => return None,
            (None, false) => ("its API server", service(INTRANET_API_SERVER), "--computing-apiserver"),
            (Some(_), true) => ("its DNS", service(INTRANET_DNS), "--computing-dns"),
            (None, true) => (
                "its API server and its DNS",
                format!("{} and {}", service(INTRANET_API_SERVER), service(INTRANET_DNS)),
                "--computing-apiserver and --computing-dns",
            ),
        };
        let message = format!(
            "pods in the worker cluster are not told where the computing cluster has {what}: make {services} of type LoadBalancer and \
             wait for their addresses, or start the syncer with {flags}; pods that run already have to be restarted"
        );
        Some(Telling::event(true, EventReason::ComputingClusterUnknown, message))
    }
}

/// Where a Service is reached from outside, at its first port; one called `https` counts before others.
fn place(service: &Object) -> Option<Place> {
    let host = addresses(service).into_iter().next()?;
    let spec = service.field::<Value>("spec").ok().flatten().unwrap_or_default();
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let port = ports.iter().find(|port| port["name"] == "https").or_else(|| ports.first())?;
    Some((host, u16::try_from(port["port"].as_u64()?).ok()?))
}

/// What load balancers gave a Service, addresses before names.
fn addresses(service: &Object) -> Vec<String> {
    if service.text("spec", &["type"]).as_deref() != Some("LoadBalancer") {
        return Vec::new();
    }
    let status = service.field::<Value>("status").ok().flatten().unwrap_or_default();
    let ingress = status.pointer("/loadBalancer/ingress").and_then(Value::as_array);
    let all = |field: &'static str| {
        let words = ingress.into_iter().flatten().filter_map(move |one| one[field].as_str());
        words.filter(|word| !word.is_empty()).map(str::to_owned)
    };
    all("ip").chain(all("hostname")).collect()
}

/// Reads `host`, `host:port` or `https://host:port`.
pub fn api_server(text: &str) -> Result<Place, String> {
    let fault = || format!("`{text}` is not HOST, HOST:PORT or https://HOST:PORT");
    let place = text.strip_prefix("https://").unwrap_or(text).trim_end_matches('/');
    let bare = place.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<IpAddr>().is_ok() {
        return Ok((bare.to_owned(), HTTPS));
    }
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| fault())?),
        None => (place, HTTPS),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_host = host.parse::<IpAddr>().is_ok() || is_dns_subdomain(host);
    if is_host && port != 0 { Ok((host.to_owned(), port)) } else { Err(fault()) }
}

/// Reads one address of a DNS server.
pub fn dns_server(text: &str) -> Result<String, String> {
    let address = text.parse::<IpAddr>();
    address.map(|address| address.to_string()).map_err(|_| format!("`{text}` is not an IP address"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pretend::object;

    fn service(kind: &str, ingress: &Value, ports: &Value) -> Object {
        object(&json!({
            "metadata": {"namespace": "default", "name": "s"}, "spec": {"type": kind, "ports": ports},
            "status": {"loadBalancer": {"ingress": ingress}},
        }))
    }

    #[test]
    fn a_load_balancer_says_where_the_computing_cluster_is_and_a_flag_knows_better() {
        let ports = json!([{"name": "metrics", "port": 9}, {"name": "https", "port": 6443}]);
        let api = service("LoadBalancer", &json!([{"hostname": "api.example"}, {"ip": "10.0.0.9"}]), &ports);
        let dns = service("LoadBalancer", &json!([{"ip": "10.0.0.53"}, {"hostname": "dns.example"}]), &ports);
        let found = Intranet::default().or_found(Some(&api), Some(&dns));
        assert_eq!(found.api_server, Some(("10.0.0.9".to_owned(), 6443)));
        assert_eq!(found.dns, ["10.0.0.53"], "a resolver needs an address");
        assert_eq!(found.telling(), None);
        let given = Intranet { api_server: Some(("by.hand".to_owned(), 1)), dns: vec!["1.1.1.1".to_owned()] };
        assert_eq!(given.or_found(Some(&api), Some(&dns)), given);
    }

    #[test]
    fn what_has_no_address_yet_is_not_known_and_told_with_the_fix() {
        let ports = json!([{"port": 443}]);
        let waiting = service("LoadBalancer", &Value::Null, &ports);
        let inside = service("ClusterIP", &json!([{"ip": "10.0.0.9"}]), &ports);
        for unknown in [None, Some(&waiting), Some(&inside)] {
            let found = Intranet::default().or_found(unknown, unknown);
            assert_eq!(found, Intranet::default());
            let told = found.telling().unwrap().message;
            assert!(told.contains("default/kubernetes-intranet and kube-system/kube-dns-intranet"), "{told}");
        }
        let half = Intranet { dns: vec!["1.1.1.1".to_owned()], ..Intranet::default() };
        let told = half.telling().unwrap().message;
        assert!(told.contains("--computing-apiserver") && !told.contains("--computing-dns"), "{told}");
    }

    #[test]
    fn a_place_given_by_hand_is_read_or_refused_with_the_form() {
        for (text, host, port) in [
            ("api.example", "api.example", 443),
            ("api.example:6443", "api.example", 6443),
            ("https://10.0.0.1:6443/", "10.0.0.1", 6443),
            ("10.0.0.1", "10.0.0.1", 443),
            ("fd00::1", "fd00::1", 443),
            ("[fd00::1]:6443", "fd00::1", 6443),
        ] {
            assert_eq!(api_server(text), Ok((host.to_owned(), port)), "{text}");
        }
        for text in ["", "a b", "host:0", "host:port", "http://host", "host:70000"] {
            assert!(api_server(text).is_err_and(|why| why.contains("HOST:PORT")), "{text}");
        }
        assert_eq!(dns_server("10.0.0.1"), Ok("10.0.0.1".to_owned()));
        assert!(dns_server("dns.example").is_err());
    }
}

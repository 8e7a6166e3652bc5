//! Services of V that pods reach in a worker cluster, and the endpoints behind them.
//!
//! P's Service has no selector: nothing of P is behind it but what V says. The addresses are V's own, since pods of both sides reach each other.
//! Names of ports are kept, because they are what ties a Service to its endpoints; a `targetPort` only matters to whoever makes endpoints, and nobody does.
//!
//! What is V's own is left out: cluster addresses, node ports, load balancers, which node and which pod an endpoint is, zones and hints. A traffic policy
//! `Local` is, too: without nodes, no endpoint would be local.
//!
//! Services of two address families and those that are only a name elsewhere are not brought along yet. They are [`Skipped`], which people hear of.
//!
//! Deliberately absent: which Services a pod gets as hosts entries and environment, DNS, and what is filled in by servers: that is never
//! compared.

use kubeocean_api::keys::names::SYSTEM_NAMESPACES;
use kubeocean_api::keys::reasons::Event as EventReason;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::action::{Action, kinds};
use crate::bind::Telling;
use crate::binding::{Binding, ServiceNamespaces};
use crate::naming::PhysicalName;
use crate::object::{Meta, Object};
use crate::stamp::{Marks, OF_THE_SAME, Stamp, delete, patch};

mod slices;

pub use slices::{plan_slice, service_of};

/// The type of every Service that we make.
const CLUSTER_IP: &str = "ClusterIP";

/// `clusterIP` of a Service that has no address.
const HEADLESS: &str = "None";

/// `sessionAffinity` that sends a client where it was before, and for how long if nothing is said.
const CLIENT_IP: &str = "ClientIP";
const STICKY_SECONDS: i64 = 10_800;

/// Whether Services of a namespace are brought along. `install_namespace` is where we live ourselves.
pub fn is_mirrored(binding: &Binding, namespace: &str, install_namespace: &str) -> bool {
    match &binding.service_namespaces {
        ServiceNamespaces::All => namespace != install_namespace && !SYSTEM_NAMESPACES.contains(&namespace),
        ServiceNamespaces::Listed(listed) => listed.iter().any(|one| one == namespace),
    }
}

/// Why a Service is not brought along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Skipped {
    /// It is a name elsewhere.
    #[error(
        "a Service of type ExternalName is not brought to worker clusters yet: pods there use the name that it stands for"
    )]
    ExternalName,
    /// It has addresses of two families.
    #[error(
        "a Service with IPv4 and IPv6 addresses is not brought to worker clusters yet: set spec.ipFamilyPolicy to SingleStack"
    )]
    DualStack,
    /// It cannot be made sense of.
    #[error("the Service cannot be read, and is not brought to worker clusters")]
    Unreadable,
}

impl Skipped {
    /// What people should hear of, about the V Service.
    pub fn telling(self) -> Telling {
        Telling::event(true, EventReason::ServiceSkipped, self.to_string())
    }
}

/// What should be done about one Service.
#[derive(Debug, Default, PartialEq)]
pub struct Decision {
    /// To be written, in this order.
    pub actions: Vec<Action>,
    /// Why it is not brought along, though its namespace is.
    pub skipped: Option<Skipped>,
}

/// A port, of a Service or of its endpoints. Other fields are V's own, or filled in.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_field_names, reason = "as the API spells them")]
struct Port {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    app_protocol: Option<String>,
}

impl Port {
    /// As servers fill it in.
    fn settled(self) -> Self {
        let Self { name, protocol, port, app_protocol } = self;
        let said = |text: Option<String>| text.filter(|text| !text.is_empty());
        Self {
            name: said(name),
            protocol: said(protocol).or_else(|| Some("TCP".to_owned())),
            port,
            app_protocol: said(app_protocol),
        }
    }
}

fn settled(ports: Option<Vec<Port>>) -> Vec<Port> {
    ports.unwrap_or_default().into_iter().map(Port::settled).collect()
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    r#type: Option<String>,
    #[serde(rename = "clusterIP")]
    cluster_ip: Option<String>,
    ip_families: Option<Vec<String>>,
    ports: Option<Vec<Port>>,
    session_affinity: Option<String>,
    session_affinity_config: Option<AffinityConfig>,
    internal_traffic_policy: Option<String>,
    selector: Option<Map<String, Value>>,
    #[serde(rename = "externalIPs")]
    external_ips: Option<Vec<String>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct AffinityConfig {
    #[serde(rename = "clientIP")]
    client_ip: Option<ClientIp>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ClientIp {
    timeout_seconds: Option<i64>,
}

impl Spec {
    fn read(object: &Object) -> Option<Self> {
        object.field("spec").ok().flatten()
    }

    fn is_headless(&self) -> bool {
        self.cluster_ip.as_deref() == Some(HEADLESS)
    }

    fn families(&self) -> &[String] {
        self.ip_families.as_deref().unwrap_or_default()
    }

    /// The family of its address. Who has no address has none.
    fn family(&self) -> Option<&str> {
        self.families().first().filter(|_| !self.is_headless()).map(String::as_str)
    }

    /// For how many seconds a client stays with an endpoint.
    fn sticky(&self) -> Option<i64> {
        let said = self.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
        let seconds = said.and_then(|said| said.timeout_seconds).unwrap_or(STICKY_SECONDS);
        (self.session_affinity.as_deref() == Some(CLIENT_IP)).then_some(seconds)
    }
}

/// What a Service should be in P.
struct Wanted {
    is_headless: bool,
    family: Option<String>,
    ports: Vec<Port>,
    sticky: Option<i64>,
}

impl Wanted {
    fn read(original: &Object) -> Result<Self, Skipped> {
        let spec = Spec::read(original).ok_or(Skipped::Unreadable)?;
        if spec.r#type.as_deref() == Some("ExternalName") {
            return Err(Skipped::ExternalName);
        }
        // One without an address and a selector has both families everywhere, and it means nothing.
        if spec.families().len() > 1 && !spec.is_headless() {
            return Err(Skipped::DualStack);
        }
        Ok(Self {
            is_headless: spec.is_headless(),
            family: spec.family().map(str::to_owned),
            sticky: spec.sticky(),
            ports: settled(spec.ports),
        })
    }

    fn written(&self) -> Value {
        let mut spec = json!({"type": CLUSTER_IP, "ports": self.ports});
        if self.is_headless {
            spec["clusterIP"] = HEADLESS.into();
        }
        if let Some(family) = &self.family {
            spec["ipFamilies"] = json!([family]);
            spec["ipFamilyPolicy"] = "SingleStack".into();
        }
        if let Some(seconds) = self.sticky {
            spec["sessionAffinity"] = CLIENT_IP.into();
            spec["sessionAffinityConfig"] = sticky(seconds);
        }
        spec
    }

    /// Whether an address would have to be another one, which it cannot.
    fn is_out_of_reach(&self, is: &Spec) -> bool {
        let other_family = matches!((&self.family, is.family()), (Some(wanted), Some(is)) if wanted != is);
        self.is_headless != is.is_headless() || other_family
    }

    /// What has to change of the Service that is there.
    fn missing_on(&self, is: Spec) -> Map<String, Value> {
        let mut spec = Map::new();
        if is.r#type.as_deref().unwrap_or(CLUSTER_IP) != CLUSTER_IP {
            spec.insert("type".to_owned(), CLUSTER_IP.into());
        }
        // With one, P would put pods of its own behind it.
        if is.selector.as_ref().is_some_and(|selector| !selector.is_empty()) {
            spec.insert("selector".to_owned(), Value::Null);
        }
        if is.external_ips.as_ref().is_some_and(|addresses| !addresses.is_empty()) {
            spec.insert("externalIPs".to_owned(), Value::Null);
        }
        if is.internal_traffic_policy.as_deref().unwrap_or("Cluster") != "Cluster" {
            spec.insert("internalTrafficPolicy".to_owned(), "Cluster".into());
        }
        if is.sticky() != self.sticky {
            let affinity = if self.sticky.is_some() { CLIENT_IP } else { HEADLESS };
            spec.insert("sessionAffinity".to_owned(), affinity.into());
            spec.insert("sessionAffinityConfig".to_owned(), self.sticky.map_or(Value::Null, sticky));
        }
        if settled(is.ports) != self.ports {
            spec.insert("ports".to_owned(), json!(self.ports));
        }
        spec
    }
}

fn sticky(seconds: i64) -> Value {
    json!({"clientIP": {"timeoutSeconds": seconds}})
}

/// Whether a Service is one that gets an address in P, so that pods can be told of it.
pub fn has_address(original: &Object) -> bool {
    Wanted::read(original).is_ok_and(|wanted| !wanted.is_headless)
}

/// What has to be written so that P has this Service. `name` is what a new one is called; one that is there keeps its name.
pub fn plan_service(
    stamp: &Stamp<'_>,
    original: Option<&Object>,
    copy: Option<&Object>,
    name: &PhysicalName,
    is_mirrored: bool,
) -> Decision {
    let wanted = original.filter(|_| is_mirrored).map(|original| (original, Wanted::read(original)));
    let mut skipped = None;
    let wanted = match wanted {
        Some((original, Ok(wanted))) => Some((original, wanted)),
        Some((_, Err(why))) => {
            skipped = Some(why);
            None
        }
        None => None,
    };
    let actions = match (wanted, copy) {
        (_, Some(copy)) if !stamp.is_ours(&copy.meta) || copy.meta.is_deleting() => Vec::new(),
        (None, None) => Vec::new(),
        // What cannot be read may be read again.
        (None, Some(_)) if skipped == Some(Skipped::Unreadable) => Vec::new(),
        (None, Some(copy)) => vec![delete(kinds::SERVICE, &copy.meta, "it is not brought along any more")],
        (Some((original, wanted)), None) => vec![create(stamp, &original.meta, &wanted, name)],
        (Some((original, wanted)), Some(copy)) => keep_in_step(stamp, &original.meta, &wanted, copy),
    };
    Decision { actions, skipped }
}

fn create(stamp: &Stamp<'_>, original: &Meta, wanted: &Wanted, name: &PhysicalName) -> Action {
    let body = json!({"metadata": Marks::of(stamp, original).written(), "spec": wanted.written()});
    stamp.create(kinds::SERVICE, name, body, OF_THE_SAME, "pods here may use it")
}

fn keep_in_step(stamp: &Stamp<'_>, original: &Meta, wanted: &Wanted, copy: &Object) -> Vec<Action> {
    let Some(is) = Spec::read(copy) else { return Vec::new() };
    if wanted.is_out_of_reach(&is) {
        let name = PhysicalName::existing(&copy.meta);
        let why = "its address cannot become what it has to be";
        return vec![delete(kinds::SERVICE, &copy.meta, why), create(stamp, original, wanted, &name)];
    }
    let mut body = Map::new();
    let metadata = Marks::of(stamp, original).missing_on(&copy.meta);
    for (field, value) in [("metadata", metadata), ("spec", wanted.missing_on(is))] {
        if !value.is_empty() {
            body.insert(field.to_owned(), value.into());
        }
    }
    patch(kinds::SERVICE, &copy.meta, body, "its original differs").into_iter().collect()
}

#[cfg(test)]
mod tests;

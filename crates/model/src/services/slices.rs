//! The endpoints behind a Service, slice by slice.
//!
//! A slice of V is one slice of P. So slices stay as small as V made them, and a change of one endpoint is one write.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Port, settled};
use crate::action::{Action, kinds};
use crate::naming::PhysicalName;
use crate::object::{Meta, Object};
use crate::stamp::{Marks, OF_THE_SAME, Stamp, delete, patch};

/// Kubernetes' own: which Service a slice is of.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Kubernetes' own: who makes a slice. P's own controllers leave alone what is not theirs.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const KUBEOCEAN: &str = "kubeocean";

/// Kubernetes' own: proxies need not look at it.
const HEADLESS: &str = "service.kubernetes.io/headless";

/// The V Service that a V slice is of, by name.
pub fn service_of(slice: &Meta) -> Option<&str> {
    slice.labels.get(SERVICE_NAME).filter(|name| !name.is_empty())
}

/// One endpoint. What stands at the end is V's own, and never written; where P has it, someone else wrote it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Endpoint {
    addresses: Vec<String>,
    conditions: Option<Conditions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname: Option<String>,
    #[serde(skip_serializing)]
    node_name: Option<Value>,
    #[serde(skip_serializing)]
    target_ref: Option<Value>,
    #[serde(skip_serializing)]
    zone: Option<Value>,
    #[serde(skip_serializing)]
    hints: Option<Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
struct Conditions {
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    serving: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    terminating: Option<bool>,
}

/// What a slice says.
#[derive(PartialEq)]
struct Content {
    address_type: String,
    endpoints: Vec<Endpoint>,
    ports: Vec<Port>,
}

impl Content {
    /// `None` if it makes no sense.
    fn read(slice: &Object) -> Option<Self> {
        let endpoints: Option<Vec<Endpoint>> = slice.field("endpoints").ok()?.flatten();
        let ports: Option<Vec<Port>> = slice.field("ports").ok()?.flatten();
        let endpoints = endpoints.unwrap_or_default().into_iter().map(|endpoint| Endpoint {
            conditions: Some(endpoint.conditions.unwrap_or_default()),
            ..endpoint
        });
        Some(Self {
            address_type: slice.text("addressType", &[])?,
            endpoints: endpoints.collect(),
            ports: settled(ports),
        })
    }

    fn wanted(original: &Object) -> Option<Self> {
        let mut content = Self::read(original)?;
        for endpoint in &mut content.endpoints {
            let Endpoint { node_name, target_ref, zone, hints, .. } = endpoint;
            for theirs in [node_name, target_ref, zone, hints] {
                *theirs = None;
            }
        }
        Some(content)
    }

    /// What has to change for `is` to say the same.
    fn differences(&self, is: &Self) -> Map<String, Value> {
        let mut body = Map::new();
        if self.endpoints != is.endpoints {
            body.insert("endpoints".to_owned(), json!(self.endpoints));
        }
        if self.ports != is.ports {
            body.insert("ports".to_owned(), json!(self.ports));
        }
        body
    }
}

/// What has to be written so that P has this slice. `service` is P's Service that it is of; `None`: it is not brought along. `name` is what a new slice is
/// called.
pub fn plan_slice(
    stamp: &Stamp<'_>,
    original: Option<&Object>,
    copy: Option<&Object>,
    name: &PhysicalName,
    service: Option<&PhysicalName>,
) -> Vec<Action> {
    let wanted = original.zip(service);
    match (wanted, copy) {
        (_, Some(copy)) if !stamp.is_ours(&copy.meta) || copy.meta.is_deleting() => Vec::new(),
        (None, None) => Vec::new(),
        (None, Some(copy)) => {
            vec![delete(kinds::ENDPOINT_SLICE, &copy.meta, "its endpoints are not brought along any more")]
        }
        (Some((original, service)), None) => create(stamp, original, name, service).into_iter().collect(),
        (Some((original, service)), Some(copy)) => keep_in_step(stamp, original, copy, service),
    }
}

fn marks<'a>(stamp: &Stamp<'a>, original: &'a Meta, service: &'a PhysicalName) -> Marks<'a> {
    let mut marks = Marks::of(stamp, original);
    marks.labels.extend([
        (SERVICE_NAME, Some(service.as_str())),
        (MANAGED_BY, Some(KUBEOCEAN)),
        (HEADLESS, original.labels.get(HEADLESS)),
    ]);
    marks
}

fn create(
    stamp: &Stamp<'_>,
    original: &Object,
    name: &PhysicalName,
    service: &PhysicalName,
) -> Option<Action> {
    let Content { address_type, endpoints, ports } = Content::wanted(original)?;
    let body = json!({
        "metadata": marks(stamp, &original.meta, service).written(),
        "addressType": address_type, "endpoints": endpoints, "ports": ports,
    });
    Some(stamp.create(kinds::ENDPOINT_SLICE, name, body, OF_THE_SAME, "endpoints of a Service"))
}

fn keep_in_step(stamp: &Stamp<'_>, original: &Object, copy: &Object, service: &PhysicalName) -> Vec<Action> {
    let (Some(wanted), Some(is)) = (Content::wanted(original), Content::read(copy)) else {
        return Vec::new();
    };
    if wanted.address_type != is.address_type {
        let name = PhysicalName::existing(&copy.meta);
        let mut actions =
            vec![delete(kinds::ENDPOINT_SLICE, &copy.meta, "its type of addresses cannot change")];
        actions.extend(create(stamp, original, &name, service));
        return actions;
    }
    let mut body = wanted.differences(&is);
    let metadata = marks(stamp, &original.meta, service).missing_on(&copy.meta);
    if !metadata.is_empty() {
        body.insert("metadata".to_owned(), metadata.into());
    }
    patch(kinds::ENDPOINT_SLICE, &copy.meta, body, "its original differs").into_iter().collect()
}

//! Signing requests: what each of their endpoints writes, and what is refused.
//!
//! Deliberately absent: signing, and looking into what is to be signed. A signer brings both.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::defaults::{each, or};
use crate::status::Cause;

const APPROVAL: [&str; 2] = ["Approved", "Denied"];

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// A new request says who made it, whatever the maker says.
pub(crate) fn prepare_create(object: &mut Value, user: &str, groups: &[String]) {
    object["status"] = json!({});
    if let Some(spec) = object["spec"].as_object_mut() {
        for key in ["uid", "extra"] {
            spec.remove(key);
        }
        spec.insert("username".into(), user.into());
        spec.insert("groups".into(), json!(groups));
    }
}

/// Nothing but the status changes; of it, each endpoint writes its part.
pub(crate) fn prepare_update(old: &Value, object: &mut Value, subresource: &str, now: &str) {
    object["spec"] = old["spec"].clone();
    match subresource {
        "approval" => {
            stamp(old, object, now);
            let conditions = object["status"].get("conditions").cloned();
            object["status"] = old["status"].clone();
            set(&mut object["status"], "conditions", conditions);
        }
        "status" => {
            for type_ in APPROVAL {
                preserve(old, object, type_);
            }
            stamp(old, object, now);
        }
        _ => object["status"] = old["status"].clone(),
    }
}

fn set(map: &mut Value, key: &str, value: Option<Value>) {
    if let Some(map) = map.as_object_mut() {
        match value {
            Some(value) => drop(map.insert(key.into(), value)),
            None => drop(map.remove(key)),
        }
    }
}

fn conditions<'a>(object: &'a Value, type_: &str) -> Vec<&'a Value> {
    object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|one| one["type"] == type_)
        .collect()
}

/// Keeps conditions of a type as they were, if there are as many.
fn preserve(old: &Value, object: &mut Value, type_: &str) {
    let before = conditions(old, type_);
    if before.len() != conditions(object, type_).len() {
        return;
    }
    let after = each(&mut object["status"], "conditions").filter(|one| one["type"] == type_);
    for (condition, before) in after.zip(before) {
        *condition = before.clone();
    }
}

/// Fills in the times of conditions that have none.
fn stamp(old: &Value, object: &mut Value, now: &str) {
    for condition in each(&mut object["status"], "conditions") {
        or(condition, "lastUpdateTime", now);
        let before = old["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|one| one["type"] == condition["type"] && one["status"] == condition["status"])
            .and_then(|one| one["lastTransitionTime"].as_str());
        or(condition, "lastTransitionTime", before.unwrap_or(now));
    }
}

/// What is wrong with a request.
pub(crate) fn causes(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &object["spec"];
    if blocks(&spec["request"]).first().is_none_or(|block| block != "CERTIFICATE REQUEST") {
        let why = "PEM block type must be CERTIFICATE REQUEST";
        causes.push(Cause::invalid("spec.request", &spec["request"], why));
    }
    let usages = spec["usages"].as_array().map_or(&[][..], Vec::as_slice);
    if usages.is_empty() {
        causes.push(Cause::required("spec.usages", ""));
    }
    for (index, usage) in usages.iter().enumerate() {
        let at = format!("spec.usages[{index}]");
        if !usage.as_str().is_some_and(|usage| USAGES.contains(&usage)) {
            causes.push(Cause::unsupported(at.clone(), usage, USAGES));
        }
        if usages[..index].contains(usage) {
            causes.push(Cause::duplicate(at, usage));
        }
    }
    let signer = spec["signerName"].as_str().unwrap_or_default();
    let why = match signer.split('/').count() {
        _ if signer.is_empty() => {
            causes.push(Cause::required("spec.signerName", ""));
            None
        }
        _ if signer == "kubernetes.io/legacy-unknown" => {
            Some("the legacy signerName is not allowed via this API version")
        }
        2 => None,
        _ => Some("must be a fully qualified domain and path of the form 'example.com/signer-name'"),
    };
    causes.extend(why.map(|why| Cause::invalid("spec.signerName", &signer.into(), why)));
    if let Some(seconds) = spec["expirationSeconds"].as_i64().filter(|seconds| *seconds < 600) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        causes.push(Cause::invalid("spec.expirationSeconds", &seconds.into(), why));
    }
    condition_causes(object, &mut causes);
    certificate_causes(&object["status"]["certificate"], &mut causes);
    causes
}

fn condition_causes(object: &Value, causes: &mut Vec<Cause>) {
    let at = "status.conditions";
    let mut seen: Vec<&str> = Vec::new();
    for (index, condition) in object["status"]["conditions"].as_array().into_iter().flatten().enumerate() {
        let text = |key: &str| condition[key].as_str().unwrap_or_default();
        let (type_, status) = (text("type"), text("status"));
        if type_.is_empty() {
            causes.push(Cause::required(format!("{at}[{index}].type"), ""));
        }
        let only_true = matches!(type_, "Approved" | "Denied" | "Failed");
        let supported: &[&str] = if only_true { &["True"] } else { &["False", "True", "Unknown"] };
        if status.is_empty() {
            causes.push(Cause::required(format!("{at}[{index}].status"), ""));
        } else if !supported.contains(&status) {
            causes.push(Cause::unsupported(format!("{at}[{index}].status"), &status.into(), supported));
        }
        if APPROVAL.contains(&type_) && seen.iter().any(|one| APPROVAL.contains(one) && *one != type_) {
            let why = "Approved and Denied conditions are mutually exclusive";
            causes.push(Cause::invalid(at, &type_.into(), why));
        }
        if seen.contains(&type_) {
            causes.push(Cause::duplicate(format!("{at}[{index}].type"), &type_.into()));
        }
        seen.push(type_);
    }
}

fn certificate_causes(certificate: &Value, causes: &mut Vec<Cause>) {
    if certificate.as_str().is_none_or(str::is_empty) {
        return;
    }
    let blocks = blocks(certificate);
    let why = match blocks.iter().find(|block| *block != "CERTIFICATE") {
        Some(other) => format!("only CERTIFICATE PEM blocks are allowed, found {other:?}"),
        None if blocks.is_empty() => "must contain at least one CERTIFICATE PEM block".to_owned(),
        None => return,
    };
    causes.push(Cause::invalid("status.certificate", &"<certificate data>".into(), &why));
}

/// What is wrong with a change.
pub(crate) fn update_causes(old: &Value, new: &Value, subresource: &str) -> Vec<Cause> {
    let mut causes = causes(new);
    let at = "status.conditions";
    for type_ in ["Approved", "Denied", "Failed"] {
        let (before, after) = (conditions(old, type_), conditions(new, type_));
        if after.len() < before.len() {
            let why = format!("updates may not remove a condition of type {type_:?}");
            causes.push(Cause::forbidden(at, &why));
        } else if subresource != "approval" && APPROVAL.contains(&type_) && after.len() > before.len() {
            causes.push(Cause::forbidden(at, &format!("updates may not add a condition of type {type_:?}")));
        }
    }
    let certificate =
        |object: &Value| object["status"]["certificate"].as_str().unwrap_or_default().to_owned();
    if certificate(old) != certificate(new) && !certificate(old).is_empty() {
        let why = "updates may not modify existing certificate content";
        causes.push(Cause::forbidden("status.certificate", why));
    }
    causes
}

/// The types of the PEM blocks in a field of bytes.
fn blocks(bytes: &Value) -> Vec<String> {
    let text = STANDARD.decode(bytes.as_str().unwrap_or_default()).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .filter_map(|line| line.strip_prefix("-----BEGIN ")?.strip_suffix("-----").map(str::to_owned))
        .collect()
}

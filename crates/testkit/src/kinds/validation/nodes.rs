//! What makes a node invalid.

use kubeocean_model::quantity::Quantity;
use serde_json::Value;

use crate::kinds::metadata;
use crate::status::Cause;

/// Of these, nobody has a half.
fn is_counted(resource: &str) -> bool {
    !matches!(resource, "cpu" | "memory" | "storage" | "ephemeral-storage")
        && !resource.starts_with("hugepages-")
        || resource == "pods"
}

/// A node, new or changed.
pub(super) fn node(object: &Value, causes: &mut Vec<Cause>) {
    taints(&object["spec"]["taints"], causes);
    for list in ["capacity", "allocatable"] {
        for (name, value) in object["status"][list].as_object().into_iter().flatten() {
            let Some(quantity) = value.as_str().and_then(|text| text.parse::<Quantity>().ok()) else {
                continue;
            };
            let at = format!("status.{list}.{name}");
            if quantity < Quantity::default() {
                causes.push(Cause::invalid(at.clone(), value, "must be greater than or equal to 0"));
            }
            // Whole numbers are stored without a unit of less than one.
            if is_counted(name) && value.as_str().is_some_and(|text| text.ends_with(['m', 'u', 'n'])) {
                causes.push(Cause::invalid(at, value, "must be an integer"));
            }
        }
    }
}

fn taints(taints: &Value, causes: &mut Vec<Cause>) {
    let taints = taints.as_array().map_or(&[][..], Vec::as_slice);
    for (index, taint) in taints.iter().enumerate() {
        let at = format!("metadata.taints[{index}]");
        let text = |key: &str| taint[key].as_str().unwrap_or_default();
        let key = text("key");
        causes.extend(
            metadata::key_problems(key)
                .iter()
                .map(|problem| Cause::invalid(format!("{at}.key"), &key.into(), problem)),
        );
        let problems = metadata::label_value_problems(text("value"));
        if !problems.is_empty() {
            causes.push(Cause::invalid(format!("{at}.value"), &text("value").into(), &problems.join(";")));
        }
        if text("effect").is_empty() {
            causes.push(Cause::required(format!("{at}.effect"), ""));
        } else if !matches!(text("effect"), "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            causes.push(Cause::unsupported(
                format!("{at}.effect"),
                &text("effect").into(),
                &["NoSchedule", "PreferNoSchedule", "NoExecute"],
            ));
        }
        if taints[..index].iter().any(|one| one["key"] == taint["key"] && one["effect"] == taint["effect"]) {
            let why = "taints must be unique by key and effect pair";
            causes.push(Cause::duplicate(at, taint).because(why));
        }
    }
}

/// What a change may not do to a node.
pub(super) fn node_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let addresses = new["status"]["addresses"].as_array().map_or(&[][..], Vec::as_slice);
    for (index, address) in addresses.iter().enumerate() {
        if addresses[..index].contains(address) {
            causes.push(Cause::duplicate(format!("status.addresses[{index}]"), address));
        }
    }
    let ranges = |node: &Value| node["spec"]["podCIDRs"].as_array().cloned().unwrap_or_default();
    if !ranges(old).is_empty() && ranges(old) != ranges(new) {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        causes.push(Cause::forbidden("spec.podCIDRs", why));
    }
    let provider = |node: &Value| node["spec"]["providerID"].as_str().unwrap_or_default().to_owned();
    if !provider(old).is_empty() && provider(old) != provider(new) {
        let why = "node updates may not change providerID except from \"\" to valid";
        causes.push(Cause::forbidden("spec.providerID", why));
    }
}

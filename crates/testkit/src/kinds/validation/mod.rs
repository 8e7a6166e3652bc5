//! What makes an object invalid: the rules of built-in kinds that tests meet.
//!
//! Deliberately absent: most of the real server's rules. What is refused here is refused there in the
//! same words; not all that is refused there is refused here.

mod content;
mod nodes;
mod pod_specs;
mod rights;
mod volumes;
mod workloads;

use serde_json::Value;

use super::{Kind, metadata, pod_status, pods, services, signing};
use crate::rest::Call;
use crate::schema::validate;
use crate::server::State;
use crate::status::Cause;

/// What is wrong with a new object.
pub(crate) fn create(_: &State, kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = metadata::causes(kind, object);
    if let Some(schema) = &kind.custom {
        causes.extend(validate::validate(schema, None, object));
        return causes;
    }
    causes.extend(of_kind(kind, object));
    causes
}

/// What is wrong with a change.
pub(crate) fn update(_: &State, call: &Call<'_>, old: &Value, new: &Value) -> Vec<Cause> {
    let kind = &call.kind;
    let mut causes = metadata::causes(kind, new);
    causes.extend(metadata::update_causes(old, new));
    // The server looks twice: for all objects, and for the kind.
    causes.extend_from_within(..);
    if let Some(schema) = &kind.custom {
        // And at what is new a third time.
        causes.extend(metadata::causes(kind, new));
        causes.extend(validate::validate(schema, Some(old), new));
        return causes;
    }
    let with_spec = matches!(call.place.subresource.as_str(), "" | "resize" | "ephemeralcontainers");
    // What cannot have changed is not looked at again.
    let fixed = kind.is("Pod") && old["spec"] == new["spec"] || kind.is("CertificateSigningRequest");
    if with_spec && !fixed {
        causes.extend(of_kind(kind, new));
    }
    match kind.kind.as_str() {
        "Pod" if call.place.subresource.is_empty() => causes.extend(pods::update_causes(old, new)),
        "Pod" if call.place.subresource == "resize" => causes.extend(pods::resize_causes(old, new)),
        "Pod" if call.place.subresource == "status" => causes.extend(pod_status::causes(old, new)),
        "CertificateSigningRequest" => {
            causes.extend(signing::update_causes(old, new, &call.place.subresource));
        }
        "Node" => {
            // On the main endpoint for the second time: the server, too, looks twice.
            nodes::node(new, &mut causes);
            nodes::node_update(old, new, &mut causes);
        }
        "CustomResourceDefinition" => {
            for (field, pointer) in [("spec.scope", "/spec/scope"), ("spec.group", "/spec/group")] {
                if old.pointer(pointer) != new.pointer(pointer) {
                    let value = new.pointer(pointer).cloned().unwrap_or_default();
                    causes.push(Cause::invalid(field, &value, "field is immutable"));
                }
            }
        }
        "ConfigMap" | "Secret" => content::update(kind, old, new, &mut causes),
        "Service" if call.place.subresource == "status" => {
            causes.extend(services::status_causes(&new["status"]));
        }
        "Service" => causes.extend(services::update_causes(old, new)),
        "HorizontalPodAutoscaler" if call.place.subresource == "status" => {
            workloads::autoscaler_status(&new["status"], &mut causes);
        }
        "Deployment" if call.place.subresource == "status" => {
            workloads::deployment_status(&new["status"], &mut causes);
        }
        "Deployment" | "ReplicaSet" | "DaemonSet" if old["spec"]["selector"] != new["spec"]["selector"] => {
            causes.push(Cause::invalid("spec.selector", &new["spec"]["selector"], "field is immutable"));
        }
        "RoleBinding" | "ClusterRoleBinding" if old["roleRef"] != new["roleRef"] => {
            causes.push(Cause::invalid("roleRef", &new["roleRef"], "cannot change roleRef"));
        }
        "PersistentVolumeClaim" if call.place.subresource.is_empty() => {
            volumes::claim_update(old, new, &mut causes);
        }
        "PersistentVolume" if call.place.subresource.is_empty() => {
            volumes::volume_update(&old["spec"], &new["spec"], &mut causes);
        }
        "EndpointSlice" => volumes::slice_update(old, new, &mut causes),
        "PriorityClass" if old["value"] != new["value"] => {
            causes.push(Cause::forbidden("value", "may not be changed in an update."));
        }
        "StorageClass" => {
            for key in ["provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"] {
                if old.get(key) != new.get(key) {
                    causes.push(Cause::forbidden(key, "updates to this field are forbidden."));
                }
            }
        }
        _ => {}
    }
    causes
}

fn of_kind(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    match kind.kind.as_str() {
        "Pod" => {
            let name = metadata::text(object, "name");
            pod_specs::pod_spec(&object["spec"], Some(name), "spec", &mut causes);
        }
        "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" => {
            workloads::workload(kind, object, &mut causes);
        }
        "Job" => {
            pod_specs::pod_spec(&object["spec"]["template"]["spec"], None, "spec.template.spec", &mut causes);
            if object["spec"]["template"]["spec"]["restartPolicy"] == "Always" {
                causes.push(Cause::required(
                    "spec.template.spec.restartPolicy",
                    "valid values: \"OnFailure\", \"Never\"",
                ));
            }
        }
        "ConfigMap" | "Secret" => content::content(kind, object, &mut causes),
        "Service" => causes.extend(services::causes(&object["spec"])),
        "HorizontalPodAutoscaler" => workloads::autoscaler(&object["spec"], &mut causes),
        "Role" | "ClusterRole" => rights::role(kind, object, &mut causes),
        "RoleBinding" | "ClusterRoleBinding" => rights::binding(kind, object, &mut causes),
        "Node" => nodes::node(object, &mut causes),
        "CertificateSigningRequest" => causes.extend(signing::causes(object)),
        "PersistentVolume" => volumes::volume(&object["spec"], &mut causes),
        "PersistentVolumeClaim" => volumes::claim(&object["spec"], &mut causes),
        "EndpointSlice" => volumes::slice(object, &mut causes),
        "Lease" => content::lease(&object["spec"], &mut causes),
        "Event" => content::event(object, &mut causes),
        "CustomResourceDefinition" => {
            let spec = &object["spec"];
            let expected = format!(
                "{}.{}",
                spec["names"]["plural"].as_str().unwrap_or_default(),
                spec["group"].as_str().unwrap_or_default()
            );
            if metadata::text(object, "name") != expected {
                causes.push(Cause::invalid(
                    "metadata.name",
                    &object["metadata"]["name"],
                    "must be spec.names.plural+\".\"+spec.group",
                ));
            }
        }
        _ => {}
    }
    causes
}

//! May a pod start on a virtual node? Asked before anything of it leaves V, as a kubelet asks before it starts one.
//!
//! Anyone may set `spec.nodeName` and pass the scheduler by, and a window may close between the scheduler's word and ours. Who is let in
//! once is not asked again: an offer that shrinks stops new pods only.
//!
//! Deliberately absent: what is wrong with the pod itself. That is for who projects it.

use std::collections::BTreeSet;

use kubeocean_api::keys::reasons::{self, Pod as Reason};
use kubeocean_api::keys::taints::Effect;

use crate::hostports::HostPort;
use crate::quantity::Quantity;
use crate::reclaim::VirtualPod;
use crate::resources::Resources;
use crate::vnode::{Tenure, VirtualNode};

/// Everything that counts.
pub struct Question<'a> {
    /// Who wants in.
    pub pod: &'a VirtualPod,
    /// Where to.
    pub vnode: &'a VirtualNode,
    /// What the node remembers of its lease.
    pub tenure: &'a Tenure,
    /// Who was let in there and has not ended.
    pub others: &'a [&'a VirtualPod],
    /// The binding's name.
    pub binding: &'a str,
    /// What administrators wrote on the pod's namespace: the bindings that it may use, separated by commas. `None`: all.
    pub allowed: Option<&'a str>,
}

/// Why not, as the pod's status says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// In one word.
    pub reason: String,
    /// In a sentence.
    pub message: String,
}

impl Rejection {
    fn of(reason: Reason, message: String) -> Self {
        Self { reason: reason.as_str().to_owned(), message }
    }
}

/// Whether the pod may start there.
pub fn admit(question: &Question<'_>) -> Result<(), Rejection> {
    is_allowed(question)?;
    is_leased(question)?;
    is_borne(question)?;
    fits(question)?;
    ports_are_free(question)
}

fn is_allowed(Question { pod, binding, allowed, .. }: &Question<'_>) -> Result<(), Rejection> {
    let Some(allowed) = allowed else { return Ok(()) };
    if allowed.split(',').any(|one| one.trim() == *binding) {
        return Ok(());
    }
    let namespace = &pod.meta.namespace;
    let message = format!(
        "namespace {namespace} does not allow worker cluster {binding}: its administrators name it in the annotation {}",
        kubeocean_api::keys::annotations::ALLOWED_CLUSTERS
    );
    Err(Rejection::of(Reason::NodeNotAllowed, message))
}

fn is_leased(Question { vnode, tenure, .. }: &Question<'_>) -> Result<(), Rejection> {
    let why = if let Some(leaving) = &tenure.leaving {
        leaving.cause.words()
    } else if tenure.is_closed() {
        "no window of its lease is open"
    } else {
        return Ok(());
    };
    Err(Rejection::of(Reason::NodeNotLeased, format!("node {} takes no pods now: {why}", vnode.name())))
}

fn is_borne(Question { pod, vnode, .. }: &Question<'_>) -> Result<(), Rejection> {
    let word = |taint: &serde_json::Value, field: &str| taint[field].as_str().unwrap_or_default().to_owned();
    let drives_away = |taint: &&serde_json::Value| taint["effect"] == Effect::NoExecute.as_str();
    for taint in vnode.taints.iter().filter(drives_away) {
        let (key, value) = (word(taint, "key"), word(taint, "value"));
        if !pod.tolerations.iter().any(|one| one.bears(&key, &value)) {
            let message = format!(
                "node {} has the taint {key}:NoExecute, which the pod does not tolerate",
                vnode.name()
            );
            return Err(Rejection::of(Reason::NodeNotAllowed, message));
        }
    }
    Ok(())
}

fn fits(Question { pod, vnode, others, .. }: &Question<'_>) -> Result<(), Rejection> {
    let mut used = Resources::default();
    for other in *others {
        used.add(&other.requests);
    }
    for (resource, wanted) in pod.requests.iter() {
        let offered = vnode.allocatable.get(resource).and_then(|text| text.parse::<Quantity>().ok());
        let (offered, used) = (offered.unwrap_or_default(), used.get(resource));
        if used + wanted > offered {
            let message = format!(
                "node {} has too little {resource}: {wanted} requested, {used} used, {offered} offered",
                vnode.name()
            );
            return Err(Rejection { reason: reasons::out_of(resource), message });
        }
    }
    Ok(())
}

fn ports_are_free(Question { pod, vnode, others, .. }: &Question<'_>) -> Result<(), Rejection> {
    let taken: BTreeSet<&HostPort> = others.iter().flat_map(|other| &other.ports).collect();
    let clash = pod.ports.iter().find(|port| taken.iter().any(|other| port.clashes_with(other)));
    match clash {
        None => Ok(()),
        Some(port) => {
            let message = format!("port {}/{} of node {} is taken", port.port, port.protocol, vnode.name());
            Err(Rejection { reason: reasons::out_of("hostports"), message })
        }
    }
}

#[cfg(test)]
mod tests;

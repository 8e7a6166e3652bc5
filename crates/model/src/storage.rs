//! Volumes that pods take along: a bound claim of V and its volume, made again in the worker cluster.
//!
//! ```text
//!   V claim ──bound──▶ V volume          the storage is one and the same; only the objects are two.
//!      ┆                  ┆              P's volume is named by P's claim and names it, so that nobody else's
//!   P claim ◀────────▶ P volume          binds to either. It is made first, and seen before its claim is made.
//! ```
//!
//! The storage is V's. P's volume says `Retain`, and is looked at for that once more before its claim goes: whatever happens to the objects of
//! the worker cluster, no data is removed there.
//!
//! Which kinds of volumes may come is the lender's word. What it does not list is refused, and so is what we do not know.
//!
//! A volume that grows in V grows in P: its capacity is what kubelets look at. The claim's request stays: API servers let only claims with a
//! class ask for more, and ours have none.
//!
//! Deliberately absent: Secrets that drivers need ([`Decision::needs`] names them, [`copy`](crate::copy) copies them), secrets that are named in a driver's own
//! attributes, classes, snapshots, and the binding itself, which is P's.

mod volume;

use std::collections::BTreeSet;
use std::fmt;

use kubeocean_api::keys::annotations;
use kubeocean_api::keys::reasons::Event as EventReason;
use serde_json::{Map, Value, json};

use crate::action::{Action, Mark, kinds};
use crate::bind::Telling;
use crate::key::{Key, Virtual};
use crate::naming::{Origin, PhysicalName};
use crate::object::{Meta, Object};
use crate::quantity::Quantity;
use crate::stamp::{Marks, OF_THE_SAME, Stamp, delete, patch};

use volume::Wanted;

/// As [`OF_THE_SAME`]; a volume has no namespace.
const OF_THE_SAME_VOLUME: Mark =
    Mark { labels: OF_THE_SAME.labels, annotations: &[annotations::VIRTUAL_NAME] };

/// Nothing is removed when a claim goes.
const RETAIN: &str = "Retain";

/// The kinds of volumes that a lender lets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed(BTreeSet<String>);

impl Allowed {
    /// What the mount namespace says. An annotation that lists nothing allows nothing.
    pub fn by_lender(mount_namespace: &Meta) -> Self {
        let listed = mount_namespace.annotations.get(annotations::ALLOWED_VOLUME_SOURCES);
        let listed = listed.unwrap_or(annotations::DEFAULT_VOLUME_SOURCES);
        let words = listed.split(',').map(str::trim).filter(|word| !word.is_empty());
        Self(words.map(str::to_owned).collect())
    }

    /// Whether it lets in volumes that are described by this field of their spec: `csi`, `nfs`, `hostPath`.
    pub fn has(&self, source: &str) -> bool {
        self.0.contains(source)
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.0.iter().map(String::as_str).collect();
        f.write_str(if words.is_empty() { "none" } else { "" })?;
        f.write_str(&words.join(", "))
    }
}

/// What a node of the worker cluster is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeNames {
    /// `metadata.name`.
    pub name: String,
    /// Its label `kubernetes.io/hostname`.
    pub hostname: String,
}

/// Everything about one claim that a mapped pod uses, or has used.
#[expect(clippy::struct_excessive_bools, reason = "four independent facts")]
pub struct Situation<'a> {
    /// For whom we write.
    pub stamp: Stamp<'a>,
    /// The V claim, by name.
    pub key: &'a Key<Virtual>,
    /// The V claim.
    pub claim: Option<&'a Object>,
    /// The V volume that it names.
    pub volume: Option<&'a Object>,
    /// Our claim in P.
    pub copied_claim: Option<&'a Object>,
    /// Our volume in P.
    pub copied_volume: Option<&'a Object>,
    /// Whether someone else has the first name of P's claim.
    pub is_claim_name_taken: bool,
    /// Whether someone else has the first name of P's volume.
    pub is_volume_name_taken: bool,
    /// Whether a mapped pod of this binding uses it.
    pub is_used: bool,
    /// Whether the lender lets us make volumes at all.
    pub may_make_volumes: bool,
    /// Which kinds it lets in.
    pub allowed: &'a Allowed,
    /// The node behind a virtual node of this binding.
    pub node: &'a dyn Fn(&str) -> Option<NodeNames>,
    /// What the copy of a V Secret is called.
    pub secret: &'a dyn Fn(&Key<Virtual>) -> PhysicalName,
}

/// What should be done about one claim.
#[derive(Debug)]
pub struct Decision {
    /// To be written, in this order.
    pub actions: Vec<Action>,
    /// Whether pods can use it.
    pub standing: Standing,
    /// V Secrets that the volume's driver needs in P.
    pub needs: Vec<Key<Virtual>>,
}

/// Whether pods can use a claim in the worker cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// They can: P has the claim, and binds it.
    Usable,
    /// They will: it is being made, or being made anew.
    Underway,
    /// Something has to happen in V first.
    Pending(Pending),
    /// The worker cluster does not take it.
    Refused(Refusal),
    /// Nobody wants it any more.
    Unused,
}

/// What a claim waits for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Pending {
    /// It is not there.
    #[error("there is no PersistentVolumeClaim {0}: create it")]
    NoClaim(Key<Virtual>),
    /// It goes.
    #[error("PersistentVolumeClaim {0} is being deleted: wait until it is gone, and create it anew")]
    Ending(Key<Virtual>),
    /// It has no volume yet.
    #[error(
        "PersistentVolumeClaim {0} is not bound in the computing cluster: a provisioner or an administrator there has to \
         give it a PersistentVolume"
    )]
    NotBound(Key<Virtual>),
    /// It had a volume.
    #[error(
        "PersistentVolumeClaim {claim} has lost its PersistentVolume {volume}: restore that, or make the claim anew"
    )]
    Lost {
        /// The claim.
        claim: Key<Virtual>,
        /// The volume that it names.
        volume: String,
    },
    /// The volume that it names serves another claim.
    #[error("PersistentVolumeClaim {claim} names PersistentVolume {volume}, which is bound to another claim")]
    BoundToAnother {
        /// The claim.
        claim: Key<Virtual>,
        /// The volume that it names.
        volume: String,
    },
}

/// Why a worker cluster does not take a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// We may not make volumes there.
    #[error(
        "the worker cluster does not let pods bring volumes along: the lender allows it with `kubeocean worker-manifest --storage`, \
         applied again with the other flags of the first time"
    )]
    NoRights,
    /// The lender does not list its kind.
    #[error(
        "PersistentVolume {volume} is of kind `{source_field}`, which the worker cluster does not let in (it lets in: {allowed}): the \
         lender lists kinds in the annotation {} of namespace {namespace}",
        annotations::ALLOWED_VOLUME_SOURCES
    )]
    Source {
        /// The volume.
        volume: String,
        /// The field of its spec that says where its storage is.
        source_field: String,
        /// What is let in.
        allowed: String,
        /// P's mount namespace.
        namespace: String,
    },
    /// It cannot be made sense of.
    #[error("PersistentVolume {volume} cannot be brought along: {fault}")]
    Unreadable {
        /// The volume.
        volume: String,
        /// What is wrong with it.
        fault: &'static str,
    },
}

impl Standing {
    /// Whether a pod that uses it may be started in the worker cluster.
    pub const fn is_usable(&self) -> bool {
        matches!(self, Self::Usable)
    }

    /// What people should hear of, about the V claim and the pods that use it.
    pub fn telling(&self) -> Option<Telling> {
        match self {
            Self::Pending(pending) => {
                Some(Telling::event(false, EventReason::VolumePending, pending.to_string()))
            }
            Self::Refused(refusal) => {
                Some(Telling::event(true, EventReason::VolumeRefused, refusal.to_string()))
            }
            Self::Usable | Self::Underway | Self::Unused => None,
        }
    }
}

/// Plans for one claim.
pub fn plan(situation: &Situation<'_>) -> Decision {
    let ours = |object: &&Object| situation.stamp.is_ours(&object.meta);
    let claim = situation.copied_claim.filter(ours);
    let volume = situation.copied_volume.filter(ours);
    let wanted = read(situation);
    // A driver may need its Secret to let go of a volume, too.
    let needs = match &wanted {
        Ok((_, wanted)) if situation.is_used || volume.is_some() => wanted.needs.clone(),
        _ => Vec::new(),
    };
    let (actions, standing) = match wanted {
        _ if !situation.is_used => (remove(claim, volume), Standing::Unused),
        Err(standing) => (Vec::new(), standing),
        Ok((original, wanted)) if is_stale(original, &wanted, claim, volume) => {
            (remove(claim, volume), Standing::Underway)
        }
        Ok((original, wanted)) => keep_in_step(situation, original, &wanted, claim, volume),
    };
    Decision { actions, standing, needs }
}

/// The claim, and the volume that P should have for it; or why there is none.
fn read<'a>(situation: &Situation<'a>) -> Result<(&'a Object, Wanted<'a>), Standing> {
    let key = situation.key;
    let pending = |why: Pending| Err(Standing::Pending(why));
    let Some(claim) = situation.claim else { return pending(Pending::NoClaim(key.clone())) };
    let name = claim.text("spec", &["volumeName"]).filter(|name| !name.is_empty());
    let phase = claim.text("status", &["phase"]).unwrap_or_default();
    let Some(name) = name.filter(|_| phase != "Pending") else {
        return pending(Pending::NotBound(key.clone()));
    };
    let lost = Pending::Lost { claim: key.clone(), volume: name.clone() };
    let Some(volume) = situation.volume.filter(|volume| *volume.meta.name == *name && phase != "Lost") else {
        return pending(lost);
    };
    if claim.meta.is_deleting() && situation.copied_claim.is_none() {
        return pending(Pending::Ending(key.clone()));
    }
    // Anyone may write a volume's name into a claim. Whose it is, is said by the volume.
    let said = |field: &str| volume.text("spec", &["claimRef", field]).unwrap_or_default();
    let is_its = *said("namespace") == *claim.meta.namespace
        && *said("name") == *claim.meta.name
        && *said("uid") == *claim.meta.uid
        && phase == "Bound";
    if !is_its {
        return pending(Pending::BoundToAnother { claim: key.clone(), volume: name });
    }
    let refused = Standing::Refused;
    if !situation.may_make_volumes {
        return Err(refused(Refusal::NoRights));
    }
    Ok((claim, Wanted::read(situation, claim, volume).map_err(refused)?))
}

/// Whether what P has is of an earlier claim or volume of the same name. Neither can be turned into another.
fn is_stale(original: &Object, wanted: &Wanted<'_>, claim: Option<&Object>, volume: Option<&Object>) -> bool {
    let serves = |copy: &Object, original: &Meta| {
        copy.meta.annotations.get(annotations::VIRTUAL_UID).is_none_or(|uid| *uid == *original.uid)
    };
    let is_elsewhere = |claim: &Object| {
        let named = claim.text("spec", &["volumeName"]).unwrap_or_default();
        volume.is_some_and(|volume| *volume.meta.name != *named)
    };
    claim.is_some_and(|claim| !serves(claim, &original.meta) || is_elsewhere(claim))
        || volume.is_some_and(|volume| !serves(volume, &wanted.original.meta))
}

/// The claim first: while it is there, so is its volume.
fn remove(claim: Option<&Object>, volume: Option<&Object>) -> Vec<Action> {
    match (claim, volume) {
        (Some(_), Some(volume)) if retain(volume).is_some() => retain(volume).into_iter().collect(),
        (Some(claim), _) if claim.meta.is_deleting() => Vec::new(),
        (Some(claim), _) => vec![delete(kinds::CLAIM, &claim.meta, "no pod here uses it any more")],
        (None, Some(volume)) if !volume.meta.is_deleting() => {
            vec![delete(kinds::VOLUME, &volume.meta, "its claim is gone")]
        }
        (None, _) => Vec::new(),
    }
}

/// Someone has changed what happens to the data of a volume of ours when its claim goes. That is said again before it does.
pub fn retain(volume: &Object) -> Option<Action> {
    let policy = volume.text("spec", &["persistentVolumeReclaimPolicy"]);
    let spec = json!({"persistentVolumeReclaimPolicy": RETAIN});
    let body = Map::from_iter([("spec".to_owned(), spec)]);
    if policy.as_deref() == Some(RETAIN) {
        return None;
    }
    patch(kinds::VOLUME, &volume.meta, body, "its storage stays")
}

fn keep_in_step(
    situation: &Situation<'_>,
    original: &Object,
    wanted: &Wanted<'_>,
    claim: Option<&Object>,
    volume: Option<&Object>,
) -> (Vec<Action>, Standing) {
    let claim_name = claim.map_or_else(|| claim_name(situation), |claim| PhysicalName::existing(&claim.meta));
    let Some(volume) = volume else {
        let name = volume_name(situation, wanted, claim);
        let create = wanted.create(&situation.stamp, &name, &claim_name, OF_THE_SAME_VOLUME);
        return (vec![create], Standing::Underway);
    };
    if volume.meta.is_deleting() || claim.is_some_and(|claim| claim.meta.is_deleting()) {
        return (Vec::new(), Standing::Underway);
    }
    let mut actions: Vec<Action> =
        wanted.mend(&situation.stamp, volume, &claim_name, claim).into_iter().collect();
    let marks = Marks::of(&situation.stamp, &original.meta);
    let Some(claim) = claim else {
        let body = json!({
            "metadata": marks.written(),
            "spec": claim_spec(original, wanted, &volume.meta.name),
        });
        let why = "a pod here uses it";
        actions.push(situation.stamp.create(kinds::CLAIM, &claim_name, body, OF_THE_SAME, why));
        return (actions, Standing::Underway);
    };
    let missing = marks.missing_on(&claim.meta);
    if !missing.is_empty() {
        let body = Map::from_iter([("metadata".to_owned(), missing.into())]);
        actions.extend(patch(kinds::CLAIM, &claim.meta, body, "its original differs"));
    }
    (actions, Standing::Usable)
}

/// What P's claim asks for: exactly the one volume, and no more of it than there is. Requests of claims in V may be ahead of their volume.
fn claim_spec(original: &Object, wanted: &Wanted<'_>, volume: &str) -> Value {
    let spec = original.field::<Map<String, Value>>("spec").ok().flatten().unwrap_or_default();
    let asked = spec.get("resources").and_then(|resources| resources.pointer("/requests/storage"));
    let asked = asked.and_then(Value::as_str).and_then(|text| text.parse::<Quantity>().ok());
    let there = wanted.capacity();
    let storage = match (asked, there) {
        (Some(asked), Some(there)) => Some(asked.min(there)),
        (one, other) => one.or(other),
    };
    let mut copy = json!({
        "accessModes": spec.get("accessModes").cloned().unwrap_or_else(|| json!([])),
        "storageClassName": "",
        "volumeName": volume,
    });
    if let Some(mode) = spec.get("volumeMode").filter(|mode| mode.is_string()) {
        copy["volumeMode"] = mode.clone();
    }
    if let Some(storage) = storage {
        copy["resources"] = json!({"requests": {"storage": storage}});
    }
    copy
}

fn claim_name(situation: &Situation<'_>) -> PhysicalName {
    let Key { namespace, name, .. } = situation.key;
    named(&Origin::Object { namespace, name }, situation, situation.is_claim_name_taken)
}

/// A claim that has lost its volume gets it back by the name that it knows.
fn volume_name(situation: &Situation<'_>, wanted: &Wanted<'_>, claim: Option<&Object>) -> PhysicalName {
    let origin = Origin::Volume { name: &wanted.original.meta.name };
    let known = claim.and_then(|claim| claim.text("spec", &["volumeName"]));
    let fallback = origin.fallback_name(&situation.stamp.binding.uid);
    let is_taken = situation.is_volume_name_taken || known.as_deref() == Some(fallback.as_str());
    named(&origin, situation, is_taken)
}

fn named(origin: &Origin<'_>, situation: &Situation<'_>, is_taken: bool) -> PhysicalName {
    if is_taken { origin.fallback_name(&situation.stamp.binding.uid) } else { origin.physical_name() }
}

#[cfg(test)]
mod tests;

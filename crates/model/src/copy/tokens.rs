//! The Secret with the service account tokens of one pod.
//!
//! A token is V's, and lives for an hour at most. The Secret says itself when its tokens have to be renewed: whoever comes after us reads it
//! there, and asks for nothing at start.
//!
//! Deliberately absent: asking for tokens, and which ones a pod needs.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kubeocean_api::keys::{TRUE, annotations, labels};
use serde_json::{Map, Value, json};

use super::{Content, Copied, OPAQUE, Texts, differences};
use crate::action::{Action, Mark, kinds};
use crate::naming::PhysicalName;
use crate::object::{Meta, Object};
use crate::stamp::{Marks, Stamp, delete, patch};

/// When a kubelet renews a token: at this many hundredths of its life.
const RENEW_AT_PERCENT: i64 = 80;

/// Ours, if it is of the same pod. A pod that was made anew has another uid, and another Secret.
const OF_THE_POD: Mark = Mark {
    labels: &[labels::BINDING_UID, labels::VIRTUAL_CLUSTER_UID, labels::SERVICE_ACCOUNT_TOKEN],
    annotations: &[annotations::VIRTUAL_POD_UID],
};

/// Tokens of one pod, as V gave them.
#[derive(Clone, Default)]
pub struct Tokens {
    data: Texts,
    renew_at: Option<Timestamp>,
}

impl Tokens {
    /// Adds a token under its key, with the time that it was asked for and the time that it ends. The shortest life counts for all.
    pub fn add(&mut self, key: impl Into<String>, token: &str, asked: Timestamp, ends: Timestamp) {
        self.data.insert(key.into(), STANDARD.encode(token));
        let life = ends.as_second().saturating_sub(asked.as_second()).max(0);
        let due = asked
            .as_second()
            .saturating_add(life / 100 * RENEW_AT_PERCENT + life % 100 * RENEW_AT_PERCENT / 100);
        let due = Timestamp::from_second(due).unwrap_or(asked);
        self.renew_at = Some(self.renew_at.map_or(due, |known| known.min(due)));
    }

    /// When they have to be renewed; `None`: there are none.
    pub const fn renew_at(&self) -> Option<Timestamp> {
        self.renew_at
    }
}

impl fmt::Debug for Tokens {
    /// Names only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&String> = self.data.keys().collect();
        f.debug_struct("Tokens").field("keys", &keys).field("renew_at", &self.renew_at).finish()
    }
}

/// Whether a pod needs tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// It has none, or not all, or old ones.
    Now,
    /// It has them, until then.
    At(Timestamp),
    /// It needs none.
    Never,
}

/// Whether tokens under these keys have to be asked for, given the Secret that is there. `pod` is the uid of the V pod.
pub fn tokens_due<'k>(
    stamp: &Stamp<'_>,
    pod: &str,
    keys: impl IntoIterator<Item = &'k str>,
    existing: Option<&Object>,
    now: Timestamp,
) -> Due {
    let keys: Vec<&str> = keys.into_iter().collect();
    if keys.is_empty() {
        return Due::Never;
    }
    let existing = existing.filter(|existing| serves(stamp, existing, pod) && !existing.meta.is_deleting());
    let Some(existing) = existing else { return Due::Now };
    let has_all = Content::read(Copied::Secret, existing).is_some_and(|content| {
        keys.iter().all(|key| content.data.get(*key).is_some_and(|token| !token.is_empty()))
    });
    let renew_at = existing.meta.annotations.get(annotations::TOKENS_RENEW_AT);
    match renew_at.and_then(|at| at.parse::<Timestamp>().ok()) {
        Some(at) if has_all && at > now => Due::At(at),
        _ => Due::Now,
    }
}

/// What has to be written so that the pod has these tokens; `None`: it needs none any more. `name` is what a new Secret is called.
pub fn plan_tokens(
    stamp: &Stamp<'_>,
    pod: &Meta,
    existing: Option<&Object>,
    tokens: Option<&Tokens>,
    name: &PhysicalName,
) -> Vec<Action> {
    let tokens = tokens.filter(|tokens| !tokens.data.is_empty());
    match (existing, tokens) {
        (Some(existing), _) if !serves(stamp, existing, &pod.uid) || existing.meta.is_deleting() => {
            Vec::new()
        }
        (None, None) => Vec::new(),
        (Some(existing), None) => {
            vec![delete(kinds::SECRET, &existing.meta, "its pod needs no tokens any more")]
        }
        (None, Some(tokens)) => vec![create(stamp, pod, tokens, name)],
        (Some(existing), Some(tokens)) => renew(stamp, pod, existing, tokens),
    }
}

/// Whether a Secret holds tokens of this very pod: one pod's must not get into another's.
fn serves(stamp: &Stamp<'_>, secret: &Object, pod: &str) -> bool {
    let meta = &secret.meta;
    stamp.is_ours(meta)
        && !pod.is_empty()
        && meta.labels.get(labels::SERVICE_ACCOUNT_TOKEN) == Some(TRUE)
        && meta.annotations.get(annotations::VIRTUAL_POD_UID) == Some(pod)
}

fn marks<'a>(stamp: &Stamp<'a>, pod: &'a Meta, renew_at: &'a str) -> Marks<'a> {
    let mut labels: Vec<_> = stamp.labels().map(|(key, value)| (key, Some(value))).to_vec();
    labels.push((labels::SERVICE_ACCOUNT_TOKEN, Some(TRUE)));
    let annotations = vec![
        (annotations::VIRTUAL_POD_NAMESPACE, Some(&*pod.namespace)),
        (annotations::VIRTUAL_POD_NAME, Some(&*pod.name)),
        (annotations::VIRTUAL_POD_UID, Some(&*pod.uid)),
        (annotations::TOKENS_RENEW_AT, Some(renew_at)),
    ];
    Marks { labels, annotations }
}

fn due(tokens: &Tokens) -> String {
    tokens.renew_at.map(|at| at.to_string()).unwrap_or_default()
}

fn create(stamp: &Stamp<'_>, pod: &Meta, tokens: &Tokens, name: &PhysicalName) -> Action {
    let body = json!({
        "metadata": marks(stamp, pod, &due(tokens)).written(),
        "type": OPAQUE,
        "data": tokens.data,
    });
    stamp.create(kinds::SECRET, name, body, OF_THE_POD, "tokens of its pod")
}

fn renew(stamp: &Stamp<'_>, pod: &Meta, existing: &Object, tokens: &Tokens) -> Vec<Action> {
    let is = Content::read(Copied::Secret, existing);
    let known = is.as_ref().map_or(&BTreeMap::new(), |content| &content.data).clone();
    let data = differences(&tokens.data, &known);
    if !data.is_empty() && is.is_some_and(|content| content.is_immutable) {
        let name = PhysicalName::existing(&existing.meta);
        let why = "tokens have to be renewed, and it is immutable";
        return vec![delete(kinds::SECRET, &existing.meta, why), create(stamp, pod, tokens, &name)];
    }
    let mut body: Map<String, Value> = Map::new();
    if !data.is_empty() {
        body.insert("data".to_owned(), data.into());
    }
    let due = due(tokens);
    let metadata = marks(stamp, pod, &due).missing_on(&existing.meta);
    if !metadata.is_empty() {
        body.insert("metadata".to_owned(), metadata.into());
    }
    patch(kinds::SECRET, &existing.meta, body, "tokens are renewed").into_iter().collect()
}

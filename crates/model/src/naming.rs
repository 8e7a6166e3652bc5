//! What things are called: a name on one side, derived from names on the other.
//!
//! Derived names are stable (existing installations have them), valid wherever they are used, and at most
//! 63 characters long, so that each is a label value too. A readable beginning is followed by a hash of all
//! of the original, because the readable part alone is not unique.
//!
//! A name is where to look first, never proof of ownership: whether an object is ours is said by its labels.
//!
//! Deliberately absent: who has a name already. Callers look, and ask for the other form.

mod port;

use std::fmt;
use std::fmt::Write as _;

use kubeocean_api::keys::names;
use md5::{Digest, Md5};

use crate::object::Meta;

pub use port::{Port, conflicts, free_port, with_conflict};

/// A name, a label value or a DNS label has at most this many characters.
const LABEL_LENGTH: usize = 63;

/// What a hashed name keeps of the original: 30, a dash and 32 hexadecimal digits are 63.
const READABLE_LENGTH: usize = 30;

/// Stands in for a beginning of which nothing is usable.
const UNREADABLE: &str = "x";

/// A `clusterID`: which worker cluster, in names and keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(String);

/// Why a text is no `clusterID`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "clusterID `{0}` must be 1 to 24 lower-case letters, digits and '-', starting and ending with a letter or digit; \
     for example 'worker-1'"
)]
pub struct BadClusterId(pub String);

impl ClusterId {
    /// So that the longest name made of it alone, the proxier's Service, is still short.
    pub const MAX_LENGTH: usize = 24;

    /// Checks the rule of the field.
    pub fn parse(text: &str) -> Result<Self, BadClusterId> {
        if text.len() <= Self::MAX_LENGTH && is_dns_label(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadClusterId(text.to_owned()))
        }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Name of the syncer's objects.
    pub fn syncer(&self) -> String {
        format!("{}{self}", names::SYNCER_PREFIX)
    }

    /// Name of the proxier's objects.
    pub fn proxier(&self) -> String {
        format!("{}{self}", names::PROXIER_PREFIX)
    }

    /// Name of the proxier's Service.
    pub fn proxier_service(&self) -> String {
        format!("{}{self}{}", names::PROXIER_PREFIX, names::PROXIER_SERVICE_SUFFIX)
    }

    /// `spec.providerID` of the virtual node of `node`.
    pub fn provider_id(&self, node: &str) -> String {
        format!("{}{self}/{node}", names::PROVIDER_ID_PREFIX)
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a virtual node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VnodeName(String);

impl VnodeName {
    /// The name of the virtual node of `node`: readable where it is short enough.
    pub fn of(cluster: &ClusterId, node: &str) -> Self {
        let plain = format!("{}{cluster}-{node}", names::VNODE_PREFIX);
        if plain.len() <= LABEL_LENGTH && is_dns_subdomain(&plain) {
            Self(plain)
        } else {
            let hash = md5(&plain);
            Self(hashed(&plain, &hash))
        }
    }

    /// Its other name, for when another binding has the first one: cluster `a`, node `b-c` and cluster
    /// `a-b`, node `c` agree in it.
    pub fn disambiguated(cluster: &ClusterId, node: &str) -> Self {
        let plain = format!("{}{cluster}-{node}", names::VNODE_PREFIX);
        Self(hashed(&plain, &md5(&format!("{cluster}/{node}"))))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VnodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a P object comes from, as far as its name is concerned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin<'a> {
    /// A V pod, `ConfigMap`, Secret, claim or Service.
    Object {
        /// Its namespace.
        namespace: &'a str,
        /// Its name.
        name: &'a str,
    },
    /// A V volume, which has no namespace.
    Volume {
        /// Its name.
        name: &'a str,
    },
    /// The tokens of a V pod.
    Tokens {
        /// The pod's name.
        pod: &'a str,
        /// The pod's uid.
        uid: &'a str,
    },
}

impl Origin<'_> {
    fn readable(&self) -> &str {
        match self {
            Self::Object { name, .. } | Self::Volume { name } | Self::Tokens { pod: name, .. } => name,
        }
    }

    fn path(&self) -> String {
        match self {
            Self::Object { namespace, name } => format!("{namespace}/{name}"),
            Self::Volume { name } => format!("/{name}"),
            Self::Tokens { uid, .. } => format!("token/{uid}"),
        }
    }

    /// What it is called in P.
    pub fn physical_name(&self) -> PhysicalName {
        PhysicalName(hashed(self.readable(), &md5(&self.path())))
    }

    /// What it is called in P if the first name is taken by what is not ours.
    pub fn fallback_name(&self, binding_uid: &str) -> PhysicalName {
        PhysicalName(hashed(self.readable(), &md5(&format!("{binding_uid}/{}", self.path()))))
    }
}

/// The name of an object that we make in P.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhysicalName(String);

impl PhysicalName {
    /// The name of one that is there: it need not be the one that we would choose now.
    pub fn existing(meta: &Meta) -> Self {
        Self(meta.name.to_string())
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PhysicalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that may be the value of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelValue<'a>(&'a str);

impl<'a> LabelValue<'a> {
    /// As text.
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

/// `text`, if it may be the value of a label: at most 63 letters, digits, `-`, `_` and `.`, starting and
/// ending with a letter or digit. Nothing is a value too.
pub fn label_value(text: &str) -> Option<LabelValue<'_>> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let valid = text.is_empty() || (text.len() <= LABEL_LENGTH && is_word(text, allowed));
    valid.then_some(LabelValue(text))
}

/// Whether `text` may be the key of a label: a name of at most 63 characters, after an optional DNS
/// subdomain and `/`.
pub fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    !name.is_empty() && label_value(name).is_some() && prefix.is_none_or(is_dns_subdomain)
}

/// Whether `text` is a DNS label (RFC 1123): a namespace's name, for example.
pub fn is_dns_label(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= LABEL_LENGTH && is_word(text, allowed)
}

/// Whether `text` is a DNS subdomain (RFC 1123): most objects' names. As API servers have it, the parts
/// between dots may be longer than DNS allows.
pub fn is_dns_subdomain(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= 253 && text.split('.').all(|label| is_word(label, allowed))
}

/// Not empty, of allowed bytes, with a letter or digit at both ends.
fn is_word(text: &str, allowed: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        && bytes.iter().all(|byte| allowed(*byte))
}

/// The beginning of `readable`, and the hash. Names come from API servers, so the beginning is valid once
/// dots and dashes at the cut are gone; should it not be, the hash alone says enough.
fn hashed(readable: &str, hash: &str) -> String {
    let end = readable.char_indices().nth(READABLE_LENGTH).map_or(readable.len(), |(at, _)| at);
    let beginning = readable.get(..end).unwrap_or_default().trim_end_matches(['.', '-']);
    let beginning = if is_dns_subdomain(beginning) { beginning } else { UNREADABLE };
    format!("{beginning}-{hash}")
}

pub(crate) fn md5(text: &str) -> String {
    Md5::digest(text).iter().fold(String::with_capacity(32), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests;

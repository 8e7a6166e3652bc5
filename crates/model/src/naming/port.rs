//! On which port the proxier serves a virtual node.
//!
//! Each node has a port that it prefers, by its name, so that ports survive restarts without anyone
//! remembering them. Two nodes may prefer the same one; the later takes the next free port.

use std::fmt;

use super::VnodeName;

/// A port that virtual nodes may have. Below are those of services, among them the usual kubelet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(u16);

impl Port {
    /// The lowest.
    pub const FIRST: u16 = 15_000;

    /// How many there are: all from the first to 65535.
    pub const COUNT: u16 = u16::MAX - Self::FIRST + 1;

    /// A port of the range, or nothing.
    pub const fn new(number: u16) -> Option<Self> {
        if number >= Self::FIRST { Some(Self(number)) } else { None }
    }

    /// The value of the label that keeps a node's port, if it is one.
    pub fn from_label(value: &str) -> Option<Self> {
        value.parse().ok().and_then(Self::new)
    }

    /// As number.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The next one; after the last comes the first.
    const fn next(self) -> Self {
        match self.0.checked_add(1) {
            Some(number) => Self(number),
            None => Self(Self::FIRST),
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl VnodeName {
    /// The port that this node has unless it is taken.
    pub fn preferred_port(&self) -> Port {
        let place = fnv1a(self.as_str()) % u32::from(Port::COUNT);
        // Less than COUNT, so the sum is a port.
        Port(u16::try_from(place).unwrap_or(0).saturating_add(Port::FIRST))
    }
}

/// The first port from `preferred` on that is not taken; none if all are.
pub fn free_port(preferred: Port, mut taken: impl FnMut(Port) -> bool) -> Option<Port> {
    let mut port = preferred;
    for _ in 0..Port::COUNT {
        if !taken(port) {
            return Some(port);
        }
        port = port.next();
    }
    None
}

/// So many ports that could not be bound are remembered; then the oldest is tried again.
const MOST_CONFLICTS: usize = 256;

/// The ports that proxiers could not bind, as they say it on their Service.
pub fn conflicts(annotation: Option<&str>) -> Vec<Port> {
    annotation.unwrap_or_default().split(',').filter_map(|word| Port::from_label(word.trim())).collect()
}

/// The same with one more; `None`: it is there already.
pub fn with_conflict(annotation: Option<&str>, port: Port) -> Option<String> {
    let mut known = conflicts(annotation);
    if known.contains(&port) {
        return None;
    }
    known.push(port);
    let forgotten = known.len().saturating_sub(MOST_CONFLICTS);
    Some(known.iter().skip(forgotten).map(ToString::to_string).collect::<Vec<_>>().join(","))
}

/// FNV-1a, 32 bits.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

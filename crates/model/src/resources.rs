//! Amounts of several resources: `cpu`, `memory`, `nvidia.com/gpu` and so on.
//!
//! What is not listed is nothing.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use serde::{Deserialize, Serialize};

use crate::quantity::{ParseQuantityError, Quantity};

/// Processor time, in cores.
pub const CPU: &str = "cpu";
/// Memory, in bytes.
pub const MEMORY: &str = "memory";
/// How many pods.
pub const PODS: &str = "pods";
/// Local disk, in bytes.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Prefix of the resources that are memory in pages of some size, in bytes.
pub const HUGE_PAGES_PREFIX: &str = "hugepages-";

/// Amounts by the name of the resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Resources(BTreeMap<String, Quantity>);

/// A quantity among others that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{resource}: {source}")]
pub struct BadResource {
    /// Which resource.
    pub resource: String,
    /// What is wrong.
    pub source: ParseQuantityError,
}

impl Resources {
    /// How much there is of a resource.
    pub fn get(&self, resource: &str) -> Quantity {
        self.0.get(resource).copied().unwrap_or_default()
    }

    /// Whether the resource is listed, be it with nothing.
    pub fn lists(&self, resource: &str) -> bool {
        self.0.contains_key(resource)
    }

    /// Lists a resource, in place of what was listed of it.
    pub fn set(&mut self, resource: impl Into<String>, quantity: Quantity) {
        self.0.insert(resource.into(), quantity);
    }

    /// Whether nothing is listed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All that are listed, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(resource, quantity)| (resource.as_str(), *quantity))
    }

    /// More of each.
    pub fn add(&mut self, more: &Self) {
        for (resource, quantity) in more.iter() {
            self.change(resource, |amount| amount + quantity);
        }
    }

    /// Less of each. What comes to nothing is no longer listed.
    pub fn take(&mut self, less: &Self) {
        for (resource, quantity) in less.iter() {
            self.change(resource, |amount| amount - quantity);
            if self.get(resource).is_zero() {
                self.0.remove(resource);
            }
        }
    }

    /// The larger of each.
    pub fn raise_to(&mut self, other: &Self) {
        for (resource, quantity) in other.iter() {
            if !self.lists(resource) || quantity > self.get(resource) {
                self.set(resource, quantity);
            }
        }
    }

    fn change(&mut self, resource: &str, change: impl FnOnce(Quantity) -> Quantity) {
        match self.0.get_mut(resource) {
            Some(amount) => *amount = change(*amount),
            None => self.set(resource, change(Quantity::ZERO)),
        }
    }

    /// From the types of an API object.
    pub fn parse(written: &BTreeMap<String, Written>) -> Result<Self, BadResource> {
        let read = |(resource, quantity): (&String, &Written)| match Quantity::try_from(quantity) {
            Ok(quantity) => Ok((resource.clone(), quantity)),
            Err(source) => Err(BadResource { resource: resource.clone(), source }),
        };
        written.iter().map(read).collect::<Result<_, _>>().map(Self)
    }
}

impl From<Resources> for BTreeMap<String, Written> {
    fn from(resources: Resources) -> Self {
        resources.0.into_iter().map(|(resource, quantity)| (resource, quantity.into())).collect()
    }
}

impl<S: Into<String>> FromIterator<(S, Quantity)> for Resources {
    fn from_iter<I: IntoIterator<Item = (S, Quantity)>>(iter: I) -> Self {
        Self(iter.into_iter().map(|(resource, quantity)| (resource.into(), quantity)).collect())
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        for (index, (resource, quantity)) in self.iter().enumerate() {
            write!(f, "{}{resource} {quantity}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// The most of a resource that can be offered of `quantity`: schedulers count processors in thousandths
/// and everything else in ones, and round what they read *up*.
pub fn countable(resource: &str, quantity: Quantity) -> Quantity {
    if resource == CPU { quantity.floor_to_milli() } else { quantity.floor_to_whole() }
}

/// What a request of `quantity` counts: as the scheduler has it, rounded up and in 64 bits. Less than nothing is
/// nothing.
pub fn counted(resource: &str, quantity: Quantity) -> Quantity {
    let rounded = if resource == CPU { quantity.ceil_to_milli() } else { quantity.ceil_to_whole() };
    rounded.between(Quantity::ZERO, Quantity::whole(i64::MAX))
}

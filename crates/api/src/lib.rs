//! The public API of Kubeocean: what users write, and every word that Kubeocean writes back.
//!
//! - [`binding`] and [`policy`]: the custom resources of group `cloud.tencent.com`. Their rules are
//!   part of the schema, so that an API server refuses a wrong object before anyone reads it.
//! - [`keys`]: labels, annotations, taints, finalizers, condition types, reasons and fixed names.
//!   No other crate spells such a string.
//! - [`crd`]: the same resources as `CustomResourceDefinition`s, and as files. [`yaml`]: objects as text.
//!
//! Deliberately absent: API calls, clocks, parsing of what the fields mean (windows, quantities,
//! selectors), and the derivation of names.

pub mod binding;
pub mod crd;
pub mod keys;
pub mod policy;
mod schema;
pub mod yaml;

pub use binding::{BindingPhase, ClusterBinding, ClusterBindingSpec, ClusterBindingStatus, SecretRef};
pub use policy::{
    BindingUse, PolicyPhase, ResourceLeasingPolicy, ResourceLeasingPolicySpec, ResourceLeasingPolicyStatus,
    ResourceLimit, TimeWindow,
};

/// API group of the pooling resources. It is the group of existing installations, and stays.
pub const GROUP: &str = "cloud.tencent.com";

/// The one version that is served and stored.
pub const VERSION: &str = "v1beta1";

//! The only door to an API server.
//!
//! - [`client`], [`credentials`], [`connector`], [`error`]: one cluster, who we are to it, and what it says. [`kubelet`]: the same of its nodes.
//! - [`informer`], [`store`], [`progress`]: what is there.
//! - [`queue`], [`reconcile`], [`apply`], [`fence`]: what is to be done about it, and the doing.
//! - [`leader`], [`events`]: who may write, and what people are told.
//! - [`shutdown`], [`admin`], [`telemetry`], [`metrics`], [`process`], [`clock`], [`together`]: a component around all that.
//!
//! Deliberately absent: decisions. They are made by `kubeocean-model`, from what the stores hold.

pub mod admin;
pub mod apply;
mod backoff;
pub mod client;
pub mod clock;
pub mod connector;
pub mod credentials;
pub mod dial;
mod doubt;
pub mod election;
pub mod error;
pub mod events;
pub mod fence;
mod guard;
pub mod informer;
pub mod introduction;
pub mod kubelet;
pub mod leader;
mod limit;
pub mod metrics;
pub mod process;
pub mod progress;
pub mod queue;
pub mod reconcile;
pub mod shutdown;
pub mod store;
pub mod telemetry;
pub mod together;
mod watch;

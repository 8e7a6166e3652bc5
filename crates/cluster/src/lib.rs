//! The only door to an API server.
//!
//! - [`client`], [`credentials`], [`error`]: one cluster, who we are to it, and what it says.
//! - [`informer`], [`store`], [`progress`]: what is there.
//! - [`queue`], [`reconcile`], [`apply`], [`fence`]: what is to be done about it, and the doing.
//! - [`leader`], [`events`]: who may write, and what people are told.
//! - [`shutdown`], [`admin`], [`telemetry`], [`metrics`], [`process`], [`clock`]: a component around all that.
//!
//! Deliberately absent: decisions. They are made by `kubeocean-model`, from what the stores hold.

pub mod admin;
pub mod apply;
mod backoff;
pub mod client;
pub mod clock;
pub mod credentials;
mod doubt;
pub mod election;
pub mod error;
pub mod events;
pub mod fence;
mod guard;
pub mod informer;
pub mod introduction;
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
mod watch;

//! The only door to an API server.

pub mod apply;
mod backoff;
pub mod client;
pub mod clock;
pub mod credentials;
pub mod error;
pub mod events;
pub mod fence;
pub mod informer;
pub mod leader;
mod limit;
pub mod metrics;
pub mod progress;
pub mod queue;
pub mod reconcile;
pub mod store;
mod watch;

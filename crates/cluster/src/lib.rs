//! The only door to an API server.

pub mod admin;
pub mod clock;
pub mod metrics;
pub mod process;
pub mod shutdown;
pub mod telemetry;

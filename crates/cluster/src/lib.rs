//! The only door to an API server.

pub mod client;
pub mod credentials;
pub mod error;
mod limit;

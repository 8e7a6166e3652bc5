//! What the model decides, against the shared vectors, laws, and a real API server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

mod lease_laws;
mod name_laws;
mod quantity_laws;
mod server;
mod vectors;
mod window_laws;

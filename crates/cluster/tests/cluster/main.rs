//! The door to API servers, in front of real ones.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test, a panic is the report"
)]

mod collectors;
mod credentials;
mod dialling;
mod elections;
mod informers;
mod nonsense;
mod scripted;
mod simulated;
mod support;
mod writes;

//! The simulated API server: as kube's client sees it, and as a real one answers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

mod client;
mod determinism;
mod mirror;
mod parity;
mod poller;
mod sample;
mod scenario;
mod toys;

//! The manager: simulated with faults, and in front of real API servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

mod certificates;
mod real;
mod residents;
mod rules;
mod scene;
mod simulated;
mod stories;
mod truth;
mod vanished;

/// Objects are made and dropped by the million.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

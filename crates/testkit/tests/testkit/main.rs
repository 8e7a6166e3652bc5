//! The simulated API server: as kube's client sees it, and as a real one answers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

#[path = "../../../api/tests/api/cases.rs"]
#[rustfmt::skip] // a table: one case, one line
mod cases;
mod client;
mod determinism;
mod mirror;
mod nasty;
mod parity;
mod planned;
mod poller;
mod real;
mod rights;
#[path = "../../../api/tests/api/runner.rs"]
mod runner;
mod sample;
mod scenario;
mod toys;
mod verdicts;

/// Objects are made and dropped by the million.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

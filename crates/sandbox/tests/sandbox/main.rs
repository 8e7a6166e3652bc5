//! Real clusters, started and used as a test of any other crate would.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test, a panic is the report"
)]

mod control_planes;
mod endings;
mod faults;
mod metering;
mod real_nodes;
mod support;

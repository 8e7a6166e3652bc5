//! A proxier over real sockets, between a simulated computing cluster and a worker cluster whose pods echo.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test, a panic is the report"
)]

mod answered;
mod audit;
mod caller;
mod guarded;
mod lasting;
mod metering;
mod refused;
mod scene;
mod serving;
mod several;
mod worker;

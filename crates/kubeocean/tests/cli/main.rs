//! The command line, used as people and scripts use it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test, a panic is the report"
)]

mod access;
mod bad_input;
mod bind;
mod demo;
mod fences;
mod installed;
mod installing;
mod interruption;
mod lab;
mod lending;
mod licences;
mod lifecycle;
mod manager;
mod managing;
mod preflight;
mod support;
mod surface;

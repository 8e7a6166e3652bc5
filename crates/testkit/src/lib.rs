//! A simulated API server with faults, for tests.
//!
//! [`ApiServer`] answers as kube-apiserver 1.36 does, in memory, without sockets, threads or a clock of its
//! own: the same seed gives the same answers. Its answers are compared with a real server's by
//! `tests/testkit/parity`.
//!
//! Deliberately absent: anything of Kubeocean but its definitions, and anything that ships.

mod bootstrap;
mod clock;
mod controllers;
mod discovery;
mod fields;
mod kinds;
mod patch;
mod rest;
mod schema;
mod selector;
mod server;
mod service;
mod status;
mod store;

pub use server::{ApiServer, Commit, Options};
pub use service::{SimBody, SimService};
pub use store::Verb;

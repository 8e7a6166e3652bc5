//! A simulated API server with faults, for tests.
//!
//! [`ApiServer`] answers as kube-apiserver 1.36 does, in memory, without sockets, threads or a clock of its
//! own: the same seed gives the same answers. Its answers are compared with a real server's by
//! `tests/testkit/parity`.
//!
//! Around it: [`chaos`] breaks the network by seed, [`crash`] ends controllers at every write, [`oracle`]
//! says what must never be seen, [`generators`] make nasty objects, and [`simulation`] runs it all under
//! paused time, seed by seed.
//!
//! Deliberately absent: anything of Kubeocean but its definitions, and anything that ships.

mod bootstrap;
pub mod chaos;
mod clock;
mod controllers;
pub mod crash;
mod discovery;
mod fields;
pub mod generators;
mod kinds;
mod news;
pub mod oracle;
mod patch;
mod rest;
mod schema;
mod selector;
mod server;
mod service;
pub mod simulation;
mod status;
mod store;
pub mod story;
pub mod traffic;

pub use rest::refusal::Refusal;
pub use rest::rights::Right;
pub use server::{ApiServer, Commit, Options};
pub use service::{SimBody, SimService};
pub use store::Verb;

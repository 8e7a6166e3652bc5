//! The brain of Kubeocean: what should be, given what is.
//!
//! Everything here is a function of its arguments. `now` is an argument; so is the world.
//!
//! Deliberately absent: API servers, clocks, tasks, logs. Whoever wants something done takes the
//! [`action::Action`]s that a plan returns to the crate `cluster`.

pub mod action;
pub mod admission;
pub mod bind;
pub mod binding;
mod condition;
pub mod copy;
pub mod csinode;
pub mod escape;
pub mod exposition;
pub mod hostports;
pub mod intranet;
pub mod key;
pub mod kubelet;
pub mod lease;
pub mod leasing;
pub mod manifest;
pub mod nameless;
pub mod naming;
pub mod object;
pub mod orphan;
pub mod policies;
#[cfg(test)]
mod pretend;
pub mod project;
pub mod quantity;
pub mod reclaim;
pub mod reflect;
pub mod requests;
pub mod resources;
pub mod rights;
pub mod selector;
pub mod services;
pub mod serving;
pub mod stamp;
pub mod storage;
pub mod sweep;
pub mod twin;
pub mod usage_series;
pub mod vnode;
pub mod window;

//! One worker cluster's nodes as virtual nodes of the computing cluster.
//!
//! ```text
//!   worker cluster                                             computing cluster
//!   nodes, CSINodes, policies ──▶ World ──▶ Duty ──▶ model ──▶ virtual nodes, CSINodes, placeholder pods
//!   pods ──▶ Usage (a ledger per node) ──▶ ▲                   pods: notice, eviction, removal
//!   mount namespace ◀── Pulse: does it answer, is it the one?  Leases ◀── Renewals
//! ```
//!
//! What watches runs always; what writes runs while this process leads. What should be is decided in `model`.
//!
//! Deliberately absent: pods in the worker cluster, and the kubelet API of virtual nodes.

pub mod args;
pub mod belongings;
mod binding;
mod connection;
mod copies;
mod endpoints;
mod leftovers;
mod nodes;
mod observe;
mod pods;
mod policies;
pub mod pulse;
mod renewals;
pub mod run;
mod standing;
pub mod syncer;
mod tokens;
mod twins;
mod usage;
mod watch;
pub mod world;

//! One worker cluster's nodes as virtual nodes of the computing cluster, and the pods of those in the worker cluster.
//!
//! ```text
//!   worker cluster                                             computing cluster
//!   nodes, CSINodes, policies ──▶ World ──▶ Duty ──▶ model ──▶ virtual nodes, CSINodes, placeholder pods
//!   pods ──▶ Usage (a ledger per node) ──▶ ▲ │                 pods: notice, eviction, removal, status
//!   mount namespace ◀── Pulse: is it the one? │                Leases ◀── Renewals
//!   twins, copies, tokens, claims, Services ◀─┘ ◀────────────  pods, and what they use
//! ```
//!
//! What watches runs always; what writes runs while this process leads. What should be is decided in `model`.
//!
//! Deliberately absent: the kubelet API of virtual nodes.

pub mod args;
mod belongings;
mod binding;
mod claims;
mod connection;
mod copies;
mod endpoints;
mod leftovers;
mod mirrors;
mod nodes;
mod observe;
mod placements;
mod pods;
mod policies;
pub mod pulse;
mod references;
mod renewals;
pub mod run;
pub mod seen;
pub mod several;
mod standing;
mod surroundings;
pub mod syncer;
mod term;
mod tokens;
mod twins;
mod unheard;
mod usage;
mod vain;
mod watch;
pub mod world;

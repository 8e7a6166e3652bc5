//! A manager as it is deployed, in front of real control planes, and everything that may happen to it.
//!
//! Syncers and proxiers run on simulated nodes. Each test has a sandbox of its own: they kill managers and API servers.

mod abused;
mod changed;
mod faults;
mod inlined;
mod leading;
mod leasing;
mod many;
mod nodes;
mod place;
mod pods;
mod pods_hurt;
mod quiet;
mod real_node;
mod real_pods;
mod refused;
mod rights;
mod rotating;
mod strangers;
mod templates;
mod vnodes;
mod workloads;

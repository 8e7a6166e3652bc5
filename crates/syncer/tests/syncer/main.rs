//! The syncer: simulated with faults.

mod residents;
mod rules;
mod scene;
mod simulated;

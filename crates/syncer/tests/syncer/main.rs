//! The syncer: simulated with faults.

mod scene;
mod simulated;

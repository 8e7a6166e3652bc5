//! The syncer: simulated with faults.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]
#![allow(
    clippy::unused_self,
    clippy::needless_pass_by_value,
    reason = "a scene is told in sentences, and its objects are written where they are used"
)]

mod bad_input;
mod company;
mod edges;
mod endings;
mod hidden;
mod kubelet;
mod leasing;
mod lenders_word;
mod lifetimes;
mod lives;
mod lost;
mod mirrored;
mod misspelt;
mod names_taken;
mod offers;
mod optional;
mod orphans;
mod pods;
mod proxiers;
mod refused;
mod renewing;
mod residents;
mod rules;
mod scene;
mod simulated;
mod spared;
mod storage;
mod tokens;
mod unkept;
mod vectors;
mod versions;

/// Objects are made and dropped by the million.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

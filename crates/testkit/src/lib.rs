//! A simulated API server with faults, for tests.

pub mod chaos;
pub mod story;

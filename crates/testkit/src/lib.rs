//! A simulated API server with faults, for tests.

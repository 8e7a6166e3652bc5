//! The only door to an API server.

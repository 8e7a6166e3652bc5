//! The kubelet API of the virtual nodes of one worker cluster: `kubectl logs`, `exec`, `attach`, `port-forward`, and metrics.
//!
//! ```text
//!   computing cluster's API server                                                worker cluster's API server
//!     │ https, a port per virtual node                                                 ▲ over a proven connection
//!     ▼                                                                                │
//!   listeners ──▶ tls ──▶ callers: who? ──▶ rights: may they? ──▶ world: which twin? ──▶ tunnel: bytes, both ways
//!                              TokenReview       SubjectAccessReview      stores of both sides
//! ```
//!
//! Nobody is anonymous, nothing is plain HTTP, and what cannot be asked is refused. Every call to a pod is one line of the audit log.
//!
//! Deliberately absent: any write to a worker cluster, and any belief in what tenants wrote on their pods.

pub mod args;
mod callers;
pub mod certificate;
mod conflicts;
mod connection;
pub mod desk;
mod headers;
mod house;
mod listeners;
pub mod metering;
mod patience;
mod pulse;
mod remembered;
mod rights;
pub mod run;
mod stream;
mod tell;
mod tls;
mod tunnel;
pub mod world;

//! The manager: brings worker clusters in, keeps them healthy, and lets them go.
//!
//! ```text
//!   World (V's bindings, Secrets, objects) ──▶ Prober ──▶ what each worker cluster says
//!         │                                      │
//!         ▼                                      ▼
//!      Bindings: situation → bind::plan → writes, status, Events        one per binding, none waits for another
//!      Policies: those that name no binding are told so
//!      Sweep:    what bindings that are gone have left
//!      Approver: certificates that proxiers ask for
//! ```
//!
//! Decisions are `kubeocean-model`'s ([`bind`](kubeocean_model::bind), [`nameless`](kubeocean_model::nameless),
//! [`sweep`](kubeocean_model::sweep), [`serving`](kubeocean_model::serving)); here they are fed and carried out.

pub mod args;
pub mod bindings;
mod certainty;
pub mod certificates;
pub mod contest;
pub mod inline;
pub mod manager;
mod observe;
pub mod probe;
pub mod run;
mod secrets;
mod sweep;
pub mod template;
pub mod world;

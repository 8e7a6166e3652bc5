//! Real Kubernetes clusters on one machine: etcd, API servers, schedulers, controllers, and nodes that
//! are simulated (KWOK) or real (kubelet, containerd, runc in namespaces of their own).
//!
//! ```no_run
//! # async fn example() -> Result<(), kubeocean_sandbox::Error> {
//! use kubeocean_sandbox::{Sandbox, Spec, lab::Program};
//!
//! let sandbox = Sandbox::start(Spec::new().workers(2, 3, 0)).await?;
//! let worker = sandbox.cluster("worker-1")?;
//! let client = worker.client().await?;
//! worker.program(Program::KubeApiserver).pause().await?;
//! # drop(client);
//! sandbox.stop().await
//! # }
//! ```
//!
//! Whatever becomes of the process that started a sandbox, nothing of it stays: children die with the
//! thread that forked them, a janitor process removes directory, interfaces and control groups, and
//! what even a killed janitor leaves is removed by the next `up` or `list`.
//!
//! Deliberately absent: anything of Kubeocean. This crate knows Kubernetes only.

mod bring_up;
mod control_plane;
mod dns;
pub mod doctor;
mod error;
mod handle;
mod home;
mod identity;
mod image;
mod janitor;
mod kubeconfig;
pub mod lab;
mod leftovers;
mod link;
mod metrics_server;
mod net;
mod node;
mod pki;
mod process;
mod progress;
mod ready;
pub mod registry;
mod sim;
mod spec;
pub mod state;
mod supervisor;
mod world;

pub use error::{Error, ErrorKind};
pub use handle::{Cluster, ProgramHandle, Sandbox};
pub use home::sandboxes;
pub use image::{BUSYBOX_IMAGE, write_program_image};
pub use leftovers::{leftovers, leftovers_in};
pub use link::Link;
pub use progress::{Progress, Report};
pub use spec::{COMPUTING, ClusterSpec, NodeSize, Spec};

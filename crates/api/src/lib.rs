//! The public API of Kubeocean.

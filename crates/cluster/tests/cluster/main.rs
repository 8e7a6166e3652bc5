//! Integration tests of kubeocean-cluster.

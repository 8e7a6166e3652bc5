//! Integration tests of kubeocean-testkit.

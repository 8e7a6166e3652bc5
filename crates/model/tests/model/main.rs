//! Integration tests of kubeocean-model.

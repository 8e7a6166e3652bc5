//! Nasty objects.

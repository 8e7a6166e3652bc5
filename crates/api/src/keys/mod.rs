//! Every word that Kubeocean writes into a cluster, or looks for in one.
//!
//! Existing installations, dashboards and scripts know these spellings, so they are the API as much as
//! the custom resources are. They are spelled here and nowhere else; each says who writes it, on what,
//! and what it means. V is the computing cluster (virtual side), P the worker cluster (physical side).
//!
//! Deliberately absent: how a name is derived from another one, and when anything is written.

pub mod annotations;
pub mod conditions;
pub mod finalizers;
pub mod labels;
pub mod names;
pub mod reasons;
pub mod taints;

/// Prefix of every key of ours. Labels and annotations of V objects under it never go to P.
pub const PREFIX: &str = "kubeocean.io/";

/// The value of keys that are either there or not.
pub const TRUE: &str = "true";

/// Whether a label, annotation, taint or finalizer key is one of ours.
pub fn is_ours(key: &str) -> bool {
    key.starts_with(PREFIX)
}

/// Declares documented constants, and `ALL` with every one of them.
macro_rules! constants {
    ($($(#[$doc:meta])+ $name:ident = $value:literal;)+) => {
        $($(#[$doc])+ pub const $name: &str = $value;)+

        /// Every key of ours in this module.
        pub const ALL: &[&str] = &[$($name),+];
    };
}
use constants;

/// Declares an enum whose variants are words of the API.
macro_rules! words {
    ($(#[$type_doc:meta])+ $type:ident { $($(#[$doc:meta])+ $variant:ident = $word:literal,)+ }) => {
        $(#[$type_doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type { $($(#[$doc])+ $variant,)+ }

        impl $type {
            /// Every one there is.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The spelling on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl From<$type> for String {
            fn from(word: $type) -> Self {
                word.as_str().to_owned()
            }
        }
    };
}
use words;

#[cfg(test)]
mod tests;

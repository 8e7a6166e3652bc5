//! Which policy of one side counts for a node, and what became of the others.

use std::sync::Arc;

use super::{Candidate, Invalid, Node, Policy};
use crate::binding::Binding;
use crate::selector::Mismatch;

/// What became of the policies of one side.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The one that counts.
    pub winner: Option<Arc<Policy>>,
    /// All that were looked at, the oldest first; those that cannot be followed come last.
    pub considered: Vec<Considered>,
}

/// One policy that was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Considered {
    /// Its name.
    pub policy: String,
    /// What became of it.
    pub verdict: Verdict,
}

/// What became of a policy.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It counts.
    Wins,
    /// An older one counts instead.
    Shadowed {
        /// That one.
        by: String,
    },
    /// It is about another binding.
    OtherBinding {
        /// That one.
        binding: String,
    },
    /// It does not mean this node.
    NotSelected(Mismatch),
    /// It cannot be followed.
    Invalid(Arc<Invalid>),
}

impl Choice {
    /// Of all policies that can be followed, name the binding and mean the node: the oldest; of the same age,
    /// the first by name.
    pub(super) fn among(candidates: &[Candidate], binding: &Binding, node: &Node) -> Self {
        let mut sorted: Vec<&Candidate> = candidates.iter().collect();
        sorted.sort_by(|one, other| age(one).cmp(&age(other)));
        let mut winner: Option<Arc<Policy>> = None;
        let mut considered = Vec::with_capacity(sorted.len());
        for candidate in sorted {
            let (name, verdict) = match candidate {
                Err(invalid) => (&invalid.name, Verdict::Invalid(Arc::clone(invalid))),
                Ok(policy) if policy.binding != binding.name => {
                    (&policy.name, Verdict::OtherBinding { binding: policy.binding.clone() })
                }
                Ok(policy) => (&policy.name, verdict(policy, &mut winner, node)),
            };
            considered.push(Considered { policy: name.clone(), verdict });
        }
        Self { winner, considered }
    }

    /// Each policy for which an older one counts, with that one.
    pub fn shadowed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.considered.iter().filter_map(|one| match &one.verdict {
            Verdict::Shadowed { by } => Some((one.policy.as_str(), by.as_str())),
            _ => None,
        })
    }
}

fn verdict(policy: &Arc<Policy>, winner: &mut Option<Arc<Policy>>, node: &Node) -> Verdict {
    match (policy.selector.explain(&node.name, &node.labels), &winner) {
        (Err(why), _) => Verdict::NotSelected(why),
        (Ok(()), Some(older)) => Verdict::Shadowed { by: older.name.clone() },
        (Ok(()), None) => {
            *winner = Some(Arc::clone(policy));
            Verdict::Wins
        }
    }
}

/// By what policies are sorted.
fn age(candidate: &Candidate) -> (bool, Option<jiff::Timestamp>, &str) {
    match candidate {
        Ok(policy) => (false, Some(policy.created), &policy.name),
        Err(invalid) => (true, None, &invalid.name),
    }
}

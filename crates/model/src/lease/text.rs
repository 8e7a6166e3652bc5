//! The answers in words, for `kubeocean explain`, conditions and Events.

use std::fmt;

use super::{AppliedLimit, Choice, Explanation, Lease, NoLease, Offer, Outcome, Verdict};
use crate::key::Side;

/// Where the policies of a side live, to someone who has to go there.
const fn cluster_of(side: Side) -> &'static str {
    match side {
        Side::Virtual => "the computing cluster",
        Side::Physical => "the worker cluster",
    }
}

impl fmt::Display for NoLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExcludedNode { label, value } => {
                write!(
                    f,
                    "the label {label}={value} says that there is no machine behind this node: such nodes are never leased"
                )
            }
            Self::NotSelected { binding, why } => write!(
                f,
                "ClusterBinding `{binding}` does not select this node: {why}; change the node's labels or the binding's \
                 spec.nodeSelector"
            ),
            Self::PermissionDenied { binding } => write!(
                f,
                "the worker cluster has ResourceLeasingPolicies and does not let us read them: grant the identity of \
                 ClusterBinding `{binding}` get, list and watch on resourceleasingpolicies there"
            ),
            Self::NoPolicy { binding, side } => write!(
                f,
                "no valid ResourceLeasingPolicy in {} allows it: create one there with spec.cluster `{binding}` and a \
                 spec.nodeSelector that means this node",
                cluster_of(*side)
            ),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wins => f.write_str("counts"),
            Self::Shadowed { by } => write!(f, "does not count, because `{by}` is older"),
            Self::OtherBinding { binding } => write!(f, "is about ClusterBinding `{binding}`"),
            Self::NotSelected(why) => write!(f, "does not select this node: {why}"),
            Self::Invalid(invalid) => {
                f.write_str("is invalid")?;
                for (index, fault) in invalid.faults.iter().enumerate() {
                    write!(f, "{}{fault}", if index == 0 { ": " } else { "; " })?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for AppliedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "policy `{}` in {} allows {}", self.policy, cluster_of(self.side), self.cap)?;
        if self.cap == super::Cap::Quantity(self.comes_to) {
            Ok(())
        } else {
            write!(f, ": {}", self.comes_to)
        }
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (of {}, others use {}", self.offer, self.base, self.used)?;
        for (index, (user, quantity)) in self.used_by.iter().enumerate() {
            write!(f, "{}{user} {quantity}", if index == 0 { ": " } else { ", " })?;
        }
        write!(f, "; {} is left", self.remaining)?;
        for limit in &self.limits {
            write!(f, "; {limit}")?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("  ")?;
        match (self.active, self.next_edge) {
            (true, None) => f.write_str("open, and never closes"),
            (true, Some(edge)) => write!(f, "open until {}", edge.at),
            (false, Some(edge)) => write!(f, "closed until {}", edge.at),
            (false, None) => {
                f.write_str("closed, and never opens: the windows of the two policies do not meet")
            }
        }?;
        writeln!(f)?;
        for (resource, offer) in &self.offers {
            writeln!(f, "  {resource}: {offer}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Outcome::Leased(lease) => write!(f, "node `{}` is leased\n{lease}", self.node)?,
            Outcome::NotLeased(why) => writeln!(f, "node `{}` is not leased: {why}", self.node)?,
        }
        let mut policies = |side: Side, choice: &Choice| {
            choice.considered.iter().try_for_each(|one| {
                writeln!(f, "policy `{}` in {} {}", one.policy, cluster_of(side), one.verdict)
            })
        };
        self.worker.iter().try_for_each(|choice| policies(Side::Physical, choice))?;
        policies(Side::Virtual, &self.computing)
    }
}

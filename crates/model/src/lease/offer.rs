//! How much of one resource a node offers.

use super::{Cap, Ledger, User, Winners};
use crate::key::Side;
use crate::quantity::Quantity;
use crate::resources::countable;

/// What is offered of one resource, and how that came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What the node has.
    pub base: Quantity,
    /// What others use of it.
    pub used: Quantity,
    /// Who they are, and how much each of them uses.
    pub used_by: Vec<(User, Quantity)>,
    /// What they leave.
    pub remaining: Quantity,
    /// The limits on it, the lender's first.
    pub limits: Vec<AppliedLimit>,
    /// What is offered.
    pub offer: Quantity,
}

/// A limit, and what it comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedLimit {
    /// Whose.
    pub side: Side,
    /// Of which policy.
    pub policy: String,
    /// As the policy has it.
    pub cap: Cap,
    /// What it comes to.
    pub comes_to: Quantity,
}

impl Offer {
    pub(super) fn of(
        resource: &str,
        base: Quantity,
        used: Quantity,
        ledger: &Ledger,
        winners: &Winners,
    ) -> Self {
        let used_by: Vec<_> = ledger
            .shares()
            .filter(|(user, _)| **user != User::Ours)
            .map(|(user, share)| (user.clone(), share.requests.get(resource)))
            .filter(|(_, quantity)| *quantity > Quantity::default())
            .collect();
        let remaining = (base - used).at_least_zero();
        let limits: Vec<_> = winners
            .iter()
            .flat_map(|(side, policy)| policy.limits_on(resource).map(move |cap| (side, policy, cap)))
            .map(|(side, policy, cap)| AppliedLimit {
                side,
                policy: policy.name.clone(),
                cap,
                comes_to: cap.of(remaining),
            })
            .collect();
        let least = limits.iter().map(|limit| limit.comes_to).fold(remaining, Quantity::min);
        Self { base, used, used_by, remaining, limits, offer: countable(resource, least) }
    }
}

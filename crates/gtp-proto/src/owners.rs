//! How sessions of one owner share what one owner has.
//!
//! A host that serves gives each owner, a client with a listed key or an address of strangers, the
//! weight of the heaviest of its sessions, however many it has. What an owner gets, its sessions
//! share by their own weights and demands, so that those that want little leave the rest to the
//! others. An owner may have a weight that multiplies it, and a limit for all its sessions
//! together. The host's own sessions have no owner, and keep their weights. This module must not
//! know who the owners are.

use alloc::vec::Vec;

use gtp_alloc::Rate;
use gtp_alloc::grant::{Claim, Share, shares};

use crate::report::{FlowId, Phase, Report};

/// Whether a session shares its weight or a limit with others.
#[inline]
pub fn is_owned(report: &Report) -> bool {
    report.owner.number != 0
}

/// Lowers the bounds of sessions whose owner has a limit to what they have of it. `claims` are
/// those of `reports`, in their order.
pub fn limit(reports: &[(FlowId, Report)], claims: &mut [Claim]) {
    if reports.iter().all(|(_, report)| report.owner.most.is_unlimited()) {
        return;
    }
    for own in of_each(reports, &by_owner(reports)) {
        let most = own.iter().map(|&at| reports[at].1.owner.most).min();
        let Some(most) = most.filter(|most| !most.is_unlimited()) else { continue };
        let together: Vec<Claim> = own.iter().map(|&at| claims[at]).collect();
        for (&at, part) in own.iter().zip(shared(most.as_f64(), &together)) {
            claims[at].bound = claims[at].bound.min(part.target);
        }
    }
}

/// Gives sessions the weights with which a node of `capacity` shares it first among owners and then
/// among the sessions of each. `claims` are those of `reports`, in their order, with the bounds
/// that count.
pub fn divide(capacity: Rate, reports: &[(FlowId, Report)], claims: &mut [Claim]) {
    let order = by_owner(reports);
    if of_each(reports, &order).all(|own| own.len() == 1) {
        // Each session has all that its owner has.
        order.iter().for_each(|&at| claims[at].weight *= reports[at].1.owner.weight);
        return;
    }
    let owners: Vec<Owner> = of_each(reports, &order)
        .map(|own| {
            let claims: Vec<Claim> = own.iter().map(|&at| claims[at]).collect();
            let factor = own.first().map_or(1.0, |&at| reports[at].1.owner.weight);
            let heaviest = claims.iter().map(|claim| claim.weight).fold(0.0, f64::max);
            Owner { own, claims, weight: heaviest * factor }
        })
        .collect();
    let alone = reports.iter().zip(&*claims).filter(|((_, report), _)| !shares_weight(report));
    let mut nodes: Vec<Claim> = alone.map(|(_, claim)| *claim).collect();
    nodes.extend(owners.iter().map(Owner::claim));
    let level = level(&nodes, &shared(capacity.as_f64(), &nodes));
    for owner in owners {
        let factor = owner.factor(level);
        owner.own.iter().for_each(|&at| claims[at].weight *= factor);
    }
}

/// The sessions of one owner.
struct Owner<'a> {
    /// Their places among all.
    own: &'a [usize],
    claims: Vec<Claim>,
    /// Their weight together.
    weight: f64,
}

impl Owner<'_> {
    /// What they claim together.
    fn claim(&self) -> Claim {
        let bound = self.claims.iter().map(|claim| claim.bound).sum();
        Claim { weight: self.weight, bound }
    }

    /// What their weights are to be multiplied by where a unit of weight gets `level`, if anybody
    /// gets less than its bound.
    fn factor(&self, level: Option<f64>) -> f64 {
        let sum: f64 = self.claims.iter().map(|claim| claim.weight).sum();
        match level {
            Some(level) if level > 0.0 => self.level(self.weight * level, sum) / level,
            Some(_) | None if sum > 0.0 => self.weight / sum,
            Some(_) | None => 1.0,
        }
    }

    /// What a unit of their own weights, which are `sum`, gets of `capacity`.
    fn level(&self, capacity: f64, sum: f64) -> f64 {
        level(&self.claims, &shared(capacity, &self.claims)).unwrap_or_else(|| {
            let most = self.claims.iter().map(|claim| claim.bound / claim.weight);
            let spare = capacity - self.claim().bound;
            most.fold(0.0, f64::max) + spare.max(0.0) / sum
        })
    }
}

/// Whether the weight of a session is its owner's. One that ends wants nothing.
fn shares_weight(report: &Report) -> bool {
    is_owned(report) && report.phase == Phase::Open
}

/// The places of the sessions that have owners, those of one owner side by side.
fn by_owner(reports: &[(FlowId, Report)]) -> Vec<usize> {
    let mut order: Vec<usize> =
        (0..reports.len()).filter(|&at| shares_weight(&reports[at].1)).collect();
    order.sort_unstable_by_key(|&at| (reports[at].1.owner.number, at));
    order
}

/// The places of each owner's sessions in an `order` that [`by_owner`] made.
fn of_each<'a>(
    reports: &'a [(FlowId, Report)],
    order: &'a [usize],
) -> impl Iterator<Item = &'a [usize]> {
    order.chunk_by(|&a, &b| reports[a].1.owner.number == reports[b].1.owner.number)
}

fn shared(capacity: f64, claims: &[Claim]) -> Vec<Share> {
    let mut parts = Vec::new();
    shares(capacity, claims, &mut parts);
    parts
}

/// What a unit of weight gets; `None` if each claim gets its bound.
fn level(claims: &[Claim], parts: &[Share]) -> Option<f64> {
    let short = claims.iter().zip(parts).filter(|(claim, part)| part.target < claim.bound * FULL);
    short.map(|(claim, part)| part.target / claim.weight).reduce(f64::max)
}

/// A claim that gets this part of its bound gets all of it, but for rounding.
const FULL: f64 = 1.0 - 1e-9;

#[cfg(test)]
mod tests;

//! How sessions of one owner share what one owner has.
//!
//! A host that serves gives each owner, a client with a listed key or an address of strangers, the
//! weight of the heaviest of its sessions, however many it has. What an owner gets, its sessions
//! share by their own weights and demands, so that those that want little leave the rest to the
//! others. An owner may have a weight that multiplies it, and a limit for all its sessions
//! together. Owners of one class may have a limit and a guarantee together ([`crate::classes`]).
//! The host's own sessions have no owner, and keep their weights. This module must not know who
//! the owners are.

use alloc::vec::Vec;

use gtp_alloc::Rate;
use gtp_alloc::grant::{Claim, Share, shares};
use gtp_alloc::within;

use crate::classes::Classes;
use crate::report::{FlowId, Phase, Report};

/// Whether a session shares its weight or a limit with others.
#[inline]
pub fn is_owned(report: &Report) -> bool {
    report.owner.number != 0
}

/// Lowers the bounds of sessions whose owner has a limit to what they have of it. `claims` are
/// those of `reports`, in their order.
pub fn limit(reports: &[(FlowId, Report)], classes: &Classes, claims: &mut [Claim]) {
    let most = |report: &Report| report.owner.most.min(classes.each(report.owner.class));
    if reports.iter().all(|(_, report)| most(report).is_unlimited()) {
        return;
    }
    for own in of_each(reports, &by_owner(reports)) {
        let most = own.iter().map(|&at| most(&reports[at].1)).min();
        let Some(most) = most.filter(|most| !most.is_unlimited()) else { continue };
        let together: Vec<Claim> = own.iter().map(|&at| claims[at]).collect();
        for (&at, part) in own.iter().zip(shared(most.as_f64(), &together)) {
            claims[at].bound = claims[at].bound.min(part.target);
        }
    }
}

/// The classes with limits whose owners have sessions, and the places of these.
pub fn classed(reports: &[(FlowId, Report)], classes: &Classes) -> Vec<within::Class> {
    if classes.is_empty() {
        return Vec::new();
    }
    classes.over(reports.iter().map(|(_, report)| report.owner.class))
}

/// Gives sessions the weights with which a node of `capacity` shares it first among owners, within
/// the limits of their classes, and then among the sessions of each. `claims` are those of
/// `reports`, in their order, with the bounds that count.
pub fn divide(
    capacity: Rate,
    reports: &[(FlowId, Report)],
    classes: &Classes,
    claims: &mut [Claim],
) {
    let order = by_owner(reports);
    if of_each(reports, &order).all(|own| own.len() == 1) {
        // Each session has all that its owner has.
        let factor = |at: usize| f64::from(reports[at].1.owner.weight);
        order.iter().for_each(|&at| claims[at].weight *= factor(at));
        return;
    }
    let owners: Vec<Owner> = of_each(reports, &order)
        .map(|own| {
            let claims: Vec<Claim> = own.iter().map(|&at| claims[at]).collect();
            let factor = own.first().map_or(1.0, |&at| f64::from(reports[at].1.owner.weight));
            let heaviest = claims.iter().map(|claim| claim.weight).fold(0.0, f64::max);
            let class = own.first().map_or(0, |&at| reports[at].1.owner.class);
            Owner { own, claims, class, weight: heaviest * factor }
        })
        .collect();
    let alone = reports.iter().zip(&*claims).filter(|((_, report), _)| !shares_weight(report));
    let mut nodes: Vec<Claim> = alone.map(|(_, claim)| *claim).collect();
    let first = nodes.len();
    nodes.extend(owners.iter().map(Owner::claim));
    let row = core::iter::repeat_n(0, first).chain(owners.iter().map(|owner| owner.class));
    let levels = Levels::of(capacity.as_f64(), &nodes, &classes.over(row));
    for (at, owner) in owners.into_iter().enumerate() {
        let factor = owner.factor(levels.at(first + at));
        owner.own.iter().for_each(|&at| claims[at].weight *= factor);
    }
}

/// What a unit of weight gets, by place: in a class with a guarantee or a cap it may be more or
/// less than elsewhere.
struct Levels {
    /// Where there are classes.
    own: Vec<Option<f64>>,
    /// Elsewhere; `None` if everybody gets its bound.
    rest: Option<f64>,
}

impl Levels {
    fn of(capacity: f64, nodes: &[Claim], classes: &[within::Class]) -> Levels {
        let mut parts = Vec::new();
        if classes.is_empty() {
            shares(capacity, nodes, &mut parts);
            let rest = level(nodes, &parts);
            return Levels { own: Vec::new(), rest };
        }
        within::divide(capacity, nodes, classes, &mut parts);
        let of = |(claim, part): (&Claim, &Share)| level(&[*claim], &[*part]);
        let short: Vec<Option<f64>> = nodes.iter().zip(&parts).map(of).collect();
        let mut outside = short.clone();
        let members = classes.iter().flat_map(|class| &class.all.members);
        members.clone().for_each(|&at| outside[at] = None);
        let rest = outside.into_iter().flatten().reduce(f64::max);
        let mut own = alloc::vec![rest; nodes.len()];
        // Its level is not known where nobody beside it is short. At the one at which it has its
        // bound, each of its sessions has its own, and also at any higher one.
        let fulfils = |at: usize| Some(nodes[at].bound / nodes[at].weight);
        members.for_each(|&at| own[at] = fulfils(at));
        if rest.is_none() && short.iter().any(Option::is_some) {
            (0..nodes.len()).for_each(|at| own[at] = fulfils(at));
        }
        own.iter_mut().zip(short).for_each(|(own, short)| *own = short.or(*own));
        Levels { own, rest }
    }

    fn at(&self, place: usize) -> Option<f64> {
        self.own.get(place).copied().unwrap_or(self.rest)
    }
}

/// The sessions of one owner.
struct Owner<'a> {
    /// Their places among all.
    own: &'a [usize],
    claims: Vec<Claim>,
    /// The owner's class.
    class: u32,
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

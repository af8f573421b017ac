//! How sessions of one owner share what one owner has.
//!
//! A host that serves gives each owner, a client with a listed key or an address of strangers, the
//! weight of the heaviest of its sessions, however many it has: its sessions divide that weight by
//! their own. An owner may have a weight that multiplies it, and a limit for all its sessions
//! together. The host's own sessions have no owner, and keep their weights. This module must not
//! know who the owners are.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use gtp_alloc::grant::{Claim, shares};

use crate::report::{FlowId, Phase, Report};

/// Whether a session shares its weight or a limit with others.
#[inline]
pub fn is_owned(report: &Report) -> bool {
    report.owner.number != 0
}

/// Gives the sessions of each owner the weights and bounds that they have together. `claims` are
/// those of `reports`, in their order.
pub fn share(reports: &[(FlowId, Report)], claims: &mut [Claim]) {
    let mut owners: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, (_, report)) in reports.iter().enumerate() {
        // One that ends wants nothing.
        if is_owned(report) && report.phase == Phase::Open {
            owners.entry(report.owner.number).or_default().push(at);
        }
    }
    for own in owners.into_values() {
        let of = |at: &usize| &claims[*at];
        let sum: f64 = own.iter().map(|at| of(at).weight).sum();
        let most = own.iter().map(|at| of(at).weight).fold(0.0, f64::max);
        let limit = own.iter().map(|&at| reports[at].1.owner.most).min();
        let limit = limit.filter(|limit| !limit.is_unlimited());
        if let Some(limit) = limit {
            let together: Vec<Claim> = own.iter().map(|at| *of(at)).collect();
            let mut parts = Vec::new();
            shares(limit.as_f64(), &together, &mut parts);
            for (&at, part) in own.iter().zip(parts) {
                claims[at].bound = claims[at].bound.min(part.target);
            }
        }
        for at in own {
            let factor = reports[at].1.owner.weight * if sum > 0.0 { most / sum } else { 1.0 };
            claims[at].weight *= factor;
        }
    }
}

#[cfg(test)]
mod tests;

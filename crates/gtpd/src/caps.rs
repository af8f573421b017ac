//! Users that may have no more than so much, however much is free.
//!
//! What a user may have is shared among his own sessions by the grant law, as a node of that
//! capacity would; each then wants no more than it is offered there, and offers no more to its
//! other end. So the host's agent never sees more demand of a user than he may have, and what one
//! of his sessions leaves the others of his can take.

use std::collections::BTreeMap;

use gtp_alloc::Rate;
use gtp_alloc::grant::{Claim, Share, shares};
use gtp_proto::{FlowId, Grant, Phase, Report};

/// The limits of users, and what they come to for sessions in this tick.
#[derive(Debug, Default)]
pub(crate) struct Caps {
    most: BTreeMap<u32, Rate>,
    /// The sessions of each user that has a limit, by their place among the reports.
    places: BTreeMap<u32, Vec<usize>>,
    offers: Vec<(usize, Rate)>,
}

impl Caps {
    pub fn new(most: BTreeMap<u32, Rate>) -> Caps {
        Caps { most, ..Caps::default() }
    }

    /// Before a tick.
    pub fn begin(&mut self) {
        self.places.values_mut().for_each(Vec::clear);
        self.offers.clear();
    }

    /// The report at `place` is of a session of this user.
    pub fn note(&mut self, uid: u32, place: usize) {
        if self.most.contains_key(&uid) {
            self.places.entry(uid).or_default().push(place);
        }
    }

    /// Lessens what sessions want to what their users may have.
    pub fn lessen(&mut self, reports: &mut [(FlowId, Report)]) {
        let mut answers: Vec<Share> = Vec::new();
        for (uid, places) in &self.places {
            let most = self.most[uid];
            let claims: Vec<Claim> = places.iter().map(|&at| claim(&reports[at].1)).collect();
            shares(most.as_f64(), &claims, &mut answers);
            for (&at, share) in places.iter().zip(&answers) {
                let offer = Rate::from_f64(share.offer).min(most);
                let report = &mut reports[at].1;
                report.demand = report.demand.min(offer);
                self.offers.push((at, offer));
            }
        }
    }

    /// Lessens what sessions offer likewise.
    pub fn lessen_offers(&self, grants: &mut [(FlowId, Grant)]) {
        for &(at, offer) in &self.offers {
            let grant = &mut grants[at].1;
            grant.offer = grant.offer.min(offer);
        }
    }
}

fn claim(report: &Report) -> Claim {
    let bound = match report.phase {
        Phase::Open => report.peer_offer.min(report.demand),
        Phase::Closing => Rate::ZERO,
    };
    Claim { weight: report.weight * report.peer_weight, bound: bound.as_f64() }
}

//! What an agent does at a tick, on a world's compact state instead of its own.
//!
//! The laws themselves are `gtp_alloc`'s; this is the little that `gtp_proto::Agent` adds around
//! them: which claims they see, when a grant is worth a new number, whole bits. A test runs the
//! same worlds under agents and under this and finds the same words. Knows no time and no peers.

use gtp_alloc::Rate;
use gtp_alloc::endnode::{Params, expected_rates};
use gtp_alloc::grant::{Claim, Held, Share, grants, shares};
use gtp_proto::limits::GRANTS_OUTSTANDING;

use super::build::Telling;
use super::ends::{Common, Life, Terms};

/// Room for one node's computation, used again and again.
#[derive(Clone, Debug, Default)]
pub(super) struct Desk {
    /// The sessions that take part, as places among the node's ends.
    pub active: Vec<u32>,
    pub claims: Vec<Claim>,
    pub shares: Vec<Share>,
    pub held: Vec<Held>,
    pub granted: Vec<f64>,
    pub measured: Vec<Rate>,
    pub expected: Vec<Rate>,
    /// The parameters of each of `active`, where any session has its own.
    pub params: Vec<u32>,
    trial: Vec<Rate>,
}

impl Desk {
    /// An empty desk.
    pub fn clear(&mut self) {
        self.active.clear();
        self.claims.clear();
        self.held.clear();
        self.measured.clear();
        self.params.clear();
    }

    /// Reads what end `i` of the node carried in the last `interval`; it takes part if open. Its
    /// terms are asked for where any session has parameters of its own.
    #[inline]
    pub fn measure(&mut self, i: usize, end: &mut Common, own: Option<&[Terms]>, interval: u64) {
        let measured = end.flow.read(interval);
        if end.life == Life::Open {
            self.active.push(i as u32);
            self.measured.push(Rate::from_bps(measured));
            if let Some(terms) = own {
                self.params.push(terms[i].params);
            }
        }
    }

    /// Shares of `capacity` among `claims`.
    pub fn share(&mut self, capacity: Rate) {
        shares(capacity.as_f64(), &self.claims, &mut self.shares);
    }

    /// Grants out of `capacity`, as `held` is.
    pub fn grant(&mut self, capacity: Rate) {
        grants(capacity.as_f64(), &self.held, &mut self.granted);
    }

    /// Expected rates of `measured` out of `capacity`, each session by its own parameters.
    ///
    /// What a session's step starts from, its target rate, depends on measured rates alone
    /// (eq. VI.3), so a node of mixed parameters takes each session's part of a run with its own.
    pub fn expect(&mut self, capacity: Rate, all: &[Params], node: u32) {
        self.expected.clear();
        self.expected.resize(self.measured.len(), Rate::ZERO);
        if capacity.is_unlimited() {
            self.expected.fill(Rate::UNLIMITED);
            return;
        }
        if self.params.iter().all(|p| *p == node) {
            let params = &all[node as usize];
            expected_rates(params, capacity, &self.measured, &mut self.expected);
            return;
        }
        self.trial.clear();
        self.trial.resize(self.measured.len(), Rate::ZERO);
        let mut kinds = self.params.clone();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            let params = &all[kind as usize];
            expected_rates(params, capacity, &self.measured, &mut self.trial);
            for (i, own) in self.params.iter().enumerate() {
                if *own == kind {
                    self.expected[i] = self.trial[i];
                }
            }
        }
    }
}

/// An agent tells a raise of a grant only beyond this part of it.
const NEWS: f64 = 1e-4;
/// An agent tells a raise of a grant only beyond this many bit/s.
const NEWS_LEAST: f64 = 1_000.0;

/// Whether a sink that last issued `newest` issues `rate` now, when `outstanding` grants have not
/// been echoed; both in whole bit/s.
pub(super) fn is_issued(telling: Telling, rate: f64, newest: f64, outstanding: usize) -> bool {
    match telling {
        Telling::Always => rate != newest,
        Telling::AsAgents => {
            let is_small = (rate - newest).abs() <= NEWS_LEAST.max(NEWS * newest) && rate > 0.0;
            let is_same = rate == newest || is_small && rate >= newest;
            !(is_same || outstanding >= GRANTS_OUTSTANDING && rate > newest)
        }
    }
}

/// Whole bit/s, rounded down, as agents state them.
pub(super) fn to_rate(rate: f64) -> u64 {
    if rate.is_infinite() { u64::MAX } else { rate as u64 }
}

/// The rate of `bps`, infinite if unlimited.
pub(super) fn to_f64(bps: u64) -> f64 {
    Rate::from_bps(bps).as_f64()
}

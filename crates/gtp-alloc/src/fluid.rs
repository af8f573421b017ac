//! When transfers end that share a network: the fluid model.
//!
//! Every transfer has bytes to move and one or several ways to move them, one for each source that
//! has them. While nothing begins or ends, each way has its max-min fair rate ([`maxmin`]), and a
//! transfer has the sum of its ways'. The next end changes the rates of all the others. So the
//! model goes from end to end, and is exact but for rounding: it knows no round trips, losses or
//! disks. It reads no clock, and nothing here knows what a resource is.

use alloc::vec::Vec;

use crate::maxmin::{Network, NetworkError, Session, solve};
use crate::units::Bytes;

/// Transfers that may run at once over resources with capacities.
///
/// Built transfer by transfer, checked as it is built, so that [`Transfers::run`] cannot fail.
#[derive(Clone, Debug)]
pub struct Transfers {
    capacity: Vec<f64>,
    bits: Vec<f64>,
    /// For each transfer, its first way; one more than there are transfers.
    first_way: Vec<usize>,
    /// For each way, its first resource; one more than there are ways.
    first_use: Vec<usize>,
    uses: Vec<u32>,
    /// For each transfer, those that must have ended before it begins.
    after: Vec<Vec<u32>>,
}

/// Why a transfer was refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FluidError {
    /// The capacities, or the way of this number among the transfer's, make no network.
    Network {
        /// The way's number, from zero.
        way: usize,
        /// What is wrong.
        why: NetworkError,
    },
    /// It has no way, so it could never end.
    NoWay,
    /// It is to begin after this transfer, which was not added before it.
    After(u32),
}

impl core::fmt::Display for FluidError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            FluidError::Network { way, why } => write!(f, "way {way}: {why}"),
            FluidError::NoWay => f.write_str("the transfer has no way"),
            FluidError::After(other) => write!(f, "transfer {other} was not added before it"),
        }
    }
}

impl core::error::Error for FluidError {}

/// When each transfer begins and ends, and the rates between.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course {
    /// By transfer.
    pub transfers: Vec<Run>,
    /// The rates from one begin or end to the next one, in order of time.
    pub steps: Vec<Step>,
}

/// When a transfer begins and ends, in seconds from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Run {
    /// `None` if it never begins, because one that comes before it never ends.
    pub begin_s: Option<f64>,
    /// `None` if it never ends, because a resource on its only ways has no capacity.
    pub end_s: Option<f64>,
}

/// A time in which no rate changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its begin, in seconds from the start.
    pub begin_s: f64,
    /// Its end; infinite for the last step of transfers that never end.
    pub end_s: f64,
    /// The rate of each way of each transfer that runs, by transfer and way.
    pub shares: Vec<Share>,
}

/// The rate of one way of a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The transfer.
    pub transfer: u32,
    /// The way's number among those of the transfer, from zero.
    pub way: u32,
    /// In bit/s.
    pub rate: f64,
}

impl Course {
    /// When the last transfer ends, in seconds from the start; `None` if one never does.
    pub fn end_s(&self) -> Option<f64> {
        self.transfers
            .iter()
            .map(|run| run.end_s)
            .try_fold(0.0, |last: f64, end| end.map(|end| last.max(end)))
    }
}

impl Transfers {
    /// No transfers yet, over resources with these capacities in bit/s.
    ///
    /// # Errors
    /// [`FluidError::Network`] for a capacity that is none.
    pub fn new(capacity: Vec<f64>) -> Result<Transfers, FluidError> {
        let why = |why| FluidError::Network { way: 0, why };
        let network = Network::new(capacity).map_err(why)?;
        Ok(Transfers {
            capacity: network.capacities().to_vec(),
            bits: Vec::new(),
            first_way: alloc::vec![0],
            first_use: alloc::vec![0],
            uses: Vec::new(),
            after: Vec::new(),
        })
    }

    /// Adds a transfer of so many bytes and returns its number. Each way is a list of the
    /// resources that it crosses, one of which has a finite capacity. It begins when those before
    /// it in `after`, which were added earlier, have ended; without any, at the start.
    ///
    /// # Errors
    /// Every [`FluidError`]; nothing is added then.
    pub fn add(&mut self, bytes: Bytes, ways: &[&[u32]], after: &[u32]) -> Result<u32, FluidError> {
        let number = self.bits.len() as u32;
        if ways.is_empty() {
            return Err(FluidError::NoWay);
        }
        if let Some(&later) = after.iter().find(|&&other| other >= number) {
            return Err(FluidError::After(later));
        }
        let empty = Network::new(self.capacity.clone());
        let mut probe = empty.map_err(|why| FluidError::Network { way: 0, why })?;
        for (way, uses) in ways.iter().enumerate() {
            let added = probe.add(session(uses));
            added.map_err(|why| FluidError::Network { way, why })?;
        }
        for uses in ways {
            self.uses.extend_from_slice(uses);
            self.first_use.push(self.uses.len());
        }
        self.first_way.push(self.first_use.len() - 1);
        self.bits.push(bytes.0 as f64 * 8.0);
        self.after.push(after.to_vec());
        Ok(number)
    }

    /// The number of transfers.
    pub fn len(&self) -> usize {
        self.bits.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    /// When each transfer begins and ends. Takes a solution of the max-min problem for each
    /// distinct end.
    pub fn run(&self) -> Course {
        let mut course =
            Course { transfers: alloc::vec![Run::default(); self.len()], steps: Vec::new() };
        let mut left = self.bits.clone();
        let mut now_s = 0.0;
        loop {
            self.begin(now_s, &mut course.transfers, &left);
            let runs = |run: &Run| run.begin_s.is_some() && run.end_s.is_none();
            let running: Vec<u32> =
                (0u32..).zip(&course.transfers).filter(|(_, run)| runs(run)).map(|r| r.0).collect();
            if running.is_empty() {
                return course;
            }
            let shares = self.shares(&running);
            let mut rates = alloc::vec![0.0; self.len()];
            shares.iter().for_each(|share| rates[share.transfer as usize] += share.rate);
            let span = |&number: &u32| left[number as usize] / rates[number as usize];
            let next_s = running.iter().map(span).fold(f64::INFINITY, f64::min);
            let (begin_s, end_s) = (now_s, now_s + next_s);
            course.steps.push(Step { begin_s, end_s, shares });
            if next_s == f64::INFINITY {
                return course;
            }
            now_s = end_s;
            for number in running {
                let at = number as usize;
                // Ends at one time come from different quotients: they agree but for rounding.
                if span(&number) <= next_s * (1.0 + SAME_TIME) {
                    course.transfers[at].end_s = Some(now_s);
                }
            }
            for (at, rate) in rates.iter().enumerate() {
                left[at] = f64::max(left[at] - rate * next_s, 0.0);
            }
        }
    }

    /// Begins what nothing holds back. What has no bytes ends at once, and others may follow it.
    fn begin(&self, now_s: f64, runs: &mut [Run], left: &[f64]) {
        // Transfers come after those that they wait for.
        for at in 0..self.len() {
            let over = |&other: &u32| runs[other as usize].end_s.is_some();
            if runs[at].begin_s.is_none() && self.after[at].iter().all(over) {
                let end_s = (left[at] == 0.0).then_some(now_s);
                runs[at] = Run { begin_s: Some(now_s), end_s };
            }
        }
    }

    fn shares(&self, running: &[u32]) -> Vec<Share> {
        let fits = "each way was added to such a network before";
        let mut network = Network::new(self.capacity.clone()).expect(fits);
        let mut shares = Vec::new();
        for &transfer in running {
            let ways = self.first_way[transfer as usize]..self.first_way[transfer as usize + 1];
            for (way, at) in (0..).zip(ways) {
                let uses = &self.uses[self.first_use[at]..self.first_use[at + 1]];
                network.add(session(uses)).expect(fits);
                shares.push(Share { transfer, way, rate: 0.0 });
            }
        }
        for (share, rate) in shares.iter_mut().zip(solve(&network)) {
            share.rate = rate;
        }
        shares
    }
}

fn session(uses: &[u32]) -> Session<'_> {
    Session { uses, weight: 1.0, demand: f64::INFINITY }
}

/// How much two ends at one time may differ by rounding, as a part of the step.
const SAME_TIME: f64 = 1e-12;

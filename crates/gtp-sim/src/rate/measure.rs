//! What is read off a world as it runs: distance, loads, fairness, trajectories.
//!
//! A record is taken at equal steps, but loads are the worst of each step, not of its end. The
//! goal against which distance is measured follows joins, leaves, demands and capacities. It
//! holds numbers only; drawing them is somebody else's.

use gtp_alloc::fairness::{distance, jain_index};
use gtp_alloc::{Span, Time};
use gtp_proto::Side;

use super::build::SessionId;
use super::world::World;

/// A world's run in numbers; all lists but `sessions` and `rates` have one entry a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// When, from the moment the record began.
    pub times: Vec<Time>,
    /// `D(t)`, the 2-norm distance to the max-min rates, in bit/s (thesis VII.1.C).
    pub distance: Vec<f64>,
    /// The 2-norm of the max-min rates themselves, in bit/s.
    pub goal: Vec<f64>,
    /// The largest load of any source in the step that ends here, over its capacity.
    pub source_load: Vec<f64>,
    /// The same of any sink.
    pub sink_load: Vec<f64>,
    /// Jain's index of the rates of the sessions that are active.
    pub jain: Vec<f64>,
    /// The sessions that `rates` is about.
    pub sessions: Vec<SessionId>,
    /// Sending rates in bit/s: one list for each of `sessions`, one entry a step.
    pub rates: Vec<Vec<f64>>,
}

/// Most steps of one record: 2^24.
pub const STEPS_MOST: u64 = 1 << 24;

impl Record {
    /// Runs `world` until `end` and records it now, after every `step`, and at the end. A step
    /// that would make more than [`STEPS_MOST`] of them is made longer.
    pub fn take(world: &mut World, end: Time, step: Span, sessions: &[SessionId]) -> Record {
        let least = end.since(world.now()).as_nanos() / STEPS_MOST + 1;
        let step = Span::from_nanos(step.as_nanos().max(least));
        let mut record = Record { sessions: sessions.to_vec(), ..Record::default() };
        record.rates = vec![Vec::new(); sessions.len()];
        let mut goal = Goal::of(world);
        let mut rates = Vec::new();
        let mut active = Vec::new();
        loop {
            if goal.generation != world.generation() {
                goal = Goal::of(world);
            }
            world.rates(&mut rates);
            record.times.push(world.now());
            record.distance.push(distance(&rates, &goal.rates));
            record.goal.push(goal.norm);
            record.source_load.push(world.take_worst_load(Side::Source).part);
            record.sink_load.push(world.take_worst_load(Side::Sink).part);
            active.clear();
            let is_active = |(k, _): &(usize, &f64)| world.is_active(SessionId(*k as u32));
            active.extend(rates.iter().enumerate().filter(is_active).map(|(_, rate)| *rate));
            record.jain.push(jain_index(&active));
            for (list, k) in record.rates.iter_mut().zip(sessions) {
                list.push(rates[k.0 as usize]);
            }
            if world.now() >= end {
                return record;
            }
            world.run_until((world.now() + step).min(end));
        }
    }

    /// From when on `D(t)` stayed at most `part` of what it was first, to the precision of the
    /// steps; `None` if it did not.
    pub fn settled(&self, part: f64) -> Option<Time> {
        let band = part * self.distance.first()?;
        let outside = self.distance.iter().rposition(|d| *d > band);
        self.times.get(outside.map_or(0, |at| at + 1)).copied()
    }

    /// From when on the rate of the recorded session at `place` stayed within `part` of `goal`
    /// bit/s; `None` if it did not.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn reached(&self, place: usize, goal: f64, part: f64) -> Option<Time> {
        let off = |rate: &f64| (rate - goal).abs() > part * goal;
        let outside = self.rates[place].iter().rposition(off);
        self.times.get(outside.map_or(0, |at| at + 1)).copied()
    }

    /// `D` at the step nearest before or at `at`, as a part of what it was first; 0 if it was 0.
    pub fn distance_at(&self, at: Time) -> f64 {
        let step = self.times.partition_point(|t| *t <= at);
        match (self.distance.first(), self.distance[..step].last()) {
            (Some(first), Some(now)) if *first > 0.0 => now / first,
            (_, _) => 0.0,
        }
    }

    /// The largest of `source_load` and of `sink_load`.
    pub fn worst_loads(&self) -> (f64, f64) {
        let worst = |loads: &[f64]| loads.iter().copied().fold(0.0, f64::max);
        (worst(&self.source_load), worst(&self.sink_load))
    }
}

/// The max-min rates of one moment.
struct Goal {
    rates: Vec<f64>,
    norm: f64,
    generation: u64,
}

impl Goal {
    fn of(world: &World) -> Goal {
        let rates = world.optimum();
        let norm = distance(&rates, &vec![0.0; rates.len()]);
        Goal { rates, norm, generation: world.generation() }
    }
}

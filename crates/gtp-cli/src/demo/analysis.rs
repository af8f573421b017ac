//! From counters to shares: phases, what each session got in them, and how soon.
//!
//! A phase lies between two events: a session's first data at the sink, or its last. In each the
//! oracle says what every session should have; rates are means over windows of 100 ms, taken from
//! the emulator's counters. A phase has settled at the end of the first window from which on, for
//! half a second, all sessions are within 5 % of their shares at once. Nothing is smoothed and
//! nothing left out but the tail: the last moment of a phase that ends because a session runs
//! out of data to ask for.

use serde::Serialize;

use super::plan::{Each, SESSIONS, wanted};
use super::record::{Asked, Record, Sample};
use gtp_alloc::fairness::jain_index;

/// What the run amounts to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The phases of the sessions that came and went.
    pub phases: Vec<Phase>,
    /// The phase in which one file came from all sources; none if they were never all active.
    pub gather: Option<Phase>,
    /// When each session's data came: the steps.
    pub flows: Each<Option<Flow>>,
    /// The same of the transfer from all sources.
    pub gather_flows: Each<Option<Flow>>,
}

/// From first to last data of a session, in seconds on the record's clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Flow {
    /// The first data has arrived.
    pub joined: f64,
    /// The last data has arrived.
    pub left: f64,
}

/// What a phase begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The sessions named joined.
    #[default]
    Join,
    /// They left.
    Leave,
}

/// The time between two events.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Phase {
    /// When it begins.
    pub begin: f64,
    /// When it ends.
    pub end: f64,
    /// What it begins with.
    pub change: Change,
    /// Whose join or leave.
    pub whose: usize,
    /// Who is active.
    pub active: Each<bool>,
    /// What each should have, in bit/s.
    pub wanted: Each<f64>,
    /// What each had over the steady part, in bit/s.
    pub got: Each<f64>,
    /// Jain's index of what the active ones had over the steady part, each relative to its share.
    pub jain: f64,
    /// The lowest such index of any second of the steady part.
    pub jain_worst: f64,
    /// Seconds from the event until all have settled; none if they do not in this phase.
    pub settled: Option<f64>,
    /// The share of all windows of the steady part in which all are within 5 %.
    pub held: f64,
    /// Packets dropped by the shared queue, of those that came to it in this phase.
    pub loss: f64,
    /// Packets dropped by the shared queue in this phase.
    pub dropped_packets: u64,
    /// Mean bytes that waited there.
    pub queue_bytes: f64,
}

impl Phase {
    /// Sum of what all had over the steady part, in bit/s.
    pub fn sum(&self) -> f64 {
        self.got.iter().sum()
    }

    /// Sum of what all should have, in bit/s.
    pub fn sum_wanted(&self) -> f64 {
        self.wanted.iter().sum()
    }

    /// How many are active.
    pub fn sessions(&self) -> usize {
        self.active.iter().filter(|active| **active).count()
    }
}

/// Works out the phases of a record.
pub fn analyse(record: &Record) -> Report {
    let series = Series { samples: &record.samples };
    let flows = std::array::from_fn(|k| series.flow(k, record.asked[k]));
    let gather_flows = std::array::from_fn(|k| series.flow(k, record.gather));
    let phases = phases(&flows);
    let full = self::phases(&gather_flows).into_iter().find(|p| p.sessions() == SESSIONS);
    Report {
        phases: phases.into_iter().map(|phase| series.measure(phase)).collect(),
        gather: full.map(|phase| series.measure(phase)),
        flows,
        gather_flows,
    }
}

/// The phases between these joins and leaves, nothing measured yet. Times with nobody active are
/// no phases, nor are those in which nothing can be measured.
pub fn phases(flows: &Each<Option<Flow>>) -> Vec<Phase> {
    let mut events: Vec<(f64, Change, usize)> = Vec::new();
    for (whose, flow) in flows.iter().enumerate() {
        if let Some(flow) = flow {
            events.push((flow.joined, Change::Join, whose));
            events.push((flow.left, Change::Leave, whose));
        }
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut active = [false; SESSIONS];
    let mut found = Vec::new();
    for (n, &(begin, change, whose)) in events.iter().enumerate() {
        active[whose] = change == Change::Join;
        let end = events.get(n + 1).map_or(begin, |next| next.0);
        if active.contains(&true) && end - begin > 2.0 * WINDOW {
            let wanted = wanted(&active);
            found.push(Phase { begin, end, change, whose, active, wanted, ..Phase::default() });
        }
    }
    found
}

/// The counters, as functions of time.
pub struct Series<'a> {
    /// In the order of time.
    pub samples: &'a [Sample],
}

impl Series<'_> {
    /// A counter at any time, between samples by proportion.
    fn at(&self, t: f64, counter: impl Fn(&Sample) -> f64) -> f64 {
        let after = self.samples.partition_point(|sample| sample.t < t);
        match (after.checked_sub(1).and_then(|n| self.samples.get(n)), self.samples.get(after)) {
            (Some(a), Some(b)) => {
                let part = (t - a.t) / (b.t - a.t).max(1e-9);
                counter(a) + (counter(b) - counter(a)) * part
            }
            (Some(only), None) | (None, Some(only)) => counter(only),
            (None, None) => 0.0,
        }
    }

    fn growth(&self, from: f64, to: f64, counter: impl Fn(&Sample) -> f64) -> f64 {
        self.at(to, &counter) - self.at(from, &counter)
    }

    /// Mean rate of a session at the sink in bit/s.
    pub fn rate(&self, session: usize, from: f64, to: f64) -> f64 {
        self.growth(from, to, |s| s.carried[session] as f64) * 8.0 / (to - from).max(1e-9)
    }

    /// Mean number of bytes that waited in the shared queue.
    pub fn queue_bytes(&self, from: f64, to: f64) -> f64 {
        self.growth(from, to, |s| s.waited_byte_s) / (to - from).max(1e-9)
    }

    /// Packets dropped by the shared queue.
    pub fn dropped(&self, from: f64, to: f64) -> f64 {
        self.growth(from, to, |s| s.dropped_packets as f64)
    }

    /// Where a session's data begin and end between its request and its end. What the control
    /// channel carries on the same path is too little to count.
    fn flow(&self, session: usize, asked: Asked) -> Option<Flow> {
        let within = |s: &&Sample| s.t >= asked.from && s.t <= asked.to;
        let mut inside = self.samples.iter().filter(within).peekable();
        let first = inside.peek()?.carried[session];
        let last = inside.clone().last()?.carried[session];
        let joined = inside.clone().find(|s| s.carried[session] - first > TALK_BYTES)?.t;
        let left = inside.find(|s| last - s.carried[session] < TALK_BYTES)?.t;
        (joined < left).then_some(Flow { joined, left })
    }

    /// Fills in what a phase had.
    fn measure(&self, mut phase: Phase) -> Phase {
        let tail = phase.end - TAIL.min((phase.end - phase.begin) / 4.0);
        let settled = self.settled(&phase, tail);
        let latest = phase.begin + PATIENCE.min((tail - phase.begin) / 2.0);
        let steady = (settled.unwrap_or(latest), tail);
        for session in 0..SESSIONS {
            if phase.active[session] {
                phase.got[session] = self.rate(session, steady.0, steady.1);
            }
        }
        phase.jain = self.jain(&phase, steady.0, steady.1);
        phase.jain_worst = times(steady.0, steady.1 - SECOND)
            .map(|from| self.jain(&phase, from, from + SECOND))
            .fold(phase.jain, f64::min);
        let windows: Vec<bool> =
            times(steady.0 + WINDOW, steady.1).map(|to| self.is_fair(&phase, to)).collect();
        let good = windows.iter().filter(|fair| **fair).count();
        phase.held = good as f64 / windows.len().max(1) as f64;
        phase.settled = settled.map(|at| at - phase.begin);
        let (begin, end) = (phase.begin, phase.end);
        let offered = self.growth(begin, end, |s| s.offered_packets as f64);
        let dropped = self.dropped(begin, end);
        phase.loss = if offered > 0.0 { dropped / offered } else { 0.0 };
        phase.dropped_packets = dropped.round() as u64;
        phase.queue_bytes = self.queue_bytes(begin, end);
        phase
    }

    /// The end of the first window from which on all are within tolerance.
    fn settled(&self, phase: &Phase, tail: f64) -> Option<f64> {
        let hold = HOLD.min((tail - phase.begin) / 4.0);
        times(phase.begin + WINDOW, tail - hold)
            .find(|&at| times(at, at + hold).all(|to| self.is_fair(phase, to)))
    }

    /// Whether all active sessions are within tolerance in the window that ends here.
    fn is_fair(&self, phase: &Phase, to: f64) -> bool {
        (0..SESSIONS).filter(|&k| phase.active[k]).all(|k| {
            let off = self.rate(k, to - WINDOW, to) - phase.wanted[k];
            off.abs() <= TOLERANCE * phase.wanted[k]
        })
    }

    fn jain(&self, phase: &Phase, from: f64, to: f64) -> f64 {
        let active = (0..SESSIONS).filter(|&k| phase.active[k]);
        let relative: Vec<f64> = active.map(|k| self.rate(k, from, to) / phase.wanted[k]).collect();
        jain_index(&relative)
    }
}

/// Times from `from` to `to` at the distance at which windows are looked at.
fn times(from: f64, to: f64) -> impl Iterator<Item = f64> {
    let count = ((to - from) / STRIDE + 1e-6).floor();
    // Negative if the span is: there are none then.
    (0..(count + 1.0).max(0.0) as usize).map(move |n| from + n as f64 * STRIDE)
}

/// The window over which a rate is a mean, in seconds.
pub const WINDOW: f64 = 0.1;

/// Distance of one window from the next, in seconds.
pub const STRIDE: f64 = 0.02;

/// How near to its share a session must be.
pub const TOLERANCE: f64 = 0.05;

/// How long all must stay there, in seconds.
pub const HOLD: f64 = 0.5;

/// Where the steady part begins if a phase does not settle, in seconds from its event.
const PATIENCE: f64 = 1.0;

/// The end of a phase that is not part of its steady part, in seconds: the longest round trip and
/// a little more, in which a session that ends has nothing left to ask for.
const TAIL: f64 = 0.2;

/// What the control channel may carry before and after the data: handshake, listing, farewell.
const TALK_BYTES: u64 = 16 << 10;

const SECOND: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::synthetic;

    #[test]
    fn a_perfect_run_has_nine_phases_that_settle_at_once() {
        let report = analyse(&synthetic::record(0.0));
        assert_eq!(report.phases.len(), 9);
        let sessions: Vec<usize> = report.phases.iter().map(Phase::sessions).collect();
        assert_eq!(sessions, [1, 2, 3, 4, 5, 4, 3, 2, 1]);
        for phase in &report.phases {
            let settled = phase.settled.expect("it settles");
            assert!(settled < 0.15, "{phase:?}");
            assert!(phase.jain > 0.9999 && phase.jain_worst > 0.999 && phase.held == 1.0);
            assert!((phase.sum() / phase.sum_wanted() - 1.0).abs() < 0.01, "{phase:?}");
        }
        assert_eq!((report.phases[1].change, report.phases[1].whose), (Change::Join, 1));
        assert_eq!((report.phases[5].change, report.phases[5].whose), (Change::Leave, 0));
    }

    #[test]
    fn settling_time_is_that_of_the_slowest_session() {
        // Shares are approached with a time constant of 0.2 s: from 630 to 315 Mbit/s the error
        // of 100 % is below 5 % after 3 time constants.
        let report = analyse(&synthetic::record(0.2));
        let settled = report.phases[1].settled.expect("it settles");
        assert!((0.55..0.80).contains(&settled), "{settled}");
    }

    #[test]
    fn a_session_that_never_gets_its_share_never_settles() {
        let mut record = synthetic::record(0.0);
        for sample in &mut record.samples {
            sample.carried[2] = sample.carried[2] * 9 / 10;
        }
        let report = analyse(&record);
        let of_two: Vec<&Phase> = report.phases.iter().filter(|p| p.active[2]).collect();
        assert!(!of_two.is_empty() && of_two.iter().all(|p| p.settled.is_none() && p.held == 0.0));
        assert!(of_two.iter().all(|p| (p.got[2] / p.wanted[2] - 0.9).abs() < 0.01));
        assert!(report.phases.iter().filter(|p| !p.active[2]).all(|p| p.settled.is_some()));
    }

    #[test]
    fn one_bad_window_is_seen_but_does_not_unsettle_the_phase() {
        let mut record = synthetic::record(0.0);
        let report = analyse(&record);
        // Everything stands still for 60 ms in the middle of the second phase.
        let middle = (report.phases[1].begin + report.phases[1].end) / 2.0;
        let still = record.samples.iter().position(|s| s.t > middle).expect("a sample");
        let carried = record.samples[still].carried;
        for sample in record.samples.iter_mut().skip(still).take(3) {
            sample.carried = carried;
        }
        let disturbed = analyse(&record);
        let phase = &disturbed.phases[1];
        assert!(phase.settled.is_some_and(|s| s < 0.15) && phase.held < 1.0, "{phase:?}");
    }

    #[test]
    fn drops_are_counted_where_they_happen() {
        let mut record = synthetic::record(0.0);
        let begin = analyse(&record).phases[4].begin + 0.5;
        for sample in record.samples.iter_mut().filter(|s| s.t > begin) {
            sample.dropped_packets = 40;
        }
        let report = analyse(&record);
        let dropped: Vec<u64> = report.phases.iter().map(|p| p.dropped_packets).collect();
        assert_eq!(dropped, [0, 0, 0, 0, 40, 0, 0, 0, 0]);
        assert!(report.phases[4].loss > 0.0 && report.phases[3].loss == 0.0);
    }

    #[test]
    fn nothing_seen_is_nothing_found() {
        let report = analyse(&Record::default());
        assert!(report.phases.is_empty() && report.gather.is_none());
    }

    #[test]
    fn the_transfer_from_all_sources_is_one_phase() {
        let report = analyse(&synthetic::record(0.0));
        let gather = report.gather.expect("all five are active");
        assert_eq!(gather.sessions(), SESSIONS);
        assert!(gather.jain > 0.9999 && (gather.sum() / 630e6 - 1.0).abs() < 0.02);
    }
}
